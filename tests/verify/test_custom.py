"""Verifiers of the user's own: what a file may hold, what is said of a bad one, and that no function makes a
verdict fail.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smopd.data import Example, load_examples, scorable
from smopd.errors import UserError
from smopd.evaluation import Verdict, load_verifiers, verifier, verify, verify_all
from smopd.verify import tasks, workers

HEAD = "from smopd.evaluation import Verdict, verifier\n"
UNITS = (
    HEAD
    + """
@verifier("units", answer=("value", "unit"), timeout=5.0)
def units(answer, reply):
    return f"{answer['value']} {answer['unit']}" in reply
"""
)
BUILT_IN = tuple(name for name, task in tasks.built_in().items() if task.judge)
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file and says where."""

    def to(text: str, name: str = "mine.py") -> str:
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return to


def example(task: str, **answer: Any) -> Example:
    return Example("t", task, "", ("goal",), "goal", answer)


def test_a_task_of_ones_own_is_read_and_scored(write: Write, tmp_path: Path) -> None:
    row = {"id": "a", "task": "units", "shards": ["x?"], "full": "x?", "answer": {"value": 3, "unit": "kg"}}
    data = tmp_path / "d.jsonl"
    data.write_text(json.dumps(row))
    with pytest.raises(UserError, match="'units' cannot be scored"):
        load_examples(data)
    load_verifiers([write(UNITS)])
    (units_example,) = scorable(load_examples(data), "d.jsonl")
    assert verify(units_example, "It is 3 kg.") == Verdict(True, None, "ok", "")
    assert verify(units_example, "It is 4 kg.") == Verdict(False, None, "ok", "")
    assert not verify(units_example, "<think>3 kg</think> 4 kg").correct
    assert [
        v.correct
        for v in verify_all([(units_example, "3 kg"), (units_example, "2 kg"), (units_example, "3 kg!")])
    ] == [True, False, True]
    data.write_text(json.dumps(row | {"answer": {"value": 3}}))
    with pytest.raises(UserError, match="line 1, field 'answer': a units answer needs 'unit'"):
        load_examples(data)
    with pytest.raises(UserError, match=rf"the tasks that can are {', '.join(BUILT_IN)}, units"):
        verify(example("poetry"), "")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return True", Verdict(True, None, "ok", "")),
        ("return None", Verdict(False, None, "no_answer", "the verifier found no answer")),
        ("return Verdict(True, '3', 'ok', 'well')", Verdict(True, "3", "ok", "well")),
        ("return Verdict(False, None, 'timeout', 'slow')", Verdict(False, None, "timeout", "slow")),
        ("import numpy\n    return numpy.bool_(True)", Verdict(True, None, "ok", "")),
        ("import numpy\n    return numpy.float32(1)", Verdict(True, None, "ok", "")),
        ("return 1", Verdict(True, None, "ok", "")),
        ("return 0.0", Verdict(False, None, "ok", "")),
        (
            "print('x' * 99999, flush=True)\n    input = open(0).read()\n    return input == ''",
            Verdict(True, None, "ok", ""),
        ),
        ("return answer['nested'] == {'a': [1, None, 'é']}", Verdict(True, None, "ok", "")),
    ],
)
def test_what_a_function_may_return(write: Write, body: str, expected: Verdict) -> None:
    load_verifiers([write(f"{HEAD}\n@verifier('t')\ndef t(answer, reply):\n    {body}\n")])
    assert verify(example("t", nested={"a": [1, None, "é"]}), "yes") == expected


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ("while True: pass", "timeout", "no verdict within 1 s"),
        ("import time; time.sleep(60)", "timeout", "no verdict within 1 s"),
        ("return 2", "error", "TypeError: the verifier returned 2 (int); expected True or False"),
        ("return 'yes'", "error", "TypeError: the verifier returned 'yes' (str); expected True or False"),
        ("return 0.5", "error", "TypeError: the verifier returned 0.5 (float)"),
        ("return Verdict(True, None, 'timeout', '')", "error", "not a sound Verdict"),
        ("return Verdict(1, None, 'ok', '')", "error", "not a sound Verdict"),
        ("return Verdict(True, None, 'fine', '')", "error", "not a sound Verdict"),
        ("return Verdict(True, 3, 'ok', '')", "error", "not a sound Verdict"),
        ("return 1 / 0", "error", "ZeroDivisionError: division by zero (mine.py, line 5: "),
        ("return answer['no']", "error", "KeyError: 'no' (mine.py, line 5: "),
        ("import json; json.loads(reply)", "error", "JSONDecodeError"),
        ("import os; os._exit(0)", "error", "the verifier's process was lost: exit code 0"),
        ("import sys; sys.exit(1)", "error", "SystemExit: 1"),
        ("return t(answer, reply)", "error", "RecursionError"),
        ("raise KeyboardInterrupt", "error", "KeyboardInterrupt"),
        ("return len('x' * (8 << 30)) > 0", "error", "MemoryError"),
    ],
)
def test_a_function_that_fails_says_so_and_is_never_plain_wrong(
    write: Write, body: str, status: str, detail: str
) -> None:
    timeout = 1.0 if status == "timeout" else 20.0
    load_verifiers([write(f"{HEAD}\n@verifier('t', timeout={timeout})\ndef t(answer, reply):\n    {body}\n")])
    pairs = [(example("t"), "x")] * 2
    for verdict in verify_all(pairs):
        assert (verdict.correct, verdict.status) == (False, status), verdict
        assert detail in verdict.detail


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "mine.py: holds no function marked with @verifier"),
        ("x = 1\ndef f(:\n", "mine.py, line 2: not valid Python"),
        ("x = 1\n\ny = x / 0\n", "mine.py, line 3: ZeroDivisionError: division by zero"),
        (
            "import nothing_like_it\n",
            "mine.py, line 1: ModuleNotFoundError: No module named 'nothing_like_it'",
        ),
        ("def f():\n    raise ValueError('no')\nf()\n", "mine.py, line 2: ValueError: no"),
        ("import sys\nsys.exit(0)\n", "mine.py, line 2: SystemExit"),
        ("x = '\0'\n", "mine.py"),
        (UNITS.replace('"units"', '"math"'), "mine.py, line 3: task 'math' is one of smopd's own"),
        (UNITS.replace('"units"', '"summary"'), "mine.py, line 3: task 'summary' is one of smopd's own"),
        (UNITS + UNITS, "mine.py, line 8: task 'units' has a verifier already"),
        (UNITS.replace('"units"', '"two words"'), "mine.py, line 3: ValueError: a task's name is one word"),
        (UNITS.replace("5.0", "0"), "mine.py, line 3: ValueError: timeout is a number of seconds"),
        (
            UNITS.replace('("value", "unit")', "(1, 2)"),
            "mine.py, line 3: ValueError: answer names the fields",
        ),
        (UNITS.replace("5.0", "5.0, memory_mb=1"), "mine.py, line 3: ValueError: memory_mb"),
        (HEAD + "@verifier('t')\nclass T: pass\n", "mine.py, line 2: TypeError: @verifier marks a function"),
        ("# coding: nonsense\n", "mine.py: cannot be read as Python"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(write: Write, text: str, message: str) -> None:
    load_verifiers([write(UNITS.replace("units", "before"), "good.py")])
    with pytest.raises(UserError) as error:
        load_verifiers([write(text)])
    assert message in str(error.value)
    assert tasks.scored() == (*BUILT_IN, "before")


def test_files_that_cannot_be_read(write: Write, tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "no.py", "no such file"),
        (tmp_path, "is a folder"),
        (tmp_path / "latin.py", "not UTF-8 text"),
    ):
        (tmp_path / "latin.py").write_bytes(b"x = '\xe9'\n")
        with pytest.raises(UserError, match=message):
            load_verifiers([path])
    file = write("import beside\n")
    write("x = 1\ny = = 2\n", "beside.py")
    with pytest.raises(UserError, match=r"mine.py, line 1: .*beside.py, line 2"):
        load_verifiers([file])


