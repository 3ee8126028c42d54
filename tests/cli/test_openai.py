"""`smopd eval --engine openai` on the command line, against a small server that misbehaves on request."""

import json
import os
import signal
import threading
import time

import pytest
from support.chat_stub import KEY, said
from support.runs import nobody

from smopd.data import Example, load_examples


def right(e: Example) -> str:
    """A reply that the verifier takes."""
    if e.task == "math":
        return f"The answer is {e.answer['value']}."
    ((name, arguments),) = e.answer["calls"][0].items()
    return f"[{name}({', '.join(f'{k}={v[0]!r}' for k, v in arguments.items())})]"


def scholar(body, headers):
    """Right in FULL for the first three examples, in SHARDED for the first alone; wants the key."""
    if headers["Authorization"] != f"Bearer {KEY}":
        return 401, f"wrong key: {headers['Authorization']}", {}
    first, last = ([m["content"] for m in body["messages"] if m["role"] == "user"][i] for i in (0, -1))
    for place, e in enumerate(load_examples("pocket:eval:4")):
        if first == e.full:
            return said(right(e) if place < 3 else "I do not know.")
        if (first, last) == (e.shards[0], e.shards[-1]):
            return said(right(e) if place < 1 else "The answer is 12345.")
    return said("Go on.")


WORDS = ["--engine", "openai", "--data", "pocket:eval:4", "--json", "--set", "engine.retries=0"]


def test_eval_counts_what_the_endpoint_gets_right(smopd, chat_server, tmp_path):
    stub = chat_server(scholar)
    code, out, err = smopd("eval", "tiny", "--url", stub.url, "--url", f"{stub.url}/v1", "--out", "o", *WORDS)
    assert code == 0, err
    summary = json.loads(out)
    assert summary["model"] == "tiny"
    assert [summary["views"][view]["correct"] for view in ("full", "sharded")] == [3, 1]
    assert summary["views"]["full"]["accuracy"] == 0.75
    assert {r["body"]["model"] for r in stub.requests} == {"tiny"}
    rows = [
        json.loads(line) for line in (tmp_path / "o" / "conversations.jsonl").read_text().split("\n") if line
    ]
    assert [r["correct"] for r in rows] == [True, True, True, False, True, False, False, False]
    assert {t["tokens"] for r in rows for t in r["turns"]} == {3}
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert KEY not in written + out + err


def test_an_empty_served_name_leaves_the_choice_to_the_endpoint(smopd, chat_server):
    def answer(body, headers):
        return (
            {"data": [{"id": "org/first"}, {"id": "org/second"}]} if body is None else scholar(body, headers)
        )

    stub = chat_server(answer)
    args = ["--served-model", "", "--views", "full", "--out", "o", *WORDS]
    code, _, err = smopd("eval", "any", "--url", stub.url, *args)
    assert code == 0, err
    assert {r["body"]["model"] for r in stub.requests} == {"org/first"}


def test_eval_looks_up_nothing_local_and_takes_the_served_name(smopd, chat_server, tmp_path):
    stub = chat_server(scholar)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.toml").write_text("this is no run")
    code, out, err = smopd(
        "eval",
        "tiny",
        "--url",
        stub.url,
        "--served-model",
        "org/big",
        "--views",
        "full",
        "--out",
        "o",
        *WORDS,
    )
    assert code == 0, err
    assert json.loads(out)["model"] == "tiny"
    assert {r["body"]["model"] for r in stub.requests} == {"org/big"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["o", "tiny"]


def test_eval_of_an_endpoint_that_is_gone_exits_3(smopd, tmp_path):
    code, out, err = smopd("eval", "tiny", "--url", nobody(), "--out", "o", *WORDS)
    assert (code, out) == (3, "")
    assert "error: no answer from http://127.0.0.1" in err
    assert "Traceback" not in err
    assert not (tmp_path / "o").exists()


def test_eval_with_a_wrong_key_exits_2(smopd, chat_server, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-one")
    code, out, err = smopd("eval", "tiny", "--url", chat_server(scholar).url, "--out", "o", *WORDS)
    assert (code, out) == (2, "")
    assert "401: wrong key" in err
    assert "sk-another-one" not in err
    assert "Traceback" not in err
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["eval", "tiny", "--engine", "openai"], "give its base URL with --url"),
        (
            ["eval", "tiny", "--engine", "openai", "--url", "localhost:1"],
            "expected one such as http://localhost:8000",
        ),
        (
            ["eval", "tiny", "--engine", "openai", "--url", "http://localhost:1", "--adapter", "a"],
            "--adapter: an endpoint plays",
        ),
        (["eval", "tiny", "--engine", "open-ai"], "engine.kind"),
        (["eval", "pocket", "--url", "http://localhost:1"], "--url: the engine hf has no servers"),
        (["eval", "pocket", "--served-model", "x"], "--served-model: the engine is hf"),
        (["train", "pocket", "--set", "engine.kind=openai", "--out", "o"], "openai is for evaluation only"),
        (["quickstart", "--set", "engine.kind=openai", "--out", "o"], "openai is for evaluation only"),
    ],
)
def test_options_that_do_not_go_together_exit_2(smopd, tmp_path, args, message):
    code, out, err = smopd(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_an_evaluation_at_once_and_writes_nothing(smopd, chat_server, tmp_path):
    def answer(body, _):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        stub.closing.wait(30)
        return said("too late")

    stub = chat_server(answer)
    began = time.monotonic()
    code, out, err = smopd(
        "eval", "tiny", "--url", stub.url, "--out", "o", *WORDS, "--limit", "1", "--views", "full"
    )
    assert (code, out) == (130, "")
    assert "nothing was written" in err
    assert time.monotonic() - began < 10
    assert os.listdir(tmp_path) == []
    # The request is still open; the process could end all the same.
    assert [t for t in threading.enumerate() if not t.daemon] == [threading.main_thread()]
