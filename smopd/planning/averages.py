"""How long conversations are, in turns and tokens: of the recipe's data by their words, where it is on this
machine, else of LiC math. Templates are as tools/average_lengths.py prints them: a plan needs no tokenizer,
whose import takes seconds. Reply lengths are assumed, or options of `smopd plan`.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from smopd.config import Config
from smopd.data import load_examples
from smopd.data.reading import generated
from smopd.verify import load_verifiers

MIDDLE_SHARE, ANSWER_SHARE = 0.75, 0.35  # of the limits: middle replies are often cut, answers seldom
WORD = 1.33  # tokens


@dataclass(frozen=True)
class Averages:
    """Mean tokens of a data set's texts and of replies, and the tokens that the chat template adds."""

    turns: Mapping[int, int]  # how many examples have how many
    shard: float
    full: float
    system: float
    start: int  # in front of the first user turn, a system message's own tokens left out
    user: int  # around a user turn
    prompt: int  # asks for a reply
    lost: int  # of the prompt's tokens, those that are gone once the reply is history
    close: int  # behind a reply in the history, its end token included
    repeats: bool  # the history renders a reply in other tokens
    source: str = ""
    middle: float = 0.0  # a middle reply
    answer: float = 0.0  # an answer or FULL reply


DEFAULTS = Averages(
    turns={4: 16, 5: 20, 6: 16, 7: 11, 8: 5, 9: 1}, shard=12.3, full=67.0, system=41.0,
    start=5, user=5, prompt=7, lost=4, close=2, repeats=True,
    source="LiC math with Qwen3's tokenizer (smopd's defaults)",
)  # fmt: skip
POCKET = replace(DEFAULTS, start=2, user=2, prompt=1, lost=0, close=1, repeats=False)


def find_averages(config: Config, middle: float | None = None, answer: float | None = None) -> Averages:
    """Averages of the recipe's data, or the defaults; `middle` and `answer`: mean reply lengths."""
    limits, data = config.rollout, config.data.train
    middle = min(middle or MIDDLE_SHARE * limits.middle_tokens, limits.middle_tokens)
    answer = min(answer or ANSWER_SHARE * limits.answer_tokens, limits.answer_tokens)
    averages = replace(POCKET if config.model.path == "pocket" else DEFAULTS, middle=middle, answer=answer)
    load_verifiers(config.data.verifiers)  # examples of tasks of one's own
    if not generated(data) and not Path(data).is_file():
        return averages
    examples = load_examples(data, config.data.train_limit or None)  # a broken file is an error
    return replace(
        averages,
        turns=Counter(len(e.shards) for e in examples),
        shard=WORD * fmean(len(shard.split()) for e in examples for shard in e.shards),
        full=WORD * fmean(len(e.full.split()) for e in examples),
        system=WORD * fmean(len(e.system.split()) for e in examples),
        source=f"words of {data}",
    )
