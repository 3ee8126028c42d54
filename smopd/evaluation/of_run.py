"""The evaluations of a run, of its base and of its checkpoints, wherever they were put.

RUN/evaluated.jsonl has a row for each: where it stands, seen from the run folder, which side it is of, a hash
of all it depends on, and the settings it was asked for with. A later row of the same hash replaces an earlier
one. What stands in RUN/eval without a row is known by the digest of its adapter.
"""

import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smopd.config import Config
from smopd.config_io import parse_override
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.session import evaluate_into, identity
from smopd.evaluation.store import load_identity, load_summary
from smopd.files import append_jsonl, digest, file_digest, read_jsonl
from smopd.models.adapter_files import WEIGHTS, resolve_adapter
from smopd.models.checksums import checkpoints
from smopd.tracking import Track, quiet

log = logging.getLogger("smopd")
LIST = "evaluated.jsonl"
BASE = "base"
# Options of `smopd eval` that are shorter than --set.
OPTIONS = {"data.eval": "--data", "eval.limit": "--limit", "eval.runs": "--runs"}
# What an evaluation is of, and how it was computed: the rest must be the same for a comparison.
OF_THE_MODEL = ("model", "weights", "adapter", "dtype", "quantize", "engine")


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of a run. `side`: "base", or the name of the checkpoint."""

    folder: Path
    where: str  # the folder, seen from the run
    side: str
    identity: dict[str, Any]
    summary: dict[str, Any] | None  # None: not finished
    settings: tuple[str, ...] = ()  # KEY=VALUE, as it was asked for

    @property
    def conditions(self) -> dict[str, Any]:
        """What must be the same in two evaluations that are compared."""
        kept = {key: value for key, value in self.identity.items() if key not in OF_THE_MODEL}
        return kept | {"eval": {k: v for k, v in kept.get("eval", {}).items() if k != "views"}}


@dataclass(frozen=True)
class Gone:
    """An evaluation that is listed and no longer there."""

    where: str
    side: str
    settings: tuple[str, ...] = ()


def evaluate_side(
    run: Path, side: str, config: Config, examples: Sequence[Example], adapter: Path | None,
    out: Path | None = None, settings: Sequence[str] = (), begin: Callable[[], None] = lambda: None,
    track: Track = quiet,
) -> tuple[Path, dict[str, Any], bool]:  # fmt: skip
    """Play, continue or read one side of a run, and list it: its folder, its summary, was it finished before.

    Without `out` it stands in the run folder. The base of another run is taken over where it is the same in
    every respect.
    """
    wanted: dict[str, Any] = json.loads(json.dumps(identity(config, examples, adapter)))
    place = out or _own_place(run, side, config, wanted)
    if side == BASE and not place.exists() and (same := _elsewhere(run, wanted)):
        begin()
        log.info("the same evaluation of the base is in %s: taken over", same)
        _copy(same, place)
    finished = load_summary(place) is not None

    def begun() -> None:
        begin()
        _list(run, place, side, digest(wanted), settings)

    summary = evaluate_into(place, config, examples, side, adapter, begun, track)
    _list(run, place, side, digest(wanted), settings)
    return place, summary, finished


def evaluations_of(run: Path, config: Config) -> tuple[list[Evaluated], list[Gone]]:
    """Every evaluation of the run, those in its folder first, and those gone from where they were."""
    rows = {row["of"]: row for row in read_jsonl(run / LIST)}
    found: dict[Path, Evaluated] = {}
    gone = []
    for row in rows.values():
        folder, settings = run / row["folder"], tuple(row["settings"])
        known = load_identity(folder) if folder.is_dir() else {}
        if known and digest(known) == row["of"]:
            made = Evaluated(folder, row["folder"], row["side"], known, load_summary(folder), settings)
            found[folder.resolve()] = made
        else:
            gone.append(Gone(row["folder"], row["side"], settings))
    sides: dict[str | None, str] | None = None
    for file in sorted(run.glob("eval/*/evaluation.json")):
        if file.parent.resolve() not in found:
            sides = _sides(run, config) if sides is None else sides
            known, where = load_identity(file.parent), os.path.relpath(file.parent, run)
            side = sides.get(known.get("adapter"))
            served = known.get("engine") == "openai"  # some endpoint's model, whatever its name is
            if served or (side == BASE and known.get("model") != config.model.path):
                side = None
            if side:
                made = Evaluated(file.parent, where, side, known, load_summary(file.parent))
                found[file.parent.resolve()] = made
    inside = sorted(found.values(), key=lambda e: (not e.where.startswith("eval/"), e.where))
    return inside, gone


def eval_command(run: Path, settings: Sequence[str] = (), **replaced: str) -> str:
    """The command line that evaluates base and newest checkpoint with these settings."""
    pairs = dict(setting.split("=", 1) for setting in settings)
    pairs |= {key.replace("__", "."): value for key, value in replaced.items()}
    words = ["smopd", "eval", str(run)]
    for key, value in pairs.items():
        _, parsed = parse_override(f"{key}={value}")
        if key in OPTIONS:
            words += [OPTIONS[key], str(parsed)]
        elif key == "eval.views" and isinstance(parsed, list):
            words += ["--views", ",".join(map(str, parsed))]
        else:
            words += ["--set", f"{key}={value}"]
    return shlex.join(words)


def slug(name: str) -> str:
    """The last part of a path or name, in characters that every file system takes."""
    stem = re.sub(r"\.(jsonl?|gguf|toml)$", "", name.rstrip("/").rpartition("/")[2])
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:40] or "eval"


def _own_place(run: Path, side: str, config: Config, wanted: dict[str, Any]) -> Path:
    """Where in the run folder it stands already, finished or not, or else will stand."""
    for file in sorted(run.glob("eval/*/evaluation.json")):
        if load_identity(file.parent) == wanted:
            return file.parent
    return run / "eval" / f"{side}-{slug(config.data.eval)}-{digest(wanted, 4)}"


def _elsewhere(run: Path, wanted: dict[str, Any]) -> Path | None:
    """The same evaluation, finished, in a run beside this one or by itself."""
    for parent in dict.fromkeys((run.resolve().parent, Path("runs").resolve())):
        for file in (
            *sorted(parent.glob("*/eval/*/evaluation.json")),
            *sorted(parent.glob("*/evaluation.json")),
        ):
            if (file.parent / "summary.json").exists() and _identity_or_none(file.parent) == wanted:
                return file.parent
    return None


def _identity_or_none(folder: Path) -> dict[str, Any] | None:
    """Of somebody else's folder, which may be damaged: that is not our business here."""
    try:
        made: dict[str, Any] = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return made


