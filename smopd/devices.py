"""Where tensors live: this process's GPU where there is one, else the CPU. The one place that asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from smopd.lazy import torch
from smopd.machine import physical_cores, process_count

_chosen: list[torch.device] = []


def default_device() -> torch.device:
    """The device of models and optimizer; a launcher's LOCAL_RANK chooses among several GPUs."""
    if _chosen:
        return _chosen[-1]
    # `accelerate launch --cpu` sets the variable.
    if not torch.cuda.is_available() or os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1"):
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())


@contextmanager
def using(device: torch.device) -> Iterator[None]:
    """Inside, `device` is the default, whatever else this machine has."""
    _chosen.append(device)
    try:
        yield
    finally:
        _chosen.pop()


SMALL = 20_000_000  # parameters: a model of fewer is slower on several cores than on one


def use_cores(parameters: int) -> None:
    """Compute with all physical cores, shared among the run's processes, or with one for a small model.
    OMP_NUM_THREADS, where it is set, decides.
    """
    if not os.environ.get("OMP_NUM_THREADS"):
        shared = max(1, physical_cores() // process_count())
        torch.set_num_threads(shared if parameters >= SMALL else 1)


def free_cache() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
