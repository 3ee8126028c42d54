"""The paper's numbers: what is printed follows from the paper's own runs, and stands in the tables the data
say it stands in.

It leaves out whether the paper is right: no run is repeated here.
"""

import math
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import NamedTuple

import pytest
from pydantic import TypeAdapter

from smopd.methods import METHODS
from smopd.study import paper
from smopd.study.paper import PaperRow, paper_data, paper_model

TEX = Path(__file__).parents[2].parent / "shared" / "paper" / "smopd.tex"
PAPER_STUDIES = {study["name"]: study for study in paper_data()["studies"]}
NUMBERS = (
    "full", "sharded", "full_sd", "sharded_sd", "delta", "delta_full", "delta_100_steps", "gap",
    "p_two_sided", "p_one_sided",
)  # fmt: skip


class PaperRun(NamedTuple):
    table: str
    seed: int | None  # None where the paper gives none for the single run
    full: float
    sharded: float


@dataclass(frozen=True)
class PrintedRow(PaperRow):
    """A row of paper.json with what only the tests look at."""

    seeds: tuple[int, ...] | None = None
    delta_100_steps: float | None = None  # SHARDED against the same configuration after 100 steps
    gap: float | None = None  # FULL less SHARDED
    p_two_sided: float | None = None  # Welch, SHARDED against the baseline
    p_one_sided: float | None = None
    in_text: tuple[str, ...] = ()  # fields that stand in the running text, not in the table
    runs: tuple[PaperRun, ...] = ()
    note: str = ""


@cache
def paper_rows(study: str) -> tuple[PrintedRow, ...]:
    rows = [{**row, "study": study} for row in PAPER_STUDIES.get(study, {"rows": []})["rows"]]
    unknown = {key for row in rows for key in row} - {field.name for field in fields(PrintedRow)}
    assert not unknown
    return TypeAdapter(tuple[PrintedRow, ...]).validate_python(rows)


def find(study: str, model: str, arm: str, steps: int | None = None) -> PrintedRow | None:
    """What the package finds, with everything that is printed of it."""
    row = paper.find(study, model, arm, steps)
    return paper_rows(study)[paper.paper_rows(study).index(row)] if row else None


ROWS = [row for study in PAPER_STUDIES for row in paper_rows(study)]
# Where the print does not follow from the runs: it was computed from the rounded mean.
OFF_BY_ROUNDING = {("ablation", "combined", "delta"): -0.75}
HEADINGS = {
    "FULL": "full", "SHARDED": "sharded", "ΔSH": "delta", "ΔSH vs baseline": "delta",
    "ΔSH vs 100-step": "delta_100_steps",
    "FULL-SH": "gap", "p2-tail": "p_two_sided", "FULL (mean±std)": "full", "SHARDED (mean±std)": "sharded",
}  # fmt: skip


def row_id(row: PrintedRow) -> str:
    return f"{row.study}-{row.model}-{row.arm}-{row.steps}"


def exact(row: PrintedRow, view: str) -> float | None:
    """The accuracy from the runs where there are any, else the printed one."""
    return mean(getattr(run, view) for run in row.runs) if row.runs else row.accuracy(view)


def shows(printed: float, value: float, digits: int = 1) -> bool:
    """Whether a value is printed so; a half may go either way."""
    return abs(printed - value) <= 0.5 * 10**-digits + 1e-9


def minus(a: float | None, b: float | None) -> float:
    assert a is not None
    assert b is not None
    return a - b


def test_every_study_has_rows_and_every_row_a_place() -> None:
    assert list(PAPER_STUDIES) == [
        "ablation",
        "cross-scale",
        "combined",
        "multi-seed",
        "step-sweep",
        "200-steps",
        "outlier",
    ]
    assert "2608.14647" in paper_data()["source"]
    for row in ROWS:
        assert row.table in (*PAPER_STUDIES[row.study]["tables"], "text")
        assert row.arm in METHODS
        assert row.sharded is not None
        assert all(getattr(row, name) is not None for name in row.in_text)


