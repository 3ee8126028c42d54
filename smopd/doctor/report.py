"""The doctor's findings as JSON and as text."""

from dataclasses import asdict
from typing import Any

from smopd.doctor.advice import GB, advice
from smopd.doctor.facts import Facts
from smopd.doctor.selftest import Check


def to_json(facts: Facts, checks: list[Check]) -> dict[str, Any]:
    """Everything."""
    return {
        "sound": all(check.passed for check in checks),
        "facts": asdict(facts),
        "self_test": [{**asdict(check), "passed": check.passed} for check in checks],
        "advice": advice(facts),
    }


def text(facts: Facts, checks: list[Check]) -> str:
    """For a person."""
    packages = ", ".join(f"{name} {number}" for name, number in facts.versions.items())
    lines = [
        f"{'machine':<12}{facts.system}, Python {facts.python}, {facts.cores} cores, "
        f"{facts.available / GB:.1f} of {facts.memory / GB:.1f} GB of memory available",
        f"{'packages':<12}{packages}",
        f"{'driver':<12}{_driver(facts)}",
    ]
    for number, gpu in enumerate(facts.gpus):
        capability = ".".join(map(str, gpu.capability))
        memory = f"{gpu.free / GB:.1f} of {gpu.total / GB:.1f} GB free"
        lines.append(f"{f'GPU {number}':<12}{gpu.name}, compute capability {capability}, {memory}")
    if not facts.gpus:
        lines.append(f"{'GPU':<12}none that torch sees: everything runs on the CPU")
    device = "CUDA" if facts.gpus else "CPU"
    lines += [
        f"{'sampling':<12}engine.kind=auto is {facts.engine} ({facts.engine_reason})",
        f"{'scoring':<12}"
        + ", ".join(f"{part}: {how}" for part, how in facts.scoring.items())
        + f" on {device}",
        f"{'sandbox':<12}{facts.sandbox}",
        "",
        f"self-test, {device} against float64 on the CPU",
    ]
    for check in checks:
        verdict = "ok" if check.passed else "FAILED"
        lines.append(f"  {check.name:<36}{check.error:>10.2g}  at most {check.bound:<8g}{verdict}")
    found = advice(facts)
    lines += ["", "what to change", *(f"  {line}" for line in found)] if found else ["", "nothing to change"]
    if not all(check.passed for check in checks):
        lines += ["", "The self-test FAILED: do not trust a run on this device."]
    return "\n".join(lines)


def _driver(facts: Facts) -> str:
    built = (
        f"torch is built for CUDA {facts.torch_cuda}" if facts.torch_cuda else "torch is built for the CPU"
    )
    if facts.driver is None:
        return f"no NVIDIA driver; {built}"
    return f"NVIDIA {facts.driver}, up to CUDA {facts.driver_cuda or '?'}; {built}"
