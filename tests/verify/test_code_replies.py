"""Code in replies: which block is chosen, and what runs at its top level."""

import json
import time
from typing import Any

import pytest

from smopd.verify import sandbox
from smopd.verify.code import find_code
from smopd.verify.code import program as code_program
from smopd.verify.tasks.code import verify_code

pytestmark = pytest.mark.skipif(
    sandbox.isolation() == "none", reason="neither bubblewrap nor namespaces work on this machine"
)

PROMPT = "def double(x: int) -> int:\n    'Twice x'\n"
DOUBLE: dict[str, Any] = {
    "entry_point": "double",
    "prompt": PROMPT,
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(-1) == -2\n",
}
RIGHT = "def double(x):\n    return 2 * x"
WRONG = "def double(x):\n    return x * x"


def fenced(code: str, tag: str = "python") -> str:
    return f"```{tag}\n{code}\n```"


# --- what runs at the top level
@pytest.mark.parametrize(
    "code",
    [
        f"import sys\nsys.setrecursionlimit(4000)\n{RIGHT}\nlimit = sys.getrecursionlimit()\n"
        "right = double\ndef double(x): return right(x) if limit == 4000 else None",
        f"{RIGHT}\nfrom functools import lru_cache\nplain = double\ndouble = lru_cache(None)(double)\n"
        "assert 0",
        "class Solution: pass\nSolution.double = lambda self, x: 2 * x\ndouble = Solution().double",
        "table = {}\nfor n in range(-5, 5):\n    table[n] = 2 * n\ndef double(x): return table[x]",
        "factor = 3\nraise ValueError\nfactor = 2\ndef double(x): return factor * x",
        "print(1); factor = 2\ndef double(x): return factor * x",
        "try:\n    import numpy as np\nexcept ImportError:\n    np = None\n"
        "def double(x): return 2 * x if np is None else 0",
        f"{WRONG}\n{RIGHT}",
        f"{RIGHT}\nwhile True: pass",
        f"{RIGHT}\nimport time\ntime.sleep(60)\ntime.sleep(60)",
        f"{RIGHT}\nwhile True:\n    try: double(int(input()))\n    except: pass",
        f"{RIGHT}\ndef main():\n    while True:\n        print(double(int(input())))\nmain()",
        f"{RIGHT}\nwhile True:\n    try: double(None)\n    except Exception: pass",
        f"{RIGHT}\nwhile True: print('x' * 10_000)",
        f"{RIGHT}\nquit()\nraise SystemExit(3)",
        f"{RIGHT}\nawait main()\nreturn 3",
        f"from __future__ import (\n    annotations,\n)\ndef double(x: Unknown): return x * 2\n{RIGHT}",
        "from __future__ import annotations\ndef double(x: Unknown): return x * 2",
        f"def count(x): return 2\ndef pow(a, b): return a * b\n{RIGHT.replace('2 * x', 'pow(x, count(x))')}",
        "def double(x: Optional[int]) -> List: return sum(repeat(x, int(math.sqrt(gcd(4, 8)))))",
        "def double(x):\n    def deep(n): return n and 1 + deep(n - 1)\n    return deep(9000) - 9000 + 2 * x",
    ],
)
def test_the_top_level_takes_effect_and_spoils_nothing(code: str) -> None:
    started = time.monotonic()
    verdict = verify_code(DOUBLE, fenced(code), timeout=2)
    assert (verdict.correct, verdict.status) == (True, "ok"), verdict
    assert time.monotonic() - started < 4


@pytest.mark.parametrize(
    "code",
    [
        f"{RIGHT}\n{WRONG}",
        f"{RIGHT}\ndouble = None",
        f"{RIGHT}\ndel double",
        f"{RIGHT}\nimport os\nos._exit(0)",
        f"if __name__ == '__main__':\n    factor = 2\n{RIGHT.replace('2', 'factor')}",
        f"def outer(x):\n    {RIGHT.replace(chr(10), chr(10) + '    ')}",
        "def double(x): return unheard_of(x)",
        f"{RIGHT[:-1]}x)",
        f"{RIGHT}\n    never = (reached",
        f"{RIGHT}\n  never = 'reached'",
        f"def outer(:\n    {RIGHT.replace(chr(10), chr(10) + '    ')}",
        "async " + RIGHT,
    ],
)
def test_what_stays_wrong(code: str) -> None:
    assert not verify_code(DOUBLE, fenced(code), timeout=2).correct


def test_a_loop_that_asks_for_input_costs_no_time() -> None:
    started = time.monotonic()
    loop = "while True:\n    try: print(double(int(input())))\n    except: print('Once more.')"
    assert verify_code(DOUBLE, fenced(f"{RIGHT}\n{loop}"), timeout=30).correct
    assert time.monotonic() - started < 10


def test_a_script_runs_as_it_is() -> None:
    cases = [{"input": "4\n", "output": "8", "testtype": "stdin"}]
    answer = {"public_test_cases": cases}
    assert verify_code(answer, fenced("from __future__ import annotations\nprint(2 * int(input()))")).correct
    assert verify_code(answer, fenced("n = int(input())\nprint(sum(repeat(n, 2)))\nexit()")).correct
    assert not verify_code(answer, fenced("print(2 * int(input()))\nassert 0")).correct
    assert not verify_code(answer, fenced("print('twice:')\nprint(2 * int(input()))")).correct
    explained = (
        f"{fenced('for n in [input()]:  # read')}\n{fenced('print(2 * int(input()))')}\nFirst, read:\n"
    )
    assert verify_code(
        answer, f"{explained}{fenced('for n in [input()]:' + chr(10) + '    n = int(n)')}"
    ).correct


