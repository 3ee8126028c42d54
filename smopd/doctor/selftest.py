"""A self-test of ten seconds: does the pocket model compute on the device what float64 gives on the CPU?

Loss and gradient of one scoring step, by training's path, are compared with the plain path in float64; a
greedy reply with static shapes (on CUDA from a graph), with the CPU's. Speed and vLLM are not tested.
"""

from dataclasses import dataclass
from itertools import zip_longest

import torch

from smopd.config import Config, load_config, plan_of
from smopd.data import load_examples
from smopd.doctor.speed_parts import move_student
from smopd.models import load_model
from smopd.models.adapters import attach, student_parameters
from smopd.objective.tokens import Moment
from smopd.rollout import Conversation, Driver, Rollout, Sampling
from smopd.rollout.hf import HFEngine
from smopd.rollout.static import CudaGraphs
from smopd.tracking import Track, quiet
from smopd.training.scores import FAST, PLAIN, ScoringPath, score
from smopd.verify.verdict import Verdict

# Relative errors that rounding explains. The float64 reference of bfloat16 has the same rounded weights, so
# the bound is for activations of eight significant bits.
BOUNDS = {"float32": {"loss": 1e-4, "gradient": 1e-3}, "bfloat16": {"loss": 0.1, "gradient": 0.5}}
GREEDY = Sampling(0.0, 24)


@dataclass(frozen=True)
class Check:
    name: str
    error: float
    bound: float

    @property
    def passed(self) -> bool:
        return self.error <= self.bound


def self_test(device: torch.device, track: Track = quiet) -> list[Check]:
    with track("self-test: sampling"):
        rollouts, differing = _rollouts(load_config("pocket"), device)
    checks = [Check("a greedy reply, tokens that differ", differing, 0.0)]
    for dtype, bounds in BOUNDS.items():
        with track(f"self-test: scoring in {dtype}"):
            exact, exact_gradient = _score_rollouts(rollouts, torch.device("cpu"), dtype, PLAIN, double=True)
            loss, gradient = _score_rollouts(rollouts, device, dtype, FAST)
        distance = (gradient - exact_gradient).norm() / exact_gradient.norm()
        checks.append(Check(f"{dtype}: loss", abs(loss - exact) / abs(exact), bounds["loss"]))
        checks.append(Check(f"{dtype}: gradient", distance.item(), bounds["gradient"]))
    return checks


def _rollouts(config: Config, device: torch.device) -> tuple[list[Rollout], float]:
    """Conversations played greedily on the CPU, and how many tokens differ on the device."""
    examples = load_examples("pocket:eval:2")
    played: list[list[Conversation]] = []
    for place in (torch.device("cpu"), device):
        chat = load_model(config, place)
        graphs = CudaGraphs if place.type == "cuda" else None
        # The second time with static shapes, also on a CPU.
        engine = HFEngine(chat.model, chat.renderer.end_ids, static=bool(played), graphs=graphs)
        driver = Driver(engine, chat.renderer, GREEDY, GREEDY.max_tokens, config.chat.history)
        played.append(driver.play(examples, "sharded", ("doctor",)))
    replies = ([turn.reply for conversation in side for turn in conversation.turns] for side in played)
    differing = sum(a != b for pair in zip(*replies, strict=True) for a, b in zip_longest(*pair))
    return [Rollout(c.example, (c,), (Verdict(True, None, "ok", ""),)) for c in played[0]], float(differing)


def _score_rollouts(
    rollouts: list[Rollout], device: torch.device, dtype: str, path: ScoringPath, double: bool = False
) -> tuple[float, torch.Tensor]:
    """Loss and gradient (float64, on the CPU) of one scoring step."""
    config = load_config("pocket", [f"model.dtype={dtype}"])
    chat = load_model(config, device)
    model = attach(chat.model, config.lora, config.seed)
    move_student(model, config.seed)
    if double:
        model.double()
    losses = score(model, chat.renderer, rollouts, plan_of(config), Moment(1, 100), path=path)
    total = torch.stack([loss.total for loss in losses]).sum()
    total.backward()
    gradients = [p.grad for p in student_parameters(model).values() if p.grad is not None]
    return total.item(), torch.cat([g.detach().double().cpu().reshape(-1) for g in gradients])
