"""The terminal view: two columns when there is room, stacked when there is not, and model text that is only
ever text.

It leaves out colours.
"""

import io

import pytest
from rich.console import Console
from support.shown import conversation, conversation_pair

from smopd.viewer.report import Accuracy, ConversationPair, ShownComparison
from smopd.viewer.terminal import accuracy_table, show_conversation_pair

ACCURACIES = [
    Accuracy("base", "SHARDED", 164, 400, 0.363, 0.459),
    Accuracy("trained", "SHARDED", 245, 400, 0.564, 0.66),
    Accuracy("base", "FULL", 301, 400, 0.708, 0.792),
]
COMPARISONS = [ShownComparison("SHARDED [bold]pair[/bold]", 97, 16, 0.2025, 0.153, 0.252, 3e-15)]
PAIR = conversation_pair(
    id="task-1",
    system="Solve.",
    full="All of it.",
    expected="14",
    before=conversation([("first", "reply b1"), ("second", "[red]ten[/red] [/] \x1b[31m<b>")], False, "10"),
    after=conversation([("first", "reply a1"), ("second", "reply a2\nline two"), ("third", "")], True, "14"),
)


def console(width: int, colour: bool = False) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(
        file=out, width=width, force_terminal=colour, color_system="truecolor" if colour else None
    ), out


def shown(pair: ConversationPair, width: int) -> list[str]:
    screen, out = console(width)
    show_conversation_pair(screen, pair)
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [90, 120, 200])
def test_wide_terminal_has_two_columns(width: int) -> None:
    lines = shown(PAIR, width)
    assert all(len(line) <= width for line in lines)
    assert any("reply b1" in line and "reply a1" in line for line in lines)
    verdicts = ("before: wrong, answered 10, expected 14", "after: correct, answered 14, expected 14")
    assert any(all(verdict in line for verdict in verdicts) for line in lines)
    assert sum(line.strip() == "first" for line in lines) == 1


@pytest.mark.parametrize("width", [20, 60, 89])
def test_narrow_terminal_stacks(width: int) -> None:
    lines = [line.strip() for line in shown(PAIR, width)]
    assert all(len(line) <= width for line in lines)
    assert lines.index("reply b1") < lines.index("reply a1") < lines.index("second") < lines.index("reply a2")
    text = " ".join(lines)
    assert "before: wrong, answered 10, expected 14" in text.replace("  ", " ")


@pytest.mark.parametrize("width", [60, 120])
def test_model_text_is_only_text(width: int) -> None:
    screen, out = console(width, colour=True)
    show_conversation_pair(screen, PAIR)
    text = out.getvalue()
    assert "[red]ten[/red] [/] \ufffd[31m<b>" in text
    assert "\x1b[31mten" not in text
    assert "(no such turn)" in text
    assert "(empty)" in text


def test_odd_conversations() -> None:
    def told(
        before: list[tuple[str, str]], after: list[tuple[str, str]], status: str = "no_answer"
    ) -> ConversationPair:
        return conversation_pair(
            "[x]", "", "", "", conversation(before, False, None, status), conversation(after, True, "1")
        )

    assert any("wrong, no answer found" in line for line in shown(told([], []), 100))
    only_wrong = shown(told([], [], "ok"), 100)  # a verifier that says no more than False
    assert any("before: wrong, expected" in line for line in only_wrong)
    assert not any("no answer found" in line for line in only_wrong)
    differ = told([("left user", "l")], [("right user", "r")])
    assert any("left user" in line and "right user" in line for line in shown(differ, 100))
    long = told([("u", "x" * 300)], [("u", "y" * 300)])
    for width in (60, 100):
        text = "".join(shown(long, width))
        assert text.count("x") >= 300  # folded, not cut (the word "expected" has one more)
        assert text.count("y") >= 300


def test_accuracy_table() -> None:
    table = accuracy_table(ACCURACIES, COMPARISONS, ["nothing to [bold]distil[/bold]"])
    screen, out = console(120)
    screen.print(table)
    lines = out.getvalue().splitlines()
    assert any("nothing to [bold]distil[/bold]" in line for line in lines)
    assert any("trained" in line and "61.3% [56.4, 66.0] (245/400)" in line for line in lines)
    base = ("base", "41.0% [36.3, 45.9] (164/400)", "75.3% [70.8, 79.2] (301/400)")
    assert any(all(cell in line for cell in base) for line in lines)
    (row,) = [line for line in lines if "[bold]pair[/bold]" in line]
    assert row.split()[-6:] == ["16", "+20.3", "[+15.3,", "+25.2]", "<", "0.001"]


@pytest.mark.parametrize("width", [40, 80])
def test_tables_of_little(width: int) -> None:
    for accuracies in ([], ACCURACIES, [Accuracy("base", "FULL", 0, 0, 0.0, 1.0)]):
        screen, out = console(width)
        screen.print(accuracy_table(accuracies, []))
        screen.print(accuracy_table(accuracies, COMPARISONS))
        assert all(len(line) <= width for line in out.getvalue().splitlines())


def test_a_word_of_any_length_is_cut() -> None:
    word = "\u0e01" * 100_000
    side = conversation([(word, word)], False, word)
    lines = shown(conversation_pair(word, word, word, word, side, side), 120)
    assert all(len(line) <= 120 for line in lines)
    assert len(lines) < 2_000
    assert sum("(100,000 characters, cut)" in line for line in lines) >= 5
