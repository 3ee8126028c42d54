"""What `smopd report` does with a study: its page, tables and figures, and the audit of them.

The audit trusts nothing between the conversations and the page: every reply is verified anew, every number
computed anew, every file of the report rendered anew, and whatever differs is named.
"""

from pathlib import Path

from smopd.errors import UserError
from smopd.study.collect import collect
from smopd.study.report import audit_report, write_study_report
from smopd.study.results import Results, load_results, save_results
from smopd.study.run import StudyFolder, study_folders
from smopd.tracking import Track, quiet


def publish(folder: StudyFolder, track: Track = quiet) -> tuple[Results, Path]:
    """Collect a study's cells, write results.json and the report; the results and the page."""
    results = collect(folder, track=track)
    save_results(folder.study_path / "results.json", results)
    write_study_report(results, folder.study_path / "report")
    return results, folder.study_path / "report" / "index.html"


def publish_results(file: Path, out: Path | None) -> Path:
    """The report of a results.json alone, which needs no run folder."""
    results = load_results(file)
    out = out or file.with_name(f"{file.name.removesuffix('.json')}-report")
    write_study_report(results, out)
    return out / "index.html"


def audit_studies(path: Path, track: Track = quiet) -> list[str]:
    """Everything in the reports of a folder's studies that the raw conversations do not give."""
    folders = study_folders(path)
    if not folders:
        neither = "neither a run folder (no config.toml) nor the folder of a study (no studies/*/study.json)"
        raise UserError(f"{path}: {neither}")
    problems = []
    for folder in folders:
        report, stored = folder.study_path / "report", folder.study_path / "results.json"
        if not stored.exists() or not report.is_dir():
            raise UserError(f"{folder.study_path}: has no report to audit; make it with: smopd report {path}")
        fresh = collect(folder, rejudge=True, track=track)
        if load_results(stored) != fresh:
            problems.append(f"{stored}: is not what the conversations of the cells give")
        problems += audit_report(report, fresh)
    return problems
