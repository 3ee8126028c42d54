"""Thousands of seeded nonsense replies for every verifier: none raises, none is right, none takes longer than
its limit.

Noise is random bytes, tokens of the task's own language in random order, brackets that do not close or nest
too deep, odd characters, and what makes careless regular expressions slow. Mutations of right replies may be
right or wrong, but not fatal.
"""

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smopd.data import Example
from smopd.verify import sandbox
from smopd.verify.sql import database
from smopd.verify.tasks import code, math
from smopd.verify.verdict import STATUSES
from smopd.verify.verifiers import Verdict, verify, verify_all

COUNT = 5000
GRACE = 20.0  # seconds beyond a verifier's limit: a process may have to start on a busy machine
MEGABYTE = 1 << 20
ODD = [
    "\0",
    "\ud800",
    "\udfff",
    "\u2028",
    "\ufeff",
    "\u202e",
    "é",
    "你",
    "\U0001f600",
    "\r",
    "\x1b[31m",
    "\u2212",
    "٣",
    "𝟏",
    "ⅷ",
]
COMMON = ["<think>", "</think>", "```", "\n", " ", "\t", ",", ".", ":", ";", "'", '"', "\\", "(", ")", "[",
    "]", "{", "}", "-",
          "1", "22"]  # fmt: skip
KILLERS = ["1,", "-", "\\frac{", "a.", " ", "\\boxed{", "f(", "['", "((", "{{", '"\\', "#\n", "--", "/*",
    "1/", "e9", "```\n",
           "<think>", "SELECT (", "WITH a AS (", "not ", "lambda:", "[f(a=", "x^", "\\,", "$", "aaaaaaaa!",
           "</think>"]  # fmt: skip
SECRET = 918273645  # of every reference: no noise comes upon it


@dataclass(frozen=True)
class Case:
    """A task: references, tokens of its language, right replies, what an answer stands in (and how often
    noise), its limit.
    """

    references: tuple[dict[str, Any], ...]
    pieces: tuple[str, ...]
    right: tuple[str, ...]
    frame: tuple[str, int]
    limit: float


PETS = "CREATE TABLE pet (id INTEGER PRIMARY KEY, kind TEXT, age INT, owner TEXT);"
QUERY = f"SELECT kind, count(*) FROM pet WHERE age > {SECRET} GROUP BY kind ORDER BY kind"
CALLS = [{"f": {"a": [SECRET], "b": ["x", ""]}}, {"m.area": {"w": [2.5]}}]
CASES = {
    "math": Case(
        ({"value": str(SECRET)},) * 19 + ({"value": f"x+{SECRET}"},),
        ("\\boxed{", "}", "\\frac{1}{2}", "\\sqrt{", "^", "+", "\\cdot", "\\text{", "x", "=", "$", "%", "/",
        "2", "!", "\\pi",
         "e", "answer is"),
        (f"So the answer is {SECRET:,}.", f"\\boxed{{{SECRET}}}", f"\\boxed{{{SECRET - 1} + 1}}",
        f"$\\boxed{{{SECRET}+x}}$"),
        ("So \\boxed{%s}.", 25),
        math.TIMEOUT,
    ),
    "actions": Case(
        ({"calls": CALLS},),
        ("f(", "m.area(", "a=", "b=", "w=", "[f(a=", "True", "None", "lambda", "**", "*", "b'", "0x", "1e999",
        "#", "f'{",
         ")]", "=="),
        (f"[f(a={SECRET}), m.area(w=2.5)]", f"```python\n[m.area(w=2.5), f(b='X', a={SECRET})]\n```"),
        ("[f(a=%s), m.area(w=2.5)]", 5),
        5.0,  # it has no limit of its own: its time is linear
    ),
    "database": Case(
        ({"schema_sql": PETS, "reference_sql": QUERY},),
        ("SELECT", "select", "FROM", "pet", "WHERE", "age", "kind", "*", "count(", "GROUP BY", "ORDER BY",
        "LIMIT", "UNION",
         "WITH", "AS", "JOIN", "RECURSIVE", "--", "/*", "```sql\n", "EXISTS", "IN", "=", ">", "DROP TABLE",
         "PRAGMA", "ATTACH",
         "zeroblob(", "NULL", "LIKE"),
        (f"```sql\n{QUERY}\n```", f"SELECT kind, COUNT(id) FROM pet WHERE NOT age <= {SECRET} GROUP BY 1 "
            f"ORDER BY 1"),
        ("```sql\nSELECT %s FROM pet\n```", 5),
        database.TIMEOUT,
    ),
    "code": Case(
        ({"entry_point": "f", "test": f"def check(candidate):\n    assert candidate(2) == {SECRET}\n"},),
        ("def f(x):", "return", "import os", "class Solution:", "    ", "\n    ", "```python\n", "x", "=",
        "==", "lambda",
         "yield", "for", "in", "while True:", "pass", "async", "await", "@", "->", "...", "'''", "f'{", "0x",
         "match x:"),
        (f"```python\ndef f(x):\n    return {SECRET}\n```",
        f"Here:\n\ndef f(x):\n    y = {SECRET}\n    return y\n\nIt works."),
        ("```python\ndef f(x):\n    return %s\n```", 5),
        code.TIMEOUT,
    ),
}  # fmt: skip
TASKS = pytest.mark.parametrize("task", CASES)


