"""A base that gets lost by itself: SmolLM2, fine-tuned on tasks told at once and on nothing else.

    OUT/stock/    SmolLM2-135M-Instruct as it is, a plain model folder
    OUT/run/      the fine-tuning, an ordinary run
    OUT/model/    the base: stock with the run's adapter folded in

Every part is written whole, and the same call resumes it where an earlier one stopped.
"""

import json
from pathlib import Path
from typing import Any

from smopd.config import Config, load_config
from smopd.models.smollm2 import write_plain
from smopd.runs.export import export
from smopd.runs.writer import RunFolder
from smopd.tracking import Track, quiet
from smopd.training.runs import Note, train_run

RECIPE = "smollm2-base"


def build_base(
    out: Path, overrides: list[str], track: Track = quiet, note: Note = lambda row: ""
) -> dict[str, Any]:
    """Make what of the three parts is missing; where they are."""
    parts = {name: str(out / name) for name in ("stock", "run", "model")}
    config = load_config(RECIPE, [f"model.path={json.dumps(parts['stock'])}", *overrides])
    folder = RunFolder(out / "run", config)  # refuses other settings than those it was begun with
    if (out / "model" / "config.json").exists():
        return parts
    write_plain(out / "stock", track)
    train_run(config, folder, track, note)
    with track("folding the adapter into the base"):
        export(out / "run", out / "model")
    return parts


def find_or_build_base(config: Config, track: Track = quiet, note: Note = lambda row: "") -> None:
    """The model that a config trains: built where it is the one `build_base` makes and is not there yet."""
    model = Path(config.model.path)
    if model.name == "model" and not (model / "config.json").exists():
        build_base(model.parent, [], track, note)
