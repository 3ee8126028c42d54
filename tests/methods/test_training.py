"""Every method trains the pocket model for twelve steps by the ordinary command, goes on after a stop with
the same bits, gives the same on two processes, and the same by the plain path.

`make test-long` runs it: some minutes.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from methods.train_all import HALF, STEPS, settings_of
from support.runs import checkpoint, free_port, metrics, set_words, trainer_of

from smopd.methods import METHODS
from smopd.training.scores import PLAIN

pytestmark = pytest.mark.long
TOGETHER = 2  # steps on two processes
SCRIPT = Path(__file__).parent / "train_all.py"


@pytest.fixture(scope="module")
def two_processes(made_once, request) -> Path:
    """The runs of all methods that are asked about on two processes: one launch for all of them."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    methods = [item.callspec.params["method"] for item in here]
    share = ["--nproc-per-node", "2", "--master-port", str(free_port())]
    launch = [sys.executable, "-m", "torch.distributed.run", *share, str(SCRIPT)]
    where = os.environ | {"PYTHONPATH": str(SCRIPT.parents[2])}

    def train(out: Path) -> None:
        argv = [*launch, str(out), str(TOGETHER), "hf", *methods]
        ran = subprocess.run(argv, capture_output=True, text=True, timeout=3600, env=where)
        assert ran.returncode == 0, ran.stderr[-3000:]

    return made_once("two-processes", train)


def files(run: Path) -> dict[str, bytes]:
    """What must not depend on a stop: every step's metrics, and the last weights and moments."""
    last = run / "checkpoints" / f"step-{STEPS:06d}"
    weights = [last / f"{name}.safetensors" for name in ("adapter_model", "teacher", "optimizer")]
    return {path.name: path.read_bytes() for path in (run / "metrics.jsonl", *weights)}


def assert_alike(a: list[dict], b: list[dict]) -> None:
    """Losses, gradient norms and outcomes of the same steps. Where teacher and student agree they are 1e-7,
    and all of that is rounding.
    """
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        for key in ("loss", "grad_norm", "outcome", "entropy"):
            wanted = {k: v for k, v in y.items() if k.split("/")[0] == key and v is not None}
            values = {k: x[k] for k in wanted}
            assert values == pytest.approx(wanted, rel=2e-3, abs=1e-5), (x["step"], key)


@pytest.mark.parametrize("method", METHODS)
def test_a_method_trains(method, smopd, tmp_path, two_processes, monkeypatch):
    sets = settings_of(method)
    arguments = ["train", "pocket", "--method", method, "--out", str(tmp_path / "run"), *set_words(sets)]
    code, _, err = smopd(*arguments)
    assert code == 0, err
    metric_rows = metrics(tmp_path / "run")
    assert [row["step"] for row in metric_rows] == list(range(1, STEPS + 1))
    assert not any(row["skipped"] for row in metric_rows)
    assert any(row["grad_norm"] for row in metric_rows)
    begun, ended = (checkpoint(tmp_path / "run", step) for step in (HALF, STEPS))
    assert any(not torch.equal(begun[name], ended[name]) for name in ended)

    # Stopped half-way, the same command goes on.
    whole = files(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / f"step-{STEPS:06d}")
    code, _, err = smopd(*arguments)
    assert code == 0, err
    assert f"after step {HALF}" in err
    assert files(tmp_path / "run") == whole

    # Rounding may flip a sampled token sooner or later, and from there on runs differ.
    both = metrics(two_processes / method)
    assert [row["step"] for row in both] == list(range(1, TOGETHER + 1))
    assert not any(row["skipped"] for row in both)
    assert_alike(both, metric_rows[:TOGETHER])

    plain = trainer_of(tmp_path / "plain", *sets, method=method)
    plain.scorer.path = PLAIN
    assert_alike([plain.take_step(step, monkeypatch.context) for step in (1, 2)], metric_rows[:2])
