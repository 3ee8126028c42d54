"""The sandbox against programs that mean harm or cheat; where a protection is a wall, it is shown without,
too.
"""

import os
import signal
import socket
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.sandbox_levels import ONLY_IN_A_NAMESPACE

from smopd.errors import UserError
from smopd.verify import sandbox, workers
from smopd.verify.sandbox import SandboxResult, pool, run
from smopd.verify.sandbox import worker as sandbox_worker

pytestmark = pytest.mark.usefixtures("sandbox_workers")


def unsafe(program: str, timeout: float = 5, tests: str = "", level: Any = "none") -> SandboxResult:
    """What the same program does without isolation."""
    sandbox.permit_unsandboxed()
    try:
        return run(program, timeout=timeout, tests=tests, level=level)
    finally:
        sandbox.permit_unsandboxed(False)


def descendants(pid: int) -> set[int]:
    """Every process below one, as the host sees them; the dead that wait for their parent don't count."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents[int(name)] = int(parent)
    process_tree = {pid}
    while more := {child for child, parent in parents.items() if parent in process_tree} - process_tree:
        process_tree |= more
    return process_tree - {pid}


def worker(level: str) -> int:
    return workers.idle[level][-1].process.pid


# --- what a program gets
def test_a_program_runs_with_input_and_output(level: str) -> None:
    assert run("print(input()[::-1])", stdin="abc\n", timeout=5, level=level) == SandboxResult(
        "ok", "", "cba\n"
    )


@pytest.mark.parametrize(
    ("program", "status", "detail"),
    [
        ("raise ValueError('no')", "failed", "ValueError: no"),
        ("import sys; sys.exit(3)", "failed", "exit code 3"),
        ("def f(:", "failed", "SyntaxError"), ("import sys; sys.exit()", "ok", ""),
        ("import torch", "failed", "ModuleNotFound"),
        ("import os; os.kill(os.getpid(), 11)", "failed", "exit code -11"), ("\ud800", "failed", "Unicode"),
        ("\0", "failed", "null"),
    ],
)  # fmt: skip
def test_the_end_of_a_program_is_told(program: str, status: str, detail: str) -> None:
    result = run(program, timeout=5)
    assert (result.status, detail in result.detail) == (status, True), result


def test_exit_functions_and_threads_are_waited_for() -> None:
    program = "import atexit, threading, time\natexit.register(print, 'b')\n"
    program += "threading.Thread(target=lambda: (time.sleep(0.1), print('a'))).start()"
    assert run(program, timeout=5).output == "a\nb\n"


def test_the_environment_is_empty_and_the_folder_fresh(level: str) -> None:
    os.environ["SMOPD_TEST_SECRET"] = "sesame"
    try:
        program = (
            "import os; print(dict(os.environ), os.listdir('.')); open('left', 'w').write('x'); "
            "os.mkdir('d', 0)"
        )
        for _ in range(2):
            assert run(program, timeout=5, level=level).output == "{} []\n"
    finally:
        del os.environ["SMOPD_TEST_SECRET"]


def test_tests_decide(level: str) -> None:
    tests = "assert candidate(2) == 4\nassert double(3) == 6"
    assert (
        run("def double(x): return 2 * x", tests=tests, entry="double", timeout=5, level=level).status == "ok"
    )
    assert (
        run("def twice(x): return 2 * x", tests=tests, entry="double", timeout=5, level=level).status == "ok"
    )
    wrong = run("def double(x): return x + 2", tests=tests, entry="double", timeout=5, level=level)
    assert (wrong.status, "assert double(3) == 6" in wrong.detail) == ("failed", True), wrong
    assert (
        "ZeroDivisionError"
        in run("def double(x): return x / 0", tests=tests, entry="double", timeout=5, level=level).detail
    )
    assert "defines no function" in run("x = 1", tests=tests, entry="double", timeout=5, level=level).detail
    assert (
        run("def double(x): return 2 * x", tests="assert (", entry="double", timeout=5, level=level).status
        == "error"
    )


@pytest.mark.parametrize(
    ("program", "test"),
    [
        ("from collections import *\ndef f(): return Counter('aab'), deque([1]), OrderedDict(a=1), "
            "defaultdict(list, a=[1])",
         "from collections import *\nassert f() == (Counter('aab'), deque([1]), OrderedDict(a=1), {'a': "
             "[1]})"),
        ("from datetime import *\nfrom decimal import *\ndef f(): return date(2020, 1, 2), Decimal('1.5')",
         "from datetime import *\nfrom decimal import *\nassert f() == (date(2020, 1, 2), Decimal('1.5'))"),
        ("from collections import namedtuple\ndef f(): return namedtuple('P', 'x y')(1, 2)",
        "assert f() == (1, 2)"),
        ("def f():\n    yield 1\n    yield 2", "assert list(f()) == [1, 2] and next(f()) == 1"),
        ("class Node:\n    def __init__(self, v): self.v, self.next = v, None\ndef f(n): return n.v + "
            "n.next.v",
         "a = Node(1)\na.next = Node(2)\nassert f(a) == 3 and a.next.v == 2"),
        ("import math\ndef f(): return math.pi", "assert f() == math.pi"),
        ("def f(): return lambda x: x + 1", "assert f()(1) == 2"),
        ("def f(): raise ValueError('no')",
         "try:\n    f()\n    assert False\nexcept ValueError as e:\n    assert str(e) == 'no'"),
        ("def f(): return float('nan'), float('inf'), 1j, {1, 2}, b'x', range(3), None, True",
         "x, *rest = f()\nassert x != x and rest == [float('inf'), 1j, {1, 2}, b'x', range(3), None, True] "
             "and rest[-1] is True"),
        ("class Solution:\n    def f(self): return 5", "assert candidate() == 5"),
    ],
)  # fmt: skip
def test_values_cross_between_program_and_tests(program: str, test: str) -> None:
    assert run(program, tests=test, entry="f", timeout=5) == SandboxResult("ok", "", "")


# --- harm
def test_fork_bomb(level: str) -> None:
    program = (
        "import os, time\nn = 0\ntry:\n    while n < 200:\n        if os.fork() == 0: "
        "time.sleep(60)\n        n += 1\n"
    )
    program += "finally: print(n)"
    result = run(program, timeout=5, level=level)
    assert (result.status, "BlockingIOError" in result.detail) == ("failed", True), result
    assert int(result.output) < 10
    assert run("import os\nwhile True: os.fork()", timeout=0.4, level=level).status in ("failed", "timeout")
    assert (
        run(
            "while True:\n    try:\n        import os; os.fork()\n    except OSError: pass",
            timeout=0.4,
            level=level,
        ).status
        == "timeout"
    )
    assert run("print(1)", timeout=5, level=level).status == "ok"


def test_memory_bomb(level: str) -> None:
    for program in ("x = bytearray(1 << 30)", "x = [0]\nwhile True: x += x"):
        result = run(program, timeout=5, memory_mb=256, level=level)
        assert (result.status, "MemoryError" in result.detail) == ("failed", True), result
    # A loaded machine takes its time to find a gigabyte.
    assert run("x = bytearray(1 << 30)", timeout=60, memory_mb=2048, level=level).status == "ok"
    big = run("def f(): return 'x' * (65 << 20)", tests="f()", entry="f", timeout=5, level=level)
    assert big.status in ("failed", "error"), big


@pytest.mark.parametrize(
    "loop",
    [
        "while True: pass", "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import time; time.sleep(100)", "import signal\nsignal.pause()", "10 ** 10 ** 9",
    ],
)  # fmt: skip
def test_endless_loop(loop: str) -> None:
    started = time.monotonic()
    assert run(loop, timeout=0.25).status == "timeout"
    body = loop.replace("\n", "\n    ")
    assert run(f"def f():\n    {body}", tests="candidate()", entry="f", timeout=0.25).status == "timeout"
    assert time.monotonic() - started < 4


def test_output_flood(level: str) -> None:
    for stream in ("stdout", "stderr"):
        started = time.monotonic()
        result = run(f"import sys\nwhile True: sys.{stream}.write('x' * 10_000)", timeout=10, level=level)
        assert (result.status, result.detail) == ("failed", "too much output")
        assert len(result.output) <= sandbox_worker.KEPT_OUTPUT
        assert time.monotonic() - started < 5
    result = run("print('x' * (3 << 20))", timeout=5, level=level)
    assert (result.status, len(result.output)) == ("ok", sandbox_worker.KEPT_OUTPUT)


def test_home_and_our_files_cannot_be_read(level: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=Path.home(), suffix=".txt") as secret:
        secret.write("sesame")
        secret.flush()
        for name in (
            secret.name,
            str(Path(__file__).resolve()),
            "/etc/hostname",
            f"/proc/{os.getpid()}/environ",
        ):
            result = run(f"print(open({name!r}).read())", timeout=5, level=level)
            assert (result.status, "FileNotFoundError" in result.detail) == ("failed", True), result
        assert unsafe(f"print(open({secret.name!r}).read())").output == "sesame\n"


def test_nothing_outside_its_folder_can_be_written(level: str) -> None:
    target = Path(tempfile.gettempdir()) / f"smopd-test-{os.getpid()}"
    folders = [
        "/",
        "/usr/lib/",
        "/usr/",
        "/dev/",
        "/dev/shm/",
        f"{Path.home()}/",
        f"{Path.home().parent}/",
        "../",
    ]
    places = [*(f"{folder}{target.name}" for folder in folders), os.__file__, str(target)]
    program = f"""
