"""What must hold of the neighbouring systems and baselines whatever is played; some of it against TRL."""

from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from methods.scene import make_scene, shown, whole_loss
from support.played import random_stats

from smopd.config import load_config, plan_of
from smopd.data import load_examples
from smopd.objective import Moment, Tokens
from smopd.objective.loss import step_statistics
from smopd.objective.tokens import weights_of
from smopd.rollout import Reply
from smopd.scoring import Rows, drkl, gjs, reverse_kl, sampled_kl
from smopd.scoring.kernel import token_divergence

MOMENT = Moment(7, 10, (5, 7))
(EXAMPLE,) = load_examples("pocket:train:1")


def plan_for(method, *overrides):
    return plan_of(load_config("pocket", list(overrides), method))


def rows(n, vocabulary, seed):
    g = torch.Generator().manual_seed(seed)
    student, teacher = (torch.randn(n, vocabulary, generator=g, dtype=torch.float64) for _ in range(2))
    return Rows(student, teacher, torch.randint(vocabulary, (n,), generator=g))


def kl(log_p, log_q):
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def tokens_of(n, seed, scale=0.6):
    reply = Reply(EXAMPLE, "sharded", 0, 0, False, (1,), tuple(range(n)))
    return Tokens(random_stats(n, seed, scale).detached(), reply, MOMENT)


# Advantages within a group.


def policy_weights(monkeypatch, scene, plan):
    """{example: {sample: the advantage that its tokens got}}."""
    advantages = {}
    for loss in whole_loss(monkeypatch, scene, plan, MOMENT):
        term = loss.terms["policy"]
        for reply, stats in zip(term.replies, term.stats, strict=True):
            (value,) = set(stats.weight.tolist())
            advantages.setdefault(reply.example.id, {}).setdefault(reply.sample, value)
            assert advantages[reply.example.id][reply.sample] == value  # one advantage a rollout
    return advantages


@pytest.mark.parametrize("method", ["grpo", "rlsta"])
@pytest.mark.parametrize("seed", range(3))
def test_advantages_have_mean_zero_in_every_group(method, seed, monkeypatch):
    plan = plan_for(method)
    scene = make_scene(plan, seed)
    groups = policy_weights(monkeypatch, scene, plan)
    answered = [r.example.id for r in scene.rollouts if method == "grpo" or r.replies()[-1].tokens]
    assert len(groups) == 3
    for name, group in groups.items():
        assert len(group) == answered.count(name)
        assert sum(group.values()) == pytest.approx(0, abs=1e-9)
    assert any(abs(a) > 0.1 for group in groups.values() for a in group.values())


@pytest.mark.parametrize(("method", "right"), [("grpo", "all"), ("grpo", "none"), ("rlsta", "all")])
def test_a_group_whose_answers_are_all_alike_has_no_gradient(method, right, monkeypatch):
    plan = plan_for(method, *(["objective.anchor=0", "objective.beta=0"] if method == "rlsta" else []))
    scene = make_scene(plan, right=right)
    whole_loss(monkeypatch, scene, plan, MOMENT)
    assert all(not gradient.any() for gradient in scene.gradient().values())


def test_rlsta_tells_alike_outcomes_apart_by_what_the_base_model_says_of_the_answer(monkeypatch):
    plan = plan_for("rlsta")
    scene = make_scene(plan, right="all")
    groups = policy_weights(monkeypatch, scene, plan)
    for replies in shown(scene):
        answer = replies[-1]
        if not answer.middle:
            sure = answer.of(answer.log_t(answer.task, "base")).mean().item()
            groups[answer.reply.example.id][answer.reply.sample] = (
                groups[answer.reply.example.id][answer.reply.sample],
                sure,
            )
    for group in groups.values():
        ordered = sorted(group.values())
        assert [sure for _, sure in ordered] == sorted(sure for _, sure in ordered)


# TIP and the soft OR.


@pytest.mark.parametrize("micro_batch", [1, 2, 3, 100])
def test_tip_keeps_the_top_half_of_the_step_whatever_the_micro_batch(micro_batch, monkeypatch):
    plan = plan_for("tip")
    scene = make_scene(plan, 2, examples=7)
    losses = whole_loss(monkeypatch, scene, plan, MOMENT, micro_batch=micro_batch)
    stats = [s for loss in losses for s in loss.terms["turns"].stats]
    kept = torch.cat([s.weight for s in stats]) != 0
    h, d = torch.cat([s.entropy for s in stats]), torch.cat([s.divergence.detach() for s in stats])
    h, d = ((x - x.min()) / (x.max() - x.min()) for x in (h, d))
    score = h + d - h * d
    assert int(kept.sum()) == (len(kept) + 1) // 2
    assert score[kept].min() > score[~kept].max()


