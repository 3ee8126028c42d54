"""The engine of vLLM servers when they fail, refuse, or are not what the run needs."""

import logging
import os
import signal
import threading
import time

import pytest
from support.runs import nobody
from support.vllm_stub import END, SAMPLING, VOCABULARY, completion, connect, error, once, play, saves, start

from smopd.errors import EngineLost, UserError
from smopd.rollout.engine import Stop

__all__ = ["connect", "start"]  # fixtures

KEY = "sk-very-secret-0123456789"

# Servers that fail.


def answer(ids, **changes):
    return completion({"prompt": [0, 100], "model": "base"}, ids, **changes)


FAULTS = {
    "server error": (500, error("boom", 500)),
    "overloaded": (429, b"slow down"),
    "unavailable": (503, b""),
    "not JSON": b"<html>gateway</html>",
    "nothing": b"",
    "a list": [1],
    "no choices": {"model": "base", "choices": []},
    "no token ids": completion({"prompt": [0, 100], "model": "base"}, [7, END], token_ids=None),
    "words for ids": completion({"prompt": [0, 100], "model": "base"}, [7, END], token_ids=["a", "b"]),
    "no logprobs": completion({"prompt": [0, 100], "model": "base"}, [7, END], logprobs=None),
    "too few logprobs": completion(
        {"prompt": [0, 100], "model": "base"}, [7, END], logprobs={"token_logprobs": [-1.0]}
    ),
    "a logprob that is none": completion(
        {"prompt": [0, 100], "model": "base"}, [7], logprobs={"token_logprobs": [None]}
    ),
    "empty": completion({"prompt": [0, 100], "model": "base"}, []),
    "too long": completion({"prompt": [0, 100], "model": "base"}, [7] * 8 + [END]),
    "aborted": completion({"prompt": [0, 100], "model": "base"}, [7], "abort"),
    "behind the end": completion({"prompt": [0, 100], "model": "base"}, [7, END, 7, END]),
    "another prompt": completion({"prompt": [0, 101], "model": "base"}, [7, END]),
    "death": "die",
    **{name: answer([7, END], **changes) for name, changes in {
        "an id past the vocabulary": {"token_ids": [VOCABULARY, END]},
        "an absurd id": {"token_ids": [10**400, END]},
        "a negative id": {"token_ids": [-1, END]},
        "a fraction for an id": {"token_ids": [7.0, END]},
        "true for an id": {"token_ids": [True, END]},
        "text for ids": {"token_ids": "77"},
        "an object for ids": {"token_ids": {"7": 1, "8": 2}},
        "a positive logprob": {"logprobs": {"token_logprobs": [0.001, -1.0]}},
        "an infinite logprob": {"logprobs": {"token_logprobs": [float("-inf"), -1.0]}},
        "no number": {"logprobs": {"token_logprobs": [float("nan"), -1.0]}},
        "an absurd logprob": {"logprobs": {"token_logprobs": [-(10**400), -1.0]}},
        "true for a logprob": {"logprobs": {"token_logprobs": [True, -1.0]}},
        "text for a logprob": {"logprobs": {"token_logprobs": ["-1", -1.0]}},
        "an object for the end": {"finish_reason": {"a": []}},
    }.items()},
    "another model": answer([7, END]) | {"model": "somebody else's"},
    "two replies": answer([7, END]) | {"choices": answer([7, END])["choices"] * 2},
    "an object for replies": answer([7, END]) | {"choices": {"0": 1}},
    "a prompt of another length": answer([7, END], prompt_token_ids=None) | {"usage": {"prompt_tokens": 3}},
    "text for usage": answer([7, END]) | {"usage": "many"},
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_what_cannot_be_used_is_asked_for_elsewhere(start, connect, fault):
    bad, good = start(once(fault)), start()
    ids, expected = play(connect(bad, good), 12)
    assert ids == expected("base")
    assert sum(len(stub.asked) for stub in (bad, good)) >= 12


@pytest.mark.parametrize(
    "fault", [f for f in FAULTS.values() if f != "die"], ids=[f for f in FAULTS if f != "death"]
)
def test_what_cannot_be_used_is_asked_for_again(start, connect, fault):
    stub = start(once(fault))
    ids, expected = play(connect(stub), 3)
    assert ids == expected("base")
    assert len(stub.asked) == 3  # and the one that failed


def test_rounding_is_no_lie(start, connect):
    rounded = {"token_logprobs": [5e-5, -1.0]}
    stub = start(
        lambda path, body: completion(body, [VOCABULARY - 1, END], logprobs=rounded) if body else None
    )
    (reply,) = connect(stub, lora=False).generate([[1]], [1], SAMPLING)
    assert (reply.ids, reply.logps) == ((VOCABULARY - 1, END), (0.0, -1.0))


@pytest.mark.parametrize("count", [10**400, -5, 99, 1.5, "7", float("inf"), None, True])
def test_what_a_server_says_of_its_cache_is_only_believed_if_it_can_be(start, connect, count):
    details = {"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": count}}}
    stub = start(lambda path, body: completion(body, [7, END]) | details if body else None)
    engine = connect(stub, lora=False)
    engine.generate([[1]], [1], SAMPLING)
    assert (engine.usage.prompt, engine.usage.reused) == (0, 0)


