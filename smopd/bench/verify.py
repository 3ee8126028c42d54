"""`bench verify`: verdicts a second, one reply after the other against many at once, for every verifier.

Items are generated, every other reply is right, and both ways must agree. Seconds are of the clock, not of
the CPU as in the other benchmarks: most of the work is done in other processes. It leaves out starting them:
a warm-up sees to that.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from smopd.bench.measure import machine
from smopd.cli.progress import Progress
from smopd.data import Example
from smopd.seeds import rng
from smopd.verify import sandbox, workers
from smopd.verify.verifiers import Verdict, verify, verify_all

Pair = tuple[Example, str]


@dataclass(frozen=True)
class Verify:
    """How many replies each verifier gets; the slower ones fewer."""

    quick: int = 2000  # numbers, calls
    slow: int = 200  # expressions, queries, programs


def _numbers(draw: random.Random, number: int) -> tuple[dict[str, Any], str]:
    value = draw.randrange(10_000)
    return {
        "value": str(value)
    }, f"First 3 of 4, then twice that. So the answer is \\boxed{{{value + number % 2:,}}}."


_FORMS = (
    ("{a}x+{b}", "{b}+{a}x"),
    (r"\frac{{\sqrt{{{a}}}}}{{{b}}}", r"\sqrt{{{a}}}/{b}"),
    ("({a},{b})", "({a}, {b}+0)"),
    ("{c}", r"{a}\cdot {b}"),
    (r"\frac{{{a}}}{{{b}}}\pi", r"\pi\cdot{a}/{b}"),
)


def _expressions(draw: random.Random, number: int) -> tuple[dict[str, Any], str]:
    a, b = draw.randrange(2, 99), draw.randrange(2, 99)
    reference, said = draw.choice(_FORMS)
    return {
        "value": reference.format(a=a, b=b, c=a * b)
    }, f"So $\\boxed{{{said.format(a=a, b=b + number % 2)}}}$."


def _actions(draw: random.Random, number: int) -> tuple[dict[str, Any], str]:
    rooms = draw.sample(range(100), 3)
    calls = [{"book": {"room": [room], "day": ["Monday", "Mon"], "note": ["", "none"]}} for room in rooms]
    said = ", ".join(
        f"book(room={room if number % 2 == 0 or room != rooms[0] else 100}, day='monday')"
        for room in reversed(rooms)
    )
    return {"calls": calls}, f"From your words: [{said}]"


_SCHEMA = """CREATE TABLE owner (id INTEGER PRIMARY KEY, name TEXT, age INT);
CREATE TABLE pet (id INTEGER PRIMARY KEY, owner INT, kind TEXT, weight REAL, FOREIGN KEY (owner) REFERENCES owner(id));"""


def _queries(draw: random.Random, number: int) -> tuple[dict[str, Any], str]:
    age = 20 + number // 4  # a few replies to every reference, as in an evaluation
    reference = (
        f"SELECT o.name, count(*) FROM owner o JOIN pet p ON p.owner = o.id WHERE o.age > {age} GROUP BY o.id"
    )
    said = f"FROM pet JOIN owner ON owner = owner.id WHERE NOT age {'<' if number % 2 else '<='} {age} GROUP BY owner.id"
    said = f"SELECT name, count(pet.id) {said}"
    return {"schema_sql": _SCHEMA, "reference_sql": reference}, f"```sql\n{said}\n```"


def _programs(draw: random.Random, number: int) -> tuple[dict[str, Any], str]:
    by = draw.randrange(2, 50)
    tests = "".join(f"    assert candidate({n}) == {n * by}\n" for n in range(5))
    code = f"def times(x):\n    return sum(x for _ in range({by + number % 2}))"
    return {
        "entry_point": "times",
        "test": f"def check(candidate):\n{tests}",
    }, f"Here it is:\n```python\n{code}\n```"


# By name: the task, its items, and whether it is one of the slow ones.
KINDS: dict[str, tuple[str, Callable[[random.Random, int], tuple[dict[str, Any], str]], bool]] = {
    "math, numbers": ("math", _numbers, False),
    "math, expressions": ("math", _expressions, True),
    "actions": ("actions", _actions, False),
    "database": ("database", _queries, True),
    "code": ("code", _programs, True),
}


def items(kind: str, count: int) -> list[Pair]:
    """Seeded examples with replies, every other one right."""
    task, make, _ = KINDS[kind]
    draw, found = rng("bench verify", kind), list[Pair]()
    for number in range(count):
        answer, reply = make(draw, number)
        found.append((Example(str(number), task, "", ("goal",), "goal", answer), reply))
    return found


def report(settings: Verify, reps: int) -> dict[str, Any]:
    """Measure every verifier both ways, interleaved."""
    kinds = [kind for kind in KINDS if kind != "code" or sandbox.isolation() != "none"]
    ways: dict[str, Callable[[Sequence[Pair]], list[Verdict]]] = {
        "one by one": lambda pairs: [verify(*pair) for pair in pairs],
        "at once": verify_all,
    }
    results = list[dict[str, Any]]()
    with Progress("bench verify", len(kinds) * reps * len(ways)) as progress:
        done = 0
        for kind in kinds:
            pairs = items(kind, settings.slow if KINDS[kind][2] else settings.quick)
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            verdicts = {
                way: run(pairs[: 4 * workers.width()]) and run(pairs[:1]) for way, run in ways.items()
            }  # warm-up
            for _ in range(reps):
                for way, run in ways.items():
                    began = time.perf_counter()
                    verdicts[way] = run(pairs)
                    seconds[way].append(time.perf_counter() - began)
                    done += 1
                    progress.update(done, f"{kind}, {way}: {len(pairs) / seconds[way][-1]:,.0f} a second")
            found = verdicts["one by one"]
            results.append(
                {
                    "name": kind,
                    "verdicts": len(pairs),
                    "correct": sum(verdict.correct for verdict in found),
                    "failed": sum(verdict.status in ("timeout", "error") for verdict in found),
                    "same": found == verdicts["at once"],
                    "per_second": {way: len(pairs) / median(seconds[way]) for way in ways},
                    "spread": {
                        way: [len(pairs) / max(seconds[way]), len(pairs) / min(seconds[way])] for way in ways
                    },
                }
            )
    differ = [row["name"] for row in results if not row["same"]]
    notes = ["by the clock, processes already running; every other reply is right"]
    notes.append(
        f"verdicts DIFFER between the two ways: {', '.join(differ)}"
        if differ
        else "both ways gave the same verdicts"
    )
    if len(kinds) < len(KINDS):
        notes.append("code left out: neither bubblewrap nor namespaces work here")
    return {
        "bench": "verify",
        "machine": {**machine(), "threads": workers.width()},
        "settings": asdict(settings),
        "reps": reps,
        "results": results,
        "notes": notes,
    }
