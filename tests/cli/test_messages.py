"""Whatever a user gets wrong is said in words that name the place and the way out; nothing is begun before.

Tests may run as root, for whom no permission binds: targets that cannot be written have a file in their way,
or are in /proc.
"""

import io
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.fuzzed import VERIFIER, make_adapter, make_run, outcome
from support.synthetic_study import study

from smopd import progress
from smopd.config import load_config
from smopd.config_io import to_toml
from smopd.data import load_examples
from smopd.data.sharding import check_shards
from smopd.evaluation.metrics import summarise
from smopd.study.results import save_results
from smopd.viewer.report import Accuracy, ShownComparison
from smopd.viewer.terminal import accuracy_table, summary_table

GOOD = load_examples("pocket:train:1")[0].to_json()
LINE = json.dumps(GOOD).encode() + b"\n"
PAIR = {"question": "Tom has 3 apples. Ana gives him 4. How many does he have?", "answer": 7}
BOM = b"\xef\xbb\xbf"


def refused(result: tuple[int, str, str]) -> str:
    """What a command that ended with code 2 said."""
    code, out, err = result
    assert code == 2, err
    assert out == ""
    assert "Traceback" not in err
    return err


@pytest.fixture
def nothing_is_computed(monkeypatch):
    """A model that is loaded, or a report that is drawn, fails the test."""

    def begun(*_, **__):
        raise AssertionError("the work has begun")

    for place in ("rollout.assembly.load_model", "training.loop.load_model", "runs.export.load_model",
                  "study.report.make_document", "data.training_set.compose.build"):  # fmt: skip
        monkeypatch.setattr(f"smopd.{place}", begun)


# --- data
@pytest.mark.parametrize("field", ["id", "full", "system", "shards", "answer"])
def test_half_a_character_is_named_by_line_and_field(smopd, tmp_path, field):
    broken = {"shards": ["a \ud800", "b"], "answer": {"value": "\ud800"}}.get(field, "a \ud800 b")
    (tmp_path / "d.jsonl").write_bytes(LINE + json.dumps(GOOD | {"id": "x", field: broken}).encode())
    message = f"d.jsonl, line 2, field '{field}': half a character (\\ud800 without its other half)"
    for args in (("data", "check"), ("data", "stats"), ("eval", "pocket", "--data")):
        assert message in refused(smopd(*args, "d.jsonl"))
    assert message in refused(smopd("train", "pocket", "--out", "r", "--set", "data.train=d.jsonl"))
    whole = json.dumps(GOOD | {"full": "a \U0001f600 b"})
    assert "\\ud83d" in whole
    (tmp_path / "pair.jsonl").write_text(whole)
    assert smopd("data", "check", "pair.jsonl")[0] == 0


def test_half_a_character_in_questions(smopd, tmp_path):
    (tmp_path / "q.jsonl").write_text(json.dumps(PAIR | {"question": "Tom has 3 \udfff. How many?"}))
    err = refused(smopd("data", "shard", "q.jsonl", "o.jsonl", "--task", "math"))
    assert "q.jsonl, line 1, field 'question': half a character" in err


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": NaN}', "line 1: not valid JSON: NaN is no number"),
        ('{"id": ' + "9" * 5000 + "}", "line 1: not valid JSON: a number of too many digits"),
        ("[" * 5000, "nested too deeply"),
        (
            json.dumps(GOOD | {"answer": {"value": json.loads("[" * 90 + "]" * 90)}}),
            "field 'answer': nested too",
        ),
        (
            json.dumps(GOOD | {"full": "a" * 1_000_001}),
            "field 'full': 1,000,001 characters; at most 1,000,000",
        ),
        ("", "d.jsonl: holds no examples"),
        ("\0\0\0", "line 1: not valid JSON"),
    ],
)
def test_odd_lines_are_named(smopd, tmp_path, line, message):
    (tmp_path / "d.jsonl").write_text(line)
    assert message in refused(smopd("data", "check", "d.jsonl"))


