"""The report of a run, made from its folder, and the audit of it.

The audit trusts nothing between the conversations and the page: every reply is verified anew, every number
computed anew.
"""

import json
import math
from pathlib import Path

from smopd.errors import UserError
from smopd.evaluation.metrics import summarise
from smopd.evaluation.prepare import prepared_examples
from smopd.evaluation.store import load_outcomes
from smopd.files import read_text, require_writable
from smopd.runs import Run, is_run
from smopd.study.collect import rejudged
from smopd.study.report import audit_studies
from smopd.tracking import Track, quiet
from smopd.viewer.measured import evaluation_groups, missing
from smopd.viewer.report import Measured, ReportData, render_report, without_advice, write_report


def report_data(run: Path) -> ReportData:
    """Everything the report of a run shows."""
    folder = Run(run)
    config, metrics = folder.config, folder.steps
    groups, gone = evaluation_groups(run, config)
    first, *more = [group.measured() for group in groups] or [Measured("", [], [], [], [])]
    if not metrics and not first.accuracies:
        raise UserError(f"{run}: nothing to report yet: no training step and no evaluation is finished")
    return ReportData(
        title=f"{config.model.path}, method {config.method}",
        subtitle=f"{len(metrics)} of {config.train.steps} steps, seed {config.seed}, run folder {run.name}",
        accuracies=first.accuracies,
        notes=first.notes,
        comparisons=first.comparisons,
        metrics=metrics,
        conversations=first.conversations,
        settings=config.model_dump(),
        warnings=folder.warnings,
        more=more,
        missing=missing(run, config, len(metrics), groups, gone),
        notices=list(dict.fromkeys(line for group in groups for line in group.notices(config.data.train))),
    )


def report_run(run: Path) -> tuple[Path, ReportData]:
    """Write report.html into a run folder; the page, and what it shows."""
    path = run / "report.html"
    require_writable(path)
    data = report_data(run)
    write_report(path, data)
    return path, data


def audit(run: Path, track: Track = quiet) -> list[str]:
    """Everything in a run's or a study's report that its raw conversations do not give."""
    if not is_run(run):
        return audit_studies(run, track)
    folder = Run(run)
    problems = []
    for found in (e for e in folder.evaluated()[0] if e.summary is not None):
        # Rules and verifiers as they were asked for; every example of the data, whatever the limit was.
        same = [*found.settings, f"data.eval={json.dumps(found.identity['data'])}", "eval.limit=0"]
        prepared = prepared_examples(folder.config_with(same), "eval")
        with track(f"verifying the replies in {found.folder}"):
            outcomes = rejudged(load_outcomes(found.folder), {e.id: e for e in prepared}, found.folder)
        problems += [
            f"{found.folder / 'summary.json'}: {line}" for line in _unlike(found.summary, summarise(outcomes))
        ]
    page = run / "report.html"
    if not page.exists():
        raise UserError(f"{run}: has no report to audit; make it with: smopd report {run}")
    if without_advice(read_text(page)) != without_advice(render_report(report_data(run))):
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
