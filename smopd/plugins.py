"""Python files of the user's: a method, an engine. What goes wrong in one has the file's name and a line."""

import hashlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from smopd.errors import UserError
from smopd.files import read_bytes, read_python

_loaded: dict[tuple[Path, str], ModuleType] = {}


def load_python(path: Path) -> ModuleType:
    """The module that a file makes; run once for each content it has had."""
    file = path.expanduser().resolve()
    text = read_python(file, str(path))
    digest = hashlib.sha256(text.encode()).hexdigest()
    if (file, digest) in _loaded:
        return _loaded[file, digest]
    module = ModuleType(f"smopd_user_{file.stem}_{digest[:8]}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses and pickles look their module up
    try:
        exec(compile(text, str(file), "exec"), module.__dict__)
    except SyntaxError as error:
        line = error.lineno if error.filename == str(file) else _line(error, file)
        raise UserError(f"{path}, line {line}: not valid Python: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise UserError(f"{path}, line {_line(error, file)}: {type(error).__name__}: {error}") from None
    _loaded[file, digest] = module
    return module


def stands_for(path: Path, names: dict[str, Any]) -> None:
    """Have a file, with the text it has now, give a module with these names in this process."""
    file = path.expanduser().resolve()
    module = ModuleType(f"smopd_given_{file.stem}")
    vars(module).update(names)
    _loaded[file, hashlib.sha256(file.read_bytes()).hexdigest()] = module


def file_text_digest(path: Path) -> str:
    """What a file says, in twelve digits; a run depends on it."""
    return hashlib.sha256(read_bytes(path.expanduser(), str(path))).hexdigest()[:12]


def _line(error: BaseException, file: Path) -> int:
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)
    ]
    return next((line for line in reversed(lines) if line), 1)
