"""Frozen weights sharded over the processes (FSDP2), adapters replicated. Every pass is collective, so all
must make the same number of passes: `Aligned` adds empty ones. The hf engine samples with unsharded weights.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn import Module

from smopd.errors import UserError
from smopd.scoring import kernel, passes
from smopd.scoring.passes import body_and_head, whole
from smopd.scoring.plain import Scored, cap_of
from smopd.scoring.tree import rows_within
from smopd.training.processes import Processes
from smopd.training.scores import ScoringPath


def shard(model: PeftModel) -> None:
    """Shard the base weights, layer by layer. Collective."""
    body, weight = body_and_head(model)
    adapters = {p for n, p in model.named_parameters() if "lora_" in n}
    layers = next((m for m in body.children() if isinstance(m, torch.nn.ModuleList)), None)
    if layers is None:
        name = type(body).__name__
        raise UserError(f"train.shard: {name} has no list of layers to split; train it without train.shard")
    for layer in layers:
        fully_shard(layer, ignored_params=adapters)
    base: Any = model.get_base_model()
    head, embedding = base.get_output_embeddings(), base.get_input_embeddings()
    if head.weight is not embedding.weight:
        fully_shard(head)
    elif cap_of(weight) is None:  # a soft-capped head must be whole: it keeps its weight
        base.set_output_embeddings(TiedHead(embedding))
    fully_shard(body, ignored_params=adapters)


class TiedHead(torch.nn.Linear):
    """A head that reads the embedding's weight. fully_shard shards the embedding with the body but not the
    head, which would keep the whole weight in every process, never freed or moved.
    """

    def __init__(self, embedding: torch.nn.Embedding) -> None:
        Module.__init__(self)
        self.in_features, self.out_features = embedding.embedding_dim, embedding.num_embeddings
        self.register_parameter("bias", None)
        self._embedding = (embedding,)  # in a tuple, so that it is not registered as a submodule

    @property
    def weight(self) -> torch.Tensor:  # type: ignore[override]
        """The embedding's weight: whole while it is gathered, else this process's shard."""
        return self._embedding[0].weight

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(hidden, whole(self.weight))


class Aligned:
    """Scoring with the same number of passes on every process."""

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._anchor: torch.Tensor | None = None

    def path(self) -> ScoringPath:
        return ScoringPath(self.reply_hidden, kernel.token_stats, whole, always=True)

    def reply_hidden(
        self, body: Module, sequences: Sequence[Scored], device: torch.device, row_tokens: int
    ) -> torch.Tensor:
        """[N, d] hidden states that predict the reply tokens, as `passes.reply_hidden`. Collective."""
        full = [(*context, *reply) for context, reply in sequences]
        packs = not full or passes.packable(body, max(map(len, full)))
        rows = rows_within(full, row_tokens) if full and packs else [[k] for k in range(len(full))]
        # Before the first pass, because passes are collective operations too.
        missing = self.processes.all_max(len(rows)) - len(rows)
        states: dict[int, torch.Tensor] = {}
        for row in rows:
            chosen, budget = [sequences[k] for k in row], sum(len(full[k]) for k in row)  # all in one pass
            hidden = passes.reply_hidden(body, chosen, device, budget)
            states.update(zip(row, hidden.split([len(reply) for _, reply in chosen]), strict=True))
        width: Any = body.config.hidden_size  # type: ignore[union-attr]
        for _ in range(missing):
            output: Any = body(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False)
            if torch.is_grad_enabled():
                extra = 0.0 * output.last_hidden_state.sum().float()
                self._anchor = extra if self._anchor is None else self._anchor + extra
        return torch.cat([states[k] for k in sorted(states)] or [torch.zeros(0, width, device=device)])

    def anchored(self, loss: torch.Tensor) -> torch.Tensor:
        """Add the empty passes since the last call to the loss, with weight 0."""
        anchor, self._anchor = self._anchor, None
        return loss if anchor is None else loss + anchor


def reshard(model: torch.nn.Module) -> None:
    """Free the weights gathered by the last pass."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


@contextmanager
def unsharded(model: torch.nn.Module) -> Iterator[None]:
    """Inside, every process has all weights and may make any number of passes. Collective."""
    parts = [m for m in model.modules() if isinstance(m, FSDPModule)]
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    try:
        yield
    finally:
        for part in parts:
            part.set_reshard_after_forward(True, recurse=False)
        reshard(model)
