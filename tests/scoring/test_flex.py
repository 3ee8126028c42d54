"""Compiled attention for GPUs, as far as a CPU can show it: the block mask, padding, the forward pass of
whole models, and what is chosen where. flex_attention runs uncompiled here, and forward only.
"""

import logging

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.families import FAMILIES
from support.plain_path import SMALL
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn.attention import flex_attention as torch_flex
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import AutoModel, LlamaConfig, LlamaModel, Qwen3Config, Qwen3Model

from smopd.scoring import PrefixTree, attention, flex, passes, plain
from smopd.scoring.attention import tree_attention
from smopd.scoring.tree import segments_of

FIELDS = [f"{part}_{what}" for part in ("kv", "full_kv", "q", "full_q") for what in ("num_blocks", "indices")]
CPU, GPU = torch.device("cpu"), torch.device("cuda")
# Runs of equal tokens, so that few numbers make long branches: some full blocks, some empty, some cut.
runs = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 300)), min_size=1, max_size=4)
long_lists = st.lists(
    runs.map(lambda parts: [t for token, n in parts for t in [token] * n]), min_size=1, max_size=5
)


@pytest.fixture(autouse=True)
def _uncompiled(monkeypatch):
    """torch would trace every new shape otherwise, which takes longer than computing it."""
    monkeypatch.setattr(torch_flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


@pytest.fixture
def flex_on_cpu(monkeypatch):
    """Packed passes take the path of a GPU."""
    monkeypatch.setattr(passes, "row_attention", lambda body, device: "flex")


def in_blocks(sequences) -> PrefixTree:
    tree = PrefixTree.pack(sequences)
    return tree.padded(flex.bucket(len(tree.input_ids)))


@given(st.integers(1, 200_000))
def test_buckets_are_whole_blocks_and_waste_at_most_an_eighth(length):
    padded = flex.bucket(length)
    assert padded >= length
    assert padded % flex.BLOCK == 0
    assert padded - length < flex.BLOCK or padded <= 1.125 * length or padded == flex.SMALLEST
    assert flex.bucket(padded) == padded
    assert flex.bucket(length + 1) >= padded


def test_there_are_few_buckets():
    assert sorted({flex.bucket(length) for length in range(1, 2049)}) == list(range(256, 2049, 128))
    assert len({flex.bucket(length) for length in range(2049, 16_385)}) == 3 * 8


@settings(max_examples=60)
@given(long_lists)
def test_the_block_mask_is_the_one_torch_makes_of_every_pair(sequences):
    tree = in_blocks(sequences)
    length = len(tree.input_ids)
    ours = flex.block_mask(tree, tree.to("cpu"))
    theirs = torch_flex.create_block_mask(tree.mask_mod(), None, None, length, length, device="cpu")
    assert ours.shape == theirs.shape
    assert ours.BLOCK_SIZE == theirs.BLOCK_SIZE
    for field in FIELDS:
        one, other = getattr(ours, field), getattr(theirs, field)
        assert (one.dtype, one.stride()) == (other.dtype, other.stride()), field
        assert torch.equal(one, other), field


@settings(max_examples=10)
@given(long_lists, st.sampled_from([1, 2, 4]))
def test_the_forward_pass_equals_the_segments(sequences, kv_heads):
    tree = in_blocks(sequences)
    g = torch.Generator().manual_seed(len(tree.input_ids))
    query, key, value = (
        torch.randn(1, heads, len(tree.input_ids), 8, generator=g) for heads in (4, kv_heads, kv_heads)
    )
    ours = flex.attend(query, key, value, flex.block_mask(tree, tree.to("cpu")), 0.3)
    theirs = tree_attention(query, key, value, segments_of(tree.subtree_end.numpy()), scaling=0.3)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@given(long_lists, st.integers(0, 300))
def test_padding_sees_itself_and_nobody_sees_it(sequences, more):
    tree = PrefixTree.pack(sequences)
    length = len(tree.input_ids)
    mask = tree.padded(length + more).attention_mask()
    assert torch.equal(mask[:length, :length], tree.attention_mask())
    assert torch.equal(mask[length:, length:], torch.eye(more, dtype=torch.bool))
    assert not mask[:length, length:].any()
    assert not mask[length:, :length].any()


@pytest.fixture(scope="module")
def body():
    torch.manual_seed(0)
    return Qwen3Model(Qwen3Config(**SMALL)).eval().requires_grad_(False)


short = st.lists(st.integers(0, 30), min_size=1, max_size=9)


@pytest.mark.usefixtures("flex_on_cpu")
@settings(max_examples=20)
@given(st.lists(st.tuples(short, short), min_size=1, max_size=5), st.integers(1, 60), st.integers(0, 2))
def test_padding_changes_no_hidden_state(body, sequences, row_tokens, more):
    """Any number of blocks of it, whatever stands in them."""
    expected = plain.reply_hidden(body, sequences, row_tokens=row_tokens)
    with pytest.MonkeyPatch.context() as patch:
        real, bucket = PrefixTree.padded, flex.bucket

        def other_ids(tree, length):
            padded = real(tree, length)
            padded.input_ids[len(tree.input_ids) :] = 7 + more
            return padded

        patch.setattr(PrefixTree, "padded", other_ids)
        patch.setattr(flex, "bucket", lambda length: bucket(length) + more * flex.BLOCK)
        hidden = passes.reply_hidden(body, sequences, row_tokens=row_tokens)
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-5)


