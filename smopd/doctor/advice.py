"""From facts to what to change: pure functions, a line each, the most important first."""

from smopd.doctor.facts import Facts
from smopd.machine import CudaDevice

GB = 1e9
LITTLE_MEMORY = 4 * GB  # of the host
LITTLE_SHARED = 1 * GB  # of /dev/shm, through which processes on one node hand tensors to each other
SMALL_GPU = 16 * GB


def advice(facts: Facts) -> list[str]:
    """What to change on this machine, and how."""
    lines = [*facts.unfit, *_cuda(facts)]
    for number, gpu in enumerate(facts.gpus):
        lines += _gpu(number, gpu)
    if facts.gpus and facts.engine == "hf" and "vllm" not in facts.versions:
        lines.append(
            "vLLM is not installed, so replies are sampled by transformers, which is slower: make gpu"
        )
    if facts.gpus and not facts.compiler:
        lines.append("no C compiler, which Triton's kernels need at their first use: apt-get install gcc")
    if (len(facts.gpus) > 1 or facts.processes > 1) and not facts.threads:
        several = f"every process of a run would take all {facts.cores} cores"
        lines.append(f"OMP_NUM_THREADS is not set: {several}; export OMP_NUM_THREADS=1")
    if len(facts.gpus) > 1 and facts.shared_memory is not None and facts.shared_memory < LITTLE_SHARED:
        size = f"/dev/shm has {facts.shared_memory / GB:.2g} GB, and NCCL wants more between GPUs"
        lines.append(f"{size}: start the container with --shm-size=8g")
    if facts.available < LITTLE_MEMORY:
        lines.append(
            f"only {facts.available / GB:.1f} GB of the host's memory are available: end what uses it"
        )
    if facts.sandbox == "none":
        lines.append(
            "no sandbox for model-written programs (task code): apt-get install bubblewrap, or run with "
            "--allow-unsandboxed"
        )
    return lines


def _cuda(facts: Facts) -> list[str]:
    """Why torch sees no GPU where the driver lists one."""
    if facts.gpus or not facts.devices:
        return []
    there = f"the driver lists {facts.devices} GPU{'s' * (facts.devices > 1)}"
    if facts.torch_cuda is None:
        return [f"{there}, but this torch is a build for the CPU: make gpu"]
    if facts.driver_cuda and _major(facts.driver_cuda) < _major(facts.torch_cuda):
        old = f"driver {facts.driver} runs CUDA {facts.driver_cuda} at most, and torch is built for"
        return [f"{there}, but {old} {facts.torch_cuda}: install a newer driver"]
    return [f"{there}, but torch sees none: look at CUDA_VISIBLE_DEVICES, and restart after a driver update"]


def _gpu(number: int, gpu: CudaDevice) -> list[str]:
    lines, where = [], f"GPU {number} ({gpu.name})"
    if gpu.capability < (8, 0):
        lines.append(f"{where} does not compute in bfloat16: --set model.dtype=float16")
    if gpu.free < 0.8 * gpu.total:
        left = f"{gpu.free / GB:.0f} of {gpu.total / GB:.0f} GB are free"
        lines.append(f"{where}: {left}: another process uses it (nvidia-smi)")
    if gpu.total < SMALL_GPU:
        lines.append(f"{where} has {gpu.total / GB:.0f} GB: smopd plan RECIPE says what fits")
    return lines


def _major(version: str) -> int:
    return int(version.partition(".")[0])
