"""The examples a config names, ready to be played and judged: its verifiers loaded, its databases known, its
prompts applied.
"""

from typing import Literal

from smopd.config import Config
from smopd.data import Example, load_examples, scorable
from smopd.data.lic import with_system
from smopd.errors import UserError
from smopd.verify import sandbox
from smopd.verify.own import load_verifiers
from smopd.verify.verifiers import use_databases


def prepared_examples(config: Config, split: Literal["train", "eval"]) -> list[Example]:
    """The training or evaluation examples; an error where a reply to one of them could not be judged here."""
    load_verifiers(config.data.verifiers)
    use_databases(config.data.databases or None)
    name = config.data.train if split == "train" else config.data.eval
    limit = config.data.train_limit if split == "train" else config.eval.limit
    examples = scorable(load_examples(name, limit or None), name)
    if any(example.task == "code" for example in examples):
        sandbox.require()
    for task, place in (("actions", "{functions}"), ("database", "{schema}")):
        if (text := getattr(config.prompts, task)) and place not in text:
            raise UserError(f"prompts.{task}: must contain {place}, or the model would never see them")
    prompts = {task: prompt for task, prompt in config.prompts.model_dump().items() if prompt}
    return [with_system(e, prompts[e.task]) if e.task in prompts else e for e in examples]
