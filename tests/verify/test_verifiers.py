"""Finding the verifier of a task, many replies at once, the user's databases, and text that no verifier may
stumble over.
"""

import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smopd.data import Example
from smopd.errors import UserError
from smopd.verify import sandbox
from smopd.verify.tasks import find
from smopd.verify.tasks.database import use_databases
from smopd.verify.verifiers import Verdict, verify, verify_all

PETS = {
    "db_id": "pets",
    "schema_sql": "CREATE TABLE pet (id INTEGER PRIMARY KEY, kind TEXT, age INT);",
    "reference_sql": "SELECT count(*) FROM pet WHERE age > 3",
}
ONE = [{"f": {"a": [1], "b": ["x", ""]}}]
AREA = [{"m.area": {"w": [5], "h": [2.0, ""], "unit": ["sq. cm", ""]}}]
SCHEMA = [{"name": "m.area", "parameters": {"type": "dict", "required": ["w"], "properties": {
    "w": {"type": "float"}, "h": {"type": "float"}, "unit": {"type": "string"}}}}]  # fmt: skip
DOUBLE = {
    "entry_point": "double",
    "test": "def check(candidate):\n    assert candidate(2) == 4\n    assert candidate(3) == 6\n",
}


def example(task: str, answer: dict[str, Any]) -> Example:
    return Example("t", task, "", ("goal",), "goal", answer)


def check(task: str, answer: dict[str, Any], text: str) -> Verdict:
    return verify(example(task, answer), text)


def test_a_reference_that_cannot_be_used_is_an_error_and_an_unknown_task_the_users() -> None:
    assert check("math", {"value": "none"}, "18").status == "error"
    assert check("actions", {"calls": "f(a=1)"}, "[f(a=1)]").status == "error"
    assert check("database", {}, "select 1").status == "error"
    assert check("code", {}, "def f(): pass").status == "error"
    with pytest.raises(UserError, match="summary"):
        check("summary", {}, "all is well")
    with pytest.raises(UserError, match=r"poetry.*math, actions, database, code"):
        verify_all([(example("math", {"value": "1"}), "1"), (example("poetry", {}), "rose")])


@pytest.mark.parametrize(
    ("task", "answer", "text"),
    [
        ("actions", {"calls": [{"f": None}]}, "[f(a=1)]"),
        ("actions", {"calls": ONE, "functions": [{"parameters": {}}]}, "[f(a=1)]"),
        ("code", {"metadata": "[1]", "test": "x"}, "def f(): pass"),
        ("code", {"metadata": {"func_name": "f"}, "public_test_cases": ["x"]}, "def f(): pass"),
        ("booking", {"arguments": {}}, "f()"),
        ("shopping", {"items": 3}, "4 apples"),
        ("schedule", {"plan": ["x"]}, "Ana 9:15"),
    ],
)
def test_an_answer_of_another_form_is_an_error_of_the_reference(task, answer, text) -> None:
    verdict = check(task, answer, text)
    assert (verdict.status, verdict.correct) == ("error", False), verdict
    assert verify_all([(example(task, answer), text)], tell=False) == [verdict]
    declared = find(task)
    assert declared
    declared.problem(answer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from(["", "f", "1", "a b"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["f", "a", ""]), inner, max_size=2)
    ),
)


@given(st.data(), st.sampled_from(["math", "actions", "database", "shopping", "booking", "bill", "schedule"]))
@settings(max_examples=60)
def test_no_answer_raises(data: st.DataObject, task: str) -> None:
    declared = find(task)
    assert declared
    answer = data.draw(st.fixed_dictionaries(dict.fromkeys(declared.fields, JSON)))
    assert check(task, answer, "[f(a=1)] 4 a, 9:15") is not None
    problem = declared.problem(answer)
    assert problem is None or isinstance(problem, str)


