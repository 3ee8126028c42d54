"""What a data set looks like: counts by task, shards per example, lengths. As numbers, tables or a chart.

It leaves out whether the data are sound: that is `smopd.data.check`.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smopd.data.example import Example

if TYPE_CHECKING:
    from rich.table import Table

_CSS = (
    ":root{--ink:#1b1f24;--muted:#5c6670;--paper:#fff;--rule:#e3e6ea;--quiet:#9aa4ae;--c0:#2166ac;--c1:#b2182b;--c2:#1a7f5a;"
    "--c3:#8a5a00;--c4:#6a3d9a;--c5:#444}"
)
_MOST_BARS = 12  # of one histogram; the last takes the rest


def _spread(values: Sequence[int]) -> dict[str, Any]:
    """Least, median, mean, 90th percentile and greatest, by nearest rank."""
    ranked = sorted(values)
    last = len(ranked) - 1
    return {
        "min": ranked[0],
        "median": ranked[last // 2],
        "mean": round(sum(ranked) / len(ranked), 2),
        "p90": ranked[min(last, -(-9 * len(ranked) // 10) - 1)],
        "max": ranked[-1],
    }


def describe(examples: Sequence[Example]) -> dict[str, Any]:
    """Counts and lengths of a data set, as a whole and by task, tasks in the order of their size."""
    counts = Counter(e.task for e in examples)
    order = sorted(counts, key=lambda task: (-counts[task], task))
    groups = {task: _group([e for e in examples if e.task == task]) for task in order}
    return {"examples": len(examples), "tasks": groups, "all": _group(examples)}


def _group(examples: Sequence[Example]) -> dict[str, Any]:
    if not examples:
        return {"examples": 0}
    histogram = Counter(len(e.shards) for e in examples)
    counts = {str(n): histogram[n] for n in sorted(histogram)}
    return {
        "examples": len(examples),
        "shards": {**_spread([len(e.shards) for e in examples]), "histogram": counts},
        "full_characters": _spread([len(e.full) for e in examples]),
        "full_words": _spread([len(e.full.split()) for e in examples]),
        "shard_characters": _spread([len(s) for e in examples for s in e.shards]),
        "shard_words": _spread([len(s.split()) for e in examples for s in e.shards]),
        "system_characters": _spread([len(e.system) for e in examples]),
        "sources": dict(sorted(Counter(e.source or "(none)" for e in examples).items())),
    }


def tables(facts: dict[str, Any]) -> list["Table"]:
    """The description as tables for a terminal."""
    from rich.table import Table

    sizes = Table("task", title="Counts and lengths: mean (greatest)", title_justify="left")
    for head in ("examples", "shards", "full, chars", "shard, words", "system, chars"):
        sizes.add_column(head, justify="right")
    groups = [*facts["tasks"].items(), *([("all", facts["all"])] if len(facts["tasks"]) > 1 else [])]
    for task, group in groups:
        lengths = ("shards", "full_characters", "shard_words", "system_characters")
        sizes.add_row(task, f"{group['examples']:,}", *(_cell(group[key]) for key in lengths))
    shards = Table("task", title="Shards per example", title_justify="left")
    shards.add_column("shards", justify="right")
    shards.add_column("examples", justify="right")
    shards.add_column("share")
    for task, group in facts["tasks"].items():
        for number, (label, count) in enumerate(_bars(group)):
            share = count / group["examples"]
            bar = "█" * round(30 * share) or "▏"
            shards.add_row(task if not number else "", label, f"{count:,}", f"{bar} {share:.0%}")
    return [sizes, shards]


def _cell(spread: dict[str, Any]) -> str:
    mean = spread["mean"]
    return f"{mean:,.{0 if mean >= 100 else 1}f} ({spread['max']:,})"


def _bars(group: dict[str, Any]) -> list[tuple[str, int]]:
    """The histogram of shards, its tail in one bar."""
    counts = list(group["shards"]["histogram"].items())
    if len(counts) <= _MOST_BARS:
        return counts
    head, tail = counts[: _MOST_BARS - 1], counts[_MOST_BARS - 1 :]
    return [*head, (f"{tail[0][0]}+", sum(count for _, count in tail))]


def plot(told: dict[str, Any], name: str, as_html: bool) -> str:
    """The shares of examples by number of shards, task by task: one SVG, or a page of them with the numbers
    below.
    """
    from smopd.viewer.svg import CHART_CSS, Bar, bar_chart, esc

    def chart(title: str, groups: dict[str, Any]) -> str:
        bars = [
            Bar(
                f"{task} ({group['examples']:,})",
                label,
                count / group["examples"],
                text=f"{count / group['examples']:.0%}",
            )
            for task, group in groups.items()
            for label, count in _bars(group)
        ]
        return bar_chart(title, bars)

    if not as_html:
        drawn = chart(f"{name}: shards per example", told["tasks"])
        style = f"<style>{_CSS}{CHART_CSS}svg{{background:var(--paper)}}</style>"
        head, rest = drawn.split(">", 1)
        namespace = "" if "xmlns=" in head else ' xmlns="http://www.w3.org/2000/svg"'
        return f"{head}{namespace}>{style}{rest}\n"
    rows = "".join(
        f"<tr><td>{esc(task)}</td><td>{group['examples']:,}</td>"
        + "".join(
            f"<td>{_cell(group[key])}</td>"
            for key in ("shards", "full_characters", "shard_words", "system_characters")
        )
        + "</tr>"
        for task, group in told["tasks"].items()
    )
    names = ("task", "examples", "shards", "characters, full", "words a shard", "characters, system")
    heads = "".join(f"<th>{name}</th>" for name in names)
    charts = "".join(
        f"<h2>{esc(t)}</h2>{chart(f'{t}: shards per example', {t: g})}" for t, g in told["tasks"].items()
    )
    page = "body{font:15px system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:60rem;margin:2rem auto}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{esc(name)}</title>'
        f"<style>{_CSS}{CHART_CSS}{page}"
        "td,th{padding:.2rem .8rem;text-align:right}td:first-child,th:first-child{text-align:left}svg{max-width:100%}</style>"
        f"<h1>{esc(name)}</h1><p>{told['examples']:,} examples. Mean (greatest):</p>"
        f"<table><tr>{heads}</tr>{rows}</table>"
        f"{charts}</html>\n"
    )
