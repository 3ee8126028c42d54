"""Load users' Python files (a method, an engine), and report their errors with file and line."""

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from math import isfinite
from numbers import Real
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from smopd.config_io import choices
from smopd.errors import PartError, UserError, is_out_of_memory
from smopd.files import read_bytes, read_python

PACKAGE = str(Path(__file__).parent)
_loaded: dict[tuple[Path, str], ModuleType] = {}
_shown: dict[str, str] = {}  # full path of a loaded file -> path as the user wrote it


def load_python(path: Path) -> ModuleType:
    """Import a file as a module; it runs once for each content it has had."""
    file = path.expanduser().resolve()
    text = read_python(file, str(path))
    digest = hashlib.sha256(text.encode()).hexdigest()
    _shown[str(file)] = str(path)
    if (file, digest) in _loaded:
        return _loaded[file, digest]
    module = ModuleType(f"smopd_user_{file.stem}_{digest[:8]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    try:
        exec(compile(text, str(file), "exec"), module.__dict__)
    except SyntaxError as error:
        frames = _frames(error)
        line = error.lineno if error.filename == str(file) else frames[-1].lineno if frames else 1
        raise UserError(f"{path}:{line}: not valid Python: {error.msg}") from None
    except (Exception, SystemExit) as error:
        place = _place(_frames(error)[-1]) if _frames(error) else f"{path}:1"
        raise UserError(f"{place}: {_describe_error(error)}") from None
    _loaded[file, digest] = module
    return module


def register_in_memory_module(path: Path, names: dict[str, Any]) -> None:
    """Make `load_python` return a module with these names for the file, while its text stays the same."""
    file = path.expanduser().resolve()
    module = ModuleType(f"smopd_given_{file.stem}")
    vars(module).update(names)
    _loaded[file, hashlib.sha256(file.read_bytes()).hexdigest()] = module


def file_text_digest(path: Path) -> str:
    return hashlib.sha256(read_bytes(path.expanduser(), str(path))).hexdigest()[:12]


class Unexpected(ValueError):
    """The user's code returned a value that is not allowed."""


def unexpected(value: Any, expected: str) -> Unexpected:
    return Unexpected(f"returned {describe_value(value)}, expected {expected}")


@contextmanager
def calling(part: Any, describe: Callable[[], str], made_at: str = "") -> Iterator[None]:
    """Turn an exception inside the block into a PartError with file and line. `describe` names the part;
    `made_at` is the place in the user's file that created it, if the part itself belongs to this package.
    UserErrors, out of memory, and exceptions that involve no user file pass unchanged.
    """
    try:
        yield
    except PartError as error:
        raise error.within(describe(), place_of(part) or made_at) from error.__cause__
    except UserError:
        raise
    except Unexpected as error:
        raise PartError(place_of(part) or made_at, describe(), str(error)) from None
    except (Exception, SystemExit) as error:
        frames = _frames(error)
        place = _place(frames[-1]) if frames else place_of(part) or made_at
        if is_out_of_memory(error) or not place:
            raise
        raise PartError(place, describe(), _describe_error(error)) from error


def place_of(part: Any) -> str:
    """File and line of a part's function; empty if it belongs to this package or a library."""
    while isinstance(part, partial):
        part = part.func
    call = part if hasattr(part, "__code__") else vars(type(part)).get("__call__")
    code = getattr(call, "__code__", None)
    if code is None or code.co_filename.startswith(PACKAGE) or "site-packages" in code.co_filename:
        return ""
    return f"{_shown.get(code.co_filename, code.co_filename)}:{code.co_firstlineno}"


def making_at() -> str:
    """The line of a user's file that is being executed, with its file; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename not in _shown:
        frame = frame.f_back
    return f"{_shown[frame.f_code.co_filename]}:{frame.f_lineno}" if frame is not None else ""


def require(fine: bool, what: str, value: Any, expected: str) -> None:
    if not fine:
        raise ValueError(f"{what} is {describe_value(value)}, expected {expected}")


def check_word(what: str, word: Any, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise ValueError(f"{what} = {word!r}{choices(str(word), list(allowed), 'known ones')}")


def check_function(what: str, part: Any, *arguments: str) -> None:
    expected = f"a function of ({', '.join(arguments)})"
    require(callable(part) and not isinstance(part, type), what, part, expected)
    try:
        signature = inspect.signature(part)
    except ValueError:  # some C functions have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        name = getattr(part, "__name__", type(part).__name__)
        raise ValueError(f"{what} is {name}{signature}, expected {expected}") from None


def is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and isfinite(value)


def describe_value(value: Any) -> str:
    kind = type(value).__name__
    if isinstance(value, type):
        return f"the class {value.__name__} itself"
    if hasattr(value, "shape"):
        return f"a {kind} of shape {list(value.shape)} and type {value.dtype}"
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)[:60]
    if isinstance(value, (list, tuple, dict, set)):
        return f"a {kind} of {len(value)}"
    return f"the function {value.__name__}, not called" if inspect.isroutine(value) else f"a {kind}"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in _shown]


def _place(frame: traceback.FrameSummary) -> str:
    return f"{_shown[frame.filename]}:{frame.lineno}"


def _describe_error(error: BaseException) -> str:
    """An error's type and message, and the lines of the user's files in its traceback."""
    headline = f"{type(error).__name__}: {error}".split("\n\n")[0].rstrip(": ")[:500]
    lines = [f"{_place(f)}, in {f.name}: {f.line}" for f in _frames(error)]
    if len(lines) > 10:  # of a recursion, the ends
        lines[2:-2] = [f"... {len(lines) - 4} more calls"]
    return "\n  ".join([headline, *lines])
