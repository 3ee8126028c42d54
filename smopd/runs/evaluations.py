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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from smopd.config import Config, load_config
from smopd.config_io import parse_override
from smopd.data import Example
from smopd.errors import UserError
from smopd.evaluation.store import conditions, load_identity, load_summary
from smopd.files import append_jsonl, digest, file_digest
from smopd.models.checksums import WEIGHTS, checkpoints
from smopd.runs.layout import CONFIG, EVAL, EVALUATED, is_run, read_rows
from smopd.tracking import Track, quiet

log = logging.getLogger("smopd")
BASE = "base"
TRAINED = "trained"  # the name of the only evaluation of a run that is evaluated once, after training
# Options of `smopd eval` that are shorter than --set.
OPTIONS = {"data.eval": "--data", "eval.limit": "--limit", "eval.runs": "--runs"}


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of a run. `side`: "base", or the name of the checkpoint."""

    folder: Path
    where: str  # the folder, seen from the run
    side: str
    identity: dict[str, Any]
    summary: dict[str, Any] | None  # None: not finished, or gone from where it was
    settings: tuple[str, ...] = ()  # KEY=VALUE, as it was asked for

    @property
    def conditions(self) -> dict[str, Any]:
        """What must be the same in two evaluations that are compared."""
        return conditions(self.identity)


def evaluations_of(run: Path, config: Config) -> tuple[list[Evaluated], list[Evaluated]]:
    """Every evaluation of the run, those in its folder first, and those gone from where they were."""
    rows = {row["of"]: row for row in read_rows(run, EVALUATED)}
    evaluations: dict[Path, Evaluated] = {}
    gone = []
    for row in rows.values():
        folder, settings = run / row["folder"], tuple(row["settings"])
        known = load_identity(folder) if folder.is_dir() else {}
        there = bool(known) and digest(known) == row["of"]
        summary = load_summary(folder) if there else None
        listed = Evaluated(folder, row["folder"], row["side"], known, summary, settings)
        if there:
            evaluations[folder.resolve()] = listed
        else:
            gone.append(listed)
    # A study keeps the evaluation of a base, which has no run, in eval/ itself.
    files = [*run.glob(f"{EVAL}/evaluation.json"), *sorted(run.glob(f"{EVAL}/*/evaluation.json"))]
    unlisted = [file.parent for file in files if file.parent.resolve() not in evaluations]
    sides = _sides(run, config) if unlisted else {}
    for folder in unlisted:
        known = load_identity(folder)
        side = sides.get(known.get("adapter"))
        served = known.get("engine") == "openai"  # some endpoint's model, whatever its name is
        if side and not served and (side != BASE or known.get("model") == config.model.path):
            where = os.path.relpath(folder, run)
            evaluations[folder.resolve()] = Evaluated(folder, where, side, known, load_summary(folder))
    inside = sorted(evaluations.values(), key=lambda e: (not e.where.startswith(EVAL), e.where))
    return inside, gone


def evaluations_to_compare(before: Path, after: Path) -> tuple[Path, Path]:
    """Two evaluations of the same examples, if possible with the same settings, the newest of them.

    A folder that is no run is taken for an evaluation. A run stands for the evaluations of its checkpoints,
    and before itself for those of its base.
    """
    if not any(map(is_run, (before, after))):
        return before, after
    same = before.resolve() == after.resolve()
    candidates = product(_find_finished(after), _find_finished(before, base=same))
    named = [(a, load_identity(a), b, load_identity(b)) for b, a in candidates]
    pairs = [(a, b) for a, first, b, second in named if conditions(first) == conditions(second)]
    pairs += [(a, b) for a, first, b, second in named if first.get("examples") == second.get("examples")]
    if not pairs:
        both = " and ".join(dict.fromkeys(map(str, (before, after))))
        when = "before and after training" if same else "with both"
        calls = " and ".join(f"smopd eval {run} --data DATA" for run in dict.fromkeys((before, after)))
        raise UserError(f"{both}: no examples were evaluated {when}; run {calls}")
    return pairs[0]


def _find_finished(folder: Path, base: bool = False) -> list[Path]:
    """Finished evaluations of a run's base or of its checkpoints, newest first; else the folder itself."""
    if not is_run(folder):
        return [folder]
    listed, _ = evaluations_of(folder, load_config(folder / CONFIG))
    done = [e.folder for e in listed if e.summary is not None and (e.side == BASE) == base]
    return sorted(done, key=lambda path: (path / "summary.json").stat().st_mtime_ns, reverse=True)


def evaluation_folder(run: Path, side: str, *marks: str) -> Path:
    """Where an evaluation of a run stands, unless somebody wants it elsewhere."""
    return run / EVAL / "-".join((side, *marks))


