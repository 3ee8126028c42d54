"""The files of a run besides its checkpoints: rows that survive a crash, what is kept, one process at a time,
failing disks.
"""

import errno
import fcntl
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from smopd import files
from smopd.config import load_config
from smopd.errors import UserError
from smopd.models.adapter_files import checkpoints
from smopd.runs import checkpoint
from smopd.runs.writer import RunFolder
from smopd.viewer.results import report_data

CONFIG = load_config("pocket")


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    run_folder = RunFolder(tmp_path / "run", CONFIG)
    run_folder.begin()
    return run_folder


def row(step: int) -> dict:
    times = {"seconds/step": 1.5, "seconds/rollout": 0.5 * step}
    return {"step": step, "loss": 0.1 / step, "grad_norm": None, "note": "é", **times}


def test_times_are_kept_apart(folder):
    for step in (1, 2):
        folder.add_metrics(row(step))
    assert folder.metrics() == [{"step": s, "loss": 0.1 / s, "grad_norm": None, "note": "é"} for s in (1, 2)]
    timings = [{"step": s, "seconds/step": 1.5, "seconds/rollout": 0.5 * s} for s in (1, 2)]
    assert files.read_jsonl(folder.path / "timings.jsonl") == timings
    # the report shows them all the same
    assert [r["seconds/rollout"] for r in report_data(folder.path).metrics] == [0.5, 1.0]


@pytest.mark.parametrize(
    "torn", ['{"step": 3, "lo', '{"step": 3}', '{"step": 3, "note": "\udcc3', "\x00\x00\x00", "\n"]
)
def test_a_torn_line_is_dropped_and_the_file_is_as_if_never_torn(folder, torn):
    for step in (1, 2):
        folder.add_metrics(row(step))
    whole = (folder.path / "metrics.jsonl").read_bytes(), (folder.path / "timings.jsonl").read_bytes()
    for file in (folder.path / "metrics.jsonl", folder.path / "timings.jsonl"):
        with file.open("ab") as stream:
            stream.write(torn.encode("utf-8", "surrogateescape"))
    again = RunFolder(folder.path, CONFIG)
    assert [r["step"] for r in again.metrics()][:2] == [1, 2]
    again.cut_metrics(2)
    assert (
        (folder.path / "metrics.jsonl").read_bytes(),
        (folder.path / "timings.jsonl").read_bytes(),
    ) == whole
    again.add_metrics(row(3))
    assert [r["step"] for r in again.metrics()] == [1, 2, 3]


def test_going_back_cuts_rows_and_evaluations_and_sweeps_what_is_half_done(folder):
    for step in (1, 2, 3):
        folder.add_metrics(row(step))
        folder.record_evaluation(step, "sharded", step / 10)
    left = [folder.path / "metrics.jsonl.partial", folder.path / "rollouts" / "step-000004.jsonl.partial"]
    left += [
        folder.path / "checkpoints" / name / "x"
        for name in (".partial-step-000004", ".discarded-step-000002")
    ]
    for file in left:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    folder.cut_metrics(2)
    assert (
        [r["step"] for r in folder.metrics()]
        == [r["step"] for r in files.read_jsonl(folder.path / "timings.jsonl")]
        == [1, 2]
    )
    assert folder.best() == (2, 0.2)
    assert [p.name for p in folder.path.rglob("*") if "partial" in p.name or "discarded" in p.name] == []


def test_going_back_to_where_one_is_writes_nothing(folder):
    folder.add_metrics(row(1))
    folder.record_evaluation(1, "sharded", 0.5)
    before = {p: p.stat().st_mtime_ns for p in folder.path.rglob("*")}
    folder.cut_metrics(1)
    assert {p: p.stat().st_mtime_ns for p in folder.path.rglob("*")} == before


def test_the_best_is_the_earlier_of_equals_and_of_the_first_metric(folder):
    assert folder.best() is None
    for step, value in ((2, 0.5), (4, 0.75), (6, 0.75), (8, float("nan"))):
        folder.record_evaluation(step, "sharded", value)
        folder.record_evaluation(step, "full", 1.0)
    assert folder.best() == (4, 0.75)
    folder.record_evaluation(4, "sharded", 0.25)  # played again: takes the place of the first
    assert folder.best() == (6, 0.75)
    assert len(folder.evaluations()) == 8


@pytest.fixture
def hollow(folder) -> RunFolder:
    """A run whose checkpoints are only names."""
    for step in range(2, 13, 2):
        (folder.path / "checkpoints" / f"step-{step:06d}").mkdir(parents=True)
    return folder


def left(folder: RunFolder) -> list[int]:
    return [int(p.name[5:]) for p in checkpoints(folder.path)]


def test_the_newest_and_the_best_are_kept(hollow):
    hollow.record_evaluation(4, "sharded", 0.9)
    hollow.record_evaluation(5, "sharded", 0.95)  # of a step without a checkpoint
    hollow.record_evaluation(6, "sharded", 0.9)
    hollow.prune(2)
    assert left(hollow) == [4, 10, 12]
    hollow.prune(1)
    assert left(hollow) == [4, 12]


def test_the_newest_are_kept_without_an_evaluation_and_later_ones_are_left_alone(hollow):
    hollow.prune(2, upto=8)
    assert left(hollow) == [6, 8, 10, 12]
    hollow.prune(2)
    assert left(hollow) == [10, 12]


def test_checkpoints_go_by_their_number_and_other_names_are_none(hollow):
    for name in ("step-1000000", "step-000002-copy", "step-", ".partial-step-000014"):
        (hollow.path / "checkpoints" / name).mkdir()
    assert left(hollow) == [2, 4, 6, 8, 10, 12, 1000000]