def test_a_mark_in_front_is_no_part_of_the_text(smopd, tmp_path):
    files = {"d.jsonl": LINE, "d.json": b"[" + LINE + b"]", "q.jsonl": json.dumps(PAIR).encode(),
             "r.toml": b'method = "baseline"\n', "own.py": VERIFIER.encode()}  # fmt: skip
    for name, content in files.items():
        (tmp_path / name).write_bytes(BOM + content)
    for command_line in (
        "data check d.jsonl", "data check d.json --verifiers own.py", "train r.toml --dry-run",
        "data shard q.jsonl o.jsonl --task math",
    ):  # fmt: skip
        code, _, err = smopd(*command_line.split())
        assert code == 0, err


@pytest.mark.parametrize(
    ("name", "content", "command_line"),
    [
        ("d.jsonl", LINE + b'{"id": "\xff"}', "data check d.jsonl"),
        ("d.jsonl", LINE + b'{"id": "\xff"}', "eval pocket --data d.jsonl"),
        ("q.jsonl", json.dumps(PAIR).encode() + b"\n{\xff}", "data shard q.jsonl o.jsonl --task math"),
        ("r.toml", b'method = "entropy"\n# caf\xe9\n', "train r.toml --dry-run"),
        ("s.toml", b'name = "s"\n# caf\xe9\n', "study s.toml"),
        ("own.py", b"import math\n# caf\xe9\n", "data check pocket:eval:2 --verifiers own.py"),
    ],
)
def test_text_that_is_not_utf8_is_named_by_line(smopd, tmp_path, name, content, command_line):
    (tmp_path / name).write_bytes(content)
    err = refused(smopd(*command_line.split()))
    assert f"{name}, line 2: not UTF-8 text (byte 0x" in err
    assert "save it as UTF-8" in err
    (tmp_path / name).write_bytes(content.decode("latin-1").encode("utf-16"))
    if name != "own.py":
        assert f"{name}: is UTF-16 text; save it as UTF-8" in refused(smopd(*command_line.split()))


@pytest.mark.parametrize("command_line", [
    "data check here", "data stats here", "data shard here o.jsonl --task math", "eval pocket --data here",
    "train here --dry-run", "study here", "data check pocket:eval:2 --verifiers here", "methods show here.py",
])  # fmt: skip
def test_a_folder_in_the_place_of_a_file_is_called_one(smopd, tmp_path, command_line):
    (tmp_path / "here").mkdir()
    (tmp_path / "here.py").mkdir()
    assert "is a folder" in refused(smopd(*command_line.split()))


