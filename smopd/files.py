"""Atomic writes, durable appends, checked reads, and a lock that is released when its holder dies."""

import codecs
import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from smopd.errors import UserError

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
STEP = {"step": int}  # shape of a row of a run's metrics or timings
NAMES = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null",
    dict: "an object", list: "a list", object: "anything",
}  # fmt: skip


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: a reader sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb", buffering=0) as file:
            _write_all(file.fileno(), content)
            os.fsync(file.fileno())
        os.replace(partial, path)
        sync(path.parent)
    finally:
        with suppress(OSError):  # keep the original error
            partial.unlink(missing_ok=True)


@contextmanager
def explain_os_errors(what: str) -> Iterator[None]:
    """Turn a failed read or write into a UserError: `what` failed, and why."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{what}: {error.strerror or error}") from None


@contextmanager
def new_folder(final: Path) -> Iterator[Path]:
    """Yield another path for a folder; at the end it is renamed to `final`, which is complete or absent."""
    partial = final.with_name(f".partial-{final.name}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        yield partial
        os.rename(partial, final)
        sync(final.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    write_text(path, jsonl(rows))


def jsonl(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def append_jsonl(path: Path, row: Any) -> None:
    """Append one line and fsync; if the disk is full, the partial line is removed."""
    with path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            _write_all(file.fileno(), jsonl([row]).encode())
            os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                file.truncate(before)
            raise
    if not before:
        sync(path.parent)


def read_bytes(path: Path, name: str = "", kind: str = "file") -> bytes:
    """Read a file, or raise a UserError that says why not; `name` is the path as the user wrote it."""
    name = name or str(path)
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise UserError(f"{name}: is a folder; expected a {kind}")
        if not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):  # a device may have no end
            raise UserError(f"{name}: is a device or socket; expected a {kind}")
        return path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"{name}: no such {kind}") from None
    except PermissionError:
        raise UserError(f"{name}: may not be read by you (permission denied); chmod u+r it") from None
    except OSError as error:
        raise UserError(f"{name}: cannot be read: {error.strerror}") from None


def read_text(path: Path, name: str = "", kind: str = "file") -> str:
    return decode(read_bytes(path, name, kind), name or str(path))


def decode(data: bytes, name: str) -> str:
    """Decode UTF-8, without BOM and with line ends as \\n; a UserError names the line that is not UTF-8."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise UserError(f"{name}: is UTF-16 text; save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, column = data.count(b"\n", 0, error.start) + 1, error.start - data.rfind(b"\n", 0, error.start)
        where = f"{name}, line {line}: not UTF-8 text"
        raise UserError(f"{where} (byte 0x{data[error.start]:02x} at {column}); save it as UTF-8") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_python(path: Path, name: str = "", kind: str = "file") -> str:
    data = read_bytes(path, name, kind)
    try:
        return importlib.util.decode_source(data)
    except (UnicodeDecodeError, SyntaxError) as error:
        decode(data, name or str(path))  # names the line if it is not UTF-8
        raise UserError(f"{name or path}: cannot be read as Python: {error}") from None


def read_json(path: Path, kind: str = "file", advice: str = "") -> Any:
    text = read_text(path, kind=kind)
    try:
        return parse_json(text)
    except (ValueError, RecursionError) as error:
        advice = advice and f"; {advice}"
        raise UserError(f"{path}: not valid JSON: {json_problem(error)}{advice}") from None


class HalfCharacter(ValueError):
    """A lone surrogate, which no file can hold."""


def parse_json(text: str) -> Any:
    """Parse JSON; raises a ValueError (HalfCharacter for a lone surrogate) or a RecursionError."""
    value = json.loads(text)
    if "\\ud" in text.lower() and LONE_SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise HalfCharacter
    return value


def json_problem(error: ValueError | RecursionError) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg} (line {error.lineno}, column {error.colno})"
    if isinstance(error, HalfCharacter):
        return "half a character (a surrogate without its other half)"
    return "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"


def read_jsonl(path: Path, shape: Any = object) -> list[Any]:
    """Read JSON lines of this shape (`check_shape`), up to the first that is broken, as by a crash."""
    if not path.exists():
        return []
    rows = []
    for number, line in enumerate(read_bytes(path).split(b"\n"), 1):
        if line.strip():
            try:
                row = parse_json(line.decode())
            except (ValueError, RecursionError):  # not JSON, or cut inside a character
                break
            check_shape(row, shape, f"{path}, line {number}")
            rows.append(row)
    return rows


