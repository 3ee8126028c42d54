"""The memory that --dry-run reports, against what a pass really keeps."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from smopd.config import Lora, load_config
from smopd.memory import activation_floats, memory_comment, parameter_counts
from smopd.scoring.passes import body_and_head, reply_hidden
from smopd.training.adapters import attach, student_parameters

MODELS = {
    "qwen3": lambda: Qwen3ForCausalLM(
        Qwen3Config(
            hidden_size=256, intermediate_size=768, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
            head_dim=64, vocab_size=600, tie_word_embeddings=True,
        )
    ),
    "llama": lambda: LlamaForCausalLM(
        LlamaConfig(
            hidden_size=192, intermediate_size=512, num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=3,
            vocab_size=600,
        )
    ),
}  # fmt: skip


def kept_bytes(model, length: int) -> int:
    """Bytes of all tensors that a forward pass saves for backward, parameters left out, each storage once."""
    seen: dict[int, int] = {}
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        ids = list(range(1, length + 1))
        hidden = reply_hidden(body_and_head(model)[0], [(ids[: length // 2], ids[length // 2 :])], row_tokens=length)
    del hidden
    return sum(seen.values())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rank", [8, 64])
def test_activations_are_what_a_pass_keeps(name, rank):
    model = attach(MODELS[name](), Lora(r=rank, alpha=rank), 1).train()
    per_token = (kept_bytes(model, 384) - kept_bytes(model, 128)) / 256 / 4
    assert activation_floats(model.config, rank, False) == pytest.approx(per_token, rel=0.1)


@pytest.mark.parametrize("name", MODELS)
def test_recomputing_keeps_a_fraction_and_changes_no_gradient(name):
    torch.manual_seed(0)
    model = attach(MODELS[name](), Lora(r=8, alpha=8), 1).train()
    with torch.no_grad():
        for p in student_parameters(model).values():
            p.add_(0.05 * torch.randn_like(p))
    kept, gradients = [], []
    for recompute in (False, True):
        if recompute:
            model.get_base_model().gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        kept.append(kept_bytes(model, 200))
        model.zero_grad()
        reply_hidden(body_and_head(model)[0], [([1, 2, 3], [4, 5]), ([1, 2, 9], [7])]).square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in student_parameters(model).values()]))
    assert kept[1] < 0.25 * kept[0]
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted(name):
    base = MODELS[name]()
    counted, adapter = parameter_counts(base.config, 16)
    assert counted == pytest.approx(sum(p.numel() for p in base.parameters()), rel=0.01)  # norms are left out
    model = attach(base, Lora(r=16, alpha=16), 1)
    assert adapter == sum(p.numel() for p in student_parameters(model).values())


def test_what_dry_run_says():
    assert memory_comment(load_config("pocket")).startswith("# memory, MB: weights 4; adapters and optimizer")
    assert "not known" in memory_comment(load_config("pocket", ["model.path=./nosuch"]))
    whole, less = (activation_floats(Qwen3Config(), 64, recompute) for recompute in (False, True))
    assert less < whole / 5
