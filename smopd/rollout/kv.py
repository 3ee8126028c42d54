"""Keys and values of a batch while it is sampled (right-aligned, one buffer a layer), and of single
conversations between turns. A `BufferLayer` grows; an arena's cache has the same shapes at every token, as a
CUDA graph needs them. Shapes: B rows, H key/value heads, C columns, D head width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from smopd.rollout.batches import GROWTH, common_length


@dataclass(frozen=True)
class Kept:
    """One conversation between two turns. `layers`: keys and values [2, H, C, D] of `tokens`, one each."""

    tokens: list[int]
    layers: list[Tensor]

    @property
    def size(self) -> int:
        return sum(layer.nbytes for layer in self.layers)

    def shared_with(self, prompt: Sequence[int]) -> int:
        """How many leading tokens of `prompt` are here; at least its last one has to go through the model."""
        return common_length(self.tokens, prompt[:-1])


KeptRows = list[tuple[int, Kept, int, int]]  # row, what was kept for it, first column, how many tokens of it
# Makes the buffer [2, B, H, C, D] of a layer: its number, an example of its numbers, B, H and D.
MakeBuffer = Callable[[int, Tensor, int, int, int], Tensor]
KeysValues = tuple[Tensor, Tensor]


class BufferLayer(DynamicLayer):
    """One layer's keys and values: `used` columns and `room` behind them, in a batch's own buffer or one of
    `make`. What was kept for `rows` stands in it from the beginning.
    """

    keys: Any
    values: Any

    def __init__(self, number: int, used: int, room: int, rows: KeptRows, make: MakeBuffer | None) -> None:
        super().__init__()
        self.number, self.used, self.room, self.rows, self.make = number, used, room, rows, make

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, new, width = key_states.shape
        both: Any
        if self.make:
            both = self.make(self.number, key_states, rows, heads, width)
        elif self.rows:
            both = key_states.new_zeros(2, rows, heads, self.used + self.room, width)
        else:
            shape = rows, heads, self.used + new + GROWTH
            both = [t.new_zeros(*shape, t.shape[3]) for t in (key_states, value_states)]
        for row, kept, start, count in self.rows:
            both[:, row, :, start : start + count] = kept.layers[self.number][:, :, :count]
        self.keys, self.values = both
        self.rows, self.is_initialized = [], True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        """Write new columns behind those in use; all columns in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.used + key_states.shape[2]
        if end > self.keys.shape[2]:
            more = (0, 0, 0, end - self.keys.shape[2] + GROWTH)
            self.keys, self.values = (torch.nn.functional.pad(t, more) for t in (self.keys, self.values))
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.used


class RowCache(Cache):
    """The keys and values of a batch, from which single rows can be taken."""

    layers: Any

    def take(self, row: int, start: int, tokens: list[int]) -> Kept:
        """What row `row` leaves behind: the columns of its tokens, from `start` on."""
        span = slice(start, start + len(tokens))
        pairs = ((layer.keys[row, :, span], layer.values[row, :, span]) for layer in self.layers)
        return Kept(tokens, [torch.stack(pair) for pair in pairs])


class Arena:
    """Memory for keys and values that outlives a batch, one piece a layer, so that a graph captured for a
    shape finds them where they were. Batches of any shape take turns in it.
    """

    def __init__(self) -> None:
        self.cells = 0  # rows times columns that fit
        self.layers: dict[int, Tensor] = {}  # [2, cells, H, D], only as a shape

    def reserve(self, cells: int) -> bool:
        """Make room for so many tokens; whether that took new memory, and the old contents are gone."""
        if cells <= self.cells:
            return False
        self.cells = cells
        self.layers.clear()
        return True

    def maker(self, rows: int, columns: int) -> MakeBuffer:
        """Makes buffers of that shape; a batch of fewer rows gets the first ones."""
        assert rows * columns <= self.cells

        def make(layer: int, like: Tensor, count: int, heads: int, width: int) -> Tensor:
            if layer not in self.layers:
                # Never anything that is not a number: masked columns still take part, with weight 0.
                self.layers[layer] = like.new_zeros(2, self.cells, heads, width)
            return self.view(layer, rows, columns)[:, :count]

        return make

    def view(self, layer: int, rows: int, columns: int) -> Tensor:
        """The layer's memory as [2, B, H, C, D]."""
        _, _, heads, width = self.layers[layer].shape
        flat = self.layers[layer].view(-1)[: 2 * rows * heads * columns * width]
        return flat.view(2, rows, heads, columns, width)

    def move(self, chosen: Tensor, used: int, old: tuple[int, int], new: tuple[int, int]) -> None:
        """From a shape (rows, columns) to another: the `chosen` rows, their first `used` columns."""
        for layer in self.layers:
            moved = self.view(layer, *old)[:, chosen, :, :used]  # a copy: both shapes share memory
            self.view(layer, *new)[:, : len(chosen), :, :used] = moved

    def cache(self, rows: int, columns: int, column: Tensor) -> RowCache:
        """All layers in that shape. `column` [1]: where the next keys and values are written."""
        return RowCache([StaticLayer(self.view(k, rows, columns), column) for k in range(len(self.layers))])


class StaticLayer(DynamicLayer):
    """One layer's keys and values in a buffer that stays as wide as it is: unused columns are masked."""

    keys: Any
    values: Any

    def __init__(self, buffer: Tensor, column: Tensor) -> None:
        super().__init__()
        self.keys, self.values, self.column = buffer[0], buffer[1], column
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        """Write one column, whose number is read from a tensor; all columns there are."""
        self.keys.index_copy_(2, self.column, key_states)
        self.values.index_copy_(2, self.column, value_states)
        return self.keys, self.values
