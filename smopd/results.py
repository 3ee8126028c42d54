"""Evaluations on disk, and the report of a run made from them.

An evaluation is a folder with conversations.jsonl (every conversation) and summary.json; a run keeps its own
under eval/: `base` before training, `trained` after.
"""

import json
from pathlib import Path
from typing import Any

from rich.table import Table

from smopd.config import load_config
from smopd.errors import UserError
from smopd.evaluation import Outcome, paired, summarise
from smopd.files import read_jsonl, write_json, write_jsonl
from smopd.viewer import Accuracy, Comparison, Conversation, ConversationPair, ReportData, accuracy_table, write_report

STAGES = ("base", "trained")


def save_evaluation(folder: Path, outcomes: dict[Any, list[Outcome]]) -> dict[str, Any]:
    """Write an evaluation; summary.json comes last, so its presence says the folder is complete."""
    summary = summarise(outcomes)
    write_jsonl(folder / "conversations.jsonl", (o.to_json() for rows in outcomes.values() for o in rows))
    write_json(folder / "summary.json", summary)
    return summary


def load_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished evaluation, None where there is none."""
    path = folder / "summary.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def report_data(run: Path) -> ReportData:
    """Everything the report of a run shows."""
    if not (run / "config.toml").exists():
        raise UserError(f"{run}: not a run folder (no config.toml)")
    config = load_config(run / "config.toml")
    metrics = read_jsonl(run / "metrics.jsonl")
    rows = {
        stage: read_jsonl(run / "eval" / stage / "conversations.jsonl") for stage in STAGES if load_summary(run / "eval" / stage)
    }
    if not metrics and not rows:
        raise UserError(f"{run}: nothing to report yet: no training step and no evaluation is finished")
    return ReportData(
        title=f"{config.model.path}, method {config.method}",
        subtitle=f"{len(metrics)} of {config.train.steps} steps, seed {config.seed}, run folder {run.name}",
        accuracies=[a for stage in rows for a in _accuracies(stage, load_summary(run / "eval" / stage) or {})],
        comparisons=_comparisons(rows),
        metrics=metrics,
        conversations=_pairs(rows),
        settings=config.model_dump(),
        notes=[],
    )


def report_run(run: Path) -> Path:
    """Write report.html into a run folder."""
    path = run / "report.html"
    write_report(path, report_data(run))
    return path


def summary_table(summary: dict[str, Any]) -> Table:
    """One evaluation for the terminal: all examples, each task, success at any turn, and FULL against SHARDED."""
    accuracies = _accuracies("all", summary)
    tasks = sorted({task for view in summary["views"].values() for task in view["by_task"]})
    for task in tasks if len(tasks) > 1 else []:
        of_task = {view: v["by_task"][task] for view, v in summary["views"].items() if task in v["by_task"]}
        accuracies += _accuracies(task, {"views": of_task})
    if "sharded" in summary["views"]:
        accuracies += _accuracies("at any turn", {"views": {"sharded": summary["views"]["sharded"]["any_turn"]}})
    gap = summary.get("sharded_minus_full")
    fields = ("gained", "lost", "difference", "low", "high", "p")
    return accuracy_table(accuracies, [Comparison("FULL against SHARDED", *(gap[f] for f in fields))] if gap else [])


def _accuracies(stage: str, summary: dict[str, Any]) -> list[Accuracy]:
    return [
        Accuracy(stage, view.upper(), v["correct"], v["total"], v["low"], v["high"])
        for view, v in summary.get("views", {}).items()
    ]


def _comparisons(rows: dict[str, list[dict[str, Any]]]) -> list[Comparison]:
    """Base against trained, the same conversations, for each view both have."""
    if len(rows) < 2:
        return []
    made = []
    for view in ("full", "sharded"):
        before, after = ({r["id"]: r["correct"] for r in rows[stage] if r["view"] == view} for stage in STAGES)
        shared = [i for i in before if i in after]
        if shared:
            p = paired([before[i] for i in shared], [after[i] for i in shared])
            made.append(Comparison(f"{view.upper()}: base against trained", p.gained, p.lost, p.difference, p.low, p.high, p.p))
    return made


def _pairs(rows: dict[str, list[dict[str, Any]]], count: int = 3) -> list[ConversationPair]:
    """Conversations to look at: two that training mended (one of each task where there are two), then one it did not."""
    if len(rows) < 2:
        return []
    before, after = ({r["id"]: r for r in rows[stage] if r["view"] == "sharded"} for stage in STAGES)
    shared = [i for i in before if i in after]
    mended = [i for i in shared if after[i]["correct"] and not before[i]["correct"]]
    unmended = [i for i in shared if not after[i]["correct"]]
    first_of_task = list({before[i]["task"]: i for i in reversed(mended)}.values())
    wanted = [*first_of_task[: count - 1], *mended[:count], *shared]
    chosen = list(dict.fromkeys([*wanted[: count - 1], *unmended[:1], *wanted]))[:count]
    return [
        ConversationPair(
            i, before[i]["system"], before[i]["full"], _expected(before[i]["answer"]), _shown(before[i]), _shown(after[i])
        )
        for i in chosen
    ]


def _shown(row: dict[str, Any]) -> Conversation:
    return Conversation([(t["user"], t["reply"]) for t in row["turns"]], row["correct"], row["extracted"])


def _expected(answer: dict[str, Any]) -> str:
    """The right answer in a form a person reads."""
    if "value" in answer:
        return str(answer["value"])
    calls = (
        f"{name}({', '.join(f'{k}={json.dumps(v[0] if isinstance(v, list) and v else v)}' for k, v in arguments.items())})"
        for call in answer.get("calls", [])
        for name, arguments in call.items()
    )
    return f"[{', '.join(calls)}]"
