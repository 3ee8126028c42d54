"""The actions verifier on replies in many styles, hand-made ones and those of real models."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from conftest import shared

from smopd.data import Example
from smopd.verify.verifiers import Verdict, verify

STYLES = Path(__file__).parent / "styles" / "actions.json"


def judged(answer: dict[str, Any], reply: str) -> Verdict:
    return verify(Example("t", "actions", "", ("goal",), "goal", answer), reply)


def test_styles() -> None:
    data = json.loads(STYLES.read_text())
    assert len({reply["style"] for reply in data["replies"]}) >= 100
    assert len(data["items"]) >= 6
    lost, count = list[str](), Counter[bool]()
    for reply in data["replies"]:
        verdict = judged(data["items"][reply["item"]]["answer"], reply["reply"])
        count[reply["right"]] += 1
        assert reply["right"] or not verdict.correct, reply
        assert verdict.correct or verdict.detail
        if reply["right"] and not verdict.correct:
            lost.append(reply["style"])
    assert len(lost) <= 0.03 * count[True], lost
    assert min(count.values()) > 200


def test_replies_of_real_models() -> None:
    """`right`: all calls, gathered, pass BFCL's own checker."""
    seen = Counter[tuple[bool, bool]]()
    for line in shared("data/replies/actions.jsonl").read_text().splitlines():
        reply = json.loads(line)
        answer = {"calls": reply["calls"], "functions": reply["functions"]}
        seen[reply["right"], judged(answer, reply["reply"]).correct] += 1
    assert seen[False, True] == 0
    assert seen[True, True] >= 0.94 * (seen[True, True] + seen[True, False])
    assert seen.total() >= 400
