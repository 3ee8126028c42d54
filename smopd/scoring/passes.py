"""Hidden states at the positions that predict each reply token, for a list of context + reply sequences.

Plain path: right-padded rows, one a sequence unless it is the beginning of another. Padding stands behind every real token, and
the mask is made from lengths, never from a pad id (which may be a model's end token). The head is applied by
`token_divergence`, to reply positions only.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from smopd.errors import UserError

Scored = tuple[Sequence[int], Sequence[int]]  # context ids, reply ids


def body_and_head(model: torch.nn.Module) -> tuple[torch.nn.Module, torch.Tensor]:
    """The decoder that yields hidden states, and the weight of the head on top of it."""
    causal: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model  # type: ignore[assignment,operator]
    head = causal.get_output_embeddings()
    body = getattr(causal, causal.base_model_prefix, None)
    if head is None or body is None or not isinstance(head, torch.nn.Linear):
        raise UserError(f"{type(causal).__name__}: has no plain linear lm_head on a decoder; smopd cannot score with it")
    if head.weight.requires_grad:
        raise UserError("the lm_head is trainable; smopd trains adapters on the projections and keeps embeddings and head frozen")
    return body, head.weight


@torch.no_grad()
def check_head(model: torch.nn.Module, ids: Sequence[int]) -> None:
    """Refuse models whose logits are not their head applied to their hidden states (soft-capping, scaling, a bias)."""
    body, weight = body_and_head(model)
    row = torch.tensor([list(ids)[:16]], device=weight.device)
    was_training = model.training
    model.eval()
    logits = model(input_ids=row, use_cache=False).logits.float()
    ours = torch.nn.functional.linear(body(input_ids=row, use_cache=False).last_hidden_state, weight).float()
    model.train(was_training)
    if not torch.allclose(logits, ours, rtol=1e-2, atol=1e-2 * float(logits.abs().max())):
        raise UserError(
            f"{type(model).__name__}: its logits are not lm_head times hidden state (logit soft-capping or scaling); "
            "smopd cannot train this model yet"
        )


def reply_hidden(
    body: torch.nn.Module, sequences: Sequence[Scored], device: torch.device | str = "cpu", row_tokens: int = 8192
) -> torch.Tensor:
    """[N, d] hidden states that predict the reply tokens of all sequences, in order; N is the sum of reply lengths.

    At most `row_tokens` tokens, padding included, go through the model at once (or one row, if that is longer).
    """
    if not all(context for context, _ in sequences):
        raise ValueError("a reply needs at least one context token in front of it")
    rows, host = _rows(sequences)
    states: list[torch.Tensor | None] = [None] * len(rows)
    for chosen in _batches([len(row) for row in rows], row_tokens):
        longest = max(len(rows[i]) for i in chosen)
        ids = torch.tensor([[*rows[i], *[0] * (longest - len(rows[i]))] for i in chosen], device=device)
        mask = torch.tensor([[1] * len(rows[i]) + [0] * (longest - len(rows[i])) for i in chosen], device=device)
        hidden_BLd = body(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        for i, hidden_Ld in zip(chosen, hidden_BLd, strict=True):
            states[i] = hidden_Ld
    pieces = []
    for (context, reply), i in zip(sequences, host, strict=True):
        hidden = states[i]
        assert hidden is not None
        # Position p holds the prediction of token p + 1, so reply token i is predicted at len(context) - 1 + i.
        pieces.append(hidden[len(context) - 1 : len(context) - 1 + len(reply)])
    return torch.cat(pieces)


def _rows(sequences: Sequence[Scored]) -> tuple[list[tuple[int, ...]], list[int]]:
    """The rows to compute, and for each sequence the row it is a prefix of.

    A turn whose tokens begin a later turn's context word for word needs no row of its own: attention is causal, so its
    hidden states are the later row's. Where a template renders the history otherwise, every turn keeps its row.
    """
    whole = [(*context, *reply) for context, reply in sequences]
    rows: list[tuple[int, ...]] = []
    host = [0] * len(whole)
    for k in sorted(range(len(whole)), key=lambda k: -len(whole[k])):
        found = next((i for i, row in enumerate(rows) if row[: len(whole[k])] == whole[k]), None)
        if found is None:
            rows.append(whole[k])
            found = len(rows) - 1
        host[k] = found
    return rows, host


def _batches(lengths: list[int], row_tokens: int) -> list[list[int]]:
    """Rows of like length together, longest first, each batch within the budget of padded tokens."""
    batches: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= row_tokens:
            batches[-1].append(i)
        else:
            batches.append([i])
    return batches


def reply_tokens(sequences: Sequence[Scored], device: torch.device | str = "cpu") -> torch.Tensor:
    """[N] the reply tokens themselves, in the same order."""
    return torch.tensor([token for _, reply in sequences for token in reply], dtype=torch.long, device=device)
