"""Student and teacher as two LoRA adapters on the same frozen base, kept in float32.

Optimizer, moving average and checkpoints need the float32 matrices; products do not. PEFT would cast the
activations of a bfloat16 base to float32 for them and add in float32, which moves twice the memory. Here the
small matrices are rounded instead, and autograd brings their gradients back to float32. In a float32 base
nothing is cast, and the bits are PEFT's own.
"""

import copy
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors.torch import save_file
from transformers import PreTrainedModel

from smopd.errors import UserError
from smopd.models.adapter_files import CONFIG, STUDENT, TEACHER, WEIGHTS, Tensors, load_adapter
from smopd.models.loading import lora_targets
from smopd.seeds import derive
from smopd.settings import LoraSettings


def attach(base: PreTrainedModel, lora: LoraSettings, seed: int, adapter: Path | None = None) -> PeftModel:
    """Wrap the base with a trainable student and a frozen teacher that equals it in every parameter."""
    if adapter:
        model = load_adapter(base, adapter, trainable=True)
    else:
        sizes = {"r": lora.r, "lora_alpha": lora.alpha, "lora_dropout": lora.dropout}
        targets = lora_targets(base, lora.targets)
        config = LoraConfig(target_modules=targets, task_type="CAUSAL_LM", **sizes)  # type: ignore[arg-type]
        torch.manual_seed(derive(seed, "lora"))
        try:
            model = get_peft_model(base, config, adapter_name=STUDENT)
        except ValueError as error:
            raise UserError(f"lora.targets: {error}") from None
    model.add_adapter(TEACHER, model.peft_config[STUDENT])
    for parameter in adapter_parameters(model):
        parameter.data = parameter.data.float()
    compute_in_base_type(model)
    update_teacher(model, 0.0)  # teacher = student, to the bit
    use_student(model)
    return model


def _parameters(model: torch.nn.Module, adapter: str) -> dict[str, torch.nn.Parameter]:
    """An adapter's LoRA matrices by a name that student and teacher share."""
    part, named = f".{adapter}.", model.named_parameters()
    return {n.replace(part, "."): p for n, p in named if "lora_" in n and part in n}


student_parameters = partial(_parameters, adapter=STUDENT)
teacher_parameters = partial(_parameters, adapter=TEACHER)


def adapter_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [*student_parameters(model).values(), *teacher_parameters(model).values()]


@torch.no_grad()
def update_teacher(model: torch.nn.Module, decay: float) -> None:
    """teacher = decay*teacher + (1 - decay)*student, in float32; few launches for all matrices together."""
    teacher, student = teacher_parameters(model), student_parameters(model)
    torch._foreach_lerp_(list(teacher.values()), [student[name] for name in teacher], 1 - decay)


def use_student(model: PeftModel) -> None:
    """Make the student the active adapter and the only trainable one: PEFT makes an active one trainable."""
    model.set_adapter(STUDENT)
    for parameter in teacher_parameters(model).values():
        parameter.requires_grad_(False)


@contextmanager
def teacher_weights(model: PeftModel, kind: str) -> Iterator[None]:
    """Score without gradient or dropout as `ema` (averaged adapter), `base` (no adapter) or `student`."""
    if kind == "ema":
        model.set_adapter(TEACHER, inference_mode=True)
    try:
        bare = model.disable_adapter() if kind == "base" else nullcontext()
        with torch.no_grad(), evaluating(model), bare:
            yield
    finally:
        use_student(model)


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def merged(model: torch.nn.Module) -> Iterator[None]:
    """The student's adapter folded into the base weights inside this block: one matrix product a layer."""
    layers = [m for m in model.modules() if isinstance(m, LoraLayer)]
    if any(STUDENT in layer.lora_variant or layer.lora_bias.get(STUDENT) for layer in layers):
        more = "this adapter is more than two matrices a layer (DoRA, a bias)"
        raise UserError(f"rollout.merge: {more}; --set rollout.merge=false")
    weights = [layer.get_base_layer().weight for layer in layers]
    kept = [weight.data for weight in weights]
    try:
        with torch.no_grad():
            for layer, weight in zip(layers, weights, strict=True):
                weight.data = weight.data + layer.get_delta_weight(STUDENT).to(weight.dtype)  # type: ignore[operator]
                layer.merged_adapters.append(STUDENT)  # tells the layer to use its base weight alone
        yield
    finally:
        for layer, weight, data in zip(layers, weights, kept, strict=True):
            weight.data = data
            layer.merged_adapters.clear()


def save_teacher(model: torch.nn.Module, path: Path) -> None:
    save_file({name: p.detach().cpu().contiguous() for name, p in teacher_parameters(model).items()}, path)


@dataclass(frozen=True)
class StudentAdapter:
    """The student for an engine with weights of its own, as tensors, or (called) as a PEFT folder. In the
    type the base computes in, which is what training multiplies with; checkpoints stay in float32.
    """

    model: PeftModel
    kept: Tensors | None = None  # the student as it was, instead of as it is

    def __call__(self, folder: Path) -> None:
        self.write_config(folder)
        save_file(self.tensors(), folder / WEIGHTS, metadata={"format": "pt"})
        # safetensors makes files that only their owner reads; a server that loads it may be another user.
        shutil.copymode(folder / CONFIG, folder / WEIGHTS)

    def write_config(self, folder: Path) -> None:
        config = copy.copy(self.model.peft_config[STUDENT])
        config.inference_mode = True
        config.save_pretrained(str(folder))

    @torch.no_grad()
    def tensors(self) -> Tensors:
        """Copies of the matrices on the CPU under PEFT's names, fetched from a device in one piece."""
        if self.kept is not None:
            return self.kept
        named = get_peft_model_state_dict(self.model, adapter_name=STUDENT, save_embedding_layers=False)
        dtype = base_type(self.model)
        together = torch.cat([tensor.to(dtype).flatten() for tensor in named.values()]).cpu()
        parts = together.split([tensor.numel() for tensor in named.values()])
        return {name: part.view(named[name].shape) for name, part in zip(named, parts, strict=True)}


class MasterLinear(torch.nn.Linear):
    """A linear layer whose weight is rounded to the type of its input, for the product alone."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.to(input.dtype)
        return F.linear(input, self.weight.to(input.dtype), bias)


def compute_in_base_type(model: torch.nn.Module) -> None:
    """Let every adapter of a model compute in the type of the activations; its parameters do not change."""
    for layer in model.modules():
        # What is more than two matrices (DoRA) mixes them with the base weights, and casts as PEFT does.
        if not isinstance(layer, LoraLayer) or layer.lora_variant or not layer.lora_A:
            continue
        matrices = [*layer.lora_A.values(), *layer.lora_B.values()]
        for linear in matrices:
            if type(linear) is torch.nn.Linear:
                linear.__class__ = MasterLinear
        if all(isinstance(linear, MasterLinear) for linear in matrices):
            layer.cast_input_dtype_enabled = False


def base_type(model: torch.nn.Module) -> torch.dtype:
    """The type that a model computes in: that of its embeddings, whatever its quantised weights are."""
    return model.get_input_embeddings().weight.dtype  # type: ignore[operator]
