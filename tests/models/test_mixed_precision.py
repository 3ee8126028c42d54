"""Adapters that compute in the type of the base: every intermediate, the float32 masters, and how close the
result stays to float64.
"""

import copy

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from support.plain_path import SMALL
from support.played import move_student
from transformers import Qwen3Config, Qwen3ForCausalLM

from smopd.models import load_model
from smopd.models.adapter_files import WEIGHTS, load_adapter
from smopd.models.adapters import (
    MasterLinear,
    StudentAdapter,
    adapter_parameters,
    attach,
    base_type,
    compute_in_base_type,
    merged,
    student_parameters,
    teacher_weights,
    update_teacher,
)
from smopd.settings import LoraSettings

IDS = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8], [9, 10, 11, 12, 13, 14, 15, 16]])
LOW = (torch.bfloat16, torch.float16)


def base(dtype=torch.float32) -> Qwen3ForCausalLM:
    """Of the same numbers in any type: those of a bfloat16 base."""
    torch.manual_seed(0)
    shape = SMALL | {"hidden_size": 64, "intermediate_size": 96, "head_dim": 16, "num_attention_heads": 4}
    return (
        Qwen3ForCausalLM(Qwen3Config(**shape, initializer_range=0.1))
        .bfloat16()
        .to(dtype)
        .requires_grad_(False)
    )


def student(dtype=torch.float32, dropout=0.0) -> PeftModel:
    """Moved away from its teacher."""
    model = attach(base(dtype), LoraSettings(r=8, alpha=16, dropout=dropout), seed=1)
    move_student(model, 0.05)
    return model


def loss_of(model) -> torch.Tensor:
    """A cross-entropy, its logits and sum in float32 at least."""
    logits = model(input_ids=IDS).logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), IDS[:, 1:].flatten())


def value_and_gradient(model) -> tuple[torch.Tensor, torch.Tensor]:
    loss = loss_of(model)
    grads = torch.autograd.grad(loss, list(student_parameters(model).values()))
    return loss.detach(), torch.cat([g.flatten() for g in grads])


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_every_intermediate_has_the_bases_type_and_masters_and_gradients_are_float32(
    dtype, recompute, dropout
):
    model = student(dtype, dropout).train()
    if recompute:
        model.get_base_model().gradient_checkpointing_enable({"use_reentrant": False})
    seen = set()

    def note(layer, args, output):
        if isinstance(layer, LoraLayer | MasterLinear | torch.nn.Dropout):
            seen.update((type(layer).__name__, t.dtype) for t in (args[0], output))

    for layer in model.modules():
        layer.register_forward_hook(note)
    loss_of(model).backward()
    assert {kind for kind, _ in seen} >= {"Linear", "MasterLinear"}
    assert {seen_dtype for _, seen_dtype in seen} == {dtype}
    assert {p.dtype for p in adapter_parameters(model)} == {torch.float32}
    for name, p in student_parameters(model).items():
        assert p.grad.dtype == torch.float32, name
        assert p.grad.any(), name


