"""Progress: plain lines without a terminal, a whole line within eighty columns on one."""

import io

import pytest
from rich.console import Console

from smopd import printing, progress
from smopd.progress import not_judged, track, training_note

ROW = {"loss": 0.1234, "outcome": 0.5, "clipped/middle": 0.02, "seconds/step": 4.25}


@pytest.fixture
def screen(monkeypatch):
    def make(terminal: bool, width: int = 80) -> io.StringIO:
        out = io.StringIO()
        monkeypatch.setattr(
            progress, "console", Console(file=out, force_terminal=terminal, width=width, highlight=False)
        )
        return out

    return make


def test_plain_lines_come_at_intervals_and_for_the_last_count(screen, monkeypatch):
    out = screen(False)
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with track("working", 100, every=10) as update:
        for done in range(1, 101):
            now[0] += 1
            update(done, "note")
    lines = out.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "working 10/100, 0:01:30 left  note"
    assert lines[-1] == "working 100/100  note"


def test_a_continued_work_is_timed_from_where_it_continues(screen, monkeypatch):
    out = screen(False)
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with track("working", 100, done=90, every=1) as update:
        now[0] = 10.0
        update(95)
    assert out.getvalue() == "working 95/100, 0:00:10 left\n"


def test_a_terminal_of_eighty_columns_shows_everything(screen):
    out = screen(True)
    with track("training (entropy)", 120) as update:
        update(37, training_note(ROW))
    assert "37/120" in out.getvalue()
    assert "correct 50%" in out.getvalue()
    assert "…" not in out.getvalue()


def test_replies_without_a_verdict_are_counted_beside_the_accuracy(screen):
    screen(False)
    row = ROW | {"verdict/ok": 5, "verdict/no_answer": 2, "verdict/timeout": 0, "verdict/error": 1}
    assert "correct 50%  2 no_answer, 1 error  clipped" in training_note(row)
    assert not_judged([row, row]) == {"no_answer": 4, "error": 2}
    assert not_judged([ROW]) == {}


def test_the_note_says_more_where_there_is_room(screen):
    screen(True, 80)
    assert training_note(ROW) == "loss 0.123  correct 50%"
    screen(True, 120)
    both = {**ROW, "clipped/answer": 0.78, "clipped/full": None}
    assert training_note(both) == "loss 0.123  correct 50%  clipped middle 2%, answer 78%  4.2 s/step"
    assert training_note({**ROW, "outcome": None, "clipped/middle": None}) == "loss 0.123  4.2 s/step"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_name_between_colons_is_no_picture(monkeypatch, terminal):
    out = io.StringIO()
    screen = printing.console(file=out, force_terminal=terminal, width=100)
    monkeypatch.setattr(progress, "console", screen)
    with progress.track("loading pocket:train:3"):
        screen.print("pocket:train:3")
    with progress.track("playing pocket:train:3", 2) as update:
        update(2)
    with progress.delayed_status("reading pocket:train:3"):
        pass
    assert "\U0001f68b" not in out.getvalue()
    assert out.getvalue().count("pocket:train:3") >= 3
