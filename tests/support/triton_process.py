"""The Triton kernel in a process of its own, in Triton's interpreter: that has to be chosen before triton is
imported, and other tests must not get it.
"""

import os
import subprocess
import sys
from pathlib import Path

import torch

from smopd.scoring import losses as row_losses
from smopd.scoring.rows import Chunk

ROOT = Path(__file__).parents[2]


def loss_of(loss):
    """A divergence as it is; a row loss without settings by its name, since it cannot be pickled."""
    return getattr(row_losses, loss)() if isinstance(loss, str) else loss


def run_python(*arguments, **environment):
    """Standard output of a process that imports this smopd."""
    env = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    env |= {"PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, *map(str, arguments)]
    child = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert child.returncode == 0, child.stderr
    return child.stdout


def interpreted(cases, folder):
    """Values, shared columns and gradients of each case."""
    torch.save(cases, folder / "cases.pt")
    run_python(__file__, folder, TRITON_INTERPRET="1")
    return torch.load(folder / "results.pt", weights_only=False)


def main(folder):
    from smopd.scoring import triton_rows

    results = []
    for case in torch.load(folder / "cases.pt", weights_only=False):
        student, teacher, tokens = case["rows"]
        triton_rows.BLOCK = case["block"]
        chunk = Chunk(student, teacher.clone(), tokens, None, case["hidden"])
        losses = [loss_of(loss) for loss in case["losses"]]
        scored = triton_rows.score(chunk, losses, case["with_gradient"], case["softcap"])
        assert torch.equal(teacher, chunk.teacher)  # other losses read it, too
        slopes = [slope for _, (slope, _) in scored.losses] if case["with_gradient"] else []
        results.append(([value for value, _ in scored.losses], scored.shared, slopes))
    torch.save(results, folder / "results.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
