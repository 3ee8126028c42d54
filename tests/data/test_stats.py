"""The description of a data set: numbers that can be counted by hand, tables, and charts that are valid and
self-contained.
"""

import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from smopd.data import load_examples
from smopd.data.example import Example
from smopd.data.stats import _spread, describe, plot, tables


def example(id, task, *shards, full="one two three"):
    return Example(id, task, "sys", shards, full, {"value": "1"}, "me")


FEW = [
    example("a", "math", "x", "y z"),
    example("b", "math", "x", "y", "z"),
    example("c", "<code>", "x", "y"),
]


def test_counts_by_hand():
    statistics = describe(FEW)
    assert statistics["examples"] == 3
    assert list(statistics["tasks"]) == ["math", "<code>"]
    assert statistics["tasks"]["math"]["shards"] == {
        "min": 2,
        "median": 2,
        "mean": 2.5,
        "p90": 3,
        "max": 3,
        "histogram": {"2": 1, "3": 1},
    }
    assert statistics["tasks"]["math"]["shard_words"]["max"] == 2
    assert statistics["all"]["full_characters"]["mean"] == 13
    assert statistics["all"]["sources"] == {"me": 3}
    assert describe([])["all"] == {"examples": 0}


@given(st.lists(st.integers(0, 1000), min_size=1))
def test_spread_is_ordered_and_does_not_depend_on_order(values):
    spread = _spread(values)
    assert spread == _spread(values[::-1])
    assert spread["min"] <= spread["median"] <= spread["p90"] <= spread["max"]
    assert sum(v <= spread["p90"] for v in values) >= 0.9 * len(values)
    assert sum(v < spread["p90"] for v in values) < 0.9 * len(values)


def test_tables_show_every_task_and_bars():
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for table in tables(describe(FEW)):
        console.print(table)
    text = console.export_text()
    assert "<code>" in text
    assert "█" * 15 + " 50%" in text


def test_the_tail_of_a_histogram_is_one_bar():
    many = [example(str(n), "math", *("s" * (n + 2))) for n in range(20)]
    drawn = plot(describe(many), "many", as_html=False)
    assert "13+" in drawn
    assert ">21<" not in drawn


def test_charts_are_valid_and_self_contained():
    statistics = describe([*FEW, *load_examples("pocket:train:20")])
    svg = plot(statistics, "a <b>.jsonl", as_html=False)
    ElementTree.fromstring(svg)
    page = plot(statistics, "a <b>.jsonl", as_html=True)
    for text in (svg, page):
        assert "&lt;b&gt;" in text
        assert "<b>" not in text
        assert "src=" not in text
        names = ("http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink", "http-equiv")  # no addresses
        assert text.count("http") == sum(text.count(name) for name in names)
    assert page.count("<svg") == 1