def eval_command(run: Path, settings: Sequence[str] = (), **replaced: str) -> str:
    """The command line that evaluates base and newest checkpoint with these settings."""
    pairs = dict(setting.split("=", 1) for setting in settings)
    pairs |= {key.replace("__", "."): value for key, value in replaced.items()}
    arguments = ["smopd", "eval", str(run)]
    for key, value in pairs.items():
        _, parsed = parse_override(f"{key}={value}")
        if key in OPTIONS:
            arguments += [OPTIONS[key], str(parsed)]
        elif key == "eval.views" and isinstance(parsed, list):
            arguments += ["--views", ",".join(map(str, parsed))]
        else:
            arguments += ["--set", f"{key}={value}"]
    return shlex.join(arguments)


def slug(name: str, default: str = "eval") -> str:
    """The last part of a path or name, in characters that every file system takes."""
    stem = re.sub(r"\.(jsonl?|gguf|toml)$", "", name.rstrip("/").rpartition("/")[2])
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:40] or default


def list_evaluation(run: Path, place: Path, side: str, of: str, settings: Sequence[str]) -> None:
    """Add the row of an evaluation to the run's list, unless it is there."""
    where = os.path.relpath(place, run)
    row = {"folder": where, "side": side, "of": of, "settings": list(settings)}
    try:
        if row not in read_rows(run, EVALUATED):
            append_jsonl(run / EVALUATED, row)
    except OSError as error:  # a run of somebody else, whose folder may only be read
        problem = f"cannot be written ({error.strerror})"
        log.warning("%s: %s: smopd report will not find %s", run / EVALUATED, problem, place)


def evaluate_side(
    run: Path, side: str, config: Config, examples: Sequence[Example], adapter: Path | None,
    out: Path | None = None, settings: Sequence[str] = (), begin: Callable[[], None] = lambda: None,
    track: Track = quiet,
) -> tuple[Path, dict[str, Any], bool]:  # fmt: skip
    """Play, continue or read one side of a run, and list it: its folder, its summary, was it finished before.

    Without `out` it stands in the run folder. The base of another run is taken over where it is the same in
    every respect.
    """
    from smopd.evaluation.session import evaluate_into, identity

    wanted: dict[str, Any] = json.loads(json.dumps(identity(config, examples, adapter)))
    place = out or _find_or_choose_folder(run, side, config, wanted)
    if side == BASE and not place.exists() and (same := _find_elsewhere(run, wanted)):
        begin()
        log.info("the same evaluation of the base is in %s: taken over", same)
        _copy(same, place)
    finished = load_summary(place) is not None

    def begun() -> None:
        begin()
        list_evaluation(run, place, side, digest(wanted), settings)

    summary = evaluate_into(place, config, examples, side, adapter, begun, track)
    list_evaluation(run, place, side, digest(wanted), settings)
    return place, summary, finished


def _find_or_choose_folder(run: Path, side: str, config: Config, wanted: dict[str, Any]) -> Path:
    """Where in the run folder it stands already, finished or not, or else will stand."""
    for file in sorted(run.glob(f"{EVAL}/*/evaluation.json")):
        if load_identity(file.parent) == wanted:
            return file.parent
    return evaluation_folder(run, side, slug(config.data.eval), digest(wanted, 4))


def _find_elsewhere(run: Path, wanted: dict[str, Any]) -> Path | None:
    """The same evaluation, finished, in a run beside this one or by itself."""
    for parent in dict.fromkeys((run.resolve().parent, Path("runs").resolve())):
        in_runs = sorted(parent.glob(f"*/{EVAL}/*/evaluation.json"))
        for file in (*in_runs, *sorted(parent.glob("*/evaluation.json"))):
            with suppress(OSError, ValueError):  # a damaged folder of somebody else is not our business here
                known = json.loads(file.read_text(encoding="utf-8"))
                if known == wanted and (file.parent / "summary.json").exists():
                    return file.parent
    return None


def _copy(source: Path, place: Path) -> None:
    partial = place.with_name(f".partial-{place.name}")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial, ignore=shutil.ignore_patterns(".lock", "*.partial"))
    partial.rename(place)


def _sides(run: Path, config: Config) -> dict[str | None, str]:
    start: str | None = None
    if config.model.adapter:
        folder = Path(config.model.adapter).expanduser()
        file = (checkpoints(folder) or [folder])[-1] / WEIGHTS
        start = file_digest(file) if file.exists() else ""  # it may be gone: then nothing is the base
    files = [folder / WEIGHTS for folder in checkpoints(run)]
    trained: dict[str | None, str] = {file_digest(file): file.parent.name for file in files if file.exists()}
    return {start: BASE} | trained
