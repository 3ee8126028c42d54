"""Frozen weights split among the processes (FSDP2): each keeps a part and borrows a layer's others while it
computes that layer.

The adapters stay whole everywhere, so optimizer, EMA teacher and checkpoints are those of replicated weights.
Sharded layers talk to each other in every pass, hence all processes must make the same number of passes:
`Aligned` adds empty ones where one has fewer. Rollouts of the hf engine are the exception: their length is
nobody's to know, so the weights are whole while they last.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from peft import PeftModel
from torch.distributed.fsdp import FSDPModule, fully_shard

from smopd.errors import UserError
from smopd.scoring import divergence, passes
from smopd.scoring.passes import body_and_head, whole
from smopd.scoring.plain import Scored
from smopd.scoring.tree import rows_within
from smopd.training.processes import Processes
from smopd.training.scoring_step import ScoringPath


def shard(model: PeftModel) -> None:
    """Split the base weights, layer by layer. Called by all processes together."""
    body, _ = body_and_head(model)
    adapters = {p for n, p in model.named_parameters() if "lora_" in n}
    layers = next((m for m in body.children() if isinstance(m, torch.nn.ModuleList)), None)
    if layers is None:
        raise UserError(
            f"train.shard: {type(body).__name__} has no list of layers to split; train it without train.shard"
        )
    for layer in layers:
        fully_shard(layer, ignored_params=adapters)
    base: Any = model.get_base_model()
    head, embedding = base.get_output_embeddings(), base.get_input_embeddings()
    if head.weight is not embedding.weight:
        fully_shard(head)
    fully_shard(body, ignored_params=adapters)


class Aligned:
    """`reply_hidden` with as many passes as the process with the most rows needs.

    `anchor` hangs the empty passes of the student onto the loss, with weight zero, so that they are
    differentiated with the rest.
    """

    def __init__(self, processes: Processes) -> None:
        self.processes = processes
        self._anchor: torch.Tensor | None = None

    def path(self) -> ScoringPath:
        """The scoring path that goes through here."""
        return ScoringPath(self.reply_hidden, divergence.token_divergence, whole, always=True)

    def reply_hidden(
        self,
        body: torch.nn.Module,
        sequences: Sequence[Scored],
        device: torch.device | str = "cpu",
        row_tokens: int = 2048,
    ) -> torch.Tensor:
        """[N, d] hidden states that predict the reply tokens, as `passes.reply_hidden`. Called by all
        processes together.
        """
        full = [(*context, *reply) for context, reply in sequences]
        packs = not full or passes.packable(body, max(map(len, full)))
        rows = rows_within(full, row_tokens) if full and packs else [[k] for k in range(len(full))]
        missing = self.processes.all_max(len(rows)) - len(
            rows
        )  # asked before the first pass: passes are conversations, too
        states: list[torch.Tensor | None] = [None] * len(sequences)
        for row in rows:
            chosen = [sequences[k] for k in row]
            found = passes.reply_hidden(
                body, chosen, device, sum(len(full[k]) for k in row)
            )  # one pass holds them all
            for k, state in zip(row, found.split([len(reply) for _, reply in chosen]), strict=True):
                states[k] = state
        width: Any = body.config.hidden_size  # type: ignore[union-attr]
        empty = torch.zeros(0, width, device=device)
        for _ in range(missing):
            output: Any = body(input_ids=torch.zeros(1, 1, dtype=torch.long, device=device), use_cache=False)
            if torch.is_grad_enabled():
                extra = 0.0 * output.last_hidden_state.sum().float()
                self._anchor = extra if self._anchor is None else self._anchor + extra
        return torch.cat([state for state in states if state is not None] or [empty])

    def anchored(self, loss: torch.Tensor) -> torch.Tensor:
        """The loss with the empty passes since the last call."""
        anchor, self._anchor = self._anchor, None
        return loss if anchor is None else loss + anchor


def reshard(model: torch.nn.Module) -> None:
    """Give back what the last pass borrowed."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.reshard()


@contextmanager
def unsharded(model: torch.nn.Module) -> Iterator[None]:
    """Inside, every process has all weights and may compute as much as it likes. Called by all processes
    together.
    """
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
