"""Which training items overlap an evaluation set: the same text, nearly the same text, or the same database.

Texts are compared as words in lower case, every number the same word. Near: of the runs of five words of the
shorter text, at least half and at least four occur in the other. A question in other words is not found.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from smopd.data.reading import load_examples
from smopd.data.sharding import words
from smopd.data.training_set.readers import bfcl_request, read_rows
from smopd.files import file_digest

RUN, NEAR, LEAST = 5, 0.5, 4  # words of a run; share and number of runs in common
_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*|\d[\d,.]*")
# (file in the raw folder, the evaluation set it is, its domain)
HELD_OUT = (
    ("gsm8k_test.jsonl", "GSM8K test", "math"),
    ("bfcl/BFCL_v4_parallel.json", "BFCL parallel (LiC's source)", "actions"),
    ("spider/dev.json", "Spider dev", "database"),
    ("HumanEval.jsonl.gz", "HumanEval", "code"),
)


def _blind_words(text: str) -> list[str]:
    """The words of a text in lower case, each number as "0"."""
    return ["0" if token[0].isdigit() else words(token)[0] for token in _TOKEN.findall(text)]


def _runs(blind: list[str]) -> set[tuple[str, ...]]:
    return {tuple(blind[i : i + RUN]) for i in range(len(blind) - RUN + 1)}


class HeldOut:
    """The evaluation texts by domain, indexed; `files` are what was read (name, sha256, items)."""

    def __init__(self) -> None:
        self.databases, self.files = set[str](), list[dict[str, Any]]()
        self._exact, self._lengths = set[tuple[str, str]](), list[int]()  # of a text: its number of runs
        self._index: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)

    def add(self, task: str, text: str) -> None:
        blind = _blind_words(text)
        self._exact.add((task, " ".join(blind)))
        runs = _runs(blind)
        for run in runs:
            self._index[task, run].append(len(self._lengths))
        self._lengths.append(len(runs))

    def overlap(self, task: str, text: str, answer: Mapping[str, Any]) -> str | None:
        """How an item overlaps the evaluation, None if it does not."""
        if answer.get("db_id") in self.databases:
            return "a database of the evaluation set"
        blind = _blind_words(text)
        if (task, " ".join(blind)) in self._exact:
            return "the same text"
        runs = _runs(blind)
        common = Counter(number for run in runs for number in self._index.get((task, run), ()))
        for number, count in common.items():
            if count >= max(LEAST, NEAR * min(len(runs), self._lengths[number])):
                return "nearly the same text"
        return None


def held_out(raw: Path | None, domains: Iterable[str], evals: Iterable[str]) -> HeldOut:
    """The evaluation files of the raw folder, and any others that `load_examples` reads."""
    out = HeldOut()
    for file, name, task in HELD_OUT:
        if raw is not None and task in domains and (path := raw / file).is_file():
            texts = _texts(path, task, out)
            for text in texts:
                out.add(task, text)
            out.files.append({"file": file, "what": name, "items": len(texts), "sha256": file_digest(path)})
    for source in evals:
        path, examples = Path(source), load_examples(source)
        for example in examples:
            out.add(example.task, example.full)
            if example.answer.get("db_id"):
                out.databases.add(str(example.answer["db_id"]))
        entry = {"file": path.name, "what": "given with --eval", "items": len(examples)}
        out.files.append(entry | ({"sha256": file_digest(path)} if path.is_file() else {}))
    return out


def _texts(path: Path, task: str, out: HeldOut) -> list[str]:
    rows = list(read_rows(path))
    if task == "actions":
        return [text for row in rows if (text := bfcl_request(row))]
    if task == "code":
        return [_docstring(row["prompt"]) for row in rows]
    if task == "database":
        out.databases |= {row["db_id"] for row in rows}
    return [row["question"] for row in rows]


def _docstring(prompt: str) -> str:
    """What a HumanEval prompt says in words: its last docstring up to the examples."""
    docstrings = re.findall(r'"""(.*?)"""|\'\'\'(.*?)\'\'\'', prompt, re.DOTALL)
    text = "".join(docstrings[-1]) if docstrings else prompt
    return re.split(r">>>|\n\s*(?:for example|examples?)\b", text, maxsplit=1, flags=re.IGNORECASE)[0]
