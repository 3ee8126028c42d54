"""One page about a run: the result, its evidence, the training curves, conversations before and after.

It leaves out where the numbers come from (evaluation and study compute them) and the per-token view.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from smopd.charts import CHART_CSS, Bar, bar_chart, line_chart, smooth, swatch
from smopd.config_io import flatten
from smopd.files import file_digest, write_text
from smopd.formatting import cut, esc, finite, html_text, interval, p_value, percent, points
from smopd.pages import html_page, section
from smopd.tables import Cell, Row, Styled, Table
from smopd.verify.verdict import describe_verdict

ADVICE = ("<!-- advice -->", "<!-- end of advice -->")
NEAR_ZERO = 0.05  # an accuracy of FULL below which there is nothing to distil
LABEL = 500  # characters of a name or an answer that are shown


class Accuracy(NamedTuple):
    """Correct answers of a stage ("base", "trained") in a view ("FULL", "SHARDED"), with a 95% interval."""

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


def accuracies_of(stage: str, views: dict[str, Any]) -> list[Accuracy]:
    """The accuracies in the views of an evaluation's summary."""
    keys = ("correct", "total", "low", "high")
    return [Accuracy(stage, view.upper(), *(v[key] for key in keys)) for view, v in views.items()]


class Comparison(NamedTuple):
    """A paired comparison: tasks that became correct and wrong, the difference and its interval."""

    label: str
    gained: int
    lost: int
    difference: float
    low: float
    high: float
    p: float


class ShownConversation(NamedTuple):
    """(user, reply) turns and the verdict on the last reply."""

    turns: list[tuple[str, str]]
    correct: bool
    extracted: str | None
    status: str = "ok"


class ConversationPair(NamedTuple):
    """The same task told to the model before and after training."""

    id: str
    system: str
    full: str
    expected: str
    before: ShownConversation
    after: ShownConversation


@dataclass(frozen=True)
class Measured:
    """What evaluations of one data set with the same settings found."""

    heading: str  # which data, and the settings in which it differs from the others
    accuracies: list[Accuracy]
    comparisons: list[Comparison]
    conversations: list[ConversationPair]
    notes: list[str]


class Missing(NamedTuple):
    """What a report lacks, and the command that makes it."""

    what: str
    command: str


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
    notes: list[str] = field(default_factory=list)  # on how the accuracies were judged
    warnings: list[dict[str, Any]] = field(default_factory=list)  # step, warning
    more: list[Measured] = field(default_factory=list)  # on further data, or with other settings
    missing: list[Missing] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)  # see notices()


class Panel(NamedTuple):
    """One training chart: the metric `name` and everything below it (`name/...`)."""

    title: str
    name: str
    least: float | None = 0.0
    most: float | None = None
    percent: bool = False


PANELS = (
    Panel("Loss", "loss"),
    Panel("Correct final answers", "outcome", most=1.0, percent=True),
    Panel("Middle replies correct for what was told so far", "turn_accuracy", most=1.0, percent=True),
    Panel("The same of the teacher's own", "teacher", most=1.0, percent=True),
    Panel("Positions clipped", "clipped", percent=True),
    Panel("Positions kept by the entropy mask", "kept", most=1.0, percent=True),
    Panel("Student entropy, nats", "entropy"),
    Panel("delta, mean |log s - log t| of a reply", "delta"),
    Panel("Turn weight", "weight", most=1.0),
    Panel("Reply length, tokens", "reply_tokens"),
    Panel("Gradient norm", "grad_norm"),
    Panel("Seconds a step, by stage", "seconds"),
)
# What stands below a table or a row of charts.
VIEWS = """<p class="aside">FULL: the whole task in one message. SHARDED: the same task told over several
turns, judged by the last reply. TEACHER: each turn answered in the teacher's own context.</p>"""
PAIRED = """<p class="aside">Paired by task. Gained: wrong before, correct after; lost: the other way round.
Differences in percentage points.</p>"""
STEPS = """<p class="aside">Faint: each step. Strong: a moving mean, whose first and last values stand beside
the names.</p>"""


def verdict_words(conversation: ShownConversation) -> tuple[str, str]:
    """("correct" or "wrong", what was answered, with a comma behind it; empty where that is not known)."""
    word, answer = describe_verdict(conversation.correct, conversation.extracted, conversation.status)
    return word, answer and f"{answer}, "


