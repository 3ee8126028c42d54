"""The likeliest tokens of both models, from chunks of logits, against full logits."""

import pytest
import torch
from support.plain_path import draw

from smopd.scoring import kernel, plain
from smopd.scoring.kernel import token_profile
from smopd.scoring.losses import gjs, reverse_kl, sampled_nll
from smopd.scoring.token_log import Others


@pytest.mark.parametrize("softcap", [None, 3.0])
@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize("losses", [[gjs(0.5)], [reverse_kl(), gjs(0.5)], [sampled_nll()]])
def test_they_are_those_of_full_logits_and_change_nothing(losses, chunk_size, softcap):
    student, teacher, head, tokens = draw(4, cap=softcap)
    weight = draw(4)[2]  # without its cap
    silent = kernel.token_stats(student, teacher, head, tokens, losses, chunk_size)[0]
    stats = kernel.token_stats(student, teacher, head, tokens, losses, chunk_size, alternatives=3)[0]
    slow = plain.token_stats(student, teacher, head, tokens, losses, alternatives=3)[0]
    for name in ("divergence", "entropy", "teacher_entropy", "student_logp", "teacher_logp"):
        assert torch.equal(getattr(silent, name), getattr(stats, name)), name
    assert silent.top_tokens is None
    assert torch.equal(stats.top_tokens, slow.top_tokens)
    torch.testing.assert_close(stats.top_logps, slow.top_logps, rtol=1e-9, atol=1e-9)
    for k, hidden in enumerate((student, teacher)):
        log_p = plain.capped(hidden @ weight.T, softcap).log_softmax(-1)
        best = log_p.topk(3, -1)
        assert torch.equal(stats.top_tokens[:, k], best.indices)
        profile = token_profile(hidden, head, tokens, 3)
        assert torch.equal(profile.top_tokens, best.indices)
        torch.testing.assert_close(profile.top_logps, best.values)
        torch.testing.assert_close(profile.entropy, -(log_p.exp() * log_p).sum(-1))


def test_only_rivals_of_a_percent_are_written():
    top = torch.tensor([[7, 3, 9], [4, 5, 6]])
    logps = torch.tensor([[0.7, 0.28, 0.005], [0.98, 0.011, 0.009]]).log()
    others = Others.of(torch.tensor([3, 4]), top, logps)
    assert others.counts.tolist() == [1, 1]
    assert others.tokens.tolist() == [7, 5]
    assert others.logps.exp().tolist() == pytest.approx([0.7, 0.011], rel=2e-3)
