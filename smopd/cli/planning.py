"""`smopd plan`: what a recipe needs, before it runs. Heavy imports wait until it is called."""

from pathlib import Path
from typing import Annotated

import typer

from smopd.cli.options import Json, Set, finite
from smopd.printing import emit, say, show

Recipes = typer.Argument(metavar="RECIPE...", help="Shipped recipes or TOML files; several give a table.")
GpuName = typer.Option(help="h100, h200, a100-80, rtx-pro-6000, rtx4090, ... (a wrong name lists all).")
ModelConfig = typer.Option(help="A transformers config.json, or its folder, in place of model.path's.")
Mfu = typer.Option(
    callback=finite, min=0.01, max=1, help="Share of the published rate that prefill and scoring reach."
)
Middle = typer.Option(
    callback=finite, min=1, help="Mean tokens of a middle reply; default 75% of rollout.middle_tokens."
)
Answer = typer.Option(
    callback=finite, min=1, help="Mean tokens of an answer; default 35% of rollout.answer_tokens."
)


def plan(
    recipes: Annotated[list[str], Recipes],
    gpu: Annotated[str, GpuName] = "h100",
    gpus: Annotated[
        int, typer.Option(min=1, max=100_000, help="How many of them train: a process each.")
    ] = 1,
    model_config: Annotated[Path | None, ModelConfig] = None,
    mfu: Annotated[float | None, Mfu] = None,
    middle: Annotated[float | None, Middle] = None,
    answer: Annotated[float | None, Answer] = None,
    set_: Set = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="A Markdown table, a row a recipe.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Memory, tokens, operations and minutes of a recipe on given GPUs; what to change if it does not fit.

    An estimate from shapes and published rates (docs/scaling.md): nothing is downloaded, loaded or computed.

    Examples:

      smopd plan qwen3-4b --gpu rtx4090

      smopd plan qwen3-1.7b qwen3-4b qwen3-8b --gpu rtx-pro-6000 --set engine.kind=vllm

      smopd plan qwen3-8b --model-config my-model/config.json --json
    """
    from smopd.config import load_config
    from smopd.planning.plan import MFU, make_plan
    from smopd.planning.report import markdown, table, text, to_json
    from smopd.planning.shapes import find_gpu, find_shape, read_shape
    from smopd.progress import late

    device = find_gpu(gpu)
    plans, sources = [], []
    configs = [load_config(recipe, set_ or []) for recipe in recipes]
    with late(f"planning {', '.join(recipes)}"):
        for config in configs:
            given = (read_shape(model_config), str(model_config)) if model_config else None
            shape, source = given or find_shape(config)
            plans.append(make_plan(config, shape, device, gpus, mfu or MFU, middle, answer))
            sources.append(source)
    if as_json:
        emit({"plans": [to_json(*one) for one in zip(recipes, plans, sources, strict=True)]})
    elif as_markdown:
        say(markdown(plans))
    elif len(plans) == 1:
        say(text(recipes[0], plans[0]))
    else:
        show(table(plans))
