"""`python -m benchmarks device`: its counts are those of a step, and bounded by layers and tokens."""

import json

import pytest

from benchmarks import device
from benchmarks.__main__ import main
from benchmarks.device import PHASES, Device, count_step, report

SMALL = {"rollouts": 2, "micro_batch": 2, "reply": 4, "layers": 1}


def counts(**more) -> dict:
    step_counts = count_step(Device(**{**SMALL, **more}))
    assert tuple(step_counts["phases"]) == PHASES
    assert not step_counts["skipped"]
    return step_counts


@pytest.fixture(scope="module")
def small() -> dict:
    return counts()


def of(step_counts: dict, phase: str, name: str) -> int:
    return step_counts["phases"][phase][name]


def test_tokens_make_no_host_wait(small):
    """Twice, four times the tokens: not one wait more in scoring and update, launches at most affine."""
    double, fourfold = counts(reply=8), counts(reply=16)
    tokens = [step_counts["tokens"] for step_counts in (small, double, fourfold)]
    assert tokens[1] > 1.8 * tokens[0]
    assert tokens[2] > 3.4 * tokens[0]
    for step_counts in (small, double, fourfold):
        assert (
            of(step_counts, "scoring", "syncs") == 2
        )  # the statistics: numbers, and which of them are over the cap
        assert of(step_counts, "update", "syncs") == 1  # the norm of the gradient
        assert of(step_counts, "update", "launches") == of(small, "update", "launches")
    launches = [of(step_counts, "scoring", "launches") for step_counts in (small, double, fourfold)]
    assert launches[2] - launches[1] <= 2 * max(launches[1] - launches[0], 0.1 * launches[0])
    # Sampling does wait, for every token of a batch together.
    waits = [of(step_counts, "rollout", "syncs") for step_counts in (small, double, fourfold)]
    assert max(w / n for w, n in zip(waits, tokens, strict=True)) <= 1.3 * waits[0] / tokens[0]
    assert of(counts(rollouts=4, micro_batch=4), "rollout", "syncs") <= 1.5 * waits[0]


def test_replies_make_no_host_wait_either(small):
    more = counts(rollouts=6, micro_batch=6)
    assert more["tokens"] > 2 * small["tokens"]
    for phase in ("scoring", "update"):
        assert of(more, phase, "syncs") == of(small, phase, "syncs")


def test_micro_batches_add_none_of_their_own(small):
    assert of(counts(micro_batch=1), "scoring", "syncs") == of(small, "scoring", "syncs") == 2


def test_every_layer_costs_the_same(small):
    two, three = counts(layers=2), counts(layers=3)
    for phase in PHASES:
        first, second, third = (of(step_counts, phase, "launches") for step_counts in (small, two, three))
        # Another model samples other replies, whose packed rows branch elsewhere.
        assert 0 < third - second <= 1.25 * (second - first)
        assert of(small, phase, "syncs") == of(three, phase, "syncs")


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ({"dtype": "bfloat16"}, 2),
        ({"recompute": True}, 2),
        ({"method": "soft-or"}, 2),
        ({"method": "relative-cap"}, 2),
        ({"method": "balanced"}, 3),  # the norms of the terms
        ({"method": "tip"}, 4),  # a survey copies the statistics once more
    ],
    ids=str,
)
def test_waits_of_other_steps(more, waits):
    assert of(counts(**more), "scoring", "syncs") <= waits


def run(monkeypatch, capsys, *options: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.argv", ["benchmarks", "device", *options])
    with pytest.raises(SystemExit) as ended:
        main()
    return (int(ended.value.code or 0), *capsys.readouterr())


def test_the_report(monkeypatch, capsys):
    options = ["--rollouts", "1", "--reply", "3", "--layers", "1"]
    code, out, err = run(monkeypatch, capsys, *options, "--json")
    assert code == 0, err
    device_report = json.loads(out)
    assert device_report["bench"] == "device"
    assert [row["name"] for row in device_report["results"]] == list(PHASES)
    for row in device_report["results"]:
        assert row["launches_per_token"] == pytest.approx(row["launches"] / device_report["tokens"])
        assert row["launches_per_layer"] == row["launches"]
    assert device_report == json.loads(json.dumps(report(Device(1, 1, 3, 1))))
    code, out, _ = run(monkeypatch, capsys, *options)
    assert code == 0
    assert "syncs a token" in out
    assert f"{device_report['results'][1]['launches']:,}" in out
    code, _, err = run(monkeypatch, capsys, "--method", "entropi")
    assert code == 2
    assert "entropy" in err


def test_without_the_tests_it_says_what_is_missing(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(device, "TESTS", tmp_path)
    code, _, err = run(monkeypatch, capsys)
    assert code == 2
    assert "strict_device.py is missing: run this in a whole checkout" in err