def check_shape(value: Any, shape: Any, where: str) -> None:
    """Raise a UserError unless `value` has the shape: a type, a tuple of alternatives, [shape of every item],
    {str: shape of every value}, or {key: shape} ("key?" may be absent, other keys are allowed).
    """
    if (problem := _problem(value, shape)) is not None:
        place, what = problem
        named = f", field '{place.strip('.')}'" if place else ""
        raise UserError(f"{where}{named}: {what}; the file is damaged or of another version of smopd")


def _problem(value: Any, shape: Any) -> tuple[str, str] | None:
    """Return (place inside the value, what is wrong there), or None if the shape fits."""
    if isinstance(shape, tuple):
        problems = [_problem(value, one) for one in shape]
        return None if None in problems else next((one for one in problems if one and one[0]), problems[0])
    kind: Any = shape if isinstance(shape, type) else type(shape)
    kinds: Any = (int, float) if kind is float else kind
    if not isinstance(value, kinds) or (isinstance(value, bool) and kind in (int, float)):
        return "", f"expected {NAMES[kind]}, found {NAMES.get(type(value), type(value).__name__)}"
    inside: dict[Any, tuple[Any, Any]] = {}  # by name: value and shape
    if isinstance(shape, list):
        inside = {number: (item, shape[0]) for number, item in enumerate(value, 1)}
    elif isinstance(shape, dict) and str in shape:
        inside = {key: (item, shape[str]) for key, item in value.items()}
    elif isinstance(shape, dict):
        if missing := [key for key in shape if not key.endswith("?") and key not in value]:
            return f".{missing[0]}", "missing"
        known = {key.rstrip("?"): inner for key, inner in shape.items()}
        inside = {key: (value[key], inner) for key, inner in known.items() if key in value}
    named = ((name, _problem(*pair)) for name, pair in inside.items())
    return next(((f".{name}{problem[0]}", problem[1]) for name, problem in named if problem), None)


def require_writable(path: Path) -> None:
    """Raise a UserError if nothing can be made here, by trying: permission bits alone are not reliable."""
    try:
        there = next(folder for folder in (path, *path.absolute().parents) if os.path.lexists(folder))
        if not there.is_dir():
            if there != path:
                raise UserError(f"{path}: cannot be written: {there} is not a folder; choose another place")
            there = path.parent
        tempfile.TemporaryFile(dir=there, prefix=".smopd-").close()
        for part in path.absolute().relative_to(there.absolute()).parts:
            if len(os.fsencode(part)) > 255:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    except OSError as error:
        why = error.strerror
        if error.errno in (errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS):
            why = f"nothing can be made in {there}"
        raise UserError(f"{path}: cannot be written: {why}; choose another place") from None


def digest(value: Any, size: int = 8) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=size).hexdigest()


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot fsync a folder
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


_held: set[int] = set()


@contextmanager
def locked(path: Path, busy: str) -> Iterator[bool]:
    """Hold a lock file; yields False if the file system has none. `busy`: what another holder does."""
    descriptor, works = _acquire(path, busy)
    _held.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        _write_all(descriptor, f"pid {os.getpid()} on {socket.gethostname()}\n".encode())
        yield works
    finally:
        if descriptor in _held:  # not in a fork, whose parent still holds it
            _held.remove(descriptor)
            with suppress(OSError):
                path.unlink(missing_ok=True)  # before unlocking: later it may be another process's
            os.close(descriptor)


def _acquire(path: Path, busy: str) -> tuple[int, bool]:
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        kept = False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if kept := os.path.samestat(os.stat(path), os.fstat(descriptor)):
                return descriptor, True
        except BlockingIOError:
            holder = os.pread(descriptor, 1000, 0).decode("utf-8", "replace").strip() or "another process"
            advice = "wait for it, stop it, or choose another --out"
            raise UserError(f"{path.parent}: another process {busy} ({holder}); {advice}") from None
        except FileNotFoundError:  # its last holder removed it between our open and our lock
            continue
        except OSError as error:
            no_locks = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL)
            if not (kept := error.errno in no_locks):
                raise
            return descriptor, False
        finally:
            if not kept:
                os.close(descriptor)


def _forget() -> None:
    """Close inherited locks in a fork: a child that outlives its parent must not hold its lock."""
    while _held:
        os.close(_held.pop())


os.register_at_fork(after_in_child=_forget)
