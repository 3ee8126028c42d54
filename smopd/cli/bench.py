"""`smopd bench`: the benchmarks as a table or as one JSON object. Heavy imports wait until a verb runs."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from smopd.cli.options import Json
from smopd.cli.printing import emit, show
from smopd.errors import UserError

HELP = "Measure CPU time and memory of scoring and sampling against other paths, and the verifiers' speed."
bench_app = typer.Typer(no_args_is_help=True, help=HELP)

Reps = Annotated[int, typer.Option(min=1, help="Repetitions of every variant, each in a fresh process.")]
Data = Annotated[str, typer.Option(help="JSONL of ours, LiC's JSON, or pocket:eval[:N].")]
History = Annotated[str, typer.Option(help="Replies in the history: template, or verbatim as sampled.")]
Slope = typer.Option(help="The N at which our memory is read, for its slope.")
Tokenizer = typer.Option(help="Folder of a tokenizer with a chat template; default: pocket's.")
Width = typer.Option(min=8, help="Hidden width of the random body; a multiple of 8.")
Scenes = typer.Option(help="pocket, smollm2, or both separated by a comma.")
Model = typer.Option(help="pocket, a model folder, a GGUF file, or a hub name.")


@bench_app.command()
def head(
    reps: Reps = 5,
    tokens: Annotated[int, typer.Option(min=1, help="Reply tokens, N.")] = 512,
    width: Annotated[int, typer.Option(min=1, help="Hidden width, d.")] = 1024,
    vocabulary: Annotated[int, typer.Option(min=2, help="Vocabulary, V.")] = 151936,
    slope: Annotated[str, Slope] = "128,256,512",
    as_json: Json = False,
) -> None:
    """From hidden states to the gradient of the loss: ours, full logits, TRL's kernel, the bare products.

    Example: smopd bench head --reps 3
    """
    sizes = slope.replace(",", " ").split()
    if not all(size.isdigit() and int(size) for size in sizes):
        raise UserError(f"--slope: expected positive numbers separated by commas, found {slope!r}")
    from smopd.bench.head import Head, report

    settings = Head(tokens=tokens, width=width, vocabulary=vocabulary)
    _show(partial(report, settings, reps, [int(size) for size in sizes]), as_json)


@bench_app.command()
def scoring(
    reps: Reps = 5,
    data: Data = "pocket:eval:8",
    tokenizer: Annotated[str | None, Tokenizer] = None,
    conversations: Annotated[int, typer.Option(min=1, help="Only the first N examples.")] = 8,
    reply: Annotated[int, typer.Option(min=1, help="Tokens of every reply.")] = 120,
    width: Annotated[int, Width] = 256,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the random body.")] = 4,
    history: History = "template",
    as_json: Json = False,
) -> None:
    """Student and teacher passes: packed prefix trees against one padded row for every turn.

    Example: smopd bench scoring --data lic_math.json --tokenizer tokenizers/qwen3
    """
    if width % 8:  # four heads of an even width, which rotary positions need
        raise UserError(f"--width: expected a multiple of 8, found {width}")
    _check_history(history)
    from smopd.bench.scoring import Scoring, report
    from smopd.pocket import MODEL_DIR

    settings = Scoring(data, tokenizer or str(MODEL_DIR), conversations, reply, width, layers, history)
    _show(partial(report, settings, reps), as_json)


@bench_app.command()
def step(
    reps: Reps = 3,
    model: Annotated[str, Scenes] = "pocket,smollm2",
    rollouts: Annotated[int, typer.Option(min=1, help="Rollouts of the pocket recipe's step.")] = 16,
    as_json: Json = False,
) -> None:
    """The scoring part of one training step, forward and backward: the fast path against the plain one.

    Example: smopd bench step --model pocket --reps 3
    """
    from smopd.bench.step import SCENES, Step, report

    scenes = tuple(dict.fromkeys(name.strip() for name in model.split(",")))
    if not set(scenes) <= set(SCENES):
        known = " or ".join(SCENES)
        raise UserError(f"--model: expected {known}, or both separated by a comma; found {model!r}")
    _show(partial(report, Step(rollouts=rollouts), reps, scenes), as_json)


@bench_app.command()
def rollout(
    reps: Reps = 3,
    model: Annotated[str, Model] = "pocket",
    data: Data = "pocket:eval:400",
    conversations: Annotated[int, typer.Option(min=1, help="How many, all in one batch.")] = 16,
    turns: Annotated[int, typer.Option(min=0, help="Only examples of so many shards; 0 = any.")] = 0,
    reply: Annotated[int, typer.Option(min=1, help="Token limit of every reply.")] = 64,
    history: History = "template",
    as_json: Json = False,
) -> None:
    """Sampling with keys and values kept from turn to turn, against stock generate for every turn.

    Example: smopd bench rollout --model SmolLM2-135M-Instruct --data lic_math.json --turns 6
    """
    _check_history(history)
    from smopd.bench.rollout import Rollouts, report

    settings = Rollouts(model, data, conversations, turns, reply, history)
    _show(partial(report, settings, reps), as_json)


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
    from smopd.cli.progress import track

    result = report(Verify(quick, slow), reps, track)
    if as_json:
        emit(result)
        return
    rows = []
    for row in result["results"]:
        counts = [f"{row['correct']:,}/{row['verdicts']:,}", str(row["failed"])]
        single, many = row["per_second"].values()
        rows.append([row["name"], *counts, f"{single:,.0f}", f"{many:,.0f}", f"{many / single:.2f}"])
    title = f"smopd bench verify, verdicts a second, median of {reps}, {result['machine']['threads']} at once"
    headings = ["right", "failed", "one by one", "at once", "ratio"]
    _print_table(title, headings, rows, [*result["notes"], result["machine"]["cpu"]])


def _check_history(history: str) -> None:
    if history not in ("template", "verbatim"):
        raise UserError(f"--history: expected template or verbatim, found {history!r}")


def _show(run: Callable[..., dict[str, Any]], as_json: bool) -> None:
    from smopd.cli.progress import track

    report = run(track=track)
    if as_json:
        emit(report)
        return
    headings = ["CPU s", "min-max", "ratio", "MB", "ratio"]
    counted = any("tokens" in row for row in report["results"])
    shares = {name: ratio for others in report["ratios"].values() for name, ratio in others.items()}
    rows = []
    for row in report["results"]:
        share, (low, high) = shares.get(row["name"], {}), row["spread"]
        faster, smaller = ("" if v is None else f"{v:.2f}" for v in map(share.get, ("seconds", "peak_mb")))
        time = [f"{row['seconds']:.3f}", f"{low:.3f}-{high:.3f}", faster]
        memory = [f"{row['peak_mb']:.0f}", smaller]
        rows.append([row["name"], *time, *memory, *([f"{row.get('tokens', 0):,}"] if counted else [])])
    notes = ["ratio: ours / this row; MB: peak beyond what was there before", *report["notes"]]
    if report.get("slope_mb_per_1000_tokens") is not None:
        read = ", ".join(f"N={n}: {mb:.0f} MB" for n, mb in report["memory_by_tokens"].items())
        slope = f"our extra memory: {report['slope_mb_per_1000_tokens']:.1f} MB per 1,000 tokens ({read})"
        notes.insert(0, slope)
    machine, way = report["machine"], report["results"][0]["memory"]
    notes.append(f"{machine['cpu']}; torch {machine['torch']}; peak memory from {way}")
    title = f"smopd bench {report['bench']}, median of {report['reps']}, one thread"
    _print_table(title, [*headings, "tokens"] if counted else headings, rows, notes)


def _print_table(title: str, headings: list[str], rows: list[list[str]], notes: list[str]) -> None:
    from rich import box
    from rich.table import Table

    table = Table("", box=box.SIMPLE, title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=heading != "tokens")
    table.columns[0].no_wrap = True
    for row in rows:
        table.add_row(*row)
    show(table, *notes)
