"""What `smopd report` does with a study: its page, tables and figures from the cells on disk, and the audit
of them.

The audit trusts nothing between the conversations and the page: every reply is verified anew, every number
computed anew, every file of the report rendered anew, and whatever differs is named. An evaluation folder of
a single run is audited likewise.
"""

from pathlib import Path

from smopd.errors import UserError
from smopd.evaluation.metrics import summarise
from smopd.evaluation.prepare import prepared_examples
from smopd.evaluation.store import load_outcomes
from smopd.files import read_json
from smopd.study.collect import collect, rejudged
from smopd.study.report import audit_report, write_study_report
from smopd.study.results import Results, load_results, save_results
from smopd.study.run import StudyFolder, study_folders
from smopd.viewer.results import STAGES, report_data


def publish(folder: StudyFolder) -> tuple[Results, Path]:
    """Collect a study's cells, write results.json and the report; the results and the page."""
    results = collect(folder)
    save_results(folder.own / "results.json", results)
    write_study_report(results, folder.own / "report")
    return results, folder.own / "report" / "index.html"


def publish_results(file: Path, out: Path | None) -> Path:
    """The report of a results.json alone, which needs no run folder."""
    results = load_results(file)
    out = out or file.with_name(f"{file.name.removesuffix('.json')}-report")
    write_study_report(results, out)
    return out / "index.html"


def audit(path: Path) -> list[str]:
    """Everything in a run's or a study's report that its raw conversations do not give."""
    if (path / "config.toml").exists():
        return audit_run(path)
    folders = study_folders(path)
    if not folders:
        raise UserError(
            f"{path}: neither a run folder (no config.toml) nor the folder of a study (no studies/*/study.json)"
        )
    problems = []
    for folder in folders:
        report, stored = folder.own / "report", folder.own / "results.json"
        if not stored.exists() or not report.is_dir():
            raise UserError(f"{folder.own}: has no report to audit; make it with: smopd report {path}")
        fresh = collect(folder, rejudge=True)
        if load_results(stored) != fresh:
            problems.append(f"{stored}: is not what the conversations of the cells give")
        problems += audit_report(report, fresh)
    return problems


def audit_run(run: Path) -> list[str]:
    """Of one run: the summaries of its evaluations, and the page."""
    from smopd.config import load_config
    from smopd.viewer import render_report

    config = load_config(run / "config.toml")
    examples = {e.id: e for e in prepared_examples(config, "eval")}
    problems = []
    for stage in (s for s in STAGES if (run / "eval" / s / "summary.json").exists()):
        folder = run / "eval" / stage
        stored = read_json(folder / "summary.json")
        fresh = summarise(rejudged(load_outcomes(folder), examples, folder))
        problems += [f"{folder / 'summary.json'}: {line}" for line in _unlike(stored, fresh)]
    page = run / "report.html"
    if not page.exists():
        raise UserError(f"{run}: has no report to audit; make it with: smopd report {run}")
    if page.read_text(encoding="utf-8") != render_report(report_data(run)):
        problems.append(f"{page}: is not what the run's files give; make it anew with: smopd report {run}")
    return problems


def _unlike(stored: object, fresh: object, place: str = "") -> list[str]:
    """The leaves of `fresh` that `stored` does not have."""
    if isinstance(fresh, dict):
        there = stored if isinstance(stored, dict) else {}
        return [
            line
            for key, value in fresh.items()
            for line in _unlike(there.get(key), value, f"{place}.{key}".strip("."))
        ]
    return [] if stored == fresh else [f"{place}: {stored!r} there, {fresh!r} from the conversations"]
