"""What the first user of a GPU runs, here on the CPU with tiny shapes. No test here looks at a time."""

import json

import pytest
import torch
from support.strict_device import DEVICE, strict_device
from typer.testing import CliRunner

from smopd.cli.main import app
from smopd.doctor import speed, speed_parts
from smopd.doctor.clock import clocked
from smopd.doctor.speed_parts import SIZES, SpeedBench, Variant
from smopd.errors import UserError
from smopd.tables import markdown

CPU = torch.device("cpu")
PARTS = ["head", "attention", "scoring step", "training step", "rollout"]


@pytest.fixture(scope="module")
def speed_report(tmp_path_factory):
    """What the command says with everything in it, as JSON and in its file."""
    out = tmp_path_factory.mktemp("bench") / "found.json"
    arguments = ["doctor", "--speed", "--reps", "1", "--out", str(out), "--json"]
    answer = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert json.loads(answer.stdout) == json.loads(out.read_text())
    return json.loads(answer.stdout)


def test_every_part_has_rows_that_ran_or_say_why_not(speed_report):
    assert list(dict.fromkeys(row["part"] for row in speed_report["results"])) == PARTS
    assert not [row for row in speed_report["results"] if "failed" in row]
    for part in PARTS:
        names = [row["name"] for row in speed_report["results"] if row["part"] == part]
        assert names[0] == "ours"
        assert len(names) == len(set(names)) > 1
    for row in speed_report["results"]:
        assert ("seconds" in row) != bool(row.get("skipped"))
        if "seconds" in row:
            assert row["spread"][0] <= row["seconds"] <= row["spread"][1]
    assert {"device", "cpu", "torch", "transformers", "vllm", "liger-kernel"} <= set(speed_report["machine"])
    assert speed_report["settings"]["size"] == "tiny"


@pytest.mark.parametrize(
    ("part", "fact", "close"),
    [
        ("head", "loss", 1e-4),
        ("attention", "value", 1e-5),
        ("scoring step", "loss", 1e-3),
        ("rollout", "sampled_tokens", 0.2),  # other seeds may end a reply
    ],
)
def test_variants_do_the_same_work(speed_report, part, fact, close):
    values = [row[fact] for row in speed_report["results"] if row["part"] == part and "seconds" in row]
    assert len(values) > 1
    assert values == pytest.approx([values[0]] * len(values), rel=close)
    assert values[0] > 0


def test_the_table_holds_every_row_and_every_error(speed_report):
    text = speed.markdown(speed_report)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == 2  # the two tables
    assert len(lines) == 2 + len(speed_report["results"]) + 2 + len(speed_report["precision"])
    for row in speed_report["results"]:
        assert f"| {row['part']} | {row['name']} | {markdown(row.get('skipped', ''))}" in text
    assert "torch 2" in text.splitlines()[0]


def test_errors_against_float64_are_those_of_the_precision(speed_report):
    """In float32 a head is right to some digits; a wrong one is not."""
    rows = [row for row in speed_report["precision"] if "skipped" not in row]
    assert {row["name"] for row in rows} >= {"ours", "plain"}
    assert len({row["divergence"] for row in rows}) == len(speed_parts.DISTANCES)
    for row in rows:
        assert row["gradient_error"] < 1e-2
        if row["divergence"] > 1e-3:
            assert row["value_error"] < 1e-4


def test_a_wrong_head_has_a_large_error(monkeypatch):
    right = speed_parts.mean_divergence

    def wrong(name, student_Nd, *rest):
        return right(name, student_Nd, *rest) * (1.1 if name == "ours" else 1)

    monkeypatch.setattr(speed_parts, "mean_divergence", wrong)
    rows = [row for row in SpeedBench(SIZES["tiny"], CPU, torch.float32).precision() if "value_error" in row]
    for row in (row for row in rows if row["divergence"] > 1e-3):
        assert (row["value_error"] > 0.05) == (row["gradient_error"] > 0.05) == (row["name"] == "ours")


def test_what_a_variant_raises_stands_in_its_row(monkeypatch):
    def broken():
        raise RuntimeError("no kernel image is available\nand more")

    def full():
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 TB")

    rows = [speed.measure_variant(Variant("head", "x", make), CPU, 1) for make in (broken, full)]
    assert [row["failed"] for row in rows] == ["RuntimeError: no kernel image is available", "out of memory"]
    attention_report = speed.report("tiny", 1, only="attention")
    attention_report["results"] += rows
    assert "| head | x | FAILED: out of memory |" in speed.markdown(attention_report)


def test_an_absent_library_is_a_line_of_the_table(monkeypatch):
    monkeypatch.setattr(speed_parts, "find_spec", lambda name: None)
    skipped = {(v.part, v.name): v.missing for v in SpeedBench(SIZES["tiny"], CPU, torch.float32).variants()}
    assert skipped["head", "trl"] == "trl is not installed"
    assert skipped["head", "liger"] == "liger_kernel is not installed"
    assert skipped["rollout", "vllm"] == "vllm is not installed"
    assert skipped["head", "ours"] == ""


def test_a_clock_runs_once_more_than_it_counts_and_sees_the_peak():
    calls = []

    def work():
        calls.append(len(bytearray(b"x") * 80_000_000))
        return len(calls)

    times, result = clocked(work, CPU, 3)
    assert result == 4
    assert times["spread"][0] <= times["seconds"] <= times["spread"][1]
    assert 0 <= times["peak_mb"] < 160


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--speed", "--size", "huge"], "--size: expected tiny, small, full"),
        (["--speed", "--dtype", "int8"], "--dtype: expected float32 or bfloat16"),
        (["--speed", "--only", "head,foot"], "found 'foot'"),
        (["--size", "tiny"], "--size: works with --speed only"),
    ],
)
def test_bad_options_are_named(options, message):
    answer = CliRunner().invoke(app, ["doctor", *options])
    assert isinstance(answer.exception, UserError)
    assert message in str(answer.exception)


def test_the_table_is_printed(tmp_path):
    arguments = ["doctor", "--speed", "--reps", "1", "--only", "head,precision", "--dtype", "bfloat16"]
    answer = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "x.json")], catch_exceptions=False)
    assert "| head | ours |" in answer.stdout
    assert "bfloat16 hidden states" in answer.stdout
    assert "Example: smopd doctor --speed" in CliRunner().invoke(app, ["doctor", "--help"]).stdout


def test_every_part_runs_on_a_device_that_is_not_the_cpu():
    with strict_device():
        bench = SpeedBench(SIZES["tiny"], DEVICE, torch.bfloat16)
        for variant in bench.variants():
            if not variant.missing:
                assert variant.make()()
                bench.opened.close()
        errors = [row for row in bench.precision() if "gradient_error" in row]
    assert {row["name"] for row in errors} >= {"ours", "plain"}
    # Logits are kept in float32, whatever the weights are.
    assert all(row["gradient_error"] < 0.02 for row in errors)
