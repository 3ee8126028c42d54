"""The same evidence in a terminal, with rich: conversations before and after training, accuracies.

What a model or a user said is printed as plain text: neither rich markup nor terminal escapes in it have any
effect. It leaves out the curves and the settings, which report.py has.
"""

from collections.abc import Sequence
from typing import Any, Literal

from rich import box
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from smopd.formatting import cut, interval, p_value, percent, points, visible
from smopd.viewer import report
from smopd.viewer.report import Accuracy, Comparison, ConversationPair

NARROW = 90  # below this many columns two replies side by side would be too thin to read


def show_conversation_pair(console: Console, pair: ConversationPair) -> None:
    """Print one task's conversation before and after training, side by side, or stacked if narrow."""
    console.print(
        Rule(
            Text(visible(cut(pair.id, report.LABEL)).replace("\n", " "), style="bold"),
            align="left",
            style="dim",
        )
    )
    for name, text in (("system", pair.system), ("FULL message", pair.full), ("expected", pair.expected)):
        if text:
            console.print(said(name, text, style="dim"))
    for users, before, after in report.turn_rows(pair):
        console.print()
        side_by_side(console, [said(name, text, style="cyan") for name, text in users.items()])
        side_by_side(console, [said("before", before), said("after", after)])
    console.print()
    verdicts = []
    for name, side in (("before", pair.before), ("after", pair.after)):
        word, found = report.verdict_words(side)
        answer = visible(cut(f", {found}expected {cut(pair.expected, report.LABEL)}", 2 * report.LABEL))
        judged = (word, "bold green" if side.correct else "bold red")
        verdicts.append(Text.assemble(f"{name}: ", judged, answer, overflow="fold"))
    side_by_side(console, verdicts)


def accuracy_table(
    accuracies: Sequence[Accuracy], comparisons: Sequence[Comparison], notices: Sequence[str] = ()
) -> Table:
    """Stage x view with 95% intervals and counts, and below it the paired comparisons and what to know."""
    whole, views = Table.grid(), list(dict.fromkeys(a.view for a in accuracies))
    found = {(a.stage, a.view): a for a in accuracies}
    if accuracies:
        table = _table("accuracy", *views, justify="left")
        for stage in dict.fromkeys(a.stage for a in accuracies):
            table.add_row(Text(visible(stage)), *(_cell(found.get((stage, view))) for view in views))
        whole.add_row(table)
    if comparisons:
        table = _table("paired comparison", "gained", "lost", "difference", "95% interval", "p")
        for column in table.columns[1:]:
            column.no_wrap = str(column.header) != "95% interval"
        for c in comparisons:
            ends = f"[{points(c.low)}, {points(c.high)}]"
            cells = (str(c.gained), str(c.lost), points(c.difference), ends, p_value(c.p))
            table.add_row(Text(visible(c.label)), *map(Text, cells))
        whole.add_row(table)
    for line in notices:
        whole.add_row(Text(f"  {visible(line)}", style="yellow", overflow="fold"))
    return whole


def _table(first: str, *names: str, justify: Literal["left", "right"] = "right") -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column(Text(visible(first)))
    for name in names:
        table.add_column(Text(visible(name)), justify=justify)
    return table


def _cell(accuracy: Accuracy | None) -> Text:
    if accuracy is None or accuracy.value is None:
        return Text("-", style="dim")
    counts = f" {interval(accuracy.low, accuracy.high)} ({accuracy.correct}/{accuracy.total})"
    return Text.assemble((percent(accuracy.value), "bold"), (counts, "dim"))


def summary_table(summary: dict[str, Any]) -> Table:
    """One evaluation for the terminal: views with intervals, by task and shards, against FULL."""
    views, whole = summary["views"], Table.grid()
    whole.add_row(_views_table(summary))
    if (breakdown := _breakdown_table(views)).row_count:
        whole.add_row(breakdown)
    against = {f"FULL against {view.upper()}": summary.get(f"{view}_minus_full") for view in views}
    against["SHARDED against TEACHER"] = teacher = summary.get("teacher_minus_sharded")
    against["the same, middle turns"] = teacher.get("middle_turns") if teacher else None
    if changes := [_comparison(label, change) for label, change in against.items() if change]:
        whole.add_row(accuracy_table([], changes))
    for note, warning in report.verdict_notes(summary):
        whole.add_row(Text(f"  {visible(note)}", style="yellow" if warning else "dim", overflow="fold"))
    return whole


