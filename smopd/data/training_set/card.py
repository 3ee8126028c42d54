"""The data card of a training set: what it holds, where it comes from, what was left out and why.

No dates and no folders, so the same set has the same card on every machine.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from smopd.data.stats import describe
from smopd.data.training_set import overlap
from smopd.data.training_set.compose import Built
from smopd.data.training_set.readers import SOURCES
from smopd.files import jsonl, write_json, write_text


def write(built: Built, out: Path) -> dict[str, Any]:
    """Write the set, its card as JSON and as Markdown; returns the card. Nothing is ever half there."""
    text = jsonl(e.to_json() for e in built.examples)
    facts = _card(built, out.name, hashlib.sha256(text.encode()).hexdigest())
    write_json(out.with_name(f"{out.name}.card.json"), facts)
    write_text(out.with_name(f"{out.name}.card.md"), _card_text(facts))
    write_text(out, text)  # last: where it is, the cards are too
    return facts


def _card(built: Built, name: str, digest: str) -> dict[str, Any]:
    plan, domains, files = built.plan, {}, {}
    valid_by_file = Counter(built.files[e.id] for valid in built.valid.values() for e in valid)
    chosen = Counter(e.task for e in built.examples)
    by_file = Counter(built.files[e.id] for e in built.examples)
    for domain, valid in built.valid.items():
        counts = {"examples": chosen[domain], "valid": len(valid), "read": built.read[domain]}
        reasons = {"overlap": built.overlaps[domain], "rejected": built.rejected[domain]}
        left_out = {key: dict(sorted(counter.items())) for key, counter in reasons.items()}
        domains[domain] = {**counts, **left_out, "source": SOURCES[domain]._asdict()}
    for file, read in sorted(Counter(built.files.values()).items()):
        files[file] = {"read": read, "valid": valid_by_file[file], "examples": by_file[file]}
    # What decides the bytes of a set, without folders.
    chosen_by = {"evals": [Path(name).name for name in plan.evals], "domains": list(plan.domains)}
    options = {**chosen_by, "total": plan.total, "seed": plan.seed, "sharder": plan.sharder}
    return {
        "file": name,
        "sha256": digest,
        "examples": len(built.examples),
        "options": options,
        "domains": domains,
        "files": files,
        "statistics": describe(built.examples),
        "evaluation": built.evaluation,
        "near_duplicate": {"run_of_words": overlap.RUN, "share": overlap.NEAR, "least_runs": overlap.LEAST},
        "unverified": built.unverified,
        "sharder": {"kind": plan.sharder, **dict(sorted(built.sharder_counts.items()))},
        "inputs": built.inputs,
    }


def _table(head: str, rows: Sequence[Sequence[object]]) -> str:
    lines = [f"| {head} |", "|" + "---|" * (head.count("|") + 1)]
    for row in rows:
        cells = [f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _reasons(domains: dict[str, Any], key: str) -> str:
    reasons = {d: [f"{why}: {n:,}" for why, n in facts[key].items()] for d, facts in domains.items()}
    return "\n".join(f"- {domain}: {'; '.join(some) or 'none'}" for domain, some in reasons.items())


def _card_text(facts: dict[str, Any]) -> str:
    domains, near, least = facts["domains"], facts["near_duplicate"], facts["near_duplicate"]["least_runs"]
    counts, sizes = [], []
    for domain, v in domains.items():
        left_out = (sum(v["overlap"].values()), sum(v["rejected"].values()))
        counts.append((domain, v["source"]["name"], v["read"], *left_out, v["valid"], v["examples"]))
    for domain, stats in facts["statistics"]["tasks"].items():
        histogram = ", ".join(f"{shards}: {n:,}" for shards, n in stats["shards"]["histogram"].items())
        digits = {"full_characters": 0, "shard_words": 1, "system_characters": 0}
        spreads = [f"{stats[key]['mean']:.{d}f} ({stats[key]['max']:,})" for key, d in digits.items()]
        sizes.append((domain, f"{stats['shards']['mean']:.2f}", histogram, *spreads))
    compared = [f"- {e['file']} ({e['what']}, {e['items']:,} items)" for e in facts["evaluation"]]
    kind, *sharded = facts["sharder"].items()
    sharder = f"{kind[1]} ({', '.join(f'{key} {value:,}' for key, value in sharded)})" if sharded else kind[1]
    files = [(file, *v.values()) for file, v in facts["files"].items()]
    sources = [(domain, *v["source"].values()) for domain, v in domains.items()]
    options = ", ".join(f"{key} {value}" for key, value in facts["options"].items() if key != "sharder")
    size_heads = (
        "domain | shards, mean | examples by number of shards | characters of the request, mean (max) | "
        "words a shard, mean (max) | characters of the system prompt, mean (max)"
    )
    parts = [
        f"# {facts['file']}",
        f"{facts['examples']:,} examples for training, each in two views: the whole request, and shards that "
        f"reveal it turn by turn. SHA-256 `{facts['sha256']}`.",
        "## Counts",
        _table("domain | source | read | overlap | rejected | valid | in the set", counts),
        _table("file | items taken | valid | in the set", files),
        "## Shards and lengths",
        _table(size_heads, sizes),
        "## Left out",
        _reasons(domains, "rejected"),
        "## Overlap with evaluation sets, removed",
        _reasons(domains, "overlap"),
        f"Near: of the runs of {near['run_of_words']} words of the shorter text, numbers made equal, at "
        f"least {near['share']:.0%} occur in the other, and at least {least} of them. Compared with:",
        "\n".join(compared) or "- nothing: no file was there",
        "## How it was made",
        f"Sharder: {sharder}. Options: {options}.",
        "Every reference was checked: numbers, calls and programs by the verifier itself; queries by running "
        "them on databases made from the schema, where they must run and their results differ.",
        *(f"Not verified: {note}." for note in facts["unverified"]),
        "## Sources and licences",
        _table("domain | source | project | licence | credit", sources),
        "The questions keep the licences of their sources; a set with Spider in it is to be shared under "
        "CC BY-SA 4.0.",
        "## Inputs",
        _table("file | SHA-256", [(f, f"`{digest}`") for f, digest in facts["inputs"].items()]),
    ]
    return "\n\n".join(parts) + "\n"
