"""`python -m benchmarks`: a table or one JSON object. Heavy imports wait until a verb runs."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from smopd.cli.options import Json
from smopd.errors import UserError
from smopd.printing import console, emit, say

HELP = "Measure CPU time and memory of scoring and sampling against other paths, and the verifiers' speed."
app = typer.Typer(no_args_is_help=True, help=HELP, add_completion=False, pretty_exceptions_enable=False)

Reps = Annotated[int, typer.Option(min=1, help="Repetitions of every variant, each in a fresh process.")]
Data = Annotated[str, typer.Option(help="JSONL of ours, LiC's JSON, or pocket:eval[:N].")]
History = Annotated[str, typer.Option(help="Replies in the history: template, or verbatim as sampled.")]
Slope = typer.Option(help="The N at which our memory is read, for its slope.")
Tokenizer = typer.Option(help="Folder of a tokenizer with a chat template; default: pocket's.")
Width = typer.Option(min=8, help="Hidden width of the random body; a multiple of 8.")
Scenes = typer.Option(help="pocket, smollm2, or both separated by a comma.")
Model = typer.Option(help="pocket, a model folder, a GGUF file, or a hub name.")


@app.command()
def head(
    reps: Reps = 5,
    tokens: Annotated[int, typer.Option(min=1, help="Reply tokens, N.")] = 512,
    width: Annotated[int, typer.Option(min=1, help="Hidden width, d.")] = 1024,
    vocabulary: Annotated[int, typer.Option(min=2, help="Vocabulary, V.")] = 151936,
    slope: Annotated[str, Slope] = "128,256,512",
    as_json: Json = False,
) -> None:
    """From hidden states to the gradient of the loss: ours, full logits, TRL's kernel, the bare products.

    Example: python -m benchmarks head --reps 3
    """
    sizes = slope.replace(",", " ").split()
    if not all(size.isdecimal() and len(size) < 10 and int(size) for size in sizes):
        raise UserError(f"--slope: expected positive numbers separated by commas, found {slope!r}")
    from benchmarks.head import Head, report

    settings = Head(tokens=tokens, width=width, vocabulary=vocabulary)
    _show(partial(report, settings, reps, [int(size) for size in sizes]), as_json)


@app.command()
def precision(
    tokens: Annotated[int, typer.Option(min=1, help="Reply tokens, N.")] = 8,
    width: Annotated[int, typer.Option(min=1, help="Hidden width, d.")] = 256,
    vocabulary: Annotated[int, typer.Option(min=2, help="Vocabulary, V.")] = 151936,
    as_json: Json = False,
) -> None:
    """Error of divergences and gradients against float64, from bfloat16 hidden states and head.

    Example: python -m benchmarks precision --vocabulary 20000
    """
    from benchmarks.precision import PATHS, Precision, report
    from smopd.progress import track

    result = report(Precision(tokens, width, vocabulary), track)
    if as_json:
        emit(result)
        return
    rows = []
    for row in result["results"]:
        errors = [row[f"{of}_error"][path] for of in ("divergence", "gradient") for path in PATHS]
        rows.append([row["loss"], f"{row['divergence']:.1e}", *(f"{100 * error:,.2f}" for error in errors)])
    title = f"benchmarks precision, error in % of float64's, N {tokens}, d {width}, V {vocabulary:,}"
    headings = ["size", *(f"{of} {path}" for of in ("D", "g") for path in PATHS)]
    notes = ["D: the divergence, g: its gradient; ours, plain: logits in float32; bf16: logits in bfloat16"]
    _print_table(title, headings, rows, notes)


@app.command()
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

    Example: python -m benchmarks scoring --data lic_math.json --tokenizer tokenizers/qwen3
    """
    if width % 8:  # four heads of an even width, which rotary positions need
        raise UserError(f"--width: expected a multiple of 8, found {width}")
    _check_history(history)
    from benchmarks.scoring import Scoring, report
    from smopd.pocket import MODEL_DIR

    settings = Scoring(data, tokenizer or str(MODEL_DIR), conversations, reply, width, layers, history)
    _show(partial(report, settings, reps), as_json)


@app.command()
def step(
    reps: Reps = 3,
    model: Annotated[str, Scenes] = "pocket,smollm2",
    rollouts: Annotated[int, typer.Option(min=1, help="Rollouts of the pocket recipe's step.")] = 16,
    as_json: Json = False,
) -> None:
    """The scoring part of one training step, forward and backward: the fast path against the plain one.

    Example: python -m benchmarks step --model pocket --reps 3
    """
    from benchmarks.step import SCENES, Step, report

    scenes = tuple(dict.fromkeys(name.strip() for name in model.split(",")))
    if not set(scenes) <= set(SCENES):
        known = " or ".join(SCENES)
        raise UserError(f"--model: expected {known}, or both separated by a comma; found {model!r}")
    _show(partial(report, Step(rollouts=rollouts), reps, scenes), as_json)


