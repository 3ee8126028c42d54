"""Which training items overlap an evaluation set: the same text, nearly the same text, or the same database.

Texts are compared as words in lower case, every number the same word. Near: of the runs of five words of the
shorter text, at least half and at least four occur in the other. A question in other words is not found.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from smopd.data.reading import load_examples
from smopd.data.sharding import words
from smopd.data.training_set.readers import bfcl_request, read_rows
from smopd.files import file_digest
from smopd.verify.task import Record

RUN, NEAR, LEAST = 5, 0.5, 4  # words of a run; share and number of runs in common
_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d[\d,.]*")


def _docstring(row: Record) -> str:
    """What a HumanEval prompt says in words: its last docstring up to the examples."""
    prompt = row["prompt"]
    docstrings = re.findall(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', prompt, re.DOTALL)
    text = "".join(docstrings[-1]) if docstrings else prompt
    return re.split(r">>>|\n\s*(?:for example|examples?)\b", text, maxsplit=1, flags=re.IGNORECASE)[0]


# (file in the raw folder, the evaluation set it is, its domain, the text of a row)
HELD_OUT: tuple[tuple[str, str, str, Callable[[Record], str | None]], ...] = (
    ("gsm8k_test.jsonl", "GSM8K test", "math", itemgetter("question")),
    ("bfcl/BFCL_v4_parallel.json", "BFCL parallel (LiC's source)", "actions", bfcl_request),
    ("spider/dev.json", "Spider dev", "database", itemgetter("question")),
    ("HumanEval.jsonl.gz", "HumanEval", "code", _docstring),
)


def _blind_runs(text: str) -> tuple[str, set[tuple[str, ...]]]:
    """The words of a text in lower case, each number as "0": joined, and its runs of RUN words."""
    blind = ["0" if token[0].isdigit() else words(token)[0] for token in _TOKEN.findall(text)]
    return " ".join(blind), {tuple(blind[i : i + RUN]) for i in range(len(blind) - RUN + 1)}


class HeldOut:
    """The evaluation texts of the raw folder and of `evals`, indexed by domain; `files`: what was read."""

    def __init__(self, raw: Path = Path(), domains: Iterable[str] = (), evals: Iterable[str] = ()) -> None:
        self.databases, self.files = set[str](), list[dict[str, Any]]()
        self._exact, self._lengths = set[tuple[str, str]](), list[int]()  # of a text: its number of runs
        self._index: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
        for file, name, task, text_of in HELD_OUT:
            if task in domains and (path := raw / file).is_file():
                rows = list(read_rows(path))
                texts = [text for row in rows if (text := text_of(row)) is not None]
                for text in texts:
                    self.add(task, text)
                if task == "database":
                    self.databases |= {row["db_id"] for row in rows}
                entry = {"file": file, "what": name, "items": len(texts)}
                self.files.append(entry | {"sha256": file_digest(path)})
        for source in evals:
            path, examples = Path(source), load_examples(source)
            for example in examples:
                self.add(example.task, example.full)
            self.databases |= {str(e.answer["db_id"]) for e in examples if e.answer.get("db_id")}
            entry = {"file": path.name, "what": "given with --eval", "items": len(examples)}
            self.files.append(entry | ({"sha256": file_digest(path)} if path.is_file() else {}))

    def add(self, task: str, text: str) -> None:
        blind, runs = _blind_runs(text)
        self._exact.add((task, blind))
        for run in runs:
            self._index[task, run].append(len(self._lengths))
        self._lengths.append(len(runs))

    def overlap(self, task: str, text: str, answer: Mapping[str, Any]) -> str | None:
        """How an item overlaps the evaluation, None if it does not."""
        if answer.get("db_id") in self.databases:
            return "a database of the evaluation set"
        blind, runs = _blind_runs(text)
        if (task, blind) in self._exact:
            return "the same text"
        common = Counter(number for run in runs for number in self._index.get((task, run), ()))
        for number, count in common.items():
            if count >= max(LEAST, NEAR * min(len(runs), self._lengths[number])):
                return "nearly the same text"
        return None