def test_the_soft_or_of_our_candidate_ranks_each_reply_for_itself():
    term = plan_for("soft-or").terms[0]
    replies = [tokens_of(20, 1), tokens_of(20, 2, 1e-3)]
    for reply, together in zip(replies, weights_of(term.tokens, replies), strict=True):
        h, d = ((x - x.min()) / (x.max() - x.min()) for x in (reply.entropy, reply.divergence))
        score = 1 - (1 - h) * (1 - d)
        assert torch.equal(together != 0, score >= torch.quantile(score, 0.2))
        assert torch.equal(together, weights_of(term.tokens, [reply])[0])
        assert int(together.sum()) == 16


# TCOD.


def test_tcod_plays_one_more_turn_every_second_step():
    (play,) = plan_for("tcod").plays
    assert [play.turns(step) for step in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]


@pytest.mark.parametrize("step", [1, 2, 4, 9])
def test_a_conversation_cut_short_has_no_verdict_and_no_answer_turn(step, monkeypatch):
    plan = plan_for("tcod")
    scene = make_scene(plan, 4, examples=16, step=step)
    lengths = set()
    for rollout in scene.rollouts:
        shards = len(rollout.example.shards)
        replies = rollout.replies()
        assert len(replies) == min(1 + step // 2, shards)
        cut = len(replies) < shards
        lengths.add(cut)
        assert (rollout.verdict is None) == cut
        assert [r.last for r in replies] == [not cut and r.turn == shards - 1 for r in replies]
    assert lengths == {1: {True}, 2: {True, False}, 4: {True, False}, 9: {False}}[step]
    for loss in whole_loss(monkeypatch, scene, plan, Moment(step, 10, (5, step))):
        assert loss.terms["turns"].turn_weights.tolist() == [len(loss.terms["turns"].replies)] * len(
            loss.terms["turns"].replies
        )


# SAGE-OPD.


def test_sages_weights_and_their_normaliser(monkeypatch):
    plan = plan_for("sage-opd")
    scene = make_scene(plan, 1, examples=5)
    for loss in whole_loss(monkeypatch, scene, plan, MOMENT):
        term = loss.terms["turns"]
        sure = torch.stack([s.teacher_top.exp().mean() for s in term.stats])
        lengths = torch.tensor([float(len(s.entropy)) for s in term.stats], dtype=torch.float64)
        sums = torch.stack([s.divergence.sum() for s in term.stats])
        assert term.value.item() == pytest.approx(((sure * sums).sum() / (sure * lengths).sum()).item())
        # Were all equally sure, it would be the mean over all tokens: the scale of plain distillation.
        assert term.turn_weights.mean().item() == pytest.approx(1)


def test_sage_can_leave_right_answers_alone(monkeypatch):
    plan = plan_for("sage-opd", "objective.intervene=failed")
    scene = make_scene(plan, 1, examples=8)
    seen = set()
    for rollout, loss in zip(scene.rollouts, whole_loss(monkeypatch, scene, plan, MOMENT), strict=True):
        trained = any(reply.last for reply in loss.terms["turns"].replies)
        assert trained != rollout.correct
        seen.add(trained)
    assert seen == {True, False}


# Divergences.


@given(st.integers(0, 10**6))
def test_the_sampled_kl_is_never_negative_and_estimates_the_kl(seed):
    chunk = rows(2, 5, seed)
    assert (sampled_kl().value(chunk) >= 0).all()
    one = Rows(*(z[:1].expand(5, -1) for z in chunk[:2]), torch.arange(5))
    log_s, log_t = one.student.log_softmax(-1), one.teacher.log_softmax(-1)
    expected = (log_s[0].exp() * sampled_kl().value(one)).sum()  # over all tokens that could be sampled
    assert expected.item() == pytest.approx(kl(log_s, log_t)[0].item(), abs=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([0.5, 1.0, 2.0]))
def test_drkl_of_a_binary_vocabulary_is_the_reverse_kl(seed, gamma):
    chunk = rows(4, 2, seed)  # without the sampled token one is left, of probability 1 for both
    assert torch.allclose(drkl(gamma).value(chunk), reverse_kl().value(chunk), atol=1e-12)


@given(st.integers(0, 10**6))
def test_drkl_at_gamma_one_is_the_reverse_kl_with_the_rest_counted_whole(seed):
    """KL(s||t) = KL of the pair + (1 - s(y)) * KL of the rest; here the factor is gone."""
    chunk = rows(4, 6, seed)
    s = chunk.student.softmax(-1).gather(-1, chunk.tokens[:, None])[:, 0]
    pair, whole = drkl(0.0).value(chunk), drkl(1.0).value(chunk)
    assert torch.allclose(pair + (1 - s) * (whole - pair), reverse_kl().value(chunk), atol=1e-10)


def test_exopd_at_lam_one_is_the_reverse_kl_to_the_clean_teacher(monkeypatch):
    plans = [plan_for("exopd", "objective.lam=1"), plan_for("gkd", "objective.beta=1")]
    values = []
    for plan in plans:
        scene = make_scene(plan, 3)
        values.append([loss.total.item() for loss in whole_loss(monkeypatch, scene, plan, MOMENT)])
    assert values[0] == values[1]
    extrapolated = plan_for("exopd")
    scene = make_scene(extrapolated, 3)
    assert [loss.total.item() for loss in whole_loss(monkeypatch, scene, extrapolated, MOMENT)] != values[0]


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 0.3])
def test_gkd_is_trls(beta):
    trl = pytest.importorskip("trl.experimental.gkd", reason="TRL is not installed")
    g = torch.Generator().manual_seed(3)
    student, teacher = (torch.randn(9, 6, generator=g, dtype=torch.float64) for _ in range(2))
    head = torch.randn(11, 6, generator=g, dtype=torch.float64)
    labels = torch.ones(1, 9, dtype=torch.long)
    expected = trl.GKDTrainer.generalized_jsd_loss(
        (student @ head.T)[None], (teacher @ head.T)[None], labels, beta=beta
    )
    loss = gjs(beta)
    ours = token_divergence(student, teacher, head, torch.zeros(9, dtype=torch.long), loss.kind, loss.beta)
    assert ours.divergence.mean().item() == pytest.approx(expected.item(), rel=1e-12)


