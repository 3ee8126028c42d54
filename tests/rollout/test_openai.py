"""The chat endpoint engine against a small server that misbehaves on request, alone and through the command
line.
"""

import json
import logging
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from support.chat_stub import KEY, ask, driver, endpoint, said
from support.runs import nobody

from smopd.data import Example
from smopd.errors import EngineLost, UserError
from smopd.rollout import Stop
from smopd.rollout.http import _seconds, base_url


def example(name: str, shards: int = 3, system: str = "Be brief.") -> Example:
    return Example(
        name, "math", system, tuple(f"{name} {i}" for i in range(shards)), f"{name} all", {"value": "4"}
    )


# Conversations.


def test_a_conversation_is_told_turn_by_turn_with_the_replies_in_the_history(chat_server):
    stub = chat_server(
        lambda body, _: said(
            f"re {body['messages'][-1]['content']}", "length" if body["max_tokens"] == 5 else "stop"
        )
    )
    (conversation,) = driver(stub.url).play([example("a")], "sharded", ("eval", 1))
    assert [t.text for t in conversation.turns] == ["re a 0", "re a 1", "re a 2"]
    assert [t.stop for t in conversation.turns] == [Stop.LENGTH, Stop.LENGTH, Stop.END]
    assert {(t.context, t.reply) for t in conversation.turns} == {((), ())}
    assert [t["tokens"] for t in conversation.to_json()["turns"]] == [3, 3, 3]
    bodies = [r["body"] for r in stub.requests]
    assert bodies[-1]["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "a 0"},
        {"role": "assistant", "content": "re a 0"},
        {"role": "user", "content": "a 1"},
        {"role": "assistant", "content": "re a 1"},
        {"role": "user", "content": "a 2"},
    ]
    assert [b["max_tokens"] for b in bodies] == [5, 5, 9]
    assert {(b["model"], b["temperature"]) for b in bodies} == {("m", 0.5)}
    assert len({b["seed"] for b in bodies}) == 3
    assert all(0 <= b["seed"] < 2**31 for b in bodies)
    driver(stub.url).play([example("b"), example("a")], "sharded", ("eval", 1))
    again = [r["body"]["seed"] for r in stub.requests[3:] if r["body"]["messages"][1]["content"] == "a 0"]
    assert again == [b["seed"] for b in bodies]


def test_full_is_one_message_and_an_empty_system_message_is_left_out(chat_server):
    stub = chat_server(lambda *_: {"choices": said("4")["choices"]})
    (conversation,) = driver(stub.url).play([example("a", system="")], "full", ("eval", 1))
    assert stub.requests[0]["body"]["messages"] == [{"role": "user", "content": "a all"}]
    assert stub.requests[0]["body"]["max_tokens"] == 9
    assert conversation.final_text == "4"
    assert conversation.to_json()["turns"][0]["tokens"] is None  # the server does not tell


def test_a_slow_conversation_does_not_hold_back_the_others(chat_server):
    others_done = threading.Event()
    waited = []

    def answer(body, _):
        last = body["messages"][-1]["content"]
        if last == "slow 0":
            waited.append(others_done.wait(5))
        if last == "b 2":
            others_done.set()
        return said(last)

    stub = chat_server(answer)
    played = driver(stub.url).play([example("slow"), example("a"), example("b")], "sharded", (1,))
    assert waited == [True]
    assert [c.final_text for c in played] == ["slow 2", "a 2", "b 2"]


def test_requests_are_bounded_at_each_server_and_spread_over_them(chat_server):
    stubs = [chat_server(lambda *_: time.sleep(0.05) or said("x")) for _ in range(2)]
    played = driver(*(s.url for s in stubs), concurrency=3).play(
        [example(f"e{i}") for i in range(24)], "full", (1,)
    )
    assert [c.example.id for c in played] == [f"e{i}" for i in range(24)]
    assert [s.most for s in stubs] == [3, 3]
    assert min(len(s.requests) for s in stubs) >= 6


def test_the_least_busy_server_is_asked(chat_server):
    stubs = [chat_server(lambda *_: time.sleep(0.3) or said("x")) for _ in range(2)]
    driver(*(s.url for s in stubs), concurrency=4).play([example(f"e{i}") for i in range(4)], "full", (1,))
    assert [len(s.requests) for s in stubs] == [2, 2]


