"""Files that are whole or absent, lines on disk before the call returns, a lock that dies with its holder."""

import errno
import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smopd.errors import UserError


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(partial, path)
        sync(path.parent)
    finally:
        with suppress(OSError):  # what went wrong before is what counts
            partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write JSON atomically."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Write JSON lines atomically."""
    write_text(path, jsonl(rows))


def jsonl(rows: Iterable[Any]) -> str:
    """JSON lines, as every writer here makes them."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def append_jsonl(path: Path, row: Any) -> None:
    """Add one line in one write and see it on disk; a line that the disk has no room for leaves nothing."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, jsonl([row]).encode())
            os.fsync(descriptor)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)
    if not before:
        sync(path.parent)


def read_json(path: Path) -> Any:
    """What a JSON file holds."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def read_jsonl(path: Path) -> list[Any]:
    """Read JSON lines; a last line cut short by a crash is left out."""
    if not path.exists():
        return []
    rows = []
    for line in path.read_bytes().split(b"\n"):
        if line.strip():
            try:
                rows.append(json.loads(line.decode()))
            except ValueError:  # not JSON, or cut inside a character
                break
    return rows


def digest(value: Any, size: int = 8) -> str:
    """A short hash of anything that JSON can hold."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=size).hexdigest()


def file_digest(path: Path) -> str:
    """A hash of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """See a file, or the names in a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems know no fsync of a folder
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class Held(Exception):
    """Another process has the lock; `holder` says which."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


_held: set[int] = set()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock file until the block ends or the process dies, or raise `Held`. False: no locks here."""
    descriptor, works = _acquire(path)
    _held.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        _write_all(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        yield works
    finally:
        if descriptor in _held:  # not in a fork of ours, whose parent goes on holding it
            _held.remove(descriptor)
            with suppress(OSError):
                path.unlink(missing_ok=True)  # before the lock is free: afterwards it may be another's
            os.close(descriptor)


def _acquire(path: Path) -> tuple[int, bool]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            there = os.stat(path)
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0).decode("utf-8", "replace").strip() or "another process"
            os.close(descriptor)
            raise Held(holder) from None
        except FileNotFoundError:  # its last holder removed it between our open and our lock
            os.close(descriptor)
            continue
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL):
                return descriptor, False
            os.close(descriptor)
            raise
        if os.path.samestat(there, os.fstat(descriptor)):
            return descriptor, True
        os.close(descriptor)


def _forget() -> None:
    """In a fork of ours: a child that outlives its parent must not hold the lock for it."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget)
