"""The doctor's findings as JSON and as text, and its advice, the most important first."""

from dataclasses import asdict
from typing import Any

from packaging.version import Version

from smopd.doctor.facts import Facts
from smopd.doctor.selftest import Check

GB = 1e9


def to_json(facts: Facts, checks: list[Check]) -> dict[str, Any]:
    return {
        "sound": all(check.passed for check in checks),
        "facts": asdict(facts),
        "self_test": [{**asdict(check), "passed": check.passed} for check in checks],
        "advice": advice(facts),
    }


def text(facts: Facts, checks: list[Check]) -> str:
    available = f"{facts.available / GB:.1f} of {facts.memory / GB:.1f} GB of memory available"
    build = f"torch is built for {f'CUDA {facts.torch_cuda}' if facts.torch_cuda else 'the CPU'}"
    driver = f"NVIDIA {facts.driver}, up to CUDA {facts.driver_cuda or '?'}"
    device = "CUDA" if facts.gpus else "CPU"
    shared = f"{facts.physical_cores} physical cores, shared among the processes of a run"
    shared += "; 1 for models of less than 20 million parameters"
    rows = {
        "machine": f"{facts.system}, Python {facts.python}, {facts.cores} cores, {available}",
        "threads": f"OMP_NUM_THREADS={facts.threads}" if facts.threads else shared,
        "packages": ", ".join(f"{name} {number}" for name, number in facts.versions.items()),
        "driver": f"{driver if facts.driver else 'no NVIDIA driver'}; {build}",
    }
    for number, gpu in enumerate(facts.gpus):
        capability = ".".join(map(str, gpu.capability))
        memory = f"{gpu.free / GB:.1f} of {gpu.total / GB:.1f} GB free"
        rows[f"GPU {number}"] = f"{gpu.name}, compute capability {capability}, {memory}"
    if not facts.gpus:
        rows["GPU"] = "none that torch sees: everything runs on the CPU"
    rows["sampling"] = f"engine.kind=auto is {facts.engine} ({facts.engine_reason})"
    scoring = ", ".join(f"{part}: {how}" for part, how in facts.scoring.items())
    rows |= {"scoring": f"{scoring} on {device}", "sandbox": facts.sandbox}
    lines = [f"{name:<12}{row}" for name, row in rows.items()]
    lines += ["", f"self-test, {device} against float64 on the CPU"]
    for check in checks:
        verdict = "ok" if check.passed else "FAILED"
        lines.append(f"  {check.name:<36}{check.error:>10.2g}  at most {check.bound:<8g}{verdict}")
    changes = advice(facts)
    lines += ["", "what to change" if changes else "nothing to change", *(f"  {line}" for line in changes)]
    if not all(check.passed for check in checks):
        lines += ["", "The self-test FAILED: do not trust a run on this device."]
    return "\n".join(lines)


def advice(facts: Facts) -> list[str]:
    shared = facts.shared_memory
    lines = [*facts.unfit, *_cuda(facts)]
    for number, gpu in enumerate(facts.gpus):
        where = f"GPU {number} ({gpu.name})"
        if gpu.capability < (8, 0):
            lines += [f"{where} does not compute in bfloat16: --set model.dtype=float16"]
        if gpu.free < 0.8 * gpu.total:
            left = f"{gpu.free / GB:.0f} of {gpu.total / GB:.0f} GB are free"
            lines += [f"{where}: {left}: another process uses it (nvidia-smi)"]
        if gpu.total < 16 * GB:
            lines += [f"{where} has {gpu.total / GB:.0f} GB: smopd plan RECIPE says what fits"]
    if facts.gpus and facts.engine == "hf" and "vllm" not in facts.versions:
        lines += ["vLLM is not installed, so replies are sampled by transformers, which is slower: make gpu"]
    if facts.gpus and not facts.compiler:
        lines += ["no C compiler, which Triton's kernels need at their first use: apt-get install gcc"]
    if len(facts.gpus) > 1 and shared is not None and shared < GB:
        size = f"/dev/shm has {shared / GB:.2g} GB, and NCCL wants more between GPUs"
        lines += [f"{size}: start the container with --shm-size=8g"]
    if facts.available < 4 * GB:
        lines += [f"only {facts.available / GB:.1f} GB of the host's memory are available: end what uses it"]
    if facts.sandbox == "none":
        remedy = "apt-get install bubblewrap, or run with --allow-unsandboxed"
        lines += [f"no sandbox for model-written programs (task code): {remedy}"]
    return lines


def _cuda(facts: Facts) -> list[str]:
    """Explain why torch sees no GPU although the driver lists one."""
    if facts.gpus or not facts.devices:
        return []
    there = f"the driver lists {facts.devices} GPU{'s' * (facts.devices > 1)}"
    if facts.torch_cuda is None:
        return [f"{there}, but this torch is a build for the CPU: make gpu"]
    if facts.driver_cuda and Version(facts.driver_cuda).major < Version(facts.torch_cuda).major:
        old = f"driver {facts.driver} runs CUDA {facts.driver_cuda} at most, and torch is built for"
        return [f"{there}, but {old} {facts.torch_cuda}: install a newer driver"]
    return [f"{there}, but torch sees none: look at CUDA_VISIBLE_DEVICES, and restart after a driver update"]
