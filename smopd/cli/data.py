"""`smopd data ...`: make, check and describe data sets."""

import os
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from smopd.cli.options import Arg, Json, Opt, Texts, stoppable
from smopd.data import load_examples, save_examples, stats
from smopd.data.llm_sharding import LlmSharder
from smopd.data.pocket_world import generate
from smopd.data.sharding import by_rule
from smopd.errors import UserError
from smopd.files import require_writable, write_jsonl, write_text
from smopd.formatting import one_line
from smopd.printing import emit, output, say
from smopd.progress import track
from smopd.rollout.openai import ChatEndpoint
from smopd.settings import EngineSettings
from smopd.tables import Row, Table
from smopd.verify import load_verifiers, tasks

data_app = typer.Typer(no_args_is_help=True, help="Make and check data sets.")
DataSet = Annotated[str, Arg(help="smopd JSONL, LiC's JSON, hf:OWNER/NAME or pocket:train.")]
Verifiers = Annotated[list[Path] | None, Opt(help="Python file with @verifier functions. May be repeated.")]
Kind = Annotated[str, Opt(help="rule: no model needed; llm: a model behind --url splits, rules check.")]
Url = Annotated[str, Opt(help="llm: base URL of an OpenAI-compatible endpoint, e.g. http://localhost:8000.")]
Served = Annotated[str, Opt(help="llm: the served model's name; default the endpoint's first.")]
KeyEnv = Annotated[str, Opt(help="llm: environment variable that holds the API key.")]
Concurrency = Annotated[int, Opt(min=1, help="llm: concurrent requests.")]
Tries = Annotated[int, Opt(min=1, help="llm: attempts per request; each retry includes the failure reason.")]
Fallback = Annotated[str, Opt(help="llm: what happens to a request after the last attempt: rule or drop.")]
Cache = Annotated[Path | None, Opt(help="llm: file that keeps every result; default OUT.shards.jsonl.")]
AnswerField = Annotated[str, Opt(help="Answer field: a number, '... #### n', any text, or an object.")]
_PROMPT = "System prompt; default the row's field 'system', else the task's own."
DOMAINS = "math,actions,database,code"
SHOWN = 20  # rows or problems printed
NOTHING = "; nothing was written"


@data_app.command("pocket")
def data_pocket(
    out: Annotated[Path, Arg(help="JSONL file to write.")],
    split: Annotated[str, Opt(help="train or eval.")] = "train",
    count: Annotated[int, Opt(min=1, max=1_000_000, help="Number of examples.")] = 1000,
    seed: Annotated[int, Opt(help="Seed; another one gives other examples of the same split.")] = 0,
    as_json: Json = False,
) -> None:
    """Write examples of the pocket world to a file.

    Example: smopd data pocket train.jsonl --count 500
    """
    if split not in ("train", "eval"):
        raise UserError(f"--split: expected train or eval, found {split!r}")
    _new(out)
    save_examples(out, generate(split, count, seed))
    output(as_json, {"file": str(out), "examples": count}, f"{count} examples in {out}")


