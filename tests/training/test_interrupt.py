"""Signals that stop a run: each is really sent, and everything is saved."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios

import pytest
from support.runs import trainer_of

from smopd.models.adapter_files import checkpoints, damage
from smopd.training.interrupt import interruptible
from smopd.training.loop import Stopped

SMALL = ["train.steps=400", "train.rollouts=2", "train.checkpoint_every=400", "rollout.answer_tokens=8",
         "rollout.middle_tokens=8"]  # fmt: skip
hangup = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")


@pytest.fixture(autouse=True)
def _hangup_as_in_a_plain_shell():
    """Under nohup it is ignored, here and in every process that is started."""
    if not hasattr(signal, "SIGHUP"):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=hangup)])
def test_a_signal_saves_the_last_whole_step(tmp_path, name):
    trainer, saves = trainer_of(tmp_path / "run", *SMALL), []
    save = trainer.save

    def saved():
        os.kill(os.getpid(), getattr(signal, name))  # again, as a closing terminal does
        saves.append(save())

    trainer.save = saved
    before = signal.getsignal(getattr(signal, name))
    with pytest.raises(Stopped, match="stopped after step 2"):
        trainer.train(lambda row: row["step"] == 2 and os.kill(os.getpid(), getattr(signal, name)))
    (checkpoint,) = checkpoints(tmp_path / "run")
    assert checkpoint.name == "step-000002"
    assert damage(checkpoint) is None
    assert len(saves) == 1
    assert signal.getsignal(getattr(signal, name)) == before


@hangup
def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupt.asked
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


PRINTING = """
import sys, time
from smopd.training.interrupt import interruptible
with interruptible() as interrupt:
    try:
        for _ in range(2000):
            with interrupt.protect():
                print("a line", flush=True)
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("saving", flush=True)
        open("saved", "w")
print("bye", file=sys.stderr, flush=True)
sys.exit(130)
"""


def own_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@hangup
def test_a_terminal_that_closes_is_not_printed_to(tmp_path):
    """An error in printing would be the end before anything is saved."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PRINTING], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
        start_new_session=True, preexec_fn=own_terminal,
    )  # fmt: skip
    try:
        os.close(theirs)
        assert os.read(ours, 100)
        os.close(ours)
        assert process.wait(60) == 130
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "saved").exists()