def verdict_notes(summary: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """By which rules replies were judged, where a verifier found no answer or failed; is it a warning?"""
    if rules := summary.get("rules"):
        yield f"judged by: {', '.join(f'{task} {rule}' for task, rule in rules.items())}", False
    if teacher := summary.get("teacher"):
        yield teacher_words(teacher), False
    for view, v in summary["views"].items():
        if turns := v.get("middle_turns"):
            share = f"{percent(turns['accuracy'])} {interval(turns['low'], turns['high'])}"
            replies = f"{turns['correct']}/{turns['total']} middle replies"
            yield f"{view.upper()}: turn accuracy {share}: {replies} say what was told so far", False
        others = {status: count for status, count in v["status"].items() if status != "ok"}
        if others:
            counts = ", ".join(f"{count} {status}" for status, count in others.items())
            yield f"{view.upper()}: counted as not correct: {counts}", False
        if failure := v.get("first_failure"):
            first = f"{failure['id']}, {failure['status']}: {failure['detail']}"
            yield f"{view.upper()}: the verifier failed, first on {first}", True


def notices(full: float | None, train: str, evaluated: str) -> list[str]:
    """What lets the numbers of a run say less than they seem to. `full`: accuracy of FULL before training."""
    made = []
    if full is not None and full < NEAR_ZERO:
        either = "the model does not solve the whole task either"
        made.append(f"FULL is {percent(full)} before training: nothing to distil, {either}.")
    if train and (train == evaluated or _same_content(Path(train), Path(evaluated))):
        learnt = "an accuracy after training may be learnt by heart"
        made.append(f"Training and evaluation have the same examples ({train}): {learnt}.")
    return made


def _same_content(a: Path, b: Path) -> bool:
    return a.is_file() and b.is_file() and file_digest(a) == file_digest(b)


TEACHERS = {
    "averaged": "the run's averaged teacher (teacher.safetensors of the checkpoint)",
    "model": "the model itself (it has no averaged teacher)",
}
FORMS = {
    "separate": "separate messages",
    "merged": "merged into one message",
    "goal-last": "merged into one message, the first of them last",
}


def teacher_words(teacher: Mapping[str, str]) -> str:
    """Who answered in the view teacher, and what it was shown."""
    shown = f"user turns without any reply, as {FORMS[teacher['clean']]}; for the last turn the whole task"
    return f"TEACHER: {TEACHERS[teacher['weights']]}; it saw the {shown}"


def turn_rows(pair: ConversationPair) -> Iterator[tuple[dict[str, str], str | None, str | None]]:
    """Turn by turn: the user (one entry, or one a side where they differ), the reply before and after."""
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
    ends = {view: (percent(values[view, "base"]), percent(values[view, "trained"])) for view in both}
    moved = [f"{view} accuracy went from {was} to {now}" for view, (was, now) in ends.items()]
    if len(both) == 2:
        was, now = (points(values["FULL", s] - values["SHARDED", s], sign=False) for s in ("base", "trained"))
        second = moved[1].replace("accuracy went ", "")
        return f"After training, {moved[0]} and {second}; the gap between them from {was} to {now} points."
    stages = {"base": "before", "trained": "after"}
    alone = [(v, s) for v in views if v not in both for s in stages if (v, s) in values]
    single = [f"{v} accuracy is {percent(values[v, s])} {stages[s]} training" for v, s in alone]
    sentence = " and ".join([*moved, *single])
    return f"{sentence}." if sentence else ""


def tabulate_accuracies(accuracies: Sequence[Accuracy]) -> Table:
    """A row for every stage, a column for every view: accuracy, 95% interval, counts."""
    views = list(dict.fromkeys(a.view for a in accuracies))
    cells = {(a.stage, a.view): _accuracy_cell(a) for a in accuracies}
    stages = dict.fromkeys(a.stage for a in accuracies)
    rows = [Row(stage, [cells.get((stage, view), "-") for view in views]) for stage in stages]
    return Table(heads=["accuracy", *views], rows=rows, words=range(1, len(views) + 1))


def _accuracy_cell(a: Accuracy) -> Cell:
    counts = f" {interval(a.low, a.high)} ({a.correct}/{a.total})"
    return "-" if a.value is None else (Styled(percent(a.value), "bold"), Styled(counts, "dim"))


def tabulate_comparisons(comparisons: Sequence[Comparison]) -> Table:
    """Tasks that were gained and lost, and the difference in points with its interval."""
    heads = ("paired comparison", "gained", "lost", "difference", "95% interval", "p")
    rows = []
    for c in comparisons:
        ends = f"[{points(c.low)}, {points(c.high)}]"
        rows.append(Row(c.label, (str(c.gained), str(c.lost), points(c.difference), ends, p_value(c.p))))
    return Table(heads=heads, rows=rows)


def render_report(data: ReportData) -> str:
    """The page as one string."""
    lede = result_sentence(data.accuracies)
    head = f"<h1>{html_text(data.title, LABEL)}</h1>"
    head += f'<p class="subtitle">{html_text(data.subtitle, LABEL)}</p>' if data.subtitle else ""
    head += f'<p class="lede">{esc(lede)}</p>' if lede else ""
    head += "".join(f'<p class="notice">{html_text(line, LABEL)}</p>' for line in data.notices)
    sections = (
        _accuracy(data.accuracies, data.notes),
        _comparisons(data.comparisons),
        _warnings(data.warnings),
        _curves(data.metrics),
        section("Conversations before and after", "".join(map(_article, data.conversations))),
        *map(_measured, data.more),
        _missing(data.missing),
        _settings(data.settings),
    )
    return html_page(data.title, head, "".join(sections), CHART_CSS)


def without_advice(page: str) -> str:
    """A page without the section on what is missing, which no number depends on."""
    return re.sub(f"{ADVICE[0]}.*?{ADVICE[1]}", "", page, flags=re.DOTALL)


def write_report(path: Path, data: ReportData) -> None:
    """Write the page; a reader sees the old file or the new one, never half of either."""
    write_text(path, render_report(data))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], css: str = "scroll") -> str:
    top = "".join(f'<th scope="col">{esc(h)}</th>' for h in heads)
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td>{html_text(cell, LABEL)}</td>" for cell in rest)
        body += f'<tr><th scope="row">{html_text(first, LABEL)}</th>{cells}</tr>'
    return f'<div class="{css}"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _accuracy(accuracies: Sequence[Accuracy], notes: Sequence[str]) -> str:
    if not accuracies:
        return ""
    order = list(dict.fromkeys(a.view for a in accuracies))
    bars, rows = [], []
    for a in sorted(accuracies, key=lambda a: order.index(a.view)):  # stages keep their order within a view
        share = percent(a.value)
        bars.append(Bar(a.view, a.stage, a.value, a.low, a.high, share, f"{a.correct}/{a.total}"))
        rows.append((f"{a.view} {a.stage}", share, interval(a.low, a.high), f"{a.correct} of {a.total}"))
    chart = bar_chart("Accuracy by view and stage, with 95% intervals", bars)
    table = _table(("", "accuracy", "95% interval", "correct"), rows)
    below = VIEWS + "".join(f'<p class="aside">{esc(note)}</p>' for note in notes)
    return section("Accuracy", f'<div class="accuracy"><figure>{chart}</figure>{table}</div>{below}')