def test_a_file_that_may_not_be_read_or_has_no_end_is_called_so(smopd, tmp_path, monkeypatch):
    assert "/dev/zero: is a device or socket; expected a data file" in refused(
        smopd("data", "check", "/dev/zero")
    )
    (tmp_path / "d.jsonl").write_bytes(LINE)

    def forbidden(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", forbidden)  # root may read everything
    assert "d.jsonl: may not be read by you" in refused(smopd("data", "check", "d.jsonl"))


def test_long_words_and_lines_take_no_time(smopd, tmp_path):
    """A word of 40,000 letters took 35 s, and a line of 100 MB had no end."""
    hard = ["a" * 40_000, "A" * 19_000, "aB" * 9_000, "?" * 19_000, "'a " * 6_000, "“" * 19_000,
            "a. " * 6_000, "(). " * 4_500]  # fmt: skip
    began = time.process_time()
    for text in hard:
        check_shards(text, [text[: len(text) // 2], text[len(text) // 2 :]], most_new=1.0, goal=False)
    rows = [GOOD | {"id": str(k), "full": text, "shards": ["a", text]} for k, text in enumerate(hard)]
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = smopd("data", "check", "d.jsonl")
    assert code == 0, err
    assert "over 40,000 characters: its shards were not compared with its request: 1" in out
    (tmp_path / "big.jsonl").write_text(json.dumps(GOOD | {"full": "a" * 20_000_000}))
    assert "20,000,000 characters; at most 1,000,000" in refused(smopd("data", "check", "big.jsonl"))
    assert time.process_time() - began < 20


# --- targets
TARGETS = [
    "train pocket --out {}", "quickstart --out {}", "eval pocket --limit 1 --out {}", "export adapter {}",
    "data pocket {} --count 1", "data stats pocket:eval:2 --plot {}/x.svg", "study miniature --out {}",
    "data shard q.jsonl {} --task math", "data build raw {} --domains math",
    "report results.json --out {}", "study miniature --out {} --print-commands",
]  # fmt: skip


@pytest.mark.parametrize("command_line", TARGETS)
def test_a_target_that_cannot_be_written_is_refused_before_the_work(
    smopd, tmp_path, nothing_is_computed, command_line
):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "q.jsonl").write_text(json.dumps(PAIR))
    (tmp_path / "raw").mkdir()
    make_adapter(tmp_path / "adapter")
    save_results(tmp_path / "results.json", study(["one"], seeds=(1,), items=3))
    for target in ("file/x", "file/x/y", "/proc/nothere", "/proc/nothere/x", "x" * 300):
        err = refused(smopd(*command_line.format(target).split()))
        assert target.partition("/x")[0] in err.replace("\n", "")
        assert "cannot be written" in err or "File name too long" in err
    assert (tmp_path / "file").read_text() == "mine"
    for target in ("file",):
        refused(smopd(*command_line.format(target).split()))
    assert (tmp_path / "file").read_text() == "mine"


# --- adapters and models
@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("adapter_model.safetensors", None, "adapter: holds no adapter_model.safetensors"),
        ("adapter_model.safetensors", b"", "adapter/adapter_model.safetensors: damaged"),
        ("adapter_model.safetensors", 60, "adapter/adapter_model.safetensors: damaged"),
        ("adapter_config.json", None, "adapter: neither a PEFT adapter (no adapter_config.json)"),
        ("adapter_config.json", b"{oops", "adapter/adapter_config.json: not valid JSON"),
        (
            "adapter_config.json",
            b"[]",
            "adapter/adapter_config.json: expected the settings of a LoRA adapter",
        ),
        ("adapter_config.json", b"\xff", "adapter/adapter_config.json, line 1: not UTF-8 text"),
    ],
)
def test_a_damaged_adapter_is_named(smopd, tmp_path, nothing_is_computed, name, damage, message):
    make_adapter(tmp_path / "adapter")
    file = tmp_path / "adapter" / name
    whole = file.read_bytes()
    file.unlink()
    if damage is not None:
        file.write_bytes(whole[:damage] if isinstance(damage, int) else damage)
    assert message in refused(smopd("eval", "pocket", "--adapter", "adapter", "--limit", "1"))
    assert message in refused(smopd("export", "adapter", "out"))


@pytest.mark.parametrize("kind", ["nf4", "int8"])
def test_a_quantised_base_says_that_it_needs_a_gpu(smopd, monkeypatch, kind):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    err = refused(smopd("eval", "pocket", "--limit", "1", "--set", f"model.quantize={kind}"))
    assert f"model.quantize: {kind} needs a GPU, and torch sees none; --set model.quantize=none" in err


@pytest.mark.parametrize(
    "content", [b"", b"not a gguf", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"GGUF\x03\0\0\0" + b"\0" * 16]
)
def test_a_broken_gguf_is_named(smopd, tmp_path, content):
    pytest.importorskip("gguf")
    (tmp_path / "b.gguf").write_bytes(content)
    err = refused(smopd("eval", "b.gguf", "--limit", "1", "--data", "pocket:eval:1"))
    assert "model.path: b.gguf: cannot be loaded: not a whole GGUF file" in err


# --- names and settings
def test_names_that_are_nearly_right(smopd):
    for views in ("ful", "sharded,ful"):
        assert "did you mean 'full'?" in refused(smopd("eval", "pocket", "--views", views))
    assert "did you mean 'snowball'?" in refused(smopd("eval", "pocket", "--set", 'eval.views=["snowbal"]'))
    assert "did you mean 'miniature'?" in refused(smopd("study", "minature"))
    err = refused(smopd("study", "nothere.toml"))
    assert "nothere.toml: no such study file. The shipped studies are" in err
    assert "did you mean" not in err


def test_own_verifiers_are_known_to_a_plan_and_to_a_dry_run(smopd, tmp_path):
    (tmp_path / "own.py").write_text(VERIFIER)
    (tmp_path / "d.jsonl").write_text(json.dumps(GOOD | {"task": "units", "answer": {"value": 1}}))
    settings = ("--set", "data.train=d.jsonl", "--set", 'data.verifiers=["own.py"]')
    code, out, err = smopd("plan", "pocket", *settings)
    assert code == 0, err
    assert "words of d.jsonl" in out
    code, out, _ = smopd("train", "pocket", "--dry-run", *settings)
    assert code == 0
    assert "# memory, MB: " in out
    (tmp_path / "own.py").unlink()
    for verb in (("plan", "pocket"), ("train", "pocket", "--dry-run")):
        assert "own.py: no such file of verifiers" in refused(smopd(*verb, *settings))


@pytest.mark.parametrize("value", ["-1", "0", str(10**30), "9" * 5000, "nan", "1.5", "[]", "[" * 500, "x\0y"])
def test_settings_out_of_range_are_refused(smopd, value):
    assert "train.steps" in refused(smopd("train", "pocket", "--dry-run", "--set", f"train.steps={value}"))


# --- results and run folders
def test_results_without_runs(smopd, tmp_path):
    results = tmp_path / "results.json"
    save_results(results, study(["one"], seeds=(1,), items=3))
    tree = json.loads(results.read_text())
    for change, message in (
        ({"cells": [], "base": []}, "results.json: holds no run"),
        ({"views": []}, "results.json: views, models and runs"),
        ({"runs": 0}, "results.json: views, models and runs"),
        ({"runs": "1"}, "field 'runs': expected a whole number, found a text"),
        ({"items": []}, "cells 1, field 'right.full': expected a digit for each of 0 items"),
        ({"cells": None}, "field 'cells': expected a list, found null"),
    ):
        results.write_text(json.dumps(tree | change))
        assert message in refused(smopd("report", "results.json"))
    del tree["runs"]
    results.write_text(json.dumps(tree))
    assert "results.json: not the results of a study (expected the keys" in refused(
        smopd("report", "results.json")
    )
    assert "nothere.json: no such folder or file" in refused(smopd("report", "nothere.json"))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metrics.jsonl", b'{"loss": 1}\n', "run/metrics.jsonl, line 1, field 'step': missing"),
        ("metrics.jsonl", b"[]\n", "run/metrics.jsonl, line 1: expected an object, found a list"),
        (
            "timings.jsonl",
            b'{"step": "1"}\n',
            "run/timings.jsonl, line 1, field 'step': expected a whole number",
        ),
        ("config.toml", b"oops", "run/config.toml: not valid TOML"),
        ("config.toml", b"[of]\nanother = 1", "run/config.toml: unknown key 'of.another'"),
        ("eval/base/summary.json", b"{", "run/eval/base/summary.json: not valid JSON"),
        ("eval/base/summary.json", b"{}", "run/eval/base/summary.json, field 'runs': missing"),
        (
            "eval/base/conversations.jsonl",
            b'{"id": "a"',
            "run/eval/base/conversations.jsonl, line 1: not a conv",
        ),
        (
            "eval/base/conversations.jsonl",
            b'{"id": "a"}',
            "conversations.jsonl, line 1, field 'view': missing",
        ),
    ],
)
def test_a_damaged_run_folder_is_named_by_file(smopd, tmp_path, file, content, message):
    make_run(tmp_path / "run", to_toml(load_config("pocket")))
    assert smopd("report", "run")[0] == 0
    (tmp_path / "run" / file).write_bytes(content)
    assert message in refused(smopd("report", "run"))


