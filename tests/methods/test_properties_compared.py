"""What is said of the compared systems and their neighbours beside their formula: gates at their thresholds,
weights that sum to one, groups left out, limits in which two of them are the same.
"""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from methods.compared import ogls_sd
from methods.privileged import sod
from methods.references import kl
from methods.scene import make_scene, shown, whole_loss
from support.played import random_stats

from smopd.config import load_config, plan_of
from smopd.data import load_examples
from smopd.objective import Moment, Tokens, agreement, importance, step_ratio
from smopd.objective.tokens import weights_of
from smopd.objective.turns import Turns
from smopd.rollout import Reply
from smopd.rollout.play import group_of
from smopd.scoring import forward_kl, gjs, reverse_kl, top_k_gjs
from smopd.scoring.losses import Rows

MOMENT = Moment(7, 10, (5, 7))
EXAMPLE = load_examples("pocket:train:1")[0]


def plan_for(name, *sets):
    return plan_of(load_config("pocket", list(sets), method=name))


def term(plan, name):
    return next(t for t in plan.terms if t.name == name)


def tokens_of(**columns):
    """Tokens of one reply with statistics as given, random where not."""
    n = len(next(iter(columns.values())))
    statistics = {name: torch.as_tensor(column, dtype=torch.float64) for name, column in columns.items()}
    reply = Reply(EXAMPLE, "sharded", 0, 0, False, (1,), tuple(range(n)))
    return Tokens(replace(random_stats(n, 0).detached(), **statistics), reply, MOMENT)


def test_eopds_gate_counts_a_teacher_exactly_at_the_threshold():
    cover = term(plan_for("eopd"), "cover")
    entropies = [math.nextafter(0.8, 0), 0.8, math.nextafter(0.8, 1)]
    assert weights_of(cover.tokens, [tokens_of(teacher_entropy=entropies)])[0].tolist() == [0.0, 1.0, 1.0]


def test_eopds_reference_meets_both_sides_of_the_gate_and_the_clip(monkeypatch):
    plan = plan_for("eopd")
    losses = whole_loss(monkeypatch, make_scene(plan), plan, MOMENT)
    for name in ("policy", "cover"):
        weights = torch.cat([s.weight for loss in losses for s in loss.terms[name].stats])
        assert 0 < (weights == 0).sum() < len(weights)


def test_aopd_splits_the_tokens_and_equal_probabilities_are_intervened():
    plan = plan_for("aopd")
    sampled = tokens_of(teacher_logp=[-1.0, -2.0, -0.5], student_logp=[-1.0, -1.0, -1.0])
    assert weights_of(term(plan, "guide").tokens, [sampled])[0].tolist() == [1.0, 1.0, 0.0]
    assert weights_of(term(plan, "policy").tokens, [sampled])[0].tolist() == [0.0, 0.0, 0.5]
    sides = {(-1.0): [0.0, 0.0, 0.0], 1.0: [1.0, 1.0, 1.0]}  # never, which is OPD; always, which is GKD
    for threshold, wanted in sides.items():
        guide = term(plan_for("aopd", f"objective.threshold={threshold}"), "guide")
        assert weights_of(guide.tokens, [sampled])[0].tolist() == wanted


def test_scopes_weights_sum_to_one_for_each_prompt_and_correctness(monkeypatch):
    plan = plan_for("scope")
    scene = make_scene(plan, examples=4, twice=True)
    sums, kinds = defaultdict(float), set()
    for rollout, loss in zip(scene.rollouts, whole_loss(monkeypatch, scene, plan, MOMENT), strict=True):
        of_term = loss.terms["right" if rollout.correct else "wrong"]
        assert not loss.terms["wrong" if rollout.correct else "right"].stats
        stats = of_term.stats[-1]
        weight = stats.weight[0].item()
        if not rollout.correct:
            weight /= (stats.teacher_logp - stats.student_logp)[0].item()
        sums[group_of(rollout), rollout.correct] += weight
        kinds.add(rollout.correct)
    assert kinds == {True, False}
    assert len({group for group, _ in sums}) == 5  # an example drawn twice is two prompts
    assert list(sums.values()) == pytest.approx([1.0] * len(sums))