def test_iw_opd_is_trls(monkeypatch):
    utils = pytest.importorskip("trl.import_utils", reason="TRL is not installed")
    # The tests have a folder vllm, which TRL takes for the package.
    monkeypatch.setattr(utils, "is_vllm_available", lambda *_, **__: False)
    trl = pytest.importorskip("trl.experimental.iw_opd", reason="this TRL has no IW-OPD")
    plan = plan_for("opd", "objective.iw=0.5")
    scene = make_scene(plan, 5)
    replies = [r for played in shown(scene) for r in played]
    longest = max(len(r.reply.tokens) for r in replies)
    student = torch.zeros(len(replies), longest, len(scene.head), dtype=torch.float64)
    tokens = torch.zeros(len(replies), longest, dtype=torch.long)
    labels = torch.full_like(tokens, -100)
    teacher = torch.zeros(len(replies), longest, dtype=torch.float64)
    for k, r in enumerate(replies):
        n = len(r.reply.tokens)
        student[k, :n] = r.log_s.detach()
        tokens[k, :n] = labels[k, :n] = r.y[:, 0]
        teacher[k, :n] = r.of(r.log_t(r.clean))
    stub = SimpleNamespace(
        temperature=1.0, iw_opd_epsilon=1e-8, iw_opd_gamma=0.5, model=SimpleNamespace(training=True),
        _metrics={"train": defaultdict(list)},
    )  # fmt: skip
    expected = trl.IWOPDTrainer._compute_iw_opd_loss(stub, student, tokens, labels, teacher)
    losses = whole_loss(monkeypatch, scene, plan, MOMENT)
    total = torch.stack([loss.total for loss in losses]).mean()
    assert total.item() == pytest.approx(expected.item(), rel=1e-10)


# PW-OPSD.


def test_the_weights_of_pw_opsd_rise_from_a_quarter_to_one():
    term = plan_for("pw-opsd").terms[0]
    (weights,) = weights_of(term.tokens, [tokens_of(100, 0)])
    assert (weights.diff() > 0).all()
    assert weights[0] < 0.25 + 0.75 * 0.06
    assert weights[-1] > 0.999
    middle = (weights[29] + weights[30]) / 2  # around place 0.3
    assert middle.item() == pytest.approx(0.625, abs=1e-9)


def test_a_survey_of_rlsta_sees_every_group_whole(monkeypatch):
    """However the step is cut: the advantages of micro-batches of one and of everything are the same."""
    plan = plan_for("rlsta")
    weights = []
    for micro_batch in (1, 100):
        scored = whole_loss(monkeypatch, make_scene(plan, 6), plan, MOMENT, micro_batch=micro_batch)
        weights.append(step_statistics([plan.terms[0]], scored, MOMENT).weights)
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][key], weights[1][key]) for key in weights[0])
