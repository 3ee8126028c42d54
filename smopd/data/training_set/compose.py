"""From a folder of raw public files to a training set: read, hold out, shard, verify, choose.

The same files, options and seed give the same bytes. What is left out (overlaps with an evaluation set,
duplicates, requests that cannot be sharded, references that do not verify) is counted by reason, which the
data card beside a set tells. It holds no dates and no folders: the same set has the same card everywhere.
"""

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.data.example import Example
from smopd.data.sharding import LONGEST, Sharder, check_shards, pieces, shard
from smopd.data.stats import describe
from smopd.data.training_set.overlap import LEAST, NEAR, RUN, HeldOut
from smopd.data.training_set.readers import READERS, SOURCES, VALIDATION, Item, input_files
from smopd.errors import UserError
from smopd.files import file_digest, jsonl, write_json, write_text
from smopd.pages import render_text
from smopd.seeds import derive
from smopd.tracking import Track, quiet
from smopd.verify import sandbox, verify
from smopd.verify.sql.database import shows_something
from smopd.verify.tasks.code import verify_code

DOMAINS = tuple(READERS)
# For a reference program. All take under 0.1 s but one, whose 6 s, the verifier's limit, would mean chance.
SECONDS = 3.0


@dataclass(frozen=True)
class BuildPlan:
    """What to build. `total` 0 takes everything; `sharder` only names the one that is used, for the card.

    `validation`: questions of development sets on the same databases as `evals`, but none of their items.
    """

    raw: Path
    evals: tuple[str, ...] = ()
    domains: tuple[str, ...] = DOMAINS
    total: int = 12165  # as many as in the paper's own set, which is not public
    seed: int = 0
    sharder: str = "rule"
    workers: int = 2
    validation: bool = False


@dataclass
class Built:
    """A training set and everything its card tells, most of it by domain."""

    plan: BuildPlan
    examples: list[Example] = field(default_factory=list)
    valid: dict[str, list[Example]] = field(default_factory=dict)  # before the choice
    read: dict[str, int] = field(default_factory=dict)
    rejected: dict[str, Counter[str]] = field(default_factory=dict)
    overlaps: dict[str, Counter[str]] = field(default_factory=dict)
    items: dict[str, Item] = field(default_factory=dict)  # by id
    evaluation: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    unverified: list[str] = field(default_factory=list)
    sharder_counts: Counter[str] = field(default_factory=Counter)


def build(plan: BuildPlan, sharder: Sharder | None = None, track: Track = quiet) -> Built:
    """Make the set in memory. `sharder` replaces the rules; what it cannot do is dropped with its reason."""
    readers = VALIDATION if plan.validation else READERS
    unknown = [d for d in plan.domains if d not in readers]
    if unknown or not plan.domains:
        raise UserError(f"--domains: {', '.join(unknown) or 'none'}: expected some of {','.join(readers)}")
    if not plan.raw.is_dir():
        raise UserError(f"{plan.raw}: no such folder of raw files")
    built = Built(plan)
    items: dict[str, list[Item]] = {}
    for domain in (d for d in DOMAINS if d in plan.domains):  # all first: a missing file is known at once
        with track(f"{domain}: reading"):
            rows = list(readers[domain](plan.raw))
        items[domain] = [row for row in rows if not isinstance(row, str)]
        built.read[domain], built.overlaps[domain] = len(rows), Counter()
        built.rejected[domain] = Counter(row for row in rows if isinstance(row, str))
        built.items |= {item.id: item for item in items[domain]}
    inputs = sorted(n for domain in plan.domains for n in input_files(plan.raw, domain, plan.validation))
    built.inputs = {name: file_digest(plan.raw / name) for name in inputs}
    with track("reading evaluation sets"):
        out = HeldOut(plan.raw, () if plan.validation else plan.domains, plan.evals)
        if plan.validation:
            out.databases.clear()
    built.evaluation = out.files
    for domain in items:
        left = _drop_overlaps(items[domain], out, built, track) if items[domain] else []
        examples = _shard(left, sharder, built, track) if left else []
        built.valid[domain] = _verify_references(examples, built, track) if examples else []
    share = shares({domain: len(valid) for domain, valid in built.valid.items()}, plan.total)
    for domain, valid in built.valid.items():
        built.examples += sorted(valid, key=lambda e: derive("choice", plan.seed, e.id))[: share[domain]]
    built.examples.sort(key=lambda e: derive("order", plan.seed, e.id))
    if not built.examples:
        raise UserError(f"{plan.raw}: no valid example is left; rejected: {json.dumps(built.rejected)}")
    return built


def _drop_overlaps(items: list[Item], out: HeldOut, built: Built, track: Track) -> list[Item]:
    task, left, seen = items[0].task, list[Item](), set[tuple[str, str]]()
    with track(f"{task}: overlap", len(items)) as update:
        for number, item in enumerate(items, 1):
            if why := out.overlap(task, item.text, item.answer):
                built.overlaps[task][why] += 1
            elif (key := (item.system, item.full.lower())) in seen:
                built.rejected[task]["there twice"] += 1
            else:
                seen.add(key)
                left.append(item)
            update(number)
    return left