def test_a_server_that_is_down_is_left_alone_while_another_works(chat_server):
    down = chat_server(lambda *_: (503, "loading", {}))
    up = chat_server(lambda *_: time.sleep(0.005) or said("x"))
    played = driver(down.url, up.url, concurrency=2, pause=5.0).play(
        [example(f"e{i}") for i in range(20)], "full", (1,)
    )
    assert {c.final_text for c in played} == {"x"}
    assert len(up.requests) == 20
    assert len(down.requests) <= 2  # what was in flight before it was known
    assert up.most == 2  # the other's share does not come on top


def test_a_server_that_comes_back_is_used_again(chat_server):
    state = {"down": True}
    first = chat_server(lambda *_: (503, "loading", {}) if state["down"] else said("x"))
    second = chat_server()
    plays = driver(first.url, second.url, pause=0.01)
    plays.play([example("a")], "full", (1,))
    assert len(first.requests) == 1
    state["down"] = False
    time.sleep(0.03)
    plays.play([example(f"e{i}") for i in range(6)], "full", (1,))
    assert len(first.requests) > 1


def test_the_first_error_ends_the_evaluation_at_once(chat_server):
    stub = chat_server(
        lambda body, _: (400, "too long", {}) if "bad" in str(body) else stub.closing.wait(10) and said("x")
    )
    began = time.monotonic()
    with pytest.raises(UserError, match="too long"):
        driver(stub.url).play([example("slow"), example("bad")], "full", (1,))
    assert time.monotonic() - began < 5
    assert not [t for t in threading.enumerate() if t.name.startswith(("smopd", "asyncio"))]


# Answers nobody can use, and servers that fail.

UNREADABLE = {
    "not JSON": "<html>gateway</html>",
    "nothing": "",
    "no choices": {"object": "chat.completion"},
    "an empty list": {"choices": []},
    "no message": {"choices": [{"finish_reason": "stop"}]},
    "no content": {"choices": [{"message": {"role": "assistant"}, "finish_reason": "stop"}]},
    "null": said(None),
    "a number": said(7),
    "a list": [1, 2],
    "two replies": {"choices": said("a")["choices"] * 2},
    "an object": {"choices": {"0": said("a")["choices"][0]}},
    "text for a message": {"choices": [{"message": "a", "finish_reason": "stop"}]},
    "deep": "[" * 100_000,
    "a long number": "9" * 5000,
    "cut short": (200, said("half"), {"Content-Length": "500"}),
}


@pytest.mark.parametrize("bad", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_answer_is_asked_for_again(chat_server, bad):
    stub = chat_server(lambda *_: bad if len(stub.requests) == 1 else said("good"))
    assert ask(stub.url).text == "good"
    assert len(stub.requests) == 2


def test_an_answer_that_stays_unreadable_is_an_empty_reply_counted_and_told(chat_server, caplog):
    stub = chat_server(
        lambda body, _: said(None) if "bad" in body["messages"][-1]["content"] else said("good")
    )
    plays = driver(stub.url)
    with caplog.at_level(logging.WARNING, "smopd"):
        played = plays.play([example("bad"), example("fine"), example("bad too")], "full", (1,))
    assert [c.final_text for c in played] == ["", "good", ""]
    assert plays.endpoint.unreadable == 2
    assert "2 of 3 replies could not be read" in caplog.text
    assert len(stub.requests) == 3 + 1 + 3
    caplog.clear()
    plays.play([example("fine")], "full", (1,))
    assert not caplog.text


def test_thoughts_that_use_up_the_limit_leave_an_empty_reply_and_no_retry(chat_server):
    stub = chat_server(lambda *_: said(None, "length"))
    reply = ask(stub.url)
    assert (reply.text, reply.stop, len(stub.requests)) == ("", Stop.LENGTH, 1)


def test_half_a_surrogate_pair_can_be_written_to_a_file(chat_server):
    stub = chat_server(
        lambda *_: b'{"choices": [{"message": {"content": "a\\ud83d"}, "finish_reason": "stop"}]}'
    )
    assert ask(stub.url).text.encode() == b"a?"


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_failing_server_is_tried_again_with_growing_pauses(chat_server, status):
    stub = chat_server(lambda *_: said("good") if len(stub.requests) == 3 else (status, "busy", {}))
    assert ask(stub.url, pause=0.1).text == "good"
    times = [r["at"] for r in stub.requests]
    assert times[1] - times[0] >= 0.1
    assert times[2] - times[1] >= 0.2


def test_the_pause_a_server_asks_for_is_kept(chat_server):
    stub = chat_server(
        lambda *_: said("good") if len(stub.requests) == 2 else (429, "slow down", {"Retry-After": "0.4"})
    )
    assert ask(stub.url, pause=0.01).text == "good"
    assert stub.requests[1]["at"] - stub.requests[0]["at"] >= 0.4


def test_seconds_is_seconds_or_a_date():
    assert _seconds("3") == 3
    assert 50 < (_seconds(format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)) or 0) <= 60
    assert _seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert _seconds("soon") is None
    assert _seconds(None) is None


