"""The first version's runs, bit for bit: metrics and adapters of every method it had, recorded before methods
became plans.

Bits depend on the processor's instructions and on torch: on a machine like the recording one the files are
equal byte by byte, elsewhere the first step is equal to rounding.
"""

import hashlib
import json
import platform
from pathlib import Path

import pytest
import torch

from smopd.config import load_config
from smopd.training.loop import Trainer
from smopd.training.run_folder import RunFolder

RECORDED = json.loads((Path(__file__).parent / "golden.json").read_text())


def machine() -> list[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return [model, torch.backends.cpu.get_cpu_capability(), torch.__version__]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("method", RECORDED["methods"])
def test_a_run_is_what_it_was(method, tmp_path):
    expected = RECORDED["methods"][method]
    config = load_config("pocket", RECORDED["settings"], method)
    Trainer(config, RunFolder(tmp_path / "run", config)).train()
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["loss"] == pytest.approx(expected["loss"][0], rel=1e-3)
    assert rows[0]["grad_norm"] == pytest.approx(expected["grad_norm"][0], rel=1e-3)
    if machine() == RECORDED["machine"] and torch.get_num_threads() == 1:
        checkpoint = tmp_path / "run" / "checkpoints" / "step-000003"
        assert digest(tmp_path / "run" / "metrics.jsonl") == expected["metrics"]
        assert digest(checkpoint / "adapter_model.safetensors") == expected["student"]
        assert digest(checkpoint / "teacher.safetensors") == expected["teacher"]
