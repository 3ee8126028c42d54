"""A run in the terminal while it trains."""

import json

import pytest
from support.looked import made_run

from smopd.viewer.watch import sparkline


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return made_run(tmp_path_factory.mktemp("watch") / "run", items=1, steps=3, text="\x1b[31m[bold]evil")


def test_a_look_has_curves_throughput_and_the_last_conversation(smopd, run):
    code, out, _ = smopd("watch", str(run), "--once")
    assert code == 0
    for text in (
        "step 3/3",
        "1.8 s/step",
        "56 tokens/s",
        "finished",
        "loss",
        "step 3, train-3-0",
        "message 1",
    ):
        assert text in out, text
    assert "\x1b" not in out
    assert "[bold]evil" in out


def test_as_numbers_while_it_works(smopd, run, tmp_path):
    config = (run / "config.toml").read_text().replace("steps = 3", "steps = 13")
    (run / "config.toml").write_text(config)
    (run / ".lock").write_text("pid 1")
    code, out, _ = smopd("watch", str(run), "--json")
    (run / ".lock").unlink()
    now = json.loads(out)
    assert code == 0
    assert (now["step"], now["steps"], now["working"]) == (3, 13, True)
    assert now["seconds_left"] == pytest.approx(18.0)
    assert now["warnings"] == ["the gradient is not finite \x1b[31m[bold]evil"]


def test_what_is_no_run_is_named(smopd):
    code, _, err = smopd("watch", "nowhere")
    assert code == 2
    assert "nowhere" in err


def test_a_sparkline_has_its_width_and_gaps():
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, None, 1], 9) == "▁ ▁"
    assert len(sparkline(list(range(500)), 40)) == 40
    assert sparkline([None], 5) == ""
