"""`smopd eval`: accuracy of a model, and `smopd eval compare`: two finished evaluations, paired."""

from pathlib import Path
from typing import Annotated, Any

import typer

from smopd.cli import options
from smopd.cli.options import GOES_ON, Arg, Json, Opt, Set, Texts, Unsandboxed, stoppable, verb_with
from smopd.errors import UserError
from smopd.evaluation.evaluate import prepared_examples
from smopd.evaluation.inspect_log import write_inspect_log
from smopd.evaluation.metrics import compare_evaluations
from smopd.evaluation.session import check_evaluation, evaluate_into, identity
from smopd.evaluation.store import EvaluationFolder
from smopd.files import digest
from smopd.models import resolve_adapter
from smopd.printing import output, say
from smopd.progress import track
from smopd.rollout.engine import resolve_engine
from smopd.runs.evaluations import BASE, evaluate_side, evaluations_to_compare, slug
from smopd.runs.layout import EVAL
from smopd.runs.target import Target, resolve_target
from smopd.viewer.terminal import before_and_after, comparison_table, summary_table

TITLE = "Evaluate a model, with intervals; compare two evaluations."
eval_app = typer.Typer(cls=verb_with("compare", "inspect"), help=TITLE)
_views_help = "Separated by commas: full, concat, sharded, recap, snowball, simulated, teacher."
_runs_help = "Play everything N times; needs --set eval.temperature=1.0."
_user_help = "simulated: base URL of the model that plays the user. May be repeated."
_databases_help = "database: folder of .sqlite files; default: generated databases."
_out_help = "Folder of the evaluation; default in the run folder, or under runs/."
Played = tuple[Path, dict[str, Any], bool]  # folder, summary, was it finished before


@eval_app.command("run")
def evaluate(
    target: Annotated[str, Arg(help=options.TARGET_HELP)],
    engine: options.Engine = None,
    url: options.Url = None,
    served_model: options.Served = None,
    adapter: options.Adapter = None,
    no_base: Annotated[bool, Opt("--no-base", help="For a run: do not evaluate its base model.")] = False,
    data: options.Data = None,
    views: Annotated[str | None, Opt(help=_views_help)] = None,
    limit: Annotated[int | None, Opt(min=1, help="Only the first N examples.")] = None,
    runs: Annotated[int | None, Opt(min=1, help=_runs_help)] = None,
    user_url: Annotated[Texts, Opt(help=_user_help)] = None,
    user_model: Annotated[str | None, Opt(help="simulated: name of the user model at its endpoint.")] = None,
    verifiers: options.Verifiers = None,
    databases: Annotated[str | None, Opt(help=_databases_help)] = None,
    out: Annotated[Path | None, Opt(help=_out_help)] = None,
    allow_unsandboxed: Unsandboxed = False,
    set_: Set = None,
    as_json: Json = False,
) -> None:
    """Evaluate a model or a run: accuracy with 95% intervals and a paired comparison of the views.

    For a run, its model before training is evaluated too, on the same examples with the same settings, unless
    that was done before. Run the same command to resume. To compare two results: smopd eval compare A B.

    Examples:
      smopd eval pocket --limit 100
      smopd eval runs/qwen3 --data lic_math.json --views full,concat,sharded,recap,snowball
      smopd eval runs/qwen3 --data everyday:eval --views sharded,teacher
      smopd eval Qwen/Qwen3-1.7B --data lic_math.json --runs 10 --set eval.temperature=1.0
      smopd eval gpt-4.1-mini --engine openai --url https://api.openai.com --data lic_math.json

    An endpoint's key is read from the environment variable OPENAI_API_KEY (--set engine.api_key_env=NAME for
    another).
    """
    chosen_views = [v.strip().lower() for v in views.split(",")] if views is not None else None
    option_settings = {
        "engine.kind": engine, "engine.servers": url or None, "engine.model": served_model, "data.eval": data,
        "eval.views": chosen_views, "eval.limit": limit, "eval.runs": runs, "user.servers": user_url or None,
        "user.model": user_model, "data.verifiers": verifiers or None, "data.databases": databases,
    }  # fmt: skip
    resolved = resolve_target(target, option_settings, set_, adapter)
    config, run = resolved.config, resolved.run
    if user_url and "simulated" not in config.eval.views:
        only = "only the view simulated has a model that plays the user"
        raise UserError(f"--user-url: {only}; add it to --views")
    if no_base and run is None:
        raise UserError(f"--no-base: {target} is no run folder: it is evaluated alone")
    chosen, before, (folder, summary, _) = _play(target, resolved, no_base, out)
    tables = [summary_table(summary)]
    facts: dict[str, Any] = {"model": config.model.path, "data": config.data.eval}
    facts |= {"adapter": str(chosen) if chosen else None, "folder": str(folder), **summary}
    if before:
        compared = compare_evaluations(before[0], folder)["views"]
        facts["change"] = {view: both["change"] for view, both in compared.items()}
        facts["base"] = {"folder": str(before[0]), **before[1]}
        tables.append(before_and_after(before[1], summary, facts["change"]))
    output(as_json, facts, *tables)
    if run and not as_json and _is_of_run(chosen, run):
        say(f"with conversations, as a page: smopd report {run}", err=True)


