"""The code verifier: finding code in replies, the public sets' own solutions, mutants of them, and hostile
text.
"""

import ast
import base64
import copy
import gzip
import json
import pickle
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from conftest import shared
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smopd.verify import sandbox
from smopd.verify.tasks.code import verify_code

pytestmark = pytest.mark.skipif(
    sandbox.isolation() == "none", reason="neither bubblewrap nor namespaces work on this machine"
)

DOUBLE: dict[str, Any] = {
    "entry_point": "double",
    "prompt": "from typing import List\n\ndef helper(x): return x\n\ndef double(x: int) -> int:\n    "
    "'Twice x'\n",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(helper(-1)) == -2\n",
}
RIGHT = "def double(x):\n    return 2 * x"
WRONG = "def double(x):\n    return x * x"


def fenced(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}\n```"


def human_eval() -> list[dict[str, Any]]:
    with gzip.open(shared("data/raw/HumanEval.jsonl.gz"), "rt") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize(
    "reply",
    [
        RIGHT,
        fenced(RIGHT),
        fenced(RIGHT, ""),
        fenced(RIGHT, "py"),
        f"Sure:\n\n{fenced(RIGHT)}\n\nIt doubles.",
        f"```{RIGHT}```",
        f"{fenced(WRONG)}\nNo, wait:\n{fenced(RIGHT)}",
        f"{fenced(RIGHT)}\nUse it so:\n{fenced('print(double(2))')}",
        f"{fenced(RIGHT)}\n{fenced('def test_it(): assert double(1) == 2')}",
        f"{fenced(RIGHT)}\n{fenced('$ python x.py', 'sh')}",
        f"```python\n{RIGHT}",
        fenced("def twice(n):\n    return n + n"),
        f"Here it is.\n\n{RIGHT}\n\nThis doubles x, doesn't it?",
        f"from here on:\n{RIGHT}\nprint it",
        fenced("double = lambda x: x * 2"),
        fenced("def h(x): return x\n\n" + RIGHT),
        fenced("class Solution:\n    def double(self, x):\n        return 2 * x"),
        fenced("    " + RIGHT.replace("\n", "\n    ")),
        fenced("from __future__ import annotations\n" + RIGHT),
        fenced("def double(x: List[int]) -> int:\n    return helper(x) * 2"),
        fenced(f"{RIGHT}\n\nif __name__ == '__main__':\n    print(double(int(input())))"),
        fenced(RIGHT.replace("\n", "\r\n")),
        fenced(f"{RIGHT}\nprint(double(1))"),
        fenced("import functools\n@functools.cache\n" + RIGHT),
        fenced("# é 你好\n" + RIGHT),
    ],
)
def test_right_code(reply: str) -> None:
    verdict = verify_code(DOUBLE, reply)
    assert (verdict.correct, verdict.status) == (True, "ok"), verdict


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (fenced(WRONG), "ok"),
        (f"{fenced(RIGHT)} no: {fenced(WRONG)}", "ok"),
        (fenced("def double(x): raise ValueError"), "ok"),
        (fenced("def double(): return 4"), "ok"),
        (fenced("import os\nos._exit(0)\n" + RIGHT), "ok"),
        (fenced("x = 4"), "no_answer"),
        ("I don't know.", "no_answer"),
        ("", "no_answer"),
        (fenced(""), "no_answer"),
        (fenced("def double(x:"), "no_answer"),
        (fenced("def double(x):\n    while True: pass"), "timeout"),
        (fenced("def check(c): pass\ndef helper(x): return 0\ndef double(x): return 4"), "ok"),
        ("def double(x):\n", "no_answer"),
        ("The answer is 4.", "no_answer"),
        (fenced("import numpy as np\ndef double(x): return np.int64(2) * x"), "ok"),
        ("```", "no_answer"),
    ],
)
def test_wrong_code(reply: str, status: str) -> None:
    verdict = verify_code(DOUBLE, reply, timeout=0.3 if status == "timeout" else 6)
    assert (verdict.correct, verdict.status) == (False, status), verdict
    assert verdict.detail
    assert (verdict.extracted is None) == (status == "no_answer")


