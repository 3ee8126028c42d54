"""Wraps the prose of Markdown at 110 columns; blocks, tables, headings and pictures stay as they are."""

import re
import textwrap

WIDTH = 110
ITEM = re.compile(r"^(\s*)([-*] |\d+\. )?")


def wrap_markdown(text: str) -> str:
    """The text with every paragraph and list item wrapped."""
    lines: list[str] = []
    paragraph: list[str] = []
    fence = ""

    def flush() -> None:
        if paragraph:
            lines.extend(_wrap(paragraph))
            paragraph.clear()

    for line in text.split("\n"):
        mark = re.match(r"\s*(`{3,})", line)
        if fence or mark:
            flush()
            lines.append(line)
            fence = "" if fence and line.strip() == fence else fence or (mark[1] if mark else "")
        elif not line.strip() or line.lstrip().startswith(("|", "#", "!", "<", ">")):
            flush()
            lines.append(line)
        else:
            begins, continues = ITEM.match(line), paragraph and ITEM.match(paragraph[0])
            if (begins and begins[2]) or (continues and continues[2] and not line.startswith(" ")):
                flush()
            paragraph.append(line)
    flush()
    return "\n".join(lines)


def _wrap(paragraph: list[str]) -> list[str]:
    if len(paragraph) == 1 and paragraph[0].startswith("`") and paragraph[0].endswith("`"):
        return paragraph  # a formula
    start = ITEM.match(paragraph[0])
    assert start
    indent, mark = start[1], start[2] or ""
    body = " ".join(line.strip() for line in paragraph)[len(mark) :]
    after = indent + " " * len(mark)
    lines = textwrap.wrap(
        body, WIDTH, initial_indent=indent + mark, subsequent_indent=after, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    # A line that begins like a list item or a heading would become one.
    escaped = [re.sub(r"^(\s*)([-*+#>]|\d+\.)(?= )", r"\1\\\2", line) for line in lines[1:]]
    return [*lines[:1], *escaped]
