"""Prints how many right and wrong replies the verifiers accept: replies in many styles, kept as data, and
those of real models.

    python tools/verdicts.py                         # tests/verify/styles/*.json
    python tools/verdicts.py ../shared/data/replies  # math.jsonl and actions.jsonl of real models, too

A file of styles holds {"items": {name: {"task", "full", "answer"}}, "replies": [{"item", "style", "right",
"reply"}]}; `right` is what a careful reader would say.
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.data import Example
from smopd.verify import tasks, verify_all

STYLES = Path(__file__).parents[1] / "tests" / "verify" / "styles"
# How the kind of a real reply begins whose last sentence holds more numbers than its answer.
CLOSING = "the answer stands"


@dataclass
class Measured:
    """Replies by what they are and what they were taken for; `misjudged` in words."""

    right: int = 0
    wrong: int = 0
    accepted: int = 0
    accepted_wrong: int = 0
    misjudged: list[str] = field(default_factory=list)
    styles: set[str] = field(default_factory=set)

    @property
    def share(self) -> float:
        """Of the right ones, how many are accepted."""
        return self.accepted / max(1, self.right)

    def add(self, right: bool, correct: bool, what: str) -> None:
        """Count one reply."""
        self.right += right
        self.wrong += not right
        self.accepted += right and correct
        self.accepted_wrong += correct and not right
        if right != correct:
            self.misjudged.append(f"{'refused' if right else 'ACCEPTED'}: {what}")


def styles(task: str) -> Measured:
    """The replies of one task's file of styles."""
    data: dict[str, Any] = json.loads((STYLES / f"{task}.json").read_text(encoding="utf-8"))
    examples = {}
    for name, item in data["items"].items():
        shards = tuple(item.get("shards") or [item["full"]])
        examples[name] = Example(name, item["task"], "", shards, item["full"], item["answer"])
    measured = Measured(styles={reply["style"] for reply in data["replies"]})
    verdicts = verify_all([(examples[reply["item"]], reply["reply"]) for reply in data["replies"]])
    for reply, verdict in zip(data["replies"], verdicts, strict=True):
        measured.add(reply["right"], verdict.correct, f"{reply['item']}, {reply['style']}: {verdict.detail}")
    return measured


def real_actions(file: Path) -> Measured:
    """Replies of models to BFCL's items; right: all calls, gathered, pass BFCL's own checker."""
    rows, pairs, measured = _rows(file), [], Measured()
    for row in rows:
        answer = {"calls": row["calls"], "functions": row["functions"]}
        pairs.append((Example(row["item"], "actions", "", ("goal",), "goal", answer), row["reply"]))
    for row, verdict in zip(rows, verify_all(pairs), strict=True):
        measured.add(row["right"], verdict.correct, f"{row['item']}: {verdict.detail}")
    return measured


def real_math(file: Path) -> tuple[int, int, list[str]]:
    """How many closing sentences are accepted, of how many; and which others the two rules judge apart."""
    rows, pairs = _rows(file), []
    for number, row in enumerate(rows):
        answer = {"value": row["answer"]}
        pairs.append((Example(str(number), "math", "", ("goal",), row["question"], answer), row["reply"]))
    correct_by_rule = {}
    for rule in ("strict", "reader"):
        tasks.use_rules({"math": rule})
        correct_by_rule[rule] = [verdict.correct for verdict in verify_all(pairs)]
    tasks.use_rules({})
    accepted, total, changed = 0, 0, list[str]()
    for number, row in enumerate(rows):
        if row["kind"].startswith(CLOSING):
            total += 1
            accepted += correct_by_rule["reader"][number]
        elif correct_by_rule["reader"][number] != correct_by_rule["strict"][number]:
            changed.append(f"line {number + 1}")
    return accepted, total, changed


def _rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def main() -> None:
    """Print the counts."""
    for file in sorted(STYLES.glob("*.json")):
        measured = styles(file.stem)
        _print(f"{file.stem}, {len(measured.styles)} styles", measured)
    if sys.argv[1:]:
        folder = Path(sys.argv[1])
        _print("actions, real replies", real_actions(folder / "actions.jsonl"))
        accepted, total, changed = real_math(folder / "math.jsonl")
        print(f"math, real replies: {accepted} of {total} closing sentences accepted; of the others", end=" ")
        print(f"{len(changed)} are judged otherwise than by the last number")


def _print(what: str, measured: Measured) -> None:
    print(f"{what}: {measured.accepted} of {measured.right} right replies accepted,", end=" ")
    print(f"{measured.accepted_wrong} of {measured.wrong} wrong ones")
    for line in measured.misjudged:
        print(f"  {line}")


if __name__ == "__main__":
    main()
