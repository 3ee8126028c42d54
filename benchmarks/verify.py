"""`benchmarks verify`: verdicts a second, one reply after the other against many at once, for every verifier.
Every other generated reply is right, and both ways must agree. Wall-clock time: other processes do the work.
"""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count
from statistics import median
from typing import Any

from smopd.data import Example
from smopd.machine import describe_cpu
from smopd.seeds import rng
from smopd.tracking import Track, quiet
from smopd.verify import sandbox, workers
from smopd.verify.verifiers import Verdict, verify, verify_all

Pair = tuple[Example, str]
Item = tuple[dict[str, Any], str]  # the reference answer, and a reply


@dataclass(frozen=True)
class Verify:
    """How many replies each verifier gets; the slower ones fewer."""

    quick: int = 2000  # numbers, calls
    slow: int = 200  # expressions, queries, programs


def _numbers(draw: random.Random, number: int) -> Item:
    value = draw.randrange(10_000)
    reply = f"First 3 of 4, then twice that. So the answer is \\boxed{{{value + number % 2:,}}}."
    return {"value": str(value)}, reply


_FORMS = (
    ("{a}x+{b}", "{b}+{a}x"),
    (r"\frac{{\sqrt{{{a}}}}}{{{b}}}", r"\sqrt{{{a}}}/{b}"),
    ("({a},{b})", "({a}, {b}+0)"),
    ("{c}", r"{a}\cdot {b}"),
    (r"\frac{{{a}}}{{{b}}}\pi", r"\pi\cdot{a}/{b}"),
)


def _expressions(draw: random.Random, number: int) -> Item:
    a, b = draw.randrange(2, 99), draw.randrange(2, 99)
    reference, reply_form = draw.choice(_FORMS)
    reply = f"So $\\boxed{{{reply_form.format(a=a, b=b + number % 2)}}}$."
    return {"value": reference.format(a=a, b=b, c=a * b)}, reply


def _actions(draw: random.Random, number: int) -> Item:
    rooms = draw.sample(range(100), 3)
    calls = [{"book": {"room": [room], "day": ["Monday", "Mon"], "note": ["", "none"]}} for room in rooms]
    booked = [rooms[0] if number % 2 == 0 else 100, *rooms[1:]]
    bookings = ", ".join(f"book(room={room}, day='monday')" for room in reversed(booked))
    return {"calls": calls}, f"From your words: [{bookings}]"


_SCHEMA = """CREATE TABLE owner (id INTEGER PRIMARY KEY, name TEXT, age INT);
CREATE TABLE pet (id INTEGER PRIMARY KEY, owner INT, kind TEXT, weight REAL,
                  FOREIGN KEY (owner) REFERENCES owner(id));"""


def _queries(draw: random.Random, number: int) -> Item:
    age = 20 + number // 4  # a few replies to every reference, as in an evaluation
    joined = "FROM owner o JOIN pet p ON p.owner = o.id"
    reference = f"SELECT o.name, count(*) {joined} WHERE o.age > {age} GROUP BY o.id"
    joined = f"FROM pet JOIN owner ON owner = owner.id WHERE NOT age {'<' if number % 2 else '<='} {age}"
    query = f"SELECT name, count(pet.id) {joined} GROUP BY owner.id"
    return {"schema_sql": _SCHEMA, "reference_sql": reference}, f"```sql\n{query}\n```"


def _programs(draw: random.Random, number: int) -> Item:
    by = draw.randrange(2, 50)
    tests = "".join(f"    assert candidate({n}) == {n * by}\n" for n in range(5))
    code = f"def times(x):\n    return sum(x for _ in range({by + number % 2}))"
    answer = {"entry_point": "times", "test": f"def check(candidate):\n{tests}"}
    return answer, f"Here it is:\n```python\n{code}\n```"


# By name: the task, its items, and whether it is one of the slow ones.
KINDS: dict[str, tuple[str, Callable[[random.Random, int], Item], bool]] = {
    "math, numbers": ("math", _numbers, False),
    "math, expressions": ("math", _expressions, True),
    "actions": ("actions", _actions, False),
    "database": ("database", _queries, True),
    "code": ("code", _programs, True),
}


def items(kind: str, number: int) -> list[Pair]:
    """Seeded examples with replies, every other one right."""
    task, make, _ = KINDS[kind]
    draw, pairs = rng("bench verify", kind), list[Pair]()
    for k in range(number):
        answer, reply = make(draw, k)
        pairs.append((Example(str(k), task, "", ("goal",), "goal", answer), reply))
    return pairs


def report(settings: Verify, reps: int, track: Track = quiet) -> dict[str, Any]:
    """Measure every verifier both ways, interleaved."""
    kinds = [kind for kind in KINDS if kind != "code" or sandbox.isolation() != "none"]
    ways: dict[str, Callable[[Sequence[Pair]], list[Verdict]]] = {
        "one by one": lambda pairs: [verify(*pair) for pair in pairs],
        "at once": verify_all,
    }
    results = list[dict[str, Any]]()
    with track("bench verify", len(kinds) * reps * len(ways)) as update:
        done = count()
        for kind in kinds:
            pairs = items(kind, settings.slow if KINDS[kind][2] else settings.quick)
            rates: dict[str, list[float]] = {way: [] for way in ways}
            verdicts: dict[str, list[Verdict]] = {}
            for run in ways.values():  # warm-up
                run(pairs[: 4 * workers.width()])
            for _ in range(reps):
                for way, run in ways.items():
                    began = time.perf_counter()
                    verdicts[way] = run(pairs)
                    rates[way].append(len(pairs) / (time.perf_counter() - began))
                    update(next(done) + 1, f"{kind}, {way}: {rates[way][-1]:,.0f} a second")
            single = verdicts["one by one"]
            correct = sum(verdict.correct for verdict in single)
            failed = sum(verdict.status in ("timeout", "error") for verdict in single)
            counts = {"verdicts": len(pairs), "correct": correct, "failed": failed}
            speed = {way: median(rates[way]) for way in ways}
            spread = {way: [min(rates[way]), max(rates[way])] for way in ways}
            same = single == verdicts["at once"]
            results.append({"name": kind, **counts, "same": same, "per_second": speed, "spread": spread})
    notes = ["by the clock, processes already running; every other reply is right"]
    differ = ", ".join(row["name"] for row in results if not row["same"])
    alike = "both ways gave the same verdicts"
    notes.append(f"verdicts DIFFER between the two ways: {differ}" if differ else alike)
    if len(kinds) < len(KINDS):
        notes.append("code left out: neither bubblewrap nor namespaces work here")
    about = {
        "bench": "verify",
        "machine": describe_cpu(workers.width()),
        "settings": asdict(settings),
        "reps": reps,
    }
    return about | {"results": results, "notes": notes}
