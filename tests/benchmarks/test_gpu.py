"""`python -m benchmarks gpu`: the doctor's parts, and TRL's training step beside ours."""

import json

import pytest
from typer.testing import CliRunner

from benchmarks import gpu
from benchmarks.__main__ import app
from smopd.doctor.speed_parts import SIZES, SpeedBench


def test_every_size_has_a_step_for_trl():
    assert set(gpu.STEPS) == set(SIZES)


def test_both_training_steps_do_the_same_work(tmp_path):
    pytest.importorskip("trl")
    arguments = ["gpu", "--reps", "1", "--only", "training step", "--out", str(tmp_path / "x.json"), "--json"]
    report = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    ours, trl = report["results"]
    assert (ours["name"], trl["name"]) == ("ours", "trl")
    # A small divergence: the fast path's last digit is 1e-6.
    assert ours["loss"] == pytest.approx(trl["loss"], rel=2e-2)
    assert ours["gradient_norm"] == pytest.approx(trl["gradient_norm"], rel=1e-3)


def test_the_other_parts_are_the_doctors(monkeypatch):
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    size, device, dtype = SIZES["tiny"], None, None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smopd.doctor.speed_parts.head_variants", lambda device: {"ours": ""})
        patch.setattr("smopd.doctor.speed_parts.missing_vllm", lambda device: "no GPU")
        rows, doctors = (list(kind(size, device, dtype).variants()) for kind in (gpu.AgainstTrl, SpeedBench))
    assert [row[:2] for row in rows] == [row[:2] for row in doctors]
    assert [row.missing for row in rows if row[:2] == ("training step", "trl")] == ["trl is not installed"]
