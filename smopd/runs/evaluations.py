"""The evaluations of a run's base model and checkpoints, wherever they are. RUN/evaluated.jsonl has a row for
each: its folder relative to the run, its side (base or checkpoint), a hash of everything it depends on, and
the requested settings. A later row with the same hash replaces an earlier one. An evaluation in RUN/eval
without a row is recognised by the digest of its adapter.
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
from smopd.files import append_jsonl, digest, file_digest, new_folder
from smopd.models.adapter_files import WEIGHTS, checkpoints
from smopd.runs.layout import CONFIG, EVAL, EVALUATED, is_run, read_rows
from smopd.tracking import Track, quiet

log = logging.getLogger("smopd")
BASE = "base"
TRAINED = "trained"  # folder of the evaluation after training, in a quickstart or a study
# Options of `smopd eval` that stand for --set.
OPTIONS = {"data.eval": "--data", "eval.limit": "--limit", "eval.runs": "--runs"}


@dataclass(frozen=True)
class Evaluated:
    folder: Path
    where: str  # the folder, relative to the run
    side: str  # "base", or the name of the checkpoint
    identity: dict[str, Any]
    summary: dict[str, Any] | None  # None: not finished, or no longer there
    settings: tuple[str, ...] = ()  # KEY=VALUE, as requested

    @property
    def conditions(self) -> dict[str, Any]:
        return conditions(self.identity)


def evaluations_of(run: Path, config: Config) -> tuple[list[Evaluated], list[Evaluated]]:
    """The run's evaluations, those in its folder first, and the listed ones that are no longer there."""
    rows = {row["of"]: row for row in read_rows(run, EVALUATED)}
    evaluations: dict[Path, Evaluated] = {}
    gone = []
    for row in rows.values():
        folder, settings = run / row["folder"], tuple(row["settings"])
        known = load_identity(folder)
        there = digest(known) == row["of"]
        summary = load_summary(folder) if there else None
        listed = Evaluated(folder, row["folder"], row["side"], known, summary, settings)
        if there:
            evaluations[folder.resolve()] = listed
        else:
            gone.append(listed)
    # A study puts the evaluation of a base, which has no run, into eval/ itself.
    files = [*run.glob(f"{EVAL}/evaluation.json"), *sorted(run.glob(f"{EVAL}/*/evaluation.json"))]
    unlisted = [file.parent for file in files if file.parent.resolve() not in evaluations]
    sides = _sides(run, config) if unlisted else {}
    for folder in unlisted:
        known = load_identity(folder)
        side = sides.get(known.get("adapter"))
        served = known.get("engine") == "openai"  # an endpoint's model, even if the name is the same
        if side and not served and (side != BASE or known.get("model") == config.model.path):
            where = os.path.relpath(folder, run)
            evaluations[folder.resolve()] = Evaluated(folder, where, side, known, load_summary(folder))
    return sorted(evaluations.values(), key=lambda e: (not e.where.startswith(EVAL), e.where)), gone


def evaluations_to_compare(before: Path, after: Path) -> tuple[Path, Path]:
    """Choose the newest two evaluations on the same examples, preferably with the same settings. A folder
    that is not a run counts as an evaluation. A run stands for the evaluations of its checkpoints; compared
    with itself, `before` stands for those of its base.
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
    """Finished evaluations of a run's base or checkpoints, newest first; else the folder itself."""
    if not is_run(folder):
        return [folder]
    listed, _ = evaluations_of(folder, load_config(folder / CONFIG))
    done = [e.folder for e in listed if e.summary is not None and (e.side == BASE) == base]
    return sorted(done, key=lambda path: (path / "summary.json").stat().st_mtime_ns, reverse=True)


def evaluation_folder(run: Path, side: str, *marks: str) -> Path:
    return run / EVAL / "-".join((side, *marks))


