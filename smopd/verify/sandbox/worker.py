"""Inside a sandbox: process 1 of a namespace forks a limited process per program and kills what is left."""

import contextlib
import ctypes
import importlib
import json
import math
import os
import random
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from smopd.verify.sandbox.judge import Tests
from smopd.verify.sandbox.program import CHANNEL, Program
from smopd.verify.wire import receive, send, take

_MODULES = [  # imported once, before the forks
    "array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum",
    "fractions", "functools", "heapq", "itertools", "json", "math", "operator", "random", "re",
    "statistics", "string", "sys", "time", "types", "typing",
]  # fmt: skip
KEPT_OUTPUT = 1 << 20  # bytes of output that are kept
MOST_OUTPUT = 16 << 20  # bytes of output after which the program is killed
SCRATCH_BYTES = 64 << 20
_NAMESPACES = 0x20000 | 0x4000000 | 0x8000000 | 0x40000000 | 0x20000000  # CLONE_NEWNS, UTS, IPC, NET, PID
_NEWUSER = 0x10000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC = 1, 2, 4, 8  # flags of mount
_REMOUNT, _BIND, _REC, _PRIVATE = 32, 4096, 16384, 1 << 18
_DETACH = 2  # a flag of umount2
_PDEATHSIG, _DUMPABLE, _SECCOMP, _SUBREAPER, _NO_NEW_PRIVS = 1, 4, 22, 36, 38  # options of prctl
# By machine: its number, that of clone, and those of the refused calls: unshare, setns, mount, umount2,
# pivot_root, ptrace, process_vm_readv, process_vm_writev, bpf, add_key, request_key, keyctl, userfaultfd,
# perf_event_open, memfd_create, shmget, msgget, semget, mq_open, io_uring_setup, open_tree, move_mount,
# fsopen, memfd_secret.
_CALLS = {
    "x86_64": (0xC000003E, 56, 272, 308, 165, 166, 155, 101, 310, 311, 321, 248, 249, 250, 323, 298, 319, 29,
               68, 64, 240, 425, 428, 429, 430, 447),
    "aarch64": (0xC00000B7, 220, 97, 268, 40, 39, 41, 117, 270, 271, 280, 217, 218, 219, 282, 241, 279, 194,
                186, 190, 180, 425, 428, 429, 430, 447),
}  # fmt: skip
# Calls refused if there is no process namespace: kill, tkill, tgkill, rt_sigqueueinfo, pidfd_send_signal.
_SIGNALS = {"x86_64": (62, 200, 234, 129, 424), "aarch64": (129, 130, 131, 138, 424)}


_LIBRARY = ctypes.CDLL(None, use_errno=True)


def _libc(function: str, *args: Any) -> None:
    if getattr(_LIBRARY, function)(*args) != 0:
        raise OSError(ctypes.get_errno(), f"{function}: {os.strerror(ctypes.get_errno())}")


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _libc("mount", source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())