def test_ogls_sd_leaves_out_groups_without_both_kinds(monkeypatch):
    """All right: nothing to mend. All wrong, no reference: nothing to steer towards. Neither makes a pass."""
    plan = plan_for("ogls-sd")
    for right, task in (("all", "math"), ("none", "code")):
        scene = make_scene(plan, right=right, task=task)
        losses = whole_loss(monkeypatch, scene, plan, MOMENT)
        assert all(loss.total == 0 for loss in losses)
        assert not any(gradient.any() for gradient in scene.gradient().values())
        assert scene.asked == []
    for right, task in (("none", "math"), ("mixed", "code")):  # a reference, or a right sibling, is enough
        scene = make_scene(plan, right=right, task=task)
        expected = ogls_sd(shown(scene), None, MOMENT)
        losses = whole_loss(monkeypatch, scene, plan, MOMENT)
        assert torch.stack([loss.total for loss in losses]).mean().item() == pytest.approx(expected.item())
        assert expected != 0
        assert set(scene.asked) == {"base", "student with gradient"}


def test_ogls_sd_looks_at_the_first_tokens_and_ramps():
    steer = term(plan_for("ogls-sd", "objective.first=2"), "steer")
    assert weights_of(steer.tokens, [tokens_of(entropy=[1.0, 1.0, 1.0])])[0].tolist() == [1.0, 1.0, 0.0]
    plan = plan_for("ogls-sd-free")
    scene = make_scene(plan)
    reply = scene.rollouts[0].replies()[0]
    for step, lam in ((1, 0.9), (2, 1.8), (5, 3.0), (10, 3.0)):
        (dirty, seen), (clean, _) = plan.terms[0].teacher(reply, scene.peers(Moment(step, 10)))
        assert (dirty, clean, seen) == (pytest.approx(1 - lam), pytest.approx(lam), reply.context)


def test_credit_is_reverse_kl_to_the_combined_logits(monkeypatch):
    """And without a contrast, by its coefficient or for want of another example, to the clean teacher."""
    for sets, examples, lam in (("objective.lam=0.7", 3, 0.7), ("objective.lam=0", 3, 0), ("seed=1", 1, 0)):
        plan = plan_for("credit", sets)
        scene = make_scene(plan, examples=examples)
        losses = whole_loss(monkeypatch, scene, plan, MOMENT)
        for replies, loss in zip(shown(scene), losses, strict=True):
            for r, stats in zip(replies, loss.terms["distil"].stats, strict=True):
                contexts = plan.terms[0].teacher(r.reply, scene.peers(MOMENT))
                assert contexts[0] == (1.0, r.clean)
                assert len(contexts) == (2 if lam else 1)
                logits = r.logits_t(r.clean)
                for _, context in contexts[1:]:
                    assert context != r.clean
                    logits = logits - lam * r.logits_t(context)
                torch.testing.assert_close(stats.divergence, kl(r.log_s, logits.log_softmax(-1)))


def test_unisds_weights_stay_within_bounds_and_agreement_is_full_weight():
    drawn = torch.randn(200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) ** 3
    (weight,) = weights_of(agreement(1000.0), [tokens_of(auxiliary=drawn)])
    assert weight.min() == 0.01
    assert 0.02 < weight.max() <= 1
    variance = drawn.var(-1)
    usual = variance.sort().values[189:191]  # the 0.95 quantile of 200 lies between these
    norm = (variance / (usual[0] + 0.05 * (usual[1] - usual[0]))).clamp_max(10)
    torch.testing.assert_close(weight, (1 / (1 + 1000 * norm)).clamp_min(0.01))
    alike = tokens_of(auxiliary=drawn[:, :1].expand(-1, 3))
    assert weights_of(agreement(1000.0), [alike])[0].tolist() == [1.0] * 200


def test_unisds_whole_loss_with_weights_that_matter_is_not_the_plain_mean(monkeypatch):
    plan = plan_for("unisd", "objective.gain=1000")
    losses = whole_loss(monkeypatch, make_scene(plan), plan, MOMENT)
    weights = torch.cat([s.weight for loss in losses for s in loss.terms["distil"].stats])
    assert weights.min() == 0.01
    assert weights.max() > 0.02
    term_of = losses[0].terms["distil"]
    means = [(s.weight * s.divergence).sum() / s.weight.sum() for s in term_of.stats]
    assert term_of.value.item() == pytest.approx(torch.stack(means).mean().item())


def test_sods_weights_are_the_literal_product():
    for seed in range(20):
        stats = [random_stats(5, 10 * seed + k).detached() for k in range(5)]
        turns = Turns((), stats, False)
        weights = step_ratio(0.2, 1e-6)(turns).tolist()
        distances = [(s.student_logp - s.teacher_logp).abs().mean().item() for s in stats]
        product, wanted = 1.0, [1.0]
        for before, now in pairwise(distances):
            product *= (before + 1e-6) / (now + 1e-6)
            wanted.append(min(product, 1.2))
        assert weights == pytest.approx(wanted)
        assert weights[0] == 1
        assert max(weights) <= 1.2
    assert plan_for("sod").terms[0].turns == step_ratio(0.2, 1e-6, 2)


