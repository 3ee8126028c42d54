"""One self-contained HTML page about a run: the result, its evidence, the training curves, conversations
before and after.

No script and no outside resource, so the page opens from disk, by mail or on a phone, and prints. Same data,
same bytes: there is no time stamp. It leaves out where the numbers come from (evaluation and study compute
them) and the per-token view.
"""

import importlib.metadata
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from smopd.config_io import flatten
from smopd.files import write_text
from smopd.viewer.svg import (
    CHART_CSS,
    Bar,
    Series,
    bar_chart,
    esc,
    finite,
    interval,
    line_chart,
    p_value,
    percent,
    points,
    smooth,
    swatch,
)


@dataclass(frozen=True)
class Accuracy:
    """Correct answers of one stage ("base", "trained") under one view ("FULL", "SHARDED"); low and high: 95%
    interval, 0..1.
    """

    stage: str
    view: str
    correct: int
    total: int
    low: float
    high: float

    @property
    def value(self) -> float | None:
        """The fraction correct; None when nothing was evaluated."""
        return self.correct / self.total if self.total else None


@dataclass(frozen=True)
class Comparison:
    """A paired comparison: tasks that became right (gained) and wrong (lost), the difference of accuracies
    and its interval.
    """

    label: str
    gained: int
    lost: int
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Conversation:
    """(user, reply) turns and the verdict on the last reply."""

    turns: list[tuple[str, str]]
    correct: bool
    extracted: str | None


@dataclass(frozen=True)
class ConversationPair:
    """The same task told to the model before and after training."""

    id: str
    system: str
    full: str
    expected: str
    before: Conversation
    after: Conversation


@dataclass(frozen=True)
class ReportData:
    """Everything the page shows; an empty list leaves its section out."""

    title: str
    subtitle: str
    accuracies: list[Accuracy] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    conversations: list[ConversationPair] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Panel:
    """One training chart: the metric `name` and everything below it (`name/...`)."""

    title: str
    name: str
    least: float | None = 0.0
    most: float | None = None
    percent: bool = False


PANELS = (
    Panel("Loss", "loss"),
    Panel("Correct final answers", "outcome", most=1.0, percent=True),
    Panel("Positions clipped", "clipped", percent=True),
    Panel("Positions kept by the entropy mask", "kept", most=1.0, percent=True),
    Panel("Student entropy, nats", "entropy"),
    Panel("delta, mean |log s - log t| of a reply", "delta"),
    Panel("Turn weight", "weight", most=1.0),
    Panel("Reply length, tokens", "reply_tokens"),
    Panel("Gradient norm", "grad_norm"),
    Panel("Seconds a step, by stage", "seconds"),
)

CSS = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #23262b; --muted: #656a72; --rule: #dfdfda; --tint: #f4f4ef;
  --good: #2f6b3c; --bad: #a33a2c; --quiet: #b3b8be;
  --c0: #2b6391; --c1: #b3602f; --c2: #4f7f3e; --c3: #7d5597; --c4: #8b7524; --c5: #66707a; }
