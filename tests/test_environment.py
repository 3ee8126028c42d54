"""What `import smopd` does to a process: next to nothing, and bfloat16 on a CPU does not kill it."""

import os
import subprocess
import sys

PRODUCT = """
import smopd, sys
assert "torch" not in sys.modules
import torch
x = torch.ones(64, 64, dtype=torch.bfloat16)
assert torch.nn.functional.linear(x, x).float().unique().tolist() == [64.0]
"""


def test_bfloat16_products_are_safe_after_an_import():
    """Also where a virtual machine advertises matrix tiles that it does not have."""
    where = {key: value for key, value in os.environ.items() if key != "ONEDNN_MAX_CPU_ISA"}
    ran = subprocess.run([sys.executable, "-c", PRODUCT], env=where, capture_output=True, text=True)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
