"""The scheduler: a real grid interrupted and resumed, failures reported and tried again, commands for a
cluster, the audit.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smopd.errors import UserError
from smopd.files import locked
from smopd.study.collect import collect, curve_names
from smopd.study.plan import load_study
from smopd.study.run import (
    Scheduler,
    StudyFolder,
    StudyJob,
    command_lines,
    study_folders,
    time_left,
    visible_devices,
)
from smopd.viewer.results import audit

STUDY = """
name = "tiny"
title = "Two arms, two seeds"
recipe = "pocket"
seeds = [1, 2]
reference = "baseline"
[set]
train.steps = 2
train.rollouts = 2
train.micro_batch = 2
train.save_tokens = true
train.checkpoint_every = 1
"data.eval" = "pocket:eval:401-408"
[[arms]]
name = "baseline"
method = "baseline"
[[arms]]
name = "entropy"
method = "entropy"
"""


@pytest.fixture
def folder(tmp_path) -> StudyFolder:
    (tmp_path / "tiny.toml").write_text(STUDY, encoding="utf-8")
    return StudyFolder(tmp_path / "out", load_study(tmp_path / "tiny.toml"))


@pytest.mark.long
def test_a_grid_interrupted_and_resumed_then_reported_and_audited(smopd, smopd_process, folder, tmp_path):
    """Ctrl-C in the middle of a cell, the same command again; then nothing is left to do, and every number
    can be recomputed.
    """
    args = ("study", "tiny.toml", "--out", "out", "--jobs", "2", "--json")
    began = smopd_process(*args)
    cells = [folder.cell(cell) for cell in folder.study.cells]
    deadline = time.monotonic() + 400
    while not any((cell / "metrics.jsonl").exists() for cell in cells):
        assert time.monotonic() < deadline, (
            began.stderr.read() if began.poll() is not None else "no step was taken"
        )
        time.sleep(0.1)
    began.send_signal(signal.SIGINT)
    out, err = began.communicate(timeout=200)
    assert began.returncode == 130
    assert "Run the same command to resume" in err
    assert out == ""
    assert not all((cell / "eval" / "trained" / "summary.json").exists() for cell in cells)
    first = next(cell for cell in cells if (cell / "metrics.jsonl").exists())
    rows = (first / "metrics.jsonl").read_text().splitlines()

    taken = len(_logged(tmp_path))
    killed = smopd_process(*args)
    while len(_logged(tmp_path)) == taken:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    killed.kill()
    killed.communicate()
    for cell in cells:  # its cells end with it: nothing holds their folders
        while (cell / ".lock").exists() and not _free(cell / ".lock"):
            assert time.monotonic() < deadline
            time.sleep(0.1)

    again = smopd_process(*args)
    out, err = again.communicate(timeout=600)
    assert again.returncode == 0, err
    summary = json.loads(out)
    assert summary["done"] == 5
    assert not summary["failed"]
    assert all((cell / "eval" / "trained" / "summary.json").exists() for cell in cells)
    assert (first / "metrics.jsonl").read_text().splitlines()[: len(rows)] == rows
    page = Path(tmp_path / summary["report"]).read_text(encoding="utf-8")
    assert "Two arms, two seeds" in page
    assert "judged by math reader" in page
    assert (folder.study_path / "report" / "figures" / "ablation.pdf").read_bytes().startswith(b"%PDF")

    code, out, err = smopd("study", "tiny.toml", "--out", "out", "--dry-run", "--json")
    assert code == 0, err
    assert set(json.loads(out)["cells"].values()) == {"done"}
    _audit(smopd, folder, cells[0])


def _logged(tmp_path: Path) -> list[str]:
    """Commands that were started, from the logs."""
    return [
        line
        for log in (tmp_path / "out" / "logs").glob("*.log")
        for line in log.read_text().splitlines()
        if line[:2] == "$ "
    ]


def _free(lock: Path) -> bool:
    try:
        with locked(lock, "runs"):
            return True
    except UserError:
        return False


def _audit(smopd, folder: StudyFolder, cell: Path) -> None:
    assert audit(folder.path) == []
    identity = cell / "eval" / "trained" / "evaluation.json"
    original = identity.read_text(encoding="utf-8")
    identity.write_text(original.replace('"reader"', '"strict"'), encoding="utf-8")
    with pytest.raises(UserError, match="was judged by other rules"):
        collect(folder)
    identity.write_text(original, encoding="utf-8")
    conversations = cell / "eval" / "trained" / "conversations.jsonl"
    kept = conversations.read_text(encoding="utf-8")
    lines = kept.splitlines(keepends=True)
    row = json.loads(next(line for line in lines if line.strip() and json.loads(line)["correct"]))
    altered = (
        json.dumps(
            row | {"turns": [t | {"reply": "I do not know."} for t in row["turns"]]}, ensure_ascii=False
        )
        + "\n"
    )
    conversations.write_text(
        kept.replace(json.dumps(row, ensure_ascii=False) + "\n", altered), encoding="utf-8"
    )
    report = folder.study_path / "report" / "report.md"
    report.write_text(report.read_text(encoding="utf-8").replace("baseline", "basement", 1), encoding="utf-8")
    code, out, _ = smopd("report", "out", "--audit", "--json")
    problems = json.loads(out)["problems"]
    assert code == 1
    assert any(cell.name in line for line in problems)  # the verdict that was recorded is not believed
    assert any(line.startswith("report.md: ") and "basement" in line for line in problems)


@pytest.mark.usefixtures("folder")
def test_commands_for_a_cluster_are_ordinary_ones(smopd, tmp_path):
    code, out, _ = smopd("study", "tiny.toml", "--out", "out", "--print-commands")
    lines = out.splitlines()
    assert code == 0
    assert len(lines) == 5
    assert lines[0].startswith("smopd eval out/base/pocket-")
    for line in lines[1:]:
        train, evaluate = line.split(" && ")
        config = Path(train.split()[2])
        assert train.startswith("smopd train out/configs/pocket-")
        assert evaluate == f"smopd eval {train.split()[4]} --no-base --out {train.split()[4]}/eval/trained"
        assert (tmp_path / config).exists()
    assert not (tmp_path / "out" / "cells").exists()


def test_a_study_beside_it_leaves_the_base_models_settings_as_they_were_played(folder, tmp_path):
    (tmp_path / "other.toml").write_text(
        STUDY.replace('"tiny"', '"other"').replace("seeds = [1, 2]", "seeds = [3, 4]")
    )
    other = StudyFolder(tmp_path / "out", load_study(tmp_path / "other.toml"))
    config = folder.base("pocket") / "config.toml"
    assert config == other.base("pocket") / "config.toml"
    folder.prepare()
    first = config.read_text()
    other.prepare()
    assert config.read_text() != first  # nothing has been played: the later study's
    folder.prepare()
    (config.parent / "eval").mkdir()
    (config.parent / "eval" / "evaluation.json").write_text("{}")
    other.prepare()
    assert config.read_text() == first


def quick(folder: StudyFolder, name: str, *codes: str) -> StudyJob:
    """A job whose commands are snippets of Python."""
    done = folder.path / name
    return StudyJob(
        name, f"cell {name}", done, done / "summary.json", [["-c", code.format(done=done)] for code in codes]
    )


@pytest.fixture
def scheduler(folder, monkeypatch):
    """Makes schedulers that run snippets of Python instead of smopd's verbs."""
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda command, **kw: real([command[0], *command[3:]], **kw))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")

    def make(jobs: list[StudyJob], width: int = 1, retries: int = 1) -> Scheduler:
        return Scheduler(folder, jobs, width, retries)

    return make


