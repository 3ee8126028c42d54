"""The report of a run, made from its folder, and the audit of it.

The audit trusts nothing between the conversations and the page: every reply is verified anew, every number
computed anew.
"""

import json
import math
from pathlib import Path
from typing import Any

from smopd.config import load_config
from smopd.errors import UserError
from smopd.evaluation.metrics import summarise
from smopd.evaluation.prepare import prepared_examples
from smopd.evaluation.statistics import paired
from smopd.evaluation.store import load_outcomes, load_summary
from smopd.files import read_bytes, read_json, read_jsonl, require_writable
from smopd.shape import STEP
from smopd.study.collect import rejudged
from smopd.study.report import audit_studies
from smopd.tracking import Track, quiet
from smopd.viewer.report import (
    Comparison,
    ConversationPair,
    ReportData,
    ShownConversation,
    accuracies_of,
    render_report,
    verdict_notes,
    write_report,
)  # fmt: skip

STAGES = ("base", "trained")


def report_data(run: Path) -> ReportData:
    """Everything the report of a run shows."""
    if not (run / "config.toml").exists():
        raise UserError(f"{run}: not a run folder (no config.toml)")
    config = load_config(run / "config.toml")
    times = {row["step"]: row for row in read_jsonl(run / "timings.jsonl", STEP)}
    metrics = [row | times.get(row["step"], {}) for row in read_jsonl(run / "metrics.jsonl", STEP)]
    summaries = {stage: load_summary(run / "eval" / stage) for stage in STAGES}
    found = {stage: summary["views"] for stage, summary in summaries.items() if summary}
    notes = {stage: verdict_notes(summary) for stage, summary in summaries.items() if summary}
    rows = {stage: [vars(o) for o in load_outcomes(run / "eval" / stage)] for stage in found}
    if not metrics and not rows:
        raise UserError(f"{run}: nothing to report yet: no training step and no evaluation is finished")
    return ReportData(
        title=f"{config.model.path}, method {config.method}",
        subtitle=f"{len(metrics)} of {config.train.steps} steps, seed {config.seed}, run folder {run.name}",
        accuracies=[a for stage, views in found.items() for a in accuracies_of(stage, views)],
        notes=[f"{stage}: {note}" for stage, said in notes.items() for note, _ in said],
        comparisons=_comparisons(rows),
        metrics=metrics,
        conversations=_pairs(rows),
        settings=config.model_dump(),
        warnings=read_jsonl(run / "warnings.jsonl"),
    )


def report_run(run: Path) -> Path:
    """Write report.html into a run folder."""
    path = run / "report.html"
    require_writable(path)
    write_report(path, report_data(run))
    return path


def audit(run: Path, track: Track = quiet) -> list[str]:
    """Everything in a run's or a study's report that its raw conversations do not give."""
    if not (run / "config.toml").exists():
        return audit_studies(run, track)
    config = load_config(run / "config.toml")
    examples = {e.id: e for e in prepared_examples(config, "eval")}
    problems = []
    for stage in (s for s in STAGES if (run / "eval" / s / "summary.json").exists()):
        folder = run / "eval" / stage
        stored = read_json(folder / "summary.json")
        with track(f"verifying the replies in {folder}"):
            fresh = summarise(rejudged(load_outcomes(folder), examples, folder))
        problems += [f"{folder / 'summary.json'}: {line}" for line in _unlike(stored, fresh)]
    page = run / "report.html"
    if not page.exists():
        raise UserError(f"{run}: has no report to audit; make it with: smopd report {run}")
    if read_bytes(page) != render_report(report_data(run)).encode():
        problems.append(f"{page}: is not what the run's files give; make it anew with: smopd report {run}")
    return problems


def _unlike(stored: object, fresh: object, place: str = "") -> list[str]:
    if isinstance(fresh, dict):
        there = stored if isinstance(stored, dict) else {}
        parts = (_unlike(there.get(key), fresh[key], f"{place}.{key}".strip(".")) for key in fresh)
        return [line for part in parts for line in part]
    same = stored == fresh
    if isinstance(stored, float) and isinstance(fresh, float):
        # Sums may differ in their last digits between processors and versions of scipy.
        same = math.isclose(stored, fresh, rel_tol=1e-9)
    return [] if same else [f"{place}: {stored!r} there, {fresh!r} from the conversations"]


def _comparisons(rows: dict[str, list[dict[str, Any]]]) -> list[Comparison]:
    """Base against trained, the same conversations, for each view both have."""
    if len(rows) < 2:
        return []
    made = []
    for view in ("full", "sharded"):
        played = ([row for row in rows[stage] if row["view"] == view] for stage in STAGES)
        before, after = ({row["id"]: row["correct"] for row in some} for some in played)
        shared = [i for i in before if i in after]
        if shared:
            change = paired([before[i] for i in shared], [after[i] for i in shared])
            made.append(Comparison(f"{view.upper()}: base against trained", *change[1:]))
    return made


def _pairs(rows: dict[str, list[dict[str, Any]]]) -> list[ConversationPair]:
    """Conversations to look at: two that training mended, of two tasks if it can be, and one it did not."""
    if len(rows) < 2:
        return []
    before, after = ({r["id"]: r for r in rows[stage] if r["view"] == "sharded"} for stage in STAGES)
    shared = [i for i in before if i in after]
    mended = [i for i in shared if after[i]["correct"] and not before[i]["correct"]]
    unmended = [i for i in shared if not after[i]["correct"]]
    first_of_task = list({before[i]["task"]: i for i in reversed(mended)}.values())
    wanted = [*first_of_task[:2], *mended[:3], *shared]
    chosen = list(dict.fromkeys([*wanted[:2], *unmended[:1], *wanted]))[:3]
    made = []
    for i in chosen:
        sides = []
        for row in (before[i], after[i]):
            turns = [(turn["user"], turn["reply"]) for turn in row["turns"]]
            sides.append(ShownConversation(turns, row["correct"], row["extracted"]))
        task = (before[i]["system"], before[i]["full"], _expected(before[i]["answer"]))
        made.append(ConversationPair(i, *task, *sides))
    return made


def _expected(answer: dict[str, Any]) -> str:
    if "value" in answer:
        return str(answer["value"])
    sound = isinstance(listed := answer.get("calls", []), list) and all(
        isinstance(call, dict) and all(isinstance(arguments, dict) for arguments in call.values())
        for call in listed
    )
    if not sound:
        return json.dumps(answer, ensure_ascii=False)
    calls = []
    for name, arguments in (pair for call in answer.get("calls", []) for pair in call.items()):
        values = {k: v[0] if isinstance(v, list) and v else v for k, v in arguments.items()}
        calls.append(f"{name}({', '.join(f'{k}={json.dumps(v)}' for k, v in values.items())})")
    return f"[{', '.join(calls)}]"
