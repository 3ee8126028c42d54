"""Products with the head: float32 from low-precision numbers, tile by tile, and their gradients."""

import pytest
import torch
from support.plain_path import draw
from torch.utils._python_dispatch import TorchDispatchMode

from smopd.scoring import kernel, plain, products, token_stats
from smopd.scoring.kernel import sampled_logps
from smopd.scoring.losses import gjs
from smopd.scoring.products import by_hidden_states, logits_into, wide_linear

LOW = [torch.bfloat16, torch.float16]
# types of hidden states, of the head, and of what is computed
MIXTURES = [
    *((low, low, torch.float32) for low in LOW),
    (torch.float32, torch.bfloat16, torch.float32),
    (torch.bfloat16, torch.float32, torch.float32),
    (torch.float64, torch.float32, torch.float64),
]


def rows(hidden_dtype, weight_dtype, n=7):
    g = torch.Generator().manual_seed(1)
    hidden = (8 * torch.randn(n, 16, generator=g, dtype=torch.float64)).to(hidden_dtype)
    return hidden, torch.randn(101, 16, generator=g, dtype=torch.float64).to(weight_dtype)


@pytest.fixture(params=[64, 1 << 26])
def tile_bytes(request, monkeypatch):
    """A row of the head at a time, and all of it."""
    monkeypatch.setattr(products, "CPU_TILE_BYTES", request.param)


@pytest.mark.usefixtures("tile_bytes")
@pytest.mark.parametrize(("hidden_dtype", "weight_dtype", "wide"), MIXTURES)
def test_products_are_those_of_float64(hidden_dtype, weight_dtype, wide):
    hidden, weight = rows(hidden_dtype, weight_dtype)
    limits = {"rtol": 1e-6, "atol": 1e-5} if wide == torch.float32 else {"rtol": 1e-13, "atol": 1e-12}
    logits = torch.empty(7, 101, dtype=wide)
    logits_into(logits, hidden, weight)
    torch.testing.assert_close(logits.double(), hidden.double() @ weight.double().T, **limits)
    back = by_hidden_states(logits, weight)
    assert back.dtype == wide
    torch.testing.assert_close(back.double(), logits.double() @ weight.double(), rtol=1e-6, atol=1e-3)


@pytest.mark.usefixtures("tile_bytes")
@pytest.mark.parametrize("dtype", LOW)
def test_wide_linear_has_the_gradients_of_a_linear_layer(dtype):
    hidden, weight = (x.requires_grad_() for x in rows(dtype, dtype))
    exact = [x.detach().double().requires_grad_() for x in (hidden, weight)]
    above = torch.randn(7, 101, generator=torch.Generator().manual_seed(2))
    gradients = torch.autograd.grad((wide_linear(hidden, weight) * above).sum(), (hidden, weight))
    expected = torch.autograd.grad((torch.nn.functional.linear(*exact) * above).sum(), exact)
    for ours, theirs in zip(gradients, expected, strict=True):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours, theirs.to(dtype), rtol=2**-7, atol=1e-5)  # rounded once, at the end


def test_float32_and_float64_are_the_ordinary_product():
    for dtype in (torch.float32, torch.float64):
        hidden, weight = rows(dtype, dtype)
        logits = torch.empty(7, 101, dtype=dtype)
        logits_into(logits, hidden, weight)
        assert torch.equal(logits, torch.nn.functional.linear(hidden, weight))
        assert torch.equal(wide_linear(hidden, weight), logits)
        assert torch.equal(by_hidden_states(logits, weight), logits @ weight)


class LargestCopy(TorchDispatchMode):
    """Remembers the largest float32 tensor that a conversion made."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket is torch.ops.aten._to_copy and result.dtype == torch.float32:
            self.entries = max(self.entries, result.numel())
        return result


def test_the_head_is_never_upcast_whole(monkeypatch):
    hidden, weight = rows(torch.bfloat16, torch.bfloat16)
    monkeypatch.setattr(products, "CPU_TILE_BYTES", 10 * 16 * 4)
    tokens = torch.zeros(7, dtype=torch.long)
    for trained in (False, True):
        with LargestCopy() as seen:
            for path in (token_stats, plain.token_stats):
                student, head = hidden.clone().requires_grad_(), weight.clone().requires_grad_(trained)
                path(student, hidden, head, tokens, [gjs(0.3)])[0].divergence.sum().backward()
            sampled_logps(hidden, weight, tokens)
        assert seen.entries == 10 * 16


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("cap", [None, 3.0])
def test_log_probabilities_of_low_precision_rows(monkeypatch, dtype, cap):
    student, _, head, tokens = draw(1, 6.0, cap=cap, dtype=dtype)
    monkeypatch.setattr(kernel, "PROFILE_BYTES", 2 * len(head) * 4)
    exact = plain.capped(student.double() @ head.double().T, cap).log_softmax(-1)
    expected = exact.gather(-1, tokens[:, None])[:, 0]
    torch.testing.assert_close(sampled_logps(student, head, tokens).double(), expected, rtol=1e-6, atol=1e-5)


def test_gradients_of_several_losses_are_added_before_they_are_rounded():
    """1 + 2^-9 and -1: each rounded by itself to bfloat16, nothing of the sum would be left."""
    head = torch.eye(4, dtype=torch.bfloat16)
    student = torch.zeros(1, 4, dtype=torch.bfloat16, requires_grad=True)
    teacher = torch.tensor([[1.0, 0, 0, 0]], dtype=torch.bfloat16)
    first, second = token_stats(student, teacher, head, torch.tensor([0]), [gjs(0.3), gjs(0.3)])
    (1.001953125 * first.divergence - second.divergence).sum().backward()
    exact = student.detach().double().requires_grad_()
    stats = token_stats(exact, teacher.double(), head.double(), torch.tensor([0]), [gjs(0.3)])
    (stats[0].divergence * 0.001953125).sum().backward()
    torch.testing.assert_close(student.grad.double(), exact.grad, rtol=1e-2, atol=1e-8)
