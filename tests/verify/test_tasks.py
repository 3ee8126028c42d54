"""The registry of tasks: what a declaration holds, that nothing else knows of one, who imports what."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import smopd
from smopd.config import load_config
from smopd.data import Example, load_examples, scorable
from smopd.data.everyday import FAMILIES
from smopd.errors import UserError
from smopd.evaluation.evaluate import prepared_examples
from smopd.verify import tasks, verify
from smopd.verify.task import Placeholder, Record, Task
from smopd.verify.tasks import actions

PACKAGE = Path(smopd.__file__).parent


def test_the_tasks_of_every_module_are_registered_under_their_names():
    files = {path.stem for path in (PACKAGE / "verify/tasks").glob("*.py")} - {"__init__"}
    assert files == set(tasks.MODULES)
    scored = ("math", "actions", "database", "code")
    assert set(tasks.built_in()) == {*scored, "data2text", "summary", *FAMILIES}
    assert all(task.name == name for name, task in tasks.built_in().items())
    assert tasks.scored() == (*scored, *FAMILIES)


@pytest.mark.parametrize("name", tasks.built_in())
def test_a_declaration_is_whole(name):
    task = tasks.built_in()[name]
    if name in FAMILIES:  # a generated world has its own prompts, and answers turn by turn
        assert task.fields
        assert task.judge
        assert task.turn_answer({"turns": [{"a": 1}]}, 0) == {"a": 1}
        assert task.turn_answer({"turns": [{"a": 1}]}, 1) is task.turn_answer({}, 0) is None
        return
    assert task.system
    assert task.from_lic
    if task.judge:
        assert task.fields
        assert task.answer_form.startswith("The answer is ")
        assert task.placeholder is None or task.placeholder.name in task.system
        assert task.missing({})
        assert not task.missing(dict.fromkeys(task.fields, ""))


def test_one_field_of_several_is_enough_where_the_task_says_so():
    some = Task("t", ("a", "b"))
    assert [some.missing(answer) for answer in ({}, {"a": 1}, {"a": 1, "b": 1})] == ["'a'", "'b'", ""]
    one = Task("t", ("a", "b"), one_field=True)
    assert [one.missing(answer) for answer in ({}, {"b": 1})] == ["'a' or 'b'", ""]


def test_a_registered_task_is_read_scored_and_forgotten(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "1", "task": "echo", "shards": ["a"], "full": "a", "answer": {"value": "x"}}\n')
    with pytest.raises(UserError, match="field 'task': 'echo' cannot be scored; the tasks that can are math"):
        load_examples(path)
    tasks.register(
        Task("echo", ("value",), judge=lambda example, reply: actions.Verdict(True, reply, "ok", ""))
    )
    try:
        (example,) = scorable(load_examples(path), "d")
        assert verify(example, "<think>a</think>b").extracted == "\nb"
    finally:
        tasks.forget("echo")
    with pytest.raises(UserError, match="1: task 'echo' cannot be scored"):
        verify(example, "b")
    with pytest.raises(ValueError, match="built-in"):
        tasks.register(Task("math"))


def test_placeholders_are_filled_from_the_answer():
    assert Placeholder("{x}", "x", lambda answer: answer["x"]).fill("a {x} b", {"x": "{x}"}) == "a {x} b"
    filled = tasks.fill("{functions}|{schema}", {"functions": [{"name": "f"}], "schema_sql": "CREATE"})
    assert filled == '{"name": "f"}|CREATE'
    assert tasks.fill("{functions}|{schema}", {}) == "|"


@pytest.mark.parametrize(("task", "place"), [("actions", "{functions}"), ("database", "{schema}")])
def test_a_prompt_without_its_placeholder_is_refused(task, place):
    config = load_config("pocket", [f'prompts.{task}="Go."'])
    with pytest.raises(UserError, match=re.escape(f"prompts.{task}: must contain {place}")):
        prepared_examples(config, "eval")


def test_a_prompt_replaces_that_of_its_task_alone():
    config = load_config("pocket", ['prompts.math="Only a number."', "eval.limit=2"])
    prompts = {e.task: e.system for e in prepared_examples(config, "eval")}
    assert prompts["math"] == "Only a number."
    assert prompts["actions"].startswith("Call the function: ")


def test_a_record_names_the_place_of_a_missing_or_empty_field():
    record = Record({"a": " ", "b": "x"}, "f.jsonl, line 3")
    assert record.text("b") == "x"
    for field, problem in (("a", "expected a non-empty text, found"), ("c", "missing")):
        with pytest.raises(UserError, match=f"f.jsonl, line 3, field '{field}': {problem}"):
            record.text(field)


def test_whatever_has_an_id_a_task_and_an_answer_is_judged():
    class Other:
        id, task, answer = "1", "math", {"value": "4"}

    assert verify(Other(), "It is 4.") == verify(
        Example("1", "math", "", ("a",), "a", Other.answer), "It is 4."
    )


def test_no_task_is_compared_by_name_outside_its_file():
    names = "|".join(tasks.built_in())
    compared = re.compile(rf"\btask [!=]= \"(?:{names})\"")
    allowed = ("verify/tasks", "data/training_set")
    files = [path for path in PACKAGE.rglob("*.py") if not str(path.relative_to(PACKAGE)).startswith(allowed)]
    assert [str(path) for path in files if compared.search(path.read_text())] == []


def test_verify_imports_no_higher_package():
    higher = re.compile(
        r"(?:from|import) smopd\.(?!verify|errors|files|seeds|settings|lazy|formatting|machine)(\w+)"
    )
    imports = {path.name: higher.findall(path.read_text()) for path in (PACKAGE / "verify").rglob("*.py")}
    assert {name: modules for name, modules in imports.items() if modules} == {}


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        (
            "smopd.verify.tasks.math",
            ("torch", "sqlglot", "pydantic", "smopd.verify.tasks.actions", "smopd.data"),
        ),
        ("smopd.verify.sql.database", ("torch", "sympy", "pydantic", "smopd.verify.sandbox", "smopd.data")),
        (
            "smopd.verify.custom",
            ("torch", "sympy", "sqlglot", "pydantic", "smopd.verify.sandbox", "smopd.data"),
        ),
    ],
)
def test_a_worker_imports_only_what_its_kind_needs(module, absent):
    line = f"import sys, smopd.verify.worker, {module}; print([n for n in {absent} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
