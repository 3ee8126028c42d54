"""The report page of a run: result, evidence, training curves, conversations before and after training."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import zip_longest
from math import ceil
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from smopd.config_io import flatten
from smopd.evaluation.evaluate import Outcome
from smopd.files import file_digest
from smopd.formatting import LONGEST, finite, interval, p_value, percent, points
from smopd.pages import Markup, render
from smopd.tables import Cell, Row, Styled, Table
from smopd.verify.verdict import describe_verdict
from smopd.viewer.pages.packing import CHARTS, json_bytes, read_app, read_script

# The view teacher: who answered, and how the user turns were presented.
TEACHERS = {
    "averaged": "the run's averaged teacher (teacher.safetensors of the checkpoint)",
    "model": "the model itself (it has no averaged teacher)",
}
FORMS = {
    "separate": "separate messages",
    "merged": "merged into one message",
    "goal-last": "merged into one message, the first of them last",
}


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
        return self.correct / self.total if self.total else None


def accuracies_of(views_by_stage: Mapping[str, Mapping[str, Any]]) -> list[Accuracy]:
    pairs = [(stage, view, v) for stage, views in views_by_stage.items() for view, v in views.items()]
    return [Accuracy(s, view.upper(), *(v[name] for name in Accuracy._fields[2:])) for s, view, v in pairs]


class ShownComparison(NamedTuple):
    label: str
    gained: int  # tasks that became correct
    lost: int
    difference: float
    low: float
    high: float
    p: float


def compare(label: str, change: Mapping[str, Any]) -> ShownComparison:
    return ShownComparison(label, *(change[name] for name in ShownComparison._fields[1:]))


class ConversationPair(NamedTuple):
    before: Outcome
    after: Outcome
    expected: str


@dataclass(frozen=True)
class Measured:
    """The results of all evaluations of one data set with the same settings."""

    heading: str = ""  # which data, and the settings in which it differs from the others
    accuracies: list[Accuracy] = field(default_factory=list)
    comparisons: list[ShownComparison] = field(default_factory=list)
    conversations: list[ConversationPair] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # on how the accuracies were judged


class Missing(NamedTuple):
    what: str
    command: str  # that creates it


@dataclass(frozen=True, kw_only=True)
class ReportData(Measured):
    """Everything the page shows; an empty list leaves its section out."""

    title: str
    subtitle: str = ""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    warnings: list[dict[str, Any]] = field(default_factory=list)  # step, warning
    more: list[Measured] = field(default_factory=list)  # on further data, or with other settings
    missing: list[Missing] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)  # see notices()


def verdict_words(conversation: Outcome) -> tuple[str, str]:
    """Return "correct" or "wrong", and the answer followed by a comma (empty if unknown)."""
    word, answer = describe_verdict(conversation.correct, conversation.extracted, conversation.status)
    return word, answer and f"{answer}, "


def verdict_notes(summary: dict[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield (note, whether it is a warning) on rules, the teacher, turn accuracy, failed verdicts."""
    if rules := summary.get("rules"):
        yield f"judged by: {', '.join(f'{task} {rule}' for task, rule in rules.items())}", False
    if teacher := summary.get("teacher"):
        shown = f"the user turns without any reply, as {FORMS[teacher['clean']]}"
        last = "for the last turn the whole task"
        yield f"TEACHER: {TEACHERS[teacher['weights']]}; it saw {shown}; {last}", False
    for view, v in summary["views"].items():
        if turns := v.get("middle_turns"):
            share = f"{percent(turns['accuracy'])} {interval(turns['low'], turns['high'])}"
            replies = f"{turns['correct']}/{turns['total']} middle replies"
            yield f"{view.upper()}: turn accuracy {share}: {replies} say what was told so far", False
        if others := [f"{count} {status}" for status, count in v["status"].items() if status != "ok"]:
            yield f"{view.upper()}: counted as not correct: {', '.join(others)}", False
        if failure := v.get("first_failure"):
            first = f"{failure['id']}, {failure['status']}: {failure['detail']}"
            yield f"{view.upper()}: the verifier failed, first on {first}", True


def notices(full: float | None, train: str, evaluated: str) -> list[str]:
    """Caveats about a run's numbers; `full` is the accuracy of FULL before training."""
    lines = []
    if full is not None and full < 0.05:
        either = "the model does not solve the whole task either"
        lines.append(f"FULL is {percent(full)} before training: nothing to distil, {either}.")
    files = [path for path in map(Path, (train, evaluated)) if path.is_file()]
    if train and (train == evaluated or (len(files) == 2 and len(set(map(file_digest, files))) == 1)):
        learnt = "an accuracy after training may be learnt by heart"
        lines.append(f"Training and evaluation have the same examples ({train}): {learnt}.")
    return lines


def turn_rows(pair: ConversationPair) -> Iterator[tuple[dict[str, str], str | None, str | None]]:
    """Yield per turn the user (two entries if before and after differ), the reply before, the reply after."""
    turns = zip_longest(pair.before.turns, pair.after.turns, fillvalue=dict[str, Any]())
    for number, (before, after) in enumerate(turns, 1):
        name = f"user, turn {number}"
        users = {name: (before or after)["user"]}
        if before and after and before["user"] != after["user"]:  # as with a simulated user
            users = {f"{name}, before": before["user"], f"{name}, after": after["user"]}
        yield users, before.get("reply"), after.get("reply")


