"""Is a data set sound? Every line that cannot be read is listed, and what reads well but looks wrong is
warned about.

Errors keep the file from being used; warnings don't. References are checked where that is cheap: numbers and
calls all, queries a sample, tests only as far as they are Python. It leaves out running code and asking a
verifier of one's own.
"""

import ast
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.data.example import Example, file_items, load_examples, parse_item
from smopd.data.sharding import check_shards, normalise
from smopd.data.tasks import UNSCORED
from smopd.errors import UserError

MOST = 20  # problems listed
SHOWN = 3  # examples named with a warning
QUERIES = 100  # references run, evenly over the file: each takes a hundredth of a second or two


@dataclass
class Report:
    """What was found. `errors` are at most MOST of `broken` places; a warning is (what, how many, some
    examples).
    """

    file: str
    examples: list[Example] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    broken: int = 0
    warnings: list[tuple[str, int, list[str]]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        tasks, shards = Counter(e.task for e in self.examples), Counter(len(e.shards) for e in self.examples)
        return {
            "file": self.file,
            "examples": len(self.examples),
            "tasks": dict(tasks),
            "shards": {str(k): v for k, v in sorted(shards.items())},
            "errors": self.errors,
            "broken": self.broken,
            "warnings": [
                {"what": what, "count": count, "examples": some} for what, count, some in self.warnings
            ],
        }


def check_file(
    path: str, against: str | None = None, progress: Callable[[int, int], None] = lambda done, of: None
) -> Report:
    """Read a file and look at every example; a file that is not there is a UserError."""
    report = Report(path)
    if path.startswith(("pocket:", "hf:")):
        report.examples = load_examples(path)
    else:
        _read(Path(path), report)
    if report.examples:
        _warn(report, progress)
    if against and report.examples:
        _compare(report, against)
    return report


def _read(path: Path, report: Report) -> None:
    seen: dict[str, str] = {}
    for where, item in file_items(path):
        try:
            example = parse_item(item, where)
            if example.id in seen:
                raise UserError(
                    f"{where}, field 'id': {example.id!r} is that of {seen[example.id]} too; ids must differ"
                )
            seen[example.id] = where.removeprefix(f"{path}, ")
            report.examples.append(example)
        except UserError as error:
            report.broken += 1
            if len(report.errors) < MOST:
                report.errors.append(str(error))
    if not report.examples and not report.errors:
        report.errors, report.broken = [f"{path}: holds no examples"], 1


def _warn(report: Report, progress: Callable[[int, int], None]) -> None:
    found: dict[str, list[str]] = defaultdict(list)
    first: dict[tuple[str, str, str], str] = {}
    queries = [e for e in report.examples if e.task == "database"]
    sampled = {e.id for e in queries[:: max(1, -(-len(queries) // QUERIES))]}
    for number, example in enumerate(report.examples, 1):
        if not example.system.strip():
            found["no system prompt"].append(example.id)
        if example.task not in UNSCORED:
            if len(example.shards) < 2:
                found["a single shard: no conversation"].append(example.id)
            key = (example.task, example.system, normalise(example.full).lower())
            if key in first:
                found["the same request as another"].append(f"{example.id} ({first[key]})")
            first.setdefault(key, example.id)
            problem = check_shards(example.full, example.shards, most_new=1.0, goal=False)
            if (
                problem and "lost" in problem and example.task != "code"
            ):  # code is full of identifiers nobody repeats
                found[f"shards: {problem.split(':')[0]}"].append(
                    f"{example.id} ({problem.split(': ', 1)[1]})"
                )
            if (example.task != "database" or example.id in sampled) and (
                wrong := reference_problem(example)
            ):
                found[wrong].append(example.id)
        if number % 100 == 0 or number == len(report.examples):
            progress(number, len(report.examples))
    report.warnings += [(what, len(ids), ids[:SHOWN]) for what, ids in found.items()]


def reference_problem(example: Example) -> str | None:
    """What is wrong with an example's reference, as far as that is cheap to say; None where nothing is."""
    answer = example.answer
    if example.task == "math":
        return (
            None if any(c.isdigit() for c in str(answer["value"])) else "the reference answer holds no number"
        )
    if example.task == "actions":
        from smopd.data.training_set.bfcl import render
        from smopd.verify import verify

        return (
            None if verify(example, render(answer["calls"])).correct else "the reference calls do not verify"
        )
    if example.task == "database":
        from smopd.data.training_set.spider import shows_something

        problem = shows_something(answer)
        return f"{problem} (queries are sampled)" if problem else None
    if example.task == "code":
        try:
            ast.parse("\n".join(map(str, answer.get("test_list") or [answer.get("test") or ""])))
        except (SyntaxError, ValueError):
            return "the tests are not Python"
    return None


def _compare(report: Report, against: str) -> None:
    from smopd.data.training_set.overlap import held_out

    out = held_out(None, (), [against])
    found: dict[str, list[str]] = defaultdict(list)
    for example in report.examples:
        if why := out.overlap(example.task, example.full, example.answer):
            found[why].append(example.id)
    report.warnings += [
        (f"overlap with {against}: {why}", len(ids), ids[:SHOWN]) for why, ids in sorted(found.items())
    ]