def _measured(found: Measured) -> str:
    """Evaluations on further data, in one section of their own."""
    parts = (_accuracy(found.accuracies, found.notes), _comparisons(found.comparisons))
    inner = "".join(re.sub(r"</?section>|<h2>.*?</h2>", "", part) for part in parts)
    return section(f"Also evaluated: {cut(found.heading, LABEL)}", inner)


def _missing(missing: Sequence[Missing]) -> str:
    items = "".join(
        f"<li>{html_text(what, 2 * LABEL)}<br><code>{html_text(command, 2 * LABEL)}</code></li>"
        for what, command in missing
    )
    body = section("What is missing", f"<ul>{items}</ul>" if items else "")
    return f"{ADVICE[0]}{body}{ADVICE[1]}" if body else ""


def _comparisons(comparisons: Sequence[Comparison]) -> str:
    rows = []
    for c in comparisons:
        # With a true minus sign.
        moved, low, high = (points(v).replace("-", "\u2212") for v in (c.difference, c.low, c.high))
        rows.append((c.label, str(c.gained), str(c.lost), moved, f"[{low}, {high}]", p_value(c.p)))
    table = _table(("", "gained", "lost", "difference", "95% interval", "p"), rows, "scroll spread")
    return section("Paired comparisons", table + PAIRED) if rows else ""