def test_the_kinds_of_tests() -> None:
    asserts = {"test_list": ["assert set(double(2)) == {4}"], "test_setup_code": "import math"}
    assert verify_code(asserts, "def double(x): return [2 * x]").correct
    assert verify_code(asserts, "def other(x): return [2 * x]").correct
    cases = [{"input": "[1, 2]\n3", "output": "[[3, 6]]", "testtype": "functional"}]
    functional = {"public_test_cases": json.dumps(cases), "metadata": json.dumps({"func_name": "scale"})}
    assert verify_code(functional, "def scale(xs, k): return [tuple(k * x for x in xs)]").correct
    assert not verify_code(functional, "def scale(xs, k): return [k * x for x in xs]").correct
    assert verify_code(
        functional, "class Solution:\n    def scale(self, xs, k): return [[k * x for x in xs]]"
    ).correct
    packed = base64.b64encode(
        zlib.compress(pickle.dumps(json.dumps([{"input": "[5]\n2", "output": "[[10]]"}])))
    ).decode()
    assert verify_code(
        {**functional, "private_test_cases": packed}, "def scale(xs, k): return [[k * x for x in xs]]"
    ).correct
    assert not verify_code(
        {**functional, "private_test_cases": packed}, "def scale(xs, k): return [[3, 6]]"
    ).correct
    unsafe = base64.b64encode(zlib.compress(pickle.dumps(json.dumps))).decode()
    assert (
        verify_code({**functional, "private_test_cases": unsafe}, "def scale(xs, k): return 1").status
        == "error"
    )
    stdin = {
        "public_test_cases": [
            {"input": f"{n}\n", "output": f"{2 * n}\n", "testtype": "stdin"} for n in (1, 2)
        ]
    }
    assert verify_code(
        stdin, fenced("import sys\nprint('note', file=sys.stderr)\nprint(int(input()) * 2, end='  ')")
    ).correct
    assert not verify_code(stdin, fenced("print(2)")).correct
    assert verify_code(stdin, fenced("while True: pass"), timeout=0.5).status == "timeout"


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"test": "def check(c): pass"},
        {"test": "x", "entry_point": "f", "prompt": "def f(:"},
        {"test_list": ["assert ("]},
        {"public_test_cases": "no json"},
        {"public_test_cases": [{"input": "x", "output": "1"}], "metadata": {"func_name": "f"}},
        {"public_test_cases": [{"input": "1", "output": "1"}]},
        {"test": "def check(c: pass", "entry_point": "f"},
        {"metadata": "{"},
    ],
)
def test_broken_references_are_errors(answer: dict[str, Any]) -> None:
    verdict = verify_code(answer, fenced("def f(x): return 1"))
    assert (verdict.correct, verdict.status) == (False, "error"), verdict


def test_lic_items_accept_the_solutions_and_reject_others() -> None:
    solutions = {item["task_id"]: item for item in human_eval()}
    items = json.loads(shared("data/lic/code.json").read_text())
    assert items
    for item in items:
        reference = solutions[item["task_id"].removeprefix("sharded-")]
        body = reference["canonical_solution"]
        cases_only = {key: value for key, value in item.items() if key != "test"}
        for answer in (item, cases_only):
            assert verify_code(answer, fenced(reference["prompt"] + body)).correct, item["task_id"]
            assert not verify_code(answer, fenced(reference["prompt"] + "    return None\n")).correct
            renamed = (reference["prompt"] + body).replace(
                f"def {reference['entry_point']}(", "def my_function("
            )
            assert verify_code(answer, fenced(renamed)).correct, item["task_id"]


# --- the public sets
@pytest.mark.slow
def test_every_human_eval_solution_passes() -> None:
    items = human_eval()
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(
            pool.map(
                lambda i: verify_code(i, fenced(i["prompt"] + i["canonical_solution"]), timeout=30), items
            )
        )
    assert [
        item["task_id"] for item, verdict in zip(items, verdicts, strict=True) if not verdict.correct
    ] == []
    assert len(items) == 164


@pytest.mark.slow
def test_every_mbpp_solution_passes() -> None:
    items = [json.loads(line) for line in shared("data/raw/mbpp.jsonl").read_text().splitlines()]
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda item: verify_code(item, fenced(item["code"]), timeout=60), items))
    assert [
        item["task_id"] for item, verdict in zip(items, verdicts, strict=True) if not verdict.correct
    ] == []
    assert len(items) == 974


def mutants(code: str, entry: str) -> Iterator[str]:
    """Every off-by-one in a function: a whole number one more, a strict comparison loose or the other way,
    `range` one longer.

    A prompt's helpers stay as they are: the tests have their own copies of them.
    """
    loose = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
    tree = ast.parse(code)
    place_of = [getattr(node, "name", "") for node in tree.body].index(entry)
    for number, node in enumerate(ast.walk(tree.body[place_of])):
        changed = copy.deepcopy(tree)
        twin = list(ast.walk(changed.body[place_of]))[number]
        if isinstance(node, ast.Constant) and type(node.value) is int:
            twin.value += 1
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in loose:
            twin.ops[0] = loose[type(node.ops[0])]()
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "range":
            place = min(1, len(node.args) - 1)
            twin.args[place] = ast.BinOp(twin.args[place], ast.Add(), ast.Constant(1))
        else:
            continue
        yield ast.unparse(ast.fix_missing_locations(changed))


