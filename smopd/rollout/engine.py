"""The protocol every rollout engine keeps: token ids in, token ids out, one seed a reply."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Stop(StrEnum):
    """Why a reply ended."""

    END = "end"  # the model sampled an end-of-turn token, which is the reply's last token
    LENGTH = "length"  # the token limit cut it; it has no end token


@dataclass(frozen=True)
class Sampling:
    """How replies are drawn. Temperature 0 is greedy."""

    temperature: float
    max_tokens: int
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True)
class Reply:
    """The sampled ids, an end-of-turn token included when it was sampled."""

    ids: tuple[int, ...]
    stop: Stop


class Engine(Protocol):
    """Samples one reply to each prompt. A reply depends on its prompt and its seed, never on the others of the batch."""

    def generate(self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], sampling: Sampling) -> list[Reply]: ...
