"""`smopd eval`: accuracy of a model, and `smopd eval compare`: two finished evaluations, paired."""

from pathlib import Path
from typing import Annotated, Any

import typer

from smopd.cli.options import Json, Set, Unsandboxed, permit, verb_with
from smopd.errors import UserError
from smopd.printing import emit, say, show
from smopd.runs.target import TARGET_HELP, resolve_target

Texts = list[str] | None
TITLE = "Accuracy of a model, with intervals; compare two of them."
eval_app = typer.Typer(cls=verb_with("compare", "inspect"), add_completion=False, help=TITLE)
HELP = TARGET_HELP | {
    "base": "Of a run folder: leave out its model as it was before training.",
    "views": "Separated by commas: full, concat, sharded, recap, snowball, simulated, teacher.",
    "limit": "Only the first N examples.",
    "runs": "Play everything N times; needs --set eval.temperature=1.0.",
    "user_url": "simulated: base URL of the model that plays the user. May be repeated.",
    "user_model": "simulated: that model's name at the endpoint.",
    "databases": "database: folder of .sqlite files; default: synthesised ones.",
    "out": "Folder of the evaluation; default in the run folder (where the base always is) or under runs/.",
}


def _option(name: str, *words: str, **settings: Any) -> Any:
    return typer.Option(*words, help=HELP[name], **settings)