# The judge of what a mutant really does: its tests in a plain process, by exit code; a mutant is not out to
# cheat.
ORACLE = """
import json, os, resource, signal, sys
for program in json.load(sys.stdin):
    if (child := os.fork()) == 0:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
        signal.alarm(4)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        try:
            exec(program, {"__name__": "m"})
            os._exit(0)
        except BaseException:
            os._exit(1)
    print(int(os.waitpid(child, 0)[1] == 0), flush=True)
"""


@pytest.mark.long
def test_off_by_one_mutants_are_judged_as_by_running_them_plainly() -> None:
    tasks = []
    for item in human_eval():
        candidates = list(
            dict.fromkeys(mutants(item["prompt"] + item["canonical_solution"], item["entry_point"]))
        )
        tasks += [
            (item, mutant) for mutant in candidates[:: max(1, len(candidates) // 3)][:3]
        ]  # at most three a task, spread over it
    programs = [f"{mutant}\n{item['test']}\ncheck({item['entry_point']})" for item, mutant in tasks]
    oracle = subprocess.run(
        [sys.executable, "-S", "-c", ORACLE], input=json.dumps(programs), text=True, capture_output=True
    )
    passes = [line == "1" for line in oracle.stdout.split()]
    with ThreadPoolExecutor(2) as pool:
        verdicts = list(pool.map(lambda task: verify_code(task[0], fenced(task[1]), timeout=4), tasks))
    judged = zip(tasks, passes, verdicts, strict=True)
    differ = [
        (task[0]["task_id"], task[1], verdict.detail)
        for task, passed, verdict in judged
        if verdict.correct != passed
    ]
    rejected = sum(not v.correct for v in verdicts)
    print(f"{len(tasks)} mutants, {passes.count(False)} change behaviour, {rejected} rejected")
    assert differ == []
    assert passes.count(False) > 200


# --- hostile text
PIECES = [
    "```",
    "```python\n",
    "\n",
    "def double(x):",
    "    return 2 * x",
    *"([{)'\"\\@\0\ud800é\t",
    ":=",
    "\x1b[0m",
    "while 1:",
    "print(",
]
PIECES += ["class Solution:", "import os", "from x import", "lambda", "async def f"]


@settings(max_examples=120, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.text(max_size=300),
        st.binary(max_size=300).map(lambda b: b.decode("latin-1")),
        st.lists(st.sampled_from(PIECES), max_size=25).map("".join),
    )
)
def test_no_reply_raises(reply: str) -> None:
    verdict = verify_code(DOUBLE, reply, timeout=1)
    assert verdict.status in ("ok", "no_answer", "timeout", "error")
    assert not verdict.correct or "2 * x" in reply or "2*x" in reply


@pytest.mark.parametrize(
    "reply",
    [
        "x" * 1_000_000,
        "```" * 300_000,
        "def f(x):\n" * 100_000,
        "(" * 1_000_000,
        fenced("[" * 25_000),
        fenced("x" + ".a" * 14_000),
        fenced("-" * 29_000 + "1"),
        fenced("def double(x):\n    return " + "(" * 90 + "x" + ")" * 90),
        fenced("def double(x):\n    return " + "+".join(["x"] * 14_000)),
        fenced("x = " + "[" * 14_000 + "]" * 14_000),
        fenced("def double(x):\n    return " + "not " * 7_000 + "x"),
        "import x\n" * 100_000 + "(",
        "@a\n" * 300_000,
        "\n" * 1_000_000,
        fenced("\n".join("    " * n + "if x:" for n in range(90))),
        fenced("def double(x):\n" + "    x += 1\n" * 2_000),
        "def double(x):\n    return '" + "y" * 1_000_000,
        fenced("x" + "[0]" * 9_000),
        fenced("f" + "()" * 14_000),
    ],
)
def test_large_and_deep_replies_end_soon(reply: str) -> None:
    started = time.monotonic()
    verdict = verify_code(DOUBLE, reply, timeout=2)
    assert not verdict.correct or "((((" in reply
    assert time.monotonic() - started < 5
