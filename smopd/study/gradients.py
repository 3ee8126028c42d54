"""How much of a term's gradient comes from the tokens it drops? Measured with a run's weights, fresh
rollouts.

Over a fixed denominator, the loss is a sum over tokens, so its gradient by the adapter splits exactly into
the part of the kept tokens and that of the dropped ones. Reported are the norms of both, the angle between
them, and the shares of tokens and divergence dropped. A run that keeps every token is split by the paper's
80% by entropy. Beside it stands the norm of the gradient of every term of the run's own loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from smopd.config import plan_of
from smopd.devices import default_device
from smopd.errors import UserError
from smopd.evaluation.evaluate import prepared_examples
from smopd.lazy import torch
from smopd.models import load_model, resolve_adapter
from smopd.objective.plan import Plan, Term
from smopd.objective.tokens import Moment, entropy, every_token, top
from smopd.rollout import Rollout
from smopd.rollout.assembly import training_driver
from smopd.runs import Run, checkpoint
from smopd.scoring.stats import TokenStats
from smopd.seeds import rng
from smopd.tracking import Track, quiet
from smopd.verify.verifiers import verify_all


def gradient_shares(run: Path, examples: int = 32, at: str = "", track: Track = quiet) -> dict[str, Any]:
    """Split the gradient of `examples` training examples, at the checkpoint `at` (default the newest)."""
    folder = Run(run)
    config, plan = folder.config, plan_of(folder.config)
    term = next((t for t in plan.scored if t.selects), None)
    if term is None:
        raise UserError(f"{run}: the method {config.method} drops no token, so there is no gradient to split")
    weights = next((c for c in reversed(folder.checkpoints) if at in ("", c.name)), None)
    if weights is None:
        raise UserError(f"{run}: has no checkpoint {at or 'yet'}")
    from smopd.models.adapters import attach, merged, student_parameters
    from smopd.training.processes import Processes
    from smopd.training.step_scoring import StepScorer

    device = default_device()
    with track(f"loading {config.model.path} with {weights.name}"):
        chat = load_model(config, device)
        start = resolve_adapter(config.model.adapter) if config.model.adapter else None
        model = attach(chat.model, config.lora, config.seed, start)
        student = list(student_parameters(model).values())
        step = checkpoint.load(weights, model, torch.optim.AdamW(student), config)
    chosen = prepared_examples(config, "train")
    rng(config.seed, "gradients").shuffle(chosen)
    in_place = config.model_copy(update={"engine": config.engine.model_copy(update={"kind": "hf"})})
    driver = training_driver(in_place, chat.renderer, model, run / "adapters")
    draw = (config.seed, "gradients", step)
    with merged(model):
        played = driver.play(chosen[:examples], plan.plays[0].view, draw)
    driver.engine.close()
    verdicts = verify_all([(c.example, c.final_text) for c in played])
    rollouts = [Rollout(c.example, (c,), (v,)) for c, v in zip(played, verdicts, strict=True)]

    # At the last step, when every schedule has started. The first two terms differ only in their tokens and
    # share the passes, so one gradient is a part of the other; the run's own terms are beside them.
    moment = Moment(config.train.steps, config.train.steps, draw)
    kept = replace(term, name="kept", mean_over="all", per="reply", scale=1.0)
    if term.logged(moment).get("keep") == 1:
        kept = replace(kept, tokens=top(entropy, 0.8))  # a run that keeps every token is split as the paper's
    own = {f"term {t.name}": t.name for t in plan.scored}
    terms = (replace(t, name=name) for name, t in zip(own, plan.scored, strict=True))
    split = Plan(plan.plays[:1], (kept, replace(kept, name="all", tokens=every_token), *terms))
    settings = config.train.model_copy(update={"save_tokens": False})
    scorer = StepScorer(model, chat.renderer, split, settings, Processes())
    with track(f"gradients of {len(rollouts)} rollouts"):
        losses, gradients = scorer.differentiate(rollouts, moment, by_term=True)
    replies = [stats for loss in losses for stats in loss.terms["kept"].stats]
    keep, shares = kept.logged(moment).get("keep"), _shares(kept, replies, gradients)
    norms = {term: float(_flat(gradients[name]).norm()) for name, term in own.items()}
    norms = {term: norm for term, norm in norms.items() if norm}  # FULL conversations are not played here
    return {"checkpoint": weights.name, "examples": len(rollouts), "keep": keep, **shares, "terms": norms}


def _flat(gradient: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([g.double().flatten() for g in gradient])


def _shares(
    term: Term, replies: Sequence[TokenStats], gradients: dict[str, list[torch.Tensor]]
) -> dict[str, Any]:
    kept, whole = _flat(gradients["kept"]), _flat(gradients["all"])
    dropped = whole - kept
    of_kept, of_dropped, of_all = (float(part.norm()) for part in (kept, dropped, whole))
    capped = torch.cat([torch.zeros(0).double(), *(term.cap.apply(s.divergence).double() for s in replies)])
    outside = torch.cat([torch.zeros(0).bool(), *(s.weight == 0 for s in replies if s.weight is not None)])
    tokens, divergence = len(capped), capped.sum().item()
    return {
        "tokens": tokens,
        "tokens_dropped": int(outside.sum()) / tokens if tokens else 0.0,
        "divergence_dropped": capped[outside].sum().item() / divergence if divergence else 0.0,
        "norm_kept": of_kept,
        "norm_dropped": of_dropped,
        "norm_all": of_all,
        "norm_share_dropped": of_dropped / (of_kept + of_dropped) if of_kept + of_dropped else 0.0,
        "cosine": float(kept @ dropped) / (of_kept * of_dropped) if of_kept * of_dropped else None,
    }
