"""Cut a reply into the blocks that are Python.

A reply is cut at its fences into segments. A segment that is not Python is tried again without prompts,
typographic characters and the like, and line by line for code within prose. Code is cut only between
top-level statements, so that a function with a syntax error is never repaired by leaving a part out.
"""

import ast
import html
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from smopd.verify.calls import load_object
from smopd.verify.code.program import Function, mentions, parse

_MOST_CHARACTERS = 30_000  # of one program; deeper nesting than fits could exhaust the C stack
_MOST_PARSED = 1_000_000  # characters parsed for one reply
_MOST_SEGMENTS = 60
_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(?:`{3,}|~{3,})[ \t]*(.*)")
_PYTHON_TAG = re.compile(r"\A(?:python3?|py)\b[ \t]*", re.IGNORECASE)
_INFO = re.compile(r"\s*[\w+#.-]{0,15}\s*")
_DEFINITION = re.compile(r"(?:from\s+[\w.]+\s+import|import|def|async\s+def|class)\s|@\w")
_CODE_LINE = re.compile(
    rf"[ \t]*(?:{_DEFINITION.pattern}|(?:for|while|if|with)\s.*:|try:|[\w.]+\(|[\w., \[\]]+(?::[^=]*)?=[^=])"
)
_PROMPT = re.compile(r"[ \t]*(?:>>>|\.\.\.(?!\w)|In ?\[\d*\]:|\.\.\.:)(?: |$)")
_CHARACTERS = str.maketrans(
    "\u201c\u201d\u201e\u2033\u2018\u2019\u201a\u2032\u00a0\u2002\u2003\u2009\u202f\u3000"
    "\u2010\u2011\u2012\u2013\u2014\u2212（），：；［］｛｝＝＋＊＜＞",
    "\"\"\"\"''''      ------(),:;[]{}=+*<>",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad",
)


@dataclass(frozen=True)
class Block:
    """A piece of a reply that is Python, as it is or after cleaning."""

    source: str
    tree: ast.Module
    fenced: bool


class Reader:
    def __init__(self, text: str, left: int = _MOST_PARSED, depth: int = 0) -> None:
        self.left, self.depth = left, depth
        self.parsed: dict[str, tuple[ast.Module | None, int, bool]] = {}
        self.segments: list[str] = []
        self.blocks: list[Block] = []
        lines, fences = _split(text)
        bounds = [(-1, False), *fences, (len(lines), False)][-_MOST_SEGMENTS:]
        start, inside = 0, bounds[0][0] >= 0
        while start < len(bounds) - 1:
            end = self._end(lines, bounds, start)
            segment = "\n".join(lines[bounds[start][0] + 1 : bounds[end][0]])
            self.segments.append(segment)
            self.blocks += self._read(dedented(segment), inside)
            inside = bounds[end][1] or not inside
            start = end

    def _end(self, lines: list[str], bounds: list[tuple[int, bool]], start: int) -> int:
        """Return the fence at which a segment ends; a fence within a string does not end it."""
        for end in range(start + 1, min(start + 8, len(bounds))):
            segment = "\n".join(lines[bounds[start][0] + 1 : bounds[end][0]])
            if self.parse(dedented(segment)):
                return end
            if not self.cut_string:
                break
        return start + 1

    def parse(self, code: str) -> ast.Module | None:
        """Return the syntax tree or None; set `line`, where it fails (0: unknown), and `cut_string`."""
        self.left -= len(code)
        if code not in self.parsed:
            tree: ast.Module | None = None
            line, cut_string = 0, False
            try:
                tree = parse(code) if len(code) <= _MOST_CHARACTERS and self.left >= 0 else None
            except SyntaxError as error:
                line, cut_string = error.lineno or 0, "unterminated triple-quoted" in str(error.msg)
            except (ValueError, RecursionError, MemoryError):
                pass
            self.parsed[code] = tree, line, cut_string
        tree, self.line, self.cut_string = self.parsed[code]
        return tree

    def cut(self, lines: list[str], start: int, end: int) -> tuple[int, ast.Module | None]:
        """Return where the Python that starts at a line ends, between top-level statements, and its tree."""
        while end > start:
            if tree := self.parse(dedented("\n".join(lines[start:end]))):
                return end, tree
            broken = range(min(end, start + self.line) - 1, start, -1) if self.line else ()
            end = next((at for at in broken if _depth(lines[at]) == _depth(lines[start])), start)
        return start, None

    def _read(self, source: str, fenced: bool) -> list[Block]:
        """Return the Python of a segment: all of it, else what remains after cleaning, else parts."""
        if not source.strip():
            return []
        if texts := _unwrap(source) if self.depth < 2 else []:
            inner = [Reader(text, self.left, self.depth + 1) for text in texts[:10]]
            self.left = min([self.left, *(reader.left for reader in inner)])
            return [block for reader in inner for block in reader.blocks]
        if (tree := self.parse(source)) and not _is_escaped(tree, source):
            return [Block(source, tree, fenced)]
        text, cleaned = source, list[Block]()
        for clean in _CLEANERS:
            new = dedented(clean(text))
            if new != text and (tree := self.parse(new)):
                cleaned = [Block(new, tree, fenced)]
                break
            text = new
        parts = list(self._parts(source, fenced))
        if not _definitions(parts) and not cleaned and text != source:
            cleaned = list(self._parts(text, fenced))
        return parts if _definitions(parts) > _definitions(cleaned) else cleaned or parts

    def _parts(self, text: str, fenced: bool) -> Iterator[Block]:
        """Yield code within prose: from a line that looks like code to the last valid statement."""
        lines = text.split("\n")
        depths = [_depth(line) for line in lines]
        at = 0
        while at < len(lines) and self.left > 0:
            if not _CODE_LINE.match(lines[at]):
                at += 1
                continue
            depth, end, size = depths[at], at + 1, len(lines[at])
            while end < len(lines) and depths[end] >= depth and size < _MOST_CHARACTERS:
                size += len(lines[end]) + 1
                end += 1
            end, tree = self.cut(lines, at, end)
            if tree:
                yield Block(dedented("\n".join(lines[at:end])), tree, fenced)
            at, broken = max(end, at + 1), end <= at
            while broken and at < len(lines) and depths[at] > depth:
                at += 1  # do not start in the middle of broken code


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else 1000


def _definitions(blocks: list[Block]) -> int:
    return sum(isinstance(node, Function | ast.ClassDef) for block in blocks for node in block.tree.body)


def _split(text: str) -> tuple[list[str], list[tuple[int, bool]]]:
    """Return the lines, each fence on its own, and for each fence its line and whether it only opens."""
    lines, fences = list[str](), list[tuple[int, bool]]()

    def fence(info: str) -> None:
        fences.append((len(lines), bool(info)))
        lines.append(f"```{info}")

    for line in text.split("\n"):
        before, mark, rest = line.partition("```")
        inline = bool(before.strip()) and rest.rstrip().endswith("```") and rest.count("```") == 1
        match = _FENCE.match(line[len(before) :] if inline else line)
        lines += [before] if inline else []
        if match:
            info = match[1].strip()
            ends = len(info) > 3 and info.endswith("```")
            info = info.rstrip("`") if ends else info
            code = _PYTHON_TAG.sub("", info)
            is_code = ends or _DEFINITION.match(code)
            fence("python" if is_code else info)
            lines += [code] if is_code else []
            if ends:
                fence("")
        elif mark and _INFO.fullmatch(rest):
            lines.append(before)
            fence(rest.strip())
        else:
            lines.append(line)
    return lines, fences


def dedented(text: str) -> str:
    """Remove common indentation, only from indented text: `dedent` would also change strings in code."""
    text = text.strip("\n")
    return textwrap.dedent(text) if text[:1].isspace() else text


def _unwrap(text: str) -> list[str]:
    """Return the texts within JSON or a Python literal that wraps the code."""
    text = text.strip()
    if text[:1] not in ("{", "[", '"', "'"):
        return []
    texts, waiting = list[str](), [load_object(text, _MOST_CHARACTERS)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list) and value and all(isinstance(line, str) for line in value):
            value = "\n".join(line.rstrip("\n") for line in value)  # a notebook cell's lines
        if isinstance(value, (dict, list, tuple)):
            waiting += reversed(list(value.values()) if isinstance(value, dict) else value)
        elif isinstance(value, str) and _CODE_LINE.search(value):
            texts.append(value)
    return texts


# --- cleaning of text that is not Python
def _is_escaped(tree: ast.Module, text: str) -> bool:
    """Whether code is HTML-escaped: `a &lt; b` is valid Python, but nobody means it."""
    return bool(re.search(r"&(?:lt|gt|amp);", text)) and any(mentions(tree, n) for n in ("lt", "gt", "amp"))


def _without_prompts(text: str) -> str:
    """Keep what was typed at prompts; lines without one are output after `>>>`, code in a notebook."""
    lines = text.split("\n")
    if any(line.startswith(">>>") for line in lines):
        lines = [line for line in lines if _PROMPT.match(line)]
    lines = [_PROMPT.sub("", line, count=1) for line in lines]
    return "\n".join("" if re.match(r"[!%]\w|%%|Out ?\[\d*\]:|\$ ", line) else line for line in lines)


def _without_line_numbers(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    numbers = [re.match(r"[ \t]*(\d+)(?:[.:|)]|[ \t]*[|│])?", line) for line in lines]
    if len(lines) < 2 or [int(match[1]) for match in numbers if match] != [*range(1, len(lines) + 1)]:
        return text
    return "\n".join(line[match.end() :] for line, match in zip(lines, numbers, strict=True) if match)


_CLEANERS: tuple[Callable[[str], str], ...] = (
    lambda text: re.sub(r"(?m)^[ \t]*>(?!>>)[ ]?", "", text),  # Markdown quotes
    _without_prompts,
    lambda text: text.translate(_CHARACTERS),
    html.unescape,
    lambda text: re.sub(r"\\([_*\[\]<>#])", r"\1", text),  # Markdown escapes
    lambda text: text.replace("\\n", "\n").replace('\\"', '"') if "\n" not in text.strip() else text,
    _without_line_numbers,
)
