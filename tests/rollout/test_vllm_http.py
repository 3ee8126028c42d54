"""The engine of vLLM servers: what it asks for, whose reply is whose, and which version samples."""

import os
import shutil
import subprocess
import time
from collections import Counter

import pytest
from support.vllm_stub import END, SAMPLING, completion, connect, error, play, sampled, saves, start

from smopd.errors import EngineLost
from smopd.rollout.engine import Sampling, Session, Stop
from smopd.rollout.vllm_shared import AdapterStore

__all__ = ["connect", "start"]  # fixtures


# What is asked for, and in which order it comes back.


def test_everything_that_shapes_a_reply_is_sent_as_asked(start, connect):
    stub = start()
    engine = connect(stub)
    engine.refresh(3, saves("three"))
    engine.generate([[5, 6, 7]], [2**62 + 1], SAMPLING)
    (body,) = stub.asked
    assert body.pop("model") == next(iter(stub.adapters))
    assert body == {
        "prompt": [5, 6, 7], "temperature": 0.7, "top_p": 0.9, "top_k": 20, "max_tokens": 8,
        "seed": 2**62 + 1, "stop_token_ids": [END, 2], "ignore_eos": True, "logprobs": 0,
        "return_token_ids": True, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    }  # fmt: skip


def test_replies_stand_where_their_prompts_stood(start, connect):
    """The later a request is sent, the sooner it is answered."""
    stub = start(
        lambda path, body: time.sleep(0.03 - body["prompt"][0] * 0.001) if path == "/v1/completions" else None
    )
    ids, expected = play(connect(stub), 24)
    assert ids == expected("base")


def test_a_reply_has_its_log_probabilities_and_its_reason(start, connect):
    stub = start()
    engine = connect(stub)
    (ended,) = engine.generate([[1, 2]], [5], SAMPLING)
    (cut,) = engine.generate([[1, 2]], [5], Sampling(0.0, 3))
    whole = sampled("base", [1, 2], 5)
    assert (list(ended.ids), ended.stop, list(ended.logps)) == (whole, Stop.END, [-float(i) for i in whole])
    assert (list(cut.ids), cut.stop, len(cut.logps)) == (whole[:3], Stop.LENGTH, 3)
    assert (engine.usage.prompt, engine.usage.reused, engine.usage.prefilled) == (4, 2, 2)


def test_requests_are_spread_over_the_servers_and_bounded_at_each(start, connect):
    stubs = [start(delay=0.03) for _ in range(2)]
    ids, expected = play(connect(*stubs, concurrency=3), 30)
    assert ids == expected("base")
    assert max(stub.most for stub in stubs) <= 3
    assert min(stub.most for stub in stubs) >= 2
    assert min(len(stub.asked) for stub in stubs) >= 8
    assert sum(len(stub.asked) for stub in stubs) == 30


def test_the_turns_of_a_conversation_stay_at_one_server(start, connect):
    stubs = [start(delay=0.05) for _ in range(2)]
    engine = connect(*stubs)
    for order in (list(range(10)), list(range(10))[::-1], [3, 1, 4, 0, 5, 9, 2, 6, 8, 7]):
        engine.generate([[i] for i in order], order, SAMPLING, [Session(f"conversation {i}") for i in order])
    assert min(len(stub.asked) for stub in stubs) >= 9
    assert all(
        count == 3 for stub in stubs for count in Counter(body["prompt"][0] for body in stub.asked).values()
    )


def test_a_server_that_knows_all_conversations_is_not_overrun(start, connect):
    stubs = [start(delay=0.01) for _ in range(2)]
    engine = connect(*stubs, concurrency=2)
    for _ in range(2):
        for i in range(8):  # one by one, all at the first server
            engine.generate([[i]], [i], SAMPLING, [Session(f"conversation {i}")])
    assert len(stubs[0].asked) == 16
    engine.generate(
        [[i] for i in range(8)], list(range(8)), SAMPLING, [Session(f"conversation {i}") for i in range(8)]
    )
    assert stubs[0].most == 2
    assert stubs[1].asked


def test_no_prompts_are_no_requests(start, connect):
    assert connect(start()).generate([], [], SAMPLING) == []


# Versions.


def test_every_reply_is_of_the_last_version_and_the_old_one_is_gone(start, connect, tmp_path):
    stubs = [start(), start()]
    engine = connect(*stubs)
    for version in (1, 2, 3):
        engine.refresh(version, saves(f"weights {version}"))
        ids, expected = play(engine)
        assert ids == expected(f"weights {version}")
        for stub in stubs:
            assert [name.rsplit("-v", 1)[1] for name in stub.adapters] == [str(version)]
        assert len(list((tmp_path / "run" / "served").iterdir())) == 1
    assert len({name for stub in stubs for name in stub.loads}) == 3
    engine.close()
    assert [stub.adapters for stub in stubs] == [{}, {}]
    assert not (tmp_path / "run" / "served").exists()


