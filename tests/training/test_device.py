"""Training on a device that is not the CPU: no mixture, the results of the CPU, and no host that waits for
tokens.
"""

from pathlib import Path

import pytest
import torch
from support.runs import checkpoint, metrics, rows, take_step, train, trainer_of
from support.strict_device import DEVICE, strict_device

from smopd.devices import default_device, using
from smopd.methods import METHODS
from smopd.objective import rollout_loss
from smopd.objective.loss import RolloutLoss, TermLoss
from smopd.scoring import TokenStats
from smopd.study.gradients import gradient_shares
from smopd.training import monitor
from smopd.training.processes import Processes
from smopd.training.scores import to_host, without_graph

SMALL = ["train.steps=2", "train.rollouts=2", "train.micro_batch=2", "rollout.middle_tokens=6",
         "rollout.answer_tokens=10", "data.train=pocket:train:20", "lora.r=4", "lora.alpha=8",
         "optim.lr=5e-6", "optim.warmup_steps=0"]  # fmt: skip
# What the two devices add up in another order, or what is rounding and nothing else.
ROUNDED = {"rollout/logp_gap", "rollout/logp_gap_max"}


@pytest.fixture
def counts():
    """Inside, every run is on the strict device."""
    with strict_device() as counts, using(DEVICE):
        yield counts


def on_strict(path: Path, *settings: str, method: str | None = None) -> Path:
    with strict_device(), using(DEVICE):
        trainer = trainer_of(path, *settings, method=method)
        assert {p.device for p in trainer.model.parameters()} == {DEVICE}
        trainer.train()
    return path


def assert_same(cpu: Path, strict: Path, rel: float = 1e-4, but: frozenset[str] = frozenset()) -> None:
    """The same tokens, and everything else to rounding: sums are in another order."""
    pairs = list(zip(metrics(cpu), metrics(strict), strict=True))
    assert pairs
    for x, y in pairs:
        x, y = ({k: v for k, v in row.items() if k not in ROUNDED | but} for row in (x, y))
        missing = [k for k, v in x.items() if v is None]
        assert missing == [k for k, v in y.items() if v is None]
        x, y = ({k: v for k, v in row.items() if v is not None} for row in (x, y))
        assert x == pytest.approx(y, rel=rel, abs=1e-6)
    for file in sorted((cpu / "rollouts").iterdir()):
        x, y = (
            [{**row, "loss": None} for row in rows(run / "rollouts" / file.name)] for run in (cpu, strict)
        )
        assert x == y
    for name in ("adapter_model", "teacher", "optimizer"):
        a, b = (checkpoint(run, len(pairs), name) for run in (cpu, strict))
        assert a.keys() == b.keys()
        for key in a:
            # Adam divides a gradient by its own size: where that is near rounding, it may point anywhere.
            torch.testing.assert_close(a[key], b[key], rtol=10 * rel, atol=1e-6 if rel < 1e-3 else 2e-5)
        if name == "optimizer":
            a, b = (torch.cat([t.flatten() for k, t in part.items() if "exp_avg" in k]) for part in (a, b))
            assert (a - b).norm() <= 10 * rel * a.norm()


def test_the_device_of_a_run_is_the_default_one():
    assert Processes().device == default_device()
    with using(DEVICE):
        assert Processes().device == default_device() == DEVICE
    assert default_device() != DEVICE


@pytest.mark.parametrize(
    ("more", "rel"),
    [((), 1e-4), (("model.dtype=bfloat16",), 2e-2), (("train.recompute=true", "train.micro_batch=1"), 1e-4)],
    ids=["float32", "bfloat16", "recompute"],
)
def test_a_run_is_that_of_the_cpu(tmp_path, more, rel):
    settings = [*SMALL, *more, "train.save_tokens=true"]
    assert_same(train(tmp_path / "cpu", *settings), on_strict(tmp_path / "strict", *settings), rel)


# Together every kind of part: masks and turn weights, a group with a survey, auxiliary contexts, mixed
# contexts of the base, advantages, no teacher, balanced terms, ranks of a sum.
FAMILIES = ["reopold", "unisd", "ogls-sd", "grpo", "sft", "rlsta", "balanced", "soft-or", "scope"]
# They learn from right answers, or from those among wrong ones: replies must have room for them.
LONG = ["rollout.middle_tokens=16", "rollout.answer_tokens=40"]


