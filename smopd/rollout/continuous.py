"""Continuous sampling with a transformers model: a conversation's next turn joins the batch as soon as its
last reply is there, and a reply that has ended leaves it: none waits for the longest reply of others.

All B rows end in the same one of C columns, which is written next; a row begins where its prompt needs it to.
Rows stand without gaps in the first slots of a buffer: one that leaves is replaced by the last one, so coming
and going costs the keys and values of one row. Replies are those of lockstep, up to rounding.
"""

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from smopd.rollout.batches import GROWTH
from smopd.rollout.engine import Dialogue, Sampled, Sampling, send
from smopd.rollout.kv import KeysValues, RowCache
from smopd.rollout.sampler import pick

if TYPE_CHECKING:
    from smopd.rollout.hf import HFEngine, ReplyRow

# Turns wait until they are this share of the rows being sampled: a prefill of few rows costs nearly as much
# as one of many.
JOINING = 0.25
MARGIN = 64  # free columns in front of the longest prompt, so that somewhat longer ones can join later


class Slots(RowCache):
    """Keys and values [2, slots, H, columns, D] of every layer. The model sees the columns `first` to `used`
    of the first `rows` slots, and writes to `used`.
    """

    def __init__(self, like: RowCache) -> None:
        """Without any room yet, for layers like those."""
        self.rows = self.first = self.used = 0
        super().__init__(layers=[_SlotLayer(self, layer) for layer in like.layers])

    def resize(self, slots: int, columns: int, used: int) -> None:
        """New buffers, with the columns in use moved so that they end at `used`."""
        first = used - (self.used - self.first)
        for layer in self.layers:
            old = layer.both
            layer.both = old.new_zeros(2, slots, old.shape[2], columns, old.shape[4])
            layer.both[:, : self.rows, :, first:used] = old[:, : self.rows, :, self.first : self.used]
            layer.keys, layer.values = layer.both
        self.first, self.used = first, used

    def put(self, slot: int, source: RowCache, row: int, start: int, length: int) -> None:
        """The keys and values of a prefilled row, into the columns that end at `used`."""
        for into, layer in zip(self.layers, source.layers, strict=True):
            span = slice(start, start + length)
            into.keys[slot, :, self.used - length : self.used] = layer.keys[row, :, span]
            into.values[slot, :, self.used - length : self.used] = layer.values[row, :, span]

    def move(self, source: int, target: int) -> None:
        used = slice(self.first, self.used)
        for layer in self.layers:
            layer.both[:, target, :, used] = layer.both[:, source, :, used]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.used - self.first


class _SlotLayer(DynamicLayer):
    def __init__(self, slots: Slots, like: Any) -> None:
        super().__init__()
        self.slots, self.is_initialized = slots, True
        _, heads, _, width = like.keys.shape
        self.both = like.keys.new_zeros(2, 0, heads, 0, width)

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> KeysValues:
        slots = self.slots
        seen = self.both[:, : slots.rows, :, slots.first : slots.used + 1]
        seen[0, :, :, -1:] = key_states
        seen[1, :, :, -1:] = value_states
        return seen[0], seen[1]


