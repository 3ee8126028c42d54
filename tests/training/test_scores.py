"""Scoring against a reference that takes one sequence at a time through the whole model, in float64."""

from dataclasses import replace

import pytest
import torch
from support.contexts import clean_context, full_context
from support.played import FORGETFUL, gradient, move_student, play, reply_logp, student_of, totals

from smopd.chat import Renderer
from smopd.chat.messages import full_messages, users_messages
from smopd.config import load_config, plan_of
from smopd.data import load_examples
from smopd.errors import UserError
from smopd.methods import METHODS
from smopd.methods.smopd import Settings, plan
from smopd.models import load_model
from smopd.models.adapters import student_parameters, teacher_weights
from smopd.objective import (
    Moment,
    Plan,
    Term,
    answer,
    batch,
    decide,
    entropy,
    every,
    gate,
    hard,
    middle,
    product,
    rollout_loss,
    top,
    users_only,
    whole_task,
)  # fmt: skip
from smopd.rollout import Peers, Play
from smopd.scoring import TokenStats, forward_kl, gjs, reverse_kl, sampled_nll, top_k_forward_kl
from smopd.scoring.plain import CappedHead
from smopd.settings import TrainSettings
from smopd.training import scores
from smopd.training.processes import Processes
from smopd.training.scores import FAST, PLAIN, score
from smopd.training.step_scoring import StepScorer

END = Moment(10, 10)  # the mask is on


@pytest.fixture
def scene(pocket):
    """A float64 model whose student has left its teacher, and five rollouts of it, two with a FULL branch."""
    model = student_of(pocket)
    rollouts = play(model, pocket.renderer, load_examples("pocket:train:5"), 2)
    move_student(model, 0.03)
    model.double()
    return model, pocket.renderer, rollouts


def reference(model, renderer, rollout, keep: float, eta: float) -> torch.Tensor:
    def stats(student_context, teacher_context, reply, kind) -> TokenStats:
        s = reply_logp(model, student_context, reply)
        with teacher_weights(model, "ema"):
            t = reply_logp(model, teacher_context, reply)
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

    example, sharded = rollout.example, rollout.conversations[0]
    every = [
        stats(
            t.context,
            clean_context(renderer, example, i),
            t.reply,
            "rkl" if i == len(example.shards) - 1 else "gjs",
        )
        for i, t in enumerate(sharded.turns)
    ]
    full = None
    if len(rollout.conversations) > 1:
        turn = rollout.conversations[1].turns[0]
        full = stats(turn.context, full_context(renderer, example), turn.reply, "rkl")
    return rollout_loss(
        every[:-1], every[-1], full, correct=rollout.verdict.correct, keep=keep, eta=eta
    ).total


@pytest.mark.parametrize(("keep", "eta"), [(1.0, 0.0), (0.8, 0.2)])
def test_equals_one_sequence_at_a_time_in_value_and_gradient(scene, keep, eta):
    model, renderer, rollouts = scene
    losses = score(model, renderer, rollouts, plan(Settings(keep=keep, eta=eta)), END)
    totals(losses).mean().backward()
    ours = gradient(model)
    expected = torch.stack([reference(model, renderer, r, keep, eta) for r in rollouts])
    expected.mean().backward()
    torch.testing.assert_close(totals(losses), expected, rtol=1e-9, atol=1e-11)
    # the norms inside the model compute in float32 whatever its dtype
    torch.testing.assert_close(ours, gradient(model), rtol=1e-4, atol=1e-8)
    assert [len(x.scored) for x in losses] == [len(r.replies()) for r in rollouts]


