"""What a machine has, collected once. Nothing here judges: `advice.py` does, from these facts alone."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import torch
from packaging.requirements import Requirement
from transformers import AutoModel, Qwen3Config

from smopd.code_version import PACKAGES, versions
from smopd.config import load_config
from smopd.rollout.choice import choose_engine, this_machine
from smopd.scoring import kernel, passes
from smopd.scoring.losses import Divergence
from smopd.verify.sandbox import isolation


@dataclass(frozen=True)
class Gpu:
    """One CUDA device that torch sees, with bytes of memory."""

    name: str
    capability: tuple[int, int]
    total: int
    free: int


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
    gpus: tuple[Gpu, ...]  # that torch sees
    compiler: bool  # for C, which Triton calls
    threads: str | None  # OMP_NUM_THREADS
    processes: int
    sandbox: str
    engine: str  # what engine.kind=auto gives
    engine_reason: str
    scoring: dict[str, str] = field(default_factory=dict)  # which attention and which head


def collect() -> Facts:
    """The facts of this machine."""
    cuda, vllm, processes = this_machine()
    engine, reason = choose_engine(load_config("qwen3-1.7b"), cuda, vllm, processes)
    driver, driver_cuda, devices = _driver()
    memory, available = _host_memory()
    gpus = tuple(_gpu(k) for k in range(torch.cuda.device_count())) if cuda else ()
    return Facts(
        python=platform.python_version(),
        system=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=memory,
        available=available,
        shared_memory=shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None,
        versions=versions(),
        unfit=tuple(_unfit()),
        torch_cuda=torch.version.cuda,
        driver=driver,
        driver_cuda=driver_cuda,
        devices=devices,
        gpus=gpus,
        compiler=any(shutil.which(name) for name in (os.environ.get("CC") or "cc", "gcc", "clang")),
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


def _gpu(number: int) -> Gpu:
    free, total = torch.cuda.mem_get_info(number)
    name, capability = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
    return Gpu(name, capability, total, free)


def _driver() -> tuple[str | None, str | None, int]:
    """NVIDIA's driver, the newest CUDA it runs, and how many devices it lists."""
    try:
        said = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=30).stdout
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None, None, 0
    return (*read_nvidia_smi(said), sum(line.startswith("GPU ") for line in listed.splitlines()))


def read_nvidia_smi(said: str) -> tuple[str | None, str | None]:
    """Driver and CUDA version from the head of what nvidia-smi prints."""
    found = [re.search(rf"{name} Version:\s*([\d.]+)", said) for name in ("Driver", "CUDA")]
    driver, cuda = (match.group(1) if match else None for match in found)
    return driver, cuda


def _host_memory() -> tuple[int, int]:
    """Bytes of the host's memory, and of what is available, a container's limit included."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:  # not Linux
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return whole, whole
    size = {name: int(number) * 1024 for name, number in re.findall(r"(\w+):\s+(\d+) kB", text)}
    total, available = size["MemTotal"], size["MemAvailable"]
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):  # no container, or one without a limit
        return total, available
    return min(total, limit), min(available, max(0, limit - used))


def _unfit() -> list[str]:
    """Installed packages that are outside of the range smopd asks for."""
    lines = []
    for text in requires("smopd") or []:
        wanted = Requirement(text)
        extra_vllm = wanted.name == "vllm"
        if wanted.name not in PACKAGES or (wanted.marker and not extra_vllm):
            continue
        try:
            installed = version(wanted.name)
        except PackageNotFoundError:
            continue
        if not wanted.specifier.contains(installed, prereleases=True):
            lines.append(f"{wanted.name} {installed} is installed, and smopd wants {wanted.specifier}")
    return lines
