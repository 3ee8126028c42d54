"""`smopd doctor`, really run on this machine."""

import json

import pytest

from smopd.doctor import selftest


@pytest.mark.slow
def test_the_doctor_looks_at_this_machine(smopd, monkeypatch):
    code, out, err = smopd("doctor", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["sound"]
    assert len(report["self_test"]) == 5
    assert report["facts"]["engine"] in ("hf", "vllm")
    assert "self-test: sampling" in err
    # What fails is told by the exit code as well.
    monkeypatch.setattr(selftest, "BOUNDS", {"float32": {"loss": 0.0, "gradient": 0.0}})
    code, out, _ = smopd("doctor")
    assert code == 1
    assert "float32: gradient" in out
    assert "FAILED" in out
