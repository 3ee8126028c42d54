"""The first version's runs, bit for bit: metrics and adapters of every method it had, recorded before methods
became plans.

Bits depend on the processor's instructions and on torch: on a machine like the recording one the files are
equal byte by byte, elsewhere the first step is equal to rounding.
"""

import json
import platform
from pathlib import Path

import pytest
import torch
from runs import metrics, train

from smopd.files import file_digest

RECORDED = json.loads((Path(__file__).parent / "golden.json").read_text())


def machine() -> list[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return [model, torch.backends.cpu.get_cpu_capability(), torch.__version__]


@pytest.mark.parametrize("method", RECORDED["methods"])
def test_a_run_is_what_it_was(method, tmp_path):
    expected = RECORDED["methods"][method]
    run = train(tmp_path / "run", *RECORDED["settings"], method=method)
    first = metrics(run)[0]
    assert first["loss"] == pytest.approx(expected["loss"][0], rel=1e-3)
    assert first["grad_norm"] == pytest.approx(expected["grad_norm"][0], rel=1e-3)
    if machine() == RECORDED["machine"] and torch.get_num_threads() == 1:
        checkpoint = run / "checkpoints" / "step-000003"
        assert file_digest(run / "metrics.jsonl") == expected["metrics"]
        assert file_digest(checkpoint / "adapter_model.safetensors") == expected["student"]
        assert file_digest(checkpoint / "teacher.safetensors") == expected["teacher"]
