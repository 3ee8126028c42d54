"""The report's conversations and accuracies in a terminal; all texts are printed literally."""

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.rule import Rule
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from smopd.formatting import cut, interval, percent, visible
from smopd.pages import LABEL
from smopd.tables import Row, Table
from smopd.viewer import report
from smopd.viewer.report import Accuracy, ConversationPair, ShownComparison


def show_conversation_pair(console: Console, pair: ConversationPair) -> None:
    task = pair.before
    title = Text(visible(cut(task.id, LABEL)).replace("\n", " "), style="bold")
    console.print(Rule(title, align="left", style="dim"))
    for name, text in (("system", task.system), ("FULL message", task.full), ("expected", pair.expected)):
        if text:
            console.print(said(name, text, style="dim"))
    for users, before, after in report.turn_rows(pair):
        console.print()
        side_by_side(console, [said(name, text, style="cyan") for name, text in users.items()])
        side_by_side(console, [said("before", before), said("after", after)])
    console.print()
    verdicts = []
    for name, side in (("before", pair.before), ("after", pair.after)):
        word, extracted = report.verdict_words(side)
        answer = visible(cut(f", {extracted}expected {cut(pair.expected, LABEL)}", 2 * LABEL))
        judged = (word, "bold green" if side.correct else "bold red")
        verdicts.append(Text.assemble(f"{name}: ", judged, answer, overflow="fold"))
    side_by_side(console, verdicts)


def accuracy_table(
    accuracies: Sequence[Accuracy], comparisons: Sequence[ShownComparison], notices: Sequence[str] = ()
) -> Group:
    tables = [report.tabulate_accuracies(accuracies), report.tabulate_comparisons(comparisons)]
    return Group(*(table for table in tables if table.rows), *(_note(line, "yellow") for line in notices))


def summary_table(summary: dict[str, Any]) -> Group:
    views, teacher = summary["views"], summary.get("teacher_minus_sharded", {})
    against = {f"FULL against {view.upper()}": summary.get(f"{view}_minus_full") for view in views}
    against |= {"SHARDED against TEACHER": teacher, "the same, middle turns": teacher.get("middle_turns")}
    changes = [report.compare(label, change) for label, change in against.items() if change]
    tables = (_views_table(summary), _breakdown_table(views), report.tabulate_comparisons(changes))
    notes = (_note(line, "yellow" if warning else "dim") for line, warning in report.verdict_notes(summary))
    return Group(*(table for table in tables if table.rows), *notes)


def before_and_after(base: dict[str, Any], trained: dict[str, Any], changes: dict[str, Any]) -> Group:
    accuracies = report.accuracies_of({"base": base["views"], "trained": trained["views"]})
    what = "base against trained"
    return accuracy_table(accuracies, [report.compare(f"{v.upper()}: {what}", c) for v, c in changes.items()])


def comparison_table(result: dict[str, Any]) -> Group:
    views, changes = result["views"], []
    sides = {stage.upper(): {view: v[stage] for view, v in views.items()} for stage in ("a", "b")}
    for view, v in views.items():
        tasks = v["by_task"] if len(v["by_task"]) > 1 else {}
        changes += [report.compare(view.upper(), v["change"])]
        changes += [report.compare(f"{view.upper()}, {task}", change) for task, change in tasks.items()]
    names = (_note(f"{stage.upper()}: {result[stage]}") for stage in ("a", "b"))
    return Group(*names, accuracy_table(report.accuracies_of(sides), changes))


def _views_table(summary: dict[str, Any]) -> Table:
    several = summary["runs"] > 1
    names = ["mean of runs", "A90", "unreliability"] if several else ["accuracy", "95% interval", "correct"]
    turns = ["turn accuracy"] if any("middle_turns" in v for v in summary["views"].values()) else []
    rows = []
    for view, v in summary["views"].items():
        if several:
            cells = [_share(v), *(_share(v, name, f"{name}_") for name in ("a90", "unreliability"))]
        else:
            cells = [percent(v["accuracy"]), interval(v["low"], v["high"]), f"{v['correct']}/{v['total']}"]
        cells.append("" if view in ("full", "concat") else percent(v["any_turn"]["accuracy"]))
        cells += [_share(v["middle_turns"]) if "middle_turns" in v else "" for _ in turns]
        rows.append(Row(view.upper(), cells))
    return Table(heads=["view", *names, "at any turn", *turns], rows=rows)


def _share(metrics: dict[str, Any], name: str = "accuracy", ends: str = "") -> str:
    return f"{percent(metrics[name])} {interval(metrics[f'{ends}low'], metrics[f'{ends}high'])}"


def _breakdown_table(views: dict[str, Any]) -> Table:
    rows = []
    for part, unit in (("by_task", ""), ("by_shards", " shards")):
        names = {name for v in views.values() for name in v[part]}
        for name in sorted(names, key=lambda n: (len(n) if unit else 0, n)) if len(names) > 1 else []:
            parts = [v[part].get(name) for v in views.values()]
            total = max(p["total"] for p in parts if p)
            shares = [percent(p["accuracy"]) if p else "-" for p in parts]
            rows.append(Row(name + unit, [str(total), *shares]))
    return Table(heads=["by", "n", *(view.upper() for view in views)], rows=rows)


def _note(line: str, style: str = "") -> Text:
    return Text(f"  {visible(line)}", style=style, overflow="fold")


def side_by_side(console: Console, cells: Sequence[RenderableType], least: int = 90) -> None:
    """Print cells in columns, or one below the other on a terminal of fewer than `least` columns."""
    if console.width < least or len(cells) == 1:
        console.print(Group(*cells))
        return
    columns = (Column(ratio=1, overflow="fold") for _ in cells)  # wrap a word longer than the column
    table = RichTable(*columns, expand=True, box=box.MINIMAL, border_style="dim", show_header=False)
    table.show_edge = table.pad_edge = False
    table.add_row(*cells)
    console.print(table)


def said(name: str, text: str | None, style: str = "") -> Text:
    body = "(no such turn)" if text is None else visible(cut(text)) or "(empty)"
    return Text.assemble((f"{name}\n", "dim italic"), (body, style), overflow="fold")
