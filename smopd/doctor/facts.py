"""The facts of a machine, and what a run would use on it; `report.py` judges them."""

import os
import platform
from dataclasses import dataclass, field
from importlib.metadata import requires
from typing import Any

import torch
from packaging.requirements import Requirement
from transformers import AutoModel, Qwen3Config

from smopd import machine
from smopd.config import load_config
from smopd.machine import CudaDevice
from smopd.rollout.engine import choose_engine
from smopd.scoring import kernel, passes
from smopd.scoring.losses import Divergence
from smopd.verify.sandbox import isolation


def _find_unfit_packages() -> tuple[str, ...]:
    lines, installed = [], machine.package_versions()
    for wanted in map(Requirement, requires("smopd") or []):
        number = installed.get(wanted.name)
        asked = not wanted.marker or wanted.name == "vllm"  # which is an extra
        if number and asked and not wanted.specifier.contains(number, prereleases=True):
            lines.append(f"{wanted.name} {number} is installed, and smopd wants {wanted.specifier}")
    return tuple(lines)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Facts of a machine, by default this one; None means absent."""

    python: str = field(default_factory=platform.python_version)
    system: str = field(default_factory=lambda: f"{platform.system()} {platform.machine()}")
    cores: int = field(default_factory=machine.cpu_cores)
    memory: int  # bytes of the host, as is what is available of it
    available: int
    shared_memory: int | None = field(default_factory=machine.shared_memory)  # bytes of /dev/shm
    versions: dict[str, str] = field(default_factory=machine.package_versions)
    unfit: tuple[str, ...] = field(default_factory=_find_unfit_packages)  # outside the required versions
    torch_cuda: str | None = torch.version.cuda  # the CUDA that torch was built for
    driver: str | None  # NVIDIA's
    driver_cuda: str | None  # the newest CUDA the driver runs
    devices: int  # that the driver lists
    gpus: tuple[CudaDevice, ...] = field(default_factory=machine.cuda_devices)  # that torch sees
    compiler: bool = field(default_factory=machine.has_c_compiler)  # for C, which Triton calls
    physical_cores: int = field(default_factory=machine.physical_cores)
    threads: str | None = field(default_factory=lambda: os.environ.get("OMP_NUM_THREADS"))
    processes: int
    sandbox: str = field(default_factory=isolation)
    engine: str  # what engine.kind=auto gives
    engine_reason: str
    scoring: dict[str, str]  # which attention and which head


def collect() -> Facts:
    cuda, vllm, processes = machine.engine_facts()
    engine, reason = choose_engine(load_config("qwen3-1.7b"), cuda, vllm, processes)
    names = ("memory", "available", "driver", "driver_cuda", "devices")
    measured: Any = zip(names, (*machine.host_memory(), *machine.nvidia_driver()), strict=True)
    scoring = scoring_choices(torch.device("cuda", 0) if cuda else torch.device("cpu"))
    return Facts(**dict(measured), processes=processes, engine=engine, engine_reason=reason, scoring=scoring)


def scoring_choices(device: torch.device) -> dict[str, str]:
    """Which attention and which head kernel score a Qwen3 model in bfloat16 on this device."""
    # Without weights: only shape and dtype matter.
    sizes: dict[str, Any] = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8}
    shape = Qwen3Config(**sizes, head_dim=128, intermediate_size=64, num_hidden_layers=1, vocab_size=64)
    look: dict[str, Any] = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
    with torch.device("meta"):
        body = AutoModel.from_config(shape, trust_remote_code=False, **look).eval()
    score: Any = kernel.scorer_of(device, torch.float32, [Divergence("gjs", 0.5)], None)[0]
    head = getattr(score, "func", score).__module__.rpartition(".")[2]  # it may be a partial
    return {"attention": passes.row_attention(body, device), "head": head}