@pytest.mark.parametrize(
    ("settings", "dtype", "digits"),
    [
        (Settings(), torch.float64, 1e-10),
        (Settings(clip_mode="relative", clip_times=20), torch.float64, 1e-10),
        (Settings(clip_mode="relative", clip_times=20), torch.float32, 2e-3),  # a median near rounding
    ],
    ids=["hard", "relative", "relative in float32"],
)
def test_micro_batches_padding_and_order_change_nothing(scene, settings, dtype, digits):
    model, renderer, rollouts = scene
    model.to(dtype)
    chosen = plan(settings)
    whole = score(model, renderer, rollouts, chosen, END)
    assert any(over.any() for loss in whole for over in loss.terms["middle"].over)
    totals(whole).mean().backward()
    expected = gradient(model)
    for order in ([[0, 1, 2, 3, 4]], [[4], [2, 0], [1, 3]], [[i] for i in range(5)]):
        losses_by_index = {}
        for group in order:
            losses = score(model, renderer, [rollouts[i] for i in group], chosen, END)
            (totals(losses).sum() / 5).backward()
            losses_by_index |= dict(zip(group, losses, strict=True))
        for i in range(5):
            torch.testing.assert_close(losses_by_index[i].total, whole[i].total, rtol=digits, atol=1e-12)
        near = 1e-8 if dtype == torch.float64 else 1e-5
        torch.testing.assert_close(gradient(model), expected, rtol=1e-4, atol=near)


def test_a_random_mask_depends_on_its_draw_and_not_on_the_batch(scene):
    model, renderer, rollouts = scene
    random = plan(Settings(ranking="random", keep=0.5))

    def masks(group, draw):
        losses = score(model, renderer, group, random, Moment(10, 10, draw))
        return [m.tolist() for x in losses for m in x.terms["middle"].kept()]

    whole = masks(rollouts, (7, 3))
    assert whole == [m for r in rollouts for m in masks([r], (7, 3))]
    assert whole != masks(rollouts, (7, 4))
    assert whole != masks(rollouts, (8, 3))
    assert whole != masks([replace(r, sample=1) for r in rollouts], (7, 3))


def test_the_teacher_gets_no_gradient_and_the_base_none_either(scene):
    model, renderer, rollouts = scene
    score(model, renderer, rollouts[:1], plan(Settings()), END)[0].total.backward()
    with_grad = {n for n, p in model.named_parameters() if p.grad is not None}
    assert with_grad
    assert all(".default." in n for n in with_grad)


def test_before_the_first_update_only_the_context_makes_a_difference(pocket):
    """Student and teacher are equal: the first turn (same context for both) and the FULL branch cost nothing,
    later turns do.
    """
    model = student_of(pocket)
    rollouts = play(model, pocket.renderer, load_examples("pocket:train:3"), 3)
    for loss in score(model, pocket.renderer, rollouts, plan(Settings()), Moment(1, 10)):
        assert loss.scored[0][1].divergence.abs().max() < 1e-5
        assert loss.scored[1][1].divergence.max() > 1e-3
        assert loss.terms["full"].value.abs() < 1e-5


def test_empty_replies_are_left_out(scene):
    model, renderer, rollouts = scene
    conversation = rollouts[2].conversations[0]
    conversation.turns[0] = replace(conversation.turns[0], reply=())
    (loss,) = score(model, renderer, [rollouts[2]], plan(Settings()), END)
    assert len(loss.scored) == len(conversation.turns) - 1
    assert len(loss.terms["middle"].deltas) == len(conversation.turns) - 2
    conversation.turns[:] = [replace(turn, reply=()) for turn in conversation.turns]
    (nothing,) = score(model, renderer, [rollouts[2]], plan(Settings()), END)
    assert nothing.total.item() == 0
    assert nothing.scored == ()


def test_the_vocabulary_clip_is_another_loss(scene):
    model, renderer, rollouts = scene
    position, vocab = (
        score(model, renderer, rollouts[:1], plan(Settings(keep=1.0, clip=0.05, clip_level=level)), END)[0]
        for level in ("position", "vocab")
    )
    assert position.total != vocab.total
    assert not any(over.any() for over in vocab.terms["middle"].over)


