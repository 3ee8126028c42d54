"""What a data set looks like: counts by task, shards per example, lengths. As numbers, tables or a chart."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from smopd.data.example import Example
from smopd.tables import Row, Table

_MOST_BARS = 12  # of one histogram; the last takes the rest


def _spread(values: Sequence[int]) -> dict[str, Any]:
    """Least, median, mean, 90th percentile and greatest, by nearest rank."""
    ranked, n = sorted(values), len(values)
    mean, p90 = round(sum(ranked) / n, 2), ranked[min(n - 1, -(-9 * n // 10) - 1)]
    return {"min": ranked[0], "median": ranked[(n - 1) // 2], "mean": mean, "p90": p90, "max": ranked[-1]}


def describe(examples: Sequence[Example]) -> dict[str, Any]:
    """Counts and lengths of a data set, as a whole and by task, tasks in the order of their size."""
    counts = Counter(e.task for e in examples)
    order = sorted(counts, key=lambda task: (-counts[task], task))
    groups = {task: _group([e for e in examples if e.task == task]) for task in order}
    return {"examples": len(examples), "tasks": groups, "all": _group(examples)}


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
    """The description for a terminal: counts and lengths, and a histogram of shards."""
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
    """Counts and lengths by task."""
    heads = ("task", "examples", "shards", "full, chars", "shard, words", "system, chars")
    rows = [Row(task, _cells(group)) for task, group in groups.items()]
    return Table(title="Counts and lengths: mean (greatest)", heads=heads, rows=rows)


def _cells(group: dict[str, Any]) -> list[str]:
    spreads = [group[key] for key in ("shards", "full_characters", "shard_words", "system_characters")]
    means = [f"{s['mean']:,.{0 if s['mean'] >= 100 else 1}f} ({s['max']:,})" for s in spreads]
    return [f"{group['examples']:,}", *means]


def _bars(group: dict[str, Any]) -> list[tuple[str, int]]:
    counts = list(group["shards"]["histogram"].items())
    if len(counts) <= _MOST_BARS:
        return counts
    head, tail = counts[: _MOST_BARS - 1], counts[_MOST_BARS - 1 :]
    return [*head, (f"{tail[0][0]}+", sum(count for _, count in tail))]


def plot(told: dict[str, Any], name: str, as_html: bool) -> str:
    """The shares of examples by number of shards, task by task: one SVG, or a page with the numbers."""
    from smopd.charts import CHART_CSS, Bar, bar_chart, standalone
    from smopd.formatting import esc
    from smopd.pages import html_page, section

    def chart(title: str, groups: dict[str, Any]) -> str:
        bars = []
        for task, group in groups.items():
            for label, count in _bars(group):
                share = count / group["examples"]
                bars.append(Bar(f"{task} ({group['examples']:,})", label, share, text=f"{share:.0%}"))
        return bar_chart(f"{title}: shards per example", bars)

    if not as_html:
        return standalone(chart(name, told["tasks"]))
    names = ("task", "examples", "shards", "characters, full", "words a shard", "characters, system")
    rows = [[esc(task), *_cells(group)] for task, group in told["tasks"].items()]
    heads = "".join(f"<th>{head}</th>" for head in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    table = f'<div class="scroll"><table><tr>{heads}</tr>{body}</table></div>'
    header = f"<h1>{esc(name)}</h1><p>{told['examples']:,} examples. Mean (greatest):</p>{table}"
    charts = "".join(section(task, chart(task, {task: group})) for task, group in told["tasks"].items())
    return html_page(name, header, charts, CHART_CSS)
