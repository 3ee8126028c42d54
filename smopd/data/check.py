"""Check a data set: lines that cannot be read are errors, suspicious examples are warnings. References are
checked where that is cheap: numbers and calls all, queries a sample, tests only for valid Python. Every
verifier is tried on a few references and on garbage (trial.py).
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.data.example import Example, group_by_task
from smopd.data.reading import generated, items_of, load_examples, parse_item
from smopd.data.sharding import check_shards, normalise
from smopd.data.training_set.overlap import held_out
from smopd.data.trial import try_verifiers
from smopd.errors import UserError
from smopd.tracking import Track, quiet
from smopd.verify import tasks

LONGEST = 40_000  # characters of request and shards; longer ones are not compared
MOST, SHOWN = 20, 3  # errors listed, examples named per warning


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
    problems, overlaps = (defaultdict[str, list[str]](list) for _ in range(2))
    first: dict[Any, str] = {}
    sampled: set[str] = set()  # ids of those whose references are checked, spread up to the task's limit
    for name, some in group_by_task(report.examples).items():
        most = task.references_checked if (task := tasks.find(name)) else 0
        sampled.update(e.id for e in (some[:: -(-len(some) // most)] if most else some))
    out = held_out(Path(), (), [against] if against else [])
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