def before_and_after(base: dict[str, Any], trained: dict[str, Any], changes: dict[str, Any]) -> Table:
    """The accuracies of a run's base and of what was trained, and the paired change of each view."""
    sides = {"base": base, "trained": trained}
    accuracies = [a for side, summary in sides.items() for a in report.accuracies_of(side, summary["views"])]
    labels = {f"{view.upper()}: base against trained": change for view, change in changes.items()}
    return accuracy_table(accuracies, [_comparison(label, change) for label, change in labels.items()])


def _views_table(summary: dict[str, Any]) -> Table:
    several = summary["runs"] > 1
    names = ("mean of runs", "A90", "unreliability") if several else ("accuracy", "95% interval", "correct")
    turns = any("middle_turns" in v for v in summary["views"].values())
    table = _table("view", *names, "at any turn", *(["turn accuracy"] if turns else []))
    for view, v in summary["views"].items():
        any_turn = "" if view in ("full", "concat") else percent(v["any_turn"]["accuracy"])
        if several:
            spans = [(v["accuracy"], v["low"], v["high"])]
            spans += [(v[name], v[f"{name}_low"], v[f"{name}_high"]) for name in ("a90", "unreliability")]
            cells = [f"{percent(value)} {interval(low, high)}" for value, low, high in spans]
        else:
            cells = [percent(v["accuracy"]), interval(v["low"], v["high"]), f"{v['correct']}/{v['total']}"]
        cells.append(any_turn)
        if turns:
            right = v.get("middle_turns")
            share = f"{percent(right['accuracy'])} {interval(right['low'], right['high'])}" if right else ""
            cells.append(share)
        table.add_row(Text(view.upper()), *map(Text, cells))
    return table


def _breakdown_table(views: dict[str, Any]) -> Table:
    """Accuracy by task and by number of shards, where there is more than one of them."""
    table = _table("by", "n", *(view.upper() for view in views))
    for part, unit in (("by_task", ""), ("by_shards", " shards")):
        names = list(dict.fromkeys(name for v in views.values() for name in v[part]))
        for name in sorted(names, key=lambda n: (len(n), n) if unit else (0, n)) if len(names) > 1 else []:
            found = [v[part].get(name) for v in views.values()]
            total = max(f["total"] for f in found if f)
            shares = (percent(f["accuracy"]) if f else "-" for f in found)
            table.add_row(Text(visible(name) + unit), str(total), *shares)
    return table


def _comparison(label: str, change: dict[str, Any]) -> Comparison:
    return Comparison(label, *(change[f] for f in ("gained", "lost", "difference", "low", "high", "p")))


def comparison_table(result: dict[str, Any]) -> Table:
    """A comparison for the terminal."""
    accuracies, changes = [], []
    for stage in ("a", "b"):
        views = {view: v[stage] for view, v in result["views"].items()}
        accuracies += report.accuracies_of(stage.upper(), views)
    for view, v in result["views"].items():
        tasks = v["by_task"] if len(v["by_task"]) > 1 else {}
        changes += [_comparison(view.upper(), v["change"])]
        changes += [_comparison(f"{view.upper()}, {task}", change) for task, change in tasks.items()]
    whole = Table.grid()
    for stage in ("a", "b"):
        whole.add_row(Text(visible(f"  {stage.upper()}: {result[stage]}"), overflow="fold"))
    whole.add_row(accuracy_table(accuracies, changes))
    return whole


def side_by_side(console: Console, cells: Sequence[RenderableType], least: int = NARROW) -> None:
    """Print cells in columns, or one below the other on a terminal of fewer than `least` columns."""
    if console.width < least or len(cells) == 1:
        for cell in cells:
            console.print(cell)
        return
    looks: dict[str, Any] = {"show_header": False, "show_edge": False, "pad_edge": False}
    table = Table(expand=True, box=box.MINIMAL, border_style="dim", **looks)
    for _ in cells:
        table.add_column(ratio=1, overflow="fold")  # a word longer than the column is continued, not cut
    table.add_row(*cells)
    console.print(table)


def said(name: str, text: str | None, style: str = "") -> Text:
    """Who says what, with nothing in it that a terminal would obey."""
    words = "(no such turn)" if text is None else visible(cut(text)) or "(empty)"
    return Text.assemble((f"{name}\n", "dim italic"), (words, style), overflow="fold")