for name in {places!r}:
    try:
        open(name, "a")  # changes nothing, not even where a wall is missing by mistake
        print(name)
    except OSError:
        pass
open("inside", "w").write("x")
"""
    result = run(program, timeout=5, level=level)
    assert result.status == "ok"
    if os.geteuid() == 0:
        assert result.output == "", result
    assert not target.exists()
    assert (
        run("open('x', 'w').truncate(1 << 30)", timeout=5, level=level).status == "failed"
    )  # nor a large file within
    assert (
        run("import os; print(os.listdir('..'), os.listdir('.'))", timeout=5, level=level).output
        == "['work'] []\n"
    )


def test_no_network(level: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        program = (
            f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 1); "
            f"print('in')"
        )
        result = run(program, timeout=5, level=level)
        assert (result.status, result.output) == ("failed", ""), result
        assert unsafe(program).output == "in\n"


# Signals to everybody must never leave a process namespace, should one be missing by mistake: as root they
# would end the machine.


def test_programs_have_a_process_namespace(level: str) -> None:
    assert run(ONLY_IN_A_NAMESPACE, timeout=5, level=level).status == "ok"


@pytest.mark.parametrize(
    "victim", ["os.getppid()", "1", "-1", "0", "-os.getpgid(os.getppid())", "os.getpid() + 1"]
)
def test_the_parent_cannot_be_killed(level: str, victim: str) -> None:
    run("pass", timeout=5, level=level)
    before = worker(level)
    program = (
        f"{ONLY_IN_A_NAMESPACE}def f():\n    for n in (15, 11, 19, 9): os.kill({victim}, n)\n    return 1"
    )
    result = run(program, tests="assert f() == 2", entry="f", timeout=1, level=level)
    assert result.status != "ok"
    assert run("print(1)", timeout=5, level=level).output == "1\n"
    assert worker(level) == before


@pytest.mark.parametrize("level", ["bubblewrap", "namespaces", "none"])
def test_no_child_survives(level: str) -> None:
    if level not in sandbox.available():
        pytest.skip(f"{level} does not work on this machine")
    unsafe("pass", level=level)
    before = descendants(worker(level))
    hide = """
