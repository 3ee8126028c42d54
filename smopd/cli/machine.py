"""`smopd doctor`: check this machine and measure its speed; `smopd plan`: what a recipe needs."""

from pathlib import Path
from typing import Annotated

import typer

from smopd.cli.options import Arg, Json, Opt, Set, finite
from smopd.config import load_config
from smopd.devices import default_device
from smopd.errors import UserError
from smopd.printing import output, say
from smopd.progress import delayed_status, track

Speed = Opt("--speed", help="Measure the speed of every part of a training step on this machine.")
Size = Opt(help="With --speed: tiny, small or full; default: full on a GPU, else tiny.")
Reps = Opt(min=1, help="With --speed: repetitions after a warm-up call; default: 5.")
Out = Opt(help="With --speed: JSON file to write; default: bench-gpu.json.")
Recipes = Arg(metavar="RECIPE...", help="Shipped recipes or TOML files; several give a table.")
GpuName = Opt(help="h100, h200, a100-80, rtx-pro-6000, rtx4090, ... (a wrong name lists all).")
ModelConfig = Opt(help="A transformers config.json, or its folder, instead of model.path's.")
_mfu_help = "Fraction of the published compute rate that prefill and scoring reach."
_middle_help = "Mean tokens of a middle reply; default 75% of rollout.middle_tokens."
_answer_help = "Mean tokens of an answer; default 35% of rollout.answer_tokens."


def doctor(
    speed: Annotated[bool, Speed] = False,
    size: Annotated[str, Size] = "",
    reps: Annotated[int | None, Reps] = None,
    dtype: Annotated[str, Opt(help="With --speed: float32 or bfloat16; default: bfloat16 on a GPU.")] = "",
    only: Annotated[str, Opt(help="With --speed: only these parts, separated by commas.")] = "",
    out: Annotated[Path | None, Out] = None,
    as_json: Json = False,
) -> None:
    """Check this machine: devices, versions, memory, what a run would use, a self-test, what to change.

    The self-test compares a scoring step and a greedy reply of the embedded model on this machine's device
    with the CPU. Exit code 1 when it fails.

    --speed times every part of a training step on this machine's device against TRL, Liger, vLLM and plain
    paths; it prints a Markdown table and writes a JSON file. The table names what is not installed. Size full
    has the shape of Qwen3-1.7B, small that of Qwen3-0.6B, both with random weights.

    Example: smopd doctor --speed --size small --only head,precision
    """
    if speed:
        from smopd.doctor.speed import markdown, report

        out = out or Path("bench-gpu.json")
        measures = report(size, reps or 5, dtype, only, track, out)
        output(as_json, measures, markdown(measures), "")
        say(f"written: {out}", err=True)
        return
    options = {"--size": size, "--reps": reps, "--dtype": dtype, "--only": only, "--out": out}
    if speed_options := [name for name, value in options.items() if value]:
        raise UserError(f"{speed_options[0]}: works with --speed only; add --speed")
    from smopd.doctor.facts import collect
    from smopd.doctor.report import text, to_json
    from smopd.doctor.selftest import self_test

    with track("looking around"):
        facts = collect()
    checks = self_test(default_device(), track)
    output(as_json, to_json(facts, checks), text(facts, checks))
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)


def bench() -> None:
    raise UserError(
        "the benchmarks run from a checkout: python -m benchmarks (see benchmarks/README.md); "
        "what was smopd bench gpu is smopd doctor --speed"
    )


def plan(
    recipes: Annotated[list[str], Recipes],
    gpu: Annotated[str, GpuName] = "h100",
    gpus: Annotated[int, Opt(min=1, max=100_000, help="Number of GPUs that train, one process each.")] = 1,
    model_config: Annotated[Path | None, ModelConfig] = None,
    mfu: Annotated[float | None, Opt(callback=finite, min=0.01, max=1, help=_mfu_help)] = None,
    middle: Annotated[float | None, Opt(callback=finite, min=1, help=_middle_help)] = None,
    answer: Annotated[float | None, Opt(callback=finite, min=1, help=_answer_help)] = None,
    set_: Set = None,
    as_markdown: Annotated[bool, Opt("--markdown", help="Print a Markdown table, a row per recipe.")] = False,
    as_json: Json = False,
) -> None:
    """Plan a run: does it fit, how long does it take, and what to change.

    An estimate from shapes and published rates (docs/performance.md): nothing is downloaded or loaded.

    Examples:
      smopd plan qwen3-4b --gpu rtx4090
      smopd plan qwen3-1.7b qwen3-4b qwen3-8b --gpu rtx-pro-6000 --set engine.kind=vllm
      smopd plan qwen3-8b --model-config my-model/config.json --json
    """
    from smopd.planning.plan import MFU, make_plan
    from smopd.planning.report import markdown, table, text, to_json
    from smopd.planning.shapes import find_gpu, find_shape, read_shape

    device = find_gpu(gpu)
    plans, sources = [], []
    configs = [load_config(recipe, set_ or []) for recipe in recipes]
    with delayed_status(f"planning {', '.join(recipes)}"):
        for config in configs:
            explicit = (read_shape(model_config), str(model_config)) if model_config else None
            shape, source = explicit or find_shape(config)
            plans.append(make_plan(config, shape, device, gpus, mfu or MFU, middle, answer))
            sources.append(source)
    facts = {"plans": [to_json(*one) for one in zip(recipes, plans, sources, strict=True)]}
    shown = text(recipes[0], plans[0]) if len(plans) == 1 else table(plans)
    output(as_json, facts, markdown(plans) if as_markdown else shown)
