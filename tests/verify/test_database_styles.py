"""Replies in many styles, written by hand and kept as data: right ones are accepted, wrong ones never."""

import json
from pathlib import Path

from smopd.data import Example
from smopd.verify.verifiers import verify_all


def test_right_replies_are_accepted_and_wrong_ones_are_not():
    data = json.loads((Path(__file__).parent / "styles" / "database.json").read_text(encoding="utf-8"))
    examples = {
        name: Example(name, item["task"], "", tuple(item["shards"]), item["full"], item["answer"])
        for name, item in data["items"].items()
    }
    replies = data["replies"]
    verdicts = verify_all([(examples[reply["item"]], reply["reply"]) for reply in replies])
    assert not [v for v in verdicts if v.status in ("error", "timeout")]
    accepted = {right: [] for right in (True, False)}
    for reply, verdict in zip(replies, verdicts, strict=True):
        accepted[reply["right"]].append((verdict.correct, reply["item"], reply["style"], verdict))
    assert not [entry for entry in accepted[False] if entry[0]]
    refused = [entry for entry in accepted[True] if not entry[0]]
    assert len(refused) <= 0.03 * len(accepted[True]), refused
    assert len({reply["style"] for reply in replies if reply["right"]}) >= 60