@eval_app.command("run")
def evaluate(
    target: Annotated[str, typer.Argument(help=HELP["target"])],
    engine: Annotated[str | None, _option("engine")] = None,
    url: Annotated[Texts, _option("url")] = None,
    served_model: Annotated[str | None, _option("served_model")] = None,
    adapter: Annotated[str | None, _option("adapter")] = None,
    no_base: Annotated[bool, _option("base", "--no-base")] = False,
    data: Annotated[str | None, _option("data")] = None,
    views: Annotated[str | None, _option("views")] = None,
    limit: Annotated[int | None, _option("limit", min=1)] = None,
    runs: Annotated[int | None, _option("runs", min=1)] = None,
    user_url: Annotated[Texts, _option("user_url")] = None,
    user_model: Annotated[str | None, _option("user_model")] = None,
    verifiers: Annotated[Texts, _option("verifiers")] = None,
    databases: Annotated[str | None, _option("databases")] = None,
    out: Annotated[Path | None, _option("out")] = None,
    allow_unsandboxed: Unsandboxed = False,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Accuracy of a model or a trained run, with 95% intervals and the paired comparison of the views.

    Of a run, its model before training is evaluated too, on the same examples with the same settings, unless
    that is known already. The same command goes on where it was stopped. To compare two finished ones: smopd
    eval compare A B.

    Examples:

      smopd eval pocket --limit 100

      smopd eval runs/qwen3 --data lic_math.json --views full,concat,sharded,recap,snowball

      smopd eval runs/qwen3 --data everyday:eval --views sharded,teacher

      smopd eval Qwen/Qwen3-1.7B --data lic_math.json --runs 10 --set eval.temperature=1.0

      smopd eval gpt-4.1-mini --engine openai --url https://api.openai.com --data lic_math.json

    The key of an endpoint is taken from the environment variable OPENAI_API_KEY (--set
    engine.api_key_env=NAME for another).
    """
    chosen_views = [v.strip().lower() for v in views.split(",")] if views is not None else None
    given = {
        "engine.kind": engine, "engine.servers": url or None, "engine.model": served_model, "data.eval": data,
        "eval.views": chosen_views, "eval.limit": limit, "eval.runs": runs, "user.servers": user_url or None,
        "user.model": user_model, "data.verifiers": verifiers or None, "data.databases": databases,
    }  # fmt: skip
    found = resolve_target(target, given, set_, adapter)
    config, run = found.config, found.run
    if user_url and "simulated" not in config.eval.views:
        only = "only the view simulated has a model that plays the user"
        raise UserError(f"--user-url: {only}; add it to --views")
    if no_base and run is None:
        raise UserError(f"--no-base: {target} is no run folder: it is evaluated alone")
    permit(allow_unsandboxed)

    from smopd.evaluation.prepare import prepared_examples
    from smopd.evaluation.session import check_evaluation, evaluate_into, identity
    from smopd.evaluation.store import EvaluationFolder
    from smopd.files import digest
    from smopd.models import resolve_adapter
    from smopd.progress import track
    from smopd.rollout.choice import resolve_engine
    from smopd.runs.evaluate import evaluate_side
    from smopd.runs.evaluations import BASE, slug
    from smopd.runs.layout import EVAL

    check_evaluation(config)
    start = config.model.adapter
    wanted = found.adapter or run or start
    chosen = resolve_adapter(wanted) if wanted else None
    of_run = run is not None and chosen is not None and chosen.resolve().parent.parent == run.resolve()
    examples = prepared_examples(config, "eval")
    config = resolve_engine(config)
    if out is not None:  # a place that will not do is said before the base is played
        EvaluationFolder(out, identity(config, examples, chosen))
    before: tuple[Path, dict[str, Any]] | None = None
    try:
        if run and not no_base:
            began = resolve_adapter(start) if start else None
            folder, summary, finished = evaluate_side(
                run, BASE, config, examples, began, settings=found.settings, track=track
            )
            before = folder, summary
            _say_where("base, ", folder, finished)
        if run and chosen and of_run:
            out, summary, finished = evaluate_side(
                run, chosen.name, config, examples, chosen, out, found.settings, track=track
            )
        else:
            named = f"eval-{slug(target)}-{slug(config.data.eval)}"
            out = out or Path("runs") / f"{named}-{digest(identity(config, examples, chosen), 4)}"
            finished = (out / "summary.json").exists()
            label = chosen.name if chosen else "eval"
            summary = evaluate_into(out, config, examples, label, chosen, track=track)
    except KeyboardInterrupt:
        there = [str(p) for p in (run / EVAL if run else None, out) if p and p.exists()]
        kept = f"what was played is saved in {' and '.join(there)}. The same command goes on from there."
        say(f"stopped; {kept if there else 'nothing was written'}", err=True)
        raise typer.Exit(130) from None
    _say_where("", out, finished)
    changes = _changes(before[0], out) if before else None
    if as_json:
        model = {"model": config.model.path, "adapter": str(chosen) if chosen else None}
        more = {"base": {"folder": str(before[0]), **before[1]}, "change": changes} if before else {}
        emit({**model, "data": config.data.eval, "folder": str(out), **summary, **more})
        return
    from smopd.viewer.terminal import before_and_after, summary_table

    show(summary_table(summary))
    if before:
        show(before_and_after(before[1], summary, changes or {}))
    if of_run:
        say(f"with conversations, as a page: smopd report {run}", err=True)


def _say_where(what: str, folder: Path, finished: bool) -> None:
    say(f"{what}{'was finished before' if finished else 'saved'}: {folder}", err=True)


def _changes(before: Path, after: Path) -> dict[str, Any]:
    """The paired change of each view from the base to what was trained."""
    from smopd.evaluation.metrics import compare_evaluations

    return {view: found["change"] for view, found in compare_evaluations(before, after)["views"].items()}


@eval_app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Before: folder of a finished evaluation, or a run.")],
    b: Annotated[Path, typer.Argument(help="After: another one of the same data, or a run.")],
    as_json: Json = False,
) -> None:
    """Two finished evaluations, paired by item, on the items and views both have, whole and by task.

    A run stands for its newest evaluation on examples that the other has, too; before itself, for its base.

    Played once each: the exact McNemar test. Several times: a bootstrap over items.

    Examples:

      smopd eval compare runs/quickstart/eval/base runs/quickstart/eval/trained

      smopd eval compare runs/entropy runs/combined
    """
    from smopd.evaluation.metrics import compare_evaluations
    from smopd.runs.evaluations import evaluations_to_compare
    from smopd.viewer.terminal import comparison_table

    result = compare_evaluations(*evaluations_to_compare(a, b))
    for warning in result["warnings"]:
        say(f"warning: {warning}", err=True)
    emit(result) if as_json else show(comparison_table(result))


@eval_app.command()
def inspect(
    evaluation: Annotated[Path, typer.Argument(help="Folder of a finished evaluation.")],
    out: Annotated[Path, typer.Argument(help="The log: a file that ends in .eval or .json.")],
    as_json: Json = False,
) -> None:
    """A finished evaluation as a log of inspect_ai, to be read with its viewer: inspect view.

    Example: smopd eval inspect runs/quickstart/eval/trained logs/trained.eval
    """
    from smopd.evaluation.inspect_log import write_inspect_log

    made = write_inspect_log(evaluation, out)
    emit({"evaluation": str(evaluation), "log": str(made)}) if as_json else say(f"written: {made}")