import os, signal, time
for n in set(range(1, 32)) - {9, 19}: signal.signal(n, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True: time.sleep(60)
    os._exit(0)
time.sleep(0.2)
"""
    for end in ("print('done')", "while True: pass", "os._exit(0)", "def f(): return 1"):
        tests = "f()" if "def" in end else ""
        unsafe(hide + end, 0.4, tests, level)
        assert descendants(worker(level)) == before, end


@pytest.mark.parametrize(
    "call",
    [
        "unshare(0x10000000)", "unshare(0x10020000)", "shmget(0, 1 << 30, 0o1777)", "ptrace(16, 1, 0, 0)",
        "memfd_create(b'x', 0)", "mount(b'', b'.', b'tmpfs', 0, 0)", "syscall(56, 0x10000011, 0, 0, 0, 0)",
    ],
)  # fmt: skip
def test_calls_that_reach_around_the_limits_are_refused(level: str, call: str) -> None:
    if os.uname().machine != "x86_64" and "syscall" in call:
        pytest.skip("the number is that of another machine")
    program = (
        f"import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nprint(libc.{call}, ctypes.get_errno())"
    )
    assert run(program, timeout=5, level=level).output == "-1 1\n"
    assert (
        run(
            "import threading, os\nthreading.Thread(target=print).start()\nos.waitpid(os.fork() or "
            "os._exit(0), 0)",
            timeout=5,
            level=level,
        ).status
        == "ok"
    )


# --- the pool
def test_a_dead_worker_is_replaced(level: str) -> None:
    run("pass", timeout=5, level=level)
    os.kill(worker(level), signal.SIGKILL)
    assert run("print(1)", timeout=5, level=level).output == "1\n"


def test_programs_run_side_by_side(level: str) -> None:
    started = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        results = list(
            threads.map(
                lambda n: run(f"import time; time.sleep(0.5); print({n})", timeout=5, level=level), range(2)
            )
        )
    assert [result.output for result in results] == ["0\n", "1\n"]
    assert time.monotonic() - started < 0.95
    assert len(workers.idle[level]) == 2


def test_a_worker_ends_with_us() -> None:
    run("pass", timeout=5)
    pid = worker(sandbox.isolation())
    below = descendants(pid)
    workers.close()
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{p}").exists() for p in below) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(Path(f"/proc/{p}").exists() for p in {pid, *below})


def test_without_isolation_it_refuses(monkeypatch) -> None:
    monkeypatch.setattr(pool, "available", lambda: ("none",))
    assert sandbox.isolation() == "none"
    with pytest.raises(UserError, match=r"install bubblewrap .*--allow-unsandboxed"):
        run("print(1)", timeout=5)
    sandbox.permit_unsandboxed()
    try:
        assert run("print(1)", timeout=5).output == "1\n"
    finally:
        sandbox.permit_unsandboxed(False)


def test_limits_hold_without_isolation_too() -> None:
    assert "MemoryError" in unsafe("x = bytearray(1 << 30)").detail
    assert unsafe("while True: pass", 0.5).status == "timeout"
    assert unsafe("while True: print('x' * 9999)").detail == "too much output"
    assert (
        "PermissionError" in unsafe("import os; os.kill(os.getppid(), 0)").detail
    )  # 0 is no signal, only the question


def test_threads_of_ours_do_not_disturb_each_other() -> None:
    wrong = []

    def many(n: int) -> None:
        for i in range(15):
            if run(f"print({n * i})", timeout=5).output != f"{n * i}\n":
                wrong.append((n, i))

    threads = [threading.Thread(target=many, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