class ContinuousBatch:
    """Plays dialogues to their ends with one engine's model, at most `most` at a time."""

    def __init__(self, engine: "HFEngine", sampling: Sampling, most: int) -> None:
        self.engine, self.sampling, self.most = engine, sampling, most
        self.rows: list[ReplyRow] = []  # row k stands in slot k
        self.waiting: deque[ReplyRow] = deque()
        self.cache: Slots | None = None

    def play(self, dialogues: Sequence[Dialogue]) -> None:
        for dialogue in dialogues:
            self._ask(dialogue, None)
        while self.rows or self.waiting:
            if len(self.waiting) >= max(1, JOINING * len(self.rows)) and len(self.rows) < self.most:
                self._join()
            if self.rows:
                self._step()

    def _ask(self, dialogue: Dialogue, reply: Sampled | None) -> None:
        """Hand a dialogue its reply; its next turn, if there is one, waits to join."""
        if request := send(dialogue, reply):
            row = self.engine.make_row(request.prompt, request.seed, request.session, request.limit)
            row.dialogue = dialogue
            self.waiting.append(row)

    def _join(self) -> None:
        """Prefill as many waiting turns as there is room for, and sample their first tokens."""
        joining = [self.waiting.popleft() for _ in range(self._count_joining())]
        if not joining:
            return
        logits_BV, prefilled = self.engine.prefill(joining, 0)
        self._add_tokens(joining, logits_BV)
        going = [k for k, row in enumerate(joining) if row.stop is None]
        self.engine.keep(joining, prefilled, going)
        if going:
            cache = self._make_room(prefilled, len(going), max(len(joining[k].prompt) for k in going))
            for k in going:
                row = joining[k]
                cache.put(len(self.rows), prefilled, k, row.start, len(row.prompt))
                row.start = cache.used - len(row.prompt)
                self.rows.append(row)
            self._settle(cache)
        for row in joining:
            self._finish(row)

    def _count_joining(self) -> int:
        """How many waiting turns fit beside the rows there are; at least one where there are none."""
        count, limit = 0, self.engine.limit // 2
        width = self.cache.used - self.cache.first if self.cache else 0
        for row in self.waiting:
            width = max(width, len(row.prompt))
            cells = (len(self.rows) + count + 1) * (width + MARGIN + GROWTH)
            if len(self.rows) + count == self.most or (limit and cells * self.engine._token_bytes() > limit):
                break
            count += 1
        return count or int(not self.rows)

    def _make_room(self, like: RowCache, more: int, prompt: int) -> Slots:
        """Slots for `more` rows, `prompt` columns before the one that is written next, and that one."""
        cache = self.cache = self.cache or Slots(like)
        _, slots, _, columns, _ = cache.layers[0].both.shape
        rows = len(self.rows) + more
        if rows > slots or prompt > cache.used or cache.used == columns:
            before, used = cache.used, max(cache.used - cache.first, prompt) + MARGIN
            cache.resize(max(rows, slots), used + GROWTH, used)
            for row in self.rows:
                row.start += used - before
        return cache

    def _step(self) -> None:
        assert self.cache is not None
        cache, device = self._make_room(self.cache, 0, 0), self.engine.model.device
        tokens_B1 = torch.tensor([[row.ids[-1]] for row in self.rows], device=device)
        starts_B1 = torch.tensor([[row.start] for row in self.rows], device=device)
        seen_BC = torch.arange(cache.first, cache.used + 1, device=device) >= starts_B1
        logits_BV = self.engine._logits(tokens_B1, seen_BC[:, None, None], cache.used - starts_B1, cache)
        cache.used += 1
        self._add_tokens(self.rows, logits_BV)
        going = [k for k, row in enumerate(self.rows) if row.stop is None]
        if len(going) == len(self.rows):
            return
        self.engine.keep(self.rows, cache, going)
        finished = [row for row in self.rows if row.stop is not None]
        for slot in reversed(range(len(self.rows))):
            if self.rows[slot].stop is not None:  # the gap is closed with the last row
                last = self.rows.pop()
                if slot < len(self.rows):
                    cache.move(len(self.rows), slot)
                    self.rows[slot] = last
        self._settle(cache)
        for row in finished:
            self._finish(row)

    def _add_tokens(self, rows: Sequence["ReplyRow"], logits_BV: Tensor) -> None:
        draws_B = torch.stack([row.draws[len(row.ids)] for row in rows]).to(logits_BV.device)
        chosen_B, logp_B = pick(logits_BV, self.sampling, draws_B)
        for row, token, logp in zip(rows, chosen_B.tolist(), logp_B.tolist(), strict=True):
            row.add([token], [logp], self.engine.end_ids)

    def _settle(self, cache: Slots) -> None:
        """Columns in front of every row need not be looked at."""
        cache.rows = len(self.rows)
        cache.first = min((row.start for row in self.rows), default=cache.used)

    def _finish(self, row: "ReplyRow") -> None:
        if row.stop is not None and row.dialogue is not None:
            self._ask(row.dialogue, Sampled(tuple(row.ids), row.stop, tuple(row.logps)))
