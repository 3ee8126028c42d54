"""What does not fit into the model's context: refused by name before it is played, or cut while it is."""

import json
import logging

import pytest
from support.runs import complaint

from smopd.chat import DirtyContext, Renderer, template
from smopd.chat.template import refuse_too_long
from smopd.data import Example, load_examples
from smopd.models.loading import context_length
from smopd.rollout import Driver, Sampled, Sampling, Stop

SHARDS = ("How many are left?", *(f"I had {n} apples and lost {n - 1} of them." for n in range(20, 26)))
LONG = Example("long", "math", "Give a number.", SHARDS, " ".join(SHARDS), {"value": "3"})


def renderer(pocket, limit):
    return Renderer(pocket.renderer.tokenizer, end_ids=pocket.renderer.end_ids, context_length=limit)


def tokens_before(pocket, turns):
    """Of the longest context of so many turns without a word in reply."""
    context = DirtyContext(pocket.renderer, LONG)
    for shard in SHARDS[:turns]:
        ids = context.ask(shard)
        context.answer(())
    return len(ids)


def test_the_turn_that_cannot_be_answered_is_named(pocket):
    short = load_examples("pocket:train:2")
    needed = tokens_before(pocket, len(SHARDS))
    refuse_too_long(renderer(pocket, needed + 1), [*short, LONG], ["sharded", "full"])
    fifth = tokens_before(pocket, 5)
    message = complaint(renderer(pocket, fifth), [*short, LONG], ["sharded"], call=refuse_too_long)
    start = f"example 'long', turn 5 of SHARDED: {fifth} tokens before the reply, and the model's context has"
    assert message.startswith(f"{start} {fifth};")
    full = len(pocket.renderer.ids([{"role": "system", "content": LONG.system},
                                    {"role": "user", "content": LONG.full}]))  # fmt: skip
    for view in ("full", "teacher"):
        assert f"of {view.upper()}: {full} tokens" in complaint(
            renderer(pocket, full), [LONG], [view], call=refuse_too_long
        )
    refuse_too_long(renderer(pocket, 0), [LONG], ["sharded"])  # a model that does not say


def test_most_examples_need_not_be_rendered(pocket, monkeypatch):
    monkeypatch.setattr(Renderer, "ids", lambda *_: pytest.fail("rendered"))
    refuse_too_long(renderer(pocket, 2048), load_examples("pocket:train:50"), ["sharded", "full", "recap"])


class Fill:
    """Replies as long as they may be."""

    def generate(self, prompts, seeds, sampling, sessions=None):
        return [Sampled((7,) * sampling.max_tokens, Stop.LENGTH) for _ in prompts]


def test_replies_are_cut_where_the_context_ends(pocket, caplog, monkeypatch):
    monkeypatch.setattr(template, "_told_limits", set())

    def play(limit):
        driver = Driver(Fill(), renderer(pocket, limit), Sampling(1.0, 30), 20)
        return driver.play([LONG, *load_examples("pocket:train:1")], "sharded", (1,))

    limit = len(play(0)[0].turns[4].context) + 5
    with caplog.at_level(logging.WARNING, "smopd"):
        long, other = play(limit)
    sizes = [len(turn.reply) for turn in long.turns]
    left = [limit - len(turn.context) for turn in long.turns]
    assert sizes == [min(20, max(0, room)) for room in left]
    assert sizes == [20, 20, 20, 20, 5, 0, 0]
    assert len(other.turns[0].reply) == 20
    warning = f"the model's context of {limit} tokens is full: example 'long', turn 5 begins with {limit - 5}"
    assert caplog.text.count(f"{warning}, its reply may have 5 of 20 tokens") == 1
    assert caplog.text.count("is full") == 1


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"max_position_embeddings": 4096}, 4096),
        ({}, 0),
        ({"max_position_embeddings": 32768, "rope_parameters": {"rope_type": "default"}}, 32768),
        ({"max_position_embeddings": 32768, "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, 131072),
        (
            {
                "max_position_embeddings": 131072,
                "rope_parameters": {
                    "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
                },
            },
            131072,
        ),
    ],
)  # fmt: skip
def test_the_context_of_a_model(config, expected):
    assert context_length(type("Config", (), config)) == expected


@pytest.mark.parametrize("verb", ["train", "eval"])
def test_the_commands_refuse_before_anything_is_played(smopd, tmp_path, verb):
    rows = [example.to_json() for example in load_examples("pocket:train:2")]
    shards = [shard for _ in range(80) for shard in SHARDS[:4]]
    rows.append(rows[0] | {"id": "endless", "shards": shards})
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = {"train": ("train", "pocket", "--set", "data.train=d.jsonl", "--out", "run"),
               "eval": ("eval", "pocket", "--data", "d.jsonl", "--out", "run")}[verb]  # fmt: skip
    code, _, err = smopd(*command)
    assert code == 2
    assert "example 'endless', turn " in err
    assert "and the model's context has 2,048; leave such examples out" in err
    assert not (tmp_path / "run").exists() or not list((tmp_path / "run").glob("*.json*"))
