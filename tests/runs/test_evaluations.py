"""The evaluations of a run: base beside trained, found wherever they are; what a report says is missing."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from support.runs import replies, rows, set_words

from smopd import Run
from smopd.config import load_config
from smopd.runs.evaluations import eval_command, evaluations_of
from smopd.viewer.pages.runs import sources_of
from smopd.viewer.results import report_data


def commands(out: str) -> list[str]:
    """The commands that a report prints below what is missing."""
    return [line.strip() for line in out.splitlines() if line.startswith("  smopd")]


def test_before_and_after_wherever_they_are_and_what_is_missing(smopd, run, tmp_path):
    code, out, err = smopd("report", "run")
    assert code == 0, err
    assert "missing: no evaluation: neither before training nor after" in out
    assert commands(out) == ["smopd eval run"]

    # Trained alone, elsewhere, in one view: the report has it and says what it lacks.
    arguments = ("eval", "run", "--limit", "3", "--views", "sharded", "--set", "eval.middle_tokens=6")
    code, out, err = smopd(*arguments, "--no-base", "--out", "after", "--json")
    assert code == 0, err
    assert "base" not in json.loads(out)
    code, out, _ = smopd("report", "run")
    assert "trained" in out
    for problem in (
        "the model before training was not evaluated on pocket:eval:4",
        "no task told at once (FULL)",
    ):
        assert f"missing: {problem}" in out
    same = "smopd eval run --set eval.middle_tokens=6 --views sharded --limit 3"
    assert commands(out) == [same, same.replace("--views sharded", "--views full,sharded")]
    page = (run / "report.html").read_text()
    assert "What is missing" in page
    assert f"<code>{same}</code>" in page
    assert "../after" in page  # where it is from
    assert [(e.side, e.path.name) for e in Run(run).evaluations] == [("step-000002", "after")]
    assert [(s.kind, s.name) for s in sources_of(0, run)] == [("after", "../after"), ("training", "training")]

    # The command it names mends it. The base comes too, and is played once.
    code, out, err = smopd(*shlex.split(commands(out)[1])[1:], "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["base"]["folder"].startswith("run/eval/base-pocket-eval-4-")
    assert result["folder"].startswith("run/eval/step-000002-pocket-eval-4-")
    assert result["change"]["sharded"]["n"] == 3
    assert replies(tmp_path / result["folder"]) != replies(tmp_path / result["base"]["folder"])
    code, out, err = smopd("report", "run")
    assert "missing" not in out
    assert "SHARDED: base against" in out
    page = (run / "report.html").read_text()
    assert "Conversations before and after" in page
    assert "What is missing" not in page
    assert smopd("report", "run", "--audit")[0] == 0
    again = smopd(*arguments, "--views", "full,sharded")
    assert again[2].count("was finished before") == 2
    assert "base" in again[1]

    # One that was moved or deleted is said; at its new place it is found again.
    shutil.move(tmp_path / "after", tmp_path / "moved")
    code, out, _ = smopd("report", "run")
    assert code == 0
    assert "missing: the evaluation of step-000002 in ../after is no longer there" in out
    assert commands(out) == [same]
    assert smopd(*arguments, "--no-base", "--out", "moved")[0] == 0
    assert "missing" not in smopd("report", "run")[1]
    shutil.rmtree(tmp_path / "moved")
    assert "../moved is no longer there" in smopd("report", "run")[1]


def test_the_same_base_is_taken_over_from_another_run_and_not_from_an_unlike_one(smopd, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    options = ("--limit", "2", "--views", "full", "--json")
    first = json.loads(smopd("eval", "run", *options)[1])["base"]
    code, out, err = smopd("eval", "other", *options)
    assert code == 0, err
    second = json.loads(out)["base"]
    assert "base FULL" not in err  # it was not played
    assert second["folder"].startswith("other/eval/base-")
    assert second["views"] == first["views"]
    shutil.rmtree(tmp_path / "run")
    evaluations, gone = evaluations_of(other, load_config(other / "config.toml"))
    assert sorted(e.side for e in evaluations) == ["base", "step-000002"]
    assert not gone
    unlike = json.loads(smopd("eval", "other", "--limit", "1", *options[2:])[1])["base"]
    assert unlike["views"]["full"]["total"] == 1


def test_what_was_evaluated_before_there_was_a_list_is_known_by_its_digest(smopd, run):
    assert smopd("eval", "run", "--limit", "2", "--views", "sharded")[0] == 0
    (run / "evaluated.jsonl").unlink()
    data = report_data(run)
    assert {a.stage for a in data.accuracies} == {"base", "trained"}
    stranger = next(iter(run.glob("eval/step-*")))
    identity = json.loads((stranger / "evaluation.json").read_text())
    (stranger / "evaluation.json").write_text(json.dumps(identity | {"adapter": "0" * 64}))
    assert {a.stage for a in report_data(run).accuracies} == {"base"}


def test_a_newer_checkpoint_and_an_unfinished_evaluation_are_missing(smopd, run):
    arguments = ("eval", "run", "--limit", "2", "--set", "eval.batch=1")
    assert smopd(*arguments)[0] == 0
    shutil.copytree(run / "checkpoints/step-000002", run / "checkpoints/step-000003")
    torn = next(iter(run.glob("eval/step-*")))
    (torn / "summary.json").unlink()
    problems = [one.what for one in report_data(run).missing]
    assert "the run was not evaluated on pocket:eval:4 (step-000003)" in problems
    assert f"the evaluation of step-000002 in eval/{torn.name} is not finished" in problems


def test_a_quickstart_that_is_lengthened_shows_its_newest_checkpoint(smopd, tmp_path):
    settings = ("data.eval=pocket:eval:2", "train.rollouts=2", "rollout.answer_tokens=8", "eval.tokens=8",
                "rollout.middle_tokens=8", "eval.middle_tokens=8")  # fmt: skip
    few = set_words(settings)
    for steps in ("1", "2"):
        code, _, err = smopd("quickstart", "--out", "q", *few, "--set", f"train.steps={steps}", "--json")
        assert code == 0, err
    listed = [(row["folder"], row["side"]) for row in rows(tmp_path / "q" / "evaluated.jsonl")]
    assert [side for _, side in listed] == ["base", "step-000001", "step-000002"]
    assert [folder for folder, _ in listed[:2]] == ["eval/base", "eval/trained"]
    data = report_data(tmp_path / "q")
    assert {a.stage for a in data.accuracies} == {"base", "step-000001", "trained"}
    assert not data.missing
    assert len(data.conversations) == 2


def test_the_base_of_a_run_that_starts_from_an_adapter_is_before_everywhere(smopd, run):
    again = ("--set", "model.adapter=run", "--set", "train.rollouts=2", "--set", "data.eval=pocket:eval:2")
    short = set_words(
        ("train.steps=1", "rollout.answer_tokens=8", "rollout.middle_tokens=8", "eval.tokens=8")
    )
    code, _, err = smopd("train", "pocket", "--out", "second", *again, *short)
    assert code == 0, err
    assert smopd("eval", "second", "--views", "full,teacher")[0] == 0
    second = run.parent / "second"
    for listed in (True, False):
        if not listed:
            (second / "evaluated.jsonl").unlink()
        second_run = Run(second)
        assert sorted(e.side for e in second_run.evaluations) == ["base", "step-000001"]
        assert [s.kind for s in sources_of(0, second) if s.kind != "training"] == ["before", "after"]
        comparison = second_run.compare("base")
        assert "/base-" in comparison["a"]
        assert not comparison["warnings"]  # the averaged teacher of a checkpoint belongs to the model
        assert not [one for one in report_data(second).missing if "before training" in one.what]


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ((), ""),
        (('data.eval="my data.jsonl"', "eval.limit=3"), " --data 'my data.jsonl' --limit 3"),
        (('eval.views=["full"]', "rules.math=strict"), " --views full --set rules.math=strict"),
        (('data.verifiers=["own.py"]',), " --set 'data.verifiers=[\"own.py\"]'"),
    ],
)
def test_the_command_is_the_one_that_was_given(settings, options):
    assert eval_command(Path("runs/x"), settings) == f"smopd eval runs/x{options}"