def _warnings(warnings: Sequence[Mapping[str, Any]]) -> str:
    items = "".join(f"<li>step {row['step']}: {html_text(row['warning'], LABEL)}</li>" for row in warnings)
    return section("Warnings", f"<ul>{items}</ul>") if items else ""


def _curves(metrics: Sequence[Mapping[str, Any]]) -> str:
    steps: dict[float, dict[str, Any]] = {}
    for row in metrics:  # rows of one step belong together; of a step repeated after a restart, the later
        step = finite(row.get("step"))
        if step is not None:
            steps.setdefault(step, {}).update({k: v for k, v in row.items() if v is not None})
    names = list(dict.fromkeys(name for row in steps.values() for name in row))
    figures = []
    for panel in PANELS:
        chosen = [n for n in names if n == panel.name or n.startswith(panel.name + "/")]
        lines = {name: [(s, finite(steps[s].get(name))) for s in sorted(steps)] for name in chosen}
        if not lines:
            continue
        title, series = f"{panel.title}, by training step", list(lines.values())
        drawn = line_chart(title, series, panel.least, panel.most, panel.percent)
        keys = ""
        for i, (name, line) in enumerate(lines.items()):
            ends = [y for _, y in smooth(line) if y is not None]
            shown = [percent(y) if panel.percent else f"{y:.3g}" for y in (ends[:1] + ends[-1:])]
            words = f"{name.removeprefix(panel.name + '/')} {' → '.join(dict.fromkeys(shown))}"
            keys += f"<li>{swatch(i)}{html_text(words, LABEL)}</li>"
        drawn += f'<ul class="key">{keys}</ul>'
        figures.append(f"<figure><figcaption>{esc(panel.title)}</figcaption>{drawn}</figure>")
    return section("Training", f'<div class="charts">{"".join(figures)}</div>{STEPS}') if figures else ""


def _article(pair: ConversationPair) -> str:
    was, now = (verdict_words(c)[0] for c in (pair.before, pair.after))
    texts = {"system prompt": pair.system, "FULL message": pair.full}
    task = "".join(
        f'<dt>{k}</dt><dd class="text" dir="auto">{html_text(v)}</dd>' for k, v in texts.items() if v
    )
    heading = f"{was} before, {now} after; expected {html_text(pair.expected, LABEL)}"
    html = f"<article>\n<h3>{html_text(pair.id, LABEL)}<small>{heading}</small></h3>"
    html += f"<details><summary>The task in full</summary><dl>{task}</dl></details>" if task else ""
    for users, before, after in turn_rows(pair):
        said = [_said("user both" if len(users) == 1 else "user", name, text) for name, text in users.items()]
        said += [_said("reply", "before", before), _said("reply", "after", after)]
        html += f'<div class="pair">{"".join(said)}</div>'
    ends = ""
    for name, side in (("before", pair.before), ("after", pair.after)):
        word, found = verdict_words(side)
        words = html_text(f" {name} training: {found}expected {cut(pair.expected, LABEL)}", 2 * LABEL)
        ends += f'<div class="verdict {word}"><b>{"✓" if side.correct else "✗"} {word}</b>{words}</div>'
    return f'{html}<div class="pair">{ends}</div>\n</article>\n'


def _said(css: str, name: str, text: str | None) -> str:
    body = "(no such turn)" if text is None else html_text(text) if text else "(empty)"
    said = f'<p class="text" dir="auto">{body}</p>'
    return f'<div class="{css}"><span class="label">{esc(name)}</span>{said}</div>'


def _settings(settings: Mapping[str, Any]) -> str:
    rows = ""
    for key, value in flatten(settings).items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        rows += f"<tr><td>{html_text(key, LABEL)}</td><td>{html_text(shown)}</td></tr>"
    body = f"<summary>Every setting of the run</summary><table><tbody>{rows}</tbody></table>"
    return section("Settings", f'<details class="settings">{body}</details>') if rows else ""
