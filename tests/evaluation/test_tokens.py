"""The token log of an evaluation: a row a reply token, as the model itself would score it."""

import json

import pytest
import torch
from support.runs import complaint, replies

from smopd.config import load_config
from smopd.data import load_examples
from smopd.evaluation.session import check_evaluation, evaluate_into
from smopd.evaluation.tokens import read

SETTINGS = ["eval.batch=4", 'eval.views=["sharded"]']


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The same three conversations with and without a log."""
    folder = tmp_path_factory.mktemp("logged")
    config, silent = (
        load_config("pocket", [*SETTINGS, f"eval.save_tokens={on}"]) for on in ("true", "false")
    )
    examples = load_examples("pocket:eval:3")
    for name, each in (("logged", config), ("silent", silent)):
        evaluate_into(folder / name, each, examples, "base")
    return folder


def test_it_holds_every_reply_token_and_changes_nothing(played):
    rows = [
        json.loads(line)
        for line in (played / "logged" / "conversations.jsonl").read_text().split("\n")
        if line
    ]
    (file,) = (played / "logged" / "tokens").iterdir()
    log = read(file)
    assert len(log.values["token"]) == sum(turn["tokens"] for row in rows for turn in row["turns"])
    for row in rows:
        number = log.ids.index(row["id"])
        for turn, record in enumerate(row["turns"]):
            mask = (log.values["conversation"] == number) & (log.values["turn"] == turn)
            text = "".join(log.pieces[i] for i in log.values["token"][mask].tolist())
            assert text.startswith(record["reply"])
    # Greedy replies: no other token may be likelier than the one that was said.
    ends = log.others.counts.long().cumsum(0)
    owner = torch.searchsorted(ends, torch.arange(len(log.others.logps)), right=True)
    assert (log.others.logps.float() <= log.values["logp"][owner] + 1e-2).all()
    assert (log.values["entropy"] >= 0).all()
    assert replies(played / "logged") == replies(played / "silent")
    assert not (played / "silent" / "tokens").exists()
    same = [(played / name / "evaluation.json").read_text() for name in ("logged", "silent")]
    assert same[0] == same[1]


def test_only_the_first_examples_are_logged_where_a_number_is_asked_for(tmp_path, played):
    examples = load_examples("pocket:eval:3")
    config = load_config(
        "pocket",
        ["eval.batch=2", 'eval.views=["sharded"]', "eval.save_tokens=true", "eval.save_tokens_limit=1"],
    )
    evaluate_into(tmp_path / "some", config, examples, "base")
    (file,) = (tmp_path / "some" / "tokens").iterdir()  # of the other group nothing was asked for
    (whole,) = (played / "logged" / "tokens").iterdir()
    some, everything = read(file), read(whole)
    assert some.ids == [examples[0].id]
    mask = everything.values["conversation"] == everything.ids.index(examples[0].id)
    assert some.values["token"].tolist() == everything.values["token"][mask].tolist()


def test_an_engine_elsewhere_cannot_score():
    config = load_config(None, ["eval.save_tokens=true", "engine.kind=vllm-http"])
    assert "engine.kind=hf" in complaint(config, call=check_evaluation)