def _shard(items: list[Item], sharder: Sharder | None, built: Built, track: Track) -> list[Example]:
    task, few, results = items[0].task, "fewer than two shards", list[tuple[str, ...] | str]()
    if sharder:
        results = sharder([item.text for item in items])
    else:
        with track(f"{task}: shards", len(items)) as update:
            for item in items:
                if item.shards and not check_shards(item.text, item.shards, most_new=1.0):
                    built.sharder_counts["from the reference"] += 1
                    results.append(item.shards)
                else:
                    results.append(shard(item.text))
                update(len(results))
    examples, rejected = [], built.rejected[task]
    for item, result in zip(items, results, strict=True):
        if result == few and item.extra:
            result = tuple(pieces(item.text))  # the shards behind it make up for that
        if isinstance(result, str):
            rejected[result] += 1
        elif len(item.full) > LONGEST:
            rejected[f"over {LONGEST} characters"] += 1
        elif len(shards := (*result, *item.extra)) < 2:
            rejected[few] += 1
        elif item.extra and (problem := check_shards(item.text, result)):
            rejected[problem.split(":")[0]] += 1
        else:
            source = SOURCES[task]["name"]
            examples.append(Example(item.id, task, item.system, shards, item.full, item.answer, source))
    return examples


def _verify_references(examples: list[Example], built: Built, track: Track) -> list[Example]:
    task = examples[0].task
    if task == "code" and sandbox.isolation() == "none":
        built.unverified.append("code: there is no sandbox here, so no reference program was run")
        return examples
    shown: dict[tuple[str, str], str | None] = {}

    def problem(example: Example) -> str | None:
        if task == "database":  # two questions share most queries
            key = (example.answer["schema_sql"], example.answer["reference_sql"])
            if key not in shown:
                shown[key] = shows_something(example.answer)
            return shown[key]
        reply, code = built.items[example.id].reference, task == "code"
        verdict = verify_code(example.answer, reply, timeout=SECONDS) if code else verify(example, reply)
        if verdict.status == "timeout":
            return f"the reference takes over {SECONDS:g} s"
        return None if verdict.correct else "the reference does not verify"

    kept = []
    width = max(1, built.plan.workers) if task == "code" else 1  # only the sandbox works outside this process
    with ThreadPoolExecutor(width) as pool, track(f"{task}: verify", len(examples)) as update:
        for number, (example, why) in enumerate(zip(examples, pool.map(problem, examples), strict=True), 1):
            if why:
                built.rejected[task][why] += 1
            else:
                kept.append(example)
            update(number)
    return kept


def shares(available: dict[str, int], total: int) -> dict[str, int]:
    """How many of each domain make `total`, as even as they allow; all for 0 or where there are no more."""
    if total <= 0 or total >= sum(available.values()):
        return dict(available)
    out: dict[str, int] = {}
    for rank, domain in enumerate(sorted(available, key=lambda d: (available[d], d))):
        out[domain] = min(available[domain], total // (len(available) - rank))
        total -= out[domain]
    return out


def write(built: Built, out: Path) -> dict[str, Any]:
    """Write the set, its card as JSON and as Markdown; returns the card. Nothing is ever half there."""
    text = jsonl(e.to_json() for e in built.examples)
    facts = _card(built, out.name, hashlib.sha256(text.encode()).hexdigest())
    write_json(out.with_name(f"{out.name}.card.json"), facts)
    write_text(out.with_name(f"{out.name}.card.md"), render_text(__package__, "card.md.jinja", **facts))
    write_text(out, text)  # last: where it is, the cards are too
    return facts


def _card(built: Built, name: str, digest: str) -> dict[str, Any]:
    plan, domains, items = built.plan, {}, built.items
    chosen = Counter(e.task for e in built.examples)
    for domain, valid in built.valid.items():
        counts = {"examples": chosen[domain], "valid": len(valid), "read": built.read[domain]}
        reasons = {"overlap": built.overlaps[domain], "rejected": built.rejected[domain]}
        left_out = {key: dict(sorted(counter.items())) for key, counter in reasons.items()}
        domains[domain] = {**counts, **left_out, "source": SOURCES[domain]}
    by_file = {
        "read": Counter(item.file for item in items.values()),
        "valid": Counter(items[e.id].file for valid in built.valid.values() for e in valid),
        "examples": Counter(items[e.id].file for e in built.examples),
    }
    files = {f: {what: counts[f] for what, counts in by_file.items()} for f in sorted(by_file["read"])}
    # What decides the bytes of a set, without folders.
    chosen_by = {"evals": [Path(name).name for name in plan.evals], "domains": list(plan.domains)}
    options = {**chosen_by, "total": plan.total, "seed": plan.seed, "sharder": plan.sharder}
    options |= {"validation": True} if plan.validation else {}
    return {
        "file": name,
        "sha256": digest,
        "examples": len(built.examples),
        "options": options,
        "domains": domains,
        "files": files,
        "statistics": describe(built.examples),
        "evaluation": built.evaluation,
        "near_duplicate": {"run_of_words": RUN, "share": NEAR, "least_runs": LEAST},
        "unverified": built.unverified,
        "sharder": {"kind": plan.sharder, **dict(sorted(built.sharder_counts.items()))},
        "inputs": built.inputs,
    }