def test_two_files_of_one_task_are_refused_whether_loaded_together_or_not(write: Write) -> None:
    one, two = write(UNITS, "one.py"), write(UNITS, "two.py")
    with pytest.raises(
        UserError, match=r"two.py, line 3: task 'units' has a verifier already \(.*one.py, line 3\)"
    ):
        load_verifiers([one, two])
    load_verifiers([one])
    with pytest.raises(UserError, match=r"two.py, line 3: .*one.py"):
        load_verifiers([two])


def test_loading_again_is_harmless_and_takes_what_the_file_now_says(write: Write) -> None:
    file = write(UNITS)
    for _ in range(2):
        load_verifiers([file, file])
    right = example("units", value=3, unit="kg")
    assert verify(right, "3 kg").correct
    write(UNITS.replace(" in reply", " == reply").replace('"units"', '"exact"'))
    assert verify(right, "it is 3 kg").correct, "a file edited during a run changes nothing"
    load_verifiers([file])
    assert tasks.scored() == (*BUILT_IN, "exact")
    exact = example("exact", value=3, unit="kg")
    assert (verify(exact, "3 kg").correct, verify(exact, "it is 3 kg").correct) == (True, False)


def test_a_file_may_import_what_stands_beside_it_and_hold_dataclasses(write: Write) -> None:
    write("def same(a, b): return a == b\n", "beside_one.py")
    write("KEY = 'value'\n", "beside_two.py")
    body = "import dataclasses\nfrom beside_one import same\n@dataclasses.dataclass\nclass P:\n    x: 'int'\n"
    body += "@verifier('t', answer='value')\ndef t(answer, reply):\n    from beside_two import KEY\n"
    load_verifiers([write(HEAD + body + "    return same(P(answer[KEY]), P(reply))\n")])
    assert verify(example("t", value="a"), "a").correct
    assert not any(Path(place).name.startswith("test_a_file_may") for place in sys.path)


