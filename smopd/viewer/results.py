"""Make the report of a run from its folder, and audit it.

Evaluations of the same examples with the same settings form a group, in which the base is compared with the
newest evaluated checkpoint. The audit verifies every reply and computes every number again.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.config import Config
from smopd.config_io import flatten
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome, prepared_examples
from smopd.evaluation.metrics import against, summarise
from smopd.evaluation.store import load_outcomes
from smopd.files import digest, read_text, require_writable, write_text
from smopd.models.adapter_files import checkpoints
from smopd.runs import Run, is_run
from smopd.runs.evaluations import BASE, TRAINED, Evaluated, eval_command, evaluations_of
from smopd.study.collect import rejudged
from smopd.study.report import audit_studies
from smopd.tracking import Track, quiet
from smopd.viewer import report
from smopd.viewer.pages.conversations import answer_text
from smopd.viewer.pages.summary import select_examples


@dataclass
class EvaluationGroup:
    evaluations: list[Evaluated] = field(default_factory=list)
    heading: str = ""

    @property
    def finished(self) -> list[tuple[Evaluated, dict[str, Any]]]:
        return [(e, e.summary) for e in self.evaluations if e.summary is not None]

    @property
    def sides(self) -> list[str]:
        """The evaluated sides: the base first, then checkpoints from old to new."""
        return sorted({e.side for e, _ in self.finished}, key=lambda side: (side != BASE, side))

    def notices(self, train: str) -> list[str]:
        base = [summary["views"] for e, summary in self.finished if e.side == BASE]
        full = next((views["full"]["accuracy"] for views in base if "full" in views), None)
        return report.notices(full, train, str(self.evaluations[0].identity.get("data", "")))

    def measured(self) -> report.Measured:
        accuracies, notes = list[report.Accuracy](), list[str]()
        played = defaultdict[str, list[Outcome]](list)
        *_, newest = self.sides
        for side in self.sides:
            stage = TRAINED if side == newest != BASE else side
            seen: set[str] = set()
            for evaluation, summary in (one for one in self.finished if one[0].side == side):
                fresh = {view: v for view, v in summary["views"].items() if view not in seen}
                if not fresh:
                    continue
                seen |= fresh.keys()
                accuracies += report.accuracies_of({stage: fresh})
                notes.append(f"{stage}: {side + ', ' if stage == TRAINED else ''}{evaluation.where}")
                notes += [f"{stage}: {note}" for note, _ in report.verdict_notes(summary | {"views": fresh})]
                if stage in (BASE, TRAINED):
                    played[stage] += [o for o in load_outcomes(evaluation.folder) if o.view in fresh]
        before, after = played[BASE], played[TRAINED]
        changes = []
        for view in dict.fromkeys(o.view for o in before):
            change = against(*([o for o in some if o.view == view] for some in (before, after)))
            if change["n"]:
                changes.append(report.compare(f"{view.upper()}: base against trained", change))
        shown = select_examples(before, after)
        pairs = [report.ConversationPair(a, b, answer_text(a.task, a.answer)) for a, b, _ in shown]
        return report.Measured(self.heading, accuracies, changes, pairs, notes)


def evaluation_groups(run: Path, config: Config) -> tuple[list[EvaluationGroup], list[Evaluated]]:
    """The groups with a finished evaluation, compared ones first; and lost or unfinished evaluations."""
    evaluations, gone = evaluations_of(run, config)
    by_conditions = defaultdict[str, EvaluationGroup](EvaluationGroup)
    for evaluation in evaluations:
        by_conditions[digest(evaluation.conditions)].evaluations.append(evaluation)
    finished = (group for group in by_conditions.values() if group.finished)
    groups = sorted(finished, key=lambda group: BASE not in group.sides or len(group.sides) < 2)
    conditions = [flatten(group.evaluations[0].conditions) for group in groups]
    for group, values in zip(groups, conditions, strict=True):
        unlike = (key for key in values if any(other.get(key) != values[key] for other in conditions))
        unnamed = ("examples", "verifiers", "rules", "data")  # hashes etc.; the data come first
        named = [f"{k} = {json.dumps(values[k])}" for k in unlike if not k.startswith(unnamed)]
        group.heading = ", ".join([str(values.get("data", "")), *named])
    return groups, [*gone, *(e for e in evaluations if e.summary is None)]


def missing(
    run: Path, config: Config, steps: int, groups: Sequence[EvaluationGroup], gone: Sequence[Evaluated]
) -> Iterator[report.Missing]:
    newest = next(reversed(checkpoints(run)), None)
    if steps < config.train.steps and not config.train.patience:
        yield report.Missing(f"training stands at step {steps} of {config.train.steps}", f"smopd train {run}")
    if not groups and newest:
        yield report.Missing("no evaluation: neither before training nor after", eval_command(run))
    for group in groups:
        settings = next((e.settings for e in group.evaluations if e.settings), ())
        data, again = f" on {group.heading}", eval_command(run, settings)
        if BASE not in group.sides:
            yield report.Missing(f"the model before training was not evaluated{data}", again)
        if newest and newest.name not in group.sides:
            what = "run" if group.sides == [BASE] else "newest checkpoint"
            yield report.Missing(f"the {what} was not evaluated{data} ({newest.name})", again)
        played = [view for _, summary in group.finished for view in summary["views"]]
        if not {"full", "sharded"} <= set(played):
            what = "task told at once (FULL)" if "sharded" in played else "conversations over several turns"
            views = json.dumps(list(dict.fromkeys(["full", "sharded", *played])))
            command = eval_command(run, [*settings, f"eval.views={views}"])
            yield report.Missing(f"no {what}{data}", command)
    for one in gone:
        unfinished = (run / one.where / "evaluation.json").exists()
        moved = "the same command with --out ITS-NEW-FOLDER finds one that was moved"
        what = "is not finished" if unfinished else f"is no longer there; {moved}"
        command = eval_command(run, one.settings)
        yield report.Missing(f"the evaluation of {one.side} in {one.where} {what}", command)


def report_data(run: Path) -> report.ReportData:
    folder = Run(run)
    config, metrics = folder.config, folder.steps
    groups, gone = evaluation_groups(run, config)
    first, *more = [group.measured() for group in groups] or [report.Measured()]
    if not metrics and not first.accuracies:
        raise UserError(f"{run}: nothing to report yet: no training step and no evaluation is finished")
    return report.ReportData(
        title=f"{config.model.path}, method {config.method}",
        subtitle=f"{len(metrics)} of {config.train.steps} steps, seed {config.seed}, run folder {run.name}",
        metrics=metrics,
        settings=config.model_dump(),
        warnings=folder.warnings,
        more=more,
        missing=list(missing(run, config, len(metrics), groups, gone)),
        notices=list(dict.fromkeys(line for group in groups for line in group.notices(config.data.train))),
        **vars(first),
    )


def report_run(run: Path) -> tuple[Path, report.ReportData]:
    path = run / "report.html"
    require_writable(path)
    data = report_data(run)
    write_text(path, report.render_report(data))
    return path, data


def audit(run: Path, track: Track = quiet) -> list[str]:
    """List everything in a run's or a study's report that its raw conversations do not give."""
    if not is_run(run):
        return audit_studies(run, track)
    folder = Run(run)
    problems = []
    for evaluation in (e for e in folder.evaluated()[0] if e.summary is not None):
        # The same rules and verifiers, but every example of the data, whatever the limit was.
        same = [*evaluation.settings, f"data.eval={json.dumps(evaluation.identity['data'])}", "eval.limit=0"]
        prepared = prepared_examples(folder.config_with(same), "eval")
        played, examples = load_outcomes(evaluation.folder), {e.id: e for e in prepared}
        with track(f"verifying the replies in {evaluation.folder}"):
            fresh = summarise(rejudged(played, examples, evaluation.folder))
        place = evaluation.folder / "summary.json"
        problems += [f"{place}: {line}" for line in _list_differences(evaluation.summary, fresh)]
    page = run / "report.html"
    if not page.exists():
        raise UserError(f"{run}: has no report to audit; make it with: smopd report {run}")
    wanted = report.render_report(report_data(run))
    if report.without_advice(read_text(page)) != report.without_advice(wanted):
        problems.append(f"{page}: is not what the run's files give; write it again with: smopd report {run}")
    return problems


def _list_differences(stored: object, fresh: object, place: str = "") -> list[str]:
    if isinstance(fresh, dict):
        there = stored if isinstance(stored, dict) else {}
        parts = (_list_differences(there.get(key), fresh[key], f"{place}.{key}".strip(".")) for key in fresh)
        return [line for part in parts for line in part]
    same = stored == fresh
    if isinstance(stored, float) and isinstance(fresh, float):
        # Sums may differ in their last digits between processors and versions of scipy.
        same = math.isclose(stored, fresh, rel_tol=1e-9)
    return [] if same else [f"{place}: {stored!r} there, {fresh!r} from the conversations"]