def test_a_term_of_scale_zero_is_neither_counted_nor_computed(scene):
    model, renderer, rollouts = scene
    whole = score(model, renderer, rollouts, plan(Settings()), END)
    for off in ("middle", "answer", "full"):
        losses = score(model, renderer, rollouts, plan(Settings(**{off: 0.0})), END)
        for loss, all_of_it in zip(losses, whole, strict=True):
            assert off not in loss.terms
            rest = sum(term.value for name, term in all_of_it.terms.items() if name != off)
            torch.testing.assert_close(loss.total, rest, rtol=1e-9, atol=1e-12)
    halved = score(model, renderer, rollouts, plan(Settings(middle=0.5)), END)
    for loss, all_of_it in zip(halved, whole, strict=True):
        torch.testing.assert_close(loss.terms["middle"].value, 0.5 * all_of_it.terms["middle"].value)


def test_each_token_is_decided_once_and_kernel_and_loss_read_that(scene, monkeypatch):
    """The decision runs once for a reply and a term; whatever it says is what the loss counts and the kernel
    makes.
    """
    model, renderer, rollouts = scene
    calls = []
    original = scores.decide

    def counted(term, tokens):
        decided = original(term, tokens)
        calls.append((term.name, tokens[0].reply.example.id, tokens[0].reply.view, tokens[0].reply.turn))
        flipped = [d._replace(weight=1 - d.weight, has_gradient=d.weight == 0) for d in decided]
        return flipped if term.name == "middle" else decided

    losses = {}
    for name, function in (("as decided", original), ("the other way", counted)):
        monkeypatch.setattr(scores, "decide", function)
        losses[name] = score(model, renderer, rollouts, plan(Settings(clip=float("inf"))), END)
    assert len(calls) == len(set(calls)) == sum(len(r.replies()) for r in rollouts)
    for one, other in zip(*losses.values(), strict=True):
        for a, b, stats in zip(
            one.terms["middle"].kept(), other.terms["middle"].kept(), other.terms["middle"].stats, strict=True
        ):
            assert torch.equal(a, ~b)
            (rows,) = torch.autograd.grad(stats.divergence.sum(), stats.divergence, retain_graph=True)
            assert rows.shape == b.shape
    # the gradient of the flipped loss is the gradient of its own tokens: made by the kernel for just those
    totals(losses["the other way"]).sum().backward()
    ours = gradient(model)
    monkeypatch.setattr(scores, "decide", counted)
    totals(
        score(model, renderer, rollouts, plan(Settings(clip=float("inf"))), END, path=PLAIN)
    ).sum().backward()
    torch.testing.assert_close(ours, gradient(model), rtol=1e-4, atol=1e-8)


def hidden_logits(model, kind, context, reply):
    with teacher_weights(model, kind):
        return model(input_ids=torch.tensor([[*context, *reply]])).logits[0, len(context) - 1 : -1]


@pytest.mark.parametrize("kind", ["ema", "base", "student"])
def test_a_teacher_of_several_contexts_mixes_logits(scene, kind):
    """z0 + 0.5 * (z1 - z2) in logits, made from hidden states before the head; for each kind of teacher
    weights.
    """
    model, renderer, rollouts = scene

    def mixed(reply, peers):
        (other,) = peers.others(reply)
        return [
            (1.0, users_messages(reply.example, reply.turn)), (0.5, full_messages(reply.example)),
            (-0.5, full_messages(other)),
        ]  # fmt: skip

    peers = Peers(rollouts, (3,))
    term = Term("mixed", every, mixed, reverse_kl(), weights=kind)
    (loss,) = score(model, renderer, rollouts[2:3], Plan((Play(),), (term,)), END, peers)
    for reply, stats in loss.scored:
        z = [w * hidden_logits(model, kind, renderer.ids(m), reply.tokens) for w, m in mixed(reply, peers)]
        t, s = sum(z).log_softmax(-1), reply_logp(model, reply.context, reply.tokens)
        torch.testing.assert_close(stats.divergence, (s.exp() * (s - t)).sum(-1), rtol=1e-8, atol=1e-10)
    if kind == "ema":
        base = model.get_base_model()
        original = scores.body_and_head
        capped = lambda m: (original(m)[0], CappedHead.of(base.lm_head.weight, 5.0))  # noqa: E731
        scores_head, scores.body_and_head = scores.body_and_head, capped
        try:
            with pytest.raises(UserError, match="soft-caps"):
                score(model, renderer, rollouts[2:3], Plan((Play(),), (term,)), END, peers)
        finally:
            scores.body_and_head = scores_head
    assert all(p.requires_grad for p in student_parameters(model).values())


