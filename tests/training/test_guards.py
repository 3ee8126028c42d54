"""Warnings of a run: each appears once, at the step at which it is due and not before, names what helps, and
a sound run has none. Fed with made-up rows of metrics; a real run with a cap over everything comes last.
"""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import metrics, rows, train, trainer_of

from smopd.config import load_config, plan_of
from smopd.files import read_jsonl
from smopd.methods import METHODS
from smopd.objective import Plan, Term, every, hard, relative, scale, soft, whole_task
from smopd.rollout.play import Play
from smopd.runs.writer import RunFolder
from smopd.scoring import reverse_kl
from smopd.training.guards import Watched, due, give_warnings
from smopd.training.metrics import _loops
from smopd.viewer.results import report_run

CONFIG = load_config("pocket")
PLAN = plan_of(CONFIG)


def sound(step=1, **other):
    """A row of a run in which nothing is wrong."""
    row = {"step": step, "outcome": 0.5, "stop/end": 60, "stop/length": 2, "verdict/ok": 14,
           "verdict/no_answer": 2, "verdict/timeout": 0, "verdict/error": 0}  # fmt: skip
    for term in PLAN.terms:
        row |= {f"clipped/{term.name}": 0.1, f"entropy/{term.name}": 0.3, f"reply_tokens/{term.name}": 20.0}
    return row | other


def warned(tmp_path, changes, config=CONFIG, steps=30, examples=50):
    """(step, cause) of every warning while rows come one by one: changes(step) is what is odd about each."""
    folder = RunFolder(tmp_path / "run", config)
    folder.begin()
    for step in range(1, steps + 1):
        odd = changes(step)
        for metric, value in odd.pop("evaluations", {}).items():
            folder.record_evaluation(step, metric, value)
        folder.add_metrics(sound(step, **odd))
        give_warnings(config, plan_of(config), folder, step, examples)
    return [(row["step"], row["cause"]) for row in folder.warnings()]


def words_of(rows, config=CONFIG, plan=None, **more):
    return dict(due(Watched(config, plan or plan_of(config), rows, **more)))