def test_what_a_server_says_is_shown_in_one_line_without_control_characters(start, connect, caplog):
    message = "\x1b[2J\x9b31m\u202e\u2066\u200b\x07\nerror: forged"
    stub = start(lambda path, body: (400, error(message, 400)) if path == "/v1/completions" else None)
    with pytest.raises(UserError) as refused:
        play(connect(stub), 1)
    broken = start(
        lambda path, body: {"model": message * 1000, "choices": []} if path == "/v1/completions" else None
    )
    with caplog.at_level(logging.WARNING, "smopd"), pytest.raises(EngineLost) as lost:
        play(connect(broken, retries=0), 1)
    assert "error: forged" in str(refused.value)
    for text in (str(refused.value), str(lost.value), caplog.text):
        assert not set(text) & set("\x1b\x9b\u202e\u2066\u200b\x07")
        assert not [line for line in text.splitlines() if line.startswith("error")]
        assert len(text) < 3000


def test_a_server_that_dies_at_work_loses_nothing_and_is_used_again_when_back(start, connect, caplog):
    dying = start(
        lambda path, body: "die" if len(dying.asked) >= 5 and path == "/v1/completions" and alive else None,
        delay=0.005,
    )
    other, alive = start(delay=0.005), [True]
    engine = connect(dying, other, concurrency=4)
    engine.refresh(1, saves("one"))
    with caplog.at_level(logging.WARNING, "smopd"):
        ids, expected = play(engine, 60)
        assert ids == expected("one")
        assert caplog.text.count(f"set aside: {dying.url}") == 1
        alive.clear()
        dying.restart()
        before = len(dying.asked)
        ids, expected = play(engine, 60)
    assert ids == expected("one")
    assert len(dying.asked) > before
    assert caplog.text.count(f"set aside: {dying.url}") == 1
    assert caplog.text.count(f"back: {dying.url}") == 1


def test_a_server_that_hangs_costs_its_time_out_and_no_more(start, connect):
    hanging = start(
        lambda path, body: hanging.closing.wait(20) and None if path == "/v1/completions" else None
    )
    good = start()
    began = time.monotonic()
    ids, expected = play(connect(hanging, good, timeout=0.3, concurrency=4), 12)
    assert ids == expected("base")
    assert 0.3 <= time.monotonic() - began < 2.0


def test_one_hanging_load_is_waited_for_once(start, connect):
    """Not by every request in turn."""
    hanging = start(
        lambda path, body: (
            hanging.closing.wait(20) and None if path == "/v1/load_lora_adapter" and body else None
        )
    )
    good = start()
    engine = connect(hanging, good, timeout=0.3)
    began = time.monotonic()
    engine.refresh(1, saves("one"))
    ids, expected = play(engine, 40)
    assert ids == expected("one")
    assert time.monotonic() - began < 2.0


def test_one_hanging_reload_is_waited_for_once(start, connect):
    """A server that was restarted while many requests were on their way to it."""

    def fault(path, body):
        if path == "/v1/load_lora_adapter" and body and gone:
            restarted.closing.wait(20)

    restarted, good, gone = start(fault), start(delay=0.01), []
    engine = connect(restarted, good, timeout=0.3, concurrency=8)
    engine.refresh(1, saves("one"))
    restarted.adapters.clear()
    gone.append(True)
    began = time.monotonic()
    ids, expected = play(engine, 40)
    assert ids == expected("one")
    assert time.monotonic() - began < 1.2


def test_a_failure_from_before_does_not_set_aside_a_server_that_is_back(start, connect, caplog):
    both_there = threading.Barrier(2, timeout=5)

    def fault(path, body):
        if path != "/v1/completions" or body["prompt"][0] in done:
            return None
        done.add(body["prompt"][0])
        both_there.wait()
        time.sleep(0.4 * body["prompt"][0])
        return 500, b"boom"

    stub, done = start(fault), set(range(2, 20))
    with caplog.at_level(logging.WARNING, "smopd"):
        ids, expected = play(connect(stub, concurrency=2), 20)
    assert ids == expected("base")
    assert caplog.text.count("set aside") == 1