FINISH = "import os; os.makedirs('{done}', exist_ok=True); open('{done}/summary.json', 'w').close()"


def test_a_failed_cell_is_told_tried_again_and_does_not_stop_the_others(folder, scheduler):
    flaky = "import os, sys; p = '{done}.tried'; first = not os.path.exists(p); open(p, 'w').close()"
    flaky += "; sys.exit(first and 5)"
    jobs = [
        quick(folder, "bad", "print('error: the disk is on fire'); raise SystemExit(1)"),
        quick(folder, "flaky", flaky, FINISH),
        quick(folder, "wrong", "print('error: no such file'); raise SystemExit(2)"),
        quick(folder, "good", FINISH),
        quick(folder, "empty", "pass"),
    ]
    scheduler(jobs).run(lambda _: None)
    assert [job.done for job in jobs] == [False, True, False, True, False]
    assert [job.attempts for job in jobs] == [2, 2, 1, 1, 2]
    assert "the disk is on fire (exit code 1" in jobs[0].error
    assert "no such file (exit code 2" in jobs[2].error
    assert jobs[4].error  # it said all was well and left nothing
    status = json.loads((folder.study_path / "status.json").read_text())
    assert {name: row["state"] for name, row in status.items()} == {
        "bad": "failed", "flaky": "done", "wrong": "failed", "good": "done", "empty": "failed",
    }  # fmt: skip