CAUSES = {
    "clipped/answer": ({"clipped/answer": 0.8}, 3),
    "no longer right": ({"outcome": 0.0}, 10),
    "short/middle": ({"reply_tokens/middle": 1.0}, 4),  # the mean of the last five falls below a third
    "cut": ({"stop/end": 0, "stop/length": 62}, 5),
    "loops": ({"looping": 0.5}, 2),  # again a mean of five steps
    "certain/middle": ({"entropy/middle": 0.0}, 5),
    "uncertain/middle": ({"entropy/middle": 6.0}, 2),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_each_is_said_once_and_at_the_step_at_which_it_is_due(tmp_path, cause):
    odd, after = CAUSES[cause]
    begins = 12
    warnings = warned(tmp_path, lambda step: dict(odd) if step >= begins else {})
    assert warnings == [(begins + after - 1, cause)]


@pytest.mark.parametrize("cause", CAUSES)
def test_a_bad_moment_is_no_cause(tmp_path, cause):
    odd, after = CAUSES[cause]
    warnings = warned(tmp_path, lambda step: dict(odd) if 12 <= step < 12 + after - 1 else {})
    assert warnings == []


@settings(max_examples=20)
@given(st.data())
def test_a_sound_run_has_none(data):
    """However its numbers jump within what runs do."""
    metric_rows = []
    for step in range(1, data.draw(st.integers(1, 25)) + 1):
        share = st.floats(0, 0.5)
        odd = {"outcome": data.draw(st.floats(0.05, 1)), "looping": data.draw(st.floats(0, 0.19))}
        for term in PLAN.terms:
            odd[f"clipped/{term.name}"] = data.draw(st.none() | share)
            odd[f"entropy/{term.name}"] = data.draw(st.floats(0.05, 0.9))
            odd[f"reply_tokens/{term.name}"] = data.draw(st.none() | st.floats(14, 40))
        metric_rows.append(sound(step, **odd))
    assert words_of(metric_rows) == {}


def test_a_run_that_goes_on_repeats_none_and_one_that_went_back_says_it_again(tmp_path):
    odd = lambda step: {"clipped/answer": 0.8} if step >= 5 else {}  # noqa: E731
    assert warned(tmp_path, odd, steps=10) == [(7, "clipped/answer")]
    folder = RunFolder(tmp_path / "run", CONFIG)
    folder.cut_metrics(8)
    give_warnings(CONFIG, PLAN, folder, 8)
    assert len(folder.warnings()) == 1
    folder.cut_metrics(6)  # the checkpoint it goes on from is older than the warning
    assert folder.warnings() == []
    give_warnings(CONFIG, PLAN, folder, 6)
    assert folder.warnings() == []
    folder.add_metrics(sound(7, **odd(7)))
    give_warnings(CONFIG, PLAN, folder, 7)
    assert [row["step"] for row in folder.warnings()] == [7]


def test_the_remedy_of_a_cap_comes_from_the_plan():
    clipped = [sound(step, **{"clipped/answer": 0.78}) for step in range(1, 4)]
    warning = words_of(clipped)["clipped/answer"]
    assert warning == (
        "78% of the tokens of the term answer are over its cap hard(0.5) and get no gradient: "
        "--set objective.clip_mode=scale, or objective.clip=inf"
    )
    relative_cap = load_config("pocket", ["objective.clip_mode=relative"])
    assert words_of(clipped, relative_cap)["clipped/answer"].endswith(": --set objective.clip_mode=scale")
    maigo = load_config("pocket", [], "maigo")  # has a cap, but no mode of it
    assert words_of(clipped, maigo)["clipped/answer"].endswith(": --set objective.clip=inf")
    for setting in ("objective.clip_mode=scale", "objective.clip_mode=soft", "objective.clip=inf"):
        assert words_of(clipped, load_config("pocket", [setting])) == {}  # tokens over it keep a gradient
    assert words_of(clipped, load_config("pocket", ["objective.answer=0"])) == {}


@pytest.mark.parametrize("method", METHODS)
def test_declared_remedies_are_settings_of_their_method(method):
    section = METHODS[method].section
    assert set(section.remedies) <= {"clipped", "FULL"}
    for cause, remedies in section.remedies.items():
        for name, value in remedies.items():
            assert section(**{name: value}) if cause == "clipped" else name in section.model_fields


@pytest.mark.parametrize(("cap", "due"), [(hard(0.5), True), (relative(10), True), (scale(0.5), False),
                                          (soft(0.5), False), (hard(math.inf), False)])  # fmt: skip
def test_only_caps_without_a_gradient_are_warned_of(cap, due):
    plan = Plan((Play(),), (Term("answer", every, whole_task, reverse_kl(), cap=cap),))
    config = load_config("pocket", [], "grpo")  # whose settings know no cap
    warnings = words_of([sound(step, **{"clipped/answer": 0.9}) for step in range(3)], config, plan)
    assert bool(warnings) == due
    if due:
        assert "another cap in its method's file" in warnings["clipped/answer"]


def test_a_reward_that_never_came_names_a_cap_that_silences_a_good_part():
    """As SmolLM2 had it once: 30 to 58% of the answer's tokens over the cap, and nothing learnt."""
    shares = [0.45, 0.41, 0.39, 0.35, 0.36, 0.57, 0.4, 0.32, 0.37, 0.45]
    wrong = {"outcome": 0.0, "verdict/ok": 8}
    rows = [sound(step, **{"clipped/answer": share, **wrong}) for step, share in enumerate(shares)]
    warnings = words_of(rows, load_config("pocket"))
    assert list(warnings) == ["never right"]
    assert "41% of the tokens of the term answer are over its cap hard(0.5)" in warnings["never right"]
    assert "--set objective.clip_mode=scale, or objective.clip=inf; read some" in warnings["never right"]
    few = [sound(step, **{"clipped/answer": 0.2, **wrong}) for step in range(10)]
    assert "over its cap" not in words_of(few, load_config("pocket"))["never right"]


def test_a_reward_that_never_came_is_another_cause_and_needs_enough_verdicts(tmp_path):
    never = {"outcome": 0.0, "verdict/ok": 12, "verdict/no_answer": 4}
    assert warned(tmp_path, lambda step: dict(never)) == [(10, "never right")]
    (warning,) = (row["warning"] for row in read_jsonl(tmp_path / "run" / "warnings.jsonl"))
    assert "none of 160 final answers in 10 steps was right (40 no_answer)" in warning
    assert "smopd data check" in warning
    few = {"outcome": 0.0, "verdict/ok": 2, "verdict/no_answer": 0}
    assert [len(words_of([sound(**few)] * steps)) for steps in (10, 31, 32)] == [0, 0, 1]
    unjudged = [sound(outcome=None, **{"verdict/ok": 0, "verdict/no_answer": 0})] * 30
    assert words_of(unjudged) == {}


def test_short_or_certain_models_are_not_taken_for_collapsed_ones():
    terse = [sound(**{"reply_tokens/answer": 6.0})] * 5 + [sound(**{"reply_tokens/answer": 1.0})] * 5
    assert words_of(terse) == {}
    certain = [sound(**{"entropy/answer": 0.02})] * 5 + [sound(**{"entropy/answer": 0.005})] * 5
    assert words_of(certain) == {}


def test_full_falls_in_evaluations(tmp_path):
    values = {10: 0.9, 20: 0.84, 25: 0.6, 30: 0.5}
    assert warned(tmp_path, lambda s: {"evaluations": {"full": values[s]}} if s in values else {}) == [
        (25, "FULL")
    ]
    (warning,) = (row["warning"] for row in read_jsonl(tmp_path / "run" / "warnings.jsonl"))
    assert warning.startswith(
        "FULL fell from 90% to 60% of 50: give the whole task more weight (objective.rho"
    )
    falls = [{"step": 1, "metric": "full", "value": 0.9}, {"step": 2, "metric": "full", "value": 0.7}]
    assert "FULL" not in words_of([], evaluations=falls, examples=10)  # too few to tell
    assert "FULL" in words_of([], evaluations=falls, examples=100)
    up = [{"step": 1, "metric": "full", "value": 0.5}, {"step": 2, "metric": "full", "value": 0.9}]
    assert words_of([], evaluations=up, examples=100) == {}
    drop = [{"step": 1, "metric": "full", "value": 0.95}, {"step": 2, "metric": "full", "value": 0.91}]
    assert words_of([], evaluations=drop, examples=10_000) == {}  # sure, and not worth a warning
    grpo = words_of([], load_config("pocket", [], "grpo"), evaluations=falls, examples=100)["FULL"]
    assert "objective" not in grpo


def test_full_falls_in_the_verdicts_of_a_branch():
    first, last = ([sound(**{"outcome/full": share, "full_branch": 6})] * 5 for share in (0.9, 0.3))
    assert list(words_of(first + last)) == ["FULL"]
    assert words_of(first + last[:4]) == {}  # 24 verdicts
    assert words_of(first) == {}
    assert words_of(last + first) == {}


def test_a_reply_loops_when_most_of_it_stood_in_it_before():
    assert _loops([1, 2, 3] * 10)
    assert _loops([7] * 24)
    assert not _loops([7] * 23)
    assert not _loops(range(100))
    assert not _loops([*range(30), *range(20)])


def test_a_real_run_says_it_writes_it_down_and_shows_it(tmp_path, caplog):
    tiny = ["objective.clip=1e-9", "train.steps=4", "train.rollouts=2", "train.micro_batch=2",
            "rollout.middle_tokens=8", "rollout.answer_tokens=8", "lora.r=4", "lora.alpha=8",
            "objective.rho=0"]  # fmt: skip
    run = train(tmp_path / "run", *tiny)
    warnings = rows(run / "warnings.jsonl")
    assert {"clipped/middle", "clipped/answer"} <= {row["cause"] for row in warnings}
    assert [row["step"] for row in warnings if row["cause"] == "clipped/answer"] == [3]
    lines = [record.getMessage() for record in caplog.records if "over its cap" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith("step 3: ")
    again = trainer_of(run, *tiny)
    again.train()
    assert rows(run / "warnings.jsonl") == warnings
    page = report_run(run)[0].read_text(encoding="utf-8")
    assert "<h2>Warnings</h2>" in page
    assert "step 3: " in page
    assert "objective.clip_mode=scale" in page
    assert metrics(run)[-1]["clipped/answer"] > 0.5