def test_a_request_waits_for_a_busy_server_rather_than_fail_again(start, connect):
    failing = start(lambda path, body: (500, b"boom") if path == "/v1/completions" else None)
    busy = start(delay=0.4)
    ids, expected = play(connect(failing, busy, concurrency=1), 2)
    assert ids == expected("base")
    assert len([h for h in failing.headers if int(h.get("Content-Length", 0))]) <= 2


def test_the_last_server_going_away_loses_the_engine_but_not_the_run(start, connect):
    stubs = [start(lambda path, body: "die" if path == "/v1/completions" else None) for _ in range(2)]
    engine = connect(*stubs)
    with pytest.raises(EngineLost, match="the same command continues it") as lost:
        play(engine)
    assert lost.value.exit_code == 3
    assert all(stub.url in str(lost.value) for stub in stubs)
    assert "refused" in str(lost.value)


def test_a_server_that_is_back_within_the_retries_saves_the_run(start, connect):
    stub = start(once("die"))
    engine = connect(stub, retries=8)
    engine.refresh(1, saves("one"))
    back = threading.Timer(0.3, stub.restart)
    back.start()
    ids, expected = play(engine)
    back.join()
    assert ids == expected("one")


def test_a_server_that_is_well_and_never_answers_right_is_given_up(start, connect):
    stub = start(
        lambda path, body: (500, error("cuda is unhappy", 500)) if path == "/v1/completions" else None
    )
    with pytest.raises(EngineLost, match="cuda is unhappy"):
        play(connect(stub), 3)
    posts = [h for h in stub.headers if "Content-Length" in h]
    assert len(posts) >= 3  # the first try and two retries of at least one request


def test_without_retries_a_failure_is_the_end(start, connect):
    stub = start(once((500, b"boom")))
    with pytest.raises(EngineLost, match="boom"):
        play(connect(stub, retries=0), 1)


def test_ctrl_c_does_not_wait_for_answers(start, connect):
    stub = start(lambda path, body: stub.closing.wait(20) and None if path == "/v1/completions" else None)
    engine = connect(stub, timeout=60.0)
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        play(engine)
    assert time.monotonic() - began < 2.0
    assert not ours()  # nor does the exit


def ours() -> list[threading.Thread]:
    """The threads that engines started."""
    return [t for t in threading.enumerate() if t.name.startswith(("smopd", "asyncio", "ThreadPool"))]


def test_no_thread_outlives_its_call(start, connect):
    """Not even the look at a server that is away and does not answer, nor requests beside one that fails."""
    good, hanging = start(), start()
    before = set(threading.enumerate())
    engine = connect(good, hanging, timeout=20.0)
    hanging.fault = lambda path, body: hanging.closing.wait(20) and None if path == "/health" else (500, b"")
    play(engine, 40)
    assert not ours()
    good.fault = lambda path, body: (
        (400, b"no") if body and body["prompt"][0] == 3 else good.closing.wait(20) and None
    )
    began = time.monotonic()
    with pytest.raises(UserError, match="no"):
        play(engine)
    assert not ours()
    engine.close()
    assert time.monotonic() - began < 5
    stubs = {t for t in threading.enumerate() if "process_request_thread" in t.name}
    assert set(threading.enumerate()) - before <= stubs


def test_no_thread_is_left_of_an_engine_that_cannot_be_made(start, connect):
    hanging = start(lambda path, body: hanging.closing.wait(20) and None)
    with pytest.raises(UserError, match="is this a vLLM server"):
        connect(start(lambda path, body: {"hello": "world"}), hanging)
    assert not ours()


# Refusals and set-up.


def test_a_refusal_is_told_in_the_servers_words_and_not_repeated(start, connect):
    message = "This model's maximum context length is 64 tokens. However, you requested 3000"
    stub = start(lambda path, body: (400, error(message, 400)) if path == "/v1/completions" else None)
    posts = len(stub.headers)
    engine = connect(stub)
    posts = len(stub.headers)
    with pytest.raises(UserError, match=message) as refused:
        engine.generate([[1]], [1], SAMPLING)
    assert not isinstance(refused.value, EngineLost)
    assert len(stub.headers) == posts + 1


def test_an_unknown_base_model_is_a_refusal(start, connect):
    stub = start(
        lambda path, body: (
            (404, error("The model `base` does not exist.", 404)) if path == "/v1/completions" else None
        )
    )
    with pytest.raises(UserError, match="The model `base` does not exist"):
        play(connect(stub), 1)


def test_a_server_that_ends_replies_elsewhere_is_told_how_to_start(start, connect):
    stub = start(lambda path, body: completion(body, [7, 99]) if path == "/v1/completions" else None)
    with pytest.raises(UserError, match=r"token 99.*--generation-config vllm"):
        play(connect(stub), 1)


