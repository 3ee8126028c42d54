"""One scalar: plans and their terms, the parts they are made of, and the loss of a rollout.

Names are looked up when they are first asked for: a method's declaration, and with it every config, needs no torch.
"""

from typing import TYPE_CHECKING

from smopd.lazy import lazy_names

if TYPE_CHECKING:
    from smopd.objective.caps import hard, no_cap, scale
    from smopd.objective.loss import RolloutLoss, TermLoss, decide, term_loss
    from smopd.objective.plan import Plan, Term
    from smopd.objective.replies import (
        answer,
        every,
        first,
        full,
        judged,
        middle,
        one_sampled,
        users_only,
        where,
        whole_task,
    )
    from smopd.objective.rollout import rollout_loss
    from smopd.objective.selection import keep_mask, reliability, turn_weights
    from smopd.objective.tokens import (
        Moment,
        Tokens,
        after,
        at_random,
        batch,
        divergence,
        entropy,
        every_token,
        gate,
        importance,
        inverted_entropy,
        product,
        top,
    )
    from smopd.objective.turns import Turns, reliability_weight, uniform

__all__ = [
    "Moment", "Plan", "RolloutLoss", "Term", "TermLoss", "Tokens", "Turns", "after", "answer", "at_random", "batch",
    "decide", "divergence", "entropy", "every", "every_token", "first", "full", "gate", "hard", "importance",
    "inverted_entropy", "judged", "keep_mask", "middle", "no_cap", "one_sampled", "product", "reliability",
    "reliability_weight", "rollout_loss", "scale", "term_loss", "top", "turn_weights", "uniform", "users_only",
    "where", "whole_task",
]  # fmt: skip
__getattr__ = lazy_names(
    __name__,
    {
        "smopd.objective.caps": ("hard", "no_cap", "scale"),
        "smopd.objective.loss": ("RolloutLoss", "TermLoss", "decide", "term_loss"),
        "smopd.objective.plan": ("Plan", "Term"),
        "smopd.objective.replies": (
            "answer", "every", "first", "full", "judged", "middle", "one_sampled", "users_only", "where", "whole_task",
        ),
        "smopd.objective.rollout": ("rollout_loss",),
        "smopd.objective.selection": ("keep_mask", "reliability", "turn_weights"),
        "smopd.objective.tokens": (
            "Moment", "Tokens", "after", "at_random", "batch", "divergence", "entropy", "every_token", "gate",
            "importance", "inverted_entropy", "product", "top",
        ),
        "smopd.objective.turns": ("Turns", "reliability_weight", "uniform"),
    },
)  # fmt: skip
