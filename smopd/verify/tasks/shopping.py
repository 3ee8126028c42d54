"""A shopping list: the reply must hold every thing with its count, and nothing else."""

from smopd.verify.states import compared, counted, state_task

TASK = state_task(
    "shopping", "items",
    judge=lambda answer, reply: compared(counted(reply), answer["items"]),
    render=lambda answer: ", ".join(f"{n} {thing}" for thing, n in answer["items"].items()) or "nothing yet",
)  # fmt: skip
