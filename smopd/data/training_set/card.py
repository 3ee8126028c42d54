"""The data card: what a set holds, where it comes from, what was left out and why. JSON first, Markdown made
from it.

No dates and no folders, so the same set has the same card on every machine.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smopd.data.stats import describe
from smopd.data.training_set import overlap
from smopd.data.training_set.raw import SOURCES

if TYPE_CHECKING:
    from smopd.data.training_set.compose import Built


def card(built: "Built", name: str, digest: str) -> dict[str, Any]:
    """Everything the card tells, as JSON."""
    from smopd.data.training_set.compose import options

    chosen = Counter(e.task for e in built.examples)
    by_file = Counter(built.files.values())
    domains = list(built.rejected)
    return {
        "file": name,
        "sha256": digest,
        "examples": len(built.examples),
        "options": options(built.plan),
        "domains": {
            d: {
                "examples": chosen[d],
                "valid": built.valid[d],
                "read": built.read[d],
                "overlap": dict(sorted(built.overlaps[d].items())),
                "rejected": dict(sorted(built.rejected[d].items())),
                "source": vars(SOURCES[d]),
            }
            for d in domains
        },
        "files": {
            f: {"read": built.read_by_file[f], "valid": built.valid_by_file[f], "examples": by_file[f]}
            for f in sorted(built.read_by_file)
        },
        "statistics": describe(built.examples),
        "evaluation": built.evaluation,
        "near_duplicate": {"run_of_words": overlap.RUN, "share": overlap.NEAR, "least_runs": overlap.LEAST},
        "unverified": built.unverified,
        "sharder": {"kind": built.plan.sharder, **dict(sorted(built.sharder_counts.items()))},
        "inputs": built.inputs,
    }


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(
        [
            *lines,
            *(
                "| " + " | ".join(f"{c:,}" if isinstance(c, int) else str(c) for c in row) + " |"
                for row in rows
            ),
        ]
    )


def _reasons(counts: dict[str, int]) -> str:
    return "; ".join(f"{reason}: {count:,}" for reason, count in counts.items()) or "none"


def card_text(told: dict[str, Any]) -> str:
    """The card in Markdown."""
    domains, stats = told["domains"], told["statistics"]["tasks"]
    counts = [
        (
            d,
            v["source"]["name"],
            v["read"],
            sum(v["overlap"].values()),
            sum(v["rejected"].values()),
            v["valid"],
            v["examples"],
        )
        for d, v in domains.items()
    ]
    sizes = [
        (d, f"{s['shards']['mean']:.2f}", ", ".join(f"{k}: {n:,}" for k, n in s["shards"]["histogram"].items()),
         f"{s['full_characters']['mean']:.0f} ({s['full_characters']['max']:,})",
         f"{s['shard_words']['mean']:.1f} ({s['shard_words']['max']:,})",
         f"{s['system_characters']['mean']:.0f} ({s['system_characters']['max']:,})")
        for d, s in stats.items()
    ]  # fmt: skip
    near = told["near_duplicate"]
    parts = [
        f"# {told['file']}",
        f"{told['examples']:,} examples for training, each in two views: the whole request, and shards that reveal it turn by "
        f"turn. SHA-256 `{told['sha256']}`.",
        "## Counts",
        _table(["domain", "source", "read", "overlap", "rejected", "valid", "in the set"], counts),
        _table(
            ["file", "items taken", "valid", "in the set"],
            [(f, v["read"], v["valid"], v["examples"]) for f, v in told["files"].items()],
        ),
        "## Shards and lengths",
        _table(
            [
                "domain",
                "shards, mean",
                "examples by number of shards",
                "characters of the request, mean (max)",
                "words a shard, mean (max)",
                "characters of the system prompt, mean (max)",
            ],
            sizes,
        ),
        "## Left out",
        "\n".join(f"- {d}: {_reasons(v['rejected'])}" for d, v in domains.items()),
        "## Overlap with evaluation sets, removed",
        "\n".join(f"- {d}: {_reasons(v['overlap'])}" for d, v in domains.items()),
        f"Near: of the runs of {near['run_of_words']} words of the shorter text, numbers made equal, at least "
        f"{near['share']:.0%} occur in the other, and at least {near['least_runs']} of them. Compared with:",
        "\n".join(f"- {e['file']} ({e['what']}, {e['items']:,} items)" for e in told["evaluation"])
        or "- nothing: no file was there",
        "## How it was made",
        f"Sharder: {_kind(told['sharder'])}. Options: "
        + ", ".join(f"{key} {value}" for key, value in told["options"].items() if key != "sharder")
        + ".",
        "Every reference was checked: numbers, calls and programs by the verifier itself; queries by running them on databases "
        "made from the schema, where they must run and their results differ.",
        *(f"Not verified: {note}." for note in told["unverified"]),
        "## Sources and licences",
        _table(
            ["domain", "source", "project", "licence", "credit"],
            [
                (d, *(v["source"][k] for k in ("name", "project", "licence", "credit")))
                for d, v in domains.items()
            ],
        ),
        "The questions keep the licences of their sources; a set with Spider in it is to be shared under CC BY-SA 4.0.",
        "## Inputs",
        _table(["file", "SHA-256"], [(f, f"`{digest}`") for f, digest in told["inputs"].items()]),
    ]
    return "\n\n".join(parts) + "\n"


def _kind(sharder: dict[str, Any]) -> str:
    counts = ", ".join(f"{key} {value:,}" for key, value in sharder.items() if key != "kind")
    return f"{sharder['kind']}" + (f" ({counts})" if counts else "")
