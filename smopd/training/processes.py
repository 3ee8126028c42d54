"""The processes of a run: which share of a step is ours, what all of them add up to, and who writes.

`torchrun` or `accelerate launch` starts them; without a launcher there is one, and every function here does
nothing. It leaves out sharded weights (sharding.py).
"""

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from accelerate import PartialState

T = TypeVar("T")


class Processes:
    """This process among its kin. Everything that all of them must call together is said so."""

    def __init__(self) -> None:
        self._state = PartialState(cpu=not torch.cuda.is_available())
        self.rank, self.count = self._state.process_index, self._state.num_processes
        self.device: torch.device = self._state.device
        self.asks_to_shard = (
            os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true"
        )  # accelerate launch --use_fsdp

    @property
    def first(self) -> bool:
        """Whether this is the one that writes files and speaks."""
        return self.rank == 0

    def share(self, items: Sequence[T]) -> list[T]:
        """Our part of a list: neighbours, and never more than one more than another process has."""
        return list(items)[self.rank * len(items) // self.count : (self.rank + 1) * len(items) // self.count]

    def gather(self, items: Sequence[T]) -> list[T]:
        """All parts of a list in the order of the processes, everywhere. Called by all together."""
        if self.count == 1:
            return list(items)
        parts: list[Any] = [None] * self.count
        dist.all_gather_object(parts, list(items))
        return [item for part in parts for item in part]

    def tell(self, value: T) -> T:
        """What the first process has, everywhere. Called by all together."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def any(self, flag: bool) -> bool:
        """Whether it holds in any of them. Called by all together."""
        return any(self.gather([flag]))

    def most(self, number: int) -> int:
        """The largest of their numbers. Called by all together."""
        return max(self.gather([number]))

    @torch.no_grad()
    def add_up(self, tensors: Sequence[torch.Tensor]) -> None:
        """Replace every tensor by its sum over the processes, in one message. Called by all together."""
        if self.count == 1 or not tensors:
            return
        joined = torch.cat([t.reshape(-1) for t in tensors])
        dist.all_reduce(joined)
        for tensor, piece in zip(tensors, joined.split([t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view_as(tensor))

    def wait(self) -> None:
        """Until all are here."""
        self._state.wait_for_everyone()
