"""Examples from Python objects: dicts, messages, tables."""

import operator

import numpy as np
import pytest
from support.runs import complaint

from smopd.data import Example
from smopd.data.reading import as_examples, plain_answers, rereadable

ROW = {"shards": ["How many?", "There are 3."], "full": "There are 3. How many?", "answer": {"value": "3"}}
CHAT = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "How many?"},
    {"role": "assistant", "content": "Of what?"},
    {"role": "user", "content": "There are 3."},
]


def test_dicts_become_examples_of_the_task_given():
    (example,) = as_examples([ROW], "train", "math")
    assert example == Example("1", "math", "", ("How many?", "There are 3."), ROW["full"], {"value": "3"})
    assert as_examples([example], "train") == [example]
    (explicit,) = as_examples(
        [{**ROW, "id": "a", "task": "math", "shards": tuple(ROW["shards"])}], "train", "code"
    )
    assert (explicit.id, explicit.task) == ("a", "math")


def test_messages_are_system_prompt_and_shards():
    (example,) = as_examples([{"messages": CHAT, "full": "3?", "answer": {"value": "3"}}], "train", "math")
    assert (example.system, example.shards) == ("Be short.", ("How many?", "There are 3."))


def test_a_plain_answer_is_kept_under_the_field():
    rows = [{**ROW, "answer": "3"}]
    assert plain_answers(rows)
    assert not plain_answers([ROW])
    assert not plain_answers([{**ROW, "answer": '{"value": "3"}'}])
    assert as_examples(rows, "train", "math")[0].answer == {"value": "3"}
    assert as_examples([{**ROW, "answer": '{"value": "3"}'}], "train", "math")[0].answer == {"value": "3"}


def test_tables_lose_empty_cells_and_columns_of_others():
    datasets, pandas = pytest.importorskip("datasets"), pytest.importorskip("pandas")
    rows = [{**ROW, "id": f"r{k}", "note": "mine", "system": None if k else "Hi."} for k in range(2)]
    for table in (datasets.Dataset.from_list(rows), pandas.DataFrame(rows)):
        examples = as_examples(table, "train", "math")
        assert [(e.id, e.system, e.shards) for e in examples] == [
            ("r0", "Hi.", tuple(ROW["shards"])),
            ("r1", "", tuple(ROW["shards"])),
        ]


def frame(rows):
    return pytest.importorskip("pandas").DataFrame(row | {"system": None} for row in rows)


@pytest.mark.parametrize(
    "form",
    [
        lambda rows: (row for row in rows),
        lambda rows: map(dict, rows),
        tuple,
        iter,
        lambda rows: {name: [row[name] for row in rows] for name in rows[0]},
        lambda rows: {name: tuple(row[name] for row in rows) for name in rows[0]},
        lambda rows: {name: map(operator.itemgetter(name), rows) for name in rows[0]},
        lambda rows: [{**row, "shards": np.array(row["shards"], object)} for row in rows],
        lambda rows: frame({**row, "shards": np.array(row["shards"], object)} for row in rows),
        lambda rows: frame(rows).convert_dtypes(),
    ],
    ids=[
        "generator",
        "map",
        "tuple",
        "iterator",
        "columns",
        "columns of tuples",
        "columns of maps",
        "arrays",
        "parquet",
        "nullable",
    ],
)
def test_every_form_of_a_table_is_examples(form):
    rows = [{**ROW, "id": f"r{k}"} for k in range(3)]
    read = rereadable(form(rows), "train")
    assert plain_answers(read) is False
    assert as_examples(read, "train", "math") == as_examples(rows, "train", "math")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "train: holds no examples"),
        ({}, "train: holds no examples"),
        ([3], "train, example 1: expected a dict or an Example, found int"),
        (3, "examples: expected a list of dicts, a dict of columns, a datasets.Dataset, a DataFrame or a "),
        ([{**ROW, "note": 1}], "train, example 1, field 'note': unknown; an example has id, task, system,"),
        ([ROW, {**ROW, "id": "1"}], "train: example 2 and example 1 have the same id '1'; ids must differ"),
        ([{"shards": ["a"], "full": "b"}], "train, example 1, field 'answer': missing"),
        ([{**ROW, "answer": {"x": object()}}], "train, example 1, field 'answer': is not plain JSON"),
        ([{**ROW, "messages": CHAT}], "field 'messages': stands beside 'shards', which says the same"),
        (
            [{"messages": [{"role": "tool"}], "full": "b", "answer": 1}],
            "field 'messages': message 1: expected",
        ),
        ([{"messages": 3, "full": "b", "answer": 1}], "field 'messages': expected a list of messages"),
    ],
)
def test_what_is_wrong_names_the_example_and_the_field(rows, message):
    assert message in complaint(rows, "train", "math", call=as_examples)


def test_without_a_task_nobody_can_judge():
    assert "field 'task': missing, so nobody can judge a reply" in complaint([ROW], "train", call=as_examples)
