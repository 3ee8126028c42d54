"""What others said reaches the terminal as text alone: servers, models, data files, names, libraries."""

import ast
import io
import json
import logging
import sys
import unicodedata
import warnings
from pathlib import Path

import pytest
from rich.table import Table
from support.chat_stub import said

from smopd import printing
from smopd.formatting import esc, one_line, visible, visible_json
from smopd.printing import console, guard_logs

# Clears the screen, sets the title, reorders, hides, rings: with sequences of C0 and of C1.
EVIL = (
    "\x1b[2J\x1b]0;title\x07\x9b31m\x90q\x9c\u202etxet\u2066\u2069\u200b\u200d\ufeff\u2028\x7f\r\b\U000e0041"
)
LETTERS = "title 31m q txet"


def plain(text: str) -> bool:
    """Whether a terminal would show every character of it, and obey none."""
    hidden = [
        c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in "\n\t"
    ]
    return not hidden


def test_visible_hides_nothing_and_keeps_what_can_be_seen():
    assert plain(visible(EVIL))
    assert all(c in visible(EVIL) for c in LETTERS.replace(" ", ""))
    text = "naïve — 数学 🙂 ❤️ עברית\n\tx ≤ y"
    assert visible(text) == text
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    left = [c for c in visible(every) if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    # Signs that stand before numbers in Arabic, Syriac, Kaithi and Egyptian, and are seen.
    assert {hex(ord(c)) for c in left} - {"0x9", "0xa"} <= {
        *map(hex, range(0x600, 0x606)), "0x6dd", "0x70f", "0x890", "0x891", "0x8e2", "0x110bd", "0x110cd",
        *map(hex, range(0x13430, 0x13440)),
    }  # fmt: skip
    assert plain(esc(EVIL))


def test_a_message_holds_one_line_of_what_others_said():
    assert one_line("a\nerror: b\r\n\tc  d") == "a error: b c d"
    assert one_line("x" * 10**6, 40) == "x" * 39 + "…"
    assert plain(one_line(EVIL))


def test_json_is_plain_and_the_same_value():
    value = {"a": EVIL, EVIL: [1, "\ud800", "é"]}
    written = visible_json(value)
    assert json.loads(written) == value
    assert plain(written)
    assert "\n" not in written
    assert "é" in written


def test_a_table_is_text_alone():
    table = Table("[/red]", EVIL)
    table.add_row("[bold]x[/bold]", EVIL)
    out = io.StringIO()
    console(file=out, force_terminal=True, color_system="truecolor", width=200).print(table)
    text = out.getvalue()
    assert "[/red]" in text
    assert "[bold]x[/bold]" in text
    assert "\x1b[2J" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text


def test_log_lines_and_warnings_of_libraries_too(capsys):
    guard_logs()
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("some_package").addHandler(handler)
    try:
        logging.getLogger("some_package").warning("\x1b[1mLOAD\x1b[0m %s", EVIL)
    finally:
        logging.getLogger("some_package").removeHandler(handler)
    err = capsys.readouterr().err
    assert plain(err)
    assert err.startswith("LOAD ")
    assert plain(warnings.formatwarning(UserWarning(EVIL), UserWarning, "file.py", 1))


@pytest.mark.parametrize("status", [200, 400, 404, 503])
def test_a_server_cannot_write_to_the_terminal(smopd, chat_server, status):
    body = {"error": {"message": EVIL}} if status != 200 else {"choices": EVIL}
    stub = chat_server(lambda *_: (status, body, {}))
    line = ("eval", "m", "--engine", "openai", "--url", stub.url, "--data", "pocket:eval:1")
    code, out, err = smopd(*line, "--views", "full", "--set", "engine.retries=0")
    assert code == {200: 0, 503: 3}.get(status, 2), err
    assert "31m" in err
    assert plain(out + err)


def test_a_model_cannot_write_to_the_terminal(smopd, chat_server, tmp_path):
    stub = chat_server(lambda *_: said(f"{EVIL} The answer is 4."))
    line = ("eval", "m", "--engine", "openai", "--url", stub.url, "--data", "pocket:eval:2", "--json")
    code, out, err = smopd(*line, "--views", "full", "--out", "played")
    assert code == 0, err
    assert plain(out + err)
    kept = (tmp_path / "played/conversations.jsonl").read_text().split("\n")[0]
    assert json.loads(kept)["turns"][0]["reply"].startswith(EVIL)  # as it was said


def test_a_data_file_cannot_write_to_the_terminal(smopd, tmp_path):
    row = {"id": f"a{EVIL}", "task": "math", "system": "", "shards": ["a", "b"], "full": "a b"}
    good, bad = row | {"answer": {"value": "4"}}, row | {"answer": {}, f"x{EVIL}": 1}
    (tmp_path / "good.jsonl").write_text(json.dumps(good) + "\n" + json.dumps(good | {"id": "b"}) + "\n")
    (tmp_path / "bad.jsonl").write_text(json.dumps(bad) + "\n")
    (tmp_path / "odd.jsonl").write_text(json.dumps(good | {"task": f"[/red]{EVIL}"}) + "\n")
    lines = [(verb, f"{name}.jsonl") for verb in ("check", "stats") for name in ("good", "bad", "odd")]
    for line in [*lines, ("check", "good.jsonl", "--json")]:
        code, out, err = smopd("data", *line)
        assert code in (0, 2), err
        assert plain(out + err), line
        assert out + err


def test_a_name_cannot_write_to_the_terminal(smopd, tmp_path):
    name = "\x1b[2J\u202egone"
    for line in (("eval", name), ("export", name, "out"), ("report", name), ("train", name)):
        code, out, err = smopd(*line)
        assert code == 2
        assert "gone" in err
        assert plain(out + err), line


def test_every_verb_prints_through_one_module():
    package = Path(printing.__file__).parent
    for file in (*package.glob("*.py"), *(package / "cli").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and file.name != "printing.py":
                assert ast.unparse(node.func) not in ("print", "typer.echo", "Console", "sys.stdout.write"), (
                    f"{file.name}: {ast.unparse(node)}"
                )