def test_two_terms_on_one_reply_share_its_products(scene, monkeypatch):
    """A policy gradient on every token and a gated forward KL, as one pass with two columns."""
    model, renderer, rollouts = scene
    calls = []
    path = replace(FAST, token_stats=lambda *a, **k: calls.append(len(a[4])) or FAST.token_stats(*a, **k))
    terms = (
        Term("pg", every, whole_task, sampled_nll(), tokens=lambda t: -t.log_ratio, mean_over="all"),
        Term(
            "fkl",
            every,
            whole_task,
            top_k_forward_kl(8),
            tokens=gate(lambda t: t.teacher_entropy > 0.1),
            mean_over="all",
        ),
    )
    losses = score(model, renderer, rollouts, Plan((Play(),), terms), END, path=path)
    assert calls == [2]
    totals(losses).sum().backward()
    ours = gradient(model)
    expected = []
    for rollout in rollouts:
        replies = [r for r in rollout.replies() if r.tokens]
        sums = []
        for reply in replies:
            y = torch.tensor(reply.tokens)[:, None]
            s, t = reply_logp(model, reply.context, reply.tokens), None
            with teacher_weights(model, "ema"):
                t = reply_logp(model, renderer.ids(full_messages(reply.example)), reply.tokens)
            ours_logp, theirs = s.gather(-1, y)[:, 0], t.gather(-1, y)[:, 0]
            best, entries = t.topk(8)
            kl = (best.exp() * (best - s.gather(-1, entries))).sum(-1)
            gated = (-(t.exp() * t).sum(-1) > 0.1).double()
            sums.append((-(theirs - ours_logp.detach()) * -ours_logp + gated * kl).mean())
        expected.append(torch.stack(sums).mean())
    torch.stack(expected).sum().backward()
    torch.testing.assert_close(totals(losses), torch.stack(expected), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(ours, gradient(model), rtol=1e-4, atol=1e-7)


def test_every_method_is_a_loss_of_its_own(scene):
    model, renderer, rollouts = scene
    losses, gradients = {}, {}
    family = [name for name, method in METHODS.items() if method.section is Settings]
    for method in family:
        config = load_config("pocket", ["objective.clip=0.05"], method)
        scored = score(model, renderer, rollouts, plan_of(config), END)
        totals(scored).sum().backward()
        middle_terms = [loss.terms["middle"] for loss in scored]
        losses[method] = sum(term.value for term in middle_terms).item()
        gradients[method] = gradient(model)
        kept = torch.cat([mask for term in middle_terms for mask in term.kept()]).double().mean()
        assert kept == 1.0 if config.objective.keep == 1 else 0.75 < kept < 0.9, method
    assert losses["entropy"] == pytest.approx(losses["clip-scale"])  # the same value, another gradient
    assert not torch.allclose(gradients["entropy"], gradients["clip-scale"])
    assert len({round(v, 7) for k, v in losses.items() if k != "clip-scale"}) == len(family) - 1


BATCH_TERMS = [
    Term("kept", middle, users_only, gjs(0.5), batch(top(entropy, 0.3)), hard(0.4), per="batch"),
    Term("weight", answer, whole_task, reverse_kl(), product(batch(lambda t: t.entropy / t.entropy.max()),
         gate(lambda t: t.position < 9)), per="batch", mean_over="weight"),
    Term("all", every, whole_task, forward_kl(), per="batch", mean_over="all"),
]  # fmt: skip


def test_a_batch_wide_choice_is_the_same_however_the_batch_is_cut(scene):
    model, renderer, rollouts = scene
    chosen = Plan((Play(),), tuple(replace(t) for t in BATCH_TERMS))
    assert chosen.needs_whole_step

    def in_parts(size):
        scorer = StepScorer(model, renderer, chosen, TrainSettings(micro_batch=size), Processes())
        return scorer.score(rollouts, END)[0], gradient(model)

    whole, expected = in_parts(5)
    for size in (2, 1):
        cut, ours = in_parts(size)
        torch.testing.assert_close(totals(cut), totals(whole), rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-8)
    # by hand: one quantile over all middle tokens of the batch, one division by the number kept
    middle_stats = [s for x in whole for s in x.terms["kept"].stats]
    h = torch.cat([s.entropy for s in middle_stats])
    kept = h >= torch.quantile(h, 0.7)
    d = torch.cat([s.divergence for s in middle_stats]).detach().clamp_max(0.4)
    mean = sum(x.terms["kept"].value for x in whole) / 5
    torch.testing.assert_close(mean.detach(), d[kept].sum() / kept.sum(), rtol=1e-9, atol=1e-12)
    every_d = torch.cat([s.divergence for x in whole for s in x.terms["all"].stats]).detach()
    torch.testing.assert_close(sum(x.terms["all"].value for x in whole).detach() / 5, every_d.mean())


def test_decide_is_what_a_plain_reading_of_the_parts_gives(scene):
    model, renderer, rollouts = scene
    term = plan(Settings(keep=0.5, clip=0.05)).terms[0]
    (loss,) = score(model, renderer, rollouts[:1], plan(Settings(keep=0.5, clip=0.05)), END)
    for reply, stats in zip(loss.terms["middle"].replies, loss.terms["middle"].stats, strict=True):
        (again,) = decide(term, [scores.Tokens(stats, reply, END)])
        mask = stats.entropy >= torch.quantile(stats.entropy, 0.5)
        assert torch.equal(stats.weight, mask.double())
        assert torch.equal(again.weight, stats.weight)
        assert torch.equal(again.has_gradient, mask & (stats.divergence <= 0.05))


@pytest.fixture(
    scope="module",
    params=[(template, history) for template in (None, FORGETFUL) for history in ("template", "verbatim")],
    ids=lambda pair: f"{'forgetful' if pair[0] else 'preserving'}-{pair[1]}",
)
def rendered(request, pocket_config):
    """A float32 student that has left its teacher, with rollouts of each template and history."""
    (template, history), chat = request.param, load_model(pocket_config)
    renderer = chat.renderer
    if template:
        renderer.tokenizer.chat_template = template
        renderer = Renderer(renderer.tokenizer, end_ids=renderer.end_ids)
    model = student_of(chat)
    rollouts = play(model, renderer, load_examples("pocket:train:3"), 3, history=history)
    turns = rollouts[0].conversations[0].turns
    continues = turns[1].context[: len(turns[0].context)] == turns[0].context
    assert continues == (template is None or history == "verbatim")
    move_student(model, 0.03)
    return model, renderer, rollouts


@pytest.mark.parametrize(
    "settings",
    [
        Settings(keep=1.0),
        Settings(eta=0.2, clip=0.05),
        Settings(beta_mid=0.0, beta_final=0.3, keep=0.5),
        Settings(beta_mid=1.0, beta_final=0.0, clip=0.1, clip_level="vocab"),
        Settings(ranking="random", clip=0.05, clip_mode="scale", keep=0.5, importance_cap=2.0),
        Settings(ranking="inverted", denominator="all", clip=0.05),
        Settings(ranking="divergence", clip=0.05, keep=0.3),
    ],
    ids=lambda s: "-".join(f"{k}={v}" for k, v in s.model_dump(exclude_defaults=True).items()) or "defaults",
)
def test_the_fast_path_equals_the_plain_one(rendered, settings):
    model, renderer, rollouts = rendered
    results = []
    for path in (FAST, PLAIN):
        losses = score(model, renderer, rollouts, plan(settings), END, row_tokens=200, path=path)
        totals(losses).mean().backward()
        results.append((totals(losses).detach(), gradient(model)))
    (ours, our_gradient), (theirs, their_gradient) = results
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    assert our_gradient.abs().max() > 1e-4
    torch.testing.assert_close(
        our_gradient, their_gradient, rtol=0, atol=1e-4 * our_gradient.abs().max().item()
    )
