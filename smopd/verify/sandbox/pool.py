"""Run model-written Python in a sandbox, and judge it by tests whose outcome it cannot forge.

This is the outside: a pool of warm workers. A worker (`worker.py`) runs inside bubblewrap, or in namespaces
that it enters by itself, and gives every program its own process (`program.py`). Tests run in another one
(`judge.py`), which alone holds the pipe for the verdict; only plain data pass between the two
(`smopd/verify/wire.py`). There are no packages, and only Linux is supported.
"""

import functools
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from smopd.errors import UserError
from smopd.verify import workers
from smopd.verify.sandbox.worker import SCRATCH_BYTES

Level = Literal["bubblewrap", "namespaces", "none"]
_GRACE = 10.0  # seconds past the time limit after which the worker counts as lost
# A worker gets these as source, as it has no smopd. Apart from each other they import only Python's library.
_TEXTS = ("wire", "sandbox.program", "sandbox.judge", "sandbox.worker")
_INSIDE = """
import sys, types
for name, text in {texts!r}:
    sys.modules[name] = module = types.ModuleType(name)
    exec(compile(text, name, "exec"), vars(module))
module.work(sys.argv[1], sys.argv[2:])
"""


@dataclass(frozen=True)
class SandboxResult:
    """How a program ended: `failed` is the program's fault, `error` the tests' or the sandbox's."""

    status: Literal["ok", "failed", "timeout", "error"]
    detail: str
    output: str


_permitted = False


def permit_unsandboxed(yes: bool = True) -> None:
    """Allow programs to run without isolation if none works here (--allow-unsandboxed)."""
    global _permitted
    _permitted = yes


def isolation() -> Level:
    return available()[0]


@functools.cache
def available() -> tuple[Level, ...]:
    """Return the levels that work here, best first, by running a program in each; the last is "none"."""
    levels: tuple[Level, ...] = ("bubblewrap", "namespaces")
    works = [level for level in levels if run("print(6 * 7)", timeout=5, level=level).output == "42\n"]
    return (*works, "none")


def require(level: Level | None = None) -> None:
    """Raise a UserError if programs would run without isolation and this is not permitted."""
    if (level or isolation()) == "none" and not _permitted:
        why = "model-written programs need a sandbox, and neither bubblewrap nor namespaces work here"
        flag = "pass --allow-unsandboxed to run them with resource limits only"
        raise UserError(f"{why}: install bubblewrap (apt-get install bubblewrap), or {flag}")


def run(
    program: str, *, timeout: float, memory_mb: int = 512, tests: str = "", entry: str = "", stdin: str = "",
    level: Level | None = None,
) -> SandboxResult:  # fmt: skip
    """Run a program alone, or with tests that see its names, and its function `entry` as `candidate`."""
    level = level or isolation()
    require(level)
    parts = [text.encode("utf-8", "surrogatepass") for text in (program, stdin, tests)]
    header = {"timeout": timeout, "memory": memory_mb << 20, "processes": 4, "entry": entry}
    header["parts"] = [*map(len, parts)]
    why = ""
    with workers.places:
        for _ in range(2):  # retry once, in a fresh worker, if the first was lost
            try:
                worker = workers.take(level, _start)
            except OSError as error:  # for example no bwrap
                return SandboxResult("error", str(error), "")
            answer = worker.exchange(json.dumps(header).encode(), timeout + _GRACE, b"".join(parts))
            if answer is not None:
                workers.idle[level].append(worker)
                return SandboxResult(**answer)
            why = worker.end()
    return SandboxResult("error", f"the sandbox was lost: {why}"[:500], "")


def _start(level: Level) -> workers.Process:
    python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
    files = {name: Path(__file__).parents[1] / f"{name.replace('.', '/')}.py" for name in _TEXTS}
    texts = [(f"smopd.verify.{name}", file.read_text(encoding="utf-8")) for name, file in files.items()]
    source, paths = _INSIDE.format(texts=texts), _visible(python)
    command = [python, "-s", "-S", "-P", "-B", "-X", "utf8", "-c", source, level, *paths]
    if level == "bubblewrap":
        command = [*_bubblewrap(paths), "--", *command]
    return workers.Process(command, env={}, cwd="/")  # no environment variables go in


def _visible(python: str) -> list[str]:
    wanted = [f"{top}/{lib}" for top in ("", "/usr") for lib in ("lib", "lib32", "lib64")]
    wanted += ["/etc/ld.so.cache", "/nix/store", python]
    wanted += [f"{top}/{lib}" for top in (sys.base_prefix, sys.base_exec_prefix) for lib in ("lib", "lib64")]
    wanted += ["/dev/null", "/dev/zero", "/dev/urandom"]
    paths: list[str] = []
    for path in filter(os.path.exists, wanted):
        paths += [path] if not any(f"{path}/".startswith(f"{kept}/") for kept in paths) else []
    return paths


def _bubblewrap(paths: list[str]) -> list[str]:
    if (bwrap := shutil.which("bwrap")) is None:
        raise FileNotFoundError("bwrap is not installed")
    command = [bwrap, *(f"--unshare-{space}" for space in ("pid", "net", "ipc", "uts"))]
    command += ["--as-pid-1", "--die-with-parent", "--new-session"]
    if os.geteuid():
        command += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    else:
        # The worker stays root to run programs as another user, for whom the process limit holds.
        for capability in ("SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE", "FOWNER"):
            command += ["--cap-add", f"CAP_{capability}"]
    folders = {str(folder) for path in paths for folder in Path(path).parents}
    for folder in sorted(folders - {"/"}):  # by default only the worker could enter them
        command += ["--perms", "0755", "--dir", folder]
    for path in paths:
        bind = "--dev-bind" if path.startswith("/dev/") else "--ro-bind"
        command += ["--symlink", os.readlink(path), path] if os.path.islink(path) else [bind, path, path]
    command += ["--perms", "0755", "--size", str(SCRATCH_BYTES), "--tmpfs", "/tmp"]
    return [*command, "--remount-ro", "/", "--chdir", "/tmp"]
