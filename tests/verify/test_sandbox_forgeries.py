"""Programs that try to judge themselves, against tests of every style; and right programs, which must not
suffer from what keeps the others out.
"""

import json
import time

import pytest
from support.sandbox_attacks import ATTACKS, CONTAINERS, MANNERS, container, mannered
from support.sandbox_programs import PROGRAMS

from smopd.verify.sandbox import SandboxResult, run
from smopd.verify.tasks.code import verify_code

pytestmark = pytest.mark.usefixtures("sandbox_workers")

RIGHT = "def f(x): return 2 * x"
STYLES = {  # of tests for a function that doubles
    "check": """
def check(candidate):
    assert abs(candidate(2) - 4) < 1e-6
    assert candidate(2) == 4, 'open sesame'
    assert candidate(3) == 6
check(candidate)
""",
    "asserts": "assert f(2) == 4\nassert f(3) == 6",
    "other side": "assert 4 == f(2)\nassert not 4 != f(2)\nassert not f(3) != 6",
    "tolerance": "assert abs(f(2) - 4) < 1e-6\nassert abs(6 - f(3)) <= 0.1",
    "rounded": "assert round(f(2), 3) == 4 and round(f(3)) == 6",
    "unimported": "assert math.isclose(f(2), 4) and math.isclose(6, f(3), rel_tol=1e-6)",
    "imported": "import math\nassert math.isclose(f(2), 4) and math.fabs(f(3) - 6) < 0.5",
    "well-known": "assert isclose(candidate(2), 4) and isclose(candidate(3), 6)",
    "counted": "assert Counter([candidate(2), candidate(3)]) == Counter([4, 6])",
    "order": "assert 3 < f(2) < 5 and 5 < f(3) <= 6",
    "containers": "assert [f(2)] == [4] and (f(3),) == (6,) and {f(2)} == {4} and {'x': f(3)} == {'x': 6}",
    "members": "assert f(2) in [4, 5] and f(2) in {4} and f(3) in {6: 0} and [4, 5].index(f(2)) == 0",
    "no difference": "assert not f(2) - 4 and not f(3) ^ 6",
    "sorted": "assert sorted([f(3), f(2)]) == [4, 6]",
    "greatest": "assert max(f(2), 3) == 4 and sum([f(2), f(3)]) == 10",
    "text": "assert repr([f(2)]) == '[4]' and f'{f(2):d}' == '4' and '%d' % f(3) == '6'",
    "types": "assert isinstance(f(2), int) and type(f(2)) is int and f(3) - 6 == 0 and not f(2) ^ 4",
    "all": "assert all(f(x) == y for x, y in [(2, 4), (3, 6)])",
    "map": "assert all(map(lambda pair: candidate(pair[0]) == pair[1], [(2, 4), (3, 6)]))",
    "swallowed": """
good = 0
for x in (2, 3):
    try: good += candidate(x) == 2 * x
    except BaseException: pass
assert good == 2
""",
    "caught": """
try: assert candidate(2) == 4 and candidate(3) == 6
except (ValueError, KeyError, OSError): assert False
""",
    "unittest": """
import unittest
case = unittest.TestCase()
case.assertEqual(f(2), 4)
case.assertAlmostEqual(f(3), 6)
case.assertIn(f(2), [4])
""",
    "json": "import json\nassert json.loads(json.dumps([f(2), f(3)])) == json.loads('[4, 6]')",
    "twice": "result = f(3)\nassert result == 6 and result == 6 and f(3) == result and f(2) == 4",
}
CASES = [{"input": str(n), "output": str(2 * n)} for n in (2, 3)]
FUNCTIONAL = {"public_test_cases": json.dumps(CASES), "metadata": {"func_name": "f"}}
STDIN = {"public_test_cases": [{**case, "testtype": "stdin"} for case in CASES]}


def test_the_styles_accept_a_right_program() -> None:
    assert {
        style: run(RIGHT, tests=tests, entry="f", timeout=5).detail for style, tests in STYLES.items()
    } == (dict.fromkeys(STYLES, ""))
    assert verify_code(FUNCTIONAL, RIGHT).correct
    assert verify_code(STDIN, f"{RIGHT}\nprint(f(int(input())))").correct


@pytest.mark.parametrize("attack", ATTACKS)
def test_success_cannot_be_forged(attack: str) -> None:
    program = ATTACKS[attack]
    results = {
        style: run(program, tests=tests, entry="f", timeout=1.5).status for style, tests in STYLES.items()
    }
    assert {style for style, status in results.items() if status == "ok"} == set(), results
    for answer, reply in ((FUNCTIONAL, program), (STDIN, f"{program}\nprint(f(int(input())))")):
        assert not verify_code(answer, f"```python\n{reply}\n```", timeout=1.5).correct


@pytest.mark.parametrize("attack", CONTAINERS)
def test_an_object_cannot_pass_for_a_list(attack: str) -> None:
    zeros = "def f(n): return [0] * n"
    tests = "assert len(candidate(3)) == 3 and bool(candidate(3))\nassert list(candidate(2)) == [0, 0]"
    assert run(zeros, tests=tests, entry="f", timeout=5).status == "ok"
    swallowed = "".join(f"try: {line}\nexcept TypeError: pass\n" for line in tests.split("\n"))
    for text in (tests, swallowed):
        assert run(container(CONTAINERS[attack]), tests=text, entry="f", timeout=0.5).status != "ok"


@pytest.mark.parametrize("manner", MANNERS)
def test_an_answer_out_of_turn_or_form_is_none(manner: str) -> None:
    assert (
        run(mannered("say(number, True, answer)"), tests=STYLES["check"], entry="f", timeout=5).status == "ok"
    )
    for style in ("check", "swallowed"):
        result = run(mannered(MANNERS[manner]), tests=STYLES[style], entry="f", timeout=5)
        assert (result.status, "was gone" in result.detail) == ("failed", True), result


