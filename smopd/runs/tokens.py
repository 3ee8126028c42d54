"""The token log (`train.save_tokens`): one safetensors file per step with a row for every scored reply token.

    rollout, view, turn, part, position   which token it is; `part` is the index of its term, `view` that of
                                          its view (names: metadata)
    token                                 its id (its text: metadata)
    entropy, teacher_entropy              nats, full vocabulary, temperature 1
    divergence                            the term's row loss, before the cap
    student_logp, teacher_logp            of the token, in the dirty and the teacher's context
    kept, clipped                         whether it carries loss, whether its divergence is over the cap
    weight                                of its turn

That is 40 bytes a token, plus 6 for every alternative of at least 1% by a model (`train.alternatives` each at
most). A reply that two terms score appears twice. The teacher's contexts are in a JSONL file beside the log,
a row per rollout. smopd/study/calibration.py and smopd/viewer/ read the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.chat import Renderer
from smopd.lazy import torch
from smopd.objective.loss import RolloutLoss
from smopd.objective.plan import Plan
from smopd.objective.scoring_requests import teacher_contexts as contexts_of
from smopd.rollout.play import Peers
from smopd.scoring.token_log import Framework, Others, read_tokens, write_tokens

TYPES = {
    "rollout": "int16", "turn": "int16", "part": "uint8", "position": "int32",
    "token": "int32", "entropy": "float32", "teacher_entropy": "float32",
    "divergence": "float32", "student_logp": "float32", "teacher_logp": "float32",
    "kept": "uint8", "clipped": "uint8", "weight": "float32",
}  # fmt: skip
VIEW = "view"  # a column that earlier versions did not write
MODELS = ("student", "teacher")
OF_STATS = ("entropy", "teacher_entropy", "divergence", "student_logp", "teacher_logp")


@dataclass(frozen=True)
class Columns:
    values: dict[str, Any]  # tensors or, if `read` with "numpy", arrays
    ids: list[str]  # of the rollouts
    terms: list[str]
    selecting: list[str]  # the terms that select among their tokens
    views: list[str] = field(default_factory=list)
    others: dict[str, Others] = field(default_factory=dict)  # by model
    # The text of every token that occurs, so that readers need no tokenizer.
    pieces: dict[int, str] = field(default_factory=dict)


def token_columns(ids: list[str], losses: Sequence[RolloutLoss], plan: Plan, renderer: Renderer) -> Columns:
    """Collect a step's columns; `ids` are those of the rollouts' examples."""
    rows: dict[str, list[torch.Tensor]] = {name: [] for name in [*TYPES, VIEW, "top_tokens", "top_logps"]}
    terms = [term.name for term in plan.terms]
    views = list(dict.fromkeys(play.view for play in plan.plays))
    for number, loss in enumerate(losses):
        for name, part in loss.terms.items():
            kept = part.kept()
            for k, (reply, stats) in enumerate(zip(part.replies, part.stats, strict=True)):
                count, place = len(reply.tokens), {"rollout": number, "turn": reply.turn}
                place |= {VIEW: views.index(reply.view), "part": terms.index(name)}
                columns = {column: torch.full((count,), value) for column, value in place.items()}
                columns |= {column: getattr(stats, column) for column in OF_STATS}
                columns |= {"position": torch.arange(count), "token": torch.tensor(reply.tokens)}
                columns |= {"kept": kept[k], "clipped": part.over[k]}
                columns["weight"] = part.turn_weights[k].expand(count)
                if stats.top_tokens is not None and stats.top_logps is not None:
                    columns |= {"top_tokens": stats.top_tokens, "top_logps": stats.top_logps}
                for column, values in columns.items():
                    rows[column].append(values.detach().cpu())
    empty = [torch.zeros(0)]
    types = {**TYPES, VIEW: "uint8"}
    tensors = {name: torch.cat(rows[name] or empty).to(getattr(torch, kind)) for name, kind in types.items()}
    others = {}
    if rows["top_tokens"]:
        top_tokens, top_logps = torch.cat(rows["top_tokens"]), torch.cat(rows["top_logps"])
        for k, model in enumerate(MODELS):
            others[model] = Others.of(tensors["token"], top_tokens[:, k], top_logps[:, k])
    selecting = [term.name for term in plan.terms if term.selects]
    occurring = set(tensors["token"].unique().tolist()).union(*(o.tokens.tolist() for o in others.values()))
    pieces = renderer.pieces(sorted(occurring))
    return Columns(tensors, ids, terms, selecting, [*map(str, views)], others, pieces)


def teacher_contexts(
    losses: Iterable[RolloutLoss], plan: Plan, peers: Peers, renderer: Renderer
) -> Iterator[dict[str, Any]]:
    """The teacher's contexts of each scored reply (term, view, turn): a row per rollout."""
    for loss in losses:
        replies = []
        for term in plan.terms:
            for reply in loss.terms[term.name].replies if term.teacher and term.name in loss.terms else ():
                contexts: list[dict[str, Any]] = []
                for weight, context in contexts_of(term, reply, peers):
                    if isinstance(context, tuple):  # token ids
                        contexts.append({"weight": weight, "text": renderer.tokenizer.decode(list(context))})
                    else:
                        contexts.append({"weight": weight, "messages": context})
                place = {"term": term.name, "view": reply.view, "turn": reply.turn}
                replies.append({**place, "contexts": contexts})
        yield {"replies": replies}


def write(path: Path, columns: Columns) -> None:
    names = {key: getattr(columns, key) for key in ("ids", "terms", "selecting", "views", "pieces")}
    write_tokens(path, columns.values, columns.others, names)


def read(path: Path, framework: Framework = "pt") -> Columns:
    """Read a log, also of an earlier version, which has neither views nor token texts."""
    values, others, names = read_tokens(path, TYPES, ("ids", "terms", "selecting"), framework)
    views = names.get("views") or ["sharded", "full"]
    if names.get("views"):
        values[VIEW] = read_tokens(path, [VIEW], (), framework)[0][VIEW]
    else:
        terms = names["terms"]
        values[VIEW] = values["part"] == (terms.index("full") if "full" in terms else len(terms))
    pieces = {int(token): text for token, text in names.get("pieces", {}).items()}
    return Columns(values, names["ids"], names["terms"], names["selecting"], views, others, pieces)
