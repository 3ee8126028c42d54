"""The facts of a machine, and what a run would use on it. `report.py` judges, from these facts alone."""

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
from smopd.rollout.choice import choose_engine
from smopd.scoring import kernel, passes
from smopd.scoring.losses import Divergence
from smopd.verify.sandbox import isolation


@dataclass(frozen=True)
class Facts:
    """What a machine has. `None`: not there."""

    python: str
    system: str
    cores: int
    memory: int  # bytes of the host, as is what is available of it
    available: int
    shared_memory: int | None  # bytes of /dev/shm
    versions: dict[str, str]
    unfit: tuple[str, ...]  # packages whose version is outside of what smopd asks for, in words
    torch_cuda: str | None  # the CUDA that torch was built for
    driver: str | None  # NVIDIA's
    driver_cuda: str | None  # the newest CUDA the driver runs
    devices: int  # that the driver lists
    gpus: tuple[CudaDevice, ...]  # that torch sees
    compiler: bool  # for C, which Triton calls
    threads: str | None  # OMP_NUM_THREADS
    processes: int
    sandbox: str
    engine: str  # what engine.kind=auto gives
    engine_reason: str
    scoring: dict[str, str] = field(default_factory=dict)  # which attention and which head


def collect() -> Facts:
    cuda, vllm, processes = machine.engine_facts()
    engine, reason = choose_engine(load_config("qwen3-1.7b"), cuda, vllm, processes)
    driver, driver_cuda, devices = machine.nvidia_driver()
    memory, available = machine.host_memory()
    return Facts(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=machine.cpu_cores(),
        memory=memory,
        available=available,
        shared_memory=machine.shared_memory(),
        versions=machine.package_versions(),
        unfit=tuple(_find_unfit_packages()),
        torch_cuda=torch.version.cuda,
        driver=driver,
        driver_cuda=driver_cuda,
        devices=devices,
        gpus=machine.cuda_devices(),
        compiler=machine.has_c_compiler(),
        threads=os.environ.get("OMP_NUM_THREADS"),
        processes=processes,
        sandbox=isolation(),
        engine=engine,
        engine_reason=reason,
        scoring=scoring_choices(torch.device("cuda", 0) if cuda else torch.device("cpu")),
    )


def scoring_choices(device: torch.device) -> dict[str, str]:
    """Which attention and which head kernel score a Qwen3 model in bfloat16 on this device."""
    # Without weights: only its shape and type are looked at.
    sizes: dict[str, Any] = {"hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8}
    shape = Qwen3Config(**sizes, head_dim=128, intermediate_size=64, num_hidden_layers=1, vocab_size=64)
    look: dict[str, Any] = {"dtype": torch.bfloat16, "attn_implementation": "sdpa"}
    with torch.device("meta"):
        body = AutoModel.from_config(shape, trust_remote_code=False, **look).eval()
    score: Any = kernel.scorer_of(device, torch.float32, [Divergence("gjs", 0.5)], None)[0]
    head = getattr(score, "func", score).__module__.rpartition(".")[2]  # a partial of it, or itself
    return {"attention": passes.row_attention(body, device), "head": head}


def _find_unfit_packages() -> list[str]:
    """Installed packages that are outside of the range smopd asks for."""
    lines, installed = [], machine.package_versions()
    for wanted in map(Requirement, requires("smopd") or []):
        number = installed.get(wanted.name)
        asked = not wanted.marker or wanted.name == "vllm"  # which is an extra
        if number and asked and not wanted.specifier.contains(number, prereleases=True):
            lines.append(f"{wanted.name} {number} is installed, and smopd wants {wanted.specifier}")
    return lines
