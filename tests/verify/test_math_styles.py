"""Replies in many styles, right ones and near misses: what a careful reader takes for the answer of each."""

import json
from collections import Counter
from pathlib import Path

from smopd.data import Example
from smopd.verify.verifiers import verify

STYLES = json.loads((Path(__file__).parent / "styles" / "math.json").read_text(encoding="utf-8"))
EXAMPLES = {
    name: Example(name, shards=("goal",), system="", **item) for name, item in STYLES["items"].items()
}


def test_right_replies_are_accepted_and_wrong_ones_are_not() -> None:
    seen, refused, accepted = Counter[bool](), [], []
    for reply in STYLES["replies"]:
        correct = verify(EXAMPLES[reply["item"]], reply["reply"]).correct
        seen[reply["right"]] += 1
        if correct != reply["right"]:
            (accepted if correct else refused).append((reply["style"], reply["reply"]))
    assert not accepted
    assert len(refused) <= 0.03 * seen[True], refused
    assert min(seen.values()) > 80


def test_there_are_many_styles_and_most_have_a_near_miss() -> None:
    right, wrong = (
        {reply["style"] for reply in STYLES["replies"] if reply["right"] is r} for r in (True, False)
    )
    assert len(right) >= 60
    assert len(right & wrong) >= 40
    assert len(EXAMPLES) >= 10