def noise(draw: random.Random, pieces: tuple[str, ...]) -> str:
    """One nonsense reply."""
    many = draw.choice((3, 30, 300))
    kinds: list[Callable[[], str]] = [
        lambda: draw.randbytes(many * 4).decode("utf-8", "replace"),
        lambda: draw.choice(("", " ")).join(draw.choices(pieces, k=many // 3)),
        lambda: draw.choice(("", " ")).join(draw.choices(pieces + tuple(COMMON) + tuple(ODD), k=many // 3)),
        lambda: "".join(draw.choices("([{<\"'`", k=many)),
        lambda: draw.choice(pieces) + "(" * many + draw.choice(pieces) + ")" * draw.choice((many, many - 1)),
        lambda: draw.choice(pieces) + "".join(draw.choices(("[", "{", "(", "]", "}", ")", "1", ","), k=many)),
        lambda: "".join(chr(draw.randrange(0x110000)) for _ in range(many)),
        lambda: draw.choice(pieces) + draw.choice(KILLERS) * many + draw.choice(pieces),
    ]
    return draw.choice(kinds)()


def mutated(draw: random.Random, reply: str, pieces: tuple[str, ...]) -> str:
    """A right reply with a few characters changed, dropped, doubled or replaced by a token."""
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(reply) + 1)
        to = min(len(reply), at + draw.randrange(4))
        reply = (
            reply[:at]
            + draw.choice(("", reply[at:to] * 2, draw.choice(pieces), draw.choice(COMMON), draw.choice(ODD)))
            + reply[to:]
        )
    return reply


def example(task: str, number: int = 0) -> Example:
    references = CASES[task].references
    return Example("t", task, "", ("goal",), "goal", references[number % len(references)])


def judged(task: str, number: int, reply: str) -> Verdict:
    """The verdict, checked for form and time."""
    began = time.monotonic()
    verdict = verify(example(task, number), reply)
    assert time.monotonic() - began < CASES[task].limit + GRACE, reply[:200]
    assert verdict.status in STATUSES
    assert verdict.status == "ok" or not verdict.correct
    assert isinstance(verdict.detail, str)
    assert verdict.correct or verdict.detail
    assert (verdict.extracted is not None) >= (verdict.status == "ok")
    return verdict


@pytest.fixture(autouse=True)
def _sandboxed(request: pytest.FixtureRequest) -> None:
    if "code" in request.node.name and sandbox.isolation() == "none":
        pytest.skip("neither bubblewrap nor namespaces work on this machine")


@TASKS
def test_noise_is_never_right(task: str) -> None:
    draw, seen = random.Random(f"noise {task}"), Counter[str]()
    for number in range(COUNT):
        frame, often = CASES[task].frame
        text = noise(draw, CASES[task].pieces)
        verdict = judged(task, number, text if number % often else frame.replace("%s", text))
        assert not verdict.correct
        seen[verdict.status] += 1
    assert seen["no_answer"] > 100  # the noise is noise,
    assert seen["ok"] > 10  # and some of it passes for an answer
    assert seen["error"] == 0


@TASKS
def test_mutations_of_right_replies(task: str) -> None:
    draw, seen = random.Random(f"mutated {task}"), Counter[bool]()
    right, pieces = CASES[task].right, CASES[task].pieces
    for number in range({"math": 400, "code": 250}.get(task, 2000)):
        seen[judged(task, number, mutated(draw, right[number % len(right)], pieces)).correct] += 1
    assert seen[True]
    assert seen[False]


@TASKS
def test_a_megabyte_of_anything(task: str) -> None:
    draw = random.Random(f"long {task}")
    pieces, right = CASES[task].pieces, CASES[task].right[0]
    texts = [
        piece * (MEGABYTE // len(piece))
        for piece in ("(", "[", " ", "1", *draw.sample(KILLERS, 6), *draw.sample(pieces, 6))
    ]
    texts += [
        " ".join(draw.choices((*pieces, *COMMON), k=MEGABYTE // 4)),
        draw.randbytes(MEGABYTE).decode("utf-8", "replace"),
    ]
    for text in texts:
        assert not judged(task, 0, text).correct
    assert judged(task, 0, "word " * (MEGABYTE // 5) + "\n\n" + right).correct


@TASKS
def test_noise_at_once_is_judged_as_one_by_one(task: str) -> None:
    draw = random.Random(f"all {task}")
    replies = [noise(draw, CASES[task].pieces) for _ in range(150)] + list(CASES[task].right)
    pairs = [(example(task), reply) for reply in replies]
    assert verify_all(pairs) == [verify(*pair) for pair in pairs]


@TASKS
@settings(max_examples=60)
@given(data=st.data())
def test_text_of_any_kind(task: str, data: st.DataObject) -> None:
    tokens = st.lists(st.sampled_from((*CASES[task].pieces, *COMMON, *ODD)), max_size=40).map("".join)
    reply = data.draw(
        st.one_of(
            st.text(st.characters()), tokens, st.binary().map(lambda raw: raw.decode("utf-8", "replace"))
        )
    )
    assert not judged(task, 0, reply).correct