# --- many at once
PAIRS = [
    (example("math", {"value": "18"}), "It is 18."),
    (example("math", {"value": "18"}), "It is 17."),
    (example("math", {"value": "18"}), ""),
    (example("math", {"value": "6"}), r"\boxed{2\cdot 3}"),
    (example("math", {"value": "x+1"}), r"\boxed{x+2}"),
    (example("math", {"value": "(5,3)"}), r"\boxed{(5,4)}"),
    (example("math", {"value": "none"}), "1"),
    (example("actions", {"calls": ONE}), "[f(a=1)]"),
    (example("actions", {"calls": ONE}), "[f(a=2)]"),
    (example("database", PETS), "SELECT count(id) FROM pet WHERE age >= 4"),
    (example("database", PETS), "SELECT count(*) FROM pet"),
    (example("database", PETS), "SELECT"),
    (example("database", PETS), "<think>SELECT 1</think> no"),
    (example("database", {}), "SELECT 1"),
    (
        example("database", {**PETS, "reference_sql": "SELECT kind FROM pet"}),
        "```sql\nSELECT kind FROM pets\n```",
    ),
    (example("database", {**PETS, "reference_sql": 7}), "SELECT 1"),
    (example("database", {**PETS, "db_id": 7}), "SELECT 1"),
]
CODE = [
    (example("code", DOUBLE), "```python\ndef double(x):\n    return 2 * x\n```"),
    (example("code", DOUBLE), "no"),
    (example("code", DOUBLE), "```python\ndef double(x):\n    return x * x\n```"),
]


def test_the_first_failure_of_a_verifier_is_told_once(caplog, monkeypatch) -> None:
    monkeypatch.setattr("smopd.verify.verifiers._failed", {})
    pairs = [(example("math", {"value": "many"}), "4")] * 3
    for _ in range(2):
        assert [verdict.status for verdict in verify_all(pairs)] == ["error"] * 3
    (record,) = [r for r in caplog.records if "the verifier of math failed" in r.message]
    assert "the reference answer holds neither a number nor an expression" in record.message


def test_many_verdicts_are_the_same_as_one_by_one_and_in_order() -> None:
    pairs = (PAIRS + (CODE if sandbox.isolation() != "none" else [])) * 3
    assert verify_all(pairs) == [verify(*pair) for pair in pairs]
    assert verify_all(pairs[::-1]) == verify_all(pairs)[::-1]
    assert {verdict.status for verdict in verify_all(pairs)} == {"ok", "no_answer", "error"}
    assert verify_all([]) == []


@settings(max_examples=15)
@given(st.lists(st.sampled_from(PAIRS), max_size=12))
def test_any_mixture_gives_the_same_verdicts(pairs: list[tuple[Example, str]]) -> None:
    assert verify_all(pairs) == [verify(*pair) for pair in pairs]


def test_importing_the_verifiers_brings_no_torch() -> None:
    heavy = "print([name for name in ('torch', 'transformers', 'sympy') if name in sys.modules])"
    for line in (
        "import smopd.verify.worker",
        "from smopd.evaluation import verifier, verify, verify_all, Verdict",
    ):
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {line}; {heavy}"], capture_output=True, text=True, check=True
        )
        assert done.stdout == "[]\n"


