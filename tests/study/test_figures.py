"""The figures of a study: well-formed, self-contained, the same bytes for the same results, true to the
numbers.

Looks were judged by eye; here only that no two labels lie on top of each other. It leaves out the pages the
figures go into.
"""

import hashlib
import os
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from scipy import stats
from support.synthetic_study import METRICS
from support.synthetic_study import study as synthetic

from smopd.study import drawing
from smopd.study.drawing import Figure, Plot, schematic
from smopd.study.figures import ablation, axis_figure, cross_scale, effects, make_figures, positions_of, seeds
from smopd.study.figures_training import pooled, smoothed, training_figures
from smopd.study.results import Results

FIVE = (1, 2, 3, 4, 5)
DEFAULTS: dict[str, Any] = {
    "chances": ("baseline", "entropy", "outcome", "combined"), "models": ("qwen3-1.7b",), "seeds": (42,),
    "measured": True,
}  # fmt: skip
MANY = [
    "baseline",
    "random mask",
    "an arm whose name goes on and on until nobody reads it",
    *(f"arm {i}" for i in range(9)),
]
STUDIES: dict[str, dict[str, Any]] = {
    "one": {"paper": "ablation", "metrics": METRICS[:2], "steps": 80},
    "five": {"chances": ("baseline", "entropy"), "seeds": FIVE, "steps": 30},
    "models": {
        "chances": ("baseline", "entropy"),
        "models": ("qwen3-1.7b", "qwen3-4b", "qwen3-8b"),
        "paper": "cross-scale",
        "measured": False,
    },
    "steps": {
        "chances": ("baseline",),
        "axes": {"train.steps": [100, 200, 300, 400]},
        "paper": "step-sweep",
        "steps": 12,
        "metrics": METRICS[:2],
    },
    "many": {"chances": MANY, "seeds": (1, 2, 3), "measured": False},
}


class Kept(Sheet):
    """A sheet that can be looked at after it was written."""

    instances: ClassVar[list["Kept"]] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        Kept.instances.append(self)


def make(**settings: Any) -> Results:
    return synthetic(**DEFAULTS | settings)


@cache
def results(name: str) -> Results:
    return make(**STUDIES[name])


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Fonts in the form that takes half the time to embed; the test of the bytes has the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(drawing.FIGURES["style"], "pdf.fonttype", 3)
        yield


@pytest.fixture(scope="module")
def drawn(quick: None) -> dict[str, tuple[list[Figure], list[Kept]]]:
    """Every study above with its figures and the sheets they were drawn on; the schematic by itself."""
    drawings: dict[str, tuple[list[Figure], list[Kept]]] = {"schematic": ([schematic()], [])}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "Sheet", Kept)
        for name in STUDIES:
            Kept.instances = []
            first, *rest = make_figures(results(name))
            assert first is schematic()
            drawings[name] = (rest, Kept.instances)
    return drawings


def numbers(figure: Figure | None) -> dict[str, float]:
    assert figure is not None
    by_name = dict(figure.numbers)
    assert len(by_name) == len(figure.numbers)
    return by_name


def accuracies(study: Results, model: str, arm: str, view: str, **axes: Any) -> np.ndarray:
    cells = [c for c in study.cells if (c.model, c.arm, c.axes) == (model, arm, axes)]
    return np.array(
        [100 * sum(int(d, 36) for d in c.right[view]) / study.runs / len(study.items) for c in cells]
    )