def test_at_most_so_many_at_once_each_with_its_own_gpu(folder, scheduler, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    code = (
        "import os, time; open('{done}.gpu', 'w').write(os.environ['CUDA_VISIBLE_DEVICES']); time.sleep(0.4)"
    )
    jobs = [quick(folder, f"job{i}", code, FINISH) for i in range(4)]
    folder.path.mkdir()
    seen = []
    job_scheduler = scheduler(jobs, width=2)
    monkeypatch.setattr("smopd.study.run.REPORT_EVERY", 0.0)
    job_scheduler.run(lambda s: seen.append(len(s.running)))
    assert max(seen) == 2
    assert all(job.done for job in jobs)
    assert {(folder.path / f"job{i}.gpu").read_text() for i in range(4)} == {"4", "7"}
    assert visible_devices() == ["4", "7"]


def test_ctrl_c_reaches_the_running_cells_once_and_waits_for_them(folder, scheduler):
    code = (
        "import signal, time, os\n"
        "try:\n    open('{done}.begun', 'w').close(); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    time.sleep(0.3); open('{done}.saved', 'w').close()"
    )
    folder.path.mkdir()
    job = quick(folder, "slow", code)

    def interrupt(_: Scheduler) -> None:
        if (folder.path / "slow.begun").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        scheduler([job]).run(interrupt)
    assert (folder.path / "slow.saved").exists()


def test_a_second_scheduler_is_refused(folder):
    with folder.lock():
        code = "import sys; from pathlib import Path; from smopd.study.plan import load_study\n"
        code += "from smopd.study.run import StudyFolder\n"
        code += "with StudyFolder(Path(sys.argv[1]), load_study(sys.argv[2])).lock(): pass"
        other = subprocess.run(
            [sys.executable, "-c", code, str(folder.path), str(folder.path.parent / "tiny.toml")],
            capture_output=True,
            text=True,
        )
    assert "another process runs this study" in other.stderr


def test_time_left_counts_what_is_ahead(folder, scheduler, monkeypatch):
    jobs = [quick(folder, f"job{i}", FINISH) for i in range(5)]
    for job in jobs:
        job.steps = 10
    job_scheduler = scheduler(jobs, width=2)
    assert time_left(job_scheduler) is None
    for job in jobs[:2]:
        job.finished.parent.mkdir(parents=True)
        job.finished.touch()
        job.attempts, job.seconds = 1, 60.0
    assert time_left(job_scheduler) == pytest.approx(3 * 60 / 2)
    jobs[2].error = "broken"
    assert time_left(job_scheduler) == pytest.approx(2 * 60 / 2)
    jobs[3].steps = jobs[4].steps = 20  # twice as long
    assert time_left(job_scheduler) == pytest.approx(2 * 120 / 2)


def test_finished_work_is_found_again_by_its_settings(folder):
    cell = folder.study.cells[0]
    named = folder.path / "cells" / f"another-name-{cell.key}"
    (named / "eval" / "trained").mkdir(parents=True)
    (named / "eval" / "trained" / "summary.json").touch()
    assert folder.cell(cell) == named
    jobs = folder.jobs()
    assert [job.done for job in jobs] == [False, True, False, False, False]
    assert len(command_lines(jobs)) == 4
    folder.prepare()
    (again,) = study_folders(folder.path)
    assert again.study.cells == folder.study.cells
    assert [f.study.name for f in study_folders(folder.study_path)] == ["tiny"]


def test_a_study_without_any_result_says_what_to_do(folder):
    from smopd.study.collect import collect

    with pytest.raises(UserError, match="smopd study tiny"):
        collect(folder)


@pytest.mark.usefixtures("folder")
def test_dry_run_lists_and_runs_nothing(smopd, tmp_path):
    code, out, _ = smopd("study", "tiny.toml", "--dry-run")
    assert code == 0
    assert out.count("open ") == 5
    assert not (tmp_path / "runs").exists()
    assert os.listdir(tmp_path) == ["tiny.toml"]


def test_curves_are_those_of_the_losss_first_term() -> None:
    row = {"loss": 1.0, "loss/distil": 1.0, "clipped/distil": 0.1, "loss/answer": 2.0, "clipped/answer": 0.2}
    assert curve_names([row, {"kept": 0.5, "entropy/answer": 1.0}]) == ["loss", "clipped/distil", "kept"]
    assert curve_names([{"loss": 1.0, "seconds": 2.0}]) == ["loss"]
    assert curve_names([]) == []
