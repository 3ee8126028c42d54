"""Average turns and tokens of conversations: from the words of the recipe's data if they are on this machine,
else of LiC math. A plan needs no tokenizer, whose import takes seconds: tools/average_lengths.py prints the
templates' lengths. Reply lengths are assumed, or options of `smopd plan`.
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

MIDDLE_SHARE, ANSWER_SHARE = 0.75, 0.35  # of the token limits: middle replies are often cut, answers seldom
WORD = 1.33  # tokens per word


@dataclass(frozen=True)
class Averages:
    """Mean tokens of a data set's texts and of replies, and the tokens that the chat template adds."""

    turns: Mapping[int, int]  # number of turns -> number of examples
    shard: float
    full: float
    system: float
    start: int  # before the first user turn, without the system message's text
    user: int  # around a user turn
    prompt: int  # generation prompt
    lost: int  # tokens of the generation prompt that are missing in the history
    close: int  # after a reply in the history, with its end token
    repeats: bool  # in the history, a reply has other tokens than as sampled
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
    load_verifiers(config.data.verifiers)  # for examples of custom tasks
    if not generated(data) and not Path(data).is_file():
        return averages
    examples = load_examples(data, config.data.train_limit or None)  # raises a UserError for a broken file
    return replace(
        averages,
        turns=Counter(len(e.shards) for e in examples),
        shard=WORD * fmean(len(shard.split()) for e in examples for shard in e.shards),
        full=WORD * fmean(len(e.full.split()) for e in examples),
        system=WORD * fmean(len(e.system.split()) for e in examples),
        source=f"words of {data}",
    )