def test_an_endpoint_that_stays_away_is_lost():
    url = nobody()
    with pytest.raises(EngineLost, match="in 3 tries") as lost:
        ask(url)
    assert url in str(lost.value)
    assert "refused" in str(lost.value)


def test_a_dead_server_is_given_up_however_many_requests_wait_for_it(chat_server):
    stub = chat_server(lambda *_: (503, "gone", {}))
    began = time.monotonic()
    with pytest.raises(EngineLost, match="503: gone"):
        driver(stub.url, concurrency=8).play([example(f"e{i}") for i in range(40)], "full", (1,))
    assert len(stub.requests) <= 8 + 4  # at once, then one at a time
    assert time.monotonic() - began < 5


def test_rate_limits_without_end_are_told_in_the_servers_words(chat_server):
    stub = chat_server(lambda *_: (429, f"quota of {KEY} used up", {}))
    with pytest.raises(EngineLost, match=r"quota of \*\*\* used up"):
        ask(stub.url)


@pytest.mark.parametrize("drips", [False, True])
def test_an_answer_has_to_come_in_time(chat_server, drips):
    """A server that sends nothing, and one that sends a byte now and then."""
    stub = chat_server(lambda *_: stub.closing.wait(10))
    if drips:
        write = stub.server.RequestHandlerClass.send

        def drip(handler, _):
            write(handler, (200, b"", {"Content-Length": "1000"}))
            while not stub.closing.wait(0.05):
                handler.wfile.write(b" ")

        stub.server.RequestHandlerClass.send = drip
        stub.answer = lambda *_: None
    began = time.monotonic()
    with pytest.raises(EngineLost, match="timed out"):
        ask(stub.url, timeout=0.3, retries=1)
    assert 0.6 <= time.monotonic() - began < 4


# Refusals.


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "put one that may use this model into that environment variable"),
        (403, "OPENAI_API_KEY"),
        (404, "--served-model"),
        (400, "--set eval.temperature"),
        (422, "--set eval.tokens"),
    ],
)
def test_a_refusal_is_told_in_the_servers_words_with_advice_and_not_repeated(chat_server, status, advice):
    stub = chat_server(
        lambda body, headers: (status, json.dumps({"error": f"no: {headers['Authorization']}"}), {})
    )
    with pytest.raises(UserError, match="no: Bearer") as refused:
        ask(stub.url)
    assert not isinstance(refused.value, EngineLost)
    assert advice in str(refused.value)
    assert KEY not in str(refused.value)
    assert len(stub.requests) == 1


