"""The transformers engine: its own sampling loop, with keys and values kept from turn to turn, on CUDA with
static shapes and CUDA graphs (static.py). Models that this cannot serve are sampled as `StockEngine` does, by
left-padded `generate` from scratch: the reference and fallback.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.nn import Module
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList, PreTrainedModel

from smopd.models.adapters import evaluating
from smopd.rollout import engine as engines
from smopd.rollout.batches import GROWTH, PADDING, shared_prefixes, static_shape
from smopd.rollout.continuous import ContinuousBatch
from smopd.rollout.engine import Dialogue, Prompts, Sampled, Sampling, SaveAdapter, Session, Sessions, Stop
from smopd.rollout.kv import BufferLayer, Kept, RowCache
from smopd.rollout.sampler import pick, uniforms
from smopd.rollout.static import LOOK, Capture, CudaGraphs, StaticSteps
from smopd.scoring import attention
from smopd.scoring.passes import packable

log = logging.getLogger("smopd")


class Drawn(LogitsProcessor):
    """Picks each row's next token and leaves only that one: greedy search then is an exact sampler."""

    def __init__(self, sampling: Sampling, uniforms_BM: Tensor, prompt_length: int) -> None:
        self.sampling, self.uniforms_BM, self.prompt_length = sampling, uniforms_BM, prompt_length
        self.logps: list[Tensor] = []

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        position = input_ids.shape[1] - self.prompt_length
        chosen_B, logp_B = pick(scores, self.sampling, self.uniforms_BM[:, position])
        self.logps.append(logp_B)
        return torch.full_like(scores, float("-inf")).scatter_(-1, chosen_B[:, None], 0.0)  # type: ignore[return-value]


class StockEngine(engines.Engine):
    """Samples with a transformers model (PEFT-wrapped or not) in batches of at most `batch` prompts."""

    traits = engines.TRAITS["hf"]

    def __init__(self, model: Module, end_ids: Sequence[int], batch: int = 64) -> None:
        self.model: PreTrainedModel = model  # type: ignore[assignment]
        self.end_ids, self.batch, self.usage = list(end_ids), batch, engines.Usage()

    @torch.no_grad()
    def generate(
        self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, sessions: Sessions = None
    ) -> list[Sampled]:
        # Prompts of like length share a batch: less padding. Replies do not depend on the grouping.
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        replies: dict[int, Sampled] = {}
        with evaluating(self.model):
            for first in range(0, len(order), self.batch):
                chosen = order[first : first + self.batch]
                drawn = self._generate([prompts[i] for i in chosen], [seeds[i] for i in chosen], sampling)
                replies.update(zip(chosen, drawn, strict=True))
        return [replies[i] for i in range(len(prompts))]

    def _generate(self, prompts: list[Sequence[int]], seeds: list[int], sampling: Sampling) -> list[Sampled]:
        device, limit = next(self.model.parameters()).device, sampling.max_tokens
        longest = max(map(len, prompts))
        pad = self.end_ids[0]  # any id will do: padding is hidden by the attention mask, not by its id
        ids = torch.tensor([[pad] * (longest - len(p)) + list(p) for p in prompts], device=device)
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=device)
        drawn = Drawn(sampling, torch.stack([uniforms(seed, limit) for seed in seeds]).to(device), longest)
        ends = {"eos_token_id": self.end_ids, "pad_token_id": pad}
        config = GenerationConfig(max_new_tokens=limit, do_sample=False, num_beams=1, **ends)
        how: Any = {"generation_config": config, "logits_processor": LogitsProcessorList([drawn])}
        output: Any = self.model.generate(input_ids=ids, attention_mask=mask, **how)  # type: ignore[operator]
        logps = torch.stack(drawn.logps, dim=1).tolist()
        tokens = sum(map(len, prompts))
        self.usage.add(tokens, 0, ids.numel() - tokens)
        return [self._cut(*row) for row in zip(output[:, longest:].tolist(), logps, strict=True)]

    def _cut(self, tokens: list[int], logps: list[float]) -> Sampled:
        """The row up to its first end token; what stands behind it is padding."""
        end = next((place + 1 for place, token in enumerate(tokens) if token in self.end_ids), None)
        return Sampled(tuple(tokens[:end]), Stop.END if end else Stop.LENGTH, tuple(logps[:end]))


