"""Packs token sequences into one row in which every shared prefix stands once.

The sequences of a rollout (each turn's context and reply) form a trie. Laid out depth-first, token k is an
ancestor of token q, or q itself, exactly when k <= q < subtree_end[k]: one comparison is the whole attention
mask, for any chat template. Sorting the sequences is the depth-first walk: neighbours share their longest
common prefix, and what follows it is new. Sequences that share nothing cannot see each other by the same
comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from smopd.lazy import torch

BLOCK = 128  # queries and keys of one block of flex_attention's mask, which is its default
# Queries that attention.py takes at once. Smaller blocks compare fewer pairs that causality then hides,
# larger ones make fewer calls.
QUERIES = 256
SMALLEST = 2 * BLOCK  # torch would compile once more for a single block: a size of 1 is special to it


@dataclass(frozen=True)
class Segment:
    """An unbranched run of a packed row; `ancestors`: the segments above it, from the root."""

    start: int
    stop: int
    ancestors: tuple[int, ...]


@dataclass(frozen=True)
class PrefixTree:
    """One packed row of L tokens. `index[k]` says where the tokens of sequence k stand in it."""

    input_ids: torch.Tensor  # [L]
    position_ids: torch.Tensor  # [L] depth in the trie: the token's place in its own sequence
    subtree_end: torch.Tensor  # [L] one past the last descendant
    index: list[torch.Tensor]

    @staticmethod
    def pack(sequences: Sequence[Sequence[int]]) -> PrefixTree:
        """Pack any sequences, duplicates and prefixes of one another included, in near-linear time."""
        *arrays, index = layout(sequences)
        ids, positions, subtree_end = map(torch.from_numpy, arrays)
        return PrefixTree(ids, positions, subtree_end, list(map(torch.from_numpy, index)))

    def to(self, device: torch.device | str) -> PrefixTree:
        """The same row on another device (`index` stays: it is used to pick rows, wherever they are)."""
        row = (self.input_ids, self.position_ids, self.subtree_end)
        ids, positions, ends = (upload(tensor, device) for tensor in row)
        return PrefixTree(ids, positions, ends, self.index)

    def padded(self, length: int) -> PrefixTree:
        """The same row with padding up to `length` behind it, which sees itself and which nobody sees."""
        more = length - len(self.input_ids)
        ids, positions = (torch.nn.functional.pad(t, (0, more)) for t in (self.input_ids, self.position_ids))
        padding_ends = torch.arange(length - more, length, device=self.subtree_end.device) + 1
        return PrefixTree(ids, positions, torch.cat([self.subtree_end, padding_ends]), self.index)

    def attention_mask(self) -> torch.Tensor:
        """[L, L] True where the row's token (first axis) sees the column's: its ancestors and itself."""
        place = torch.arange(len(self.input_ids), device=self.input_ids.device)
        return (place <= place[:, None]) & (place[:, None] < self.subtree_end)

    def additive_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """The same as numbers to add to scores, which is what eager attention does with a mask."""
        mask = self.attention_mask()
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)

    def mask_mod(self) -> Callable[..., torch.Tensor]:
        """The same as a mask_mod of flex_attention."""
        end = self.subtree_end

        def visible(batch: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
            return (key <= query) & (query < end[key])

        return visible


def layout(sequences: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[np.ndarray]]:
    """A packed row as arrays: the fields of `PrefixTree`, in their order."""
    arrays = [np.asarray(s, dtype=np.int64) for s in sequences]
    nothing = np.empty(0, dtype=np.int64)
    ids, depths, index = [nothing], [nothing], [nothing] * len(arrays)
    # Nodes that get no further descendant, and where the row stood then.
    closed: list[tuple[np.ndarray, int]] = []
    length, path, previous = 0, nothing, nothing
    for k in _sort_indices(arrays):
        tokens = arrays[k]
        common = _common_prefix_length(previous, tokens)
        closed.append((path[common:], length))
        path = np.concatenate([path[:common], np.arange(length, length + len(tokens) - common)])
        ids.append(tokens[common:])
        depths.append(np.arange(common, len(tokens)))
        index[k] = path
        length += len(tokens) - common
        previous = tokens
    subtree_end = np.full(length, length)
    for nodes, end in closed:
        subtree_end[nodes] = end
    return np.concatenate(ids), np.concatenate(depths), subtree_end, index


def segments_of(ends: np.ndarray) -> list[Segment]:
    """A packed row cut where branches begin and end: a segment's tokens have the same subtree end."""
    starts = np.flatnonzero(np.diff(ends, prepend=0))
    segments: list[Segment] = []
    path: list[int] = []
    for start, stop in pairwise([*starts.tolist(), len(ends)]):
        while path and ends[segments[path[-1]].start] <= start:
            path.pop()
        segments.append(Segment(start, stop, tuple(path)))
        path.append(len(segments) - 1)
    return segments


def bucket(length: int) -> int:
    """The padded length of a row: whole blocks, and above 1,024 tokens eight lengths for each doubling."""
    step = max(BLOCK, 2 ** (length.bit_length() - 1) // 8)
    return max(SMALLEST, -(-length // step) * step)


def upload(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """The same on `device`, without waiting for what a GPU still computes."""
    if torch.device(device).type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def rows_within(sequences: Sequence[Sequence[int]], budget: int) -> list[list[int]]:
    """Which sequences share a packed row: neighbours in sorted order, up to `budget` packed tokens (or one
    longer sequence). Every cut packs the prefix it cuts through twice, so the cuts are those with the fewest
    packed tokens in all.
    """
    arrays = [np.asarray(s, dtype=np.int64) for s in sequences]
    order = _sort_indices(arrays)
    lengths = [len(arrays[k]) for k in order]
    new = [len(arrays[k]) - _common_prefix_length(arrays[before], arrays[k]) for before, k in pairwise(order)]
    fewest = [0]  # packed tokens of the first n sequences
    last_row = [0]  # where the last row of that packing begins
    for n in range(1, len(order) + 1):
        # A row that ends with sequence n - 1 and begins ever earlier grows by one difference a step.
        best, begin, tail = fewest[n - 1] + lengths[n - 1], n - 1, 0
        for first in range(n - 2, -1, -1):
            tail += new[first]
            if lengths[first] + tail > max(budget, lengths[n - 1]):
                break
            if fewest[first] + lengths[first] + tail <= best:
                best, begin = fewest[first] + lengths[first] + tail, first
        fewest.append(best)
        last_row.append(begin)
    rows: list[list[int]] = []
    end = len(order)
    while end:
        rows.append(order[last_row[end] : end])
        end = last_row[end]
    return rows[::-1]


def _sort_indices(arrays: list[np.ndarray]) -> list[int]:
    """Indices in lexicographic order; big-endian bytes compare like the numbers they hold, in C."""
    keys = [a.astype(">i8").tobytes() for a in arrays]
    return sorted(range(len(arrays)), key=keys.__getitem__)


def _common_prefix_length(a: np.ndarray, b: np.ndarray) -> int:
    shared = min(len(a), len(b))
    different = np.flatnonzero(a[:shared] != b[:shared])
    return int(different[0]) if len(different) else shared
