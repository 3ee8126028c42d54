"""The Triton kernel in Triton's interpreter against the plain formulas in float64, and compiled for a GPU,
which need not be here.
"""

import itertools
from importlib.util import find_spec

import pytest
import torch
from support.triton_process import interpreted, loss_of, run_python

from smopd.scoring.losses import Divergence, HiddenLoss, Rows
from smopd.scoring.plain import capped

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs triton (pip install 'smopd[dev]')")
N, V = 2, 37  # with blocks of 32 and 64: a rest, and more room than entries


def case(losses, softcap=None, distance=1.0, seed=0, block=32, with_gradient=True, scale=2.0):
    """Logits in float32, the teacher's at some distance; the reference sees the same numbers."""
    g = torch.Generator().manual_seed(seed)
    student = scale * torch.randn(N, V, generator=g)
    teacher = student + distance * torch.randn(N, V, generator=g)
    hidden = torch.randn(N, 4, generator=g), torch.randn(N, 4, generator=g)
    rows = student, teacher, torch.randint(V, (N,), generator=g)
    inputs = {"losses": losses, "rows": rows, "hidden": hidden, "softcap": softcap, "block": block}
    return inputs | {"with_gradient": with_gradient, "distance": distance}


KINDS = [("gjs", 0.5), ("gjs", 0.2), ("rkl", 0.5), ("fkl", 0.5)]
CAPS = [(None, False), (0.02, False), (0.02, True)]
CLOSED = ["sampled_nll"]
for which, temperature, cap in itertools.product(KINDS, [1.0, 0.7], CAPS):
    CLOSED.append(Divergence(*which, temperature, *cap))
SINGLE = [case([loss], softcap) for loss, softcap in itertools.product(CLOSED, [None, 3.0])]
GJS, RKL, FKL = Divergence("gjs", 0.3), Divergence("rkl"), Divergence("fkl")
SEVERAL = [
    case([GJS, "sampled_nll", RKL], 3.0, block=64),
    case([Divergence("rkl", temperature=0.5), "hidden_mse"]),
    case(["hidden_mse"]),
    case([GJS, Divergence("fkl", entry_cap=0.1)], with_gradient=False),
    case([GJS], scale=60.0, distance=60.0),  # nearly one-hot, and not the same
]
MASKED = [case([loss], block=block) for loss in (GJS, RKL, FKL, "sampled_nll") for block in (4, 64)]
for masked in MASKED:  # entries that neither may choose; with the small block a whole one of them
    for logits in masked["rows"][:2]:
        logits[:, [0, 8, 9, 10, 11, 36]] = float("-inf")
    masked["rows"][2].clamp_(12, 30)
LEVELS = [
    case([Divergence(kind, beta)], distance=distance)
    for (kind, beta), distance in itertools.product(KINDS, [1e-3, 3e-3, 1e-2, 0.1, 1.0])
]
GROUPS = {"single": SINGLE, "several": SEVERAL, "masked": MASKED, "levels": LEVELS}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """What the kernel makes of every case, by group."""
    every = iter(interpreted([*itertools.chain(*GROUPS.values())], tmp_path_factory.mktemp("triton")))
    return {group: [next(every) for _ in cases] for group, cases in GROUPS.items()}


def reference(inputs):
    """Values, statistics and gradients by float64 and autograd."""
    student, teacher, tokens = inputs["rows"]
    raw = student.double().requires_grad_()
    zs, zt = (capped(z, inputs["softcap"]) for z in (raw, teacher.double()))
    log_s, log_t = zs.detach().log_softmax(-1), zt.log_softmax(-1)
    entropies = [-(p.exp() * p).sum(-1) for p in (log_s, log_t)]
    logps = [p.gather(-1, tokens[:, None])[:, 0] for p in (log_s, log_t)]
    values, gradients = [], []
    for loss in map(loss_of, inputs["losses"]):
        if isinstance(loss, HiddenLoss):
            moved = inputs["hidden"][0].double().requires_grad_()
            value = loss.value(Rows(moved, inputs["hidden"][1].double(), tokens))
        else:
            moved, value = raw, loss.value(Rows(zs, zt, tokens))
        gradients.append(torch.autograd.grad(value.sum(), moved, retain_graph=True)[0])
        values.append(value.detach())
    return values, [*entropies, *logps, log_t.amax(-1)], gradients if inputs["with_gradient"] else []


def assert_equal(actual, inputs):
    for ours, exact in zip(actual, reference(inputs), strict=True):
        for tensor, expected in zip(ours, exact, strict=True):
            assert tensor.dtype == torch.float32
            torch.testing.assert_close(tensor.double(), expected, rtol=1e-5, atol=2e-6)


def name_of(inputs):
    return f"{'+'.join(map(str, inputs['losses']))} {inputs['softcap']}"


@pytest.mark.parametrize("number", range(len(CLOSED)), ids=lambda k: f"{CLOSED[k]!r}")
def test_every_closed_form_equals_float64(results, number):
    """Value, statistics and gradient, without and with a soft cap."""
    for k in (2 * number, 2 * number + 1):
        assert_equal(results["single"][k], SINGLE[k])


@pytest.mark.parametrize("number", range(len(SEVERAL)), ids=lambda k: name_of(SEVERAL[k]))
def test_several_losses_share_their_statistics(results, number):
    assert_equal(results["several"][number], SEVERAL[number])


@pytest.mark.parametrize("number", range(len(MASKED)), ids=lambda k: name_of(MASKED[k]))
def test_entries_of_probability_zero_count_nothing(results, number):
    inputs, (values, shared, (gradient,)) = MASKED[number], results["masked"][number]
    student, teacher, tokens = inputs["rows"]
    kept = student[0].isfinite().nonzero()[:, 0]
    bare = inputs | {"rows": (student[:, kept], teacher[:, kept], torch.searchsorted(kept, tokens))}
    assert_equal((values, shared, [gradient[:, kept]]), bare)
    assert gradient.count_nonzero() == gradient[:, kept].count_nonzero()


@pytest.mark.parametrize("number", range(len(LEVELS)), ids=lambda k: f"{name_of(LEVELS[k])} {k % 5}")
def test_small_divergences_keep_their_digits(results, number):
    (value,), _, (gradient,) = results["levels"][number]
    (expected,), _, (expected_gradient,) = reference(LEVELS[number])
    assert (value - expected).norm() < 2e-3 * expected.norm()
    assert (gradient - expected_gradient).norm() < 2e-3 * expected_gradient.norm()


def test_it_compiles_for_a_gpu(tmp_path):
    """For compute capability 9.0: what the interpreter takes the compiler might not."""
    code = """
import triton
from triton.backends.compiler import GPUTarget
from smopd.scoring.triton_rows import _score_rows
types = ["*fp32", "*fp32", "*i64", "*fp32", *["i32"] * 4, *["fp32"] * 4, *["constexpr"] * 7]
signature = dict(zip(_score_rows.arg_names, types))
for kind in range(4):
    flags = {"KIND": kind, "GRADIENT": True, "SOFT_CAPPED": kind == 1, "BLOCK": 2048}
    flags |= dict.fromkeys(["TEMPERED", "CAPPED", "BOTH_WAYS"], kind > 0)
    source = triton.compiler.ASTSource(_score_rows, signature, constexprs=flags)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})
    print(len(compiled.asm["cubin"]))
"""
    sizes = run_python("-c", code, TRITON_CACHE_DIR=str(tmp_path)).split()
    assert len(sizes) == 4
    assert min(map(int, sizes)) > 1000
