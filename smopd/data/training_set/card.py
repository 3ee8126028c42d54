"""The data card of a training set: what it holds, where it comes from, what was left out and why.

No dates and no folders, so the same set has the same card on every machine.
"""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from smopd.data.stats import describe
from smopd.data.training_set import overlap
from smopd.data.training_set.compose import Built
from smopd.data.training_set.readers import SOURCES
from smopd.files import jsonl, write_json, write_text
from smopd.pages import render_text


def write(built: Built, out: Path) -> dict[str, Any]:
    """Write the set, its card as JSON and as Markdown; returns the card. Nothing is ever half there."""
    text = jsonl(e.to_json() for e in built.examples)
    facts = _card(built, out.name, hashlib.sha256(text.encode()).hexdigest())
    write_json(out.with_name(f"{out.name}.card.json"), facts)
    write_text(out.with_name(f"{out.name}.card.md"), render_text(__package__, "card.md.jinja", **facts))
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