@pytest.mark.parametrize("method", FAMILIES)
def test_every_kind_of_method(tmp_path, method):
    grouped = "samples" in METHODS[method].section.model_fields
    settings = [*SMALL, "train.steps=1", "train.rollouts=3", *(["objective.samples=3"] if grouped else [])]
    settings += LONG if method in ("grpo", "sft") else ()
    cpu = train(tmp_path / "cpu", *settings, method=method)
    assert not metrics(cpu)[0]["empty"]
    # Its weights are log-ratios: where student and teacher are equal, rounding decides whether one is 0.
    but = frozenset({"kept"}) if method == "scope" else frozenset[str]()
    assert_same(cpu, on_strict(tmp_path / "strict", *settings, method=method), but=but)


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    """A step on the CPU, one on the device: checkpoints are of no device."""
    whole = train(tmp_path / "whole", *SMALL, "train.checkpoint_every=1")
    trainer = trainer_of(tmp_path / "parts", *SMALL, "train.checkpoint_every=1")
    take_step(trainer, 1)
    trainer.save()
    on_strict(tmp_path / "parts", *SMALL, "train.checkpoint_every=1")
    assert_same(whole, tmp_path / "parts")


def test_evaluation_while_training(tmp_path, monkeypatch):
    settings = [*SMALL, "train.steps=1", "train.eval_every=1", "data.eval=pocket:eval:2", "eval.tokens=16",
                "eval.middle_tokens=6"]  # fmt: skip
    played, evaluate = [], monitor.evaluate

    def remembered(*args):
        outcomes = evaluate(*args)
        played.append([(o.id, o.view, o.turns) for o in outcomes])
        return outcomes

    monkeypatch.setattr(monitor, "evaluate", remembered)
    cpu, strict = train(tmp_path / "cpu", *settings), on_strict(tmp_path / "strict", *settings)
    assert_same(cpu, strict)
    assert played[0] == played[1]
    assert sum(turn["tokens"] for _, _, turns in played[0] for turn in turns) > 20
    assert rows(cpu / "evaluations.jsonl") == rows(strict / "evaluations.jsonl")


def test_gradients_of_dropped_tokens_with_a_survey(tmp_path):
    run = train(tmp_path / "run", *SMALL, "train.steps=1", method="tip")
    expected = gradient_shares(run, examples=2)
    with strict_device(), using(DEVICE):
        shares = gradient_shares(run, examples=2)
    assert shares.pop("checkpoint") == expected.pop("checkpoint")
    assert shares.pop("terms") == pytest.approx(expected.pop("terms"), rel=1e-3)
    assert shares == pytest.approx(expected, rel=1e-3, abs=1e-3)  # two nearly orthogonal gradients


def test_a_rollout_without_tokens_is_a_zero_of_the_device(counts):
    empty = TokenStats(*(torch.zeros(0, dtype=torch.float64, device=DEVICE) for _ in range(5)))
    losses = rollout_loss([empty], empty)
    assert losses.total.device == DEVICE
    assert losses.total.dtype == torch.float64
    assert losses.total.item() == 0
    assert (losses.total + torch.ones(1, device=DEVICE)).tolist() == [1]


def test_a_step_without_a_token_changes_nothing(tmp_path, monkeypatch, counts):
    trainer = trainer_of(tmp_path / "run", *SMALL)
    played = trainer.player.play

    def silent(step):
        samples = played(step)
        for _, _, plays in samples:
            for _, conversation in plays:
                conversation.turns[:] = [type(t)(**{**vars(t), "reply": ()}) for t in conversation.turns]
        return samples

    monkeypatch.setattr(trainer.player, "play", silent)
    row = take_step(trainer, 1)
    assert (row["loss"], row["empty"]) == (0, 1)


def test_a_step_is_copied_to_the_host_at_once(counts):
    def stats(count: int) -> TokenStats:
        return TokenStats(*(torch.rand(count, device=DEVICE) for _ in range(6)))

    def losses(replies: int) -> list[RolloutLoss]:
        rollout_losses = []
        for number in range(3):
            of_reply = [stats(number + 2) for _ in range(replies)]
            over = tuple(s.entropy > 0.5 for s in of_reply)
            term = TermLoss(torch.ones((), device=DEVICE), (), tuple(of_reply), over)
            rollout_losses.append(RolloutLoss(term.value, {"a": term}, tuple((None, s) for s in of_reply)))
        return rollout_losses

    for count in (1, 5):
        on_device = losses(count)
        counts.clear()
        on_host = without_graph(on_device)
        assert counts.syncs == 2  # float32 and bool
        for a, b in zip(on_device, on_host, strict=True):
            assert b.scored[0][1].entropy is b.terms["a"].stats[0].entropy
            for x, y in zip(a.terms["a"].stats, b.terms["a"].stats, strict=True):
                assert y.divergence.is_cpu
                assert torch.equal(x.divergence.cpu(), y.divergence)
                assert y.divergence.untyped_storage().nbytes() == 4 * len(y.divergence)
    shaped = torch.arange(6.0, device=DEVICE).view(2, 3)
    cpu = torch.ones(2)
    assert to_host([shaped, cpu])[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert to_host([shaped, cpu])[1].data_ptr() == cpu.data_ptr()