@pytest.mark.parametrize("row", [row for row in ROWS if row.runs], ids=row_id)
def test_means_and_spreads_follow_from_the_runs(row: PrintedRow) -> None:
    for view in ("full", "sharded"):
        values = [getattr(run, view) for run in row.runs]
        printed = row.accuracy(view)
        assert printed is not None
        assert shows(printed, mean(values))
        sd = row.sd(view)
        assert sd is None or shows(sd, stdev(values))
        assert (sd is None) == (row.study != "multi-seed")
        # A run is judged on 200 conversations.
        assert all(value % 0.5 == 0 for value in values)
    assert row.study != "multi-seed" or row.seeds == tuple(run.seed for run in row.runs)


@pytest.mark.parametrize("row", [row for row in ROWS if not row.runs and row.seeds == (42,)], ids=row_id)
def test_single_runs_are_multiples_of_half_a_point(row: PrintedRow) -> None:
    mean_of_two = row.study == "combined" and row.model == "1.7b" and row.arm == "combined"
    assert mean_of_two or all(value is None or value % 0.5 == 0 for value in (row.full, row.sharded))


@pytest.mark.parametrize("row", [row for row in ROWS if row.delta is not None], ids=row_id)
def test_differences_follow(row: PrintedRow) -> None:
    base = find(row.study, row.model, "baseline", row.steps)
    assert base is not None
    assert row.delta is not None
    off = OFF_BY_ROUNDING.get((row.study, row.arm, "delta"))
    difference = minus(exact(row, "sharded"), exact(base, "sharded"))
    if off is not None:
        assert difference == off
        assert row.delta == pytest.approx(minus(row.sharded, base.sharded))
        assert str(abs(off)) in row.note
    else:
        assert shows(row.delta, difference)
    if row.delta_full is not None:
        assert shows(row.delta_full, minus(row.full, base.full))


def test_half_a_tenth_is_printed_towards_zero_in_one_place_and_away_in_another() -> None:
    row = find("ablation", "1.7b", "combined")
    assert row is not None
    assert (exact(row, "sharded"), row.sharded, row.delta) == (65.75, 65.8, -0.7)
    # With every difference rounded from the runs the print would be -0.8 (or -0.7 only by rounding the half
    # towards zero).
    assert math.floor(abs(65.75 - 66.5) * 10 + 0.5) / 10 == 0.8


def test_the_printed_means_of_entropy_differ_by_less_than_the_printed_difference() -> None:
    base, row = find("multi-seed", "4b", "baseline"), find("multi-seed", "4b", "entropy")
    assert base is not None
    assert row is not None
    assert minus(row.sharded, base.sharded) == pytest.approx(1.6)
    assert minus(exact(row, "sharded"), exact(base, "sharded")) == pytest.approx(5 / 3)
    assert row.delta == 1.7


def test_gaps_and_later_steps_follow() -> None:
    for row in paper_rows("step-sweep"):
        assert row.gap == minus(row.full, row.sharded)
    for row in paper_rows("200-steps"):
        before = find("cross-scale", row.model, row.arm, 100)
        assert (before is None) == (row.delta_100_steps is None)
        if before is not None:
            assert row.delta_100_steps == minus(row.sharded, before.sharded)


@pytest.mark.parametrize(
    ("study", "model", "arm", "steps", "of"),
    [
        ("cross-scale", "1.7b", "baseline", 100, "ablation"),
        ("cross-scale", "1.7b", "entropy", 100, "ablation"),
        ("combined", "1.7b", "baseline", 100, "ablation"), ("combined", "1.7b", "entropy", 100, "ablation"),
        ("combined", "1.7b", "combined", 100, "ablation"), ("combined", "4b", "baseline", 100, "multi-seed"),
        ("combined", "4b", "entropy", 100, "multi-seed"), ("combined", "4b", "combined", 100, "multi-seed"),
        ("combined", "8b", "baseline", 100, "cross-scale"), ("combined", "8b", "entropy", 100, "cross-scale"),
        ("step-sweep", "1.7b", "baseline", 100, "ablation"),
        ("outlier", "4b", "baseline", 100, "cross-scale"),
    ],
)  # fmt: skip
def test_a_number_that_stands_twice_is_the_same(
    study: str, model: str, arm: str, steps: int, of: str
) -> None:
    here, there = find(study, model, arm, steps), find(of, model, arm, steps)
    assert here is not None
    assert there is not None
    assert here.sharded == there.sharded
    assert here.full in (None, there.full)


