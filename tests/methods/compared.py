"""References of the systems that SMOPD's paper compares itself with."""

import math
from statistics import median
from typing import Any

import numpy as np
import torch
from methods.references import Step, entropy, js, kl, mean, prompts, reference, sharded
from methods.scene import Shown

from smopd.objective.tokens import Moment
from smopd.seeds import rng


@reference("maigo")
def maigo(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        middle = [r for r in replies if r.middle]
        loss = torch.zeros((), dtype=torch.float64)
        for r in replies:
            if r.reply.view == "full":
                loss = loss + kl(r.log_s, r.log_t(r.task)).clamp_max(s.clip).mean()
            elif not r.middle:
                context = [*r.users, *r.task]
                loss = loss + kl(r.log_s, r.log_t(context)).clamp_max(s.clip).mean()
        if middle:
            drawn = rng(*moment.draw, "turn", *middle[0].reply.draw).randrange(len(middle))
            gaps = [(r.of(r.log_s) - r.of(r.log_t(r.users))).mean().item() for r in middle[: drawn + 1]]
            floored = [max(gap, s.eps) for gap in gaps]
            weight = median(floored) / (median(floored) + floored[-1])
            r = middle[drawn]
            loss = loss + weight * js(r.log_s, r.log_t(r.users)).clamp_max(s.clip).mean()
        losses.append(loss)
    return mean(losses)


@reference("reopold")
def reopold(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    """The entropies' threshold is the batch's; both sums are over one prompt's rollouts."""
    floor = math.log(s.lam) / (1 - s.lam)
    threshold = np.quantile(torch.cat([entropy(r.log_s).detach() for r in every(step)]), 1 - s.keep)
    losses = []
    for group in prompts(step, s.samples):
        above, below = zero(), 0
        for r in every(group):
            log_s, log_t = r.of(r.log_s), r.of(r.log_t(r.clean))
            for i, h in enumerate(entropy(r.log_s).tolist()):
                reward = (log_t[i] - log_s[i]).item()
                if reward >= floor if moment.step <= s.phase * moment.steps else h >= threshold:
                    above = above - max(reward, floor) * log_s[i]
                    below += 1
        losses.append(above / max(below, 1))
    return mean(losses)


def every(step: Step) -> list[Shown]:
    """All sharded replies of a step."""
    return [r for replies in step for r in sharded(replies)]


def zero() -> torch.Tensor:
    return torch.zeros((), dtype=torch.float64)


@reference("eopd")
def eopd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    """The clipped part by its gradient: where the minimum moves, ratio * advantage times the likelihood's."""
    total, tokens = zero(), 0
    for r in every(step):
        log_s, log_t = r.log_s, r.log_t(r.clean)
        for i, y in enumerate(r.reply.tokens):
            old = r.reply.engine_logps[i]
            advantage = log_t[i, y].item() - old
            ratio = math.exp(log_s[i, y].item() - old)
            unclipped, clipped = ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage
            if unclipped <= clipped:  # the minimum of both still moves with the ratio
                total = total - ratio * advantage * log_s[i, y]
            if -(log_t[i].exp() * log_t[i]).sum() >= s.threshold:
                top = sorted(range(log_t.shape[1]), key=lambda v: -log_t[i, v].item())[:16]
                mass = sum(math.exp(log_t[i, v].item()) for v in top)
                for v in top:
                    p = math.exp(log_t[i, v].item()) / mass
                    total = total + p * (math.log(p) - log_s[i, v])
            tokens += 1
    return total / tokens


@reference("scope")
def scope(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    total, groups = zero(), prompts(step, s.samples)
    for group in groups:
        for correct in (True, False):
            of_kind = [sharded(replies) for replies in group if replies[0].rollout.correct == correct]
            perplexities = []
            for replies in of_kind:
                log_p = [r.of(r.log_s if correct else r.log_t(r.clean)).detach() for r in replies]
                perplexities.append(math.exp(-torch.cat(log_p).mean().item()))
            raised = [ppl if correct else 1 / ppl for ppl in perplexities]  # tau is 1
            for replies, power in zip(of_kind, raised, strict=True):
                for r in replies:
                    log_s = r.of(r.log_s)
                    cost = 1.0 if correct else r.of(r.log_t(r.clean)) - log_s.detach()
                    total = total - power / sum(raised) * (cost * log_s).sum()
    return total / len(groups)


@reference("aopd")
def aopd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    losses = []
    for replies in step:
        of_rollout = []
        for r in sharded(replies):
            log_s, log_t, total = r.log_s, r.log_t(r.clean), zero()
            for i, y in enumerate(r.reply.tokens):
                if log_t[i, y].exp() - log_s[i, y].exp() <= 0:
                    top = log_t[i].argsort(descending=True)[:32]
                    total = total + (log_t[i, top].exp() * (log_t[i, top] - log_s[i, top])).sum() / 32
                else:
                    total = total - (log_t[i, y] - log_s[i, y]).item() * log_s[i, y]
            of_rollout.append(total / len(r.reply.tokens))
        losses.append(mean(of_rollout))
    return mean(losses)


@reference("unisd")
def unisd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    variances = []
    for r in every(step):
        first, *others = r.users
        rng(*moment.draw, "shuffled", *r.reply.draw).shuffle(others)
        witnesses = [r.users, [*r.users, *r.task], [first, *others]]
        variances.append(np.var([r.of(r.log_t(w)).numpy() for w in witnesses], axis=0, ddof=1))
    usual = max(np.quantile(np.concatenate(variances), 0.95), 1e-6)
    variance = iter(variances)
    losses = []
    for replies in step:
        of_rollout = []
        for r in sharded(replies):
            weight = 1 / (1 + 0.001 * np.minimum(next(variance) / usual, 10))
            w = torch.tensor(np.maximum(weight, 0.01))
            log_s, log_t = r.log_s, r.log_t(r.clean)
            loss = (w * kl(log_t, log_s)).sum() / w.sum()
            examples = {rollout.example.id: rollout.example for rollout in r.scene.rollouts}
            del examples[r.reply.example.id]
            drawn = rng(*moment.draw, "peers", *r.reply.draw).sample(list(examples.values()), 1)[0]
            turns = drawn.shards[: r.reply.turn + 1]  # all it has, where it has fewer
            bad = r.of(r.log_t([{"role": "user", "content": text} for text in turns]))
            near, far = (r.of(log_s) - r.of(log_t)).abs(), (r.of(log_s) - bad).abs()
            loss = loss + 0.01 * torch.relu(0.1 + near - far).mean()
            student = r.scene.hidden("student with gradient", r.reply.context, r.reply.tokens)
            loss = loss + 0.01 * ((student - r.hidden_t(r.clean)) ** 2).mean(-1).mean()
            of_rollout.append(loss)
        losses.append(mean(of_rollout))
    return mean(losses)


@reference("credit")
def credit(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    total, tokens = zero(), 0
    for r in every(step):
        examples = {rollout.example.id: rollout.example for rollout in r.scene.rollouts}
        del examples[r.reply.example.id]
        other = rng(*moment.draw, "peers", *r.reply.draw).sample(list(examples.values()), 1)[0]
        texts = other.shards[: r.reply.turn + 1] if r.middle else [other.full]
        contrast = r.log_t([{"role": "user", "content": text} for text in texts])
        target = (r.log_t(r.clean) - 0.1 * contrast).log_softmax(-1)
        total = total + kl(r.log_s, target).sum()
        tokens += len(r.reply.tokens)
    return total / tokens


def steered(step: Step, moment: Moment, z_of: Any, chosen: Any) -> torch.Tensor:
    """The loss of OGLS-SD on chosen replies to logits that a function makes of a reply and lam."""
    lam = 3 * min(1, moment.step / moment.steps * 3)
    losses = []
    for replies in step:
        sums = []
        for r in sharded(replies):
            z = z_of(r, lam) if chosen(r) else None
            if z is not None:
                log_s, log_t = r.log_s, z.log_softmax(-1)
                sums.append((log_s.exp() * (log_s - log_t)).clamp(-0.05, 0.05).sum())
        losses.append(mean(sums))
    return mean(losses)


@reference("ogls-sd")
def ogls_sd(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    def after(r: Shown, text: str) -> torch.Tensor:
        *before, last = r.clean
        hint = f"{last['content']}\n\nHere is a reference solution to this task:\n{text}"
        return r.logits_t([*before, {"role": "user", "content": hint}], "base")

    def z_of(r: Shown, lam: float) -> torch.Tensor | None:
        first = r.reply.sample // 8 * 8  # the prompt's rollouts, where the example is drawn twice too
        of_example = [o for o in r.scene.rollouts if o.example.id == r.reply.example.id]
        group = [o for o in of_example if first <= o.sample < first + 8]
        right = [o.conversations[0].final_text for o in group if o.correct]
        if r.reply.example.task == "math":
            right.append(f"The answer is {r.reply.example.answer['value']}.")
        wrong = [o.conversations[0].final_text for o in group if not o.correct]
        if not right or not wrong:
            return None
        towards, away = (sum(after(r, text) for text in pool) / len(pool) for pool in (right, wrong))
        return r.logits_t(r.reply.context, "base") + lam * (towards - away)

    return steered(step, moment, z_of, lambda r: not r.rollout.correct)


@reference("ogls-sd-free")
def ogls_sd_free(step: Step, s: Any, moment: Moment) -> torch.Tensor:
    def z_of(r: Shown, lam: float) -> torch.Tensor:
        dirty, clean = r.logits_t(r.reply.context, "base"), r.logits_t(r.clean, "base")
        return dirty + lam * (clean - dirty)

    return steered(step, moment, z_of, lambda r: True)
