"""An evaluation on disk: evaluation.json (its identity: one model, data set and way of playing),
conversations.jsonl, and summary.json once it is finished. Conversations are written in groups, each followed
by an empty line: a group that a crash interrupted is cut off and played again.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Self

from smopd import files
from smopd.chat.messages import VIEWS
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.evaluate import Outcome
from smopd.files import check_shape
from smopd.formatting import esc, interval, percent
from smopd.frames import messages, table

LOCK = ".lock"
# The fields that readers rely on.
_SHARE = {"accuracy": float, "correct": int, "total": int, "low": float, "high": float}
_CHANGE = {"gained": int, "lost": int, "difference": float, "low": float, "high": float, "p": float}
_VIEW = _SHARE | {
    "any_turn": _SHARE, "by_task": {str: _SHARE}, "by_shards": {str: _SHARE}, "status": {str: int},
    "first_failure?": (None, {"id": str, "status": str, "detail": str}), "middle_turns?": _SHARE,
}  # fmt: skip
_OVER_RUNS = ("a90", "a90_low", "a90_high", "unreliability", "unreliability_low", "unreliability_high")
SUMMARY = {
    "runs": int, "views": {str: _VIEW | {f"{name}?": float for name in _OVER_RUNS}}, "rules?": {str: str},
    **{f"{view}_minus_full?": _CHANGE for view in VIEWS},
}  # fmt: skip
_TURN = {"user": str, "reply": str, "tokens": (int, None), "right?": bool}
CONVERSATION: dict[str, Any] = {field.name: field.type for field in fields(Outcome)}
CONVERSATION |= {"view": str, "turns": [_TURN], "extracted": (str, None), "answer": dict}
# Keys of an evaluation's identity: which model was evaluated, and how it was computed.
MODEL_KEYS = ("model", "weights", "adapter", "dtype", "quantize", "engine")
INPUTS = "inputs"  # folder of the files made from Python objects


def data_digest(examples: Sequence[Example]) -> str:
    return files.digest([e.to_json() for e in examples])


class EvaluationFolder:
    """One evaluation's files. As a context it locks out other processes; `add` is the first to write."""

    def __init__(self, path: Path, identity: dict[str, Any]) -> None:
        self.path, self.identity = path, identity
        self._file, self._held, self._stack = path / "conversations.jsonl", False, ExitStack()
        settled = _read(path / "evaluation.json", dict)
        if settled is not None:
            pairs = ((key, settled.get(key), identity.get(key)) for key in identity | settled)
            unlike = [(key, json.dumps(old), json.dumps(new)) for key, old, new in pairs if old != new]
            if lines := ["\n  {}: {} there, {} now".format(*row) for row in unlike]:
                what = "holds an evaluation of something else; choose another --out:"
                raise UserError(f"{path}: {what}{''.join(lines)}")
        elif path.exists():
            ours = (LOCK, INPUTS, "evaluation.json.partial", "tokens")
            if not path.is_dir():
                raise UserError(f"{path}: is a file; nothing was written, choose another --out")
            if any(p.name not in ours for p in path.iterdir()):
                raise UserError(f"{path}: exists and is not empty; nothing was written, choose another --out")
        if load_summary(path) is None:
            files.require_writable(path)

    def __enter__(self) -> Self:
        if self.path.exists():
            self._claim()
        return self

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._stack.close()

    def _claim(self) -> None:
        with files.explain_os_errors(f"{self.path}: the evaluation cannot be written"):
            self._stack.enter_context(files.locked(self.path / LOCK, "plays this evaluation"))
            if self._file.exists():
                os.truncate(self._file, len(self._read_complete_groups()))
        self._held = True

    def outcomes(self) -> list[Outcome]:
        return _parse(self._file, self._read_complete_groups().decode("utf-8", "replace"))

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Append one group and sync it to disk. The first one creates the folder."""
        if not self._held:
            self._claim()
            if (self.path / "evaluation.json").exists():  # it did not before
                what = "another process began this evaluation meanwhile"
                raise UserError(f"{self.path}: {what}; run the same command to resume")
        with files.explain_os_errors(f"{self.path}: the evaluation cannot be written"):
            if not (self.path / "evaluation.json").exists():
                files.write_json(self.path / "evaluation.json", self.identity)
            with self._file.open("ab") as file:
                file.write(_to_text(outcomes).encode())
                file.flush()
                os.fsync(file.fileno())

    def finish(self, outcomes: Sequence[Outcome], summary: dict[str, Any]) -> None:
        """Write the conversations in their final order, then the summary, which marks the end."""
        files.write_text(self._file, _to_text(outcomes))
        files.write_json(self.path / "summary.json", summary)

    def _read_complete_groups(self) -> bytes:
        raw = self._file.read_bytes() if self._file.exists() else b""
        return raw[: raw.rfind(b"\n\n") + 2] if b"\n\n" in raw else b""


def load_summary(folder: Path) -> dict[str, Any] | None:
    return _read(folder / "summary.json", SUMMARY)


def load_identity(folder: Path) -> dict[str, Any]:
    return _read(folder / "evaluation.json", dict) or {}


def conditions(identity: dict[str, Any]) -> dict[str, Any]:
    """What must be equal in two evaluations to compare them: everything but the model and the views."""
    kept = {key: value for key, value in identity.items() if key not in MODEL_KEYS}
    for section, name in (("eval", "views"), ("teacher", "weights")):
        if isinstance(kept.get(section), dict):
            kept[section] = {key: value for key, value in kept[section].items() if key != name}
    return kept


def load_outcomes(folder: Path) -> list[Outcome]:
    """The conversations of a finished evaluation; a UserError for an unfinished one."""
    if load_summary(folder) is None:
        begun = (folder / "evaluation.json").exists()
        what = "is not finished: run the command that began it to resume" if begun else "is no evaluation"
        raise UserError(f"{folder}: {what} (no summary.json)")
    path = folder / "conversations.jsonl"
    return _parse(path, files.read_text(path))


def _to_text(outcomes: Sequence[Outcome]) -> str:
    return files.jsonl(map(asdict, outcomes)) + "\n"


def _parse(path: Path, text: str) -> list[Outcome]:
    outcomes = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                row = files.parse_json(line)
            except (ValueError, RecursionError) as error:
                what = f"not a conversation of an evaluation: {files.json_problem(error)}"
                raise UserError(f"{where}: {what}") from None
            check_shape(row, CONVERSATION, where)
            if not row["turns"]:
                raise UserError(f"{where}: a conversation without a turn; the file is damaged")
            outcomes.append(Outcome(**{name: row[name] for name in CONVERSATION}))
    return outcomes


def _read(path: Path, shape: Any) -> dict[str, Any] | None:
    if not path.exists():
        return None
    tree = files.read_json(path, advice="delete its folder or choose another --out")
    check_shape(tree, shape, str(path))
    return tree


class SelfDescribing(ABC):
    """Text and HTML representations made from `_lines`: pairs of a label and a value."""

    @abstractmethod
    def _lines(self) -> list[tuple[str, str]]: ...

    def __repr__(self) -> str:
        return "\n".join(f"{what:<10} {value}" for what, value in self._lines())

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{esc(what)}</th><td>{esc(value)}</td></tr>" for what, value in self._lines())
        return f"<table>{rows}</table>"


class Evaluation(SelfDescribing, dict[str, Any]):
    """A finished evaluation: a dict from view to summary, with everything else as attributes. `side`: "base"
    or the checkpoint's name for a run's evaluation, else None.
    """

    def __init__(self, path: str | Path, side: str | None = None) -> None:
        self.path, self.side = Path(path), side
        if (summary := load_summary(self.path)) is None:
            raise UserError(f"{self.path}: is no finished evaluation (no summary.json)")
        self.summary = summary  # all of summary.json
        super().__init__(summary["views"])

    def conversations(self, view: str | None = None) -> Any:
        """The conversations with their verdicts, as a DataFrame (without pandas, a list of dicts)."""
        outcomes = [o for o in load_outcomes(self.path) if view in (None, o.view)]
        return table([{**vars(o), "messages": messages(o.system, o.turns)} for o in outcomes])

    def compare(self, before: "Evaluation | str | Path") -> dict[str, Any]:
        """The change since another evaluation, by view, paired by item: difference, interval, p."""
        from smopd.evaluation.metrics import compare_evaluations

        other = before.path if isinstance(before, Evaluation) else Path(before)
        return compare_evaluations(other, self.path)

    def to_inspect(self, path: str | Path) -> Path:
        """Write an inspect_ai log (.eval or .json), for `inspect view`."""
        from smopd.evaluation.inspect_log import write_inspect_log

        return write_inspect_log(self.path, Path(path))

    def _lines(self) -> list[tuple[str, str]]:
        shares = ((v, f"{percent(v['accuracy'])} {interval(v['low'], v['high'])}") for v in self.values())
        counts = (f"{share} ({v['correct']}/{v['total']})" for v, share in shares)
        return list(zip(map(str.upper, self), counts, strict=True))