def _enter_namespaces(paths: list[str]) -> None:
    """Become process 1 of new namespaces without network, where of the file system only `paths` exist."""
    uid, gid = os.geteuid(), os.getegid()
    try:
        if uid:
            raise PermissionError
        _libc("unshare", _NAMESPACES)  # as root, stay in this user namespace: programs can get another user
    except OSError:
        _libc("unshare", _NAMESPACES | _NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", f"1000 {uid} 1"), ("gid_map", f"1000 {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    if child := os.fork():
        os.closerange(0, 3)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
    _libc("prctl", _PDEATHSIG, signal.SIGKILL)
    _mount("none", "/", "none", _REC | _PRIVATE)
    root = "/proc"  # a mount point that hides none of the paths
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
    for path in paths:
        new = root + path
        os.makedirs(os.path.dirname(new), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), new)
            continue
        if os.path.isdir(path):
            os.mkdir(new)
        else:
            os.close(os.open(new, os.O_CREAT, 0o644))
        _mount(path, new, "none", _BIND | _REC)
        if not path.startswith("/dev/"):
            locked = os.statvfs(path).f_flag & (_NOSUID | _NODEV | _NOEXEC)  # locked flags must stay
            _mount("none", new, "none", _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV | locked)
    os.mkdir(root + "/tmp")
    _mount("tmpfs", root + "/tmp", "tmpfs", _NOSUID | _NODEV, f"size={SCRATCH_BYTES},nr_inodes=4k,mode=755")
    os.chdir(root)
    _libc("pivot_root", b".", b".")
    _libc("umount2", b".", _DETACH)
    _mount("none", "/", "none", _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    os.chdir("/tmp")


def work(level: str, paths: list[str]) -> None:
    """Run programs until standard input ends. Any failure ends the worker, and the parent starts another."""
    isolated = level != "none"
    if level == "namespaces":
        _enter_namespaces(paths)
    # The second is for containers with few user ids.
    users = (random.randrange(1 << 30, 1 << 31), random.randrange(40_000, 60_000))
    user = next((number for number in users if _may_be(number)), 0)
    _libc("prctl", _DUMPABLE, 0)  # programs cannot read or trace the worker or the tests
    _libc("prctl", _SUBREAPER, 1)
    for name in _MODULES:
        importlib.import_module(name)
    scratch = "/tmp" if isolated else tempfile.mkdtemp(prefix="smopd-")
    os.chdir(scratch)
    os.chmod(scratch, 0o755)
    while first := os.read(0, 1):
        job = {**json.loads(receive(0, first)), "isolated": isolated}
        os.mkdir("work", 0o700)
        if user:
            os.chown("work", user, user)
        else:
            # Other processes of this user count against the limit too, at least the worker and the tests.
            job["processes"] += 2 if isolated else _tasks_of(os.getuid())
        answer = _run_job(job, user)
        for entry in list(os.scandir(".")):
            shutil.rmtree(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        send(1, json.dumps(answer).encode())
    if not isolated:
        os.rmdir(scratch)


def _may_be(user: int) -> bool:
    try:
        os.seteuid(user)
        return os.access(os.__file__, os.R_OK, effective_ids=True)
    except OSError:
        return False
    finally:
        os.seteuid(os.getuid())


def _tasks_of(user: int) -> int:
    count = 0
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            count += len(os.listdir(f"/proc/{name}/task")) if os.stat(f"/proc/{name}").st_uid == user else 0
    return count


def _run_job(job: dict[str, Any], user: int) -> dict[str, Any]:
    tested = job["parts"][2] > 0
    ours, theirs = socket.socketpair()
    (out, out_end), (err, err_end), (verdict, verdict_end), (read, read_end) = (os.pipe() for _ in range(4))

    def start(body: Callable[[], None]) -> int:
        if child := os.fork():
            # Wait until this reader of standard input has its part. The worker itself never holds the texts,
            # so that no later fork of it can look up tests in its memory.
            if os.read(read, 1) != b".":
                raise EOFError
            return child
        try:
            body()
        finally:
            os._exit(70)

    def program() -> None:
        text, stdin = take(0, job["parts"][0]), take(0, job["parts"][1])
        os.write(read_end, b".")
        os.setsid()
        os.chdir("work")
        with tempfile.TemporaryFile(dir=".") as file:
            file.write(stdin)
            file.seek(0)
            for fd, source in enumerate((file.fileno(), out_end, err_end, theirs.fileno())):
                os.dup2(source, fd)
        os.closerange(CHANNEL + 1, 65_536)
        _limit(job, user)
        Program(text, job["entry"], tested)

    def tests() -> None:
        text = take(0, job["parts"][2]).decode("utf-8", "surrogatepass")
        os.write(read_end, b".")
        for fd in (0, 1, 2):
            os.dup2(os.open("/dev/null", os.O_RDWR), fd)
        _limit(job, user and user + 1)
        status, detail = Tests(ours.fileno()).run(text, job["entry"])
        os.write(verdict_end, json.dumps((status, detail[:500])).encode())

    deadline = time.monotonic() + job["timeout"]
    awaited = start(program)
    theirs.close()
    os.close(out_end)
    os.close(err_end)
    awaited = start(tests) if tested else awaited
    os.close(verdict_end)
    ours.close()
    try:
        ended, output, errors = _watch(out, err, awaited, deadline)
        code = _kill_all(awaited, job["isolated"])
        status, detail = "ok", ""
        if not ended:
            late = time.monotonic() >= deadline
            status, detail = ("timeout", "out of time") if late else ("failed", "too much output")
        elif tested:
            cut_off = ("error", f"the tests were cut off (exit code {code})")
            status, detail = json.loads(os.read(verdict, 65_536) or json.dumps(cut_off))
        elif code:
            status, detail = "failed", f"exit code {code}: " + errors.strip().rpartition("\n")[2][:500]
        return {"status": status, "detail": detail, "output": output}
    finally:
        for fd in (out, err, verdict, read, read_end):
            os.close(fd)


def _watch(out: int, err: int, awaited: int, deadline: float) -> tuple[bool, str, str]:
    """Read the output until the awaited process ends (True), or the time or output limit is reached."""
    kept, still_open, seen, ended = {out: bytearray(), err: bytearray()}, {out, err}, 0, False
    handle = os.pidfd_open(awaited)
    poll = select.poll()
    for fd in (out, err, handle):
        os.set_blocking(fd, False)
        poll.register(fd, select.POLLIN)
    try:
        while not ended and seen <= MOST_OUTPUT and (left := deadline - time.monotonic()) > 0:
            ready = {fd for fd, _ in poll.poll(left * 1000)}
            ended = handle in ready
            for fd in list(still_open if ended else still_open & ready):
                with contextlib.suppress(BlockingIOError):
                    # An ended process leaves no more than a pipe holds, which one read takes.
                    piece = os.read(fd, 1 << 20)
                    kept[fd] += piece[: KEPT_OUTPUT - len(kept[fd])]
                    seen += len(piece)
                    if not piece:  # the program closed it
                        poll.unregister(fd)
                        still_open.remove(fd)
    finally:
        os.close(handle)
    return ended, kept[out].decode("utf-8", "replace"), kept[err].decode("utf-8", "replace")


def _kill_all(awaited: int, isolated: bool) -> int:
    """Kill and reap every descendant, in any session; return the exit code of the awaited one."""
    code = 0
    while True:
        victims = [-1]  # in process 1 of a namespace all others at once, so that none forks meanwhile
        if not isolated:  # orphans become children of this process: repeat until none is left
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                victims = [int(word) for word in file.read().split()]
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return code
        code = os.waitstatus_to_exitcode(status) if pid == awaited else code


def _limit(job: dict[str, Any], user: int) -> None:
    limits = {"AS": job["memory"], "CPU": math.ceil(job["timeout"]) + 1, "NPROC": job["processes"]}
    limits |= {"FSIZE": 16 << 20, "NOFILE": 64, "CORE": 0}
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        most = resource.getrlimit(kind)[1]
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    _libc("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc("capset", struct.pack("Ii", 0x20080522, 0), bytes(24))
    _forbid_calls(job["isolated"])
    os.environ.clear()


def _forbid_calls(isolated: bool) -> None:
    """Refuse system calls that evade the limits: namespaces, mounts, tracing, unaccounted memory."""
    if os.uname().machine not in _CALLS or sys.byteorder != "little":
        return
    machine, clone, *refused = _CALLS[os.uname().machine]
    refuse, missing, allow = ((6, 0, 0, answer) for answer in (0x50001, 0x50026, 0x7FFF0000))  # EPERM, ENOSYS
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, machine), refuse, (0x20, 0, 0, 0), (0x35, 0, 1, 1 << 30), refuse]
    for number in (*refused, *(() if isolated else _SIGNALS[os.uname().machine])):
        code += [(0x15, 0, 1, number), refuse]
    code += [(0x15, 0, 1, 435), missing]  # clone3, whose flags a filter cannot see; libraries use clone then
    code += [(0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, _NEWUSER), refuse, allow]
    text = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
    _libc("prctl", _SECCOMP, 2, struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)), 0, 0)
