"""Does a verifier work? It is tried on the reference of a few examples and on garbage.

One that fails on every reply would look like a bad model: that is an error. A reference that is not taken for
right, or garbage that is, is a warning: a verifier of the user's may want another form of reply than the
answer's own text, which is all that can be tried without knowing it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from smopd.data.example import Example
from smopd.errors import UserError
from smopd.verify import tasks, verify_all
from smopd.verify.task import Replies
from smopd.verify.verdict import FAILED

TRIED = 8  # examples of a task, the first of them with garbage too
GARBAGE = ("", "I am not sure what you mean.", "zz [[ )( }{ \\ ## $$ ;; \u2603")


@dataclass
class Trial:
    """What trying the verifiers has shown: errors, and warnings by what they are about."""

    errors: list[str] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def try_verifiers(examples: Sequence[Example]) -> Trial:
    """Try the verifier of every task among the examples."""
    trial = Trial()
    by_task: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        by_task[example.task].append(example)
    for name, own in by_task.items():
        task = tasks.find(name)
        if task is None or task.judge is None:
            continue
        try:
            task.require()
            chosen = own[:: -(-len(own) // TRIED)]
            # What is wrong with an answer itself is told apart and no fault of the verifier's.
            if sound := [example for example in chosen if not task.reference_problem(example.answer)]:
                _try(sound, task.reference_replies, trial)
        except UserError as error:  # no sandbox on this machine, say
            trial.warnings[f"{name}: the verifier was not tried"].append(str(error))
    return trial


def _try(examples: Sequence[Example], replies_of: Replies, trial: Trial) -> None:
    first, name, own = examples[0], examples[0].task, [*replies_of(examples[0].answer)]
    taken, garbage = (verify_all([(first, reply) for reply in some]) for some in (own, GARBAGE))
    verdicts = [*taken, *garbage]
    if all(verdict.status in FAILED for verdict in verdicts):  # is it this example alone?
        others = [(example, [*replies_of(example.answer), *GARBAGE][0]) for example in examples[1:3]]
        verdicts += verify_all(others)
    if all(verdict.status in FAILED for verdict in verdicts):
        said = f"{verdicts[0].status}: {verdicts[0].detail}"
        trial.errors.append(
            f"task {name!r}: the verifier failed on every one of {len(verdicts)} replies it was tried on "
            f"(example {first.id!r}), first with {said}"
        )
        return
    if any(verdict.correct for verdict in garbage):
        trial.warnings[f"{name}: the verifier takes garbage for right"].append(first.id)
    for example in examples:
        if own := [*replies_of(example.answer)]:
            found = verify_all([(example, reply) for reply in own])
            if not any(verdict.correct for verdict in found):
                detail = found[0].detail or found[0].status
                what = f"{name}: the verifier does not take the reference for right"
                trial.warnings[what].append(f"{example.id} ({detail})")