def test_a_reply_cut_by_the_context_is_told_once(start, connect, caplog):
    stub = start(lambda path, body: completion(body, [7, 8], "length") if path == "/v1/completions" else None)
    engine = connect(stub)
    with caplog.at_level(logging.WARNING, "smopd"):
        replies = [*engine.generate([[1]] * 3, [1, 2, 3], SAMPLING), *engine.generate([[1]], [1], SAMPLING)]
    assert {(r.ids, r.stop) for r in replies} == {((7, 8), Stop.LENGTH)}
    assert caplog.text.count("context is full") == 1


def test_no_server_at_the_start(start, connect):
    with pytest.raises(EngineLost, match="no answer from"):
        connect(nobody(), nobody())
    with pytest.raises(UserError, match="needs the base URLs"):
        connect()


def test_one_server_of_two_is_enough_and_the_other_may_come_later(start, connect):
    late, there = start(), start(delay=0.005)
    late.stop()
    engine = connect(late, there, concurrency=2)
    engine.refresh(1, saves("one"))
    late.start()
    ids, expected = play(engine, 60)
    assert ids == expected("one")
    assert late.asked


def test_a_server_that_takes_no_adapters_is_told_how_to_start(start, connect):
    stub = start(updating=False)
    with pytest.raises(
        UserError,
        match=r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True vllm serve .* --enable-lora --max-lora-rank 64",
    ):
        connect(stub)
    ids, expected = play(connect(stub, lora=False))
    assert ids == expected("base")


def test_something_else_than_vllm(start, connect):
    stub = start(lambda path, body: {"hello": "world"})
    with pytest.raises(UserError, match="is this a vLLM server"):
        connect(stub)


def test_another_tokenizer_is_found_out(start, connect):
    stub = start()
    assert connect(stub, encode=lambda text: list(text.encode()))
    with pytest.raises(UserError, match="another tokenizer"):
        connect(stub, encode=lambda text: list(text.encode("utf-16")))


def test_a_folder_the_server_cannot_read_is_named(start, connect, tmp_path):
    stub = start(
        lambda path, body: (
            (404, error("was not found", 404)) if path == "/v1/load_lora_adapter" and body else None
        )
    )
    engine = connect(stub, adapters=str(tmp_path / "shared"))
    with pytest.raises(
        UserError, match=r"was not found\nevery server has to read .*/shared under this very path"
    ):
        engine.refresh(1, saves("one"))


def test_an_adapter_that_does_not_fit_is_the_users_to_mend(start, connect):
    message = "LoRA rank 64 is greater than max_lora_rank 16."
    stub = start(
        lambda path, body: (500, error(message, 500)) if path == "/v1/load_lora_adapter" and body else None
    )
    with pytest.raises(UserError, match=message) as refused:
        connect(stub).refresh(1, saves("one"))
    assert not isinstance(refused.value, EngineLost)
    assert "--max-lora-rank 64" in str(refused.value)


def test_adapters_go_where_the_settings_say(start, connect, tmp_path):
    stub = start()
    engine = connect(stub, adapters=str(tmp_path / "shared"))
    engine.refresh(1, saves("one"))
    assert [path.name for path in (tmp_path / "shared").iterdir()] == list(stub.adapters)
    assert not (tmp_path / "run").exists()


# The key.


def test_the_key_is_sent_and_shown_nowhere(start, connect, monkeypatch, caplog, capfd):
    monkeypatch.setenv("ROLLOUT_KEY", f"{KEY}\n")
    errors = []

    def shout(path, body):
        """Repeats the key, as servers like to."""
        message = f"you said {KEY}"
        if path == "/v1/completions":
            return [(400, error(message, 400)), (500, error(message, 500)), (401, {"error": message})][
                len(errors) % 3
            ]
        if path == "/v1/load_lora_adapter" and body:
            return 400, error(message, 400)
        return None

    stub = start(shout)
    with caplog.at_level(logging.DEBUG):
        engine = connect(stub, api_key_env="ROLLOUT_KEY", retries=0)
        for action in [lambda: play(engine, 1)] * 3 + [lambda: engine.refresh(1, saves("one"))]:
            with pytest.raises(UserError, match=r"you said \*\*\*") as refused:
                action()
            errors.append(str(refused.value))
    assert {headers.get("Authorization") for headers in stub.headers} == {f"Bearer {KEY}"}
    assert "ROLLOUT_KEY" in errors[2]
    out, err = capfd.readouterr()
    assert KEY not in "\n".join([*errors, caplog.text, repr(engine), out, err])


def test_without_a_key_none_is_sent_and_a_server_that_wants_one_says_so(start, connect):
    stub = start(lambda path, body: (401, {"error": "Unauthorized"}) if path.startswith("/v1") else None)
    with pytest.raises(UserError, match=r"401: Unauthorized\nno key was sent: OPENAI_API_KEY is not set"):
        connect(stub)
    assert all("Authorization" not in headers for headers in stub.headers)
