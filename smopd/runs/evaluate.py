"""Evaluates one side of a run, its base or a checkpoint, and lists the evaluation in the run folder."""

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from smopd.config import Config
from smopd.data import Example
from smopd.evaluation.session import evaluate_into, identity
from smopd.evaluation.store import load_identity, load_summary
from smopd.files import digest
from smopd.runs.evaluations import BASE, evaluation_folder, list_evaluation, slug
from smopd.runs.layout import EVAL
from smopd.tracking import Track, quiet

log = logging.getLogger("smopd")


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