@app.command()
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

    Example: python -m benchmarks rollout --model SmolLM2-135M-Instruct --data lic_math.json --turns 6
    """
    _check_history(history)
    from benchmarks.rollout import Rollouts, report

    settings = Rollouts(model, data, conversations, turns, reply, history)
    _show(partial(report, settings, reps), as_json)


@app.command()
def ahead(
    reps: Reps = 3,
    model: Annotated[str, Model] = "pocket",
    data: Data = "pocket:train:400",
    conversations: Annotated[int, typer.Option(min=1, help="Conversations of one step.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps whose conversations are sampled together.")] = 4,
    middle: Annotated[int, typer.Option(min=1, help="Token limit of a middle reply.")] = 36,
    answer: Annotated[int, typer.Option(min=1, help="Token limit of an answer.")] = 40,
    as_json: Json = False,
) -> None:
    """Sampling several steps' conversations together, as rollout.ahead does, against step by step.

    Example: python -m benchmarks ahead --model models/smollm2/model --data everyday:train:32
    """
    from benchmarks.ahead import Blocks, report

    _show(partial(report, Blocks(model, data, conversations, steps, middle, answer), reps), as_json)


@app.command()
def trl(
    reps: Reps = 3,
    conversations: Annotated[int, typer.Option(min=1, help="How many make a step.")] = 4,
    turns: Annotated[int, typer.Option(min=1, help="Of every conversation.")] = 5,
    reply: Annotated[int, typer.Option(min=1, help="Tokens of every reply.")] = 48,
    micro_batch: Annotated[int, typer.Option(min=1, help="Conversations differentiated at once.")] = 1,
    recompute: Annotated[bool, typer.Option(help="Gradient checkpointing on both sides.")] = False,
    sampling: Annotated[bool, typer.Option(help="Sample before scoring the given replies.")] = True,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the random model.")] = 30,
    width: Annotated[int, typer.Option(min=18, help="Its hidden width; a multiple of 18.")] = 576,
    vocabulary: Annotated[int, typer.Option(min=896, help="Its vocabulary.")] = 49152,
    ahead: Annotated[int, typer.Option(min=1, help="Our rollout.ahead; a step counts its share.")] = 1,
    as_json: Json = False,
) -> None:
    """A whole training step of SDFT, ours against TRL's trainer: sampling, both passes, update, average.

    The defaults take many minutes and, with --micro-batch 4, more than 20 GB at TRL's side.

    Example: python -m benchmarks trl --conversations 2 --reply 16 --layers 4 --width 144 --reps 1
    """
    from benchmarks.trl import Steps, report

    sizes = conversations, turns, reply, micro_batch, recompute, sampling, layers, width, vocabulary
    settings = Steps(*sizes, ahead=ahead)
    _show(partial(report, settings, reps), as_json)


@app.command()
def gpu(
    size: Annotated[str, typer.Option(help="tiny, small, full; default: full on a GPU, else tiny.")] = "",
    reps: Annotated[int, typer.Option(min=1, help="Repetitions after one call to warm up.")] = 5,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16; default: bfloat16 on a GPU.")] = "",
    only: Annotated[str, typer.Option(help="Only these parts, separated by commas.")] = "",
    out: Annotated[Path, typer.Option(help="The JSON file.")] = Path("bench-gpu.json"),
    as_json: Json = False,
) -> None:
    """What smopd doctor --speed measures, with TRL's trainer beside ours in the training step.

    Both take that step with a random model of SmolLM2's shape, in float32.

    Example: python -m benchmarks gpu --size small --only head,precision
    """
    from benchmarks.gpu import AgainstTrl
    from smopd.doctor.speed import markdown, report
    from smopd.progress import track

    measures = report(size, reps, dtype, only, track, out, AgainstTrl)
    if as_json:
        emit(measures)
        return
    say(markdown(measures, "python -m benchmarks gpu"), "")
    say(f"written: {out}", err=True)


@app.command()
def verify(
    reps: Annotated[int, typer.Option(min=1, help="Repetitions of both ways.")] = 3,
    quick: Annotated[int, typer.Option(min=1, help="Replies for numbers and calls.")] = 2000,
    slow: Annotated[int, typer.Option(min=1, help="Replies for expressions, queries and programs.")] = 200,
    as_json: Json = False,
) -> None:
    """Verdicts a second of every verifier: one reply after the other, and many at once on all cores.

    Example: python -m benchmarks verify --reps 3
    """
    from benchmarks.verify import Verify, report
    from smopd.progress import track

    result = report(Verify(quick, slow), reps, track)
    if as_json:
        emit(result)
        return
    rows = []
    for row in result["results"]:
        counts = [f"{row['correct']:,}/{row['verdicts']:,}", str(row["failed"])]
        single, many = row["per_second"].values()
        rows.append([row["name"], *counts, f"{single:,.0f}", f"{many:,.0f}", f"{many / single:.2f}"])
    title = f"benchmarks verify, verdicts a second, median of {reps}, {result['machine']['threads']} at once"
    headings = ["right", "failed", "one by one", "at once", "ratio"]
    _print_table(title, headings, rows, [*result["notes"], result["machine"]["cpu"]])


@app.command()
def methods(
    names: Annotated[list[str] | None, typer.Argument(help="Methods; default: all of them.")] = None,
    reps: Reps = 1,
    examples: Annotated[int, typer.Option(min=1, help="Examples of a step.")] = 8,
    steps: Annotated[int, typer.Option(min=1, help="Steps measured, after one that warms up.")] = 3,
    reply: Annotated[int, typer.Option(min=1, help="Token limit of every reply.")] = 64,
    as_json: Json = False,
) -> None:
    """What a whole training step costs, method by method, beside SMOPD's own.

    Example: python -m benchmarks methods maigo grpo ogls-sd
    """
    from smopd.config_io import choices
    from smopd.methods import METHODS

    if unknown := [name for name in names or () if name not in METHODS]:
        raise UserError(f"unknown method {unknown[0]!r}{choices(unknown[0], list(METHODS), 'methods')}")
    from benchmarks.methods import COSTS, Methods, report
    from smopd.progress import track

    result = report(Methods(examples, steps, reply), reps, names or tuple(METHODS), track)
    if as_json:
        emit(result)
        return
    rows = []
    for row in result["results"]:
        cells = [f"{row[key]:,.2f}" if key == "seconds" else f"{row[key]:,.0f}" for key in COSTS]
        shares = [f"{row['ratios'][key]:.2f}" for key in COSTS]
        rows.append([row["name"], *(cell for pair in zip(cells, shares, strict=True) for cell in pair)])
    headings = [heading for cost in ("sampled", "contexts", "products", "s") for heading in (cost, "x")]
    _print_table("benchmarks methods", headings, rows, [*result["notes"], result["machine"]["cpu"]])


@app.command()
def device(
    rollouts: Annotated[int, typer.Option(min=1, help="Rollouts of the step, all in one micro-batch.")] = 4,
    reply: Annotated[int, typer.Option(min=1, help="Tokens of every reply.")] = 16,
    layers: Annotated[int, typer.Option(min=1, help="Layers of the random model.")] = 2,
    method: Annotated[str, typer.Option(help="A method of smopd methods.")] = "entropy",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    recompute: Annotated[bool, typer.Option(help="With train.recompute.")] = False,
    as_json: Json = False,
) -> None:
    """Kernel launches and host waits of one training step, counted on a device made of Python; no GPU needed.

    Example: python -m benchmarks device --reply 32 --layers 4
    """
    from benchmarks.device import Device, report
    from smopd.progress import track

    result = report(Device(rollouts, rollouts, reply, layers, method, dtype, recompute), track)
    if as_json:
        emit(result)
        return
    counted, shares = ["launches", "syncs", "uploads"], ["launches_per_layer", "launches_per_token"]
    rows = []
    for row in result["results"]:
        numbers = [f"{row[name]:,}" for name in counted] + [f"{row[name]:,.1f}" for name in shares]
        rows.append([row["name"], *numbers, f"{row['syncs_per_token']:.3f}"])
    title = f"benchmarks device, one step of {result['tokens']:,} sampled tokens, {layers} layers"
    _print_table(title, [*counted, "a layer", "a token", "syncs a token"], rows, result["notes"])


def _check_history(history: str) -> None:
    if history not in ("template", "verbatim"):
        raise UserError(f"--history: expected template or verbatim, found {history!r}")


def _show(run: Callable[..., dict[str, Any]], as_json: bool) -> None:
    from smopd.progress import track

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
    title = f"benchmarks {report['bench']}, median of {report['reps']}, one thread"
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
    for part in (table, *notes):
        console().print(part)


def main() -> None:
    """User errors without a traceback."""
    try:
        app()
    except UserError as error:
        say(f"error: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
