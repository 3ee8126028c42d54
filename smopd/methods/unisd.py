"""UniSD (arXiv 2605.06597): forward KL by agreement of contexts, a hinge, hidden states drawn together."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from smopd.methods import Field, Method, Peers, Play, Reply, Section, parts, scoring


class Settings(Section):
    gain: float = Field(0.001, ge=0, description="how fast a token loses weight where contexts disagree")
    hinge: float = Field(0.01, ge=0, description="scale of the hinge against a bad context; 0 = off")
    margin: float = Field(0.1, ge=0, description="margin of the hinge, in nats")
    hidden: float = Field(0.01, ge=0, description="scale of the hidden states' squared difference; 0 = off")


def witnesses(reply: Reply, peers: Peers) -> Sequence[Any]:
    """Contexts whose agreement is asked: the user turns, the task besides, the turns in another order."""
    (_, users), (_, besides) = *parts.users_only(reply, peers), *parts.users_and_task(reply, peers)
    return [users, besides, parts.shuffled_users(reply, peers)]


def plan(s: Settings) -> "parts.Plan":
    asked, hinge = parts.Auxiliary(witnesses), scoring.hinge(s.margin)
    kl, agreed = scoring.forward_kl(), parts.batch(parts.agreement(s.gain))
    distil = parts.Term("distil", parts.sharded, parts.clean, kl, agreed, mean_over="weight", auxiliary=asked)
    others = parts.Auxiliary(parts.other_users)
    contrast = parts.Term("contrast", parts.sharded, parts.clean, hinge, scale=s.hinge, auxiliary=others)
    # It has no use for the witnesses, but with them it shares the products of the first term.
    hidden = replace(contrast, name="hidden", loss=scoring.hidden_mse(), scale=s.hidden, auxiliary=asked)
    return parts.Plan((Play(),), (distil, contrast, hidden))


METHODS = [Method(
    name="unisd", title="UniSD: agreement of contexts, a bad context, hidden states",
    summary="Forward KL where several contexts agree, farther from a wrong context, with like hidden states.",
    paper="UniSD, arXiv 2605.06597",
    section=Settings, plan=plan, settings={"teacher.decay": 0.98, "teacher.every": 10}, group="compared",
    formula="w = max(0.01, 1/(1 + g min(Var_k log T_k(y) / q95, 10))), k = 1..3, q95 over the step; L = sum "
    "w KL(T||S) / sum w + 0.01 mean max(0, 0.1 + |log S(y) - log T(y)| - |log S(y) - log T'(y)|) + 0.01 mean "
    "(h_S - h_T)^2 of the last hidden states, each over a reply.",
    choices="Its auxiliary contexts hold retrieved demonstrations; here the user turns, the turns and the "
    "task, the turns in a drawn order. The bad context holds a wrong demonstration; here the user turns of "
    "another example of the step (none there: the hinge leaves the reply out). q95 over the step (its code: "
    "over a device's batch). The values are its code's for the combination. Its own training: lr 2e-5, "
    "cosine, temperature 0.7.",
)]  # fmt: skip