@pytest.mark.parametrize("study", ["schematic", *STUDIES])
def test_every_figure_is_whole_and_needs_nothing_else(drawn: Any, study: str) -> None:
    figures, _ = drawn[study]
    assert len({figure.name for figure in figures}) == len(figures)
    for figure in figures:
        root = ET.fromstring(figure.svg)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert not {"script", "image", "foreignObject", "a"} & {
            element.tag.rsplit("}")[-1] for element in root.iter()
        }
        links = [v for e in root.iter() for k, v in e.attrib.items() if k.endswith("href") or "url(" in v]
        assert all("#" in link for link in links)
        assert set(re.findall(r"(?:https?:)?//[^\"' <]+", figure.svg)) <= {
            "http://www.w3.org/2000/svg",
            "http://www.w3.org/1999/xlink",
        }
        ids = re.findall(r' id="([^"]*)"', figure.svg)
        assert len(ids) == len(set(ids))
        assert figure.pdf.startswith(b"%PDF")
        assert b"CreationDate" not in figure.pdf
        assert figure.title
        assert figure.caption.endswith(".")
        assert all(np.isfinite(value) for _, value in figure.numbers)


@pytest.mark.parametrize("study", STUDIES)
def test_no_label_lies_on_another_or_leaves_the_sheet(drawn: Any, study: str) -> None:
    figures, sheets = drawn[study]
    assert len(sheets) == len(figures)
    for figure, sheet in zip(figures, sheets, strict=True):
        renderer = FigureCanvasAgg(sheet).get_renderer()
        boxes = [
            (text.get_text(), text.get_window_extent(renderer))
            for text in sheet.findobj(matplotlib.text.Text)
            if text.get_text().strip()
            and text.get_visible()
            and (text.axes is None or text.axes.get_visible())
        ]
        boxes = [(label, box) for label, box in boxes if box.width and _ticked(sheet, label, box)]
        for i, (label, box) in enumerate(boxes):
            inside = (
                box.x0 > -1
                and box.y0 > -1
                and box.x1 < sheet.bbox.width + 1
                and box.y1 < sheet.bbox.height + 1
            )
            assert inside, f"{figure.name}: {label!r} leaves the sheet"
            for other, near in boxes[i + 1 :]:
                wide, high = (
                    min(box.x1, near.x1) - max(box.x0, near.x0),
                    min(box.y1, near.y1) - max(box.y0, near.y0),
                )
                assert wide < 2 or high < 2, f"{figure.name}: {label!r} lies on {other!r}"


def _ticked(sheet: Sheet, label: str, box: Any) -> bool:
    """False for a tick label that is not drawn: outside the limits of its axis, or of an axis that shows
    none.
    """
    for axes in sheet.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in axis.get_major_ticks():
                if tick.label1.get_text() == label and np.allclose(
                    tick.label1.get_window_extent().bounds, box.bounds
                ):
                    low, high = sorted(axis.get_view_interval())
                    return bool(
                        tick.label1.get_visible()
                        and axes.axison
                        and low - 1e-9 <= tick.get_loc() <= high + 1e-9
                    )
    return True


def test_the_same_results_give_the_same_bytes_here_and_in_another_process(
    drawn: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(drawing.FIGURES["style"], "pdf.fonttype", 42)
    here = make_figures(results("steps"))
    assert [f.svg for f in here[1:]] == [f.svg for f in drawn["steps"][0]]
    code = (
        "import hashlib, sys; sys.path.insert(0, sys.argv[1])\n"
        "from support.synthetic_study import study; from smopd.study.figures import make_figures\n"
        "import matplotlib; matplotlib.rcParams['font.size'] = 30\n"
        "matplotlib.rcParams['lines.linewidth'] = 9\n"
        "for f in make_figures(study(**eval(sys.argv[2]))):\n"
        "    print(hashlib.sha256(f.svg.encode() + f.pdf + f.caption.encode()).hexdigest())\n"
        "assert 'matplotlib.pyplot' not in sys.modules and matplotlib.rcParams['font.size'] == 30\n"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parents[1]), repr(DEFAULTS | STUDIES["steps"])]
    run = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "12345"}
    )
    digests = [hashlib.sha256(f.svg.encode() + f.pdf + f.caption.encode()).hexdigest() for f in here]
    assert (run.returncode, run.stdout.split()) == (0, digests), run.stderr


