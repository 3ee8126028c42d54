"""BFCL's single-turn requests as items, with a reply made from the published answer.

`parallel` is left out whole: half of it is LiC's. So are items of several turns or with a system turn.
"""

from collections import Counter
from pathlib import Path

from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_rows
from smopd.verify.task import Record
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
        answers = {row["id"]: row["ground_truth"] for row in read_rows(answers_path)}
        for row in read_rows(raw / path):
            if row["id"] not in answers:
                raise row.error("id", f"{row['id']!r} has no answer in {answers_path}")
            if (text := _request(row)) is None:
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
    return [text for row in read_rows(path) if (text := _request(row))]


def _request(row: Record) -> str | None:
    """The one user message of an item in one line; None where there are others."""
    try:
        messages = [message for turn in row["question"] for message in turn]
        if [m["role"] for m in messages] != ["user"]:
            return None
        return normalise(messages[0]["content"])
    except (TypeError, KeyError, AttributeError):
        raise row.error("question", "expected [[{'role': ..., 'content': ...}]]") from None