def test_public_names() -> None:
    import smopd.evaluation as package

    assert all(callable(getattr(package, name)) for name in package.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        package.nothing  # noqa: B018


# --- the user's databases
@pytest.fixture
def spider(tmp_path: Path) -> Any:
    """A folder as Spider has it, whose one database tells what no synthetic one would: nobody has a pet over
    3.
    """
    for name, ages in (("pets", (1, 2, 3)), ("more", (7, 8))):
        (tmp_path / "database" / name).mkdir(parents=True)
        connection = sqlite3.connect(tmp_path / "database" / name / f"{name}.sqlite")
        connection.execute("CREATE TABLE pet (id INTEGER PRIMARY KEY, kind TEXT, age INT)")
        connection.executemany("INSERT INTO pet (kind, age) VALUES ('dog', ?)", [(age,) for age in ages])
        connection.commit()
        connection.close()
    yield tmp_path / "database"
    use_databases(None)


def test_queries_run_on_the_users_files(spider: Path) -> None:
    pets, more = example("database", PETS), example("database", {**PETS, "db_id": "more"})
    always_zero, all_rows = "SELECT 0", "SELECT count(*) FROM pet"
    pairs = [
        (pets, always_zero),
        (pets, all_rows),
        (more, always_zero),
        (more, all_rows),
        (more, PETS["reference_sql"]),
    ]
    assert [v.correct for v in verify_all(pairs)] == [False, False, False, False, True]
    use_databases(spider)
    assert (
        [v.correct for v in verify_all(pairs)]
        == [verify(*pair).correct for pair in pairs]
        == [True, False, False, True, True]
    )
    with pytest.raises(UserError, match="lost"):
        verify_all([(example("database", {**PETS, "db_id": "lost"}), "SELECT 1")] * 3)
    use_databases(str(spider / "more" / "more.sqlite"))
    assert verify(pets, all_rows).correct
    use_databases("")
    assert not verify(pets, always_zero).correct


def test_a_folder_without_databases_is_refused_when_it_is_set(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere: no such folder"):
        use_databases(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no \.sqlite files"):
        use_databases(tmp_path)
    assert not check("database", PETS, "SELECT 0").correct


# --- hostile text
EXAMPLES = [
    Example("m", "math", "", ("g",), "g", {"value": "18"}),
    Example("a", "actions", "", ("g",), "g", {"calls": ONE}),
    Example("s", "actions", "", ("g",), "g", {"calls": AREA, "functions": SCHEMA}),
]
PIECES = ["f(", "m.area(", "a=", "1", "'", '"', "\\", "\n", "[", "]", "(", ")", "{", "}", ",", "-",
    "\\boxed{", "<think>",
          "</think>", "#", "e9", "/",
          ".", "$", "\\frac{", "x", " ", "\0", "\ud800", "*", ":", "lambda", "b'", "\\d", "^"]  # fmt: skip


@settings(max_examples=300)
@given(st.one_of(st.text(st.characters()), st.lists(st.sampled_from(PIECES), max_size=60).map("".join)))
def test_no_text_raises(text: str) -> None:
    for example in EXAMPLES:
        verdict = verify(example, text)
        assert verdict.status in ("ok", "no_answer", "error")
        assert verdict.status == "ok" or not verdict.correct
        assert (verdict.extracted is not None) == (verdict.status == "ok")


N = 100_000
HOSTILE = {
    "brackets": "[" * N, "calls": "f(" * N, "lists": "[f(" * N, "unclosed": "[f(a=1)" * (N // 7),
    "quotes": "['" * N,
    "escapes": '\\"[' * N,
    "minuses": f"[f(a={'-' * N}1)]", "short minuses": f"[f(a={'-' * 19_000}1)]",
    "nots": f"[f(a={'not ' * 4_900}1)]",
    "sums": f"[f(a={'1+' * 9_000}1)]", "dots": f"[f{'.f' * 9_000}(a=1)]",
    "lambdas": f"[f(a={'lambda:' * 2_800}1)]",
    "hex": f"[f(a=0x{'f' * 19_000})]", "digits": f"[f(a={'9' * 5_000})]", "float": "[f(a=1e999)]",
    "boxes": "\\boxed{" * (N // 7),
    "closed boxes": "\\boxed{" * (N // 8) + "5" + "}" * (N // 8), "thoughts": "<think>" * (N // 7),
    "ends": "</think>" * (N // 8),
    "commas": "1," * N,
    "groups": "1" + ",234" * (N // 4) + "5", "fractions": "1/" * N, "word": "a" * N, "names": "a." * N,
    "bare": "f()" * (N // 3),
    "fracs": "\\frac{" * (N // 6), "spaces": "[" + " " * N, "escape": "[f(a='\\d')]",
    "comments": "[f( #" * (N // 5),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_linear_time_and_silence(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for example in EXAMPLES:
            began = time.process_time()
            verdict = verify(example, HOSTILE[name])
            # Quadratic readings of so much text take minutes.
            assert time.process_time() - began < 10
            assert not verdict.correct
