"""The strict device refuses what CUDA refuses, allows what it allows, and counts what it does."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from support.strict_device import DEVICE, MixedDevices, strict_device


@pytest.fixture
def counts():
    with strict_device() as counts:
        yield counts


def there(*shape: int) -> torch.Tensor:
    return torch.ones(shape, device=DEVICE)


def here(*shape: int) -> torch.Tensor:
    return torch.ones(shape)


MIXTURES = {
    "elementwise": lambda: there(3) + here(3),
    "elementwise, scalar of the device": lambda: there() + here(3),
    "in place": lambda: here(3).add_(there(3)),
    "into a scalar of the CPU": lambda: here().add_(there()),
    "out=": lambda: torch.mul(there(3), there(3), out=here(3)),
    "matrix product": lambda: there(2, 2) @ here(2, 2),
    "linear": lambda: F.linear(here(1, 2), there(2, 2)),
    "where": lambda: torch.where(here(3).bool(), there(3), there(3)),
    "cat": lambda: torch.cat([there(3), here(1)]),
    "stack of scalars": lambda: torch.stack([there(), here()]),
    "gather": lambda: there(3).gather(0, here(1).long()),
    "index_select": lambda: there(3).index_select(0, torch.tensor(0)),
    "embedding": lambda: F.embedding(here(1).long(), there(3, 2)),
    "CPU tensor, index of the device": lambda: here(3)[there(3).long()],
    "index_put": lambda: there(3).index_put_((there(3).long(),), here(3)),
    "masked_scatter": lambda: there(3).masked_scatter_(here(3).bool(), there(3)),
    "attention": lambda: F.scaled_dot_product_attention(
        there(1, 1, 2, 8), there(1, 1, 2, 8), here(1, 1, 2, 8)
    ),
    "attention mask": lambda: F.scaled_dot_product_attention(*[there(1, 1, 2, 8)] * 3, here(2, 2).bool()),
    "equal": lambda: torch.equal(there(3), here(3)),
    "generator": lambda: torch.rand(3, device=DEVICE, generator=torch.Generator()),
    "generator, in place": lambda: there(3).normal_(generator=torch.Generator()),
    "multinomial": lambda: torch.multinomial(there(3), 1, generator=torch.Generator()),
    "foreach": lambda: torch._foreach_add([there(3)], [here(3)]),
    "data": lambda: setattr(there(3), "data", here(3)),
}


@pytest.mark.parametrize("name", MIXTURES)
def test_mixtures_are_refused(counts, name):
    with pytest.raises(MixedDevices):
        MIXTURES[name]()


def test_torch_itself_refuses_gradients_and_arrays_of_the_other_device(counts):
    with pytest.raises(RuntimeError, match="strict"):
        here(3).requires_grad_().grad = there(3)
    with pytest.raises(TypeError, match="cpu"):
        there(3).numpy()
    with pytest.raises(RuntimeError, match="numpy"):
        np.asarray(there(3))


# What runs, with its launches, syncs and uploads.
ALLOWED = {
    "CPU scalar in elementwise work": (lambda x: x * torch.tensor(2.0), 1, 0, 0),
    "CPU scalar in where": (lambda x: torch.where(x > 1, torch.tensor(0.0), x), 2, 0, 0),
    "CPU scalar to fill": (lambda x: x.masked_fill(x > 1, torch.tensor(0.0)), 2, 0, 0),
    "CPU index": (lambda x: x[torch.tensor([0, 2])], 1, 0, 1),
    "list as index": (lambda x: x[[0, 2]], 1, 0, 1),
    "CPU mask": (lambda x: x[torch.tensor([True, False, True])], 1, 0, 1),
    "upload": (lambda x: torch.tensor([1.0, 2.0]).to(DEVICE), 0, 0, 1),
    "made there from a list": (lambda x: torch.tensor([1.0, 2.0], device=DEVICE), 0, 0, 1),
    "made like another from a list": (lambda x: x.new_tensor([1.0, 2.0]), 0, 0, 1),
    "copied in place": (lambda x: x.copy_(torch.ones(3)), 0, 0, 1),
    "another type": (lambda x: x.double(), 1, 0, 0),
    "views": (lambda x: x[1:].view(1, 2).T.expand(2, 4).detach(), 0, 0, 0),
    "another shape in place": (lambda x: x.clone().unsqueeze_(0).t_(), 1, 0, 0),
    "empty memory": (lambda x: torch.empty_like(x), 0, 0, 0),
    "one value behind a mask": (lambda x: x.index_put_((x > 1,), torch.tensor(0.0)), 2, 0, 0),
    "cpu": (lambda x: x.cpu(), 0, 1, 0),
    "copied to the CPU": (lambda x: torch.ones(3).copy_(x), 0, 1, 0),
    "item": (lambda x: x[0].item(), 0, 1, 0),
    "bool": (lambda x: bool(x[0]), 0, 1, 0),
    "float": (lambda x: float(x[0]), 0, 1, 0),
    "branch": (lambda x: 1 if x[0] > 1 else 2, 1, 1, 0),
    "tolist": (lambda x: x.tolist(), 0, 1, 0),
    "nonzero": (lambda x: x.nonzero(), 1, 1, 0),
    "masked_select": (lambda x: x.masked_select(x > 1), 2, 1, 0),
    "mask": (lambda x: x[x > 1], 2, 1, 0),
    "written behind a mask": (lambda x: x.index_put_((x > 1,), x[1:] * 2), 3, 1, 0),
    "equal": (lambda x: torch.equal(x, x), 1, 1, 0),
    "repeat_interleave": (lambda x: torch.repeat_interleave(x.long()), 2, 1, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", ALLOWED)
def test_what_is_allowed_gives_the_bits_of_the_cpu_and_is_counted(counts, name):
    call, launches, syncs, uploads = ALLOWED[name]
    values = torch.tensor([1.0, 2.0, 3.0])
    x = values.to(DEVICE)
    counts.clear()
    result = call(x)
    assert (counts.launches, counts.syncs, counts.uploads) == (launches, syncs, uploads), counts
    assert sum(counts.by_operation.values()) == launches
    assert sum(counts.syncs_by_operation.values()) == syncs
    if name == "empty memory":
        return
    expected = call(values)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(result.cpu(), expected.cpu())
    else:
        assert result == expected


def test_a_copy_is_a_copy_and_a_view_is_a_view(counts):
    values = torch.ones(3)
    x = values.to(DEVICE)
    back = x.cpu()
    x[:2].mul_(5)
    assert values.tolist() == back.tolist() == [1, 1, 1]
    assert x.tolist() == [5, 5, 1]
    assert x.add_(1) is x


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_small_model_learns_the_same_bits(counts, dtype, masked):
    torch.manual_seed(1)
    layer, x = torch.nn.Linear(16, 48).to(dtype), torch.randn(1, 5, 16).to(dtype)
    mask = torch.ones(5, 5).tril().bool() if masked else None

    def trained(device: torch.device) -> torch.Tensor:
        model = torch.nn.Linear(16, 48).to(dtype)
        model.load_state_dict(layer.state_dict())
        model.to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            q, k, v = model(x.to(device)).view(1, 5, 6, 8).transpose(1, 2).chunk(3, 1)
            to = None if mask is None else mask.to(device)
            F.scaled_dot_product_attention(q, k, v, attn_mask=to).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
            optimizer.step()
        return torch.cat([p.detach().cpu().flatten() for p in model.parameters()])

    cpu = trained(torch.device("cpu"))
    counts.clear()
    assert torch.equal(trained(DEVICE), cpu)
    assert counts.syncs == 2  # the two parameters, read at the end
    assert not torch.equal(cpu[:768], layer.weight.detach().flatten())


def test_outside_of_its_block_there_is_no_such_device():
    with strict_device() as counts:
        assert torch.accelerator.is_available()
        with pytest.raises(RuntimeError, match="already"), strict_device():
            pass
        there(3)
    assert not torch.accelerator.is_available()
    x = torch.ones(3, requires_grad=True)
    x.sum().backward()
    assert counts.launches == 1
    assert x.grad.tolist() == [1, 1, 1]
