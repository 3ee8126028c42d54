"""The LLM sharder against a real HTTP endpoint: checks, tries with the reason told, fallback, cache."""

import json
import re
import threading
from contextlib import contextmanager

import pytest
from support.chat_stub import endpoint, said
from support.runs import nobody

from smopd.data.llm_sharding import SYSTEM, LlmSharder, parse_list
from smopd.errors import EngineLost, UserError

TEXT = "Tom has 3 apples and Ana gives him 4. How many apples does Tom have?"
GOOD = ["How many apples does Tom have?", "Tom has 3 apples.", "Ana gives him 4."]


def answers(*replies):
    """An endpoint that gives these replies in turn, counting the tries by the messages sent."""
    return lambda body, headers: said(replies[min((len(body["messages"]) - 2) // 2, len(replies) - 1)])


def test_a_good_list_is_taken_whatever_stands_around_it(chat_server):
    server = chat_server(answers(f"<think>[hm]</think>Here:\n```json\n{json.dumps(GOOD)}\n```"))
    sharder = LlmSharder(endpoint(server.url))
    assert sharder([TEXT]) == [tuple(GOOD)]
    assert sharder.counts == {"by the model": 1, "from the cache": 0}
    sent = server.requests[0]["body"]
    assert sent["messages"] == [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TEXT}]
    assert sent["temperature"] == 0


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (json.dumps(GOOD[:2]), "a number is lost: 4"),
        (json.dumps([*GOOD, "Bob has 9."]), "a number is added: 9"),
        (json.dumps([GOOD[1], GOOD[0], GOOD[2]]), "the goal does not come first"),
        ("I cannot do that.", "it is no JSON list of texts"),
        ('["one"]', "fewer than two shards"),
        ("[1, 2]", "it is no JSON list of texts"),
        ("[unclosed", "it is no JSON list of texts"),
    ],
)
def test_a_bad_list_is_asked_for_again_with_the_reason(chat_server, bad, reason):
    server = chat_server(answers(bad, json.dumps(GOOD)))
    sharder = LlmSharder(endpoint(server.url))
    assert sharder([TEXT]) == [tuple(GOOD)]
    second = server.requests[1]["body"]
    assert second["messages"][2] == {"role": "assistant", "content": bad}
    assert reason in second["messages"][3]["content"]
    assert second["temperature"] > 0
    assert second["seed"] != server.requests[0]["body"]["seed"]


def test_after_the_last_try_the_rules_or_nothing(chat_server):
    server = chat_server(answers("no"))
    by_rule = LlmSharder(endpoint(server.url), tries=2)
    results = by_rule([TEXT, "How many are there?"])
    assert results == [
        ("How many apples does Tom have?", "Tom has 3 apples", "and Ana gives him 4."),
        "fewer than two shards",
    ]
    assert len(server.requests) == 4
    assert by_rule.counts == {"from the cache": 0, "by rule instead": 1, "dropped": 1}
    drop = LlmSharder(endpoint(server.url), tries=1, fallback="drop")
    assert drop([TEXT]) == ["model: it is no JSON list of texts"]
    assert drop.counts["dropped"] == 1
    with pytest.raises(UserError, match="--tries"):
        LlmSharder(endpoint(server.url), tries=0)


def test_what_is_too_long_is_not_asked_for(chat_server):
    server = chat_server()
    assert LlmSharder(endpoint(server.url), fallback="drop")(["Tom has 3 apples. " * 100]) == [
        "over 1200 characters"
    ]
    assert not server.requests


def test_the_same_request_is_asked_once_and_the_seed_decides_the_samples(chat_server):
    server = chat_server(answers(json.dumps(GOOD)))
    assert LlmSharder(endpoint(server.url))([TEXT, TEXT.replace(" ", "  ")]) == [tuple(GOOD)] * 2
    LlmSharder(endpoint(server.url))([TEXT])
    LlmSharder(endpoint(server.url), seed=1)([TEXT])
    first, again, other = (request["body"]["seed"] for request in server.requests)
    assert first == again != other


def texts(count):
    return [
        f"Tom has {n} apples and Ana gives him {n + 100}. How many apples does Tom have?"
        for n in range(2, count + 2)
    ]


def shards_of(body):
    low, high = re.findall(r"\d+", body["messages"][1]["content"])
    return ["How many apples does Tom have?", f"Tom has {low} apples.", f"Ana gives him {high}."]


def test_an_interrupted_build_goes_on_without_asking_twice(chat_server, tmp_path):
    cache, stop = tmp_path / "c.jsonl", threading.Event()

    def answer(body, headers):
        if "Tom has 7 " in body["messages"][1]["content"] and not stop.is_set():
            return 401, "no", {}
        return said(json.dumps(shards_of(body)))

    server = chat_server(answer)
    with pytest.raises(UserError):
        LlmSharder(endpoint(server.url, concurrency=1), cache)(texts(10))
    kept = len(cache.read_text().splitlines())
    assert kept == 5
    with cache.open("a") as file:
        file.write('{"key": "cut sho')  # killed while writing
    stop.set()
    before = len(server.requests)
    sharder = LlmSharder(endpoint(server.url), cache)
    results = sharder(texts(10))
    assert len(server.requests) - before == 5
    assert sharder.counts["from the cache"] == 5
    assert [f[1] for f in results] == [f"Tom has {n} apples." for n in range(2, 12)]
    assert all(json.loads(line) for line in cache.read_text().splitlines())
    assert LlmSharder(endpoint(server.url), cache)(texts(10)) == results
    assert len(server.requests) - before == 5


def test_many_at_once_give_the_same_as_one_after_the_other(chat_server):
    most = threading.Barrier(4, timeout=20)

    def answer(body, headers):
        most.wait()  # passes only where four requests are in flight together
        return said(json.dumps(shards_of(body)))

    seen = []

    @contextmanager
    def track(what, total=0, done=0, eta=True):
        yield lambda done, note="": seen.append((what, done, total))

    wide = LlmSharder(endpoint(chat_server(answer).url, concurrency=4), track=track)
    narrow = LlmSharder(
        endpoint(chat_server(lambda body, headers: said(json.dumps(shards_of(body)))).url, concurrency=1)
    )
    assert wide(texts(8)) == narrow(texts(8))
    assert seen == [("shards by the model", n, 8) for n in range(1, 9)]


def test_a_server_that_is_gone_is_said(tmp_path):
    with pytest.raises(EngineLost):
        LlmSharder(endpoint(nobody(), retries=0), tmp_path / "c.jsonl")([TEXT])


def test_lists_in_replies():
    assert parse_list('["a  b", "", "c\\nd"]') == ("a b", "c d")
    assert parse_list("[]") == "fewer than two shards"
