"""Which rows are computed at once: whole replies where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from smopd.lazy import torch

CHUNK_BYTES = 400_000_000  # for the logit buffers of a chunk on the CPU
# At most, for all that a chunk needs on a device. Rows beyond these make nothing faster.
DEVICE_BYTES, DEVICE_ROWS = 10_000_000_000, 2048


@dataclass(frozen=True)
class Piece:
    """Rows of one reply of this length in a chunk: all of them, or a part, the `last` or not."""

    rows: int
    reply: int
    length: int
    last: bool = True


def chunks_of(lengths: Sequence[int], size: int) -> list[list[Piece]]:
    """Whole replies up to `size` rows a chunk; a longer reply is cut into chunks of its own."""
    chunks: list[list[Piece]] = []
    room = 0
    for number, length in enumerate(lengths):
        if length and length <= room:
            chunks[-1].append(Piece(length, number, length))
            room -= length
        elif length:
            starts = range(0, length, size)
            chunks += [[Piece(min(size, length - i), number, length, i + size >= length)] for i in starts]
            room = max(0, size - length)
    return chunks


def rows_at_once(device: torch.device, row_bytes: int) -> int:
    """How many rows of so many bytes make a chunk: by a fixed amount on the CPU, by what is free on a GPU."""
    if device.type == "cpu":
        return max(1, CHUNK_BYTES // row_bytes)
    free: float = inf
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + unused
    return device_rows(free, row_bytes)


def device_rows(free: float, row_bytes: int) -> int:
    """The rows of a chunk on a device with so much memory free: by a fixed amount, halved until it fits into
    half of that, so that chunks, and the last bits of a result, hardly depend on what else is in memory.
    """
    allowed = DEVICE_BYTES
    while allowed > max(free / 2, CHUNK_BYTES):
        allowed //= 2
    return max(1, min(DEVICE_ROWS, allowed // row_bytes))
