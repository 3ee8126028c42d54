"""`smopd data ...`: make, check and describe data sets. Results on standard output, progress on standard error."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from smopd.errors import UserError

data_app = typer.Typer(no_args_is_help=True, help="Make and check data sets.")
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def _emit(value: dict[str, Any]) -> None:
    print(json.dumps(value, ensure_ascii=False))


@data_app.command("pocket")
def data_pocket(
    out: Annotated[Path, typer.Argument(help="JSONL file to write.")],
    split: Annotated[str, typer.Option(help="train or eval.")] = "train",
    count: Annotated[int, typer.Option(min=1, help="How many examples.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed, other examples of the same split.")] = 0,
    as_json: Json = False,
) -> None:
    """Write examples of the pocket world to a file.

    Example: smopd data pocket train.jsonl --count 500
    """
    from smopd.data import save_examples
    from smopd.data.pocket_world import generate

    if split not in ("train", "eval"):
        raise UserError(f"--split: expected train or eval, found {split!r}")
    if out.exists():
        raise UserError(f"{out}: exists; nothing was written")
    save_examples(out, generate(split, count, seed))  # type: ignore[arg-type]
    _emit({"file": str(out), "examples": count}) if as_json else print(f"{count} examples in {out}")


@data_app.command("check")
def data_check(path: Annotated[str, typer.Argument(help="JSONL of ours or LiC's JSON.")], as_json: Json = False) -> None:
    """Read a data set and count what is in it; a broken one is named by file, line and field.

    Example: smopd data check train.jsonl
    """
    from collections import Counter

    from smopd.data import load_examples

    examples = load_examples(path)
    tasks, shards = Counter(e.task for e in examples), Counter(len(e.shards) for e in examples)
    if as_json:
        _emit(
            {
                "file": path,
                "examples": len(examples),
                "tasks": dict(tasks),
                "shards": {str(k): v for k, v in sorted(shards.items())},
            }
        )
    else:
        print(f"{path}: {len(examples)} examples; tasks {dict(tasks)}; shards {dict(sorted(shards.items()))}")