def _play(
    target: str, resolved: Target, no_base: bool, out: Path | None
) -> tuple[Path | None, Played | None, Played]:
    """Evaluate; return the adapter, the evaluation of the run's base (if wanted), and that of the target."""
    config, run, settings = resolved.config, resolved.run, resolved.settings
    check_evaluation(config)
    chosen = resolved.find_adapter()
    examples = prepared_examples(config, "eval")
    config = resolve_engine(config)
    if out is not None:  # refuse an unusable folder before the base is played
        EvaluationFolder(out, identity(config, examples, chosen))

    def saved() -> str:
        there = [str(p) for p in (run / EVAL if run else None, out) if p and p.exists()]
        kept = f"what was played is saved in {' and '.join(there)}. {GOES_ON}"
        return f"; {kept if there else 'nothing was written'}"

    before = None
    with stoppable(saved):
        if run and not no_base:
            start = resolve_adapter(config.model.adapter) if config.model.adapter else None
            before = evaluate_side(run, BASE, config, examples, start, settings=settings, track=track)
            _say_where("base, ", before)
        if run and chosen and _is_of_run(chosen, run):
            after = evaluate_side(run, chosen.name, config, examples, chosen, out, settings, track=track)
        else:
            name = f"eval-{slug(target)}-{slug(config.data.eval)}"
            out = out or Path("runs") / f"{name}-{digest(identity(config, examples, chosen), 4)}"
            finished, label = (out / "summary.json").exists(), chosen.name if chosen else "eval"
            after = out, evaluate_into(out, config, examples, label, chosen, track=track), finished
    _say_where("", after)
    return chosen, before, after


def _is_of_run(adapter: Path | None, run: Path) -> bool:
    return adapter is not None and adapter.resolve().parent.parent == run.resolve()


def _say_where(what: str, played: Played) -> None:
    folder, _, finished = played
    say(f"{what}{'was finished before' if finished else 'saved'}: {folder}", err=True)


@eval_app.command()
def compare(
    a: Annotated[Path, Arg(help="Before: folder of a finished evaluation, or of a run.")],
    b: Annotated[Path, Arg(help="After: another evaluation on the same data, or a run.")],
    as_json: Json = False,
) -> None:
    """Compare two finished evaluations, paired by item, overall and by task.

    A run stands for its newest evaluation on examples that the other has, too; compared with itself, A is its
    base model. With one run per item the test is the exact McNemar test, with several a bootstrap over items.

    Examples:
      smopd eval compare runs/quickstart/eval/base runs/quickstart/eval/trained
      smopd eval compare runs/entropy runs/combined
    """
    result = compare_evaluations(*evaluations_to_compare(a, b))
    for warning in result["warnings"]:
        say(f"warning: {warning}", err=True)
    output(as_json, result, comparison_table(result))


@eval_app.command()
def inspect(
    evaluation: Annotated[Path, Arg(help="Folder of a finished evaluation.")],
    out: Annotated[Path, Arg(help="Log file to write; its name ends in .eval or .json.")],
    as_json: Json = False,
) -> None:
    """Write a finished evaluation as an inspect_ai log, for `inspect view`.

    Example: smopd eval inspect runs/quickstart/eval/trained logs/trained.eval
    """
    log = write_inspect_log(evaluation, out)
    output(as_json, {"evaluation": str(evaluation), "log": str(log)}, f"written: {log}")