def test_the_seed_42_runs_of_the_means_are_the_cross_scale_runs_but_for_the_combined_rerun() -> None:
    for arm in ("baseline", "entropy"):
        row, single = find("multi-seed", "4b", arm), find("cross-scale", "4b", arm)
        assert row is not None
        assert single is not None
        assert (row.runs[0].full, row.runs[0].sharded) == (single.full, single.sharded)
    combined, outlier = find("multi-seed", "4b", "combined"), find("outlier", "4b", "combined")
    assert combined is not None
    assert outlier is not None
    assert minus(outlier.sharded, combined.runs[0].sharded) == 6.5


@pytest.mark.parametrize("arm", ["entropy", "combined"])
def test_p_values_are_those_of_welch(arm: str) -> None:
    statistics = pytest.importorskip("smopd.study.statistics")
    base, row = find("multi-seed", "4b", "baseline"), find("multi-seed", "4b", arm)
    assert base is not None
    assert row is not None
    welch_test = statistics.welch([run.sharded for run in row.runs], [run.sharded for run in base.runs])
    assert round(welch_test.p_two_sided, 3) == row.p_two_sided
    assert round(welch_test.p_one_sided, 4 if arm == "combined" else 3) == row.p_one_sided
    assert row.delta is not None
    assert shows(row.delta, welch_test.delta)


def test_lookups() -> None:
    assert paper_model("qwen3-1.7b") == paper_model("Qwen/Qwen3-1.7B") == paper_model("1.7b") == "1.7b"
    assert [
        paper_model(name)
        for name in ("pocket", "qwen3-8b-4bit", "Qwen/Qwen3-4B-Instruct-2507", "llama-8b", "14b")
    ] == [None] * 5
    assert paper_rows("of its own") == paper.paper_rows("of its own") == ()
    row = find("step-sweep", "qwen3-1.7b", "baseline", 200)
    assert row is not None
    assert row.accuracy("SHARDED") == 68.5
    assert row.accuracy("recap") is None
    assert find("step-sweep", "qwen3-1.7b", "baseline") is None  # four of them
    assert find("ablation", "pocket", "baseline") is None
    assert find("ablation", "1.7b", "baseline", 40) is None


# The paper's source, where it is at hand.


def clean(cell: str) -> str:
    """A cell of a tabular as plain text."""
    cell = re.sub(r"\\multirow\{\d+\}\{\*\}\{(.*)\}", r"\1", cell.strip())
    cell = re.sub(r"\^\{?(?:\\,)?\\d+agger\}?", "", cell)
    for tex, plain in (
        (r"\Delta", "Δ"),
        (r"\pm", "±"),
        (r"\%", "%"),
        (r"_{\text{2-tail}}", "2-tail"),
        ("$", ""),
    ):
        cell = cell.replace(tex, plain)
    return re.sub(r"\\textbf\{([^{}]*)\}", r"\1", cell).strip()


def tables(tex: str) -> dict[str, list[list[str]]]:
    """Table number -> the rows of its tabular, the heading first; tables are numbered in the order they
    appear.
    """
    rows_by_table = {}
    for number, body in enumerate(re.findall(r"\\begin\{table\}(.*?)\\end\{table\}", tex, re.S), 1):
        inner = re.search(r"\\begin\{tabular\}\{.*?\}\n(.*?)\\end\{tabular\}", body, re.S)
        assert inner is not None
        lines = re.sub(r"\\(?:top|mid|bottom)rule", "", inner.group(1)).split(r"\\")
        rows_by_table[f"Table {number}"] = [
            [clean(cell) for cell in line.split("&")] for line in lines if line.strip()
        ]
    return rows_by_table


def number(text: str) -> float:
    return float(text.removesuffix("pp").removesuffix("%").replace("−", "-"))


