"""The benchmarks at tiny sizes: variants compute the same, reports have their shape. No test here looks at a
time.
"""

import json
import re
import shlex
import sys
from dataclasses import asdict

import pytest
import torch
from support.doc_pages import PAGES, ROOT
from support.plain_path import plain_divergence
from typer.main import get_command
from typer.testing import CliRunner

from benchmarks import ahead, head, measure, rollout, scoring, step
from benchmarks.__main__ import app
from benchmarks.child import measured
from benchmarks.measure import Case, Work, ratios, run_child
from smopd.errors import UserError
from smopd.models.adapters import student_parameters

HEAD = head.Head(tokens=16, width=8, vocabulary=64, reply=6)
SCORING = scoring.Scoring(data="pocket:eval:2", conversations=2, reply=5, width=16, layers=2)
STEP = step.Step(
    rollouts=2, conversations=1, reply=4, width=24, intermediate=32, layers=2, heads=3, key_value_heads=1,
    vocabulary=896,
)  # fmt: skip


@pytest.fixture
def in_process(monkeypatch):
    """Children's work in this process: the same code, without a new interpreter for every number."""

    def run(case: Case) -> dict:
        benches = {"ahead": ahead, "head": head, "rollout": rollout, "scoring": scoring, "step": step}
        prepare = benches[case.bench].prepare
        return json.loads(
            json.dumps(measured(prepare(case.variant, json.loads(json.dumps(dict(case.settings))))))
        )

    monkeypatch.setattr(measure, "run_child", run)


