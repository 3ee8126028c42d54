"""`smopd doctor`: what this machine is, whether it computes right, how fast it is. Heavy imports wait for the
call.
"""

from pathlib import Path
from typing import Annotated

import typer

from smopd.cli.options import Json
from smopd.errors import UserError
from smopd.printing import emit, say

Speed = typer.Option("--speed", help="Measure every part of a training step here, instead.")
Size = typer.Option(help="With --speed: tiny, small or full; default: full on a GPU, else tiny.")
Reps = typer.Option(min=1, help="With --speed: repetitions after a warm-up call; default: 5.")
Dtype = typer.Option(help="With --speed: float32 or bfloat16; default: bfloat16 on a GPU.")
Only = typer.Option(help="With --speed: only these parts, separated by commas.")
Out = typer.Option(help="With --speed: the JSON file; default: bench-gpu.json.")


def doctor(
    speed: Annotated[bool, Speed] = False,
    size: Annotated[str, Size] = "",
    reps: Annotated[int | None, Reps] = None,
    dtype: Annotated[str, Dtype] = "",
    only: Annotated[str, Only] = "",
    out: Annotated[Path | None, Out] = None,
    as_json: Json = False,
) -> None:
    """Devices, versions, memory, the engine and kernels a run would use; a self-test; what to change.

    The self-test compares a scoring step and a greedy reply of the embedded model on this machine's device
    with the CPU. Exit code 1 when it fails.

    --speed times every part of a training step on this machine's device, against TRL's, Liger's, vLLM's and
    plain paths: a Markdown table, and a JSON file. What is not installed has a row that says so. full has the
    shape of Qwen3-1.7B, small of 0.6B, both with random weights.

    Example: smopd doctor --speed --size small --only head,precision
    """
    from smopd.progress import track

    if speed:
        from smopd.doctor.speed import markdown, report

        out = out or Path("bench-gpu.json")
        measures = report(size, reps or 5, dtype, only, track, out)
        if as_json:
            emit(measures)
            return
        say(markdown(measures), "")
        say(f"written: {out}", err=True)
        return
    options = {"--size": size, "--reps": reps, "--dtype": dtype, "--only": only, "--out": out}
    if given := [name for name, value in options.items() if value]:
        raise UserError(f"{given[0]}: works with --speed only; add --speed")
    from smopd.devices import default_device
    from smopd.doctor.facts import collect
    from smopd.doctor.report import text, to_json
    from smopd.doctor.selftest import self_test
    from smopd.progress import track

    with track("looking around"):
        facts = collect()
    checks = self_test(default_device(), track)
    emit(to_json(facts, checks)) if as_json else say(text(facts, checks))
    raise typer.Exit(0 if all(check.passed for check in checks) else 1)


def bench() -> None:
    """Where the benchmarks went."""
    raise UserError(
        "the benchmarks run from a checkout: python -m benchmarks (see benchmarks/README.md); "
        "what was smopd bench gpu is smopd doctor --speed"
    )
