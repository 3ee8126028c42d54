"""BFCL's single-turn requests as items, with a reply made from the published answer.

`parallel` is left out whole: half of it is LiC's. So are items of several turns or with a system turn of
their own.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from smopd.data import lic
from smopd.data.sharding import normalise
from smopd.data.training_set.raw import Item, need, read_lines
from smopd.errors import UserError

CATEGORIES = (
    "simple_python",
    "multiple",
    "parallel_multiple",
    "live_simple",
    "live_multiple",
    "live_parallel",
    "live_parallel_multiple",
)
EVALUATION = "bfcl/BFCL_v4_parallel.json"


def read(raw: Path, rejected: Counter[str]) -> list[Item]:
    """Every single-turn request of the categories whose files are there; `bfcl/simple_python_3` is the item's
    own id.
    """
    items: list[Item] = []
    there = [c for c in CATEGORIES if (raw / f"bfcl/BFCL_v4_{c}.json").is_file()]
    if not there:
        need(raw, "actions", f"bfcl/BFCL_v4_{CATEGORIES[0]}.json")
    for category in there:
        path = f"bfcl/BFCL_v4_{category}.json"
        answers_path = need(raw, "actions", f"bfcl/possible_answer/BFCL_v4_{category}.json")
        answers = {
            row["id"]: row["ground_truth"] for _, row in read_lines(answers_path, ("id", "ground_truth"))
        }
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
            # The prompt is LiC's form: one JSON schema a line.
            system = lic.ACTIONS.format(functions="\n".join(json.dumps(f) for f in functions))
            answer = {"calls": calls, "functions": functions}
            items.append(
                Item(f"bfcl/{row['id']}", "actions", system, text, text, answer, path, render(calls))
            )
    return items


def requests(path: Path) -> list[str]:
    """The requests of one file, for the overlap with it."""
    return [
        text for where, row in read_lines(path, ("question",)) if (text := _request(row["question"], where))
    ]


def _request(question: Any, where: str) -> str | None:
    """The one user message of an item in one line; None where there are others."""
    try:
        messages = [message for turn in question for message in turn]
        if [m["role"] for m in messages] != ["user"]:
            return None
        return normalise(messages[0]["content"])
    except (TypeError, KeyError, AttributeError):
        raise UserError(f"{where}, field 'question': expected [[{{'role': ..., 'content': ...}}]]") from None


def render(calls: Any) -> str:
    """A reply that a published answer allows: for every argument the first value it lists."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return ""
    shown = []
    for call in calls:
        for name, arguments in call.items():
            given = [f"{key}={_first(values)!r}" for key, values in arguments.items() if _stated(values)]
            shown.append(f"{name}({', '.join(given)})")
    return f"[{', '.join(shown)}]"


def _stated(values: Any) -> bool:
    """Is there a value other than "", which says that the argument may be left out?"""
    return not isinstance(values, list) or any(value != "" for value in values)


def _first(values: Any) -> Any:
    value = next((v for v in values if v != ""), "") if isinstance(values, list) else values
    return _plain(value)


def _plain(value: Any) -> Any:
    """Inside an object every key again lists its allowed values."""
    if isinstance(value, dict):
        return {key: _first(inner) for key, inner in value.items() if _stated(inner)}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