@data_app.command("build")
def data_build(
    raw: Annotated[Path, Arg(help="Folder of raw public files (see docs/data.md).")],
    out: Annotated[Path, Arg(help="JSONL file to write; its data card goes beside it.")],
    eval_: Annotated[Texts, Opt("--eval", help="Evaluation file to exclude. May be repeated.")] = None,
    domains: Annotated[str, Opt(help=f"Which of {DOMAINS}.")] = DOMAINS,
    total: Annotated[int, Opt(min=0, help="Number of examples, evenly over the domains; 0 = all.")] = 12165,
    seed: Annotated[int, Opt(help="Seed for the choice and order of examples.")] = 0,
    validation: Annotated[
        bool, Opt("--validation", help="Spider's development questions that --eval does not ask.")
    ] = False,
    workers: Annotated[int, Opt(min=1, help="Reference programs to run in parallel.")] = 2,
    sharder: Kind = "rule",
    url: Url = "",
    served_model: Served = "",
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    concurrency: Concurrency = 16,
    tries: Tries = 3,
    fallback: Fallback = "rule",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Build a training set over four domains from raw public files, without overlap with evaluation sets.

    Examples:
      smopd data build raw train.jsonl --eval lic_math.json --eval lic_database.json
      smopd data build raw train.jsonl --sharder llm --url http://localhost:8000
      smopd data build raw valid.jsonl --validation --domains database --eval lic/database.json
    """
    from smopd.data.training_set import BuildPlan, build, write

    _new(out, f"{out.name}.card.json", f"{out.name}.card.md")
    chosen = tuple(d.strip() for d in domains.split(",") if d.strip())
    plan = BuildPlan(raw, tuple(eval_ or ()), chosen, total, seed, sharder, workers, validation)
    engine = {"servers": [url], "model": served_model, "concurrency": concurrency, "api_key_env": api_key_env}
    with stoppable(NOTHING):
        by_model = _sharder(sharder, out, engine, tries=tries, fallback=fallback, seed=seed, cache=cache)
        built = build(plan, by_model, track)
        built.sharder_counts = by_model.counts if by_model else built.sharder_counts
        card = write(built, out)
    total_line = f"{card['examples']:,} examples in {out}; what they are: {out}.card.md"
    output(as_json, {"out": str(out), **card}, *_card_parts(card), total_line)


@data_app.command("check")
def data_check(
    path: DataSet,
    against: Annotated[str | None, Opt(help="Evaluation file that must not overlap with it.")] = None,
    verifiers: Verifiers = None,
    as_json: Json = False,
) -> None:
    """Check a data set: count its examples, and report mistakes by file, line and field.

    What cannot be read is an error (exit code 2, up to 20 listed); what looks wrong is a warning.

    Example: smopd data check train.jsonl --against lic_math.json
    """
    from smopd.data.check import check_file

    load_verifiers(verifiers or ())
    report = check_file(path, against, track)
    facts = report.to_json()
    if as_json:
        emit(facts)
    if report.errors:
        more = f"\n{report.broken - len(report.errors)} more" if report.broken > len(report.errors) else ""
        raise UserError("\n".join(report.errors) + more)
    if not as_json:
        say(f"{path}: {facts['examples']} examples; tasks {facts['tasks']}; shards {facts['shards']}")
        for what, count, some in report.warnings:
            named = ", ".join(one_line(name, 80) for name in some)
            say(f"warning: {what}: {count} ({named}{', ...' if count > len(some) else ''})")


@data_app.command("stats")
def data_stats(
    path: DataSet,
    plot: Annotated[Path | None, Opt(help="Chart to write: OUT.svg, or OUT.html with the numbers.")] = None,
    verifiers: Verifiers = None,
    as_json: Json = False,
) -> None:
    """Describe a data set: examples by task, shards per example, lengths of shards, requests and prompts.

    Example: smopd data stats train.jsonl --plot shards.svg
    """
    if plot:
        if plot.suffix not in (".svg", ".html"):
            raise UserError(f"--plot: expected a name that ends in .svg or .html, found {plot}")
        _new(plot)
    load_verifiers(verifiers or ())
    facts = stats.describe(load_examples(path))
    shown, lines = {"file": path, **facts}, []
    if plot:
        write_text(plot, stats.plot(facts, Path(path).name, plot.suffix == ".html"))
        shown["plot"], lines = str(plot), [f"Chart: {plot}"]
    output(as_json, shown, *stats.tables(facts), *lines)


@data_app.command("shard")
def data_shard(
    pairs: Annotated[Path, Arg(help="JSONL (or JSON array) of questions and answers.")],
    out: Annotated[Path, Arg(help="JSONL file to write.")],
    task: Annotated[str, Opt(help="math, actions, database, code, or your own task.")],
    question: Annotated[str, Opt(help="Name of the question field.")] = "question",
    answer: AnswerField = "answer",
    system: Annotated[str | None, Opt(help=_PROMPT)] = None,
    source: Annotated[str, Opt(help="Value of the field 'source'; default the file's name.")] = "",
    seed: Annotated[int, Opt(help="llm: sampling seed.")] = 0,
    verifiers: Verifiers = None,
    sharder: Kind = "rule",
    url: Url = "",
    served_model: Served = "",
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    concurrency: Concurrency = 16,
    tries: Tries = 3,
    fallback: Fallback = "rule",
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Turn questions and answers into sharded examples. Rows that cannot be sharded are dropped and listed.

    Example: smopd data shard questions.jsonl train.jsonl --task math
    """
    from smopd.data.training_set.pairs import read_pairs, shard_pairs

    _new(out)
    load_verifiers(verifiers or ())
    rows = read_pairs(pairs, task, question, answer, system, source or pairs.name)
    if task not in tasks.scored():
        needs = f"whoever reads {out} needs one (--verifiers my.py)"
        say(f"warning: {task!r} has no verifier yet; {needs}", err=True)
    engine = {"servers": [url], "model": served_model, "concurrency": concurrency, "api_key_env": api_key_env}
    with stoppable(NOTHING):
        by_model = _sharder(sharder, out, engine, tries=tries, fallback=fallback, seed=seed, cache=cache)
        examples, dropped = shard_pairs(rows, by_model or by_rule)
    reasons = [one_line(f"{d['where']}: {d['reason']}") for d in dropped]
    if not examples:
        raise UserError(f"{pairs}: no row is left\n" + "\n".join(reasons[:SHOWN]))
    write_jsonl(out, (e.to_json() for e in examples))
    counts = {"sharder": dict(by_model.counts)} if by_model else {}
    facts = {"file": str(out), "examples": len(examples), "dropped": dropped, **counts}
    rest = [f"... and {len(reasons) - SHOWN} more"] if len(reasons) > SHOWN else []
    head = f"{len(examples)} examples in {out}; {len(dropped)} rows dropped"
    output(as_json, facts, head, *reasons[:SHOWN], *rest)


def _new(out: Path, *beside: str) -> None:
    for path in (out, *map(out.with_name, beside)):
        if os.path.lexists(path):
            raise UserError(f"{path}: exists; nothing was written")
    require_writable(out)


def _sharder(kind: str, out: Path, engine: dict[str, Any], **options: Any) -> Any:
    for option, value, other in (("sharder", kind, "llm"), ("fallback", options["fallback"], "drop")):
        if value not in ("rule", other):
            raise UserError(f"--{option}: expected rule or {other}, found {value!r}")
    if kind == "rule":
        if engine["servers"][0]:
            raise UserError("--url: the rules ask no endpoint; add --sharder llm")
        return None
    if not engine["servers"][0]:
        raise UserError("--sharder llm needs the endpoint's base URL: --url http://localhost:8000")
    options["cache"] = options["cache"] or out.with_name(f"{out.name}.shards.jsonl")
    return LlmSharder(ChatEndpoint(EngineSettings(kind="openai", **engine)), **options, track=track)


def _card_parts(card: dict[str, Any]) -> list[Any]:
    heads = ("domain", "source", "read", "overlap", "rejected", "valid", "in the set")
    rows, lines = [], []
    for domain, facts in card["domains"].items():
        left_out = (sum(facts["overlap"].values()), sum(facts["rejected"].values()))
        counts = (facts["read"], *left_out, facts["valid"], facts["examples"])
        rows.append(Row(domain, [facts["source"]["name"], *(f"{n:,}" for n in counts)]))
        reasons = Counter({**facts["overlap"], **facts["rejected"]}).most_common()
        lines += [f"{domain}: {reason}: {count:,}" for reason, count in reasons]
    lines += [f"not verified: {note}" for note in card["unverified"]]
    return [Table(heads=heads, rows=rows, words=(1,)), *(f"  {line}" for line in lines)]