@pytest.mark.parametrize("other", ["plain", "trl"])
def test_head_variants_compute_the_same_loss_and_gradient(other):
    if other == "trl":
        pytest.importorskip("trl")
    results = {}
    for variant in ("ours", other):
        problem = head.make_problem(HEAD)
        results[variant] = (head.forward_backward(variant, problem)["loss"], problem.student_Nd.grad)
    torch.testing.assert_close(results["ours"][0], results[other][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(results["ours"][1], results[other][1], rtol=1e-5, atol=1e-5)
    assert results["ours"][1].abs().sum() > 0


def test_head_problem_has_clipped_masked_and_ordinary_tokens():
    problem = head.make_problem(head.Head(tokens=256, width=32, vocabulary=2000))
    stats = plain_divergence(problem.student_Nd, problem.teacher_Nd, problem.weight_Vd, problem.tokens_N)
    clipped = (stats.divergence > problem.settings.clip).float().mean()
    assert 0 < clipped < 0.3


def test_head_lengths_cover_a_last_short_reply():
    assert head.make_problem(HEAD).lengths == [6, 6, 4]


@pytest.mark.parametrize("side", scoring.SIDES)
def test_scoring_paths_give_the_same_hidden_states(side):
    problem = scoring.make_problem(SCORING)
    hidden, tokens = {}, {}
    for path in scoring.PATHS:
        problem.passed = 0
        with torch.no_grad():
            hidden[path] = problem.hidden(side, path)
        tokens[path] = problem.passed
    torch.testing.assert_close(hidden["packed"], hidden["padded"], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(hidden["packed"], hidden["sorted"], rtol=1e-5, atol=1e-5)
    assert len(hidden["packed"]) == sum(len(reply) for turns in problem.sequences[side] for _, reply in turns)
    assert tokens["packed"] < tokens["padded"]


def test_scoring_replies_differ_by_turn_and_are_the_same_in_every_child():
    one, two = (scoring.make_problem(SCORING).sequences["student"] for _ in range(2))
    assert one == two
    replies = [reply for turns in one for _, reply in turns]
    assert len(set(replies)) == len(replies)


@pytest.mark.parametrize("scene", step.SCENES)
def test_step_paths_give_the_same_loss_and_gradient(scene):
    results = {}
    problem = step.make_problem(scene, STEP)
    for path in step.PATHS:
        loss = problem.run(path)
        results[path] = [
            torch.tensor(loss),
            *(p.grad.clone() for p in student_parameters(problem.model).values()),
        ]
        problem.model.zero_grad(set_to_none=True)
    assert results["fast"][0] > 0
    torch.testing.assert_close(results["fast"], results["plain"], rtol=1e-3, atol=1e-5)


def test_rollout_report(in_process):
    report = rollout.report(rollout.Rollouts(conversations=3, reply=12), 1)
    assert report["same_tokens"]
    assert report["fewer_prefilled_tokens"] > 2
    kept, stock = report["results"]
    assert kept["reused_tokens"] > 0 == stock["reused_tokens"]
    assert kept["prompt_tokens"] == stock["prompt_tokens"]


def test_head_report(in_process):
    report = head.report(HEAD, 2, [8, 16])
    names = [row["name"] for row in report["results"]]
    assert [n for n in names if n != "trl"] == ["ours", "plain", "bare", "ours, N=8"]
    assert set(report["ratios"]["ours"]) == set(names) - {"ours", "ours, N=8"}
    assert list(report["memory_by_tokens"]) == ["8", "16"]
    assert isinstance(report["slope_mb_per_1000_tokens"], float)
    for row in report["results"]:
        assert row["spread"][0] <= row["seconds"] <= row["spread"][1]
        assert row["peak_mb"] >= 0
        assert row["memory"] in ("VmHWM", "ru_maxrss")
    losses = [row["loss"] for row in report["results"] if row["name"] in ("ours", "plain", "trl")]
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-5)


def test_a_missing_trl_leaves_its_row_out_with_a_note(in_process, monkeypatch):
    monkeypatch.setattr(head, "find_spec", lambda name: None)
    report = head.report(HEAD, 1, [])
    assert [row["name"] for row in report["results"]] == ["ours", "plain", "bare"]
    assert "trl is not installed" in report["notes"][0]
    assert report["slope_mb_per_1000_tokens"] is None


def test_slope_is_in_mb_per_thousand_tokens():
    assert head.slope([(100, 5.0), (200, 6.0), (400, 8.0)]) == pytest.approx(10.0)


def test_repetitions_are_interleaved(monkeypatch):
    order = []

    def run(case: Case) -> dict:
        order.append(case.name)
        seconds = {"seconds": float(len(order)), "system_seconds": 0.5}
        return {**seconds, "peak_mb": 1.0, "memory": "VmHWM", "facts": {}}

    monkeypatch.setattr(measure, "run_child", run)
    results = measure.measure([Case(name, "head", name, {}) for name in "ab"], 3)
    assert order == list("ababab")
    seconds = {"seconds": 3.0, "spread": [1.0, 5.0], "system_seconds": 0.5}
    assert results[0] == {"name": "a", **seconds, "peak_mb": 1.0, "memory": "VmHWM"}
    assert ratios(results[0], results[1:]) == {"b": {"seconds": 0.75, "peak_mb": 1.0}}


def test_a_peak_is_the_extra_memory_of_the_work_alone():
    def work() -> int:
        return len(bytearray(b"x") * 80_000_000)

    measurement = measured(Work(lambda: None, work, lambda size: {"size": size}))
    assert measurement["facts"] == {"size": 80_000_000}
    if measurement["memory"] == "VmHWM":
        assert 60 < measurement["peak_mb"] < 120


def test_a_child_runs_in_a_process_of_its_own():
    answer = run_child(Case("ours", "head", "ours", asdict(HEAD)))
    assert set(answer) == {"seconds", "system_seconds", "peak_mb", "memory", "facts"}
    assert answer["facts"]["loss"] > 0


def test_a_dying_child_is_reported_with_what_it_said():
    with pytest.raises(
        UserError, match=r"bench head, broken: the child process died with exit code 1:(?s:.*)nosuch"
    ):
        run_child(Case("broken", "head", "nosuch", asdict(HEAD)))


def test_a_killed_child_is_reported(monkeypatch, tmp_path):
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with pytest.raises(UserError, match="SIGKILL"):
        run_child(Case("ours", "head", "ours", asdict(HEAD)))


def test_what_the_user_can_mend_comes_without_the_childs_traceback():
    with pytest.raises(UserError, match=r"^nosuch\.jsonl: no such data file"):
        run_child(
            Case("student packed", "scoring", "student packed", asdict(SCORING) | {"data": "nosuch.jsonl"})
        )


TINY = {
    "head": ["--tokens", "16", "--width", "8", "--vocabulary", "64", "--slope", "8,16"],
    "scoring": ["--data", "pocket:eval:1", "--reply", "5", "--width", "16", "--layers", "1"],
    "step": ["--model", "pocket", "--rollouts", "1"],
    "rollout": ["--data", "pocket:eval:9", "--conversations", "2", "--turns", "4", "--reply", "6"],
}


@pytest.mark.parametrize("verb", list(TINY))
def test_json_is_one_object_and_the_table_shows_every_row(in_process, verb):
    run = CliRunner()
    answer = run.invoke(app, [verb, "--reps", "1", *TINY[verb], "--json"], catch_exceptions=False)
    report = json.loads(answer.stdout)
    assert report["bench"] == verb
    assert {"machine", "settings", "reps", "results", "ratios", "notes"} <= set(report)
    table = run.invoke(app, [verb, "--reps", "1", *TINY[verb]], catch_exceptions=False).stdout
    assert all(row["name"] in table for row in report["results"])
    assert f"Example: python -m benchmarks {verb}" in run.invoke(app, [verb, "--help"]).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["head", "--slope", "1,x"], "--slope"),
        (["scoring", "--width", "12"], "--width"),
        (["step", "--model", "gpt"], "--model"),
        (["scoring", "--history", "x"], "--history"),
        (["rollout", "--history", "x"], "--history"),
        (["rollout", "--data", "pocket:eval:2", "--turns", "99"], "only 0 examples of 99 turns"),
    ],
)
def test_bad_options_are_named(arguments, message):
    answer = CliRunner().invoke(app, arguments)
    assert isinstance(answer.exception, UserError)
    assert message in str(answer.exception)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "benchmarks" / "README.md"], ids=lambda page: page.name)
def test_the_parser_takes_every_command_of_the_documentation(page):
    for line in re.findall(r"python -m benchmarks ([^`\n#>]+)", page.read_text(encoding="utf-8")):
        verb, *arguments = shlex.split(line)
        get_command(app).commands[verb].make_context(verb, arguments)


def test_both_ways_of_sampling_a_block_sample_the_same(in_process):
    result = ahead.report(ahead.Blocks(conversations=2, ahead=2, middle=6, answer=8), 1)
    together, by_step = result["results"]
    assert together["sampled_tokens"] == by_step["sampled_tokens"] > 0
    assert result["notes"][0].startswith("together: ")
    with pytest.raises(UserError, match="holds 3 examples, 2 steps need 4"):
        ahead.report(ahead.Blocks(data="pocket:train:3", conversations=2, ahead=2), 1)