def test_drawing_in_threads_changes_nothing() -> None:
    study = make(chances=("baseline", "entropy"), measured=False)
    alone, threaded = effects(study), []
    threads = [threading.Thread(target=lambda: threaded.append(effects(study))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert threaded == [alone] * 2


def test_figures_appear_exactly_when_the_data_support_them(drawn: Any) -> None:
    names = {study: [figure.name for figure in figures] for study, (figures, _) in drawn.items()}
    logged = ["curves", "calibration", "gradients"]
    assert names["one"] == ["ablation", "effects", *logged]
    assert names["five"] == ["ablation", "effects", "seeds", *logged]
    assert names["models"] == ["ablation", "effects", "cross-scale"]
    assert names["steps"] == ["steps", *logged]
    assert names["many"] == ["ablation", "effects", "seeds"]


def test_means_and_intervals_of_the_bars() -> None:
    study = make(chances=("baseline", "entropy"), seeds=FIVE, runs=3, measured=False)
    plotted = numbers(ablation(study))
    for arm in study.arms:
        for view in study.views:
            values = accuracies(study, "qwen3-1.7b", arm, view)
            low, high = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
            drawn = [plotted[f"qwen3-1.7b/{arm}/{view}/{name}"] for name in ("mean", "low", "high")]
            assert drawn == pytest.approx([values.mean(), low, high])
    assert len(plotted) == 2 * 2 * 3 + 2  # and the base model's two
    assert "single seed" not in ablation(study).caption  # type: ignore[union-attr]


def test_effects_have_the_interval_of_welch() -> None:
    study = make(chances=("baseline", "entropy", "outcome"), seeds=FIVE, measured=False)
    plotted = numbers(effects(study))
    for arm in ("entropy", "outcome"):
        a, b = (accuracies(study, "qwen3-1.7b", name, "sharded") for name in (arm, "baseline"))
        interval = stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.95)
        drawn = [plotted[f"qwen3-1.7b/{arm}/sharded/delta/{name}"] for name in ("mean", "low", "high")]
        assert drawn == pytest.approx([a.mean() - b.mean(), interval.low, interval.high])
    assert not any("baseline" in name for name in plotted)


def test_single_seeds_have_no_interval_and_the_caption_says_so(drawn: Any) -> None:
    figures = {figure.name: figure for figure in drawn["one"][0]}
    for name in ("ablation", "effects"):
        assert "single seed" in figures[name].caption
        assert not any(label.endswith(("/low", "/high")) for label, _ in figures[name].numbers)


def test_seeds_that_all_agree_have_no_interval_and_the_caption_says_so() -> None:
    study = make(chances=("baseline", "entropy"), seeds=(1, 2), measured=False)
    same = replace(study, cells=[replace(cell, right=study.cells[0].right) for cell in study.cells])
    for figure in (ablation(same), effects(same)):
        assert not any(label.endswith(("/low", "/high")) for label in numbers(figure))
        assert figure is not None
        assert "its seeds all agree" in figure.caption
        assert "single seed" not in figure.caption


def test_the_papers_numbers_stand_beside_ours_only_where_they_are_of_the_same_configuration(
    drawn: Any,
) -> None:
    figures = {figure.name: numbers(figure) for figure in drawn["one"][0]}
    paper = {name: value for name, value in figures["ablation"].items() if name.endswith("/paper")}
    assert paper["qwen3-1.7b/entropy/sharded/paper"] == 69.0
    assert paper["qwen3-1.7b/combined/full/paper"] == 76.5
    assert len(paper) == 8
    assert figures["effects"]["qwen3-1.7b/combined/sharded/delta/paper"] == -0.7
    assert figures["effects"]["qwen3-1.7b/outcome/full/delta/paper"] == 2.0
    steps = {figure.name: numbers(figure) for figure in drawn["steps"][0]}["steps"]
    assert steps["qwen3-1.7b/train.steps=200/baseline/sharded/paper"] == 68.5
    for other in (
        {"models": ("pocket",)},
        {"axes": {"objective.keep": [0.5, 0.8]}},
        {"axes": {"train.steps": [40, 80]}},
    ):
        study = make(chances=("baseline", "entropy"), paper="ablation", measured=False, **other)  # type: ignore[arg-type]
        assert not any(name.endswith("paper") for name in numbers(ablation(study)))


def test_models_side_by_side(drawn: Any) -> None:
    study, figures = results("models"), {figure.name: numbers(figure) for figure in drawn["models"][0]}
    for model in study.models:
        a, b = (accuracies(study, model, arm, "sharded").mean() for arm in ("entropy", "baseline"))
        assert figures["cross-scale"][f"{model}/entropy/sharded/delta/mean"] == pytest.approx(a - b)
    assert figures["cross-scale"]["qwen3-8b/entropy/sharded/delta/paper"] == 1.0
    assert cross_scale(results("five")) is None


def test_seeds_have_their_points_mean_and_sample_deviation(drawn: Any) -> None:
    study, figures = results("five"), {figure.name: numbers(figure) for figure in drawn["five"][0]}
    values = accuracies(study, "qwen3-1.7b", "entropy", "sharded")
    plotted = {
        name.removeprefix("qwen3-1.7b/entropy/sharded/"): v
        for name, v in figures["seeds"].items()
        if "/entropy/" in name
    }
    expected = {"mean": values.mean(), "sd": values.std(ddof=1)} | {
        f"seed {s}": v for s, v in zip(FIVE, values, strict=True)
    }
    assert plotted == pytest.approx(expected)
    assert seeds(results("one")) is None


def test_an_axis_is_drawn_point_by_point() -> None:
    axes = {"objective.keep": [0.5, 0.8], "train.lr": [1e-6, 1e-4]}
    study = make(chances=("entropy", "random mask", "third"), seeds=(1, 2), axes=axes, measured=False)
    plotted = numbers(axis_figure(study, "objective.keep"))
    for keep in (0.5, 0.8):
        for rate in (1e-6, 1e-4):
            values = accuracies(
                study, "qwen3-1.7b", "third", "full", **{"objective.keep": keep, "train.lr": rate}
            )
            assert plotted[
                f"qwen3-1.7b/objective.keep={keep}/train.lr={rate}/third/full/mean"
            ] == pytest.approx(values.mean())
    half = replace(study, cells=[cell for cell in study.cells if cell.axes["objective.keep"] == 0.5])
    assert axis_figure(half, "objective.keep") is None
    figure = axis_figure(half, "train.lr")
    assert figure is not None
    assert figure.name == "axis-train.lr"


def test_places_on_an_axis() -> None:
    assert positions_of([100, 200, 400])[0] == [100, 200, 400]
    assert positions_of([1e-6, 1e-5, 1e-4])[0] == pytest.approx([-6, -5, -4])
    assert positions_of([0.1, 0.98, 1.0])[0] == [0, 1, 2]  # to scale the last two would lie on each other
    assert positions_of(["entropy", None, True]) == ([0, 1, 2], ["entropy", "None", "True"])


def test_curves_end_where_the_smoothed_mean_over_seeds_ends(drawn: Any) -> None:
    study, figures = results("five"), {figure.name: numbers(figure) for figure in drawn["five"][0]}
    for metric in METRICS:
        rows = np.array([cell.curves[metric] for cell in study.cells if cell.arm == "entropy"], dtype=float)
        expected = rows.mean(0)[-1]  # 30 steps are too few to be smoothed
        assert figures["curves"][f"qwen3-1.7b/entropy/{metric}/step 30"] == pytest.approx(expected)
    row = np.array([1.0, np.nan, 4.0, 1.0, np.nan, np.nan, np.nan])
    np.testing.assert_allclose(smoothed(row, 3), [1, 2.5, 2.5, 2.5, 1, np.nan, np.nan])


def test_bins_are_pooled_by_count(drawn: Any) -> None:
    study, figures = results("five"), {figure.name: numbers(figure) for figure in drawn["five"][0]}
    logs = [cell.tokens for cell in study.cells if cell.arm == "entropy" and cell.tokens]
    for i in range(10):
        weights = [log["bins"][i]["count"] for log in logs]
        for key in ("student", "teacher", "agreement"):
            expected = np.average([log["bins"][i][key] for log in logs], weights=weights)
            assert figures["calibration"][f"qwen3-1.7b/entropy/bin {i}/{key}"] == pytest.approx(expected)
    areas = np.array([log["auroc"] for log in logs])
    low, high = stats.t.interval(0.95, 4, areas.mean(), stats.sem(areas))
    drawn_area = [
        figures["calibration"][f"qwen3-1.7b/entropy/auroc/{name}"] for name in ("mean", "low", "high")
    ]
    assert drawn_area == pytest.approx([areas.mean(), low, high])
    # Quantiles that fell together are missing at the low end, so the top ones belong together.
    short, long = (
        [{"low": 1, "high": 2, "count": 3}],
        [{"low": 0, "high": 0, "count": 1}, {"low": 5, "high": 6, "count": 1}],
    )
    assert [
        b["low"] for b in pooled([{"by_entropy": short}, {"by_entropy": long}], "by_entropy", ["low"])
    ] == [0, 2]


def test_gradient_shares_are_means_over_seeds(drawn: Any) -> None:
    study, figures = results("five"), {figure.name: numbers(figure) for figure in drawn["five"][0]}
    logs = [cell.gradients for cell in study.cells if cell.arm == "baseline" and cell.gradients]
    for key in ("tokens_dropped", "divergence_dropped", "norm_share_dropped"):
        assert figures["gradients"][f"qwen3-1.7b/baseline/{key}"] == pytest.approx(
            100 * np.mean([log[key] for log in logs])
        )
    assert figures["gradients"]["qwen3-1.7b/baseline/cosine/mean"] == pytest.approx(
        np.mean([log["cosine"] for log in logs])
    )


def test_an_arm_has_one_colour_in_every_figure() -> None:
    colours = Plot(results("many")).colours
    assert len({colours[arm] for arm in MANY[:11]}) == 11
    assert Plot(results("one")).colours["entropy"] == Plot(results("five")).colours["entropy"]


def test_what_is_missing_or_odd_does_not_stop_a_figure() -> None:
    odd = make(chances=("<script>$x$ & \x00 café", "_hidden"), views=("full",), items=20, steps=5)
    cells = list(odd.cells)
    cells[0] = replace(
        cells[0],
        curves={"loss": [None, float("nan")], "new metric": [1.0, 2.0, float("inf")]},
        gradients={"cosine": None},
    )
    cells[1] = replace(cells[1], tokens={"bins": [], "auroc": None}, curves={}, right={})
    figures = make_figures(replace(odd, cells=cells))
    assert [figure.name for figure in figures] == [
        "schematic",
        "ablation",
        "curves",
        "calibration",
        "gradients",
    ]
    for figure in figures:
        ET.fromstring(figure.svg)
    nothing = replace(odd, cells=[], base=[], missing=["all"])
    assert [figure.name for figure in make_figures(nothing)] == ["schematic"]
    solo = make(chances=("solo",), views=("full",), items=10, measured=False, base=False)
    assert [figure.name for figure in make_figures(solo)] == ["schematic", "ablation"]
    bare = replace(solo, cells=[replace(cell, tokens=None, gradients=None, curves={}) for cell in solo.cells])
    assert training_figures(bare) == []


def test_a_whisker_of_no_width_is_drawn() -> None:
    study = make(chances=("baseline", "entropy"), seeds=(1, 2), items=10, measured=False)
    same = replace(study, cells=[replace(cell, right=study.cells[0].right) for cell in study.cells])
    plotted = numbers(effects(same))
    assert all(value == 0 for value in plotted.values())


def test_the_schematic_names_every_part() -> None:
    figure = schematic()
    for part in (
        "student",
        "teacher",
        "optimizer",
        "gradient step",
        "moving average",
        "reverse KL",
        "20% masked",
    ):
        assert part in figure.svg  # matplotlib says in a comment what it draws as outlines
    assert figure.numbers == []
