"""Describe a data set: counts by task, shards per example, lengths; as numbers, tables or a chart."""

import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

from smopd.data.example import Example, group_by_task
from smopd.formatting import visible
from smopd.tables import Row, Table

_MOST_BARS = 12  # of one histogram; the last takes the rest


def _spread(values: Sequence[int]) -> dict[str, Any]:
    ranked, n = sorted(values), len(values)
    mean, p90 = round(sum(ranked) / n, 2), ranked[min(n - 1, -(-9 * n // 10) - 1)]
    return {"min": ranked[0], "median": ranked[(n - 1) // 2], "mean": mean, "p90": p90, "max": ranked[-1]}


def describe(examples: Sequence[Example]) -> dict[str, Any]:
    groups = sorted(group_by_task(examples).items(), key=lambda group: (-len(group[1]), group[0]))
    tasks = {task: _group(some) for task, some in groups}
    return {"examples": len(examples), "tasks": tasks, "all": _group(examples)}


def _group(examples: Sequence[Example]) -> dict[str, Any]:
    if not examples:
        return {"examples": 0}
    counts = {str(n): count for n, count in sorted(Counter(len(e.shards) for e in examples).items())}
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


def tables(facts: dict[str, Any]) -> list[Table]:
    groups = [*facts["tasks"].items(), *([("all", facts["all"])] if len(facts["tasks"]) > 1 else [])]
    bars = []
    for task, group in facts["tasks"].items():
        for number, (label, count) in enumerate(_bars(group)):
            share = count / group["examples"]
            drawn = f"{'█' * round(30 * share) or '▏'} {share:.0%}"
            bars.append(Row(task if not number else "", (label, f"{count:,}", drawn)))
    heads = ("task", "shards", "examples", "share")
    return [sizes(dict(groups)), Table(title="Shards per example", heads=heads, rows=bars, words=(3,))]


def sizes(groups: dict[str, Any]) -> Table:
    heads = ("task", "examples", "shards", "full, chars", "shard, words", "system, chars")
    rows = []
    for task, group in groups.items():
        spreads = [group[key] for key in ("shards", "full_characters", "shard_words", "system_characters")]
        means = [f"{s['mean']:,.{0 if s['mean'] >= 100 else 1}f} ({s['max']:,})" for s in spreads]
        rows.append(Row(task, [f"{group['examples']:,}", *means]))
    return Table(title="Counts and lengths: mean (greatest)", heads=heads, rows=rows)


def _bars(group: dict[str, Any]) -> list[tuple[str, int]]:
    counts = list(group["shards"]["histogram"].items())
    if len(counts) <= _MOST_BARS:
        return counts
    head, tail = counts[: _MOST_BARS - 1], counts[_MOST_BARS - 1 :]
    return [*head, (f"{tail[0][0]}+", sum(count for _, count in tail))]


def plot(facts: dict[str, Any], name: str, as_html: bool) -> str:
    """Chart the shares of examples by number of shards and task: an SVG, or a page with the numbers."""
    from matplotlib.figure import Figure

    from smopd.pages import Markup, render
    from smopd.svg import styled, svg_text

    tasks, title = facts["tasks"], visible(f"{name}: shards per example")
    look = {"svg.hashsalt": "smopd", "svg.fonttype": "none", "text.parse_math": False}
    with styled(look | {"axes.spines.top": False, "axes.spines.right": False}), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the reader's font may have glyphs that this one lacks
        sheet = Figure(figsize=(7, 1.2 + 1.8 * len(tasks)), layout="constrained")
        sheet.suptitle(title)
        panels = sheet.subplots(max(1, len(tasks)), squeeze=False)[:, 0]
        for axes, (task, group) in zip(panels, tasks.items(), strict=False):
            labels, counts = zip(*_bars(group), strict=True)
            shares = [100 * count / group["examples"] for count in counts]
            drawn = axes.bar(labels, shares, color="#2b6391")
            axes.bar_label(drawn, [f"{share:.0f}%" for share in shares])
            axes.set_title(visible(f"{task} ({group['examples']:,})"), loc="left")
            axes.margins(y=0.15)
            axes.set_yticks([])
            axes.tick_params(length=0)
        svg = svg_text(sheet, title)
    svg = svg[svg.index("<svg") :]
    if not as_html:
        return svg
    counted = f"{facts['examples']:,} examples. Mean (greatest):"
    return str(render("data.html", title=name, counted=counted, sizes=sizes(tasks), drawing=Markup(svg)))