def test_sods_weights_begin_where_clean_and_dirty_contexts_differ(monkeypatch):
    """At the first turn a self-teacher sees what the student sees: distance 0, and all weights with it."""
    plan = plan_for("sod")
    scene = make_scene(plan)
    for replies, loss in zip(shown(scene), whole_loss(monkeypatch, scene, plan, MOMENT), strict=True):
        distil, turns = loss.terms["distil"], [r.reply.turn for r in replies]
        for name in ("distil", "outcome"):  # both count all tokens of the step
            assert [reply.turn for reply in loss.terms[name].replies] == turns
        assert [bool(stats.weight.any()) for stats in distil.stats] == [turn > 0 for turn in turns]
        weights = distil.turn_weights.tolist()
        assert weights[:1] == [0.0]
        assert weights[1:2] in ([], [1.0])


@pytest.mark.parametrize("outcome", [0.0, 1.0])
def test_sod_with_and_without_the_outcome(outcome, monkeypatch):
    plan = plan_for("sod", f"objective.outcome={outcome}")
    scene = make_scene(plan)
    losses = whole_loss(monkeypatch, scene, plan, MOMENT)
    assert ("outcome" in losses[0].terms) == bool(outcome)
    if outcome:  # with rollouts all alike there is no outcome to learn from, and the rest is the reference
        scene = make_scene(plan, right="all")
        losses = whole_loss(monkeypatch, scene, plan, MOMENT)
        assert all(loss.terms["outcome"].value == 0 for loss in losses)
        expected = sod(shown(scene), load_config("pocket", method="sod").objective, MOMENT)
        assert torch.stack([loss.total for loss in losses]).mean().item() == pytest.approx(expected.item())


def test_sdpo_looks_at_right_siblings_alone(monkeypatch):
    plan = plan_for("sdpo")
    scene = make_scene(plan, right="none")
    assert all(loss.total == 0 for loss in whole_loss(monkeypatch, scene, plan, MOMENT))
    assert not scene.asked
    one = make_scene(plan, right="none")
    alone = one.rollouts[0]
    verdict = replace(alone.verdict, correct=True)
    one.rollouts[0] = replace(alone, verdicts=(verdict,))
    losses = whole_loss(monkeypatch, one, plan, MOMENT)
    of_group = [r.example.id == alone.example.id for r in one.rollouts]
    assert [bool(loss.terms["distil"].stats) for loss in losses] == [False, *of_group[1:]]  # not its own


def rows(seed, n=6, vocabulary=300):
    draw = torch.Generator().manual_seed(seed)
    logits = [3 * torch.randn(n, vocabulary, generator=draw, dtype=torch.float64) for _ in range(2)]
    return Rows(logits[0].requires_grad_(), logits[1], torch.randint(vocabulary, (n,), generator=draw))


def test_trl_has_the_same_rows():
    """SDFT's divergence over the vocabulary, SDPO's over the student's top 100 and a tail, and its cap."""
    theirs = pytest.importorskip("trl.experimental.sdpo.loss_utils", reason="TRL with SDPO is not installed")
    for seed in range(3):
        r = rows(seed)
        top = {"distillation_topk": 100, "distillation_alpha": 0.5, "distillation_add_tail": True}
        expected = theirs.compute_topk_self_distillation_loss(r.student, r.teacher, **top)
        pairs = [(top_k_gjs(100, 0.5), expected)]
        for alpha, loss in ((0.0, forward_kl()), (0.5, gjs(0.5)), (1.0, reverse_kl())):
            whole = theirs.compute_full_logit_self_distillation_loss
            pairs.append((loss, whole(r.student, r.teacher, distillation_alpha=alpha)))
        for loss, expected in pairs:
            value = loss.value(r)
            torch.testing.assert_close(value, expected)
            gradient, wanted = (torch.autograd.grad(v.sum(), r.student)[0] for v in (value, expected))
            torch.testing.assert_close(gradient, wanted)
    reply = Reply(
        EXAMPLE, "sharded", 0, 0, False, (1,), tuple(range(8)), (-0.1, -1, -2, -3, -4, -5, -0.7, 0.0)
    )
    sampled = Tokens(random_stats(8, 1).detached(), reply, MOMENT)
    weighed = theirs.apply_importance_sampling_clipping(
        sampled.divergence, sampled.student_logp, torch.tensor(reply.engine_logps).double(), 2.0
    )
    ours = weights_of(importance(2.0), [sampled])[0]
    torch.testing.assert_close(ours * sampled.divergence, weighed, rtol=1e-6, atol=0)
    assert ours.max() == 2
    assert ours.min() < 1