@dataclass
class ReplyRow:
    prompt: list[int]
    draws: Tensor  # one for each token that it may have
    session: Session | None
    kept: Kept | None
    shared: int  # leading tokens that stand in `kept`
    start: int = 0  # its first column
    ids: list[int] = field(default_factory=list)
    logps: list[float] = field(default_factory=list)
    stop: Stop | None = None
    dialogue: Dialogue | None = None

    def add(self, tokens: Sequence[int], logps: Sequence[float], end_ids: Sequence[int]) -> None:
        """The next tokens; none behind the first that ends the reply, or behind its limit."""
        for token, logp in zip(tokens, logps, strict=True):
            if self.stop is None:
                self.ids.append(token)
                self.logps.append(logp)
                cut = Stop.LENGTH if len(self.ids) == len(self.draws) else None
                self.stop = Stop.END if token in end_ids else cut


class HFEngine(StockEngine):
    """Samples `batch` prompts at once. `cache_mb`: half for a batch, half between turns; 0 bounds nothing.
    `static`: with shapes that never change, by default on CUDA, and replayed from `graphs`.
    """

    def __init__(
        self, model: Module, end_ids: Sequence[int], batch: int = 64, cache_mb: int = 4096,
        static: bool | None = None, graphs: Callable[[], Capture] | None = CudaGraphs,
    ) -> None:  # fmt: skip
        base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
        super().__init__(base, end_ids, batch)
        self.limit = cache_mb * 2**20
        self.kept: dict[str, Kept] = {}  # oldest first
        if static is None:  # what FSDP does around every layer cannot be captured
            sharded = any(isinstance(module, FSDPModule) for module in base.modules())
            static = base.device.type == "cuda" and not sharded
        self.static = static
        self.steps = StaticSteps(self._logits, graphs)
        self._warned = False

    @torch.no_grad()
    def generate(
        self, prompts: Prompts, seeds: Sequence[int], sampling: Sampling, sessions: Sessions = None
    ) -> list[Sampled]:
        if not self._is_served(max(map(len, prompts), default=0) + sampling.max_tokens):
            if not self._warned:
                log.warning("this model's attention is more than a mask: every turn is computed from scratch")
                self._warned = True
            return super().generate(prompts, seeds, sampling)
        of: Sequence[Session | None] = sessions or [None] * len(prompts)
        rows = [self.make_row(*row, sampling.max_tokens) for row in zip(prompts, seeds, of, strict=True)]
        with evaluating(self.model):
            # Prompts with as much to compute share a batch: less padding. No reply depends on its batch.
            waiting = sorted(rows, key=lambda row: (len(row.prompt) - row.shared, len(row.prompt)))
            while waiting:
                count = self._count_fitting(waiting, sampling)
                self._sample(waiting[:count], sampling)
                waiting = waiting[count:]
        return [Sampled(tuple(row.ids), row.stop or Stop.LENGTH, tuple(row.logps)) for row in rows]

    @torch.no_grad()
    def converse(self, dialogues: Sequence[Dialogue], sampling: Sampling) -> None:
        """In one batch whose rows come and go (continuous.py); in rounds where shapes must not change."""
        if self.static or not self._is_served(self.model.config.max_position_embeddings):
            super().converse(dialogues, sampling)
        else:
            with evaluating(self.model):
                ContinuousBatch(self, sampling, self.batch).play(dialogues)

    def _is_served(self, length: int) -> bool:
        """Whether attention over so many tokens is a matter of masks."""
        body = getattr(self.model, self.model.base_model_prefix)
        return self.model.config._attn_implementation in ("sdpa", "eager") and packable(body, length)

    def refresh(self, version: int, save: SaveAdapter) -> None:
        self.sleep()

    def sleep(self) -> None:
        self.kept.clear()
        self.steps.clear()

    def make_row(self, prompt: Sequence[int], seed: int, session: Session | None, limit: int) -> ReplyRow:
        kept = self.kept.pop(session.name, None) if session else None
        shared = kept.shared_with(prompt) if kept else 0
        return ReplyRow(list(prompt), uniforms(seed, limit), session, kept, shared)

    def _count_fitting(self, rows: list[ReplyRow], sampling: Sampling) -> int:
        """How many of the first rows make a batch; one is sampled whatever it takes."""
        longest = 0
        for count, row in enumerate(rows[: self.batch], 1):
            longest = max(longest, len(row.prompt))
            batch, columns = count, longest + sampling.max_tokens
            if self.static:
                batch, columns = static_shape(batch, columns)
            if self.limit and count > 1 and batch * columns * self._token_bytes() > self.limit // 2:
                return count - 1
        return min(self.batch, len(rows))

    def _token_bytes(self) -> int:
        config: Any = self.model.config
        width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        return int(2 * config.num_hidden_layers * heads * width * self.model.dtype.itemsize)

    def _sample(self, rows: list[ReplyRow], sampling: Sampling) -> None:
        decode = self._decode_static if self.static else self._decode
        decode(rows, sampling, *self.prefill(rows, sampling.max_tokens))

    def prefill(self, rows: list[ReplyRow], tokens: int) -> tuple[Tensor, RowCache]:
        """Logits [B, V] after the rows' prompts, and keys and values with room for `tokens` more columns."""
        # What several prompts have in common goes through the model once; the rows continue from there.
        prompts = [row.prompt for row in rows]
        while groups := shared_prefixes(prompts, [row.shared for row in rows]):
            groups.sort(key=lambda group: group.length)
            while groups:
                now = [group for group in groups if group.length <= PADDING * groups[0].length]
                groups = groups[len(now) :]
                firsts = [(rows[group.members[0]], group.length) for group in now]
                heads = [replace(row, prompt=row.prompt[:length], start=0) for row, length in firsts]
                _, cache = self._prefill(heads, 0)
                # These are no prompts by themselves, and what was computed here is not reused from earlier.
                length = sum(len(head.prompt) for head in heads)
                self.usage.add(-length, -length)
                for place, (head, group) in enumerate(zip(heads, now, strict=True)):
                    kept = cache.take(place, head.start, head.prompt)
                    for member in group.members:
                        rows[member].kept, rows[member].shared = kept, group.length
        return self._prefill(rows, tokens)

    def _prefill(self, rows: list[ReplyRow], tokens: int) -> tuple[Tensor, RowCache]:
        device, longest = self.model.device, max(len(row.prompt) for row in rows)
        # All rows compute as many tokens: those with less to do repeat some, where padding would be.
        block = max(len(row.prompt) - row.shared for row in rows)
        for row in rows:
            row.start = longest - len(row.prompt)
            row.shared = max(0, len(row.prompt) - block)
        room = block + min(tokens, GROWTH)
        known = [(k, r.kept, r.start, r.shared) for k, r in enumerate(rows) if r.kept and r.shared]
        make = None
        if self.static:
            self.steps.reserve(*static_shape(len(rows), longest + tokens), self.model)
            make = self.steps.arena.maker(*static_shape(len(rows), longest + 1))
        layers = range(self.model.config.num_hidden_layers)
        cache = RowCache([BufferLayer(k, longest - block, room, known, make) for k in layers])
        lengths, shared = sum(len(row.prompt) for row in rows), sum(row.shared for row in rows)
        self.usage.add(lengths, shared, block * len(rows) - (lengths - shared))
        ids = [[0] * (block - len(row.prompt)) + row.prompt[row.shared :] for row in rows]
        return self._forward(torch.tensor(ids, device=device), rows, cache), cache

    def _decode(self, rows: list[ReplyRow], sampling: Sampling, logits_BV: Tensor, cache: RowCache) -> None:
        """Token by token, with a cache that is as wide as it has to be and loses rows that have ended."""
        draws_BM = torch.stack([row.draws for row in rows]).to(self.model.device)
        for position in range(sampling.max_tokens):
            chosen_B, logp_B = pick(logits_BV, sampling, draws_BM[:, position])
            for row, token, logp in zip(rows, chosen_B.tolist(), logp_B.tolist(), strict=True):
                row.add([token], [logp], self.end_ids)
            going = [k for k, row in enumerate(rows) if row.stop is None]
            if not going:
                break
            # Taking rows out copies the others once: done when it spares a quarter of the work.
            if len(going) <= 0.75 * len(rows):
                self.keep(rows, cache, going)
                chosen = torch.tensor(going, device=draws_BM.device)
                cache.batch_select_indices(chosen)
                rows, draws_BM, chosen_B = [rows[k] for k in going], draws_BM[chosen], chosen_B[chosen]
            logits_BV = self._forward(chosen_B[:, None], rows, cache)
        self.keep(rows, cache)

    def _decode_static(
        self, rows: list[ReplyRow], sampling: Sampling, logits_BV: Tensor, cache: RowCache
    ) -> None:
        """A few tokens at a time; shapes change only where half of the rows ended or all columns are used."""
        device, arena = self.model.device, self.steps.arena
        draws_BM = torch.stack([row.draws for row in rows]).to(device)
        chosen_B, logp_B = pick(logits_BV, sampling, draws_BM[:, 0])
        for row, token, logp in zip(rows, chosen_B.tolist(), logp_B.tolist(), strict=True):
            row.add([token], [logp], self.end_ids)
        done, used, step = 1, cache.get_seq_length(), None  # tokens sampled, columns in use
        shape = static_shape(len(rows), used + 1)  # of what stands in the arena
        while going := [k for k, row in enumerate(rows) if row.stop is None]:
            needed = static_shape(len(going), used + 1)
            if needed != shape:
                self.keep(rows, cache, going)
                chosen = torch.tensor(going, device=device)
                arena.move(chosen, used, shape, needed)
                rows, draws_BM = [rows[k] for k in going], draws_BM[chosen]
                shape, step = needed, None
            if step is None:
                last = torch.tensor([row.ids[-1] for row in rows], device=device)
                starts = torch.tensor([row.start for row in rows], device=device)
                step = self.steps.begin(shape, sampling, last, starts, used)
                cache = step.cache
            count = min(LOOK, sampling.max_tokens - done, shape[1] - used)
            tokens_BK, logps_BK = step.sample(draws_BM[:, done : done + count])
            for row, tokens, logps in zip(rows, tokens_BK.tolist(), logps_BK.tolist(), strict=True):
                row.add(tokens, logps, self.end_ids)
            done, used = done + count, used + count
        self.keep(rows, cache)

    def _forward(self, ids_BQ: Tensor, rows: list[ReplyRow], cache: RowCache) -> Tensor:
        columns = torch.arange(cache.get_seq_length() + ids_BQ.shape[1], device=ids_BQ.device)
        new = columns[cache.get_seq_length() :]
        starts_B1 = torch.tensor([[row.start] for row in rows], device=ids_BQ.device)
        real_BC = columns >= starts_B1
        # Padding sees itself: a row that sees nothing has no softmax.
        mask_BQC = (real_BC[:, None] & (columns <= new[:, None])) | (columns == new[:, None])
        return self._logits(ids_BQ, mask_BQC[:, None], (new - starts_B1).clamp_min(0), cache)

    def _logits(self, ids_BQ: Tensor, mask: Tensor, places_BQ: Tensor, cache: RowCache) -> Tensor:
        """[B, V] behind the last token of every row."""
        extra: dict[str, Any] = {}
        if self.model.config._attn_implementation == "sdpa":
            attention.install()
            extra["shared_heads"] = True
        else:
            lowest = torch.finfo(self.model.dtype).min
            mask = torch.zeros_like(mask, dtype=self.model.dtype).masked_fill(~mask, lowest)
        extra |= {"past_key_values": cache, "use_cache": True, "logits_to_keep": 1}
        output = self.model(input_ids=ids_BQ, attention_mask=mask, position_ids=places_BQ, **extra)
        return output.logits[:, -1]

    def keep(self, rows: list[ReplyRow], cache: RowCache, going: Sequence[int] = ()) -> None:
        """Keys and values of the rows that have ended (all but those `going` on), for the next turn."""
        for place, row in enumerate(rows):
            if self.limit and row.session and row.session.more and place not in going:
                # The last token was sampled but never went through the model.
                self.kept[row.session.name] = cache.take(place, row.start, [*row.prompt, *row.ids[:-1]])
        total = sum(kept.size for kept in self.kept.values())
        while total > self.limit // 2 and self.kept:
            total -= self.kept.pop(next(iter(self.kept))).size
