"""The student's adapter for an engine with weights of its own: as tensors, or as a folder in PEFT's format.
In the type the base computes in, which is what training multiplies with; checkpoints stay in float32.
"""

import copy
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from peft import PeftModel, get_peft_model_state_dict
from safetensors.torch import save_file

from smopd.models.adapter_files import CONFIG, STUDENT, WEIGHTS, Tensors
from smopd.models.mixed_precision import base_type


@dataclass(frozen=True)
class StudentAdapter:
    """The student of a model that is being trained. Calling it writes a PEFT folder."""

    model: PeftModel

    def __call__(self, folder: Path) -> None:
        """Write settings and tensors into a folder."""
        self.write_config(folder)
        save_file(self.tensors(), folder / WEIGHTS, metadata={"format": "pt"})
        # safetensors makes files that only their owner reads; a server that loads it may be another user.
        shutil.copymode(folder / CONFIG, folder / WEIGHTS)

    def write_config(self, folder: Path) -> None:
        """The settings alone."""
        config = copy.copy(self.model.peft_config[STUDENT])
        config.inference_mode = True
        config.save_pretrained(str(folder))

    @torch.no_grad()
    def tensors(self) -> Tensors:
        """Copies of the matrices on the CPU under PEFT's names, fetched from a device in one piece."""
        named = get_peft_model_state_dict(self.model, adapter_name=STUDENT, save_embedding_layers=False)
        dtype = base_type(self.model)
        together = torch.cat([tensor.to(dtype).flatten() for tensor in named.values()]).cpu()
        parts = together.split([tensor.numel() for tensor in named.values()])
        return {name: part.view(named[name].shape) for name, part in zip(named, parts, strict=True)}
