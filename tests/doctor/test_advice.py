"""What the doctor advises, from the facts of machines that are only data."""

from dataclasses import replace

import pytest

from smopd.doctor.facts import Facts
from smopd.doctor.report import advice, text, to_json
from smopd.doctor.selftest import Check
from smopd.machine import CudaDevice

GIB = 2**30
H100 = CudaDevice("NVIDIA H100 80GB HBM3", (9, 0), 80 * GIB, 79 * GIB)
VERSIONS = {"torch": "2.13.0", "transformers": "5.19.0", "vllm": "0.32.0", "triton": "3.7.1"}
GOOD = Facts(
    python="3.12.3", system="Linux x86_64", cores=26, physical_cores=13, memory=256 * GIB,
    available=240 * GIB, shared_memory=64 * GIB, versions=VERSIONS, unfit=(), torch_cuda="13.0",
    driver="580.65.06", driver_cuda="13.0", devices=1, gpus=(H100,), compiler=True, threads=None, processes=1,
    sandbox="bubblewrap", engine="vllm", engine_reason="CUDA device and vLLM found",
    scoring={"attention": "flex", "head": "triton_rows"},
)  # fmt: skip
CPU = replace(
    GOOD, torch_cuda=None, driver=None, driver_cuda=None, devices=0, gpus=(), engine="hf",
    versions={"torch": "2.13.0+cpu"}, engine_reason="no CUDA device",
)  # fmt: skip
WITHOUT_VLLM = {name: number for name, number in VERSIONS.items() if name != "vllm"}


def test_it_says_how_many_threads_compute():
    assert "13 physical cores, shared among the processes of a run" in text(GOOD, [])
    assert "OMP_NUM_THREADS=2" in text(replace(GOOD, threads="2"), [])


@pytest.mark.parametrize("facts", [GOOD, CPU], ids=["gpu", "cpu"])
def test_a_sound_machine_has_nothing_to_change(facts):
    assert advice(facts) == []


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (replace(GOOD, gpus=(), torch_cuda=None), "1 GPU, but this torch is a build for the CPU: make gpu"),
        (
            replace(GOOD, gpus=(), driver="535.1", driver_cuda="12.2"),
            "driver 535.1 runs CUDA 12.2 at most, and torch is built for 13.0: install a newer driver",
        ),
        (replace(GOOD, gpus=(), devices=2), "2 GPUs, but torch sees none: look at CUDA_VISIBLE_DEVICES"),
        (replace(GOOD, versions=WITHOUT_VLLM, engine="hf"), "vLLM is not installed"),
        (replace(GOOD, compiler=False), "apt-get install gcc"),
        (replace(GOOD, gpus=(H100, H100), threads="1", shared_memory=64 * 2**20), "--shm-size=8g"),
        (replace(CPU, available=GIB), "only 1.1 GB of the host's memory"),
        (replace(CPU, sandbox="none"), "--allow-unsandboxed"),
        (replace(GOOD, gpus=(replace(H100, capability=(7, 5)),)), "does not compute in bfloat16"),
        (replace(GOOD, gpus=(replace(H100, free=20 * GIB),)), "21 of 86 GB are free"),
        (replace(GOOD, gpus=(replace(H100, total=12 * GIB, free=12 * GIB),)), "smopd plan RECIPE"),
        (replace(GOOD, unfit=("torch 2.9 is installed, and smopd wants <2.14",)), "torch 2.9 is installed"),
    ],
)  # fmt: skip
def test_each_fault_is_one_line_that_says_what_to_do(facts, line):
    (message,) = advice(facts)
    assert line in message


def test_a_driver_of_the_same_major_version_will_do():
    (message,) = advice(replace(GOOD, gpus=(), driver_cuda="13.0", torch_cuda="13.2"))
    assert "newer driver" not in message


def test_a_failed_check_is_told_and_is_not_sound():
    good, bad = Check("float32: loss", 1e-7, 1e-4), Check("float32: gradient", float("nan"), 1e-3)
    assert (good.passed, bad.passed) == (True, False)
    assert to_json(GOOD, [good])["sound"]
    assert not to_json(GOOD, [good, bad])["sound"]
    assert "FAILED" not in text(GOOD, [good])
    assert "do not trust a run on this device" in text(GOOD, [good, bad])
    for part in (
        "H100",
        "compute capability 9.0",
        "NVIDIA 580.65.06, up to CUDA 13.0",
        "auto is vllm",
        "flex",
    ):
        assert part in text(GOOD, [good])
