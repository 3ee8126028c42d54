"""What the doctor knows of a machine, and what a run would use on it. `advice.py` judges, from these facts
alone.
"""

import os
import platform
from dataclasses import dataclass, field
from functools import partial
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
    """The facts of this machine."""
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
        unfit=tuple(_unfit()),
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
    shape: dict[str, Any] = {
        "hidden_size": 2048,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
    }
    config = Qwen3Config(**shape, intermediate_size=64, num_hidden_layers=1, vocab_size=64)
    with torch.device("meta"):
        body = AutoModel.from_config(
            config, dtype=torch.bfloat16, attn_implementation="sdpa", trust_remote_code=False
        ).eval()
    row_attention: Any = getattr(passes, "row_attention", lambda body, device: "segments")
    scorer_of: Any = getattr(kernel, "scorer_of", None)
    head = "tiles"
    if scorer_of:
        score = scorer_of(device, torch.float32, [Divergence("gjs", 0.5)], None)[0]
        function = score.func if isinstance(score, partial) else score
        head = function.__module__.rpartition(".")[2]
    return {"attention": row_attention(body, device), "head": head}


def _unfit() -> list[str]:
    """Installed packages that are outside of the range smopd asks for."""
    lines, installed_versions = [], machine.package_versions()
    for text in requires("smopd") or []:
        wanted = Requirement(text)
        extra_vllm = wanted.name == "vllm"
        if wanted.name not in machine.PACKAGES or (wanted.marker and not extra_vllm):
            continue
        installed = installed_versions.get(wanted.name)
        if installed and not wanted.specifier.contains(installed, prereleases=True):
            lines.append(f"{wanted.name} {installed} is installed, and smopd wants {wanted.specifier}")
    return lines
