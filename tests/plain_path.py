"""The plain path under the interface of `token_divergence`, to be set beside the fused one."""

from smopd.scoring import plain
from smopd.scoring.losses import as_loss

SHARED = ("entropy", "teacher_entropy", "student_logp", "teacher_logp")


def plain_divergence(
    student, teacher, head, tokens, kind="gjs", beta=0.5, temperature=1.0, chunk_size=None, vocab_clip=None
):
    loss = as_loss(kind, beta, temperature, vocab_clip)
    return plain.token_stats(student, teacher, head, tokens, [loss], chunk_size)[0]
