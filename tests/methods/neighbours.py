"""References of other systems of the field."""

from typing import Any

import numpy as np
import torch
from methods.references import Step, entropy, js, kl, mean, reference, sharded
from methods.scene import Shown

from smopd.objective.tokens import Moment
from smopd.verify import tasks


def all_sharded(step: Step) -> list[Shown]:
    """Every reply of the step's sharded conversations."""
    return [r for replies in step for r in sharded(replies)]


@reference("ccopd", "objective.beta=0.3")
def ccopd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    answers = [r for r in all_sharded(step) if not r.middle]
    cost = kl if s.beta == 1 else lambda log_s, log_t: js(log_s, log_t, s.beta)
    return torch.cat([cost(r.log_s, r.log_t(r.task, "base")) for r in answers]).mean()


@reference("exopd", "objective.lam=1", "objective.lam=0.4")
def exopd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    costs = []
    for r in all_sharded(step):
        target = s.lam * r.log_t(r.clean) + (1 - s.lam) * r.log_t(r.reply.context)
        costs.append(kl(r.log_s, target - target.logsumexp(-1, True)))
    return torch.cat(costs).mean()


@reference("drkl", "objective.gamma=2")
def drkl(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    costs = []
    for r in all_sharded(step):
        p, q = r.log_s.exp(), r.log_t(r.clean).exp()
        a, b = p.gather(-1, r.y)[:, 0], q.gather(-1, r.y)[:, 0]
        pair = a * (a / b).log() + (1 - a) * ((1 - a) / (1 - b)).log()
        others = torch.ones_like(p).scatter(-1, r.y, 0.0).bool()
        rest_p, rest_q = (x[others].view(len(x), -1) for x in (p, q))
        rest_p, rest_q = rest_p / (1 - a)[:, None], rest_q / (1 - b)[:, None]
        costs.append(pair + s.gamma * (rest_p * (rest_p / rest_q).log()).sum(-1))
    return torch.cat(costs).mean()


@reference("gkd", "objective.beta=0", "objective.beta=1", "objective.beta=0.3")
def gkd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    costs = []
    for r in all_sharded(step):
        log_t = r.log_t(r.clean)
        ends = {0: kl(log_t, r.log_s), 1: kl(r.log_s, log_t)}
        costs.append(ends[s.beta] if s.beta in ends else js(r.log_s, log_t, s.beta))
    return torch.cat(costs).mean()


@reference("opd", "objective.iw=0.5")
def opd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    costs = []
    for r in all_sharded(step):
        log_s = r.of(r.log_s)
        advantage = r.of(r.log_t(r.clean)) - log_s.detach()
        size = advantage.abs()
        weight = [1 + s.iw * (1 - size[:k].sum() / size.sum()) for k in range(len(size))]
        costs.append(-torch.stack(weight) * advantage * log_s)
    return torch.cat(costs).mean()


@reference("tip", "objective.keep=0.2", "objective.entropy_clip=0.3")
def tip(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    every = all_sharded(step)
    costs = torch.cat([kl(r.log_s, r.log_t(r.clean)) for r in every])
    h = torch.cat([entropy(r.log_s) for r in every]).detach().numpy()
    if s.entropy_clip:  # the paper clips none
        h = np.minimum(h, np.quantile(h, 1 - s.entropy_clip))
    h, d = (((x - x.min()) / (x.max() - x.min())) for x in (h, costs.detach().numpy()))
    score = 1 - (1 - h) * (1 - d)
    return costs[torch.tensor(score >= np.quantile(score, 1 - s.keep))].mean()


@reference("sage-opd", "objective.intervene=failed")
def sage_opd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        above, below = torch.zeros((), dtype=torch.float64), 0.0
        for r in sharded(replies):
            if s.intervene == "failed" and not r.middle and r.rollout.verdict.correct:
                continue
            log_t = r.log_t(r.clean)
            sure = log_t.exp().max(-1).values.mean().item()
            above = above + sure * kl(r.log_s, log_t).sum()
            below += sure * len(r.reply.tokens)
        losses.append(above / below if below else above)
    return mean(losses)


@reference("tcod")
def tcod(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        k = min(1 + moment.step // 2, len(replies[0].reply.example.shards))
        assert all(r.reply.turn < k for r in replies)
        losses.append(sum(kl(r.log_t(r.clean), r.log_s).mean() for r in replies))
    return mean(losses)


@reference("pw-opsd")
def pw_opsd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        costs = []
        for r in sharded(replies):
            (known,) = tasks.find("math").reference_replies(r.reply.example.answer)[:1]
            *before, last = r.clean
            prompt = f"{last['content']}\n\nFor your information, a correct final answer is:\n{known}"
            context = [*before, {"role": "user", "content": prompt}]
            log_t = (r.logits_t(context, "base") / 1.1).log_softmax(-1)
            hidden = r.scene.hidden("student with gradient", r.reply.context, r.reply.tokens)
            log_s = (hidden @ r.scene.head.T / 1.1).log_softmax(-1)
            n = len(r.reply.tokens)
            place = (torch.arange(1, n + 1, dtype=torch.float64) - 0.5) / n
            weight = 0.25 + 0.75 / (1 + torch.exp(-(place - 0.3) / 0.1))
            entries = (log_t.exp() * (log_t - log_s)).clamp_max(0.05)
            costs.append((weight * entries.sum(-1)).sum() / n)
        losses.append(mean(costs))
    return mean(losses)
