"""`smopd bench`: the benchmarks on the command line, as a table or as one JSON object.

Heavy imports wait until a verb runs. Every measurement takes a fresh process of one thread
(`smopd.bench.measure`), but for `verify`, whose work is done by a pool of processes anyway.
"""

import json
from typing import Annotated, Any

import typer

from smopd.errors import UserError

bench_app = typer.Typer(
    no_args_is_help=True,
    help="Measure CPU time and memory of scoring and sampling against other paths, and the verifiers' speed.",
)

Reps = Annotated[int, typer.Option(min=1, help="Repetitions of every variant, each in a fresh process.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


@bench_app.command()
def head(
    reps: Reps = 5,
    tokens: Annotated[int, typer.Option(min=1, help="Reply tokens, N.")] = 512,
    width: Annotated[int, typer.Option(min=1, help="Hidden width, d.")] = 1024,
    vocabulary: Annotated[int, typer.Option(min=2, help="Vocabulary, V.")] = 151936,
    slope: Annotated[
        str, typer.Option(help="The N at which our memory is read, for its slope.")
    ] = "128,256,512",
    as_json: Json = False,
) -> None:
    """From hidden states to the gradient of the loss: ours, full logits, TRL's kernel, and the bare matrix
    products.

    Example: smopd bench head --reps 3
    """
    sizes = slope.replace(",", " ").split()
    if not all(size.isdigit() and int(size) for size in sizes):
        raise UserError(f"--slope: expected positive numbers separated by commas, found {slope!r}")
    from smopd.bench.head import Head, report

    _show(
        report(Head(tokens=tokens, width=width, vocabulary=vocabulary), reps, [int(size) for size in sizes]),
        as_json,
    )


@bench_app.command()
def scoring(
    reps: Reps = 5,
    data: Annotated[
        str, typer.Option(help="JSONL of ours, LiC's JSON, or pocket:eval[:N].")
    ] = "pocket:eval:8",
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder of a tokenizer with a chat template; default: pocket's.")
    ] = None,
    conversations: Annotated[int, typer.Option(min=1, help="Only the first N examples.")] = 8,
    reply: Annotated[int, typer.Option(min=1, help="Tokens of every reply.")] = 120,
    width: Annotated[
        int, typer.Option(min=8, help="Hidden width of the random body; a multiple of 8.")
    ] = 256,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the random body.")] = 4,
    history: Annotated[
        str, typer.Option(help="Replies in the history: template, or verbatim as sampled.")
    ] = "template",
    as_json: Json = False,
) -> None:
    """Student and teacher passes over conversations: packed prefix trees against one padded row for every
    turn.

    Example: smopd bench scoring --data lic_math.json --tokenizer tokenizers/qwen3
    """
    if width % 8:  # four heads of an even width, which rotary positions need
        raise UserError(f"--width: expected a multiple of 8, found {width}")
    if history not in ("template", "verbatim"):
        raise UserError(f"--history: expected template or verbatim, found {history!r}")
    from smopd.bench.scoring import Scoring, report
    from smopd.pocket import MODEL_DIR

    settings = Scoring(data, tokenizer or str(MODEL_DIR), conversations, reply, width, layers, history)
    _show(report(settings, reps), as_json)


@bench_app.command()
def step(
    reps: Reps = 3,
    model: Annotated[
        str, typer.Option(help="pocket, smollm2, or both separated by a comma.")
    ] = "pocket,smollm2",
    rollouts: Annotated[int, typer.Option(min=1, help="Rollouts of the pocket recipe's step.")] = 16,
    as_json: Json = False,
) -> None:
    """The scoring part of one training step, forward and backward: the fast path against the plain one.

    Example: smopd bench step --model pocket --reps 3
    """
    from smopd.bench.step import SCENES, Step, report

    scenes = tuple(dict.fromkeys(name.strip() for name in model.split(",")))
    if not set(scenes) <= set(SCENES):
        raise UserError(
            f"--model: expected {' or '.join(SCENES)}, or both separated by a comma; found {model!r}"
        )
    _show(report(Step(rollouts=rollouts), reps, scenes), as_json)


@bench_app.command()
def rollout(
    reps: Reps = 3,
    model: Annotated[
        str, typer.Option(help="pocket, a model folder, a GGUF file, or a hub name.")
    ] = "pocket",
    data: Annotated[
        str, typer.Option(help="JSONL of ours, LiC's JSON, or pocket:eval[:N].")
    ] = "pocket:eval:400",
    conversations: Annotated[int, typer.Option(min=1, help="How many, all in one batch.")] = 16,
    turns: Annotated[int, typer.Option(min=0, help="Only examples of so many shards; 0 = any.")] = 0,
    reply: Annotated[int, typer.Option(min=1, help="Token limit of every reply.")] = 64,
    history: Annotated[
        str, typer.Option(help="Replies in the history: template, or verbatim as sampled.")
    ] = "template",
    as_json: Json = False,
) -> None:
    """Conversations sampled with keys and values kept from turn to turn, against stock generate for every
    turn.

    Example: smopd bench rollout --model SmolLM2-135M-Instruct --data lic_math.json --turns 6
    """
    if history not in ("template", "verbatim"):
        raise UserError(f"--history: expected template or verbatim, found {history!r}")
    from smopd.bench.rollout import Rollouts, report

    _show(report(Rollouts(model, data, conversations, turns, reply, history), reps), as_json)


@bench_app.command()
def verify(
    reps: Annotated[int, typer.Option(min=1, help="Repetitions of both ways.")] = 3,
    quick: Annotated[int, typer.Option(min=1, help="Replies for numbers and calls.")] = 2000,
    slow: Annotated[int, typer.Option(min=1, help="Replies for expressions, queries and programs.")] = 200,
    as_json: Json = False,
) -> None:
    """Verdicts a second of every verifier: one reply after the other, and many at once on all cores.

    Example: smopd bench verify --reps 3
    """
    from smopd.bench.verify import Verify, report

    found = report(Verify(quick, slow), reps)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = f"smopd bench verify, verdicts a second, median of {reps}, {found['machine']['threads']} at once"
    table = Table(box=box.SIMPLE, title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for heading in ("right", "failed", "one by one", "at once", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found["results"]:
        counts = [f"{row['correct']:,}/{row['verdicts']:,}", str(row["failed"])]
        single, many = row["per_second"].values()
        table.add_row(row["name"], *counts, f"{single:,.0f}", f"{many:,.0f}", f"{many / single:.2f}")
    console = Console(highlight=False)
    console.print(table)
    for note in [*found["notes"], found["machine"]["cpu"]]:
        console.print(note, markup=False)


def _show(report: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(report, ensure_ascii=False))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table(
        box=box.SIMPLE,
        title=f"smopd bench {report['bench']}, median of {report['reps']}, one thread",
        title_justify="left",
    )
    table.add_column("", no_wrap=True)
    for title in ("CPU s", "min-max", "ratio", "MB", "ratio"):
        table.add_column(title, justify="right", no_wrap=True)
    counted = any("tokens" in row for row in report["results"])
    if counted:
        table.add_column("tokens", justify="right")
    shares = {name: ratio for others in report["ratios"].values() for name, ratio in others.items()}
    for row in report["results"]:
        share = shares.get(row["name"], {})
        low, high = row["spread"]
        table.add_row(
            row["name"],
            f"{row['seconds']:.3f}",
            f"{low:.3f}-{high:.3f}",
            _ratio(share.get("seconds")),
            f"{row['peak_mb']:.0f}",
            _ratio(share.get("peak_mb")),
            *([f"{row.get('tokens', 0):,}"] if counted else []),
        )
    console.print(table)
    if report.get("slope_mb_per_1000_tokens") is not None:
        read = ", ".join(f"N={n}: {mb:.0f} MB" for n, mb in report["memory_by_tokens"].items())
        console.print(
            f"our extra memory: {report['slope_mb_per_1000_tokens']:.1f} MB per 1,000 tokens ({read})",
            markup=False,
        )
    way = report["results"][0]["memory"]
    for note in [
        "ratio: ours / this row; MB: peak beyond what was there before",
        *report["notes"],
        f"{report['machine']['cpu']}; torch {report['machine']['torch']}; peak memory from {way}",
    ]:
        console.print(note, markup=False)


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