def _copy(source: Path, place: Path) -> None:
    partial = place.with_name(f".partial-{place.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, ignore=shutil.ignore_patterns(".lock", "*.partial"))
    partial.rename(place)


def _list(run: Path, place: Path, side: str, of: str, settings: Sequence[str]) -> None:
    where = os.path.relpath(place, run)
    row = {"folder": where, "side": side, "of": of, "settings": list(settings)}
    try:
        if row not in read_jsonl(run / LIST):
            append_jsonl(run / LIST, row)
    except OSError as error:  # a run of somebody else, whose folder may only be read
        log.warning(
            "%s: cannot be written (%s): smopd report will not find %s", run / LIST, error.strerror, place
        )


def _sides(run: Path, config: Config) -> dict[str | None, str]:
    """Digest of an adapter -> the side it is."""
    start: str | None = None
    if config.model.adapter:
        try:
            start = file_digest(resolve_adapter(config.model.adapter) / WEIGHTS)
        except UserError:  # it may be gone: then nothing is known to be the base
            start = ""
    made: dict[str | None, str] = {start: BASE}
    return made | dict(_digests(run))


def _digests(run: Path) -> Iterator[tuple[str, str]]:
    for folder in checkpoints(run):
        if (folder / WEIGHTS).exists():
            yield file_digest(folder / WEIGHTS), folder.name
