"""The EMA teacher as a second adapter, and its traps."""

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from support.played import move_student, student_of

from smopd.errors import UserError
from smopd.models import load_model
from smopd.models.adapter_files import TEACHER, fill_adapter
from smopd.models.adapters import (
    attach,
    merged,
    save_teacher,
    student_parameters,
    teacher_parameters,
    teacher_weights,
    update_teacher,
)
from smopd.settings import LoraSettings


@pytest.fixture
def model(pocket):
    return student_of(pocket)


def test_the_teacher_starts_as_the_student_in_a_and_b(model):
    student, teacher = student_parameters(model), teacher_parameters(model)
    assert set(student) == set(teacher)
    assert len(student) == 2 * 7 * model.config.num_hidden_layers
    for name in student:
        assert torch.equal(student[name], teacher[name]), name
        assert student[name].data_ptr() != teacher[name].data_ptr()
    assert any(p.abs().sum() > 0 for n, p in teacher.items() if "lora_A" in n)


def test_after_n_updates_the_teacher_has_the_closed_form(model):
    start = {n: p.detach().clone() for n, p in teacher_parameters(model).items()}
    move_student(model, 1.0)
    for _ in range(7):
        update_teacher(model, 0.9)
    for name, p in teacher_parameters(model).items():
        expected = 0.9**7 * start[name] + (1 - 0.9**7) * student_parameters(model)[name]
        torch.testing.assert_close(p, expected.detach(), rtol=1e-5, atol=1e-6)


def test_the_average_is_float32_over_a_bfloat16_base(pocket):
    model = attach(pocket.model.bfloat16(), LoraSettings(r=4, alpha=8), seed=1)
    assert {p.dtype for p in (*student_parameters(model).values(), *teacher_parameters(model).values())} == {
        torch.float32
    }
    move_student(model, 1.0)
    before = {n: p.detach().clone() for n, p in teacher_parameters(model).items()}
    update_teacher(model, 0.9999)  # a motion that bfloat16 would round away
    assert all(not torch.equal(before[n], p) for n, p in teacher_parameters(model).items())


def test_only_the_student_is_trainable_also_after_switching(model):
    def trainable() -> set[str]:
        return {n for n, p in model.named_parameters() if p.requires_grad}

    expected = {n for n, _ in model.named_parameters() if "lora_" in n and ".default." in n}
    assert trainable() == expected
    with teacher_weights(model, "ema"):
        assert trainable() == set()
    assert trainable() == expected
    with pytest.raises(RuntimeError, match="inside"), teacher_weights(model, "ema"):
        raise RuntimeError("inside")
    assert trainable() == expected


def test_inside_the_block_the_teacher_computes_and_keeps_no_graph(model):
    ids = torch.tensor([[5, 6, 7, 8]])
    same = model(input_ids=ids).logits
    move_student(model, 1.0)
    student = model(input_ids=ids).logits
    with teacher_weights(model, "ema"):
        teacher = model(input_ids=ids).logits
    assert not teacher.requires_grad
    assert student.requires_grad
    torch.testing.assert_close(teacher, same)
    assert (student - teacher).abs().max() > 0.01
    update_teacher(model, 0.0)
    with teacher_weights(model, "ema"):
        torch.testing.assert_close(model(input_ids=ids).logits, student)


def test_the_teacher_survives_save_and_load(model, tmp_path):
    move_student(model, 1.0)
    update_teacher(model, 0.5)
    saved = {n: p.detach().clone() for n, p in teacher_parameters(model).items()}
    save_teacher(model, tmp_path / "t.safetensors")
    update_teacher(model, 0.0)
    fill_adapter(model, load_file(tmp_path / "t.safetensors"), tmp_path, TEACHER)
    assert all(torch.equal(saved[n], p) for n, p in teacher_parameters(model).items())


def test_the_student_starts_from_a_given_adapter_and_the_teacher_with_it(model, tmp_path, pocket_config):
    move_student(model, 1.0)
    model.save_pretrained(str(tmp_path), selected_adapters=["default"])
    again = attach(load_model(pocket_config).model, LoraSettings(), seed=9, adapter=tmp_path)
    for name, p in student_parameters(model).items():
        assert torch.equal(student_parameters(again)[name], p)
        assert torch.equal(teacher_parameters(again)[name], p)
    assert isinstance(PeftModel.from_pretrained(load_model(pocket_config).model, str(tmp_path)), PeftModel)


def test_unknown_targets_are_a_user_error(pocket):
    with pytest.raises(ValueError, match=r"lora\.targets"):
        attach(pocket.model, LoraSettings(targets=["no_such_layer"]), seed=1)


def test_merged_is_the_same_policy_and_leaves_the_weights_as_they_were(model):
    move_student(model, 1.0)
    ids = torch.tensor([[5, 6, 7, 8]])
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    trainable = {n for n, p in model.named_parameters() if p.requires_grad}
    apart = model(input_ids=ids).logits
    with merged(model):
        folded = model(input_ids=ids).logits
    assert not torch.equal(folded, apart)  # computed another way
    torch.testing.assert_close(folded, apart, rtol=1e-3, atol=1e-3)
    assert all(torch.equal(p, weights[n]) for n, p in model.named_parameters())
    assert {n for n, p in model.named_parameters() if p.requires_grad} == trainable
    assert torch.equal(model(input_ids=ids).logits, apart)
    with pytest.raises(RuntimeError, match="inside"), merged(model):
        raise RuntimeError("inside")
    assert all(torch.equal(p, weights[n]) for n, p in model.named_parameters())


def test_what_is_more_than_two_matrices_is_not_folded_as_if_it_were_not(pocket):
    targets = LoraConfig(r=2, use_dora=True, target_modules=["q_proj"], task_type="CAUSAL_LM")
    with (
        pytest.raises(UserError, match=r"rollout\.merge=false"),
        merged(get_peft_model(pocket.model, targets)),
    ):
        pass
