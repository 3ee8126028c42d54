"""The same evidence in a terminal, with rich: a conversation before and after training, and the table of
accuracies.

What a model or a user said is printed as plain text: neither rich markup nor terminal escapes in it have any
effect. It leaves out the curves and the settings; the page of `smopd.viewer.report` has them.
"""

from collections.abc import Sequence

from rich import box
from rich.console import Console, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from smopd.viewer.report import Accuracy, Comparison, Conversation, ConversationPair, turn_rows, verdict_words
from smopd.viewer.svg import interval, p_value, percent, points, visible

NARROW = 90  # below this many columns two replies side by side would be too thin to read


def show_conversation_pair(console: Console, pair: ConversationPair) -> None:
    """Print one task's conversation before and after training, side by side, or stacked on a narrow terminal."""
    console.print(Rule(Text(visible(pair.id).replace("\n", " "), style="bold"), align="left", style="dim"))
    for name, text in (("system", pair.system), ("FULL message", pair.full), ("expected", pair.expected)):
        if text:
            console.print(_said(name, text, style="dim"))
    for users, before, after in turn_rows(pair):
        console.print()
        said = [_said(name, text, style="cyan") for name, text in users.items()]
        if len(said) == 1:
            console.print(said[0])
        else:
            _side_by_side(console, said)
        _side_by_side(console, [_said("before", before), _said("after", after)])
    console.print()
    _side_by_side(
        console,
        [_verdict("before", pair.before, pair.expected), _verdict("after", pair.after, pair.expected)],
    )


def accuracy_table(accuracies: Sequence[Accuracy], comparisons: Sequence[Comparison]) -> Table:
    """Stage x view with 95% intervals and counts, and below it the paired comparisons."""
    whole = Table.grid()
    if accuracies:
        whole.add_row(_accuracies(accuracies))
    if comparisons:
        whole.add_row(_comparisons(comparisons))
    return whole


def _accuracies(accuracies: Sequence[Accuracy]) -> Table:
    views = list(dict.fromkeys(a.view for a in accuracies))
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for view in ("accuracy", *views):
        table.add_column(Text(visible(view)))
    found = {(a.stage, a.view): a for a in accuracies}
    for stage in dict.fromkeys(a.stage for a in accuracies):
        table.add_row(Text(visible(stage)), *(_cell(found.get((stage, view))) for view in views))
    return table


def _cell(accuracy: Accuracy | None) -> Text:
    if accuracy is None or accuracy.value is None:
        return Text("-", style="dim")
    span = interval(accuracy.low, accuracy.high)
    return Text.assemble(
        (percent(accuracy.value), "bold"), (f" {span} ({accuracy.correct}/{accuracy.total})", "dim")
    )


def _comparisons(comparisons: Sequence[Comparison]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column("paired comparison")
    for name in ("gained", "lost", "difference", "95% interval", "p"):
        table.add_column(name, justify="right", no_wrap=name != "95% interval")
    for c in comparisons:
        cells = (
            str(c.gained),
            str(c.lost),
            points(c.difference),
            f"[{points(c.low)}, {points(c.high)}]",
            p_value(c.p),
        )
        table.add_row(Text(visible(c.label)), *map(Text, cells))
    return table


def _side_by_side(console: Console, cells: Sequence[RenderableType]) -> None:
    if console.width < NARROW:
        for cell in cells:
            console.print(cell)
        return
    table = Table(
        expand=True, box=box.MINIMAL, show_header=False, show_edge=False, pad_edge=False, border_style="dim"
    )
    for _ in cells:
        table.add_column(
            ratio=1, overflow="fold"
        )  # fold: a word longer than the column is continued, not cut
    table.add_row(*cells)
    console.print(table)


def _said(name: str, text: str | None, style: str = "") -> Text:
    words = "(no such turn)" if text is None else visible(text) or "(empty)"
    return Text.assemble((f"{name}\n", "dim italic"), (words, style), overflow="fold")


def _verdict(name: str, conversation: Conversation, expected: str) -> Text:
    word, found = verdict_words(conversation)
    style = "bold green" if conversation.correct else "bold red"
    return Text.assemble(
        f"{name}: ", (word, style), visible(f", {found}, expected {expected}"), overflow="fold"
    )
