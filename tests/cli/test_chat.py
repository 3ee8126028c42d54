"""`smopd chat`: what is said to whom, what is shown, and that nothing a model says is obeyed."""

import io
import json
import signal
import threading

import pytest
from support.chat_stub import said
from support.runs import replies

from smopd.data import load_examples

ENDPOINT = ("chat", "tiny", "--engine", "openai", "--url")


@pytest.fixture
def pipe(smopd, monkeypatch):
    """Chat with these lines on standard input."""

    def call(*args: str, lines: tuple[str, ...] = ()) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        return smopd(*args)

    return call


@pytest.fixture
def typed(smopd, monkeypatch):
    """Chat with these lines typed on a keyboard; a function is called instead."""

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    def call(*args: str, lines: tuple = ()) -> tuple[int, str, str]:
        waiting = list(lines)

        def read() -> str:
            if not waiting:
                raise EOFError
            line = waiting.pop(0)
            return line() if callable(line) else line

        monkeypatch.setattr("sys.stdin", Keyboard())
        monkeypatch.setattr("builtins.input", read)
        return smopd(*args)

    return call


def echo(body, _):
    """A model that repeats what it was told."""
    return said(f"told {[m['content'] for m in body['messages']]}")


def test_the_history_undo_reset_clean_and_the_end(pipe, chat_server):
    stub = chat_server(echo)
    lines = (
        "one",
        "",
        "two",
        "/undo",
        "three",
        "/clean",
        "/undo",
        "/reset",
        "/undo",
        "/what",
        "four",
        "/quit",
        "five",
    )
    code, out, err = pipe(*ENDPOINT, stub.url, "--system", "Be brief.", "--json", lines=lines)
    assert code == 0, err
    sent = [[m["content"] for m in request["body"]["messages"]][1:] for request in stub.requests]
    one = f"told {['Be brief.', 'one']}"
    assert sent == [["one"], ["one", one, "two"], ["one", one, "three"], ["one three"], ["four"]]
    assert all(r["body"]["messages"][0] == {"role": "system", "content": "Be brief."} for r in stub.requests)
    talk = json.loads(out)  # one object, and nothing else
    assert [turn["user"] for turn in talk["turns"]] == ["four"]
    assert talk["turns"][0]["replies"]["model"]["text"] == f"told {['Be brief.', 'four']}"
    assert [one["user"] for one in talk["clean"]] == ["one three"]
    for shown in (
        "(taken back: two)",
        "(there is nothing to take back)",
        "/what: no such command",
        "/clean   what",
    ):
        assert shown in err


def test_no_control_character_of_a_model_reaches_the_terminal(pipe, chat_server):
    stub = chat_server(lambda body, _: said("\x1b[2J\x1b]0;owned\x07[red]fine[/red]\x9b\u202e\u2028ok\r\n"))
    code, out, err = pipe(*ENDPOINT, stub.url, lines=("hi\x1b[31m", "/clean"))
    assert code == 0, err
    assert "[red]fine[/red]" in out
    for hidden in "\x1b\x07\x9b\u202e\u2028\r":
        assert hidden not in out + err


def test_base_and_trained_answer_as_they_do_in_an_evaluation(pipe, smopd, run, tmp_path, monkeypatch):
    task = load_examples("pocket:eval:4")[2]
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = pipe("chat", "run", "--task", task.id, "--json", lines=("/clean",))
    assert code == 0, err
    talk = json.loads(out)
    assert tuple(turn["user"] for turn in talk["turns"]) == task.shards
    assert talk["clean"][0]["user"] == task.full
    evaluated = json.loads(smopd("eval", "run", "--json")[1])
    for side, folder in (("base", evaluated["base"]["folder"]), ("trained", evaluated["folder"])):
        played = replies(tmp_path / folder)
        assert [turn["replies"][side]["text"] for turn in talk["turns"]] == played[task.id, "sharded"]
        assert talk["clean"][0]["replies"][side]["text"] == played[task.id, "full"][0]
        assert set(talk["verdicts"][side]) == {"correct", "extracted", "status", "detail"}
    # Side by side from 100 columns on, else one below the other.
    together = [line for line in err.splitlines() if "base" in line and "trained" in line]
    assert together
    assert "user, 1 of" in err
    monkeypatch.setenv("COLUMNS", "99")
    code, out, err = pipe("chat", "run", "--set", "eval.tokens=4", lines=("Hello.",))
    assert code == 0, err
    assert not [line for line in out.splitlines() if "base" in line and "trained" in line]
    assert out.index("\nbase") < out.index("\ntrained")
    assert "you\nHello." in out


