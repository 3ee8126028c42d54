"""References of systems whose teacher has seen an answer, and of SOD."""

from typing import Any

import numpy as np
import torch
from methods.references import Step, js, kl, mean, prompts, reference, sharded
from methods.scene import Shown

from smopd.objective.tokens import Moment


def with_answer(r: Shown, weights: str = "ema") -> torch.Tensor:
    """Logits after the clean context and the reference answer."""
    *before, last = r.clean
    known = f"The answer is {r.reply.example.answer['value']}."
    hint = f"{last['content']}\n\nFor your information, a correct final answer is:\n{known}"
    return r.logits_t([*before, {"role": "user", "content": hint}], weights)


@reference("opsd")
def opsd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        of_rollout = []
        for r in sharded(replies):
            hidden = r.scene.hidden("student with gradient", r.reply.context, r.reply.tokens)
            log_s = (hidden @ r.scene.head.T / 1.1).log_softmax(-1)
            log_t = (with_answer(r, "base") / 1.1).log_softmax(-1)
            of_rollout.append((log_t.exp() * (log_t - log_s)).clamp_max(0.05).sum(-1).mean())
        losses.append(mean(of_rollout))
    return mean(losses)


@reference("sdft")
def sdft(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        rows = [kl(r.log_s, with_answer(r).log_softmax(-1)) for r in sharded(replies)]
        losses.append(mean([row.mean() for row in rows]))
    return mean(losses)


@reference("sdpo")
def sdpo(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    groups = [[replies[0].rollout for replies in group] for group in prompts(step, s.samples)]
    for r in [r for replies in step for r in sharded(replies)]:
        (group,) = [group for group in groups if any(o is r.rollout for o in group)]
        right = [o for o in group if o.correct and o is not r.rollout]
        if not right:
            continue
        *before, last = r.clean
        hint = f"{last['content']}\n\nA correct solution is:\n{right[0].conversations[0].final_text}"
        s_all, t_all = r.log_s.exp(), r.log_t([*before, {"role": "user", "content": hint}]).exp()
        for i, y in enumerate(r.reply.tokens):
            order = s_all[i].detach().argsort(descending=True)
            top, rest = order[:100], order[100:]
            both = [torch.cat([p[i, top], p[i, rest].sum()[None]]).log() for p in (s_all, t_all)]
            ratio = s_all[i, y].item() / np.exp(r.reply.engine_logps[i])
            total = total + min(ratio, 2.0) * js(*both)
            tokens += 1
    return total / max(tokens, 1)


@reference("sod", "objective.start=1", "objective.start=3")
def sod(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    """One advantage a token, the sum of both, and one divisor."""
    total, tokens = torch.zeros((), dtype=torch.float64), 0
    of_prompt = [(replies, prompt) for prompt in prompts(step, s.samples) for replies in prompt]
    for replies, group in of_prompt:
        outcomes = [float(others[0].rollout.correct) for others in group]
        spread = np.std(outcomes)
        grpo = (float(replies[0].rollout.correct) - np.mean(outcomes)) / (spread + 1e-6) if spread else 0.0
        product, before = 1.0, None
        for r in sharded(replies):
            log_s = r.of(r.log_s)
            advantage = torch.full_like(log_s, grpo)
            tokens += len(r.reply.tokens)
            if r.reply.turn >= s.start - 1:
                reward = r.of(r.log_t(r.clean)) - log_s.detach()
                distance = reward.abs().mean().item()
                if before is not None:
                    product *= (before + 1e-6) / (distance + 1e-6)
                before = distance
                advantage = advantage + min(product, 1.2) * reward
            total = total - (advantage.detach() * log_s).sum()
    return total / tokens
