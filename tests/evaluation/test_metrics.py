"""Accuracies, LiC's metrics and paired changes, against their definitions."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smopd.data import load_examples
from smopd.evaluation.evaluate import Outcome, judge
from smopd.evaluation.metrics import accuracy, against, scores, summarise
from smopd.evaluation.statistics import bootstrap, paired, paired_bootstrap, wilson
from smopd.rollout.driver import Conversation, Turn
from smopd.rollout.engine import Stop


def outcome(id, correct, view="full", run=0, task="math", shards=4, status="ok", any_correct=None):
    turns = [{"user": "u", "reply": "r", "stop": "end", "tokens": 3}]
    any_correct = correct if any_correct is None else any_correct
    return Outcome(
        str(id), view, run, task, shards, turns, correct, any_correct, None, status, "", "", "", {}
    )


def test_one_run_is_a_proportion_with_wilsons_interval():
    result = accuracy({str(i): [i < 30] for i in range(40)})
    assert (result["accuracy"], result["correct"], result["total"]) == (0.75, 30, 40)
    assert (result["low"], result["high"]) == wilson(30, 40)
    assert "a90" not in result


def test_lics_metrics_are_percentiles_of_each_items_runs_averaged_over_items():
    runs = {
        "always": [True] * 10,
        "never": [False] * 10,
        "half": [True] * 5 + [False] * 5,
        "once": [True] + [False] * 9,
    }
    result = accuracy(runs)
    assert result["accuracy"] == pytest.approx((1 + 0 + 0.5 + 0.1) / 4)
    # once: sorted 0 x9, 1; the 90th percentile stands at place 8.1, a tenth of the way from 0 to 1
    assert result["a90"] == pytest.approx((1 + 0 + 1 + 0.1) / 4)
    assert result["unreliability"] == pytest.approx((0 + 0 + 1 + 0.1) / 4)
    assert result["low"] <= result["accuracy"] <= result["high"]
    assert result["a90_low"] <= result["a90"] <= result["a90_high"]


def test_items_are_what_counts_not_runs():
    """Ten runs that always agree say no more about the benchmark than one run."""
    once = {str(i): [i % 2 == 0] for i in range(60)}
    ten = {item: right * 10 for item, right in once.items()}
    narrow, wide = accuracy(ten), accuracy(once)
    assert narrow["high"] - narrow["low"] == pytest.approx(wide["high"] - wide["low"], rel=0.1)
    certain = accuracy({str(i): [True] * 5 for i in range(20)})
    assert (certain["low"], certain["high"]) == wilson(20, 20)


@settings(max_examples=25)
@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_the_interval_holds_the_mean_and_does_not_depend_on_the_order_of_runs(right):
    result = accuracy({str(i): [r, not r, r] for i, r in enumerate(right)})
    turned = accuracy({str(i): [r, r, not r] for i, r in enumerate(right)})
    assert result == turned
    assert result["low"] <= result["accuracy"] <= result["high"]


def test_a_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    """400 simulated studies of 80 items: within three standard errors of 95%, less the little a percentile
    interval lacks.
    """
    draw, hits = np.random.default_rng(0), 0
    for _ in range(400):
        chances = draw.beta(2, 1, 80)
        low, high = bootstrap(draw.binomial(5, chances) / 5)
        hits += low <= 2 / 3 <= high
    assert 0.91 <= hits / 400 <= 0.98


def test_a_paired_bootstrap_rejects_a_true_null_about_as_often_as_it_says():
    draw, rejected = np.random.default_rng(1), 0
    for _ in range(400):
        chances = draw.beta(2, 1, 80)
        rejected += paired_bootstrap(draw.binomial(5, chances) / 5, draw.binomial(5, chances) / 5)[2] < 0.05
    assert 0.02 <= rejected / 400 <= 0.09


def test_a_change_with_one_run_each_is_mcnemars_and_with_several_a_bootstrap():
    draw = Random(3)
    before, after = [draw.random() < 0.4 for _ in range(50)], [draw.random() < 0.7 for _ in range(50)]
    change = against(
        [outcome(i, b) for i, b in enumerate(before)], [outcome(i, a) for i, a in enumerate(after)]
    )
    exact = paired(before, after)
    assert {k: change[k] for k in ("n", "gained", "lost", "low", "high", "p")} == {
        k: getattr(exact, k) for k in ("n", "gained", "lost", "low", "high", "p")
    }
    assert change["test"] == "exact McNemar"
    assert change["difference"] == pytest.approx(exact.difference)
    several = against(
        [outcome(i, b, run=r) for r in range(3) for i, b in enumerate(before)],
        [outcome(i, a) for i, a in enumerate(after)],
    )
    assert several["test"] == "bootstrap over items"
    assert several["difference"] == pytest.approx(exact.difference)
    assert several["low"] < exact.difference < several["high"]


def test_only_shared_items_are_compared():
    change = against([outcome(i, False) for i in range(5)], [outcome(i, True) for i in range(3, 9)])
    assert (change["n"], change["gained"], change["difference"]) == (2, 2, 1.0)


def test_a_summary_breaks_down_by_task_shards_and_status_and_compares_with_full():
    rows = [outcome(i, True, task="math" if i % 2 else "code", shards=3 + i % 3) for i in range(12)]
    rows += [
        outcome(i, i < 4, "sharded", task="math" if i % 2 else "code", shards=3 + i % 3, any_correct=i < 6,
                status="timeout" if i == 11 else "ok") for i in range(12)
    ]  # fmt: skip
    summary = summarise(rows)
    sharded = summary["views"]["sharded"]
    assert summary["runs"] == 1
    assert {k: v["correct"] for k, v in sharded["by_task"].items()} == {"code": 2, "math": 2}
    assert {k: v["total"] for k, v in sharded["by_shards"].items()} == {"3": 4, "4": 4, "5": 4}
    assert (sharded["correct"], sharded["any_turn"]["correct"]) == (4, 6)
    assert sharded["status"] == {"ok": 11, "timeout": 1}
    assert summary["sharded_minus_full"]["lost"] == 8
    assert "full_minus_full" not in summary


def test_scores_group_runs_by_item():
    rows = [outcome("a", True), outcome("b", False), outcome("a", False, run=1), outcome("b", False, run=1)]
    assert scores(rows) == {"a": [True, False], "b": [False, False]}


def test_turn_accuracy_is_of_middle_replies_whose_state_is_known():
    example = load_examples("everyday@bill:eval:1")[0]
    talk = Conversation(example, "sharded")
    for number, state in enumerate(example.answer["turns"]):
        wrong = number == 1
        talk.asked.append(example.shards[number])
        talk.turns.append(Turn((1,), (2,), Stop.END, f"total: {state['total'] + wrong}"))
    (result,) = judge([talk])
    count = len(example.shards)
    assert [turn["right"] for turn in result.turns] == [number != 1 for number in range(count)]
    turns = summarise([result])["views"]["sharded"]["middle_turns"]
    assert (turns["correct"], turns["total"]) == (count - 2, count - 1)
    assert turns["accuracy"] == pytest.approx((count - 2) / (count - 1))
    full = Conversation(example, "full", [example.full], talk.turns[-1:])
    assert "right" not in judge([full])[0].turns[0]  # in one message there is no middle
    assert "middle_turns" not in summarise([outcome("a", True, "sharded")])["views"]["sharded"]
