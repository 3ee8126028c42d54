"""From a folder of raw public files to a training set: read, hold out, shard, verify, choose.

The same files, options and seed give the same bytes. What is left out (overlaps with an evaluation set,
duplicates, requests that cannot be sharded, references that do not verify) is counted by reason.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smopd.data.example import Example
from smopd.data.sharding import LONGEST, Sharder, by_rule, check_shards, pieces
from smopd.data.training_set import overlap, readers
from smopd.data.training_set.raw import SOURCES, Item, sha256
from smopd.errors import UserError
from smopd.seeds import derive
from smopd.tracking import Track, Update, quiet
from smopd.verify import sandbox, verify
from smopd.verify.sql.database import shows_something
from smopd.verify.tasks.code import verify_code

READERS = {"math": readers.gsm8k, "actions": readers.bfcl, "database": readers.spider, "code": readers.mbpp}
DOMAINS = tuple(READERS)
TOTAL = 12165  # examples of the paper's own set, which is not public
# For a reference program. All take under 0.1 s but one, whose 6 s, the verifier's limit, would mean chance.
SECONDS = 3.0


@dataclass(frozen=True)
class BuildPlan:
    """What to build. `total` 0 takes everything; `sharder` only names the one that is used, for the card."""

    raw: Path
    evals: tuple[str, ...] = ()
    domains: tuple[str, ...] = DOMAINS
    total: int = TOTAL
    seed: int = 0
    sharder: str = "rule"
    workers: int = 2


@dataclass
class Built:
    """A training set and everything its card tells."""

    plan: BuildPlan
    examples: list[Example]
    valid: Counter[str]  # by domain, before the choice
    read: Counter[str] = field(default_factory=Counter)
    read_by_file: Counter[str] = field(default_factory=Counter)
    valid_by_file: Counter[str] = field(default_factory=Counter)
    rejected: dict[str, Counter[str]] = field(default_factory=dict)
    overlaps: dict[str, Counter[str]] = field(default_factory=dict)
    evaluation: list[dict[str, Any]] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # example id to raw file
    unverified: list[str] = field(default_factory=list)
    sharder_counts: Counter[str] = field(default_factory=Counter)


def build(plan: BuildPlan, sharder: Sharder | None = None, track: Track = quiet) -> Built:
    """Make the set in memory. `sharder` replaces the rules; what it cannot do is dropped with its reason."""
    unknown = [d for d in plan.domains if d not in READERS]
    if unknown or not plan.domains:
        raise UserError(f"--domains: {', '.join(unknown) or 'none'}: expected some of {','.join(DOMAINS)}")
    if not plan.raw.is_dir():
        raise UserError(f"{plan.raw}: no such folder of raw files")
    built = Built(plan, [], Counter())
    read: dict[str, list[Item]] = {}
    for domain in (d for d in DOMAINS if d in plan.domains):  # all first: a missing file is known at once
        built.rejected[domain], built.overlaps[domain] = Counter(), Counter()
        with track(f"{domain}: reading"):
            read[domain] = READERS[domain](plan.raw, built.rejected[domain])
        built.read[domain] = len(read[domain]) + built.rejected[domain].total()
        built.read_by_file += Counter(item.file for item in read[domain])
    bfcl = [file for pair in readers.bfcl_files(plan.raw) for file in pair]
    spider = [name for name in readers.SPIDER if (plan.raw / name).is_file()][:1]
    files = {"math": [readers.GSM8K], "actions": bfcl, "code": [readers.MBPP]}
    files["database"] = [*spider, readers.SPIDER_TABLES]
    inputs = sorted(name for domain in plan.domains for name in files[domain])
    built.inputs = {name: sha256(plan.raw / name) for name in inputs}
    with track("reading evaluation sets"):
        out = overlap.held_out(plan.raw, plan.domains, plan.evals)
    built.evaluation = out.files
    valid: dict[str, list[Example]] = {}
    for domain, items in read.items():
        with track(f"{domain}: overlap", len(items)) as update:
            left = _without_overlap(items, out, built, update)
        examples = _sharded(left, sharder, built, track)
        valid[domain] = kept = _verified(examples, {i.id: i for i in left}, built, track)
        built.valid[domain] = len(kept)
        built.files |= {item.id: item.file for item in left}
        built.valid_by_file += Counter(built.files[e.id] for e in kept)
    built.examples = _chosen(valid, plan)
    if not built.examples:
        raise UserError(f"{plan.raw}: no valid example is left; rejected: {json.dumps(built.rejected)}")
    built.files = {e.id: built.files[e.id] for e in built.examples}
    return built


def _without_overlap(items: list[Item], out: overlap.HeldOut, built: Built, update: Update) -> list[Item]:
    left: list[Item] = []
    seen: set[tuple[str, str]] = set()
    for number, item in enumerate(items, 1):
        if number % 100 == 0 or number == len(items):
            update(number)
        if why := out.overlap(item.task, item.text, item.answer):
            built.overlaps[item.task][why] += 1
        elif (key := (item.system, item.full.lower())) in seen:
            built.rejected[item.task]["there twice"] += 1
        else:
            seen.add(key)
            left.append(item)
    return left


def _sharded(items: list[Item], sharder: Sharder | None, built: Built, track: Track) -> list[Example]:
    if not items:
        return []
    task, rejected, texts = items[0].task, built.rejected[items[0].task], [item.text for item in items]
    if sharder:
        results = sharder(texts)
    else:
        results = []
        with track(f"{task}: shards", len(items)) as update:
            for first in range(0, len(texts), 100):
                results += by_rule(texts[first : first + 100])
                update(len(results))
    examples, source, few = [], SOURCES[task].name, "fewer than two shards"
    for item, found in zip(items, results, strict=True):
        if found == few and item.extra:
            found = tuple(pieces(item.text))  # the shards behind it make up for that
        if isinstance(found, str):
            rejected[found] += 1
        elif len(item.full) > LONGEST:
            rejected[f"over {LONGEST} characters"] += 1
        elif len(shards := (*found, *item.extra)) < 2:
            rejected[few] += 1
        elif item.extra and (problem := check_shards(item.text, found)):
            rejected[problem.split(":")[0]] += 1
        else:
            examples.append(Example(item.id, task, item.system, shards, item.full, item.answer, source))
    return examples


def _verified(examples: list[Example], items: dict[str, Item], built: Built, track: Track) -> list[Example]:
    if not examples:
        return []
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
        reply, code = items[example.id].reference, task == "code"
        verdict = verify_code(example.answer, reply, timeout=SECONDS) if code else verify(example, reply)
        if verdict.correct:
            return None
        slow = verdict.status == "timeout"
        return f"the reference takes over {SECONDS:g} s" if slow else "the reference does not verify"

    kept = []
    width = built.plan.workers if task == "code" else 1  # only the sandbox works outside this process
    with ThreadPoolExecutor(max(1, width)) as pool, track(f"{task}: verify", len(examples)) as update:
        for number, (example, why) in enumerate(zip(examples, pool.map(problem, examples), strict=True), 1):
            if why:
                built.rejected[task][why] += 1
            else:
                kept.append(example)
            if number % 50 == 0 or number == len(examples):
                update(number)
    return kept


def _chosen(valid: dict[str, list[Example]], plan: BuildPlan) -> list[Example]:
    share, chosen = shares({domain: len(valid[domain]) for domain in valid}, plan.total), list[Example]()
    for domain, examples in valid.items():
        chosen += sorted(examples, key=lambda e: derive("choice", plan.seed, e.id))[: share[domain]]
    return sorted(chosen, key=lambda e: derive("order", plan.seed, e.id))


def shares(available: dict[str, int], total: int) -> dict[str, int]:
    """How many of each domain make `total`, as even as they allow; all for 0 or where there are no more."""
    if total <= 0 or total >= sum(available.values()):
        return dict(available)
    out: dict[str, int] = {}
    for rank, domain in enumerate(sorted(available, key=lambda d: (available[d], d))):
        out[domain] = min(available[domain], total // (len(available) - rank))
        total -= out[domain]
    return out
