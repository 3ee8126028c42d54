"""The token log of an evaluation (`eval.save_tokens`), with a row for every reply token:

    conversation, turn, position   which token it is; `conversation` is an index of the ids (metadata)
    token                          its id (its text: metadata)
    entropy, logp                  nats, full vocabulary, temperature 1

and its likely alternatives (smopd/scoring/token_log.py). Each group of conversations played together has a
file: TOKENS/VIEW-NUMBER.safetensors. An engine returns at most the log-probability of the sampled token, so
the replies are scored once more, which needs the model in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.lazy import torch
from smopd.rollout.driver import Conversation, Driver
from smopd.scoring.token_log import Framework, Others, read_tokens, write_tokens

TYPES = {
    "conversation": "int16", "turn": "int16", "position": "int32", "token": "int32",
    "entropy": "float32", "logp": "float32",
}  # fmt: skip
MODEL = "student"


@dataclass(frozen=True)
class TokenRecorder:
    folder: Path
    driver: Driver
    alternatives: int
    row_tokens: int
    begin: Callable[[], None]  # creates the parent folders if they are new
    only: Container[str]  # ids of the examples that are logged

    def __call__(self, view: str, run: int, number: int, played: Sequence[Conversation]) -> None:
        played = [one for one in played if one.example.id in self.only]
        places = [(c, t, turn) for c, one in enumerate(played) for t, turn in enumerate(one.turns)]
        if not (replies := [place for place in places if place[2].reply]):
            return
        with torch.no_grad():
            columns, others, pieces = self._score(replies)
        self.begin()
        path = self.folder / f"{view}-{number:05d}.safetensors"
        names = {"ids": [one.example.id for one in played], "view": view, "run": run, "pieces": pieces}
        write_tokens(path, columns, {MODEL: others}, names)

    def _score(
        self, replies: Sequence[tuple[int, int, Any]]
    ) -> tuple[dict[str, Any], Others, dict[int, str]]:
        from smopd.rollout.hf import HFEngine
        from smopd.scoring.kernel import token_profile
        from smopd.scoring.passes import body_and_head, reply_hidden

        engine = self.driver.engine
        assert isinstance(engine, HFEngine)
        body, head = body_and_head(engine.model.requires_grad_(False))  # nothing is trained here
        sequences = [(turn.context, turn.reply) for _, _, turn in replies]
        hidden = reply_hidden(body, sequences, head.device, self.row_tokens)
        ids = torch.tensor([i for _, reply in sequences for i in reply], device=head.device)
        profile = token_profile(hidden, head, ids, self.alternatives)
        lengths = torch.tensor([len(reply) for _, reply in sequences])
        conversation, turn = torch.tensor([place[:2] for place in replies]).T
        position = torch.cat([torch.arange(int(n)) for n in lengths])
        values = {
            "conversation": conversation.repeat_interleave(lengths), "turn": turn.repeat_interleave(lengths),
            "position": position, "token": ids, "entropy": profile.entropy, "logp": profile.logp,
        }  # fmt: skip
        columns = {name: values[name].cpu().to(getattr(torch, kind)) for name, kind in TYPES.items()}
        others = Others.of(ids.cpu(), profile.top_tokens.cpu(), profile.top_logps.cpu())
        pieces = self.driver.renderer.pieces(sorted({*ids.unique().tolist(), *others.tokens.tolist()}))
        return columns, others, pieces


@dataclass(frozen=True)
class Logged:
    values: dict[str, Any]  # columns, as tensors or arrays
    others: Others
    pieces: dict[int, str]
    ids: list[str]
    view: str
    run: int


def read(path: Path, framework: Framework = "pt") -> Logged:
    values, others, names = read_tokens(path, TYPES, ("ids", "view", "run", "pieces"), framework)
    if MODEL not in others:
        raise UserError(f"{path}: not a token log of an evaluation")
    pieces = {int(token): text for token, text in names["pieces"].items()}
    return Logged(values, others[MODEL], pieces, names["ids"], names["view"], names["run"])