LONG = [
    ([1, 2, 3, 4] * 50, [5, 6] * 30),
    ([1, 2, 3, 4] * 50 + [5, 6] * 30 + [7] * 20, [8, 9, 10] * 20),
    ([1, 2, 3, 4] * 40 + [9], [5] * 70),
    ([11], [12, 13]),
]


@pytest.mark.parametrize(
    "make", [lambda: Qwen3Model(Qwen3Config(**SMALL)), lambda: LlamaModel(LlamaConfig(**SMALL))]
)
def test_the_three_ways_to_score_agree(make, monkeypatch):
    torch.manual_seed(0)
    body = make().eval().requires_grad_(False)
    segments = passes.reply_hidden(body, LONG)
    monkeypatch.setattr(passes, "row_attention", lambda body, device: "flex")
    hidden = passes.reply_hidden(body, LONG)
    torch.testing.assert_close(hidden, segments, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(hidden, plain.reply_hidden(body, LONG), rtol=1e-4, atol=1e-5)
    assert not torch.equal(hidden, segments)  # computed another way


@pytest.mark.usefixtures("flex_on_cpu")
def test_one_mask_a_row_is_shared_by_all_layers(body, monkeypatch):
    masks, used = [], []
    make, attend = flex.block_mask, flex.attend
    monkeypatch.setattr(flex, "block_mask", lambda *a: masks.append(make(*a)) or masks[-1])
    monkeypatch.setattr(
        flex, "attend", lambda q, k, v, mask, scale: used.append(mask) or attend(q, k, v, mask, scale)
    )
    passes.reply_hidden(body, LONG, row_tokens=300)
    assert len(masks) > 1
    layers = body.config.num_hidden_layers
    assert [id(mask) for mask in used] == [id(mask) for mask in masks for _ in range(layers)]


class Largest(TorchDispatchMode):
    """The largest tensor that an operation makes, in elements."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.elements = max(self.elements, *sizes, 0)
        return result


def test_no_mask_over_all_pairs_is_made(body, monkeypatch):
    """Nothing of a row outside the attention itself has L * L entries; the segments' safety mask has."""
    monkeypatch.setattr(flex, "attend", lambda query, *others: query)
    row, pairs = [([1] * 1500, [2] * 500)], 2000**2
    with Largest() as largest:
        passes.reply_hidden(body, row)
    assert largest.elements >= pairs
    monkeypatch.setattr(passes, "row_attention", lambda body, device: "flex")
    with Largest() as largest:
        passes.reply_hidden(body, row)
    assert largest.elements < pairs / 10


@pytest.mark.usefixtures("flex_on_cpu")
@pytest.mark.parametrize("name", [name for name, f in FAMILIES.items() if f.packed and name != "gemma2"])
def test_every_family_takes_a_block_mask(name, monkeypatch):
    """Except Gemma 2, which is loaded with eager attention."""
    torch.manual_seed(0)
    small = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 40, "pad_token_id": 0, "eos_token_id": 1}  # fmt: skip
    config = FAMILIES[name].config(**small | FAMILIES[name].shape)
    body = AutoModel.from_config(config, attn_implementation="sdpa").eval().requires_grad_(False)
    assert body._supports_flex_attn
    hidden = passes.reply_hidden(body, LONG)
    monkeypatch.undo()
    assert passes.row_attention(body, "cpu") == "segments"
    torch.testing.assert_close(hidden, passes.reply_hidden(body, LONG), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("device", "dtype", "width", "there"),
    [
        ("cuda", torch.bfloat16, 128, True),
        ("cuda", torch.float16, 64, True),
        ("cuda", torch.float32, 16, True),
        ("cuda", torch.float64, 128, False),  # no such kernel
        ("cuda", torch.bfloat16, 8, False),  # narrower than a kernel's smallest block
        ("cpu", torch.float32, 128, False),  # no backward pass
        ("mps", torch.float32, 128, False),
    ],
)
def test_where_it_can_be_used(device, dtype, width, there):
    assert flex.compilable(device, dtype, width) == there