def test_a_model_alone_and_ctrl_d(typed, chat_server):
    code, out, err = typed("chat", "pocket", "--set", "eval.tokens=4", lines=("Hello.", "/help"))
    assert code == 0, err
    assert "model (cut by the token limit)" in out
    assert "base" not in out
    assert "/undo    take the last message back" in err


def test_ctrl_c_stops_a_reply_and_at_the_prompt_says_how_to_end(typed, chat_server):
    def answer(body, _):
        if body["messages"][-1]["content"] == "long":
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            stub.closing.wait(30)
        return said("short")

    def interrupt() -> str:
        raise KeyboardInterrupt

    stub = chat_server(answer)
    code, out, err = typed(*ENDPOINT, stub.url, "--json", lines=("one", "long", interrupt, "two"))
    assert code == 0, err
    assert "(stopped; that message is not in the history)" in err
    assert "(Ctrl-D or /quit ends)" in err
    assert [turn["user"] for turn in json.loads(out)["turns"]] == ["one", "two"]
    assert [m["content"] for m in stub.requests[-1]["body"]["messages"]] == ["one", "short", "two"]


def test_a_refusal_is_said_and_a_typed_conversation_goes_on(typed, pipe, chat_server):
    def answer(body, _):
        return (400, "too long") if len(body["messages"]) > 1 else said("short")

    stub = chat_server(answer)
    code, out, err = typed(*ENDPOINT, stub.url, "--json", lines=("one", "two"))
    assert code == 0
    assert "too long" in err
    assert [turn["user"] for turn in json.loads(out)["turns"]] == ["one"]
    code, _, err = pipe(*ENDPOINT, stub.url, lines=("one", "two"))
    assert code == 2
    assert "too long" in err


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["pocket", "--task", "nosuch"], "--task nosuch: no such task in pocket:eval"),
        (["pocket", "--data", "pocket:eval:3"], "add --task ID"),
        (["pocket", "--task", "x", "--system", "y"], "--system: a task has its own"),
        (["pocket", "--no-base"], "--no-base: pocket is no run folder"),
        (["pocket", "--url", "http://localhost:1"], "--url: the engine hf has no servers"),
        (["./nosuch"], "no such model folder"),
        (["pocket", "--adapter", "nosuch"], "neither a PEFT adapter"),
    ],
)
def test_mistakes_are_named(pipe, args, message):
    code, out, err = pipe("chat", *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_verifier_that_only_says_no_is_not_told_as_no_answer(pipe, tmp_path):
    (tmp_path / "own.py").write_text(
        "from smopd.verify import verifier\n\n@verifier('strict')\ndef strict(answer, reply):\n    return 0\n"
    )
    row = {"id": "a", "task": "strict", "shards": ["How many?", "3."], "full": "3. How many?"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row | {"answer": {"value": 3}}) + "\n")
    args = ("chat", "pocket", "--data", "d.jsonl", "--verifiers", "own.py", "--task", "a")
    code, out, err = pipe(*args, "--set", "eval.tokens=4", lines=())
    assert code == 0, err
    assert "wrong, expected 3" in out + err
    assert "no answer found" not in out + err