def test_mbpp_imports() -> None:
    tests = ["assert isclose(half(3), 1.5)", "assert math.isclose(half(1), 0.5)"]
    answer = {"test_list": tests, "test_imports": ["import math", "from math import isclose"]}
    challenge = {**answer, "challenge_test_list": ["assert half(2) == 7"]}
    for variant in (answer, challenge):
        assert verify_code(variant, "def half(x): return x / 2").correct
        assert not verify_code(variant, "def half(x): return x // 2").correct
    broken = verify_code({**answer, "test_imports": ["import ("]}, "def half(x): return x / 2")
    assert (broken.correct, broken.status) == (False, "error")


# --- which code
def test_extraction_by_hand() -> None:
    assert find_code(fenced("x = 1") + fenced("print(x)")) == "x = 1\n\nprint(x)"
    assert find_code("no code") is None
    assert (
        find_code(f"{fenced('def f(): return 1')}{fenced('def g(): return 2')}", "f") == "def f(): return 1"
    )
    assert (
        find_code(f"{fenced('def f(x): return 1')}{fenced('def g(x): return 2')}", "h")
        == "def g(x): return 2"
    )
    assert (
        find_code(f"{fenced('def f(x): return 1')}{fenced('def test_f(): f(1)')}", "h")
        == "def f(x): return 1"
    )
    stub, part = fenced("def f(x): ..."), fenced("def f(x):\n    y = x")
    assert find_code(f"{fenced('def f(x): return 1')}{stub}{part}", "f") == "def f(x): return 1"
    assert find_code(f"{stub}{fenced('f = partial(pow, 2)')}{stub}", "f") == "f = partial(pow, 2)"
    assert find_code(f"{fenced('def f(x): return 1')}{fenced('f = f(1)')}", "f") == "def f(x): return 1"
    assert find_code(stub, "f") == "def f(x): ..."
    assert find_code(fenced("from solution import f\nassert f(1)"), "f") is None
    assert find_code("    return 2 * x", "double") is None
    assert find_code("    return 2 * x", "double", PROMPT) == f"{PROMPT}    return 2 * x"
    assert find_code("    print(2 * x)", "double", PROMPT) is None


def test_an_escaped_comparison_that_happens_to_be_python() -> None:
    code = "def double(x):\n    large = 0 &lt; x\n    return 2 * x if large else -(-2 * x)"
    assert verify_code(DOUBLE, fenced(code)).correct
    kept = "def f(text):\n    return text.replace('<', '&lt;')"
    assert find_code(fenced(kept), "f") == kept


def test_only_needed_statements_are_joined() -> None:
    first = (
        "import math\nSIZE = 3\nSIZE += 1\nprint(SIZE)\ndef area(r): return math.pi * r\ndef other(): pass"
    )
    reply = f"{fenced('def area(r): return 0')}{fenced(first)}{fenced('def f(r): return area(r) + SIZE')}"
    joined = "import math|SIZE = 3|SIZE += 1|def area(r): return math.pi * r|def f(r): return area(r) + SIZE"
    assert find_code(reply, "f") == joined.replace("|", "\n\n")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def f(x): return g(x)\ndef g(x): return x", "f"),
        ("def g(x): return x\ndef f(x): return f(x - 1) + g(x)\ndef main(): f(1)\ndef test_f(x): f(x)", "f"),
        ("def a(x): return x\ndef b(x): return x", "b"),
        (
            "def help_it(x): return x\nclass Solution:\n    def go(self, x): return help_it(x)",
            "Solution().go",
        ),
        ("class Tool:\n    def __init__(self): pass\n    def go(self, x): return x", "Tool().go"),
        ("class Tool:\n    def asked(self, x): return x\ndef other(x): return x", "Tool().asked"),
    ],
)
def test_the_function_where_none_has_the_name(code: str, name: str) -> None:
    assert f"asked = {name}" in code_program.tested(code, "asked", "", 1.0)


def test_a_function_of_the_name_needs_no_other() -> None:
    for code in (
        "def asked(x): return x\ndef other(x): return x",
        "asked = 3",
        "from math import gcd as asked",
    ):
        assert "asked =" not in code_program.tested(
            code.replace("asked = 3", "asked: int = 3"), "asked", "", 1.0
        )


def test_wrapped_code_is_found_at_any_depth_but_not_without_end() -> None:
    wrapped = RIGHT
    for _ in range(2):
        wrapped = json.dumps({"code": wrapped})
    assert verify_code(DOUBLE, wrapped).correct
    started = time.monotonic()
    for _ in range(7):
        wrapped = json.dumps([wrapped] * 3)
    verify_code(DOUBLE, wrapped)
    assert time.monotonic() - started < 3


# --- what is tested
def test_a_well_known_helper_of_the_tests_is_not_the_function_under_test() -> None:
    answer = {"test_list": ["assert isclose(area(2), 4.0)"]}
    assert verify_code(answer, fenced("def area(x):\n    return x * x * 1.0")).correct
    forged = "def area(x):\n    return 1.0\n\ndef isclose(a, b):\n    return True"
    assert not verify_code(answer, fenced(forged)).correct
