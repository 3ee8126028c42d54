"""Adapters for the vLLM of this process without a file of tensors. vLLM loads an adapter from a folder; its
LoRA manager asks a class of its own to read that, and a subclass in its place can take tensors from memory.
Where vLLM has no such class, there is no such way, and the engine writes files.
"""

import inspect
from typing import Any

from smopd.models.adapter_files import Tensors

# What the reader of a folder is told and the reader of tensors need not know.
OF_FOLDERS = {"lora_dir", "expected_lora_modules", "moe_ep_spec"}


def tensors_by_folder(llm: Any) -> dict[str, Tensors] | None:
    """A dictionary that vLLM looks into before it reads an adapter's folder; None if it cannot be made to."""
    handed: dict[str, Tensors] = {}
    try:
        (taken,) = llm.collective_rpc(lambda worker: _install(worker.model_runner.lora_manager, handed))
    except (AttributeError, TypeError, ValueError):
        return None
    return handed if taken else None


def _install(manager: Any, handed: dict[str, Tensors]) -> bool:
    """Put the subclass into its place. False where its parts are not those of vLLM 0.32."""
    reader: Any = manager._lora_model_cls
    told = set(inspect.signature(reader.from_local_checkpoint).parameters)
    if told - OF_FOLDERS != set(inspect.signature(reader.from_lora_tensors).parameters) - {"tensors"}:
        return False

    class FromMemory(reader):
        """vLLM's adapter, from tensors that were handed over or else from its folder."""

        @classmethod
        def from_local_checkpoint(cls, lora_dir: str, expected_lora_modules: set[str], **options: Any) -> Any:
            tensors = handed.pop(lora_dir, None)
            if tensors is None:
                return super().from_local_checkpoint(lora_dir, expected_lora_modules, **options)
            modules = {name.rpartition(".lora_")[0].rpartition(".")[2] for name in tensors}
            if unknown := sorted(modules - set(expected_lora_modules)):
                raise ValueError(f"vLLM serves no adapter on {', '.join(unknown)} of this model")
            options.pop("moe_ep_spec", None)
            return super().from_lora_tensors(tensors=tensors, **options)

    manager._lora_model_cls = FromMemory
    return True
