"""Planned memory against what passes, optimizer and cache really hold."""

from dataclasses import replace

import pytest
import torch
from planning.bodies import body, branching
from transformers import Qwen3Config, Qwen3ForCausalLM

from smopd.config import load_config
from smopd.data import load_examples
from smopd.models.adapters import attach, student_parameters, teacher_parameters, update_teacher
from smopd.planning.load import DEFAULTS, find_averages, pack
from smopd.planning.memory import (
    cache_bytes,
    cache_token_bytes,
    head_bytes,
    kept_bytes,
    memory,
    memory_comment,
    recomputed_bytes,
    weight_bytes,
)
from smopd.planning.shapes import GPUS, Shape, shape_of
from smopd.rollout import Driver
from smopd.rollout.engine import Sampling, Session
from smopd.rollout.hf import HFEngine
from smopd.scoring.passes import body_and_head, reply_hidden
from smopd.settings import LoraSettings

CLOSE = 0.1


def really_kept(model, sequences, row_tokens: int = 10**6) -> int:
    """Bytes of all tensors that a forward pass saves for backward, parameters left out, each storage once."""
    # The storages themselves: a freed one's address may come again.
    seen: dict[int, torch.UntypedStorage] = {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        reply_hidden(body_and_head(model)[0], sequences, row_tokens=row_tokens)
    return sum(storage.nbytes() for storage in seen.values())


def made(name: str, dtype: str, lora: LoraSettings) -> torch.nn.Module:
    """A student in training; skips where its adapters do not compute in the base's precision."""
    model = attach(body(name, 128, layers=2).to(getattr(torch, dtype)), lora, 1).train()
    inner = next(module for path, module in model.named_modules() if path.endswith("lora_A.default"))
    seen = []
    hook = inner.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].dtype))
    with torch.no_grad():
        reply_hidden(body_and_head(model)[0], [([1, 2], [3])])
    hook.remove()
    if seen != [getattr(torch, dtype)]:
        pytest.skip("adapters compute in float32 here, which no plan is about")
    return model


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
@pytest.mark.parametrize(
    ("rank", "scale"), [(8, 1), (128, 1), (8, 6)], ids=["plain", "adapters", "attention"]
)
def test_activations(name, dtype, rank, scale):
    model = made(name, dtype, LoraSettings(r=rank, alpha=rank))
    sequences = branching(scale=scale)
    planned = kept_bytes(shape_of(model.config), rank, dtype, pack(sequences, 10**6))
    assert planned == pytest.approx(really_kept(model, sequences), rel=CLOSE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_activations_of_a_part_of_the_projections(dtype):
    targets = ["q_proj", "v_proj", "down_proj"]
    model = made("qwen3", dtype, LoraSettings(r=8, alpha=8, targets=targets))
    planned = kept_bytes(shape_of(model.config), 8, dtype, pack(branching(), 10**6), tuple(targets))
    assert planned == pytest.approx(really_kept(model, branching()), rel=CLOSE)


def test_flex_attention_keeps_keys_and_values_once_and_no_mask():
    shape = shape_of(body("qwen3", 128, layers=2).config)
    packed, padded = (pack(branching(scale=6), 10**6, attention) for attention in ("segments", "flex"))
    assert (padded.pairs, padded.paths) == (0, padded.tokens)
    assert packed.tokens <= padded.tokens < 1.2 * packed.tokens
    unpadded = replace(padded, tokens=packed.tokens, paths=packed.tokens)
    flex, segments = (kept_bytes(shape, 8, "bfloat16", rows) for rows in (unpadded, packed))
    again = 2 * shape.keys * (packed.paths - packed.tokens)
    mask = shape.heads // shape.kv_heads * packed.pairs
    assert packed.paths > 1.5 * packed.tokens
    assert segments - flex == shape.layers * 2 * (again + mask)


def test_the_heads_chunk_is_what_is_free():
    config = load_config("qwen3-1.7b", ["engine.kind=hf"])
    shape = Shape(2048, 28, 16, 8, 128, 6144, 151936, True, True)
    matrices = 4096 * 2048 * (2 * 2 + 2 * 4)
    sizes = [head_bytes(config, shape, 4096, free) - matrices for free in (60e9, 8e9, 0, -5e9)]
    assert sizes[0] == 2048 * 151936 * 14
    assert sizes[0] > sizes[1] > sizes[2] == sizes[3]
    # Logits and gradient in float32 take at most half of what is free, and no more than 400 MB if need be.
    assert sizes[1] * 12 / 14 <= 4e9
    assert sizes[2] * 12 / 14 <= 4e8
    # A GPU that is nearly full is not said to be too small for the sake of a larger chunk.
    plans = [memory(config, shape, replace(GPUS["h100"], memory=size), DEFAULTS) for size in (80, 16)]
    assert plans[1].parts["head"] < plans[0].parts["head"] < 5e9


def test_all_rows_of_a_micro_batch_are_kept():
    """Narrow rows spare nothing: they only repeat what they cut through."""
    model = attach(body("qwen3", 128, layers=2), LoraSettings(r=8, alpha=8), 1).train()
    sequences = branching(scale=3)
    one, several = pack(sequences, 10**6), pack(sequences, 300)
    assert several.rows > 2
    assert several.tokens > one.tokens
    planned = kept_bytes(shape_of(model.config), 8, "float32", several)
    assert planned == pytest.approx(really_kept(model, sequences, 300), rel=CLOSE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_recomputing_keeps_one_input_a_layer(name, dtype):
    model = attach(body(name, 128, layers=6).to(getattr(torch, dtype)), LoraSettings(r=8, alpha=8), 1).train()
    sequences = branching(scale=2)
    packed, shape = pack(sequences, 10**6), shape_of(model.config)
    whole = really_kept(model, sequences)
    model.get_base_model().gradient_checkpointing_enable(
        gradient_checkpointing_kwargs={"use_reentrant": False}
    )
    kept = really_kept(model, sequences)
    assert recomputed_bytes(shape, dtype, packed) == pytest.approx(kept, rel=CLOSE)
    assert kept < 0.25 * whole


@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_recomputing_changes_no_gradient(name):
    torch.manual_seed(0)
    model = attach(body(name), LoraSettings(r=8, alpha=8), 1).train()
    with torch.no_grad():
        for p in student_parameters(model).values():
            p.add_(0.05 * torch.randn_like(p))
    gradients = []
    for recompute in (False, True):
        if recompute:
            model.get_base_model().gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": False}
            )
        model.zero_grad()
        reply_hidden(
            body_and_head(model)[0], [([1, 2, 3], [4, 5]), ([1, 2, 9], [7])]
        ).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in student_parameters(model).values()]))
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_weights_adapters_and_optimizer(name, dtype):
    """Against the tensors of a model after one optimizer step."""
    base = body(name).to(getattr(torch, dtype))
    config = load_config("pocket", [f"model.dtype={dtype}", "lora.r=16", "engine.kind=vllm-http"])
    shape = shape_of(base.config)
    weights = sum(p.nbytes for p in base.parameters())
    assert weight_bytes(config, shape) == weights
    model = attach(base, config.lora, 1)
    student = list(student_parameters(model).values())
    optimizer = torch.optim.AdamW(student)
    reply_hidden(body_and_head(model)[0], branching()).float().square().sum().backward()
    optimizer.step()
    update_teacher(model, 0.9)
    parts = memory(config, shape, GPUS["h100"], DEFAULTS).parts
    adapters = sum(p.nbytes for p in (*student, *teacher_parameters(model).values()))
    assert parts["adapters, student and teacher"] == adapters
    gradients = sum(p.grad.nbytes for p in student)
    moments = sum(t.nbytes for state in optimizer.state.values() for t in state.values() if t.dim())
    assert parts["gradients and optimizer"] == 2 * gradients + moments


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["qwen3", "llama"])
def test_cache(name, dtype):
    """Against what the hf engine keeps between turns."""
    model = body(name, 64).to(getattr(torch, dtype))
    engine = HFEngine(model, [599])
    prompts = [list(range(1, 40)), list(range(1, 20))]
    replies = engine.generate(
        prompts, [1, 2], Sampling(1.0, 16, 1.0, 0), [Session("a", True), Session("b", True)]
    )
    tokens = sum(len(p) + len(r.ids) - 1 for p, r in zip(prompts, replies, strict=True))
    assert sum(kept.size for kept in engine.kept.values()) == tokens * cache_token_bytes(
        shape_of(model.config), dtype
    )