def test_a_server_that_missed_a_refresh_never_answers_for_the_old_version(start, connect):
    """It was away with the old adapter loaded, and is back with it."""
    stubs = [start(delay=0.005), start(delay=0.005)]
    engine = connect(*stubs, concurrency=2)
    engine.refresh(1, saves("old"))
    stubs[1].stop()
    engine.refresh(2, saves("new"))
    stubs[1].start()
    assert list(stubs[1].adapters.values()) == ["old"]
    before = len(stubs[1].asked)
    ids, expected = play(engine, 60)
    assert ids == expected("new")
    assert len(stubs[1].asked) > before
    assert list(stubs[1].adapters.values()) == ["new"]


def test_an_answer_in_another_name_is_not_taken(start, connect):
    """As from a proxy or a server that falls back to what it has."""
    liar = start(
        lambda path, body: (
            completion(body | {"model": "base"}, [7, END]) if path == "/v1/completions" else None
        )
    )
    honest = start()
    engine = connect(liar, honest)
    engine.refresh(1, saves("one"))
    ids, expected = play(engine)
    assert ids == expected("one")
    alone = connect(liar)
    alone.refresh(1, saves("one"))
    with pytest.raises(EngineLost, match="it answers as 'base'"):
        play(alone, 1)


def test_a_name_is_never_used_twice(start, connect, tmp_path):
    stub = start()
    first, second, elsewhere = connect(stub), connect(stub), connect(stub, folder=tmp_path / "other")
    for engine, weights in ((first, "a"), (second, "b"), (elsewhere, "c"), (first, "d")):
        engine.refresh(7, saves(weights))
    assert len(set(stub.loads)) == len(stub.loads) == 4
    for engine, weights in ((first, "d"), (second, "b"), (elsewhere, "c")):
        ids, expected = play(engine)
        assert ids == expected(weights)


def test_a_restarted_server_is_given_the_adapter_again(start, connect):
    stub = start()
    engine = connect(stub)
    engine.refresh(1, saves("one"))
    for _ in range(2):
        stub.restart()
        ids, expected = play(engine, 20)
        assert ids == expected("one")
    assert len(stub.loads) == 3


def test_a_server_that_restarts_while_it_works_is_given_the_adapter_again(start, connect):
    stub = start(
        lambda path, body: (
            stub.adapters.clear() if path == "/v1/completions" and len(stub.asked) == 5 else None
        )
    )
    engine = connect(stub, concurrency=4)
    engine.refresh(1, saves("one"))
    ids, expected = play(engine, 20)
    assert ids == expected("one")
    assert len(stub.loads) > 1


def test_a_server_that_keeps_forgetting_is_no_server(start, connect):
    """As several processes behind one address would."""
    stub = start(
        lambda path, body: (404, error("does not exist", 404)) if path == "/v1/completions" else None
    )
    engine = connect(stub)
    engine.refresh(1, saves("one"))
    with pytest.raises(EngineLost, match="api-server-count 1"):
        play(engine, 2)


def test_what_a_killed_process_left_is_cleared_away_and_nothing_else(start, connect, tmp_path):
    stub, root = start(), tmp_path / "run" / "served"
    live = connect(stub)
    live.refresh(1, saves("live"))
    killed = connect(stub)
    killed.refresh(1, saves("killed"))
    name = killed._adapter.name
    ended = subprocess.Popen(["true"])
    ended.wait()
    gone = name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")
    assert gone != name
    shutil.copytree(root / name, root / gone)
    stub.adapters[gone] = "killed"
    (root / name.replace(f"-{os.getpid()}-", f"-{os.getppid()}-")).mkdir()  # of a process that lives
    (root / f"smopd-000000000000-{ended.pid}-ab-1-v1").mkdir()  # another run's
    after = connect(stub)
    assert not (root / gone).exists()
    after.refresh(2, saves("after"))
    assert gone in stub.unloads
    assert len(list(root.iterdir())) == 5
    ids, expected = play(live)
    assert ids == expected("live")


def test_an_adapter_is_seen_whole_or_not_at_all(tmp_path):
    store, seen = AdapterStore(tmp_path, tmp_path), []

    def save(folder):
        seen.extend(path.name for path in tmp_path.iterdir())
        (folder / "weights").write_text("x")

    adapter = store.write(1, save)
    assert adapter.is_absolute()
    assert adapter.name not in seen
    assert [path.name for path in tmp_path.iterdir()] == [adapter.name]