def eval_command(run: Path, settings: Sequence[str] = ()) -> str:
    """The command line that evaluates base and newest checkpoint with these settings; the last one wins."""
    arguments = ["smopd", "eval", str(run)]
    for key, value in dict(setting.split("=", 1) for setting in settings).items():
        _, parsed = parse_override(f"{key}={value}")
        if key in OPTIONS:
            arguments += [OPTIONS[key], str(parsed)]
        elif key == "eval.views" and isinstance(parsed, list):
            arguments += ["--views", ",".join(map(str, parsed))]
        else:
            arguments += ["--set", f"{key}={value}"]
    return shlex.join(arguments)


def slug(name: str, default: str = "eval") -> str:
    """The last part of a path or name, in characters that every file system accepts."""
    stem = re.sub(r"\.(jsonl?|gguf|toml)$", "", name.rstrip("/").rpartition("/")[2])
    return re.sub(r"[^\w.-]+", "-", stem).strip("-.")[:40] or default


def list_evaluation(run: Path, place: Path, side: str, of: str, settings: Sequence[str]) -> None:
    row = {"folder": os.path.relpath(place, run), "side": side, "of": of, "settings": list(settings)}
    try:
        if row not in read_rows(run, EVALUATED):
            append_jsonl(run / EVALUATED, row)
    except OSError as error:  # such as a read-only run folder of another user
        problem = f"cannot be written ({error.strerror})"
        log.warning("%s: %s: smopd report will not find %s", run / EVALUATED, problem, place)


def evaluate_side(
    run: Path, side: str, config: Config, examples: Sequence[Example], adapter: Path | None,
    out: Path | None = None, settings: Sequence[str] = (), begin: Callable[[], None] = lambda: None,
    track: Track = quiet,
) -> tuple[Path, dict[str, Any], bool]:  # fmt: skip
    """Play, resume or read one side of a run, and list it; return folder, summary, whether it was finished
    before. Without `out` it goes into the run folder. An identical evaluation of the base by another run is
    copied.
    """
    from smopd.evaluation.session import evaluate_into, identity

    wanted: dict[str, Any] = json.loads(json.dumps(identity(config, examples, adapter)))
    new = evaluation_folder(run, side, slug(config.data.eval), digest(wanted, 4))
    there = (file.parent for file in sorted(run.glob(f"{EVAL}/*/evaluation.json")))
    place = out or next((folder for folder in there if load_identity(folder) == wanted), new)
    if side == BASE and not place.exists() and (same := _find_elsewhere(run, wanted)):
        begin()
        log.info("the same evaluation of the base is in %s: taken over", same)
        with new_folder(place) as partial:
            shutil.copytree(same, partial, ignore=shutil.ignore_patterns(".lock", "*.partial"))
    finished = load_summary(place) is not None

    def begun() -> None:
        begin()
        list_evaluation(run, place, side, digest(wanted), settings)

    summary = evaluate_into(place, config, examples, side, adapter, begun, track)
    list_evaluation(run, place, side, digest(wanted), settings)
    return place, summary, finished


def _find_elsewhere(run: Path, wanted: dict[str, Any]) -> Path | None:
    """Find the same finished evaluation in a run beside this one or in a folder of its own."""
    for parent in dict.fromkeys((run.resolve().parent, Path("runs").resolve())):
        in_runs = sorted(parent.glob(f"*/{EVAL}/*/evaluation.json"))
        for file in (*in_runs, *sorted(parent.glob("*/evaluation.json"))):
            with suppress(OSError, ValueError):  # ignore damaged folders
                known = json.loads(file.read_text(encoding="utf-8"))
                if known == wanted and (file.parent / "summary.json").exists():
                    return file.parent
    return None


def _sides(run: Path, config: Config) -> dict[str | None, str]:
    start: str | None = None
    if config.model.adapter:
        folder = Path(config.model.adapter).expanduser()
        file = (checkpoints(folder) or [folder])[-1] / WEIGHTS
        start = file_digest(file) if file.exists() else ""  # if it is gone, no evaluation is the base's
    files = [folder / WEIGHTS for folder in checkpoints(run)]
    trained: dict[str | None, str] = {file_digest(file): file.parent.name for file in files if file.exists()}
    return {start: BASE} | trained
