"""Check a data set: lines that cannot be read are errors, suspicious examples are warnings. References are
checked where that is cheap: numbers and calls all, queries a sample, tests only for valid Python. Every
verifier is tried on a few references and on garbage. One that fails on every reply would look like a bad
model, so that is an error. A reference judged wrong, or garbage judged right, is only a warning: a user's
verifier may expect another form of reply than the answer's own text, which is all that can be tried.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from smopd.data.example import Example, group_by_task
from smopd.data.reading import generated, items_of, load_examples, parse_item
from smopd.data.sharding import check_shards, normalise
from smopd.errors import UserError
from smopd.tracking import Track, quiet
from smopd.verify import custom, tasks, verify_all
from smopd.verify.task import Task
from smopd.verify.verdict import FAILED, Verdict

LONGEST = 40_000  # characters of request and shards; longer ones are not compared
MOST, SHOWN = 20, 3  # errors listed, examples named per warning
TRIED = 8  # examples per task, the first of them with garbage too
GARBAGE = ("", "I am not sure what you mean.", "zz [[ )( }{ \\ ## $$ ;; \u2603")


@dataclass
class Report:
    """`errors` lists at most MOST of the `broken` lines; a warning is (what, count, some examples)."""

    file: str
    examples: list[Example] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: int = 0
    warnings: list[tuple[str, int, list[str]]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        by_task = dict(Counter(e.task for e in self.examples))
        by_shards = {str(n): k for n, k in sorted(Counter(len(e.shards) for e in self.examples).items())}
        counts = {"examples": len(self.examples), "tasks": by_task, "shards": by_shards}
        warnings = [{"what": what, "count": n, "examples": some} for what, n, some in self.warnings]
        problems = {"errors": self.errors, "broken": self.broken, "warnings": warnings}
        return {"file": self.file, **counts, **problems}


def check_file(path: str, against: str | None = None, track: Track = quiet) -> Report:
    """Read and check every example; a missing file is a UserError."""
    report, places = Report(path), dict[str, str]()
    if generated(path):
        report.examples = load_examples(path)
    for where, item in () if generated(path) else items_of(path):
        try:
            example = parse_item(item, where)
            if (first := places.setdefault(example.id, where)) != where:
                again = f"{example.id!r} is that of {first.removeprefix(f'{path}, ')} too; ids must differ"
                raise UserError(f"{where}, field 'id': {again}")
            report.examples.append(example)
        except UserError as error:
            report.broken += 1
            if len(report.errors) < MOST:
                report.errors.append(str(error))
    if report.examples:
        _warn(report, against, track)
    elif not report.errors:
        report.errors, report.broken = [f"{path}: holds no examples"], 1
    return report


def _warn(report: Report, against: str | None, track: Track) -> None:
    from smopd.data.training_set.overlap import HeldOut

    problems, overlaps = (defaultdict[str, list[str]](list) for _ in range(2))
    first: dict[Any, str] = {}
    sampled: set[str] = set()  # ids of those whose references are checked, spread up to the task's limit
    for name, some in group_by_task(report.examples).items():
        most = task.references_checked if (task := tasks.find(name)) else 0
        sampled.update(e.id for e in (some[:: -(-len(some) // most)] if most else some))
    out = HeldOut(evals=[against] if against else [])
    with track("check", len(report.examples)) as update:
        for number, example in enumerate(report.examples, 1):
            for problem, detail in _problems(example, example.id in sampled, first):
                problems[problem].append(f"{example.id} ({detail})" if detail else example.id)
            if against and (why := out.overlap(example.task, example.full, example.answer)):
                overlaps[f"overlap with {against}: {why}"].append(example.id)
            update(number)
    errors, failures = try_verifiers(report.examples)
    report.errors += errors
    report.broken += len(errors)
    warnings = [*problems.items(), *failures.items(), *sorted(overlaps.items())]
    report.warnings = [(what, len(ids), ids[:SHOWN]) for what, ids in warnings]


def _problems(example: Example, reference: bool, first: dict[Any, str]) -> Iterator[tuple[str, str]]:
    """Yield (problem, detail) of an example; `first` maps each request to the first example that has it."""
    task = tasks.find(example.task)
    if not example.system.strip():
        yield "no system prompt", ""
    if task is None or task.judge is None:
        return
    if len(example.shards) < 2:
        yield "a single shard: no conversation", ""
    key = (example.task, example.system, normalise(example.full).lower())
    if first.setdefault(key, example.id) != example.id:
        yield "the same request as another", first[key]
    if len(example.full) + sum(map(len, example.shards)) > LONGEST:
        yield f"over {LONGEST:,} characters: its shards were not compared with its request", ""
        return
    problem = check_shards(example.full, example.shards, most_new=1.0, goal=False)
    if problem and "lost" in problem and task.shards_repeat:
        what, _, detail = problem.partition(": ")
        yield f"shards: {what}", detail
    if reference and (wrong := task.problem(example.answer)):
        yield wrong, ""


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
