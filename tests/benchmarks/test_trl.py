"""The step against TRL's, at tiny sizes: both sides compute the same divergences, loss, gradient and average.
No test here looks at a time.
"""

import json

import pytest
import torch
from typer.testing import CliRunner

from benchmarks import measure
from benchmarks import trl as bench
from benchmarks.__main__ import app
from benchmarks.child import measured
from smopd.errors import UserError
from smopd.models.adapters import student_parameters, teacher_parameters
from smopd.training.scores import FAST, PLAIN, ScoringPath, score

pytest.importorskip("trl")
pytest.importorskip("datasets")
TINY = bench.Steps(conversations=2, reply=6, layers=2, width=36, vocabulary=896, rank=4)


@pytest.fixture(scope="module")
def steps():
    """Both sides after their step: ours, TRL's, and what each run returned."""
    ours, trl = bench.OurStep(TINY), bench.TrlStep(TINY)
    divergences = our_divergences(ours, FAST), our_divergences(ours, PLAIN), trl_divergences(trl)
    return ours, trl, ours.run(), trl.run(), divergences


def our_divergences(step: bench.OurStep, path: ScoringPath) -> list[torch.Tensor]:
    trainer = step.trainer
    rollouts = [bench.Rollout(c.example, (c,), (None,)) for c in bench.given_conversations(TINY)]
    moment = bench.Moment(1, 1, (0, 1))
    losses = score(trainer.model, trainer.renderer, rollouts, trainer.plan, moment, path=path)
    return [stats.divergence.detach() for loss in losses for _, stats in loss.scored]


def trl_divergences(step: bench.TrlStep) -> list[torch.Tensor]:
    from trl.experimental.sdft.loss_utils import compute_full_logit_self_distillation_loss

    trainer = step.trainer
    (callback,) = [c for c in trainer.callback_handler.callbacks if hasattr(c, "_initialize_teacher_adapter")]
    callback._initialize_teacher_adapter()
    trainer.model.train()
    batch = trainer._prepare_training_batch(list(trainer.train_dataset))
    logits = trainer._compute_teacher_student_logits(trainer.model, trainer.teacher_model, batch)
    divergences = compute_full_logit_self_distillation_loss(
        logits.student_logits.double(), logits.teacher_logits.double(), distillation_alpha=bench.BETA
    )
    step.sampled, step.sampling_seconds = 0, 0.0
    return [
        row[mask.bool()].detach().float() for row, mask in zip(divergences, logits.loss_mask, strict=True)
    ]


def test_every_token_has_the_same_divergence_on_both_sides(steps):
    fast, plain, theirs = steps[-1]
    assert [len(d) for d in fast] == [TINY.reply] * TINY.conversations * TINY.turns
    torch.testing.assert_close(plain, theirs, rtol=1e-4, atol=1e-7)
    # The fast path takes a divergence as a difference of entropies, whose last digit is 1e-6.
    torch.testing.assert_close(fast, theirs, rtol=1e-4, atol=2e-5)
    assert min(d.min() for d in theirs) > 1e-4


def test_both_steps_have_the_same_loss_and_gradient(steps):
    _, _, ours, theirs, (divergences, _, _) = steps
    assert ours["loss"] == pytest.approx(torch.stack(divergences).double().mean().item(), rel=1e-5)
    assert theirs["loss"] == pytest.approx(ours["loss"], rel=1e-3)
    assert theirs["gradient_norm"] == pytest.approx(ours["gradient_norm"], rel=1e-4)


def test_both_sides_sample_as_many_tokens_and_average_after_the_update(steps):
    ours, trl, *_ = steps
    assert ours.sampled == trl.sampled == TINY.conversations * TINY.turns * TINY.reply
    mine = student_parameters(ours.model), teacher_parameters(ours.model)
    named = dict(trl.model.named_parameters())
    parts = (".default.", ".teacher.")
    theirs = [{n.replace(p, "."): w for n, w in named.items() if p in n} for p in parts]
    for student, teacher in (mine, theirs):
        assert len(teacher) == 2 * 7 * TINY.layers
        fresh = dict(zip(student, (torch.empty_like(w) for w in student.values()), strict=True))
        bench.fill_student(fresh, TINY.seed)
        for name, weight in student.items():
            assert not torch.equal(weight, fresh[name])
            torch.testing.assert_close(teacher[name], (1 - bench.DECAY) * weight)


def test_prompts_hold_their_history_and_teachers_do_not():
    sequences = bench.given_sequences(TINY)
    assert len(sequences) == TINY.conversations * TINY.turns
    lengths = [len(s.student) for s in sequences[: TINY.turns]]
    assert lengths == sorted(lengths)
    assert lengths[-1] - lengths[0] > (TINY.turns - 1) * TINY.reply
    assert max(len(s.teacher) for s in sequences) < lengths[-1]
    assert len({tuple(s.reply) for s in sequences}) == len(sequences)


def test_report_and_command_line(monkeypatch):
    def run(case):
        return json.loads(json.dumps(measured(bench.prepare(case.variant, dict(case.settings)))))

    monkeypatch.setattr(measure, "run_child", run)
    command = ["trl", "--reps", "1", "--conversations", "2", "--reply", "4", "--layers", "1", "--width", "18"]
    command += ["--vocabulary", "896", "--micro-batch", "2", "--recompute"]
    answer = CliRunner().invoke(app, [*command, "--json"], catch_exceptions=False)
    report = json.loads(answer.stdout)
    ours, trl = report["results"]
    assert (ours["name"], trl["name"]) == ("ours", "trl")
    assert report["same_loss"]
    assert ours["sampled_tokens"] == trl["sampled_tokens"] == ours["reply_tokens"] == 40
    assert ours["tokens"] < trl["tokens"]
    assert 0 < ours["sampling_seconds"] < ours["seconds"]
    table = CliRunner().invoke(app, [*command, "--no-sampling"], catch_exceptions=False).stdout
    assert "the same work" in " ".join(table.split())
    assert "sampling takes" not in table


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--width", "20"], "--width: expected a multiple of 18"),
        (["--turns", "99"], "only 0 conversations of 99 turns"),
        (["--micro-batch", "3"], "--micro-batch"),
    ],
)
def test_bad_options_are_named(options, message):
    answer = CliRunner().invoke(app, ["trl", *options])
    assert isinstance(answer.exception, UserError)
    assert message in str(answer.exception)


def test_a_missing_trl_is_said(monkeypatch):
    monkeypatch.setattr(bench, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="TRL is not installed"):
        bench.report(TINY, 1)
