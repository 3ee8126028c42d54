"""The references by method: `@reference("name")` registers a function of a step's replies, the settings and
the moment.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from methods.scene import Shown

from smopd.objective.tokens import Moment

Step = Sequence[Sequence[Shown]]  # rollouts, their replies that have tokens
Reference = Callable[[Step, Any, Moment], torch.Tensor]
REFERENCES: dict[str, Reference] = {}
CASES: list[tuple[str, str]] = []  # method, a setting that is not the method's own or nothing


def reference(name: str, *settings: str) -> Callable[[Reference], Reference]:
    """Registers the reference of a method, to be compared as it is and with each of some settings."""

    def mark(function: Reference) -> Reference:
        assert name not in REFERENCES
        REFERENCES[name] = function
        CASES.extend((name, setting) for setting in ("", *settings))
        return function

    return mark


def kl(log_p: torch.Tensor, log_q: torch.Tensor) -> torch.Tensor:
    """KL(p||q) of every row."""
    return (log_p.exp() * (log_p - log_q)).sum(-1)


def js(log_s: torch.Tensor, log_t: torch.Tensor, beta: float = 0.5) -> torch.Tensor:
    """beta KL(t||m) + (1 - beta) KL(s||m), m = beta t + (1 - beta) s."""
    log_m = (beta * log_t.exp() + (1 - beta) * log_s.exp()).log()
    return beta * kl(log_t, log_m) + (1 - beta) * kl(log_s, log_m)


def mean(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """The mean; 0 of nothing."""
    return torch.stack(list(values)).mean() if len(values) else torch.zeros((), dtype=torch.float64)


def entropy(log_p: torch.Tensor) -> torch.Tensor:
    """Of every row, in nats."""
    return -(log_p.exp() * log_p).sum(-1)


def prompts(step: Step, samples: int) -> list[Step]:
    """The rollouts of every drawn prompt: as many after each other as the step plays of it."""
    return [step[first : first + samples] for first in range(0, len(step), samples)]


def sharded(replies: Sequence[Shown]) -> list[Shown]:
    """Those of the sharded conversation."""
    return [r for r in replies if r.reply.view == "sharded"]
