"""Prints what `DEFAULTS` of smopd/planning/load.py holds: tokens of a data set and of a chat template.

    python tools/average_lengths.py DATA TOKENIZER

DATA is a data file (LiC math for the defaults), TOKENIZER the folder of a tokenizer with a chat template.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from transformers import AutoTokenizer

from smopd.chat import Renderer
from smopd.data import Example, load_examples
from smopd.planning.load import Averages, common_prefix


def measure(examples: Sequence[Example], renderer: Renderer) -> Averages:
    """Count the tokens of a data set's examples, and those of the template in three small conversations."""

    def size(text: str) -> int:
        return len(renderer.encode(text))

    def mean(texts: Iterable[str]) -> float:
        sizes = [size(text) for text in texts]
        return sum(sizes) / len(sizes)

    system = [{"role": "system", "content": "alpha"}] if any(e.system for e in examples) else []
    asked: list[Any] = [*system, {"role": "user", "content": "bravo"}]
    reply, second = {"role": "assistant", "content": "delta"}, {"role": "user", "content": "charlie"}
    once, twice = renderer.ids(asked), renderer.ids([*asked, second])
    later = renderer.ids([*asked, reply, second])
    sampled = [*once, *renderer.encode("delta")]
    same = common_prefix(sampled, later)
    prompt = len(once) - size(renderer.text(asked, generation_prompt=False))
    user = len(twice) - len(once) - size("charlie")
    start = len(once) - prompt - size("bravo") - user - (size("alpha") if system else 0)
    lost = max(0, len(once) - same)
    # What stands around a reply in the history and around the next user turn.
    between = len(later) - len(once) - size("delta") - size("charlie")
    close = max(1, between - user - (prompt - lost))
    turns = dict(sorted(Counter(len(e.shards) for e in examples).items()))
    texts = mean(shard for e in examples for shard in e.shards), mean(e.full for e in examples)
    sizes = max(0, start), max(0, user), prompt, lost, close
    return Averages(turns, *texts, mean(e.system for e in examples), *sizes, same < len(sampled))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python tools/average_lengths.py DATA TOKENIZER")
    print(measure(load_examples(sys.argv[1]), Renderer(AutoTokenizer.from_pretrained(sys.argv[2]))))
