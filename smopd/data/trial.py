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
from smopd.verify import own, tasks, verify_all
from smopd.verify.task import Replies
from smopd.verify.verdict import FAILED, Verdict

TRIED = 8  # examples of a task, the first of them with garbage too
GARBAGE = ("", "I am not sure what you mean.", "zz [[ )( }{ \\ ## $$ ;; \u2603")


@dataclass
class Trial:
    """What trying the verifiers has shown: errors, and warnings by what they are about."""

    errors: list[str] = field(default_factory=list)
    warnings: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


def refuse_failing_verifiers(examples: Sequence[Example]) -> None:
    """A UserError where a verifier of the user's fails on every reply it is tried on, before a model is
    loaded for it. Verifiers of smopd's own are not tried.
    """
    for name, some in _by_task(examples).items():
        task = tasks.find(name) if name in own.loaded_tasks() else None
        if task and (problem := _failure(some, task.reference_replies, tell=False)[0]):
            raise UserError(problem)


def _by_task(examples: Sequence[Example]) -> dict[str, list[Example]]:
    found: dict[str, list[Example]] = defaultdict(list)
    for example in examples:
        found[example.task].append(example)
    return found


def try_verifiers(examples: Sequence[Example]) -> Trial:
    """Try the verifier of every task among the examples."""
    trial = Trial()
    for name, some in _by_task(examples).items():
        task = tasks.find(name)
        if task is None or task.judge is None:
            continue
        try:
            task.require()
            chosen = some[:: -(-len(some) // TRIED)]
            # What is wrong with an answer itself is told apart and no fault of the verifier's.
            if sound := [example for example in chosen if not task.reference_problem(example.answer)]:
                _try(sound, task.reference_replies, trial)
        except UserError as error:  # no sandbox on this machine, say
            trial.warnings[f"{name}: the verifier was not tried"].append(str(error))
    return trial


def _failure(
    examples: Sequence[Example], replies_of: Replies, tell: bool = True
) -> tuple[str, list[Verdict]]:
    """What to say of a verifier that fails on every reply, else nothing; and its verdicts on garbage."""
    first, references = examples[0], [*replies_of(examples[0].answer)]
    verdicts = verify_all([(first, reply) for reply in (*references, *GARBAGE)], tell)
    garbage = verdicts[len(references) :]
    if all(verdict.status in FAILED for verdict in verdicts):  # is it this example alone?
        others = [(example, [*replies_of(example.answer), *GARBAGE][0]) for example in examples[1:3]]
        verdicts += verify_all(others, tell)
    if not all(verdict.status in FAILED for verdict in verdicts):
        return "", garbage
    problem = (
        f"task {first.task!r}: the verifier failed on every one of {len(verdicts)} replies it was tried on "
        f"(example {first.id!r}), first with {verdicts[0].status}: {verdicts[0].detail}"
    )
    return problem, garbage


def _try(examples: Sequence[Example], replies_of: Replies, trial: Trial) -> None:
    name = examples[0].task
    problem, garbage = _failure(examples, replies_of)
    if problem:
        trial.errors.append(problem)
        return
    if any(verdict.correct for verdict in garbage):
        trial.warnings[f"{name}: the verifier takes garbage for right"].append(examples[0].id)
    for example in examples:
        if references := [*replies_of(example.answer)]:
            found = verify_all([(example, reply) for reply in references])
            if not any(verdict.correct for verdict in found):
                detail = found[0].detail or found[0].status
                what = f"{name}: the verifier does not take the reference for right"
                trial.warnings[what].append(f"{example.id} ({detail})")
