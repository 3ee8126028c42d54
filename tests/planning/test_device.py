"""What a plan says of a GPU, against counts of the real thing: blocks of a mask, chunks, launches."""

from contextlib import nullcontext

import pytest
import torch
from planning.bodies import branching
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from smopd.models.adapters import attach, merged
from smopd.planning import device
from smopd.planning.load import pack
from smopd.planning.shapes import Shape, shape_of
from smopd.rollout.engine import Sampling
from smopd.rollout.hf import HFEngine
from smopd.scoring.tree import PrefixTree
from smopd.settings import LoraSettings

QWEN = Shape(2048, 28, 16, 8, 128, 6144, 151936, True, True)


@pytest.mark.parametrize(("turns", "scale"), [(1, 1), (2, 2), (4, 1), (4, 3), (6, 5)])
def test_block_pairs_are_those_of_the_blocks_with_something_to_see(turns, scale):
    tree = PrefixTree.pack([[*c, *r] for c, r in branching(turns, scale=scale)])
    length = len(tree.input_ids)
    padded = device.bucket(length)
    seen = torch.eye(padded, dtype=torch.bool)
    seen[:length, :length] = tree.attention_mask()
    blocks = seen.view(padded // 128, 128, padded // 128, 128).any(3).any(1)
    assert device.block_pairs(tree.subtree_end.numpy()) == blocks.sum() * 128 * 128
    packed = pack(branching(turns, scale=scale), 10**6, "flex")
    assert (packed.tokens, packed.pairs) == (padded, device.block_pairs(tree.subtree_end.numpy()))


def test_branches_do_not_see_each_other():
    """Three branches of 1,024 tokens under a short trunk: a third of what one long path computes."""
    branches = [[0, *range(1 + 1024 * k, 1025 + 1024 * k)] for k in range(3)]
    tree, path = PrefixTree.pack(branches), PrefixTree.pack([list(range(3073))])
    assert device.block_pairs(tree.subtree_end.numpy()) < 0.5 * device.block_pairs(path.subtree_end.numpy())


def test_a_head_of_4096_rows_takes_at_most_200_launches():
    rows = device.chunk_rows(QWEN, 60e9)
    assert -(-4096 // rows) * device.CHUNK_LAUNCHES <= 200
    assert device.chunk_rows(QWEN, 2e9) < rows
    assert device.chunk_rows(QWEN, 0) == device.chunk_rows(QWEN, -1e9) >= 1


class Launches(TorchDispatchMode):
    """Counts operations that write: views and empty memory are none."""

    free = ("empty", "empty_like", "new_empty", "empty_strided", "detach", "_unsafe_view", "alias")

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func._schema.returns
        alias = returned[0].alias_info if returned else None
        view = alias is not None and not alias.is_write
        self.count += not view and func._schema.name.removeprefix("aten::") not in self.free
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("fold", [False, True], ids=["beside", "merged"])
def test_launches_of_a_sampled_token(dtype, fold):
    layers = 4
    shape = Qwen3Config(
        hidden_size=32, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
        num_hidden_layers=layers, vocab_size=64,
    )  # fmt: skip
    model = attach(Qwen3ForCausalLM(shape).to(getattr(torch, dtype)), LoraSettings(r=4, alpha=4), 1)
    counts = []
    with merged(model) if fold else nullcontext():
        for tokens in (4, 6):
            with Launches() as counted:
                HFEngine(model, []).generate([[1, 2, 3]] * 8, list(range(8)), Sampling(1.0, tokens, 1.0, 0))
            counts.append(counted.count)
    a_token = (counts[1] - counts[0]) / 2
    assert device.decode_launches(shape_of(shape), dtype, fold) == pytest.approx(a_token, rel=0.1)
