"""Scoring against a reference that takes one sequence at a time through the whole model, in float64."""

from dataclasses import replace

import pytest
import torch

from smopd.chat import Renderer, clean_context, full_context
from smopd.config import Objective
from smopd.data import load_examples
from smopd.evaluation import verify
from smopd.models.adapters import as_teacher, attach, student_parameters
from smopd.objective import rollout_loss
from smopd.rollout import Driver, HFEngine, Sampling
from smopd.scoring.divergence import TokenStats
from smopd.settings import Lora
from smopd.training.scoring_step import FAST, PLAIN, Rollout, score


@pytest.fixture
def scene(pocket):
    """A float64 model whose student has left its teacher, and five rollouts of it, two with a FULL branch."""
    model = attach(pocket.model, Lora(r=4, alpha=8), seed=1)
    driver = Driver(
        HFEngine(model, pocket.renderer.end_ids, 8), pocket.renderer, Sampling(1.0, 20, 0.95, 20), 30
    )
    examples = load_examples("pocket:train:5")
    sharded, full = driver.play(examples, "sharded", (1,)), driver.play(examples[:2], "full", (1,))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in student_parameters(model).values():
            p.add_(0.03 * torch.randn(p.shape, generator=g))
    model.double()
    rollouts = [
        Rollout(c, full[i] if i < 2 else None, verify(c.example, c.final_text)) for i, c in enumerate(sharded)
    ]
    return model, pocket.renderer, rollouts


def logp(model, context, reply) -> torch.Tensor:
    """Log-distributions that predict the reply, one full forward pass, no padding."""
    ids = torch.tensor([[*context, *reply]])
    return model(input_ids=ids).logits[0, len(context) - 1 : -1].log_softmax(-1)


def reference(model, renderer, rollout, keep: float, eta: float) -> torch.Tensor:
    def stats(student_context, teacher_context, reply, kind) -> TokenStats:
        s = logp(model, student_context, reply)
        with as_teacher(model):
            t = logp(model, teacher_context, reply)
        if kind == "rkl":
            d = (s.exp() * (s - t)).sum(-1)
        else:
            m = ((s.exp() + t.exp()) / 2).log()
            d = 0.5 * (t.exp() * (t - m)).sum(-1) + 0.5 * (s.exp() * (s - m)).sum(-1)
        y = torch.tensor(reply)[:, None]
        return TokenStats(
            d,
            -(s.exp() * s).sum(-1).detach(),
            d.detach(),
            s.gather(-1, y)[:, 0].detach(),
            t.gather(-1, y)[:, 0],
        )

    example = rollout.sharded.example
    every = [
        stats(
            t.context,
            clean_context(renderer, example, i),
            t.reply,
            "rkl" if i == len(example.shards) - 1 else "gjs",
        )
        for i, t in enumerate(rollout.sharded.turns)
    ]
    full = None
    if rollout.full:
        turn = rollout.full.turns[0]
        full = stats(turn.context, full_context(renderer, example), turn.reply, "rkl")
    return rollout_loss(
        every[:-1], every[-1], full, correct=rollout.verdict.correct, keep=keep, eta=eta
    ).total


def gradient(model) -> torch.Tensor:
    found = torch.cat([p.grad.flatten() for p in student_parameters(model).values()])
    model.zero_grad()
    return found


@pytest.mark.parametrize(("keep", "eta"), [(1.0, 0.0), (0.8, 0.2)])
def test_equals_one_sequence_at_a_time_in_value_and_gradient(scene, keep, eta):
    model, renderer, rollouts = scene
    losses, turns = score(model, renderer, rollouts, Objective(eta=eta), keep)
    torch.stack([x.total for x in losses]).mean().backward()
    ours = gradient(model)
    expected = [reference(model, renderer, r, keep, eta) for r in rollouts]
    torch.stack(expected).mean().backward()
    torch.testing.assert_close(
        torch.stack([x.total for x in losses]), torch.stack(expected), rtol=1e-9, atol=1e-11
    )
    # the norms inside the model compute in float32 whatever its dtype
    torch.testing.assert_close(ours, gradient(model), rtol=1e-4, atol=1e-8)
    assert [len(t) for t in turns] == [len(r.sharded.turns) + bool(r.full) for r in rollouts]


def test_micro_batches_padding_and_order_change_nothing(scene):
    model, renderer, rollouts = scene
    whole, _ = score(model, renderer, rollouts, Objective(), 0.8)
    torch.stack([x.total for x in whole]).mean().backward()
    expected = gradient(model)
    for order in ([[0, 1, 2, 3, 4]], [[4], [2, 0], [1, 3]], [[i] for i in range(5)]):
        found = {}
        for group in order:
            losses, _ = score(model, renderer, [rollouts[i] for i in group], Objective(), 0.8)
            (torch.stack([x.total for x in losses]).sum() / 5).backward()
            found |= dict(zip(group, losses, strict=True))
        for i in range(5):
            torch.testing.assert_close(found[i].total, whole[i].total, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=1e-8)


def test_a_random_mask_depends_on_its_draw_and_not_on_the_batch(scene):
    model, renderer, rollouts = scene
    objective = Objective(ranking="random")

    def masks(group, draw):
        losses, turns = score(model, renderer, group, objective, 0.5, draw=draw)
        assert [[len(m) for m in x.masks] for x in losses] == [
            [len(t.tokens) for t in y if t.part == "middle"] for y in turns
        ]
        return [m.tolist() for x in losses for m in x.masks]

    whole = masks(rollouts, (7, 3))
    assert whole == [m for r in rollouts for m in masks([r], (7, 3))]
    assert whole != masks(rollouts, (7, 4))
    assert whole != masks(rollouts, (8, 3))