def result_sentence(accuracies: Sequence[Accuracy]) -> str:
    """The result in one sentence, SHARDED first; what was not measured is not mentioned."""
    values = {(a.view, a.stage): a.value for a in accuracies if a.value is not None}
    views, stages = ("SHARDED", "FULL"), {"base": "before", "trained": "after"}
    both = [v for v in views if all((v, s) in values for s in stages)]
    ends = {view: (percent(values[view, "base"]), percent(values[view, "trained"])) for view in both}
    moved = [f"{view} accuracy went from {was} to {now}" for view, (was, now) in ends.items()]
    if len(both) == 2:
        was, now = (points(values["FULL", s] - values["SHARDED", s], sign=False) for s in stages)
        second = moved[1].replace("accuracy went ", "")
        return f"After training, {moved[0]} and {second}; the gap between them from {was} to {now} points."
    alone = [(v, s) for v in views if v not in both for s in stages if (v, s) in values]
    single = [f"{v} accuracy is {percent(values[v, s])} {stages[s]} training" for v, s in alone]
    return f"{' and '.join([*moved, *single])}." if moved or single else ""


def tabulate_accuracies(accuracies: Sequence[Accuracy]) -> Table:
    views, stages = dict.fromkeys(a.view for a in accuracies), dict.fromkeys(a.stage for a in accuracies)
    cells: dict[tuple[str, str], Cell] = {}
    for a in accuracies:
        if a.value is not None:
            counts = f" {interval(a.low, a.high)} ({a.correct}/{a.total})"
            cells[a.stage, a.view] = (Styled(percent(a.value), "bold"), Styled(counts, "dim"))
    rows = [Row(stage, [cells.get((stage, view), "-") for view in views]) for stage in stages]
    return Table(heads=["accuracy", *views], rows=rows, words=range(1, len(views) + 1))


def tabulate_comparisons(comparisons: Sequence[ShownComparison]) -> Table:
    heads = ("paired comparison", "gained", "lost", "difference", "95% interval", "p")
    rows = []
    for label, gained, lost, difference, low, high, p in comparisons:
        ends = f"[{points(low)}, {points(high)}]"
        rows.append(Row(label, (str(gained), str(lost), points(difference), ends, p_value(p))))
    return Table(heads=heads, rows=rows)


def first_and_last(column: Iterable[float | None]) -> tuple[float, float] | None:
    """Means of the first and the last tenth of a metric; None if it has no values."""
    known = [value for value in column if value is not None]
    tenth = max(1, len(known) // 10)
    return (fmean(known[:tenth]), fmean(known[-tenth:])) if known else None


def tabulate_metrics(run: Mapping[str, Any]) -> Table:
    ends = {name: first_and_last(column) for name, column in run["metrics"].items()}
    rows = [Row(name, [f"{x:.4g}" for x in pair] if pair else ["n/a", "n/a"]) for name, pair in ends.items()]
    caption = f"Means of the first and of the last tenth of {run['done']} steps."
    return Table(heads=("metric", "at first", "at last"), rows=rows, caption=caption)


def metric_columns(metrics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Columns of at most 500 means for the charts; if a restart repeated a step, the later row counts."""
    rows: dict[float, dict[str, Any]] = {}
    for row in metrics:
        if (step := finite(row.get("step"))) is not None:
            rows.setdefault(step, {}).update({k: v for k, v in row.items() if v is not None})
    steps = sorted(rows)
    names = dict.fromkeys(name for row in rows.values() for name in row if name != "step")
    every = max(1, ceil(len(steps) / 500))
    parts = [steps[i : i + every] for i in range(0, len(steps), every)]
    columns = {name: [curve_point(rows[step].get(name) for step in part) for part in parts] for name in names}
    last = [part[-1] for part in parts]
    return {"name": "", "step": last, "metrics": columns, "evaluations": [], "done": len(steps)}


def curve_point(values: Iterable[Any]) -> float | None:
    known = [value for value in map(finite, values) if value is not None]
    return float(f"{fmean(known):.5g}") if known else None


def render_report(data: ReportData) -> str:
    run, bars = metric_columns(data.metrics), [_bars(group.accuracies) for group in (data, *data.more)]
    script = read_script((*CHARTS, "report"))
    hashed = b64encode(sha256(script.encode()).digest()).decode()
    settings = {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        for key, value in flatten(data.settings).items()
    }
    numbers = json_bytes({"run": run, "accuracies": bars}).decode().replace("<", "\\u003c")
    return str(render(
        "report.html", data=data, lede=result_sentence(data.accuracies), settings=settings, LONGEST=LONGEST,
        training=tabulate_metrics(run), turn_rows=turn_rows, verdict_words=verdict_words,
        tabulate_accuracies=tabulate_accuracies, tabulate_comparisons=tabulate_comparisons,
        numbers=Markup(numbers), script=Markup(script), chart_style=Markup(read_app(["charts"], "css")),
        policy=Markup(f"; script-src 'sha256-{hashed}'"),
    ))  # fmt: skip


def _bars(accuracies: Sequence[Accuracy]) -> list[dict[str, Any]]:
    """The rows of the accuracy chart, view by view; stages keep their order within a view."""
    rows, order = list[dict[str, Any]](), list(dict.fromkeys(a.view for a in accuracies))
    for a in sorted((a for a in accuracies if a.value is not None), key=lambda a: order.index(a.view)):
        ends = {"mean": a.value, "low": a.low, "high": a.high}
        rows.append({"arm": f"{a.view} {a.stage}", **ends, "reference": a.stage == "base", "seeds": []})
    return rows


def without_advice(page: str) -> str:
    """Remove the section on what is missing, which no number depends on."""
    return re.sub("<!-- advice -->.*?<!-- end of advice -->", "", page, flags=re.DOTALL)