# --- what a terminal shows
TABLES = [
    "methods", "plan pocket qwen3-1.7b qwen3-4b qwen3-8b", "data stats pocket:eval:40",
    "eval compare run/eval/base run/eval/trained", "study list",
]  # fmt: skip


@pytest.mark.parametrize("command_line", TABLES)
def test_tables_fit_eighty_columns(smopd, tmp_path, monkeypatch, command_line):
    monkeypatch.setenv("COLUMNS", "80")
    make_run(tmp_path / "run", to_toml(load_config("pocket")))
    code, out, err = smopd(*command_line.split())
    assert code == 0, err
    assert out.strip()
    assert max(map(len, out.splitlines())) <= 80, max(out.splitlines(), key=len)
    assert "…" not in out


def test_the_tables_of_an_evaluation_fit_eighty_columns():
    """Also those of several runs and views: what does not fit is continued below, never cut."""
    example = load_examples("pocket:eval:1")[0]
    outcomes = [
        replace(outcome(example, view, (k + run) % 3 > 0), id=f"item {k}", run=run)
        for view in ("full", "sharded", "snowball") for run in range(3) for k in range(7)
    ]  # fmt: skip
    once, often = summarise([o for o in outcomes if not o.run]), summarise(outcomes)
    rows = [
        Accuracy(stage, view, 396, 400, 0.975, 0.996)
        for stage in ("base", "trained")
        for view in ("FULL", "SHARDED")
    ]
    change = ShownComparison("SHARDED: base against trained", 156, 23, 0.333, 0.274, 0.388, 1e-9)
    for table, numbers in (
        (summary_table(once), "57.1% 0.0 FULL SHARDED SNOWBALL"),
        (summary_table(often), "66.7% 100.0% A90 unreliability SNOWBALL"),
        (accuracy_table(rows, [change]), "99.0% (396/400) +33.3 156"),
    ):
        screen = Console(file=io.StringIO(), width=80, highlight=False)
        screen.print(table)
        shown = screen.file.getvalue()
        assert max(len(line.rstrip()) for line in shown.splitlines()) <= 80
        assert "…" not in shown
        assert [word for word in numbers.split() if word not in shown] == []