def test_the_teacher_gets_no_gradient_and_the_base_none_either(scene):
    model, renderer, rollouts = scene
    losses, _ = score(model, renderer, rollouts[:1], Objective(), 1.0)
    losses[0].total.backward()
    with_grad = {n for n, p in model.named_parameters() if p.grad is not None}
    assert with_grad
    assert all(".default." in n for n in with_grad)


def test_before_the_first_update_only_the_context_makes_a_difference(pocket):
    """Student and teacher are equal: the first turn (same context for both) and the FULL branch cost nothing,
    later turns do.
    """
    model = attach(pocket.model, Lora(r=4, alpha=8), seed=1)
    driver = Driver(
        HFEngine(model, pocket.renderer.end_ids, 8), pocket.renderer, Sampling(1.0, 30, 0.95, 20), 30
    )
    examples = load_examples("pocket:train:3")
    rollouts = [
        Rollout(s, f, None)
        for s, f in zip(
            driver.play(examples, "sharded", (1,)), driver.play(examples, "full", (1,)), strict=True
        )
    ]
    losses, turns = score(model, pocket.renderer, rollouts, Objective(), 1.0)
    for loss, scored in zip(losses, turns, strict=True):
        assert scored[0].stats.divergence.abs().max() < 1e-5
        assert scored[1].stats.divergence.max() > 1e-3
        assert loss.full.abs() < 1e-5


def test_empty_replies_are_left_out(scene):
    model, renderer, rollouts = scene
    conversation = rollouts[2].sharded
    emptied = replace(conversation.turns[0], reply=())
    conversation.turns[0] = emptied
    losses, turns = score(model, renderer, [rollouts[2]], Objective(), 1.0)
    assert len(turns[0]) == len(conversation.turns) - 1
    assert len(losses[0].deltas) == len(conversation.turns) - 2
    nothing = Rollout(
        type(conversation)(
            conversation.example, "sharded", [replace(t, reply=()) for t in conversation.turns]
        ),
        None,
        None,
    )
    assert score(model, renderer, [nothing], Objective(), 1.0)[0][0].total.item() == 0


def test_the_vocabulary_clip_is_another_loss(scene):
    model, renderer, rollouts = scene
    position = score(model, renderer, rollouts[:1], Objective(clip=0.05), 1.0)[0][0]
    vocab = score(model, renderer, rollouts[:1], Objective(clip=0.05, clip_level="vocab"), 1.0)[0][0]
    assert position.total != vocab.total
    assert vocab.clipped["middle"][0] == 0


# As Qwen3's: what the generation prompt wrote is gone from the history, so no turn's tokens begin the next
# turn's.
FORGETFUL = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] + '<|end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><|user|>' }}{% endif %}"
)


@pytest.mark.parametrize("template", [None, FORGETFUL], ids=["preserving", "forgetful"])
@pytest.mark.parametrize("history", ["template", "verbatim"])
@pytest.mark.parametrize(
    ("objective", "keep"),
    [
        (Objective(), 1.0),
        (Objective(eta=0.2, clip=0.05), 0.8),
        (Objective(beta_mid=0.0, beta_final=0.3), 0.5),
        (Objective(beta_mid=1.0, beta_final=0.0, clip=0.1, clip_level="vocab"), 0.8),
        (Objective(ranking="random", clip=0.05, clip_mode="scale"), 0.5),
        (Objective(ranking="inverted", denominator="all", clip=0.05), 0.8),
        (Objective(ranking="divergence", clip=0.05), 0.3),
    ],
)
def test_the_fast_path_equals_the_plain_one(pocket, template, history, objective, keep):
    renderer = pocket.renderer
    if template:
        renderer.tokenizer.chat_template = template
        renderer = Renderer(renderer.tokenizer, end_ids=renderer.end_ids)
    model = attach(pocket.model, Lora(r=4, alpha=8), seed=1)
    driver = Driver(HFEngine(model, renderer.end_ids, 8), renderer, Sampling(1.0, 20, 0.95, 20), 30, history)
    examples = load_examples("pocket:train:3")
    rollouts = [
        Rollout(c, f, verify(c.example, c.final_text))
        for c, f in zip(
            driver.play(examples, "sharded", (1,)), driver.play(examples, "full", (1,)), strict=True
        )
    ]
    turns = rollouts[0].sharded.turns
    continues = turns[1].context[: len(turns[0].context)] == turns[0].context
    assert continues == (template is None or history == "verbatim")
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in student_parameters(model).values():
            p.add_(0.03 * torch.randn(p.shape, generator=g))
    found = []
    for path in (FAST, PLAIN):
        losses, _ = score(model, renderer, rollouts, objective, keep, row_tokens=200, path=path)
        torch.stack([x.total for x in losses]).mean().backward()
        found.append((torch.stack([x.total.detach() for x in losses]), gradient(model)))
    (ours, our_gradient), (theirs, their_gradient) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert our_gradient.abs().max() > 1e-4
    torch.testing.assert_close(
        our_gradient, their_gradient, rtol=0, atol=1e-4 * our_gradient.abs().max().item()
    )
