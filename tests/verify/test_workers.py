"""The pool of processes: limits that hold, losses that are told, no confusion between threads or forks."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from smopd.verify import workers
from smopd.verify.verdict import Verdict
from smopd.verify.workers import Job, Kind, ask_all

SOURCE = textwrap.dedent("""
    import os, signal, subprocess, sys, time
    from smopd.evaluation import Verdict, verifier

    @verifier("x")
    def x(answer, reply):
        return Verdict(True, str(eval(reply, globals())), "ok", str(os.getpid()))
""")
KIND = Kind("smopd.verify.custom", "x.py", SOURCE)


def job(expression: str, timeout: float = 30.0, memory_mb: int = 1024) -> Job:
    return Job(KIND, {"task": "x", "answer": {}, "reply": expression}, timeout, memory_mb, "shown")


def ask(job: Job) -> Verdict:
    return ask_all([job])[0]


@pytest.fixture(autouse=True, scope="module")
def _end() -> Iterator[None]:
    yield
    workers.close(KIND)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int) -> bool:
    return any(not alive(pid) or time.sleep(0.05) for _ in range(100))


def test_jobs_run_one_after_the_other_in_a_process_that_stays() -> None:
    first, second = ask_all([job("6 * 7"), job("os.getpid() != os.getppid()")])
    assert (first.correct, first.extracted, second.extracted) == (True, "42", "True")
    assert first.detail == second.detail == ask(job("1")).detail != str(os.getpid())


def test_a_job_over_its_time_is_killed_with_its_children_and_replaced() -> None:
    before = ask(job("1")).detail
    child = "open(reply_file, 'w').write(str(subprocess.Popen(['sleep', '600']).pid))"
    read, write = os.pipe()
    file = f"/proc/{os.getpid()}/fd/{write}"
    slow = job(f"[{child.replace('reply_file', repr(file))}, time.sleep(600)]", timeout=1.0)
    assert ask(slow) == Verdict(False, "shown", "timeout", "no verdict within 1 s")
    pid = int(os.read(read, 20))
    os.close(read)
    os.close(write)
    assert gone(pid)
    assert gone(int(before))
    after = ask(job("2"))
    assert (after.status, after.detail != before) == ("ok", True)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("os._exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        (
            "(sys.__stderr__.write('last words'), sys.__stderr__.flush(), os._exit(4))",
            "exit code 4: last words",
        ),
        ("os.closerange(3, 64)", "the verifier's process was lost"),
        ("os.write(4, bytes(3)) + os._exit(0)", "the verifier's process was lost"),
        ("os.write(4, bytes([0, 0, 0, 2]) + b'{}')", "the verifier's process was lost"),
        ("[os.write(fd, b'\\xff' * 8) for fd in (4, 5)]", "the verifier's process was lost"),
    ],
)
def test_a_process_that_dies_is_an_error_and_the_next_job_is_fine(expression: str, message: str) -> None:
    verdicts = ask_all([job(expression), job("7")])
    assert (verdicts[0].status, verdicts[0].correct, verdicts[0].extracted) == ("error", False, "shown")
    assert message in verdicts[0].detail
    assert (verdicts[1].status, verdicts[1].extracted) == ("ok", "7")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (x.py, line 7: "),
        ("sys.exit(0)", "SystemExit: 0"),
        ("[0] * 10**10", "MemoryError"),
        ("(lambda f: f(f))(lambda f: f(f))", "RecursionError"),
    ],
)
def test_an_exception_is_an_error_and_the_process_goes_on(expression: str, message: str) -> None:
    before, verdict, after = ask_all([job("1"), job(expression), job("1")])
    assert (verdict.status, verdict.correct) == ("error", False)
    assert message in verdict.detail
    assert before.detail == after.detail


def test_memory_is_limited_by_job() -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux limits the address space for sure")
    small, large = ask_all(
        [job("len(bytes(300 << 20))", memory_mb=200), job("len(bytes(300 << 20))", memory_mb=1024)]
    )
    assert (small.status, large.extracted) == ("error", str(300 << 20))


def test_what_is_printed_and_odd_text_do_not_disturb_the_answers() -> None:
    odd = "'\\0\\ud800\\n' + chr(0x1F600)"
    noise = (
        "(print('x' * 100_000), sys.stderr.write('y'), os.write(1, b'z'), os.write(2, b'w'), "
        "subprocess.call(['echo', 'v']))[0]"
    )
    verdicts = ask_all([job(noise), job(odd)])
    assert [v.extracted for v in verdicts] == ["None", "\0\ud800\n\U0001f600"]


def test_what_is_no_json_is_an_error_without_a_process() -> None:
    verdict = ask(Job(KIND, {"answer": {1, 2}}, 5.0))
    assert (verdict.status, "no plain JSON" in verdict.detail) == ("error", True)


def test_a_process_that_cannot_start_is_an_error() -> None:
    verdicts = ask_all([Job(Kind("smopd.verify.custom", "x.py", "import nothing_like_it"), {}, 5.0)] * 2)
    assert {v.status for v in verdicts} == {"error"}
    message = "ModuleNotFoundError: No module named 'nothing_like_it' (x.py, line 1: import nothing_like_it)"
    assert f"did not start: {message}" in verdicts[0].detail


def test_a_process_that_died_while_idle_is_replaced() -> None:
    pid = int(ask(job("1")).detail)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert ask(job("5")).extracted == "5"


def test_many_threads_get_their_own_answers() -> None:
    with ThreadPoolExecutor(8) as pool:
        verdicts = list(pool.map(lambda n: ask(job(f"{n} * 2")), range(60)))
    assert [v.extracted for v in verdicts] == [str(2 * n) for n in range(60)]
    assert len({v.detail for v in verdicts}) <= workers.width()


def test_a_fork_does_not_speak_to_its_parents_processes() -> None:
    mine = ask(job("1")).detail
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            theirs = ask(job("2"))
            workers.close()
            os.write(write, f"{theirs.extracted} {theirs.detail}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    value, pid = os.read(read, 100).split()
    os.close(read)
    os.close(write)
    assert (value, pid.decode() != mine) == (b"2", True)
    assert ask(job("1")).detail == mine


def test_an_interrupted_wait_leaves_no_answer_behind_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ask(job("1"))
    monkeypatch.setattr(workers, "receive", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(job("'stale'"))
    monkeypatch.undo()
    assert ask(job("'fresh'")).extracted == "fresh"


def interrupted(*args: Any, **named: Any) -> bytes:
    raise KeyboardInterrupt


def test_ctrl_c_and_the_end_of_a_program_leave_neither_processes_nor_tracebacks(tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        "import sys, time\nfrom test_workers import ask, job\n"
        "print(ask(job('1')).detail, flush=True)\n"
        "try:\n    ask(job('time.sleep(600)', timeout=500))\nexcept KeyboardInterrupt:\n    sys.exit(5)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    program = subprocess.Popen(
        [sys.executable, script], stdout=-1, stderr=-1, env=env, start_new_session=True
    )
    assert program.stdout
    pid = int(program.stdout.readline())
    threading.Event().wait(0.5)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert (program.returncode, errors) == (5, b"")
    assert gone(pid)