@pytest.mark.parametrize("answer", [12, 140])
def test_cache_of_a_whole_rollout(pocket, monkeypatch, answer):
    """The batch's buffers and what waits between turns, at their largest, with every reply at its limit."""
    config = load_config(
        "pocket", ["train.rollouts=3", "rollout.middle_tokens=8", f"rollout.answer_tokens={answer}"]
    )
    lengths, limits = find_averages(config), config.rollout
    engine = HFEngine(pocket.model, [], limits.batch, config.engine.cache_mb)
    sizes = []
    forward = engine._forward

    def watched(ids, rows, cache):
        logits = forward(ids, rows, cache)
        waiting = sum(kept.size for kept in engine.kept.values()) + sum(
            row.kept.size for row in rows if row.kept
        )
        sizes.append(waiting + sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers))
        return logits

    monkeypatch.setattr(engine, "_forward", watched)
    examples = [e for e in load_examples("pocket:train:40") if len(e.shards) == max(lengths.turns)][:3]
    Driver(engine, pocket.renderer, Sampling(1.0, limits.answer_tokens, 1.0, 0), limits.middle_tokens).play(
        examples, "sharded", ("plan",)
    )
    assert cache_bytes(config, shape_of(pocket.model.config), lengths, 1, False) == pytest.approx(
        max(sizes), rel=CLOSE
    )


def test_vllm_takes_its_share_and_gives_it_back_asleep():
    shape, gpu = Shape(2048, 28, 16, 8, 128, 6144, 151936, True, True), GPUS["h100"]
    awake, asleep, away = (
        memory(load_config("qwen3-1.7b", overrides), shape, gpu, DEFAULTS)
        for overrides in (
            ["engine.kind=vllm", "engine.memory=0.5"],
            ["engine.kind=vllm", "engine.memory=0.5", "engine.sleep=true"],
            ["engine.kind=vllm-http"],
        )
    )
    assert awake.parts["engine (vLLM's share)"] == 40e9
    assert awake.scoring == pytest.approx(asleep.scoring + 40e9)
    assert asleep.rollout == awake.rollout == pytest.approx(away.rollout + 40e9)


def test_what_dry_run_says():
    assert memory_comment(load_config("pocket")).startswith("# memory, MB: weights 4; adapters and optimizer")
    assert "not known" in memory_comment(load_config("pocket", ["model.path=./nosuch"]))
    assert "weights 3,441" in memory_comment(load_config("qwen3-1.7b"))


def test_embeddings_and_norms_are_counted():
    config = Qwen3Config(
        hidden_size=64, head_dim=16, tie_word_embeddings=False, num_hidden_layers=2, vocab_size=1000
    )
    shape = shape_of(config)
    assert shape.parameters == sum(p.numel() for p in Qwen3ForCausalLM(config).parameters())