def saved_bytes(model) -> int:
    """What the forward pass keeps for backward, apart from parameters, each tensor once."""
    kept = {}
    parameter_pointers = {p.untyped_storage().data_ptr() for p in model.parameters()}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameter_pointers:
            kept[storage.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss_of(model)
    return sum(t.untyped_storage().nbytes() for t in kept.values())


def test_less_is_kept_for_the_backward_pass_than_with_pefts_casts():
    model = student(torch.bfloat16)
    ours = saved_bytes(model)
    with_casts(model)
    assert ours < 0.85 * saved_bytes(model)


def with_casts(model) -> None:
    """PEFT's own layers again."""
    for layer in model.modules():
        if isinstance(layer, LoraLayer):
            layer.cast_input_dtype_enabled = True


def test_a_float32_base_gives_pefts_own_bits():
    ours, theirs = student(), get_peft_model(base(), LORA)
    for name, p in student_parameters(theirs).items():
        p.data.copy_(student_parameters(ours)[name])
    assert (
        type(next(m for m in theirs.modules() if isinstance(m, LoraLayer)).lora_A["default"])
        is torch.nn.Linear
    )
    for one, other in zip(value_and_gradient(ours), value_and_gradient(theirs), strict=True):
        assert torch.equal(one, other)


LORA = LoraConfig(r=8, lora_alpha=16, target_modules=list(LoraSettings().targets), task_type="CAUSAL_LM")


def test_loss_and_gradient_stay_as_close_to_float64_as_with_float32_adapters():
    """What the bfloat16 base rounds is more than what the adapters' products round."""
    exact_model = student(torch.float64)
    for p in adapter_parameters(exact_model):
        p.data = p.data.double()
    exact_loss, exact = value_and_gradient(exact_model)
    ours_model, theirs_model = student(torch.bfloat16), student(torch.bfloat16)
    with_casts(theirs_model)
    errors = []
    for model in (ours_model, theirs_model):
        loss, grads = value_and_gradient(model)
        errors.append((abs(loss - exact_loss).item(), (grads - exact).norm().item() / exact.norm().item()))
    (loss, gradient), (casts_loss, casts_gradient) = errors
    assert gradient < 0.05
    assert gradient < 1.5 * casts_gradient
    assert loss < max(2 * casts_loss, 5e-3)


def test_teacher_base_and_merged_weights_are_what_they_were():
    model = student(torch.bfloat16)
    with torch.no_grad():
        apart = model(input_ids=IDS).logits
        with merged(model):
            folded = model(input_ids=IDS).logits
        torch.testing.assert_close(folded, apart, rtol=0.05, atol=0.1)
        bare = base(torch.bfloat16)(input_ids=IDS).logits
    with teacher_weights(model, "base"):
        assert torch.equal(model(input_ids=IDS).logits, bare)
    with teacher_weights(model, "ema"):
        before = model(input_ids=IDS).logits
    assert not torch.equal(before, apart)
    update_teacher(model, 0.0)
    with teacher_weights(model, "ema"):
        assert torch.equal(model(input_ids=IDS).logits, apart)
    assert torch.equal(model(input_ids=IDS).logits, apart)
    assert {n for n, p in model.named_parameters() if p.requires_grad} == {
        n for n, _ in model.named_parameters() if ".default." in n
    }


def test_a_step_smaller_than_bfloat16_is_not_lost():
    model = student(torch.bfloat16)
    before = {n: p.detach().clone() for n, p in student_parameters(model).items()}
    optimizer = torch.optim.AdamW(student_parameters(model).values(), lr=1e-7, weight_decay=0.0)
    loss_of(model).backward()
    optimizer.step()
    for name, p in student_parameters(model).items():
        assert not torch.equal(p, before[name]), name


def test_saved_names_are_pefts_and_a_saved_adapter_loads_everywhere(tmp_path):
    model = student(torch.bfloat16)
    model.save_pretrained(str(tmp_path), selected_adapters=["default"], save_embedding_layers=False)
    saved = load_file(tmp_path / WEIGHTS)
    plain = get_peft_model(base(torch.bfloat16), LORA)
    plain.save_pretrained(str(tmp_path / "plain"), save_embedding_layers=False)
    assert set(saved) == set(load_file(tmp_path / "plain" / WEIGHTS))
    assert {t.dtype for t in saved.values()} == {torch.float32}
    assert all(torch.equal(saved[n], p) for n, p in student_parameters(model).items())
    again = load_adapter(base(torch.bfloat16), tmp_path)
    with torch.no_grad():
        expected = model.eval()(input_ids=IDS).logits
        assert torch.equal(again(input_ids=IDS).logits, expected)  # what is evaluated is what was trained
        pefts = PeftModel.from_pretrained(base(torch.bfloat16), str(tmp_path))
        torch.testing.assert_close(pefts(input_ids=IDS).logits, expected, rtol=0.05, atol=0.1)


def test_layers_that_are_more_than_two_matrices_stay_pefts():
    config = copy.copy(LORA)
    config.use_dora = True
    model = get_peft_model(base(torch.bfloat16), config)
    with torch.no_grad():
        expected = model(input_ids=IDS).logits
        compute_in_base_type(model)
        assert torch.equal(model(input_ids=IDS).logits, expected)
    assert not any(isinstance(m, MasterLinear) for m in model.modules())


@pytest.mark.parametrize("dtype", [torch.float32, *LOW])
def test_the_hand_over_has_the_bases_type_and_is_a_copy(dtype, tmp_path):
    model = student(dtype)
    adapter = StudentAdapter(model)
    assert base_type(model) == dtype
    handed = adapter.tensors()
    parameters = student_parameters(model)
    assert set(handed) == set(parameters)
    for name, tensor in handed.items():
        assert tensor.dtype == dtype
        assert torch.equal(tensor, parameters[name].to(dtype))
        tensor.zero_()  # vLLM scales what it is given in place
        assert parameters[name].any()
    adapter(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["adapter_config.json", WEIGHTS]
    again = load_adapter(base(dtype), tmp_path)
    with torch.no_grad():
        assert torch.equal(again(input_ids=IDS).logits, model.eval()(input_ids=IDS).logits)
    plain = PeftModel.from_pretrained(base(dtype), str(tmp_path))
    assert plain.peft_config["default"].inference_mode
    size = sum(p.numel() * dtype.itemsize for p in parameters.values())
    assert size < (tmp_path / WEIGHTS).stat().st_size < size + 20_000


def test_cudnns_attention_is_off_once_a_model_is_loaded(pocket_config):
    was = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        load_model(pocket_config)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was)