def test_an_evaluation_shows_itself_before_its_first_group_ends(smopd, monkeypatch):
    output = io.StringIO()
    screen = Console(file=output, force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr(progress, "console", screen)
    notes = []
    update = progress.Progress.update

    def listen(bar, task, completed, note):
        notes.append((bar.tasks[0].description, completed, note))
        update(bar, task, completed=completed, note=note)

    monkeypatch.setattr(progress.Progress, "update", listen)
    code, _, err = smopd(
        "eval", "pocket", "--limit", "3", "--set", "eval.tokens=4", "--set", "eval.middle_tokens=4"
    )
    assert code == 0, err
    assert notes[0] == ("eval FULL", 0, "1 reply")
    sharded = [(done, note) for what, done, note in notes if what == "eval SHARDED"]
    assert sharded[:3] == [(0, "1 reply"), (0, "2 replies"), (0, "3 replies")]
    assert len(sharded) > 4
    assert sharded[-1] == (3, "")
    assert "loading pocket" in output.getvalue()


def test_quick_work_says_nothing_and_slow_work_does(monkeypatch):
    output = io.StringIO()
    monkeypatch.setattr(progress, "console", Console(file=output, force_terminal=False))
    with progress.delayed_status("planning"):
        pass
    assert output.getvalue() == ""
    monkeypatch.setattr(progress, "LATE", 0.01)
    with progress.delayed_status("planning"):
        deadline = time.monotonic() + 10
        while not output.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert output.getvalue() == "planning\n"


def test_a_terminal_of_another_encoding_is_no_error(smopd, monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    code, _, err = smopd("data", "stats", "pocket:eval:4")
    assert code == 0, err
    stream.flush()
    assert b"?" in stream.buffer.getvalue()
