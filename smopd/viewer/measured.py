"""What the evaluations of a run found, before against after, and what is still missing for it.

Evaluations on the same examples with the same settings form a group; in a group the base stands against the
newest checkpoint that was evaluated.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.config import Config
from smopd.config_io import flatten
from smopd.evaluation.evaluate import Outcome
from smopd.evaluation.metrics import against
from smopd.evaluation.store import load_outcomes
from smopd.files import digest
from smopd.models.checksums import checkpoints
from smopd.runs.evaluations import BASE, Evaluated, Gone, eval_command, evaluations_of
from smopd.viewer.report import (
    ConversationPair,
    Measured,
    Missing,
    ShownComparison,
    ShownConversation,
    accuracies_of,
    notices,
    verdict_notes,
)

TRAINED = "trained"
UNTOLD = ("examples", "verifiers", "rules")  # hashes and the like: no words for a heading


@dataclass
class EvaluationGroup:
    """Evaluations that can be compared with each other."""

    evaluations: list[Evaluated] = field(default_factory=list)
    heading: str = ""

    @property
    def sides(self) -> list[str]:
        """The sides that were evaluated, the base first, then checkpoints from old to new."""
        done = {e.side for e in self.finished}
        return sorted(done, key=lambda side: (side != BASE, side))

    @property
    def finished(self) -> list[Evaluated]:
        """Those with a summary."""
        return [e for e in self.evaluations if e.summary is not None]

    @property
    def settings(self) -> tuple[str, ...]:
        """As one of them was asked for."""
        return next((e.settings for e in self.evaluations if e.settings), ())

    @property
    def both(self) -> bool:
        """Whether there is a before and an after."""
        return BASE in self.sides and len(self.sides) > 1

    def views(self, side: str) -> list[str]:
        """The views in which a side was played."""
        played = [view for e in self.finished if e.side == side for view in (e.summary or {})["views"]]
        return list(dict.fromkeys(played))

    def notices(self, train: str) -> list[str]:
        """What to know before its numbers are read, of a run trained on these data."""
        base = [e.summary["views"] for e in self.finished if e.side == BASE and e.summary]
        full = next((views["full"]["accuracy"] for views in base if "full" in views), None)
        return notices(full, train, str(self.evaluations[0].identity.get("data", "")))

    def measured(self) -> Measured:
        """Accuracies of all sides, base against the newest checkpoint, conversations of both."""
        accuracies, notes, rows = [], [], dict[str, list[Outcome]]()
        *_, newest = self.sides
        for side in self.sides:
            stage = TRAINED if side == newest != BASE else side
            seen: set[str] = set()
            for found in (e for e in self.finished if e.side == side):
                summary: dict[str, Any] = found.summary or {}
                fresh = {view: v for view, v in summary["views"].items() if view not in seen}
                if not fresh:
                    continue
                seen |= set(fresh)
                accuracies += accuracies_of(stage, fresh)
                notes.append(f"{stage}: {side + ', ' if stage == TRAINED else ''}{found.where}")
                notes += [f"{stage}: {note}" for note, _ in verdict_notes(summary | {"views": fresh})]
                if stage in (BASE, TRAINED):
                    rows.setdefault(stage, []).extend(
                        outcome for outcome in load_outcomes(found.folder) if outcome.view in fresh
                    )
        before, after = rows.get(BASE, []), rows.get(TRAINED, [])
        return Measured(self.heading, accuracies, _comparisons(before, after), _pairs(before, after), notes)


def evaluation_groups(run: Path, config: Config) -> tuple[list[EvaluationGroup], list[Gone]]:
    """The groups in which something is finished, with before and after first; and what is no longer there."""
    found, gone = evaluations_of(run, config)
    groups: dict[str, EvaluationGroup] = {}
    for evaluation in found:
        groups.setdefault(digest(evaluation.conditions), EvaluationGroup()).evaluations.append(evaluation)
    made = [group for group in groups.values() if group.finished]
    made.sort(key=lambda group: not group.both)
    told = [flatten(group.evaluations[0].conditions) for group in made]
    for group, own in zip(made, told, strict=True):
        unlike = [key for key in own if any(other.get(key) != own[key] for other in told)]
        words = [f"{key} = {json.dumps(own[key])}" for key in unlike if not key.startswith((*UNTOLD, "data"))]
        group.heading = ", ".join([str(own.get("data", "")), *words])
    unfinished = [e for group in groups.values() for e in group.evaluations if e.summary is None]
    return made, [*gone, *(Gone(e.where, e.side, e.settings) for e in unfinished)]


def missing(
    run: Path, config: Config, steps: int, groups: Sequence[EvaluationGroup], gone: Sequence[Gone]
) -> list[Missing]:
    """What would make the report whole, and the commands for it."""
    made = []
    newest = next(reversed(checkpoints(run)), None)
    if steps < config.train.steps and not config.train.patience:
        command = f"smopd train {run}"
        made.append(Missing(f"training stands at step {steps} of {config.train.steps}", command))
    if not groups and newest:
        made.append(Missing("no evaluation: neither before training nor after", eval_command(run)))
    for group in groups:
        of, again = f" on {group.heading}", eval_command(run, group.settings)
        if BASE not in group.sides:
            made.append(Missing(f"the model before training was not evaluated{of}", again))
        if newest and newest.name not in group.sides:
            what = (
                "the run was not evaluated"
                if group.sides == [BASE]
                else "the newest checkpoint was not evaluated"
            )
            made.append(Missing(f"{what}{of} ({newest.name})", again))
        views = [view for side in group.sides for view in group.views(side)]
        if not {"full", "sharded"} <= set(views):
            wanted = list(dict.fromkeys(["full", "sharded", *views]))
            lacks = (
                "no conversations over several turns"
                if "sharded" not in views
                else "no task told at once (FULL)"
            )
            command = eval_command(run, group.settings, eval__views=json.dumps(wanted))
            made.append(Missing(f"{lacks}{of}", command))
    for one in gone:
        unfinished = (run / one.where / "evaluation.json").exists()
        moved = "the same command with --out ITS-NEW-FOLDER finds one that was moved"
        what = "is not finished" if unfinished else f"is no longer there; {moved}"
        made.append(
            Missing(f"the evaluation of {one.side} in {one.where} {what}", eval_command(run, one.settings))
        )
    return made


def _comparisons(before: Sequence[Outcome], after: Sequence[Outcome]) -> list[ShownComparison]:
    """Base against trained, the same conversations, for each view both have."""
    made = []
    for view in dict.fromkeys(o.view for o in before):
        sides = [[o for o in rows if o.view == view] for rows in (before, after)]
        change = against(*sides)
        if change["n"]:
            numbers = (change[name] for name in ("gained", "lost", "difference", "low", "high", "p"))
            made.append(ShownComparison(f"{view.upper()}: base against trained", *numbers))
    return made


def _pairs(base: Sequence[Outcome], trained: Sequence[Outcome]) -> list[ConversationPair]:
    """Conversations to look at: two that were gained, of two tasks if it can be, and one that is wrong."""
    before, after = ({o.id: o for o in rows if o.view == "sharded" and not o.run} for rows in (base, trained))
    shared = [i for i in before if i in after]
    mended = [i for i in shared if after[i].correct and not before[i].correct]
    unmended = [i for i in shared if not after[i].correct]
    first_of_task = list({before[i].task: i for i in reversed(mended)}.values())
    wanted = [*first_of_task[:2], *mended[:3], *shared]
    chosen = list(dict.fromkeys([*wanted[:2], *unmended[:1], *wanted]))[:3]
    made = []
    for i in chosen:
        sides = []
        for outcome in (before[i], after[i]):
            turns = [(turn["user"], turn["reply"]) for turn in outcome.turns]
            sides.append(ShownConversation(turns, outcome.correct, outcome.extracted, outcome.status))
        task = (before[i].system, before[i].full, expected(before[i].answer))
        made.append(ConversationPair(i, *task, *sides))
    return made


def expected(answer: dict[str, Any]) -> str:
    """The right answer for a person."""
    if "value" in answer:
        return str(answer["value"])
    sound = isinstance(listed := answer.get("calls"), list) and all(
        isinstance(call, dict) and all(isinstance(arguments, dict) for arguments in call.values())
        for call in listed
    )
    if not sound:
        shown = {key: value for key, value in answer.items() if key not in ("turns", "level")}
        return json.dumps(shown, ensure_ascii=False)
    calls = []
    for name, arguments in (pair for call in answer["calls"] for pair in call.items()):
        values = {k: v[0] if isinstance(v, list) and v else v for k, v in arguments.items()}
        calls.append(f"{name}({', '.join(f'{k}={json.dumps(v)}' for k, v in values.items())})")
    return f"[{', '.join(calls)}]"
