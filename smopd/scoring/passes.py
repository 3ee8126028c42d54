"""Hidden states at the positions that predict each reply token, for a list of context + reply sequences.

The sequences are packed into prefix trees, so whatever turns have in common goes through the model once. A
model whose attention is not plain causal attention (a sliding window shorter than a sequence, a recurrent
layer) takes the plain, padded path instead.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import Module

from smopd.errors import UserError
from smopd.scoring import attention, flex, plain
from smopd.scoring.plain import Scored, predicting
from smopd.scoring.tree import PrefixTree, rows_within, segments_of, upload

# What families call a change of the logits behind the head, with the value that changes nothing.
LOGIT_FIELDS = {
    "final_logit_softcapping": None, "logits_scaling": 1, "logit_scale": 1, "logits_scale": 1,
    "lm_head_multiplier": 1, "output_multiplier_scale": 1, "dim_model_base": None,
}  # fmt: skip


def _causal_model(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def body_and_head(model: Module) -> tuple[Module, torch.Tensor]:
    """The decoder that yields hidden states, and the weight of the head, with its soft cap."""
    causal = _causal_model(model)
    head, body = causal.get_output_embeddings(), getattr(causal, causal.base_model_prefix, None)
    if body is None or not isinstance(head, torch.nn.Linear):
        name = type(causal).__name__
        raise UserError(f"{name}: has no plain linear lm_head on a decoder; smopd cannot score with it")
    if head.weight.requires_grad:
        kept = "smopd trains adapters on the projections and keeps embeddings and head frozen"
        raise UserError(f"the lm_head is trainable; {kept}")
    softcap = getattr(causal.config.get_text_config(), "final_logit_softcapping", None)
    return body, plain.CappedHead.of(head.weight, softcap) if softcap else head.weight


def whole(weight: torch.Tensor) -> torch.Tensor:
    """A weight in one piece; where it is split among processes it is gathered, by all of them together."""
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


@torch.no_grad()
def check_head(model: Module, ids: Sequence[int]) -> None:
    """Refuse models whose logits are not their head, and its soft cap, applied to hidden states."""
    body, part = body_and_head(model)
    weight = whole(part)
    row, was_training = torch.tensor([list(ids)[:16]], device=weight.device), model.training
    model.eval()
    logits = model(input_ids=row, use_cache=False).logits.float()
    hidden = body(input_ids=row, use_cache=False).last_hidden_state
    model.train(was_training)
    ours = plain.capped(torch.nn.functional.linear(hidden, weight).float(), plain.cap_of(weight))
    if not torch.allclose(logits, ours, rtol=1e-2, atol=1e-2 * float(logits.abs().max())):
        causal = _causal_model(model)
        problem = f"its logits are not lm_head times hidden state ({_logit_changes(causal)})"
        raise UserError(f"model.path: {type(causal).__name__}: {problem}; smopd cannot train this model yet")


def _logit_changes(causal: Any) -> str:
    config = causal.config.get_text_config()
    values = {name: getattr(config, name, none) for name, none in LOGIT_FIELDS.items()}
    changes = [f"config.{name} = {value}" for name, value in values.items() if value != LOGIT_FIELDS[name]]
    changes += ["a bias on the head"] if causal.get_output_embeddings().bias is not None else []
    return ", ".join(changes) or "logit scaling, or something else behind the head"


def packable(body: Module, longest: int) -> bool:
    """Whether a mask alone decides what a token sees, for sequences up to `longest` tokens."""
    config: Any = body.config.get_text_config()  # type: ignore[operator,union-attr]
    layers = getattr(config, "layer_types", None)
    kinds = set(layers or ["full_attention"])
    window = getattr(config, "sliding_window", None) or longest
    # Older configs name a window without saying which layers have it.
    windowed = longest > window and (layers is None or "sliding_attention" in kinds)
    # alibi: positions as biases of the scores, which a packed row would get wrong
    if windowed or getattr(config, "alibi", False) or config._attn_implementation not in ("sdpa", "eager"):
        return False
    return kinds <= {"full_attention", "sliding_attention"}


def reply_hidden(
    body: Module, sequences: Sequence[Scored], device: torch.device | str = "cpu", row_tokens: int = 2048
) -> torch.Tensor:
    """[N, d] hidden states that predict the reply tokens of all sequences, in order; N sums reply lengths. At
    most `row_tokens` packed tokens go through the model at once (or one sequence, if that is longer).
    """
    if not all(context for context, _ in sequences):
        raise ValueError("a reply needs at least one context token in front of it")
    whole = [(*context, *reply) for context, reply in sequences]
    if not packable(body, max(map(len, whole))):
        return plain.reply_hidden(body, sequences, device, row_tokens)
    states: dict[int, torch.Tensor] = {}
    for chosen in rows_within(whole, row_tokens):
        tree = PrefixTree.pack([whole[k] for k in chosen])
        places = [index[predicting(*sequences[k])] for k, index in zip(chosen, tree.index, strict=True)]
        hidden_Ld = _packed_pass(body, tree, device)
        replies = hidden_Ld[upload(torch.cat(places), device)].split([len(p) for p in places])
        states.update(zip(chosen, replies, strict=True))
    return torch.cat([states[k] for k in range(len(whole))])


def row_attention(body: Module, device: torch.device | str) -> str:
    """How a packed row is attended to: "mask" (eager), "flex" (compiled) or "segments"."""
    config: Any = body.config
    if config._attn_implementation != "sdpa":
        return "mask"
    place, dtype = torch.device(device), next(body.parameters()).dtype
    text = config.get_text_config()
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    dropout = body.training and bool(getattr(text, "attention_dropout", 0.0))
    takes_masks = getattr(body, "_supports_flex_attn", False)
    if dropout or not takes_masks or not flex.compilable(place.type, dtype, width):
        return "segments"
    kv_heads = getattr(text, "num_key_value_heads", None) or heads
    return "flex" if flex.works(place, dtype, heads, kv_heads, width) else "segments"


def _packed_pass(body: Module, tree: PrefixTree, device: torch.device | str) -> torch.Tensor:
    """[L, d] hidden states of one packed row, and of padding behind it where its attention wants some."""
    kind = row_attention(body, device)
    if kind == "flex":
        tree = tree.padded(flex.bucket(len(tree.input_ids)))
    row = tree.to(device)
    arguments: dict[str, Any] = {"input_ids": row.input_ids[None], "position_ids": row.position_ids[None]}
    if kind == "flex":
        arguments["attention_mask"] = flex.block_mask(tree, row)
    elif kind == "segments":
        segments = segments_of(tree.subtree_end.numpy(force=True))
        arguments |= {"attention_mask": row.attention_mask()[None, None], "prefix_tree": segments}
    else:
        arguments["attention_mask"] = row.additive_mask(next(body.parameters()).dtype)[None, None]
    attention.install()
    return body(use_cache=False, **arguments).last_hidden_state[0]
