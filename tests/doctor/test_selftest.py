"""The self-test tells a device that computes wrong from one that rounds."""

import pytest
import torch

from smopd.doctor import selftest
from smopd.doctor.facts import collect, scoring_choices
from smopd.rollout.kv import StaticLayer
from smopd.scoring import kernel

CPU = torch.device("cpu")


@pytest.mark.slow
def test_the_cpu_passes_by_far_and_a_wrong_device_does_not(monkeypatch):
    checks = {check.name: check for check in selftest.self_test(CPU)}
    assert len(checks) == 5
    assert all(check.passed for check in checks.values())
    assert checks["float32: loss"].error < 1e-5
    assert checks["float32: gradient"].error < 1e-4
    assert checks["bfloat16: gradient"].error > checks["float32: gradient"].error  # it does look at the type

    def off_by_a_percent(*args, **kwargs):
        hidden = args[0] * 1.01
        return kernel.token_stats(hidden, *args[1:], **kwargs)

    wrong = selftest.ScoringPath(selftest.FAST.reply_hidden, off_by_a_percent)
    monkeypatch.setattr(selftest, "FAST", wrong)
    monkeypatch.setattr(selftest, "BOUNDS", {"float32": selftest.BOUNDS["float32"]})
    real = selftest.HFEngine

    class Wrong(real):
        def _logits(self, ids_BQ, mask, places_BQ, cache):
            shift = 3 if isinstance(cache.layers[0], StaticLayer) else 0
            return super()._logits(ids_BQ, mask, places_BQ + shift, cache)

    monkeypatch.setattr(selftest, "HFEngine", Wrong)
    assert [check.passed for check in selftest.self_test(CPU)] == [False, False, False]


def test_facts_of_this_machine():
    facts = collect()
    assert 0 < facts.available <= facts.memory
    assert facts.cores >= 1
    assert torch.__version__.startswith(facts.versions["torch"].partition("+")[0])
    assert len(facts.gpus) == (torch.cuda.device_count() if torch.cuda.is_available() else 0)
    assert facts.sandbox in ("bubblewrap", "namespaces", "none")
    assert set(scoring_choices(CPU)) == {"attention", "head"}
    assert scoring_choices(CPU) == {"attention": "segments", "head": "tiles"}