def test_a_marked_function_stays_a_plain_one_and_is_nobodys_until_loaded() -> None:
    @verifier("free")
    def free(answer: dict[str, Any], reply: str) -> bool:
        return reply == "x"

    assert free({}, "x")
    assert "free" not in tasks.scored()


def test_an_answer_that_is_no_json_is_an_error(write: Write) -> None:
    load_verifiers([write(UNITS)])
    assert verify(example("units", value={1}, unit=""), "x").status == "error"


def test_a_users_file_loads_without_torch(write: Write) -> None:
    file = write(UNITS + "import sys\nassert 'torch' not in sys.modules and 'sympy' not in sys.modules\n")
    code = f"from smopd.evaluation import load_verifiers; load_verifiers([{file!r}])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr == ""
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(st.characters()),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(st.characters()),
                                              lambda inner: st.lists(inner) | st.dictionaries(st.text(),
                                                  inner)))  # fmt: skip
def test_answers_and_replies_arrive_as_they_are(write: Write, reply: str, value: Any) -> None:
    if "echo" not in tasks.scored():
        text = (
            "@verifier('echo')\ndef echo(answer, reply):\n    return Verdict(True, repr((answer, "
            "reply)), 'ok', '')\n"
        )
        load_verifiers([write(HEAD + text)])
    task = tasks.find("echo")
    assert task is not None
    assert task.judge is not None
    job = task.judge(Example("1", "echo", "", ("a",), "a", {"value": value}), reply)
    assert isinstance(job, workers.Job)
    verdict = workers.ask_all([job])[0]
    assert verdict.extracted == repr(({"value": value}, reply))


def test_what_a_verifier_prints_is_shown_once(write: Write, caplog: pytest.LogCaptureFixture) -> None:
    body = "print('saw', reply, flush=True)\n    return True"
    load_verifiers([write(f"{HEAD}\n@verifier('talks')\ndef talks(answer, reply):\n    {body}\n")])
    with caplog.at_level("WARNING", "smopd"):
        assert all(v.correct for v in verify_all([(example("talks"), f"{k} [31m") for k in range(4)]))
    assert caplog.text.count("the verifier talks prints; its first lines, shown once:") == 1
    assert caplog.text.count("talks: saw ") == 1
