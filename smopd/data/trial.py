"""Try verifiers on the references of a few examples and on garbage. One that fails on every reply would look
like a bad model, so that is an error. A reference judged wrong, or garbage judged right, is only a warning: a
user's verifier may expect another form of reply than the answer's own text, which is all that can be tried.
"""

from collections import defaultdict
from collections.abc import Sequence

from smopd.data.example import Example, group_by_task
from smopd.errors import UserError
from smopd.verify import custom, tasks, verify_all
from smopd.verify.task import Task
from smopd.verify.verdict import FAILED, Verdict

TRIED = 8  # examples per task, the first of them with garbage too
GARBAGE = ("", "I am not sure what you mean.", "zz [[ )( }{ \\ ## $$ ;; \u2603")


def refuse_failing_verifiers(examples: Sequence[Example]) -> None:
    """Raise a UserError if a user's verifier (not one of smopd's) fails on every reply it is tried on."""
    for name, some in group_by_task(examples).items():
        task = tasks.find(name) if name in custom.loaded_tasks() else None
        if task and (problem := _failure(some, task, tell=False)[0]):
            raise UserError(problem)


def try_verifiers(examples: Sequence[Example]) -> tuple[list[str], dict[str, list[str]]]:
    """Try the verifier of every task; return errors, and examples by warning."""
    errors: list[str] = []
    warnings: dict[str, list[str]] = defaultdict(list)
    for name, some in group_by_task(examples).items():
        task = tasks.find(name)
        if task is None or task.judge is None:
            continue
        try:
            task.require()
            # A faulty answer is reported elsewhere and is no fault of the verifier.
            chosen = [e for e in some[:: -(-len(some) // TRIED)] if not task.problem(e.answer)]
            problem, garbage = _failure(chosen, task) if chosen else ("", [])
            if problem:
                errors.append(problem)
                continue
            if any(verdict.correct for verdict in garbage):
                warnings[f"{name}: the verifier takes garbage for right"].append(chosen[0].id)
            for example in chosen:
                verdicts = verify_all([(example, reply) for reply in task.reference_replies(example.answer)])
                if verdicts and not any(verdict.correct for verdict in verdicts):
                    what = f"{name}: the verifier does not take the reference for right"
                    warnings[what].append(f"{example.id} ({verdicts[0].detail or verdicts[0].status})")
        except UserError as error:  # such as no sandbox on this machine
            warnings[f"{name}: the verifier was not tried"].append(str(error))
    return errors, warnings


def _failure(examples: Sequence[Example], task: Task, tell: bool = True) -> tuple[str, list[Verdict]]:
    """Return an error message if a verifier fails on every reply, else "", and its verdicts on garbage."""
    first, references = examples[0], [*task.reference_replies(examples[0].answer)]
    verdicts = verify_all([(first, reply) for reply in (*references, *GARBAGE)], tell)
    garbage = verdicts[len(references) :]
    if all(verdict.status in FAILED for verdict in verdicts):  # is it only this example?
        others = [(e, [*task.reference_replies(e.answer), *GARBAGE][0]) for e in examples[1:3]]
        verdicts += verify_all(others, tell)
    if not all(verdict.status in FAILED for verdict in verdicts):
        return "", garbage
    problem = f"the verifier failed on every one of {len(verdicts)} replies it was tried on"
    reason = f"first with {verdicts[0].status}: {verdicts[0].detail}"
    return f"task {task.name!r}: {problem} (example {first.id!r}), {reason}", garbage
