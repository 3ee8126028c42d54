"""The cost of methods at a tiny size: the counts are those of the step. No test here looks at a time."""

import json

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import measure
from benchmarks.__main__ import app
from benchmarks.child import measured
from benchmarks.methods import COSTS, HeadRows, prepare
from smopd.methods import DEFAULT

TINY = ["--examples", "2", "--steps", "1", "--reply", "8"]


def test_counts_of_a_step(monkeypatch):
    monkeypatch.setattr(measure, "run_child", lambda case: measured(prepare(case.variant, case.settings)))
    arguments = ["methods", "ccopd", "grpo", *TINY, "--json"]
    report = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    usual, answer_only, group = report["results"]
    assert [row["name"] for row in report["results"]] == [DEFAULT, "ccopd", "grpo"]
    assert all(usual["ratios"][key] == 1 for key in COSTS)
    assert (usual["rollouts"], answer_only["rollouts"], group["rollouts"]) == (2, 2, 16)
    assert answer_only["contexts"] == 2  # one answer a rollout
    assert group["contexts"] == 0  # no teacher
    assert usual["contexts"] > 2
    # Two products for the logits of each token that is scored, and at most one more for its gradient.
    assert 2 * usual["sampled"] <= usual["products"] <= 3 * usual["sampled"]
    assert answer_only["products"] < usual["products"]
    table = CliRunner().invoke(app, ["methods", "ccopd", *TINY], catch_exceptions=False).stdout
    assert all(len(line.rstrip()) <= 80 for line in table.splitlines())


def test_products_with_the_head_are_counted_and_no_others():
    head, hidden = torch.randn(50, 8), torch.randn(7, 8)
    with HeadRows(head.shape) as counted:
        logits = hidden @ head.T
        _ = logits @ head
        _ = hidden @ torch.randn(8, 8)
    assert counted.rows == 14


def test_an_unknown_method_is_named():
    error = CliRunner().invoke(app, ["methods", "nosuch"]).exception
    with pytest.raises(Exception, match=r"unknown method 'nosuch'. The methods are"):
        raise error