def printed(table: str, rows: list[list[str]]) -> dict[tuple[str, ...], float]:
    """(model or "", row label, field) -> number, for every number of a result table but the settings beta and
    eta.
    """
    numbers: dict[tuple[str, ...], float] = {}
    heading, model = rows[0], ""
    for row in rows[1:]:
        if heading[0] == "Model" and heading[1] == "Config":
            model, label, cells = row[0] or model, row[1], list(zip(heading[2:], row[2:], strict=True))
        else:
            label, cells = row[0], list(zip(heading[1:], row[1:], strict=True))
        for name, cell in cells:
            if name not in HEADINGS and table != "Table 4":
                assert name in (r"\beta", r"\eta")
            elif cell != "--":
                field = HEADINGS.get(name) or f"sharded of {name}"
                value, _, sd = cell.partition("±")
                numbers[model.lower(), label, field] = number(value)
                if sd:
                    numbers[model.lower(), label, f"{field}_sd"] = number(sd)
    return numbers


def held(table: str) -> dict[tuple[str, ...], float]:
    """The same from the data."""
    numbers: dict[tuple[str, ...], float] = {}
    for row in ROWS:
        for name in NUMBERS:
            value = getattr(row, name)
            if row.table == table and value is not None and name not in row.in_text:
                field = f"sharded of {row.column}" if row.column and name == "sharded" else name
                numbers[row.model if table == "Table 3" else "", row.label, field] = value
    return numbers


@pytest.fixture(scope="module")
def tex() -> str:
    if not TEX.exists():
        pytest.skip(f"the paper's source is not at {TEX}")
    return TEX.read_text(encoding="utf-8").replace("$-$", "-")


@pytest.mark.parametrize("table", [f"Table {n}" for n in range(2, 8)])
def test_the_data_are_the_table_number_for_number(tex: str, table: str) -> None:
    assert held(table) == printed(table, tables(tex)[table])
    assert held(table)


def test_the_settings_of_the_ablation_are_those_of_the_methods(tex: str) -> None:
    heading, *rows = tables(tex)["Table 2"]
    assert heading[1:3] == [r"\beta", r"\eta"]
    for label, keep, eta, *_ in rows:
        settings = METHODS[label.removeprefix("+")].settings
        assert (settings["objective.keep"], settings["objective.eta"]) == (float(keep), float(eta))


def test_the_runs_are_those_of_the_appendix(tex: str) -> None:
    heading, *rows = tables(tex)["Table 11"]
    assert heading == ["Config", "Seed", "FULL", "SHARDED"]
    label, runs = "", []
    for name, seed, full, sharded in rows:
        label = name or label
        runs.append((label, int(seed), number(full), number(sharded)))
    assert runs == [
        (row.label, run.seed, run.full, run.sharded) for row in paper_rows("multi-seed") for run in row.runs
    ]


def test_numbers_of_the_text_stand_in_the_text(tex: str) -> None:
    text = re.sub(r"\\begin\{tabular\}.*?\\end\{tabular\}", "", tex, flags=re.S)
    seen = {(row.study, row.arm, name) for row in ROWS for name in row.in_text}
    phrases = {
        ("ablation", "entropy", "delta_full"): r"comparable FULL improvement (+2.5pp)",
        ("multi-seed", "entropy", "p_one_sided"): r"one-tailed $p=0.011$; two-tailed $p=0.022$",
        ("multi-seed", "combined", "p_one_sided"): r"one-tailed $p=0.0504$; two-tailed $p=0.101$",
        ("200-steps", "entropy", "delta"): r"+entropy remains +1.0pp over baseline (68.0\% vs.\ 67.0\%)",
        ("outlier", "baseline", "sharded"): r"+7.0pp SHARDED gain (71.5\% vs.\ 64.5\%)",
        ("outlier", "combined", "sharded"): r"+7.0pp SHARDED gain (71.5\% vs.\ 64.5\%)",
        ("outlier", "combined", "delta"): r"+7.0pp SHARDED gain (71.5\% vs.\ 64.5\%)",
    }
    assert seen == set(phrases)
    for (study, arm, name), phrase in phrases.items():
        row = next(row for row in paper_rows(study) if row.arm == arm)
        assert phrase in text
        assert f"{getattr(row, name)}" in phrase
    assert r"(75.0\%/64.5\% and 78.0\%/67.0\%)" in text
    combined = find("ablation", "1.7b", "combined")
    assert combined is not None
    assert [(run.full, run.sharded) for run in combined.runs] == [(75.0, 64.5), (78.0, 67.0)]
