"""Choose the device of tensors: this process's GPU if there is one, else the CPU."""

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
    """Make `device` the default inside the block."""
    _chosen.append(device)
    try:
        yield
    finally:
        _chosen.pop()


SMALL = 20_000_000  # parameters; smaller models are slower on several cores than on one


def use_cores(parameters: int) -> None:
    """Share the physical cores among the processes; small models get one. OMP_NUM_THREADS wins over both."""
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(1, physical_cores() // process_count()) if parameters >= SMALL else 1)


def free_cache() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
