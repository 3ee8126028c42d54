"""Keys and values of a batch while it is sampled (right-aligned, one buffer a layer, with room to grow), and
of single conversations between turns. Shapes: B rows, H key/value heads, C columns, D head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

GROWTH = 128  # columns added when a buffer is full


@dataclass(frozen=True)
class Kept:
    """One conversation between two turns. `layers`: keys and values [2, H, C, D] of `tokens`, one each."""

    tokens: list[int]
    layers: list[torch.Tensor]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(layer.nbytes for layer in self.layers)

    def shared_with(self, prompt: Sequence[int]) -> int:
        """How many leading tokens of `prompt` are here; at least its last one has to go through the model."""
        limit = min(len(self.tokens), len(prompt) - 1)
        return next((k for k in range(limit) if self.tokens[k] != prompt[k]), limit)


class BufferLayer(DynamicLayer):
    """One layer's keys and values in a buffer with room behind them."""

    def __init__(self, length: int, first: torch.Tensor | None) -> None:
        super().__init__()
        self.length = length  # columns in use
        if first is not None:
            self.keys, self.values = first[0], first[1]
            self.is_initialized = True

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Make room as wide as the first keys and values need."""
        room = self.length + key_states.shape[2] + GROWTH
        both = (key_states, value_states)
        self.keys, self.values = (t.new_zeros(*t.shape[:2], room, t.shape[3]) for t in both)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write new columns behind those in use; all columns in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        end = self.length + key_states.shape[2]
        if end > self.keys.shape[2]:
            more = (0, 0, 0, end - self.keys.shape[2] + GROWTH)
            self.keys, self.values = (torch.nn.functional.pad(t, more) for t in (self.keys, self.values))
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Columns in use."""
        return self.length


class BatchCache(Cache):
    """The keys and values of a batch, as transformers' models take them."""

    def __init__(
        self, layers: int, columns: int, room: int, rows: Sequence[tuple[Kept | None, int, int]]
    ) -> None:
        """`columns` in use, `room` behind them. A row: what was kept, its first column, tokens kept."""
        example = next((kept.layers for kept, _, count in rows if kept and count), None)
        made = []
        for number in range(layers):
            first = None
            if example:
                _, heads, _, width = example[number].shape
                first = example[number].new_zeros(2, len(rows), heads, columns + room, width)
                for row, (kept, start, count) in enumerate(rows):
                    if kept and count:
                        first[:, row, :, start : start + count] = kept.layers[number][:, :, :count]
            made.append(BufferLayer(columns, first))
        super().__init__(layers=list(made))

    def take(self, row: int, start: int, tokens: list[int]) -> Kept:
        """What row `row` leaves behind: the columns of its tokens, from `start` on."""
        span = slice(start, start + len(tokens))
        layers: list[Any] = list(self.layers)
        return Kept(tokens, [torch.stack([x.keys[row, :, span], x.values[row, :, span]]) for x in layers])
