"""BFCL's single-turn requests as items, with a reply made from the published answer.

`parallel` is left out whole: half of it is LiC's. So are items of several turns or with a system turn.
"""

from collections import Counter
from pathlib import Path
from typing import Any

from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_lines
from smopd.errors import UserError
from smopd.verify.tasks.actions import FUNCTIONS, SYSTEM, render

CATEGORIES = ["simple_python", "multiple", "parallel_multiple"]
CATEGORIES += ["live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"]
EVALUATION = "bfcl/BFCL_v4_parallel.json"


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every single-turn request of the categories whose files are there; ids such as bfcl/simple_python_3."""
    items: list[Item] = []
    if not (there := files(raw)):
        need(raw, "actions", f"bfcl/BFCL_v4_{CATEGORIES[0]}.json")
    for path, answer_path in there:
        answers_path = need(raw, "actions", answer_path)
        published = read_lines(answers_path, ("id", "ground_truth"))
        answers = {row["id"]: row["ground_truth"] for _, row in published}
        for where, row in read_lines(raw / path, ("id", "question", "function")):
            if row["id"] not in answers:
                raise UserError(f"{where}, field 'id': {row['id']!r} has no answer in {answers_path}")
            text = _request(row["question"], where)
            if text is None:
                rejected["more than one user turn, or a system turn"] += 1
                continue
            calls, functions = answers[row["id"]], row["function"]
            if not {name for call in calls for name in call} <= {f["name"] for f in functions}:
                rejected["the answer calls a function that is not offered"] += 1
                continue
            answer = {"calls": calls, "functions": functions}
            system, reply = FUNCTIONS.fill(SYSTEM, answer), render(calls)
            items.append(Item(f"bfcl/{row['id']}", "actions", system, text, text, answer, path, reply))
    return items


def files(raw: Path) -> list[tuple[str, str]]:
    """The files of requests that are there, each with its file of answers."""
    pairs = [(f"bfcl/BFCL_v4_{c}.json", f"bfcl/possible_answer/BFCL_v4_{c}.json") for c in CATEGORIES]
    return [(requests, answers) for requests, answers in pairs if (raw / requests).is_file()]


def requests(path: Path) -> list[str]:
    """The requests of one file, for the overlap with it."""
    found = [_request(row["question"], where) for where, row in read_lines(path, ("question",))]
    return [text for text in found if text]


def _request(question: Any, where: str) -> str | None:
    """The one user message of an item in one line; None where there are others."""
    try:
        messages = [message for turn in question for message in turn]
        if [m["role"] for m in messages] != ["user"]:
            return None
        return normalise(messages[0]["content"])
    except (TypeError, KeyError, AttributeError):
        raise UserError(f"{where}, field 'question': expected [[{{'role': ..., 'content': ...}}]]") from None
