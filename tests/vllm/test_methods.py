"""Every method trains with vLLM as the engine: what is played, scored and learnt does not depend on what
samples. One engine serves all of them, since it takes longer to start than a run takes steps.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.runs import metrics
from support.vllm_servers import ENGINE_GROUP, ENVIRONMENT, require_vllm

from smopd.methods import METHODS

pytestmark = [pytest.mark.vllm, ENGINE_GROUP]
require_vllm()

SCRIPT, STEPS = Path(__file__).parents[1] / "methods" / "train_all.py", 2


def test_every_method_trains_with_vllm(tmp_path):
    argv = [sys.executable, str(SCRIPT), str(tmp_path), str(STEPS), "vllm", *METHODS]
    where = os.environ | ENVIRONMENT | {"PYTHONPATH": str(SCRIPT.parents[2])}
    ran = subprocess.run(argv, env=where, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    for method in METHODS:
        metric_rows = metrics(tmp_path / method)
        assert [row["step"] for row in metric_rows] == list(range(1, STEPS + 1)), method
        assert not any(row["skipped"] for row in metric_rows), method
        # The engine sampled from the weights that were trained: its log-probabilities are the student's.
        assert all((row["rollout/logp_gap"] or 0) < 1e-3 for row in metric_rows), method
    assert sum(metrics(tmp_path / method)[-1]["grad_norm"] > 0 for method in METHODS) > len(METHODS) / 2
