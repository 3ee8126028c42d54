"""How long conversations are, in turns and tokens: measured where data and tokenizer are on this machine,
else `DEFAULTS` (tools/average_lengths.py prints them). Reply lengths are assumed, or options of `smopd plan`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from smopd.config import Config
from smopd.models.loading import config_file, model_source

if TYPE_CHECKING:
    from smopd.chat import Renderer
    from smopd.data import Example

MIDDLE_SHARE, ANSWER_SHARE = 0.75, 0.35  # of the limits: middle replies are often cut, answers seldom
SAMPLE = 256  # examples read: averages need no more


@dataclass(frozen=True)
class Template:
    """Tokens that a chat template adds. `repeats`: it renders a reply in the history in other tokens."""

    start: int  # in front of the first user turn, a system message's own tokens left out
    user: int  # around a user turn
    prompt: int  # asks for a reply
    lost: int  # of the prompt's tokens, those that are gone once the reply is history
    close: int  # behind a reply in the history, its end token included
    repeats: bool


@dataclass(frozen=True)
class Averages:
    """Tokens, on average; `turns`: how many examples have how many."""

    turns: Mapping[int, int]
    shard: float
    full: float
    system: float
    template: Template
    middle: float = 0.0  # of a middle reply
    answer: float = 0.0  # of an answer or FULL reply
    source: str = ""


# The pocket recipe's, written down so that a plan of it needs no tokenizer, whose import takes seconds.
POCKET = Averages(
    turns={4: 71, 5: 60, 6: 64, 7: 72}, shard=11112 / 1472, full=9706 / 267, system=3108 / 267,
    template=Template(start=2, user=2, prompt=1, lost=0, close=1, repeats=False),
    source="pocket:train with the model's tokenizer",
)  # fmt: skip
DEFAULTS = Averages(
    turns={4: 16, 5: 20, 6: 16, 7: 11, 8: 5, 9: 1}, shard=12.3, full=67.0, system=41.0,
    template=Template(start=5, user=5, prompt=7, lost=4, close=2, repeats=True),
    source="LiC math with Qwen3's tokenizer (smopd's defaults)",
)  # fmt: skip


def find_averages(config: Config, middle: float | None = None, answer: float | None = None) -> Averages:
    """Averages of the recipe's data, or the defaults; `middle` and `answer`: mean reply lengths."""
    limits = config.rollout
    middle = min(middle or MIDDLE_SHARE * limits.middle_tokens, limits.middle_tokens)
    answer = min(answer or ANSWER_SHARE * limits.answer_tokens, limits.answer_tokens)
    return replace(_measured(config) or DEFAULTS, middle=middle, answer=answer)


def measure(examples: Sequence["Example"], renderer: "Renderer", source: str = "") -> Averages:
    """Count the tokens of a data set's examples."""

    def mean(texts: Sequence[str]) -> float:
        return sum(len(renderer.encode(text)) for text in texts) / len(texts)

    some = examples[:: max(1, len(examples) // SAMPLE)]
    turns = dict(sorted(Counter(len(e.shards) for e in some).items()))
    shard, full = mean([s for e in some for s in e.shards]), mean([e.full for e in some])
    template = template_of(renderer, any(e.system for e in some))
    return Averages(turns, shard, full, mean([e.system for e in some]), template, source=source)


def template_of(renderer: "Renderer", with_system: bool = True) -> Template:
    """What a template adds, read off three small conversations."""
    system = [{"role": "system", "content": "alpha"}] if with_system else []
    first, second = {"role": "user", "content": "bravo"}, {"role": "user", "content": "charlie"}
    reply = {"role": "assistant", "content": "delta"}

    def size(text: str) -> int:
        return len(renderer.encode(text))

    once, twice = renderer.ids([*system, first]), renderer.ids([*system, first, second])
    later = renderer.ids([*system, first, reply, second])
    prompt = len(once) - size(renderer.text([*system, first], generation_prompt=False))
    user = len(twice) - len(once) - size("charlie")
    start = len(once) - prompt - size("bravo") - user - (size("alpha") if with_system else 0)
    sampled = [*once, *renderer.encode("delta")]
    same = common_prefix(sampled, later)
    lost = max(0, len(once) - same)
    # What stands around a reply in the history and around the next user turn.
    between = len(later) - len(once) - size("delta") - size("charlie")
    close = max(1, between - user - (prompt - lost))
    return Template(max(0, start), max(0, user), prompt, lost, close, repeats=same < len(sampled))


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences share at their beginning."""
    differ = (k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
    return next(differ, min(len(a), len(b)))


def _measured(config: Config) -> Averages | None:
    """None where the data or the tokenizer is not on this machine."""
    from smopd.chat import Renderer
    from smopd.data import load_examples
    from smopd.data.reading import generated
    from smopd.verify import load_verifiers

    load_verifiers(config.data.verifiers)  # examples of tasks of one's own
    data = config.data.train
    if (config.model.path, data, config.data.train_limit) == ("pocket", "pocket:train", 0):
        return POCKET
    if not (generated(data) or Path(data).is_file()) or config_file(config) is None:
        return None
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            model_source(config), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError):
        return None
    examples = load_examples(data, config.data.train_limit or None)  # a broken file is an error
    return measure(examples, Renderer(tokenizer, config.chat.thinking), f"{data} with the model's tokenizer")
