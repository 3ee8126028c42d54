"""SMOPD in one file: multi-turn on-policy self-distillation in plain PyTorch and transformers.

The package does the same with packed prefix trees, a fused loss, LoRA adapters and several engines. Here
every step of the paper (arXiv 2608.14647) is a few lines, to be read from top to bottom:

    python examples/smopd_step.py       # trains the tiny model that ships with smopd; seconds on a CPU

A task is told over several user turns, its shards. The student answers each with its own earlier replies in
the context: the *dirty* context. The teacher, a moving average of the student, scores the same tokens in a
*clean* context without those replies. A loss per token pulls the student towards the teacher.
"""

import copy
import random
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

BETA = 0.5  # the teacher's share in the mixture of the generalised Jensen-Shannon divergence (GJS)
CLIP = 0.5  # cap of one token's divergence, in nats; a capped token has no gradient
KEEP = 0.8  # share of a middle reply's tokens that the entropy mask keeps
MASK_AFTER = 0.33  # share of the training steps before the mask begins
RHO = 0.2  # probability of the FULL branch
DECAY = 0.99  # of the teacher's moving average
EPS = 1e-6  # floor of a turn's discrepancy

Message = dict[str, str]
Task = dict  # system: str, shards: list[str] (the user turns), full: str (the whole task in one message)
Turn = tuple[list[Message], list[int]]  # the messages that a reply answered, the token ids of the reply
TASKS = [
    {
        "system": "Solve the task and give a number.",
        "shards": ["Tell me how many coins Ben ends with.", "Wait, at first Ben has 5 coins.",
                   "And at night 8 get lost.", "And at noon 3 times as many are there.",
                   "Wait, in the morning 1 more come."],
        "full": "At first Ben has 5 coins. In the morning 1 more come. At noon 3 times as many are there. "
                "At night 8 get lost. Tell me how many coins Ben ends with.",
    },
]  # fmt: skip


# 1. Play: the student answers turn by turn, with its own replies in the history.


def message(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def encode(tokenizer, messages: list[Message]) -> list[int]:
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]


def sample_reply(model, tokenizer, messages: list[Message], max_new_tokens: int = 64) -> list[int]:
    """The sampled token ids, end of turn included. They are never decoded and encoded again."""
    prompt = torch.tensor([encode(tokenizer, messages)])
    output = model.generate(prompt, max_new_tokens=max_new_tokens, do_sample=True, top_p=0.95, top_k=20)
    return output[0, prompt.shape[1] :].tolist()


def play(student, tokenizer, task: Task) -> list[Turn]:
    history, turns = [message("system", task["system"])], []
    for shard in task["shards"]:
        history = [*history, message("user", shard)]
        reply = sample_reply(student, tokenizer, history)
        turns.append((history, reply))
        history = [*history, message("assistant", tokenizer.decode(reply, skip_special_tokens=True))]
    return turns


# 2. Score: the same reply tokens under two contexts, by teacher forcing.


def log_probs(model, tokenizer, messages: list[Message], reply: list[int]) -> Tensor:
    """Log-probabilities [N, V]: row i predicts token i of the reply."""
    context = encode(tokenizer, messages)
    logits = model(torch.tensor([context + reply])).logits[0]
    return logits[len(context) - 1 : -1].log_softmax(-1)


def gjs(s: Tensor, t: Tensor) -> Tensor:
    """Equation 1: the divergence [N] of log-probabilities [N, V] of student and teacher."""
    mixture = (BETA * t.exp() + (1 - BETA) * s.exp()).log()
    return (BETA * t.exp() * (t - mixture) + (1 - BETA) * s.exp() * (s - mixture)).sum(-1)


def reverse_kl(s: Tensor, t: Tensor) -> Tensor:
    """Equation 2: KL(student || teacher), [N]."""
    return (s.exp() * (s - t)).sum(-1)


def entropy_mask(s: Tensor) -> Tensor:
    """Equation 4: the tokens at which the student is least certain, as booleans [N]."""
    entropy = -(s.exp() * s).sum(-1)
    return entropy >= entropy.quantile(1 - KEEP)


# 3. Loss: middle turns by GJS, mask and reliability; the answer and the FULL reply by reverse KL.


def rollout_loss(student, teacher, tokenizer, task: Task, turns: list[Turn], full: list[int] | None,
                 masked: bool) -> Tensor:  # fmt: skip
    def score(dirty: list[Message], clean: list[Message], reply: list[int]) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            target = log_probs(teacher, tokenizer, clean, reply)
        return log_probs(student, tokenizer, dirty, reply), target

    system = message("system", task["system"])
    whole_task = [system, message("user", task["full"])]
    losses, discrepancies = [], []
    for number, (dirty, reply) in enumerate(turns[:-1], start=1):  # middle turns: the teacher sees no reply
        users_only = [system, *(message("user", shard) for shard in task["shards"][:number])]
        s, t = score(dirty, users_only, reply)
        divergence = gjs(s, t).clamp_max(CLIP)  # equation 3
        losses.append(divergence[entropy_mask(s)].mean() if masked else divergence.mean())  # equation 5
        gap = (s - t).detach().gather(-1, torch.tensor(reply)[:, None])
        discrepancies.append(gap.abs().mean().clamp_min(EPS))  # equation 6, over all tokens of the reply
    dirty, reply = turns[-1]  # the answer turn: the teacher sees the whole task in one message
    total = reverse_kl(*score(dirty, whole_task, reply)).clamp_max(CLIP).mean()
    if losses:  # equation 7: a turn on which the two agree, measured by the rollout's median, weighs more
        d = torch.stack(discrepancies)
        total = total + (d.quantile(0.5) / (d.quantile(0.5) + d) * torch.stack(losses)).mean()
    if full is not None:  # the FULL branch keeps what the student can do when a task is told at once
        total = total + reverse_kl(*score(whole_task, whole_task, full)).clamp_max(CLIP).mean()
    return total


# 4. Update: the student by its gradient, the teacher as the student's moving average.


def train_step(student, teacher, tokenizer, optimizer, tasks: list[Task], masked: bool) -> float:
    optimizer.zero_grad()
    total = 0.0
    for task in tasks:
        turns, full = play(student, tokenizer, task), None
        if random.random() < RHO:
            prompt = [message("system", task["system"]), message("user", task["full"])]
            full = sample_reply(student, tokenizer, prompt)
        loss = rollout_loss(student, teacher, tokenizer, task, turns, full, masked) / len(tasks)
        loss.backward()
        total += loss.item()
    optimizer.step()
    with torch.no_grad():
        for average, weight in zip(teacher.parameters(), student.parameters(), strict=True):
            average.lerp_(weight, 1 - DECAY)
    return total


if __name__ == "__main__":
    folder = Path(__file__).parents[1] / "smopd" / "pocket" / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    student = AutoModelForCausalLM.from_pretrained(folder)
    teacher, steps = copy.deepcopy(student), 20
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-4, weight_decay=0.0)
    for step in range(1, steps + 1):
        loss = train_step(student, teacher, tokenizer, optimizer, TASKS, masked=step > MASK_AFTER * steps)
        print(f"step {step:2d}  loss {loss:.4f}")
    for context, reply in play(student, tokenizer, TASKS[0]):
        print(f"user:  {context[-1]['content']}\nmodel: {tokenizer.decode(reply, skip_special_tokens=True)}")
