"""Facts about this machine: CPU, memory, GPUs, driver, versions."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from smopd.lazy import torch

PACKAGES = ("torch", "transformers", "peft", "accelerate", "vllm", "triton")  # affect how a run computes


@dataclass(frozen=True)
class CudaDevice:
    """A CUDA device that torch sees; memory is in bytes."""

    name: str
    capability: tuple[int, int]
    total: int
    free: int


@cache
def code_version() -> str:
    """Version and hash of the package's source (0.1.0+src.1a2b3c4d); edits change only the hash."""
    root = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=4)
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return f"{version('smopd')}+src.{digest.hexdigest()}"


def package_versions(names: Sequence[str] = PACKAGES) -> dict[str, str]:
    installed: dict[str, str] = {}
    for name in names:
        for package in (name, f"{name}-cpu"):  # vLLM's build for CPUs is a package of its own
            with suppress(PackageNotFoundError):
                installed.setdefault(name, version(package))
    return installed


def describe_cpu(threads: int, libraries: Sequence[str] = ("torch", "transformers")) -> dict[str, Any]:
    info = Path("/proc/cpuinfo")
    match = re.search(r"model name\s*:\s*(.+)", info.read_text()) if info.exists() else None
    name = match.group(1) if match else platform.processor() or platform.machine()
    used = {"cpu": name, "threads": threads, "python": platform.python_version()}
    return used | package_versions(libraries)


def cpu_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_cores() -> int:
    """Physical cores this process may use, within a container's limit."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else cpu)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(len(cores), int(quota) // int(period)))
    except (OSError, ValueError):  # no container, or one without a limit
        return len(cores)


def host_memory() -> tuple[int, int]:
    """Total and available bytes of the host's memory, within a container's limit."""
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


def shared_memory() -> int | None:
    """Bytes of /dev/shm, or None if it does not exist."""
    return shutil.disk_usage("/dev/shm").total if Path("/dev/shm").is_dir() else None


def has_c_compiler() -> bool:
    """Triton needs one to build its kernels' launchers."""
    return any(shutil.which(name) for name in (os.environ.get("CC") or "cc", "gcc", "clang"))


def nvidia_driver() -> tuple[str | None, str | None, int]:
    """The NVIDIA driver, the newest CUDA version it runs, and the number of devices it lists."""
    try:
        head = subprocess.run(["nvidia-smi"], capture_output=True, text=True, timeout=30).stdout
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None, None, 0
    return (*read_nvidia_smi(head), sum(line.startswith("GPU ") for line in listed.splitlines()))


def read_nvidia_smi(text: str) -> tuple[str | None, str | None]:
    driver, cuda = (re.search(rf"{name} Version:\s*([\d.]+)", text) for name in ("Driver", "CUDA"))
    return driver and driver[1], cuda and cuda[1]


def cuda_devices() -> tuple[CudaDevice, ...]:
    if not torch.cuda.is_available():
        return ()
    devices = []
    for number in range(torch.cuda.device_count()):
        free, total = torch.cuda.mem_get_info(number)
        name, capability = torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number)
        devices.append(CudaDevice(name, capability, total, free))
    return tuple(devices)


def process_count() -> int:
    return int(os.environ.get("WORLD_SIZE") or 1)


def engine_facts() -> tuple[bool, bool, int]:
    """What decides the engine: whether there is a CUDA device, whether vLLM is installed, process count."""
    return torch.cuda.is_available(), find_spec("vllm") is not None, process_count()
