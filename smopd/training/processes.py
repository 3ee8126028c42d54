"""The processes of a run under `torchrun` or `accelerate launch`; alone, collectives return their input."""

import atexit
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState

from smopd.devices import default_device
from smopd.errors import UserError

T = TypeVar("T")
PATIENCE = timedelta(days=30)  # an evaluation may take longer than a collective's default of half an hour


class Processes:
    """This process's place in the run. All methods but `share` and `close` are collective operations."""

    def __init__(self) -> None:
        self.device = default_device()
        if not dist.is_initialized():
            if int(os.environ.get("WORLD_SIZE") or 1) > 1:
                # An earlier state may have no process group, such as that of Accelerator() on a CPU.
                PartialState._reset_state()
            PartialState(cpu=self.device.type != "cuda")
        grouped = dist.is_initialized()
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if grouped else (0, 1)
        if self.world_size > 1:
            atexit.register(self.close)
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
        # What `accelerate launch --use_fsdp` sets.
        self.asks_to_shard = os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and reports progress."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """This process's contiguous part of a list; parts differ in length by at most one."""
        start, stop = (rank * len(items) // self.world_size for rank in (self.rank, self.rank + 1))
        return list(items)[start:stop]

    def gather(self, items: Sequence[T]) -> list[T]:
        """Concatenate the lists of all processes in rank order, on every process."""
        if self.world_size == 1:
            return list(items)
        parts: list[Any] = [None] * self.world_size
        dist.all_gather_object(parts, list(items))
        return [item for part in parts for item in part]

    def broadcast(self, value: T) -> T:
        """The first process's value, on every process."""
        return self.on_first(lambda: value)

    def on_first(self, work: Callable[[], T]) -> T:
        """Do `work` on the first process; all return its result, or raise its error (others a UserError)."""
        if self.world_size == 1:
            return work()
        box: list[Any] = [None, None]
        try:
            if self.first:
                box[0] = work()
        except BaseException as error:
            failed = UserError(f"the first process failed: {type(error).__name__}: {error}")
            box[1] = error if isinstance(error, UserError) else failed
            raise
        finally:
            dist.broadcast_object_list(box, src=0, group=_patient_group(dist.group.WORLD))
        if box[1]:
            raise box[1]
        return box[0]

    def any_of(self, flag: bool) -> bool:
        return any(self.gather([flag]))

    def all_max(self, number: int) -> int:
        return max(self.gather([number]))

    @torch.no_grad()
    def all_reduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """Sum every tensor over the processes in place, in one message."""
        if self.world_size == 1 or not tensors:
            return
        joined = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(joined)
        for tensor, piece in zip(tensors, joined.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view_as(tensor))

    def barrier(self) -> None:
        self.gather([None])

    def close(self) -> None:
        """Leave the process group; without this, gloo's threads may abort a process that exits."""
        if dist.is_initialized():
            _patient_group.cache_clear()  # or its threads would outlive the group
            dist.destroy_process_group()


@cache
def _patient_group(world: Any) -> Any:
    return dist.new_group(backend="gloo", timeout=PATIENCE)
