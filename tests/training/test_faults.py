"""What may go wrong in a step: no memory, no finite gradient, no reply, a verifier that dies."""

import dataclasses
import logging
import os

import pytest
import torch
from support.runs import rows, set_words, take_step, trainer_of

from smopd.config import load_config
from smopd.data import load_examples, save_examples
from smopd.errors import UserError
from smopd.models.adapters import adapter_parameters
from smopd.rollout import Sampled, Stop
from smopd.runs.writer import RunFolder
from smopd.training import step_scoring

SETTINGS = ["train.steps=4", "train.rollouts=3", "train.micro_batch=2", "rollout.middle_tokens=12",
            "rollout.answer_tokens=16", "lora.r=4", "lora.alpha=8", "train.row_tokens=4096"]  # fmt: skip


def trainer(path, *more):
    return trainer_of(path, *SETTINGS, *more)


def weights(of):
    return [p.detach().clone() for p in adapter_parameters(of.model)]


def same(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB")
CPU = RuntimeError(
    "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: "
    "you tried to allocate 9 bytes"
)


@pytest.mark.parametrize("error", [GPU, CPU], ids=["gpu", "cpu"])
def test_without_memory_it_scores_smaller_rows_and_the_update_is_the_same(
    tmp_path, monkeypatch, caplog, error
):
    undisturbed = trainer(tmp_path / "a")
    first = take_step(undisturbed, 1)
    disturbed = trainer(tmp_path / "b")
    real, tried = step_scoring.score, []

    def small_memory(model, renderer, part, plan, moment, peers, row_tokens, *rest):
        tried.append((len(part), disturbed.scorer.recomputes, row_tokens))
        if len(part) > 1 or not disturbed.scorer.recomputes or row_tokens > 1024:
            raise error
        return real(model, renderer, part, plan, moment, peers, row_tokens, *rest)

    monkeypatch.setattr(step_scoring, "score", small_memory)
    with caplog.at_level(logging.WARNING, "smopd"):
        second = take_step(disturbed, 1)
    # Two micro-batches of 2 and 1 rollouts: first parts, then recomputing, then smaller rows; what was learnt
    # stays.
    less = [(1, False, 4096), (1, True, 4096), (1, True, 2048), (1, True, 1024)]
    assert tried == [(2, False, 4096), *less, (1, True, 1024), (1, True, 1024)]
    assert "rows of 1024 tokens" in caplog.text
    assert second["loss"] == pytest.approx(first["loss"], rel=1e-6)
    for a, b in zip(weights(undisturbed), weights(disturbed), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)


def test_a_backward_pass_without_memory_leaves_no_half_gradient(tmp_path, monkeypatch):
    undisturbed = trainer(tmp_path / "a")
    take_step(undisturbed, 1)
    real, calls = torch.autograd.grad, []

    def grad(loss, parameters, **more):
        calls.append(1)
        gradients = real(loss, parameters, **more)
        if len(calls) == 2:
            raise torch.OutOfMemoryError("out of memory")
        return gradients

    monkeypatch.setattr(torch.autograd, "grad", grad)
    disturbed = trainer(tmp_path / "b")
    take_step(disturbed, 1)
    assert len(calls) == 3  # the second micro-batch is one rollout: differentiated again, recomputing
    for a, b in zip(weights(undisturbed), weights(disturbed), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)  # parts are added up in another order


def test_where_nothing_is_small_enough_it_says_what_to_change(tmp_path, monkeypatch):
    def none(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(step_scoring, "score", none)
    with pytest.raises(UserError, match=r"(?s)rows of 64 tokens.*train\.recompute"):
        take_step(trainer(tmp_path / "a"), 1)


def test_another_error_is_not_taken_for_it(tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("size mismatch")

    monkeypatch.setattr(step_scoring, "score", broken)
    with pytest.raises(RuntimeError, match="size mismatch"):
        take_step(trainer(tmp_path / "a"), 1)


def spoil(monkeypatch, steps):
    """Losses that are no numbers, in these calls of `score` (two a step)."""
    real, calls = step_scoring.score, []

    def score(*args):
        calls.append(1)
        losses = real(*args)
        if (len(calls) + 1) // 2 in steps:
            losses[0] = dataclasses.replace(losses[0], total=losses[0].total * float("nan"))
        return losses

    monkeypatch.setattr(step_scoring, "score", score)


def test_a_step_without_a_finite_gradient_changes_nothing_and_is_counted(tmp_path, monkeypatch):
    spoil(monkeypatch, {1})
    run = trainer(tmp_path / "a", "train.save_rollouts=false")
    before = weights(run)
    row = take_step(run, 1)
    assert (row["skipped"], row["grad_norm"]) == (1, None)
    assert same(before, weights(run))
    assert not run.optimizer.state
    kept = rows(tmp_path / "a" / "rollouts" / "step-000001.jsonl")  # though rollouts are not asked for
    assert [r["loss"] is None for r in kept] == [True, False, True]
    assert take_step(run, 2)["skipped"] == 0
    assert not same(before, weights(run))


def test_it_stops_after_several_such_steps_in_a_row_also_over_a_restart(tmp_path, monkeypatch):
    spoil(monkeypatch, {1, 2, 3, 4})
    run = trainer(tmp_path / "a", "train.max_skipped=2")
    with pytest.raises(UserError, match=r"(?s)2 steps in a row.*step 2.*rollouts.*max_skipped"):
        run.train()
    assert [row["skipped"] for row in run.folder.metrics()] == [1, 1]
    again = trainer(tmp_path / "a", "train.max_skipped=2")
    assert again.step == 2
    with pytest.raises(UserError, match="in a row"):
        again.train()
    patient = trainer(tmp_path / "a", "train.max_skipped=9")  # the way out that the message names
    patient.train()
    assert patient.step == 4


BROKEN = """
import torch

from smopd.methods import Method
from smopd.objective import Plan, Term, every, hard, whole_task
from smopd.rollout.play import Play
from smopd.scoring import reverse_kl
from smopd.settings import Section


class Nan:
    name = "nan"

    def value(self, rows):
        trained = rows.student.shape[-1] != 4096  # that many words has a dry run
        return rows.student.sum(-1) * (float("nan") if trained else 1.0)


def nothing(tokens):
    return torch.zeros_like(tokens.entropy)


def plan(s):
    return Plan((Play(),), (Term("broken", PARTS),))


METHODS = [Method("broken", "broken", "broken", "none", Section, plan)]
"""


@pytest.mark.parametrize(
    ("parts", "cause"),
    [
        ("every, whole_task, Nan(), cap=hard(0.5)", "the loss is not finite on {n} of {n} tokens"),
        ("every, lambda reply, peers: [], reverse_kl()", "the teacher had no context for any of its "),
        ("every, whole_task, reverse_kl(), nothing", "the token weight kept none of {n} tokens (nothing)"),
    ],
    ids=["nan", "no context", "kept nothing"],
)
def test_a_method_that_cannot_give_a_gradient_is_stopped_with_the_cause(tmp_path, caplog, parts, cause):
    """What else can be the cause: test_no_gradient.py."""
    (tmp_path / "mine.py").write_text(BROKEN.replace("PARTS", parts))
    run = trainer(tmp_path / "a", f"method={tmp_path / 'mine.py'}", "train.max_skipped=2")
    before = weights(run)
    with caplog.at_level(logging.WARNING, "smopd"), pytest.raises(UserError) as stopped:
        run.train()
    assert same(before, weights(run))
    assert [row["skipped"] for row in run.folder.metrics()] == [1, 1]
    tokens = [row["tokens/sampled"] for row in run.folder.metrics()]
    messages = [f"term 'broken': {cause.format(n=n)}" for n in tokens]
    assert f"mine.py), the last of them step 2: {messages[1]}" in str(stopped.value)
    for step, message in enumerate(messages, 1):
        assert f"step {step}: no gradient, the step changed nothing: {message}" in caplog.text


def test_groups_that_are_all_wrong_do_not_stop_a_run(tmp_path, caplog):
    small = ("method=grpo", "objective.samples=2", "train.rollouts=2", "train.max_skipped=2", "train.steps=3")
    run = trainer(tmp_path / "a", *small)
    run.engine.generate = lambda prompts, *_: [Sampled((5, 6), Stop.LENGTH)] * len(prompts)
    with caplog.at_level(logging.WARNING, "smopd"):
        run.train()
    assert [(row["empty"], row["skipped"]) for row in run.folder.metrics()] == [(1, 0)] * 3
    assert "term 'policy': all advantages are 0" in caplog.text


def test_a_batch_of_empty_replies_changes_nothing_and_the_run_goes_on(tmp_path, caplog):
    run = trainer(tmp_path / "a", "objective.rho=1.0")
    before, real = weights(run), run.engine.generate
    run.engine.generate = lambda prompts, *_: [Sampled((), Stop.LENGTH)] * len(prompts)
    with caplog.at_level(logging.WARNING, "smopd"):
        row = take_step(run, 1)
    assert (row["empty"], row["skipped"], row["loss"], row["eligible_turns"]) == (1, 1, 0.0, 0)
    assert "term 'full': all of its 3 replies are empty" in caplog.text
    assert same(before, weights(run))
    run.engine.generate = real
    assert take_step(run, 2)["empty"] == 0
    assert not same(before, weights(run))


def test_without_a_middle_turn_the_answer_still_counts(tmp_path):
    examples = [dataclasses.replace(e, shards=e.shards[:1]) for e in load_examples("pocket:train:6")]
    save_examples(tmp_path / "short.jsonl", examples)
    row = take_step(trainer(tmp_path / "a", f"data.train={tmp_path / 'short.jsonl'}"), 1)
    assert (row["eligible_turns"], row["loss/middle"]) == (0, 0.0)
    assert row["loss/answer"] > 0
    assert row["grad_norm"] > 0


def test_a_verifier_that_dies_is_counted_and_the_run_goes_on(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import os\nfrom smopd.evaluation import verifier\n\n"
        "@verifier('fatal')\ndef fatal(answer, reply):\n    return reply != '' and os._exit(3)\n"
    )
    examples = [dataclasses.replace(e, task="fatal") for e in load_examples("pocket:train:6")]
    save_examples(tmp_path / "data.jsonl", examples)
    settings = [f"data.train={tmp_path / 'data.jsonl'}", f"data.verifiers=[{str(tmp_path / 'mine.py')!r}]"]
    row = take_step(trainer(tmp_path / "a", *settings), 1)
    assert row["verdict/error"] == 3
    assert row["outcome"] == 0.0
    assert row["grad_norm"] > 0


def test_a_second_process_on_the_same_run_is_refused(smopd, tmp_path):
    config = load_config("pocket", SETTINGS)
    with RunFolder(tmp_path / "run", config).lock():
        code, _, err = smopd("train", "pocket", "--out", "run", *set_words(SETTINGS))
    assert code == 2
    assert "another process works on this run" in err
    assert str(os.getpid()) in err
