"""What the tests of scoring share: the smallest model, random rows, and the plain path under the interface of
`token_divergence`, to be set beside the fused one.
"""

import pytest
import torch

from smopd.scoring import plain
from smopd.scoring import token_divergence as fused
from smopd.scoring.losses import as_loss

SMALL = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
         "num_key_value_heads": 1, "head_dim": 8, "vocab_size": 31}  # fmt: skip
N, D, V = 5, 8, 23  # rows, width, vocabulary
KINDS = [("gjs", 0.5), ("gjs", 0.2), ("rkl", 1.0), ("fkl", 0.0)]

SHARED = ("entropy", "teacher_entropy", "student_logp", "teacher_logp")


def plain_divergence(
    student, teacher, head, tokens, kind="gjs", beta=0.5, temperature=1.0, chunk_size=None, vocab_clip=None
):
    loss = as_loss(kind, beta, temperature, vocab_clip)
    return plain.token_stats(student, teacher, head, tokens, [loss], chunk_size)[0]


both = pytest.mark.parametrize("token_divergence", [fused, plain_divergence], ids=["fused", "plain"])


def draw(seed, scale=1.0, n=N, cap=None, dtype=torch.float64):
    """Hidden states of student and teacher, a head (with a soft cap), and the tokens that were sampled."""
    g = torch.Generator().manual_seed(seed)
    student, teacher = (scale * torch.randn(n, D, generator=g, dtype=torch.float64) for _ in range(2))
    head = torch.randn(V, D, generator=g, dtype=torch.float64).to(dtype)
    head = plain.CappedHead.of(head, cap) if cap else head
    return student.to(dtype), teacher.to(dtype), head, torch.randint(V, (n,), generator=g)


def assert_paths_agree(student, teacher, head, tokens, *settings, tolerance, scale=1.0):
    """Fused and plain: every statistic, and the gradient of a capped and weighted sum of the divergences."""
    results = []
    for function in (fused, plain_divergence):
        hidden = student.clone().requires_grad_()
        stats = function(hidden, teacher, head, tokens, *settings)
        (stats.divergence.clamp_max(0.5) * torch.arange(1, len(tokens) + 1)).sum().backward()
        columns = [getattr(stats, name).detach() for name in ("divergence", *SHARED)]
        results.append([*columns, hidden.grad * scale / len(tokens)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
