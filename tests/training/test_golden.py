"""The first version's runs, bit for bit: metrics and adapters of every method it had, recorded before methods
became plans, and again when the teacher's average became one `lerp`.

Bits depend on the processor's instructions and on torch: on a machine like the recording one the files are
equal byte by byte, elsewhere the first step is equal to rounding. To record anew, where a change of bits is
meant: `PYTHONPATH=tests python tests/training/test_golden.py`.
"""

import json
import platform
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from support.runs import metrics, train

from smopd.files import file_digest

RECORDED = json.loads((Path(__file__).parent / "golden.json").read_text())


def machine() -> list[str]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    return [model, torch.backends.cpu.get_cpu_capability(), torch.__version__]


def digests(run: Path) -> dict[str, str]:
    """What tells whether a bit of a run is another one."""
    checkpoint = run / "checkpoints" / "step-000003"
    return {
        "metrics": file_digest(run / "metrics.jsonl"),
        "student": file_digest(checkpoint / "adapter_model.safetensors"),
        "teacher": file_digest(checkpoint / "teacher.safetensors"),
    }


@pytest.mark.parametrize("method", RECORDED["methods"])
def test_a_run_is_what_it_was(method, tmp_path):
    expected = RECORDED["methods"][method]
    run = train(tmp_path / "run", *RECORDED["settings"], method=method)
    first = metrics(run)[0]
    assert first["loss"] == pytest.approx(expected["loss"][0], rel=1e-3)
    assert first["grad_norm"] == pytest.approx(expected["grad_norm"][0], rel=1e-3)
    if machine() == RECORDED["machine"] and torch.get_num_threads() == 1:
        for name, digest in digests(run).items():
            assert digest == expected[name], name


def record(folder: Path) -> None:
    """Put this machine's bits in the place of the recorded ones: a change of bits is a decision."""
    methods = {}
    for method in RECORDED["methods"]:
        run = train(folder / method, *RECORDED["settings"], method=method)
        columns = {name: [row[name] for row in metrics(run)] for name in ("loss", "grad_norm")}
        methods[method] = {**digests(run), **columns}
    lines = [f"  {json.dumps(name)}: {json.dumps(values)}" for name, values in methods.items()]
    head = f' "machine": {json.dumps(machine())},\n "settings": {json.dumps(RECORDED["settings"])},'
    text = f'{{\n{head}\n "methods": {{\n' + ",\n".join(lines) + "\n }\n}\n"
    (Path(__file__).parent / "golden.json").write_text(text)


if __name__ == "__main__":
    with TemporaryDirectory() as temporary:
        record(Path(temporary))