def test_without_a_key_none_is_sent_and_the_advice_is_to_set_one(chat_server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    stub = chat_server(lambda *_: (401, "who are you", {}))
    with pytest.raises(
        UserError, match="no key was sent: put one into the environment variable OPENAI_API_KEY"
    ):
        ask(stub.url)
    assert "Authorization" not in stub.requests[0]["headers"]
    monkeypatch.setenv("OTHER", "abc")
    with pytest.raises(UserError):
        ask(stub.url, api_key_env="OTHER")
    assert stub.requests[1]["headers"]["Authorization"] == "Bearer abc"


def test_an_unknown_model_is_answered_with_the_ones_there_are(chat_server):
    stub = chat_server(
        lambda body, _: (404, "no model m", {}) if body else {"data": [{"id": "alpha"}, {"id": "beta"}]}
    )
    with pytest.raises(UserError, match="it serves alpha, beta"):
        ask(stub.url)


def test_without_a_name_the_first_listed_model_is_used(chat_server):
    stub = chat_server(lambda body, _: said("x") if body else {"data": [{"id": "alpha"}, {"id": "beta"}]})
    driver(stub.url, model="").play([example("a"), example("b")], "full", (1,))
    assert {r["body"]["model"] for r in stub.requests} == {"alpha"}
    assert len(stub.gets) == 1
    empty = chat_server(lambda *_: {"data": []})
    with pytest.raises(UserError, match="lists no model"):
        driver(empty.url, model="").play([example("a")], "full", (1,))


def test_models_that_know_the_limit_by_its_new_name_get_it(chat_server):
    message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    stub = chat_server(
        lambda body, _: (
            (400, message, {}) if "max_tokens" in body else said(str(body["max_completion_tokens"]))
        )
    )
    both = driver(stub.url, retries=0, concurrency=1).play([example("a"), example("b")], "full", (1,))
    assert [c.final_text for c in both] == ["9", "9"]
    assert len(stub.requests) == 3


# Addresses and the key.


def test_a_url_is_taken_with_and_without_its_v1(chat_server):
    stub = chat_server()
    for end in ("", "/", "/v1", "/v1/", "/v1/chat/completions"):
        ask(stub.url + end)
    assert {r["path"] for r in stub.requests} == {"/v1/chat/completions"}
    assert base_url("https://host/openai/v1/") == "https://host/openai"


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "", "ftp://host", "http://", "http://host:port", "http://[::1", "http://a b", f"http://h?key={KEY}",
     f"http://user:{KEY}@host:x", "http://" + "a" * 70],
)  # fmt: skip
def test_a_url_that_is_none_is_named_without_its_secrets(url):
    with pytest.raises(UserError, match="--url") as refused:
        endpoint(url)
    assert KEY not in str(refused.value)


def test_no_url_at_all():
    with pytest.raises(UserError, match="give its base URL with --url"):
        endpoint()


@pytest.mark.parametrize("key", [f"{KEY}\nsecond", f"{KEY}é"])
def test_a_key_that_cannot_be_sent_is_not_shown(monkeypatch, chat_server, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(UserError, match="OPENAI_API_KEY") as refused:
        ask(chat_server().url)
    assert KEY not in str(refused.value)


def test_the_key_is_stripped_sent_and_shown_nowhere(chat_server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", f"{KEY}\n")
    stub = chat_server()
    plays = driver(stub.url)
    plays.play([example("a")], "full", (1,))
    assert stub.requests[0]["headers"]["Authorization"] == f"Bearer {KEY}"
    assert KEY not in repr(plays)


def test_a_redirect_is_refused_and_the_key_stays_here(chat_server):
    elsewhere = chat_server()
    stub = chat_server(lambda *_: (302, "", {"Location": f"{elsewhere.url}/v1/chat/completions"}))
    with pytest.raises(UserError, match=r"302: .*\n.*redirects"):
        ask(stub.url)
    assert elsewhere.requests == elsewhere.gets == []


def test_only_https_goes_through_the_proxy_of_the_environment(chat_server, monkeypatch):
    proxy, stub = chat_server(), chat_server()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, proxy.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert ask(stub.url).text
    assert proxy.requests == []
    with pytest.raises(EngineLost, match="502"):
        ask("https://endpoint.invalid", retries=0)
    assert [g["path"] for g in proxy.gets] == ["endpoint.invalid:443"]


def test_a_teacher_is_asked_every_turn_anew_without_any_reply(chat_server):
    stub = chat_server(lambda body, _: said("x"))
    player = replace(driver(stub.url), clean="merged")
    (conversation,) = player.play([example("a")], "teacher", ("eval", 1))
    asked = [[m["content"] for m in r["body"]["messages"]] for r in stub.requests]
    assert asked == [["Be brief.", "a 0"], ["Be brief.", "a 0\n\na 1"], ["Be brief.", example("a").full]]
    assert [r["body"]["max_tokens"] for r in stub.requests] == [5, 5, 9]
    assert len(conversation.turns) == 3