def test_what_is_chosen_for_a_row(monkeypatch):
    asked = []
    monkeypatch.setattr(flex, "works", lambda *facts: asked.append(facts) or True)
    wide = Qwen3Config(**SMALL | {"head_dim": 32, "attention_dropout": 0.1})
    body = Qwen3Model(wide).eval()
    assert passes.row_attention(body, "cpu") == "segments"
    assert not asked
    assert passes.row_attention(body, "cuda") == "flex"
    assert asked == [(GPU, torch.float32, 2, 1, 32)]
    assert passes.row_attention(body.train(), "cuda") == "segments"  # flex_attention has no dropout
    assert passes.row_attention(body.eval().double(), "cuda") == "segments"
    body.float().set_attn_implementation("eager")
    assert passes.row_attention(body, "cuda") == "mask"
    body.set_attn_implementation("sdpa")
    monkeypatch.setattr(flex, "works", lambda *facts: False)
    assert passes.row_attention(body, "cuda") == "segments"


@pytest.fixture
def forward_only(monkeypatch):
    """The comparison as far as a CPU can make it, with a fresh memory, where torch is said to compile."""
    error = flex._error
    monkeypatch.setattr(flex, "_error", lambda length, gradient, *rest: error(length, False, *rest))
    monkeypatch.setattr(flex, "compiler_there", lambda: True)
    flex.works.cache_clear()
    yield
    flex.works.cache_clear()


@pytest.mark.usefixtures("forward_only")
def test_it_is_trusted_only_where_it_gives_what_sdpa_gives(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "smopd")
    shape = (torch.float32, 4, 2, 32)
    assert flex.works(CPU, *shape)
    assert not caplog.records
    right = flex.attend
    faults = {
        "differs from SDPA's": lambda q, k, v, mask, scale=None: right(q, k, v, mask, scale) + 0.1,
        "no kernel image": lambda *a: (_ for _ in ()).throw(RuntimeError("no kernel image\nmore")),
    }
    for reason, wrong in faults.items():
        flex.works.cache_clear()
        monkeypatch.setattr(flex, "attend", wrong)
        assert not flex.works(CPU, *shape)
        assert not flex.works(CPU, *shape)
        assert reason in caplog.messages[-1]
        assert "\n" not in caplog.messages[-1]
    assert len(caplog.records) == len(faults)  # said once each


@pytest.mark.usefixtures("forward_only")
def test_without_a_compiler_it_is_not_tried(monkeypatch, caplog):
    monkeypatch.setattr(flex, "compiler_there", lambda: False)
    monkeypatch.setattr(flex, "attend", None)
    assert not flex.works(CPU, torch.float32, 4, 2, 32)
    assert "does not compile here" in caplog.text


def test_torch_traces_twice_for_all_lengths(monkeypatch):
    """Once for the first length and once for any other; new trees of known lengths cost nothing."""
    monkeypatch.undo()
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(torch_flex.flex_attention, backend=counter)
    g = torch.Generator().manual_seed(0)
    for number, length in enumerate((200, 256, 384, 900, 250, 1300, 384, 2000)):
        tree = in_blocks([[1, *[2] * (length // 2 + number), *[b] * (length // 8)] for b in (3, 4, 5)])
        mask = flex.block_mask(tree, tree.to("cpu"))
        query, key = (torch.randn(1, h, len(tree.input_ids), 16, generator=g) for h in (4, 2))
        with torch.no_grad():
            compiled(query, key, key, block_mask=mask, enable_gqa=True)
    assert counter.frame_count == 2
    torch._dynamo.reset()


def test_calls_with_a_block_mask_and_others_alternate(body):
    """The engine decodes with the same module between two scoring passes."""
    attention.install()
    tree = in_blocks([[1, 2, 3]])
    ids = torch.tensor([[1, 2, 3]])
    before = body(input_ids=ids, use_cache=False).last_hidden_state
    mask = flex.block_mask(tree, tree.to("cpu"))
    packed = body(
        input_ids=tree.input_ids[None],
        position_ids=tree.position_ids[None],
        attention_mask=mask,
        use_cache=False,
    ).last_hidden_state
    after = body(input_ids=ids, use_cache=False).last_hidden_state
    assert torch.equal(before, after)
    torch.testing.assert_close(packed[:, :3], before, rtol=1e-4, atol=1e-5)
