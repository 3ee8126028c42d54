"""The head on a device that is not the CPU: what it launches, that it never makes the host wait, and that it
computes the same.
"""

import pytest
import torch
from support.plain_path import SHARED
from support.strict_device import DEVICE, strict_device

from smopd.scoring import Decision, chunks, kernel, plain
from smopd.scoring import losses as row_losses
from smopd.scoring.kernel import sampled_logps
from smopd.scoring.rows import BUFFERS

GJS = row_losses.gjs(0.3)
LOSSES = [
    [GJS], [row_losses.reverse_kl()], [row_losses.forward_kl(temperature=1.4)], [row_losses.sampled_nll()],
    [row_losses.gjs(0.5, entry_cap=0.05)], [row_losses.top_k_gjs(4)], [row_losses.drkl(0.5)],
    [row_losses.hidden_mse(), GJS], [row_losses.sampled_nll(), row_losses.reverse_kl(), GJS],
]  # fmt: skip


def rows(n, vocabulary=50, dtype=torch.float32):
    g = torch.Generator().manual_seed(n)
    hidden = [torch.randn(n, 8, generator=g).to(dtype) for _ in range(2)]
    return *hidden, torch.randn(vocabulary, 8, generator=g).to(dtype), torch.randint(50, (n,), generator=g)


def above_the_mean(_, stats):
    high = [s.entropy > s.entropy.mean() for s in stats]
    return [Decision(2.0 * h, h) for h in high]


def run(inputs, losses, chunk=None, lengths=None, decide=None, device="cpu", path=kernel):
    """Every column, the weights and the gradient, forward and backward."""
    student, teacher, head, tokens = (x.to(device) for x in inputs)
    student.requires_grad_()
    stats = path.token_stats(student, teacher, head, tokens, losses, chunk, lengths, decide)
    total = sum((k + 1) * s.divergence.sum() for k, s in enumerate(stats))
    (gradient,) = torch.autograd.grad(total, student)
    columns = [s.divergence.detach() for s in stats] + [s.weight for s in stats if s.weight is not None]
    return [*columns, *(getattr(stats[-1], name) for name in SHARED), stats[-1].teacher_top, gradient]


def counted(*args, **kwargs):
    with strict_device() as counts:
        inputs = [x.to(DEVICE) for x in args[0]]
        counts.clear()
        run(inputs, *args[1:], **kwargs, device=DEVICE)
        assert counts.syncs == 0, counts.syncs_by_operation
        return counts.launches


@pytest.mark.parametrize("losses", LOSSES, ids=lambda losses: "+".join(map(str, losses)))
def test_launches_do_not_depend_on_tokens_or_vocabulary_and_nothing_waits(losses):
    one = counted(rows(6), losses, 6)
    assert one == counted(rows(6, 5000), losses, 6) == counted(rows(96), losses, 96)
    two, three = (counted(rows(n), losses, 6) for n in (12, 18))
    assert three - two == two - one  # as many for every chunk
    # and with replies that are decided upon, whole and cut
    assert counted(rows(12), losses, 8, [3, 0, 9], above_the_mean) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("losses", LOSSES, ids=lambda losses: "+".join(map(str, losses)))
def test_a_device_computes_what_the_cpu_does(losses, dtype):
    """With all rows in sight and with some of them decided out, whole replies and cut ones."""
    inputs = rows(14, dtype=dtype)
    for chunk, lengths, decide in [(5, None, None), (6, [4, 2, 8], above_the_mean)]:
        with strict_device():
            ours = [x.cpu() for x in run(inputs, losses, chunk, lengths, decide, DEVICE)]
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        for k, exact in enumerate(run(wide, losses, chunk, lengths, decide)):
            limit = 1e-2 if k == len(ours) - 1 and dtype == torch.bfloat16 else 2e-5  # a gradient in bfloat16
            torch.testing.assert_close(ours[k].double(), exact, rtol=limit, atol=limit)


def test_a_gpus_worth_of_tokens_takes_at_most_200_launches(monkeypatch):
    """4,096 tokens over Qwen3's vocabulary on a GPU with 20 GB free, by torch's operations alone."""
    vocabulary, count, cuda = 151_936, 4096, torch.device("cuda", 0)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (15_000_000_000, 96_000_000_000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 30_000_000_000)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 25_000_000_000)
    size = chunks.rows_at_once(cuda, (BUFFERS + 1) * vocabulary * 4)
    # As many chunks of as many rows, over a vocabulary that a test can hold: launches do not depend on it.
    assert counted(rows(count), [GJS], size) <= 200
    with_triton = chunks.rows_at_once(cuda, 3 * vocabulary * 4)
    assert size < with_triton <= count


def test_a_full_gpu_gets_smaller_chunks(monkeypatch):
    free = [64_000_000_000, 12_000_000_000, 3_000_000_000, 0]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free[0], 96_000_000_000))
    for name in ("memory_reserved", "memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda _: 1_000_000_000)
    sizes = []
    while free:
        sizes.append(chunks.rows_at_once(torch.device("cuda", 0), 10_000_000))
        free.pop(0)
    assert sizes == [1000, 500, 125, 31]
    assert chunks.rows_at_once(torch.device("cpu"), 10_000_000) == 40


def test_log_probabilities_and_the_plain_path_run_on_a_device_and_wait_for_nothing(monkeypatch):
    inputs = rows(14, dtype=torch.bfloat16)
    expected = sampled_logps(inputs[0], inputs[2], inputs[3])
    monkeypatch.setattr(kernel, "PROFILE_BYTES", 5 * len(inputs[2]) * 4)
    with strict_device() as counts:
        student, _, head, tokens = on_device = [x.to(DEVICE) for x in inputs]
        counts.clear()
        logps = sampled_logps(student, head, tokens)
        assert counts.syncs == 0
        torch.testing.assert_close(logps.cpu(), expected)
        ours = [x.cpu() for x in run(on_device, [GJS], device=DEVICE, path=plain)]
    for actual, exact in zip(ours, run(inputs, [GJS]), strict=True):
        torch.testing.assert_close(actual, exact, rtol=1e-4, atol=1e-5)
