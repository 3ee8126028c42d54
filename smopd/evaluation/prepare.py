"""The examples a config names, ready to be played and judged: verifiers, databases,
rules and prompts applied."""

from dataclasses import replace
from typing import Literal

from smopd.config import Config
from smopd.data import Example, load_examples, scorable
from smopd.errors import UserError
from smopd.verify import load_verifiers, tasks, use_databases


def prepared_examples(config: Config, split: Literal["train", "eval"]) -> list[Example]:
    """The training or evaluation examples; an error where a reply to one of them could not be judged here."""
    load_verifiers(config.data.verifiers)
    use_databases(config.data.databases or None)
    tasks.use_rules(config.rules.model_dump())
    name = config.data.train if split == "train" else config.data.eval
    limit = config.data.train_limit if split == "train" else config.eval.limit
    examples = scorable(load_examples(name, limit or None), name)
    used = {example.task for example in examples}
    prompts = {name: prompt for name, prompt in config.prompts.model_dump().items() if prompt}
    for task in tasks.built_in().values():
        if task.name in used:
            task.require()
        prompt, place = prompts.get(task.name), task.placeholder
        if prompt and place and place.name not in prompt:
            unseen = "or the model would never see them"
            raise UserError(f"prompts.{task.name}: must contain {place.name}, {unseen}")
    return [
        replace(e, system=tasks.fill(prompts[e.task], e.answer)) if e.task in prompts else e for e in examples
    ]
