"""How much of the middle turns' gradient do the tokens have that a mask drops? Measured on a run's weights,
on fresh rollouts.

The middle loss with a fixed denominator is a sum over tokens, so its gradient by the adapter splits exactly
into the part of the kept tokens and the part of the dropped ones. Reported are the norms of both, the angle
between them, and how many tokens and how much divergence were dropped. The mask is the run's own; for a run
without one it is the paper's 80% by entropy, asked as a question. It leaves out answer turns and the FULL
branch, which no mask touches.
"""

from pathlib import Path
from typing import Any

import torch

from smopd.cli.progress import Progress, waiting
from smopd.config import Config, load_config
from smopd.errors import UserError
from smopd.evaluation.prepare import prepared_examples
from smopd.models import load_model, resolve_adapter
from smopd.models.adapters import attach, merged, student_parameters
from smopd.objective import RolloutLoss, rollout_loss
from smopd.rollout import Driver, Sampling
from smopd.rollout.factory import make_engine
from smopd.seeds import rng
from smopd.training import checkpoint
from smopd.training.scoring_step import FAST, Rollout, ScoredTurn, position_clip, score

KEEP = 0.8  # asked of runs that mask nothing


def gradient_shares(run: Path, examples: int = 32, at: str = "") -> dict[str, Any]:
    """The split on `examples` training examples, with the weights of the checkpoint `at` (default the
    newest).
    """
    config = load_config(run / "config.toml") if (run / "config.toml").exists() else None
    if config is None:
        raise UserError(f"{run}: not a run folder (no config.toml)")
    found = sorted((run / "checkpoints").glob(at or "step-*"))
    if not found:
        raise UserError(f"{run}: has no checkpoint {at or 'yet'}")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    with waiting(f"loading {config.model.path} with {found[-1].name}"):
        chat = load_model(config, device)
        start = str(resolve_adapter(config.model.adapter)) if config.model.adapter else ""
        model = attach(chat.model, config.lora, config.seed, start)
        student = list(student_parameters(model).values())
        step = checkpoint.load(found[-1], model, torch.optim.AdamW(student), config)
    chosen = prepared_examples(config, "train")
    rng(config.seed, "gradients").shuffle(chosen)
    engine = make_engine(config.model_copy(update={"engine": config.engine.model_copy(update={"kind": "hf"})}),
                         chat.renderer, config.rollout.batch, run / "adapters", model)  # fmt: skip
    sampling = Sampling(
        config.rollout.temperature, config.rollout.answer_tokens, config.rollout.top_p, config.rollout.top_k
    )
    driver = Driver(engine, chat.renderer, sampling, config.rollout.middle_tokens, config.chat.history)
    with merged(model):
        played = driver.play(chosen[:examples], "sharded", (config.seed, "gradients", step))
    engine.close()
    keep = config.objective.keep if config.objective.keep < 1 else KEEP
    sums = {"kept": [torch.zeros_like(p) for p in student], "all": [torch.zeros_like(p) for p in student]}
    counts = torch.zeros(4, dtype=torch.float64)
    model.train()
    with Progress("gradients", len(played)) as progress:
        for number, conversation in enumerate(played, 1):
            draw = (config.seed, "gradients", step)
            # Scored without a mask, so that every token has its gradient.
            _, (turns,) = score(model, chat.renderer, [Rollout(conversation, None, None)], config.objective, 1.0,
                                config.train.row_tokens, FAST, draw)  # fmt: skip
            for name, own in (("kept", keep), ("all", 1.0)):
                loss = _middle(turns, config, own, rng(*draw, conversation.example.id).getrandbits(60))
                if name == "kept":
                    counts += _counts(turns, loss, position_clip(config.objective))
                if loss.total.requires_grad:
                    gradient = torch.autograd.grad(loss.total, student, retain_graph=True, allow_unused=True)
                    for total, part in zip(sums[name], gradient, strict=True):
                        if part is not None:
                            total += part / len(played)
            progress.update(number)
    return {"checkpoint": found[-1].name, "examples": len(played), "keep": keep, **_shares(sums, counts)}


def _middle(turns: list[ScoredTurn], config: Config, keep: float, seed: int) -> RolloutLoss:
    """The middle loss of one rollout over a fixed denominator."""
    middle = [turn.stats for turn in turns if turn.part == "middle"]
    draw = torch.Generator().manual_seed(seed)
    return rollout_loss(
        middle,
        None,
        keep=keep,
        clip=position_clip(config.objective),
        eps=config.objective.eps,
        interpolation=config.objective.quantile,
        ranking=config.objective.ranking,
        noise=[torch.rand(len(stats.entropy), generator=draw, dtype=torch.float64) for stats in middle],
        denominator="all",
        clip_mode=config.objective.clip_mode,
    )


def _counts(turns: list[ScoredTurn], loss: RolloutLoss, clip: float) -> torch.Tensor:
    """Tokens, dropped ones, capped divergence, dropped capped divergence."""
    found = torch.zeros(4, dtype=torch.float64)
    middle = [turn.stats for turn in turns if turn.part == "middle"]
    for stats, mask in zip(middle, loss.masks, strict=True):
        capped = stats.divergence.detach().clamp_max(clip).double().cpu()
        dropped = ~mask.cpu()
        found += torch.tensor(
            [len(capped), int(dropped.sum()), capped.sum().item(), capped[dropped].sum().item()]
        ).double()
    return found


def _shares(sums: dict[str, list[torch.Tensor]], counts: torch.Tensor) -> dict[str, Any]:
    kept, whole = (torch.cat([g.double().flatten() for g in sums[name]]) for name in ("kept", "all"))
    dropped = whole - kept
    norms = [float(part.norm()) for part in (kept, dropped, whole)]
    tokens, tokens_dropped, divergence, divergence_dropped = counts.tolist()
    both = norms[0] * norms[1]
    return {
        "tokens": int(tokens),
        "tokens_dropped": tokens_dropped / tokens if tokens else 0.0,
        "divergence_dropped": divergence_dropped / divergence if divergence else 0.0,
        "norm_kept": norms[0],
        "norm_dropped": norms[1],
        "norm_all": norms[2],
        "norm_share_dropped": norms[1] / (norms[0] + norms[1]) if norms[0] + norms[1] else 0.0,
        "cosine": float(kept @ dropped) / both if both else None,
    }
