"""Evaluations on disk, and the report of a run made from them.

An evaluation is a folder (smopd/evaluation/store.py); a run keeps its own under eval/: `base` before
training, `trained` after.
"""

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from smopd.config import load_config
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.metrics import accuracy, against, scores
from smopd.evaluation.statistics import paired
from smopd.evaluation.store import load_identity, load_outcomes, load_summary
from smopd.files import read_jsonl
from smopd.viewer import (
    Accuracy,
    Comparison,
    Conversation,
    ConversationPair,
    ReportData,
    accuracy_table,
    write_report,
)
from smopd.viewer.svg import interval, percent

STAGES = ("base", "trained")


def report_data(run: Path) -> ReportData:
    """Everything the report of a run shows."""
    if not (run / "config.toml").exists():
        raise UserError(f"{run}: not a run folder (no config.toml)")
    config = load_config(run / "config.toml")
    times = {row["step"]: row for row in read_jsonl(run / "timings.jsonl")}
    metrics = [row | times.get(row["step"], {}) for row in read_jsonl(run / "metrics.jsonl")]
    rows = {
        stage: read_jsonl(run / "eval" / stage / "conversations.jsonl")
        for stage in STAGES
        if load_summary(run / "eval" / stage)
    }
    if not metrics and not rows:
        raise UserError(f"{run}: nothing to report yet: no training step and no evaluation is finished")
    return ReportData(
        title=f"{config.model.path}, method {config.method}",
        subtitle=f"{len(metrics)} of {config.train.steps} steps, seed {config.seed}, run folder {run.name}",
        accuracies=[
            a
            for stage in rows
            for a in _accuracies(stage, (load_summary(run / "eval" / stage) or {"views": {}})["views"])
        ],
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
    """One evaluation for the terminal: every view with its interval, then by task and number of shards, then
    against FULL.
    """
    views = summary["views"]
    whole = Table.grid()
    whole.add_row(_views_table(summary))
    if (breakdown := _breakdown_table(views)).row_count:
        whole.add_row(breakdown)
    against = {f"FULL against {view.upper()}": summary.get(f"{view}_minus_full") for view in views}
    if changes := [_comparison(label, change) for label, change in against.items() if change]:
        whole.add_row(accuracy_table([], changes))
    for view, v in views.items():
        if failed := [f"{v['status'][s]} {s}" for s in ("timeout", "error") if v["status"].get(s)]:
            words = f"  {view.upper()}: the verifier failed on some replies, which count as not correct: {', '.join(failed)}"
            whole.add_row(Text(words, style="yellow"))
    return whole


def _views_table(summary: dict[str, Any]) -> Table:
    several = summary["runs"] > 1
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    names = ("mean of runs", "A90", "unreliability") if several else ("accuracy", "95% interval", "correct")
    for name in ("view", *names, "at any turn"):
        table.add_column(name, justify="left" if name == "view" else "right")
    for view, v in summary["views"].items():
        told = "" if view in ("full", "concat") else percent(v["any_turn"]["accuracy"])
        if several:
            spans = [(v["accuracy"], v["low"], v["high"])]
            spans += [(v[name], v[f"{name}_low"], v[f"{name}_high"]) for name in ("a90", "unreliability")]
            cells = [f"{percent(value)} {interval(low, high)}" for value, low, high in spans]
        else:
            cells = [percent(v["accuracy"]), interval(v["low"], v["high"]), f"{v['correct']}/{v['total']}"]
        table.add_row(Text(view.upper()), *map(Text, cells), told)
    return table


def _breakdown_table(views: dict[str, Any]) -> Table:
    """Accuracy by task and by number of shards, where there is more than one of them."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column("by")
    for name in ("n", *(view.upper() for view in views)):
        table.add_column(name, justify="right")
    for part, unit in (("by_task", ""), ("by_shards", " shards")):
        names = list(dict.fromkeys(name for v in views.values() for name in v[part]))
        for name in sorted(names, key=lambda n: (len(n), n) if unit else (0, n)) if len(names) > 1 else []:
            found = [v[part].get(name) for v in views.values()]
            total = max(f["total"] for f in found if f)
            table.add_row(name + unit, str(total), *(percent(f["accuracy"]) if f else "-" for f in found))
    return table


def _comparison(label: str, change: dict[str, Any]) -> Comparison:
    return Comparison(label, *(change[f] for f in ("gained", "lost", "difference", "low", "high", "p")))


def compare_evaluations(a: Path, b: Path) -> dict[str, Any]:
    """Two finished evaluations, paired by item: for every view both have, the whole and each task."""
    before, after = load_outcomes(a), load_outcomes(b)
    views = [v for v in dict.fromkeys(o.view for o in before) if any(o.view == v for o in after)]
    if not views:
        raise UserError(f"{a} and {b}: no view was played in both")
    result: dict[str, Any] = {"a": str(a), "b": str(b), "views": {}, "warnings": _unlike(a, b)}
    for view in views:
        first, second = ([o for o in rows if o.view == view] for rows in (before, after))
        shared = {o.id for o in first} & {o.id for o in second}
        if not shared:
            raise UserError(f"{a} and {b}: {view.upper()}: no item was played in both")
        for name, rows in ((a, first), (b, second)):
            if left := len({o.id for o in rows} - shared):
                result["warnings"].append(
                    f"{view.upper()}: {left} items of {name} are not in the other and do not count"
                )
        first, second = ([o for o in rows if o.id in shared] for rows in (first, second))
        tasks = sorted({o.task for o in first})
        parts = {
            task: ([o for o in first if o.task == task], [o for o in second if o.task == task])
            for task in tasks
        }
        result["views"][view] = {
            "a": accuracy(scores(first)),
            "b": accuracy(scores(second)),
            "change": against(first, second),
            "by_task": {task: against(x, y) for task, (x, y) in parts.items()},
        }
    return result


def comparison_table(result: dict[str, Any]) -> Table:
    """A comparison for the terminal."""
    accuracies, changes = [], []
    for stage in ("a", "b"):
        accuracies += _accuracies(stage.upper(), {view: v[stage] for view, v in result["views"].items()})
    for view, v in result["views"].items():
        tasks = v["by_task"] if len(v["by_task"]) > 1 else {}
        changes += [_comparison(view.upper(), v["change"])]
        changes += [_comparison(f"{view.upper()}, {task}", change) for task, change in tasks.items()]
    whole = Table.grid()
    for stage in ("a", "b"):
        whole.add_row(Text(f"  {stage.upper()}: {result[stage]}", overflow="fold"))
    whole.add_row(accuracy_table(accuracies, changes))
    return whole


def _unlike(a: Path, b: Path) -> list[str]:
    """What was not the same in both, besides the model."""
    first, second = (flatten(load_identity(folder)) for folder in (a, b))
    own = ("model", "weights", "adapter", "data", "dtype", "engine", "eval.views")
    names = [name for name in first if name not in own and name in second and first[name] != second[name]]
    return [f"{name} is not the same in both: {first[name]} and {second[name]}" for name in names]


def _accuracies(stage: str, views: dict[str, Any]) -> list[Accuracy]:
    return [
        Accuracy(stage, view.upper(), v["correct"], v["total"], v["low"], v["high"])
        for view, v in views.items()
    ]


def _comparisons(rows: dict[str, list[dict[str, Any]]]) -> list[Comparison]:
    """Base against trained, the same conversations, for each view both have."""
    if len(rows) < 2:
        return []
    made = []
    for view in ("full", "sharded"):
        before, after = (
            {r["id"]: r["correct"] for r in rows[stage] if r["view"] == view} for stage in STAGES
        )
        shared = [i for i in before if i in after]
        if shared:
            p = paired([before[i] for i in shared], [after[i] for i in shared])
            made.append(
                Comparison(
                    f"{view.upper()}: base against trained",
                    p.gained,
                    p.lost,
                    p.difference,
                    p.low,
                    p.high,
                    p.p,
                )
            )
    return made


def _pairs(rows: dict[str, list[dict[str, Any]]], count: int = 3) -> list[ConversationPair]:
    """Conversations to look at: two that training mended (one of each task where there are two), then one it
    did not.
    """
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
            i,
            before[i]["system"],
            before[i]["full"],
            _expected(before[i]["answer"]),
            _shown(before[i]),
            _shown(after[i]),
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