@media screen and (prefers-color-scheme: dark) { :root { --paper: #17191c; --ink: #e3e3df; --muted: #9aa0a7; --rule: #34383d;
  --tint: #1e2124; --good: #8cc896; --bad: #ec9384; --quiet: #626a72;
  --c0: #82b3dc; --c1: #e0976c; --c2: #97c482; --c3: #bb99d3; --c4: #cfb966; --c5: #a3abb3; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
main, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding: 3rem 0 .5rem; }
h1, h2, .lede { font-family: Charter, "Bitstream Charter", "Sitka Text", Cambria, Georgia, serif; font-weight: 600; }
h1 { font-size: 2rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 3rem 0 .9rem; padding-top: .9rem; border-top: 1px solid var(--rule); break-after: avoid; }
.subtitle { color: var(--muted); margin: .4rem 0 0; }
.lede { font-weight: 400; font-size: 1.2rem; line-height: 1.5; margin: 1.4rem 0 0; max-width: 46rem; }
.aside { color: var(--muted); font-size: .85rem; margin: .7rem 0 0; }
.accuracy { display: flex; flex-wrap: wrap; gap: 1.5rem 3.5rem; align-items: center; }
.accuracy > :first-child { flex: 0 1 auto; min-width: 0; } .accuracy > :last-child { flex: 1 1 20rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
.scroll > table { min-width: 60%; }
th, td { text-align: right; padding: .38rem 0 .38rem 1.4rem; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; }
thead th { color: var(--muted); font-weight: 500; }
tbody th { font-weight: 500; }
.charts { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: 1.8rem 2rem; }
figure { margin: 0; break-inside: avoid; }
figcaption { font-size: .9rem; font-weight: 600; margin-bottom: .4rem; }
.key { display: flex; flex-wrap: wrap; gap: 0 .9rem; font-size: .75rem; color: var(--muted); margin: .3rem 0 0; padding: 0;
  list-style: none; font-variant-numeric: tabular-nums; }
article { margin: 0 0 2.6rem; }
article > h3 { font-size: 1rem; margin: 0 0 .35rem; overflow-wrap: anywhere; break-after: avoid; }
article > h3 small { font-weight: 400; font-size: .875rem; color: var(--muted); margin-left: .6rem; }
.text { white-space: pre-wrap; overflow-wrap: anywhere; margin: 0; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.5rem; font-size: .9rem; break-inside: avoid; }
.user { background: var(--tint); border-left: 3px solid var(--rule); padding: .45rem .8rem; margin: .7rem 0 .4rem; }
.user.both { grid-column: 1 / -1; }
.reply, .verdict { padding: .15rem .8rem .15rem 0; min-width: 0; }
.label { display: block; color: var(--muted); font-size: .75rem; }
.verdict { border-top: 1px solid var(--rule); margin-top: .7rem; padding-top: .5rem; overflow-wrap: anywhere; }
.correct b { color: var(--good); } .wrong b { color: var(--bad); }
details { font-size: .9rem; } summary { cursor: pointer; color: var(--muted); }
details dl { margin: .5rem 0 .8rem; } dt { color: var(--muted); font-size: .75rem; } dd { margin: 0 0 .5rem; }
.settings td { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: .8rem; text-align: left; white-space: pre-wrap;
  overflow-wrap: anywhere; vertical-align: top; }
footer { color: var(--muted); font-size: .8rem; margin-top: 3.5rem; padding-top: .9rem; padding-bottom: 2.5rem; }
@media (max-width: 44rem) { header { padding-top: 1.6rem; } h1 { font-size: 1.55rem; } .lede { font-size: 1.08rem; }
  .pair { grid-template-columns: 1fr; } .reply { padding-bottom: .4rem; } th, td { padding-left: .8rem; }
  .verdict + .verdict { border-top: 0; margin-top: 0; padding-top: 0; }
  .spread table { width: 100%; } .spread tr { display: grid; grid-template-columns: 4fr 3fr 5.5fr 9fr 5fr; font-size: .82rem; }
  .spread tr > :first-child { grid-column: 1 / -1; border: 0; padding-bottom: 0; } .spread tr > * { padding-left: 0; }
  .spread thead th:first-child { display: none; } }
@media print { :root { --paper: #fff; font-size: 11.5px; } main, footer { max-width: none; padding: 0; }
  header { padding-top: 0; } .scroll { break-inside: avoid; } .charts { grid-template-columns: repeat(3, 1fr); gap: 1rem; }
  details::details-content { display: block; content-visibility: visible; block-size: auto; } }
"""


def verdict_words(conversation: Conversation) -> tuple[str, str]:
    """("correct" or "wrong", what was found as the answer)."""
    found = "no answer found" if conversation.extracted is None else f"answered {conversation.extracted}"
    return ("correct" if conversation.correct else "wrong"), found


def turn_rows(pair: ConversationPair) -> Iterator[tuple[dict[str, str], str | None, str | None]]:
    """Turn by turn: what the user said (one entry, or one a side where they differ), the reply before, the
    reply after.
    """
    for number, (before, after) in enumerate(zip_longest(pair.before.turns, pair.after.turns), 1):
        name = f"user, turn {number}"
        if before and after and before[0] != after[0]:  # a simulated user may answer each model differently
            users = {f"{name}, before": before[0], f"{name}, after": after[0]}
        else:
            users = {name: (before or after)[0]}
        yield users, before and before[1], after and after[1]


def result_sentence(accuracies: Sequence[Accuracy]) -> str:
    """The result in one sentence, SHARDED first; what was not measured is not mentioned."""
    values = {(a.view, a.stage): a.value for a in accuracies if a.value is not None}
    views = [v for v in ("SHARDED", "FULL") if any((v, s) in values for s in ("base", "trained"))]
    both = [v for v in views if (v, "base") in values and (v, "trained") in values]
    moved = [
        f"{v} accuracy went from {percent(values[v, 'base'])} to {percent(values[v, 'trained'])}"
        for v in both
    ]
    if len(both) == 2:
        was, now = (
            float(values["FULL", s] or 0) - float(values["SHARDED", s] or 0) for s in ("base", "trained")
        )
        gap = f"the gap between them from {points(was, sign=False)} to {points(now, sign=False)} points"
        return f"After training, {moved[0]} and {moved[1].replace('accuracy went ', '')}; {gap}."
    stages = {"base": "before", "trained": "after"}
    single = [f"{v} accuracy is {percent(values[v, s])} {stages[s]} training" for v in views if v not in both
              for s in stages if (v, s) in values]  # fmt: skip
    sentence = " and ".join([*moved, *single])
    return f"{sentence}." if sentence else ""


def render_report(data: ReportData) -> str:
    """The page as one string."""
    try:
        version = importlib.metadata.version("smopd")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    lede = result_sentence(data.accuracies)
    head = [
        f"<h1>{esc(data.title)}</h1>",
        f'<p class="subtitle">{esc(data.subtitle)}</p>' if data.subtitle else "",
    ]
    head.append(f'<p class="lede">{esc(lede)}</p>' if lede else "")
    notes = "".join(f'<p class="text">{esc(note)}</p>' for note in data.notes)
    talks = "".join(map(_article, data.conversations))
    sections = [_accuracy(data.accuracies), _comparisons(data.comparisons), _curves(data.metrics)]
    sections += [
        _section("Conversations before and after", talks),
        _section("Notes", notes),
        _settings(data.settings),
    ]
    # The policy makes the promise of the first line binding: a browser would refuse any script or outside
    # resource.
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{esc(data.title)}</title>\n<style>{CSS}{CHART_CSS}</style>\n</head>\n<body>\n<main>\n"
        f"<header>{''.join(head)}</header>\n{''.join(sections)}</main>\n<footer>smopd {esc(version)}</footer>\n</body>\n</html>\n"
    )


def write_report(path: Path, data: ReportData) -> None:
    """Write the page; a reader sees the old file or the new one, never half of either."""
    write_text(path, render_report(data))


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{esc(title)}</h2>\n{body}\n</section>\n" if body else ""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], css: str = "scroll") -> str:
    top = "".join(f'<th scope="col">{esc(h)}</th>' for h in heads)
    body = "".join(
        f'<tr><th scope="row">{esc(r[0])}</th>{"".join(f"<td>{esc(c)}</td>" for c in r[1:])}</tr>'
        for r in rows
    )
    return f'<div class="{css}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _accuracy(accuracies: Sequence[Accuracy]) -> str:
    if not accuracies:
        return ""
    order = list(dict.fromkeys(a.view for a in accuracies))
    ranked = sorted(
        accuracies, key=lambda a: order.index(a.view)
    )  # stable: stages keep their order within a view
    bars = [
        Bar(a.view, a.stage, a.value, a.low, a.high, percent(a.value), f"{a.correct}/{a.total}")
        for a in ranked
    ]
    rows = [
        (f"{a.view} {a.stage}", percent(a.value), interval(a.low, a.high), f"{a.correct} of {a.total}")
        for a in ranked
    ]
    chart = bar_chart("Accuracy by view and stage, with 95% intervals", bars)
    table = _table(("", "accuracy", "95% interval", "correct"), rows)
    aside = "FULL: the whole task in one message. SHARDED: the same task told over several turns, judged by the last reply."
    return _section(
        "Accuracy", f'<div class="accuracy"><figure>{chart}</figure>{table}</div><p class="aside">{aside}</p>'
    )


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for c in comparisons:
        moved, low, high = (
            points(value).replace("-", "\u2212") for value in (c.difference, c.low, c.high)
        )  # a true minus sign
        rows.append((c.label, str(c.gained), str(c.lost), moved, f"[{low}, {high}]", p_value(c.p)))
    if not rows:
        return ""
    table = _table(("", "gained", "lost", "difference", "95% interval", "p"), rows, "scroll spread")
    aside = "Paired by task. Gained: tasks that became right; lost: tasks that became wrong. Differences in percentage points."
    return _section("Paired comparisons", f'{table}<p class="aside">{aside}</p>')


def _curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    steps: dict[float, dict[str, Any]] = {}
    for (
        row
    ) in metrics:  # rows of one step belong together (a step repeated after a restart: the later values hold)
        step = finite(row.get("step"))
        if step is not None:
            steps.setdefault(step, {}).update({k: v for k, v in row.items() if v is not None})
    names = list(dict.fromkeys(name for row in steps.values() for name in row))
    figures = []
    for panel in PANELS:
        chosen = [n for n in names if n == panel.name or n.startswith(panel.name + "/")]
        lines = [Series(n, [(s, finite(steps[s].get(n))) for s in sorted(steps)]) for n in chosen]
        if not lines:
            continue
        chart = line_chart(f"{panel.title}, by training step", lines, panel.least, panel.most, panel.percent)
        keys = "".join(f"<li>{swatch(i)}{_key(line, panel)}</li>" for i, line in enumerate(lines))
        figures.append(
            f'<figure><figcaption>{esc(panel.title)}</figcaption>{chart}<ul class="key">{keys}</ul></figure>'
        )
    aside = '<p class="aside">Faint: each step. Strong: a moving mean, whose first and last values stand beside the names.</p>'
    return _section("Training", f'<div class="charts">{"".join(figures)}</div>{aside}') if figures else ""


def _key(line: Series, panel: Panel) -> str:
    ends = [y for _, y in smooth(line.points) if y is not None]
    shown = [percent(y) if panel.percent else f"{y:.3g}" for y in (ends[:1] + ends[-1:])]
    name = line.name.removeprefix(panel.name + "/")
    return esc(" ".join([name, " → ".join(dict.fromkeys(shown))]))


def _article(pair: ConversationPair) -> str:
    was, now = (verdict_words(c)[0] for c in (pair.before, pair.after))
    task = "".join(f'<dt>{name}</dt><dd class="text" dir="auto">{esc(text)}</dd>'
                   for name, text in (("system prompt", pair.system), ("FULL message", pair.full)) if text)  # fmt: skip
    parts = [
        f"<article>\n<h3>{esc(pair.id)}<small>{was} before, {now} after; expected {esc(pair.expected)}</small></h3>"
    ]
    parts.append(f"<details><summary>The task in full</summary><dl>{task}</dl></details>" if task else "")
    for users, before, after in turn_rows(pair):
        said = [_said("user both" if len(users) == 1 else "user", name, text) for name, text in users.items()]
        parts.append(
            f'<div class="pair">{"".join(said)}{_said("reply", "before", before)}{_said("reply", "after", after)}</div>'
        )
    ends = []
    for name, side in (("before", pair.before), ("after", pair.after)):
        word, found = verdict_words(side)
        words = esc(f" {name} training: {found}, expected {pair.expected}")
        ends.append(f'<div class="verdict {word}"><b>{"✓" if side.correct else "✗"} {word}</b>{words}</div>')
    return "".join([*parts, f'<div class="pair">{"".join(ends)}</div>\n</article>\n'])


def _said(css: str, name: str, text: str | None) -> str:
    body = "(no such turn)" if text is None else esc(text) if text else "(empty)"
    return f'<div class="{css}"><span class="label">{esc(name)}</span><p class="text" dir="auto">{body}</p></div>'


def _settings(settings: Mapping[str, Any]) -> str:
    shown = {
        k: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False, default=str)
        for k, v in flatten(settings).items()
    }
    rows = "".join(f"<tr><td>{esc(key)}</td><td>{esc(value)}</td></tr>" for key, value in shown.items())
    body = f'<details class="settings"><summary>Every setting of the run</summary><table><tbody>{rows}</tbody></table></details>'
    return _section("Settings", body) if rows else ""