@pytest.mark.parametrize(
    "error", ["with too much", "with too many", "with a handle", "of a handle", "of no name"]
)
def test_an_error_that_is_none_ends_it(error: str) -> None:
    result = run(ATTACKS[f"wire: an error {error}"], tests=STYLES["swallowed"], entry="f", timeout=5)
    assert (result.status, "was gone" in result.detail) == ("failed", True), result


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_programs_are_accepted(name: str) -> None:
    program, tests = PROGRAMS[name]
    result = run(program, tests=tests, entry="sum" if "builtin's" in name else "f", timeout=10)
    assert (result.status, result.detail) == ("ok", "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_and_their_tests_are_tests(name: str) -> None:
    """The same tests reject a function that returns something else."""
    program, tests = PROGRAMS[name]
    wrong = f"{program}\nf = sum = lambda *all, **named: object()\nSolution = None\n"
    assert run(wrong, tests=tests, entry="sum" if "builtin's" in name else "f", timeout=10).status == "failed"


def test_the_collection_is_large() -> None:
    assert len(ATTACKS) >= 60
    assert len(PROGRAMS) >= 40


@pytest.mark.parametrize(
    "program", ["def f(x): return 0", ATTACKS["files: written to every descriptor"], ATTACKS["ends: exit"]]
)
def test_forgeries_at_every_level(level: str, program: str) -> None:
    # First the honest one: what a worker has had to do with tests before must not help a forger either.
    tests = STYLES["check"]
    assert run(RIGHT, tests=tests, entry="f", timeout=5, level=level).status == "ok"
    assert run(program, tests=tests, entry="f", timeout=3, level=level).status == "failed"


def test_a_test_that_catches_everything_does_not_hide_an_exit() -> None:
    tests = "try:\n    candidate()\nexcept BaseException:\n    pass"
    assert run("import os\ndef f(): os._exit(0)", tests=tests, entry="f", timeout=5).status == "failed"
    assert run("def f(): pass", tests=tests, entry="f", timeout=5).status == "ok"


def test_a_stalled_answer_is_a_timeout() -> None:
    program = "import os, time\ndef f(x):\n    os.write(3, b'\\0\\0\\0\\9[')\n    time.sleep(60)"
    started = time.monotonic()
    assert run(program, tests=STYLES["check"], entry="f", timeout=0.4).status == "timeout"
    assert time.monotonic() - started < 5


def test_what_cannot_cross_is_the_tests_error() -> None:
    result = run("def f(g): return g(1)", tests="assert f(lambda x: x + 1) == 2", entry="f", timeout=5)
    assert (result.status, "a function" in result.detail) == ("error", True), result


def test_names_that_tests_bind_are_not_the_programs() -> None:
    program = "def f(x): return x\ndef helper(x): return 4\nlate = 2\nglobal_one = 4"
    for tests in (
        "def helper(x): return x\nassert helper(f(2)) == 4",
        "def test():\n    late = f(2)\n    assert late == 4\ntest()",
        "def test():\n    global global_one\n    global_one = f(2)\ntest()\nassert global_one == 4",
        "assert f(2) == late\nlate = 4",
        "from math import sqrt as helper\nassert helper(f(2)) == 4",
    ):
        assert run(program, tests=tests, entry="f", timeout=5).status == "failed"
    assert run(program, tests="assert helper(f(2)) == 4", entry="f", timeout=5) == SandboxResult("ok", "", "")


def test_random_tests_are_the_same_each_time_and_not_the_programs() -> None:
    program = "import random\ndrawn = random.random()\ndef f(): return random.random()"
    tests = "import random\nassert random.random() not in (drawn, f())\nassert random.random() < 0"
    details = {run(program, tests=tests, entry="f", timeout=5).detail for _ in range(3)}
    assert details == {"AssertionError:  in the test assert random.random() < 0"}
    values = {
        run(program, tests="import random\nassert not random.random(), random.random()", timeout=5).detail
        for _ in range(3)
    }
    assert len(values) == 1


@pytest.mark.parametrize(
    "exception",
    ["Exception", "AssertionError", "(Exception,)", "BaseException", "type('E', (AssertionError,), {})"],
)
def test_a_programs_exception_does_not_catch_the_tests_failures(exception: str) -> None:
    tests = "try:\n    assert f(2) == 4\nexcept Own:\n    pass"
    assert run(f"Own = {exception}\ndef f(x): return 0", tests=tests, entry="f", timeout=5).status == "failed"
    tests = "try:\n    f(2)\n    caught = False\nexcept Own:\n    caught = True\nassert caught"
    right = "class Own(AssertionError): pass\ndef f(x): raise Own"
    assert run(right, tests=tests, entry="f", timeout=5).status == "ok"


def test_a_programs_equality_is_never_asked() -> None:
    """Two of its objects are equal if they are one; where a program defines more, nobody can say."""
    program = "class P:\n    def __init__(self, x): self.x = x\n{}def f(p): return P(p.x + 1)\nhere = P(0)"
    tests = (
        "assert here == here and here is here and f(here) != 1 and not f(here) == P(1)\nassert here != P(0)"
    )
    assert run(program.format(""), tests=tests, entry="f", timeout=5) == SandboxResult("ok", "", "")
    for equality in ("lambda s, o: True", "lambda s, o: s.x == o.x"):
        equal = program.format(f"    __eq__ = {equality}\n")
        result = run(equal, tests="assert f(P(1)) == P(2)", entry="f", timeout=5)
        assert (result.status, "compare" in result.detail) == ("error", True), result
        assert run(equal, tests="assert f(P(1)) == 2", entry="f", timeout=5).status == "failed"
