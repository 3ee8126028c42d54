"""A few tasks about apples as Python objects, with a verifier function, and settings of a small run."""

from typing import Any

SMALL: dict[str, Any] = {
    "train.rollouts": 2,
    "train.micro_batch": 2,
    "train.checkpoint_every": 1,
    "rollout.middle_tokens": 6,
    "rollout.answer_tokens": 6,
    "eval.tokens": 6,
    "eval.middle_tokens": 6,
    "lora.r": 4,
}
EXAMPLES = [
    {
        "shards": ["How many apples are left?", "There were 7.", f"{n} were eaten."],
        "full": f"There were 7 apples. {n} were eaten. How many are left?",
        "answer": 7 - n,
    }
    for n in range(1, 5)
]


def last_number(answer, reply):
    """Right if the reply's last word is the number."""
    parts = reply.strip(".").split()
    return parts[-1] == str(answer) if parts else None