def test_pruning_that_is_killed_leaves_no_half_under_a_name(hollow, monkeypatch):
    def killed(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.discard(checkpoints(hollow.path)[0])
    monkeypatch.undo()
    hollow.prune(5)
    assert left(hollow) == [4, 6, 8, 10, 12]


HOLD = """
import os, subprocess, sys, time
from pathlib import Path
from smopd.files import locked
with locked(Path(sys.argv[1]), "works on this run"):
    child = subprocess.Popen(["sleep", "60"])
    heard, say = os.pipe()
    fork = os.fork()
    if not fork:
        os.write(say, b"!")
        time.sleep(60)
        os._exit(0)
    os.read(heard, 1)  # the fork has been scheduled: until then it still has our descriptors
    print(child.pid, fork, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(folder):
    """Another process that has the lock, and two children of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder.path / ".lock")], stdout=subprocess.PIPE, text=True
    )
    children = [int(pid) for pid in process.stdout.readline().split()]
    yield process, children
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def test_a_second_process_is_refused_until_the_first_dies_even_if_its_children_live(folder, holder):
    process, children = holder
    with pytest.raises(UserError) as error, folder.lock():
        pass
    assert f"{folder.path}: another process works on this run (pid {process.pid} on " in str(error.value)
    process.kill()
    process.wait()
    assert all(Path(f"/proc/{pid}").exists() for pid in children)
    with folder.lock():
        assert f"pid {os.getpid()} " in (folder.path / ".lock").read_text()


def test_the_lock_may_be_taken_again_inside_and_is_free_afterwards(folder):
    with folder.lock():
        with folder.lock():
            pass
        with pytest.raises(UserError, match=f"pid {os.getpid()}"), RunFolder(folder.path, CONFIG).lock():
            pass
    assert not (folder.path / ".lock").exists()
    with RunFolder(folder.path, CONFIG).lock():
        pass


def test_a_lock_that_was_removed_while_we_waited_for_it_is_not_ours(tmp_path, monkeypatch):
    path, real, calls = tmp_path / ".lock", fcntl.flock, []

    def flock(descriptor, how):
        if not calls:
            path.unlink()  # its last holder went just now, and a third process made a new one
            path.touch()
        calls.append(descriptor)
        real(descriptor, how)

    monkeypatch.setattr(files.fcntl, "flock", flock)
    refused = pytest.raises(UserError, match="another process works")
    with files.locked(path, "works"), refused, files.locked(path, "works"):
        pass
    assert len(calls) == 3


def test_a_run_that_never_began_leaves_no_folder(tmp_path):
    folder = RunFolder(tmp_path / "runs" / "a", CONFIG)
    with pytest.raises(UserError, match="no such data"), folder.lock():
        raise UserError("no such data")
    assert list(tmp_path.iterdir()) == []
    with folder.lock():
        folder.begin()
    assert [p.name for p in folder.path.iterdir()] == ["config.toml"]


def test_a_kill_before_the_config_is_written_does_not_block_the_folder(tmp_path):
    (tmp_path / ".lock").write_text("pid 1 on gone\n")
    (tmp_path / "config.toml.partial").write_text("meth")
    folder = RunFolder(tmp_path, CONFIG)
    with folder.lock():
        folder.begin()
        folder.cut_metrics(0)
    assert [p.name for p in tmp_path.iterdir()] == ["config.toml"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_without_locks_there_is_a_warning_and_the_run_goes_on(folder, monkeypatch, caplog, number):
    def flock(descriptor, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with caplog.at_level(logging.WARNING, "smopd"), folder.lock(), folder.lock():
        folder.add_metrics(row(1))
    assert [r.getMessage() for r in caplog.records] == [
        f"{folder.path}: this file system has no locks: do not start the same run twice at the same time"
    ]


WRITES = {
    "metrics": lambda f: f.add_metrics(row(3)),
    "rollouts": lambda f: f.save_rollouts(3, [{"id": "a"}]),
    "evaluations": lambda f: f.record_evaluation(3, "sharded", 0.5),
    "going back": lambda f: f.cut_metrics(1),
    "lock": lambda f: f.lock().__enter__(),
    "config": lambda f: RunFolder(f.path / "new", CONFIG).begin(),
}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("what", WRITES)
def test_a_write_that_fails_is_a_message_and_changes_nothing(folder, monkeypatch, what, number):
    for step in (1, 2):
        folder.add_metrics(row(step))
    real = os.write

    def write(descriptor, data):
        if len(data) < 20:
            raise OSError(number, os.strerror(number))
        return real(descriptor, data[: len(data) // 2])  # a disk takes less and less, then nothing

    before = {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}
    monkeypatch.setattr(os, "write", write)
    with pytest.raises(UserError) as error:
        WRITES[what](folder)
    assert str(folder.path) in str(error.value)
    assert f"cannot be written: {os.strerror(number)}" in str(error.value)
    assert "No checkpoint is complete yet: once this is mended, the same command starts over" in str(
        error.value
    )
    assert {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()} == before


def test_a_row_is_on_disk_before_anything_else_happens(folder, monkeypatch):
    done = []
    for name in ("write", "fsync"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (done.append(name), real(*a))[1])
    folder.add_metrics({"step": 1})
    folder.add_metrics({"step": 2})
    assert done == ["write", "fsync", "fsync", "write", "fsync"]  # the second: the file's name in its folder
