"""The documentation as data: its pages, their blocks, the commands they name, links and headings."""

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md")]
PAGES = [*FRONT, *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^(`{3,})(\w*)[^\n]*\n(.*?)^\1[ ]*$", re.MULTILINE | re.DOTALL)
# As a line begins: `$ `, variables, and a launcher that starts the module
COMMAND = re.compile(
    r"(?:\$ )?(?:[A-Z_]+=\S+ )*(?:smopd|(?:torchrun|accelerate launch)\b.*? smopd\.cli) (.+)"
)


class Command(NamedTuple):
    """A command line of smopd as a page has it, without the word smopd."""

    words: tuple[str, ...]
    fenced: bool  # in a block of its own, not in a sentence
    quoted: bool = False  # what it prints stands below it


def blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of the fenced blocks."""
    return [(language, content) for _, language, content in FENCE.findall(text)]


def prose(text: str) -> str:
    """A page without its blocks."""
    return FENCE.sub("", text)


def inline(text: str) -> list[str]:
    """What stands between backticks, on one line."""
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(text))]


def commands(text: str) -> list[Command]:
    """Every command of a page, in order: those of blocks first."""
    lines = [line for _, block in blocks(text) for line in block.replace("\\\n", " ").split("\n")]
    candidates = [(line, True) for line in lines] + [(code, False) for code in inline(text)]
    matched = [(line, COMMAND.match(line), fenced) for line, fenced in candidates]
    return [
        Command(tuple(shlex.split(match[1], comments=True)), fenced, line.startswith("$ "))
        for line, match, fenced in matched
        if match
    ]


def links(text: str) -> list[str]:
    """Targets of links and pictures, but addresses on the web."""
    bare = re.sub(r"`[^`]*`", "", prose(text))
    targets = re.findall(r"\]\(([^)\s]+)\)", bare)
    return [target for target in targets if "://" not in target]


def anchors(text: str) -> set[str]:
    """The headings of a page as GitHub names them in a link."""
    slugs: set[str] = set()
    for heading in re.findall(r"^#+ (.+?) *#*$", prose(text), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(s == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", s) is not None for s in slugs)
        slugs.add(f"{slug}-{count}" if slug in slugs else slug)
    return slugs
