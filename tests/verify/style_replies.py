"""Replies written in the many ways in which models write, kept as data: `styles/<task>.json`.

`{"items": {name: {"task", "full", "answer"}}, "replies": [{"item", "style", "right", "reply"}]}`. A style is
a short name; `right` is what a careful reader would say.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from smopd.verify.verifiers import verify_all


def measure(task: str) -> tuple[int, int, list[str], set[str]]:
    """How many right replies are accepted, of how many, which wrong ones are accepted, and all styles.

    Prints what is judged otherwise than it should be, for whoever reads a failed test.
    """
    path = Path(__file__).parent / "styles" / f"{task}.json"
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    right = [reply for reply in data["replies"] if reply["right"]]
    misjudged = {True: list[str](), False: list[str]()}
    examples = {name: SimpleNamespace(id=name, **item) for name, item in data["items"].items()}
    verdicts = verify_all([(examples[reply["item"]], reply["reply"]) for reply in data["replies"]])
    for reply, verdict in zip(data["replies"], verdicts, strict=True):
        if verdict.correct != reply["right"]:
            misjudged[reply["right"]].append(f"{reply['item']}, {reply['style']}")
            print("refused" if reply["right"] else "accepted", misjudged[reply["right"]][-1], verdict)
    styles = {reply["style"] for reply in data["replies"]}
    return len(right) - len(misjudged[True]), len(right), misjudged[False], styles
