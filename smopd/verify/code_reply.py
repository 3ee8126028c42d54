"""Finds the Python in a reply: the last block that defines what was asked for, and what it needs of others.

A reply is cut at its fences into segments; a segment that is no Python by itself is tried without prompts,
typographic characters and the like, and then line by line for code within prose. Code is only ever cut
between statements at its top level, so that a function with a syntax error in it is never mended by leaving a
part out. It leaves out other languages, notebooks as JSON, and what the code does when it runs.
"""

import ast
import html
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from smopd.verify.code_program import (
    Function,
    bound_names,
    eligible,
    free_names,
    is_print,
    is_standard,
    methods_of,
    parse,
    statements_of,
)

_MOST_CHARACTERS = 30_000  # of one program: parsing deeper nests than fit in there could exhaust the C stack
_MOST_PARSED = 1_000_000  # characters given to the parser for one reply
_LONGEST_REPLY = 300_000
_MOST_SEGMENTS = 60
_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+|\d+[.)][ \t]+)?(?:`{3,}|~{3,})[ \t]*(.*)")
_PYTHON_TAG = re.compile(r"(?:python3?|py)\b[ \t]*", re.IGNORECASE)
_INFO = re.compile(r"\s*[\w+#.-]{0,15}\s*")
_DEFINITION = re.compile(r"(?:from\s+[\w.]+\s+import|import|def|async\s+def|class)\s|@\w")
_CODE_LINE = re.compile(
    rf"[ \t]*(?:{_DEFINITION.pattern}|(?:for|while|if|with)\s.*:|try:|[\w.]+\(|[\w., \[\]]+(?::[^=]*)?=[^=])"
)
# Other marks around code: tokens of chat templates, tags of HTML and of prompts.
_TAG = re.compile(
    r"<\|\w{1,40}\|>|</s>|\[/?(?:PYTHON|CODE|ANSWER|SOLUTION|INST)\]|\\(?:begin|end)\{\w{1,20}\}"
    r"|</?(?:pre|code|python|answer|solution|response)(?:\s[^>\n]{0,100})?>",
    re.IGNORECASE,
)
_PROMPT = re.compile(r"[ \t]*(?:>>>|\.\.\.(?!\w)|In ?\[\d*\]:|\.\.\.:)(?: |$)")
_CHARACTERS = str.maketrans(
    {
        **dict.fromkeys("\u201c\u201d\u201e\u2033", '"'), **dict.fromkeys("\u2018\u2019\u201a\u2032", "'"),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad", None),
        **dict.fromkeys("\u00a0\u2002\u2003\u2009\u202f\u3000", " "),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"),
        **dict(zip("（），：；［］｛｝＝＋＊＜＞", "(),:;[]{}=+*<>", strict=True)),
    }
)  # fmt: skip


@dataclass(frozen=True)
class _Block:
    source: str
    tree: ast.Module
    fenced: bool


def find_code(text: str, entry: str = "", prompt: str = "") -> str | None:
    """The code of a reply that defines `entry` (empty: a script), or continues the function of `prompt`.

    Where nothing defines it, any other function: the user may never have told the name.
    """
    text = re.sub(r"\r\n?", "\n", text[-_LONGEST_REPLY:])
    tagged = _TAG.sub("\n```\n", text)
    readers = [_Reader(text), *([_Reader(tagged)] if tagged != text else [])]
    for reader in readers:
        blocks = reader.blocks
        main = _definition(blocks, entry) if entry else _script(blocks)
        if main is not None:
            return _joined(main, blocks, entry)
    if entry and prompt:
        for reader in readers:
            if (body := _continued(reader, entry, prompt)) is not None:
                return body
    for reader in readers if entry else []:
        if (main := _other_function(reader.blocks)) is not None:
            return _joined(main, reader.blocks, entry)
    return None


# --- the blocks of a reply
class _Reader:
    """The segments of a reply, and all of its blocks that are Python, in order."""

    def __init__(self, text: str, left: int = _MOST_PARSED, depth: int = 0) -> None:
        self.left, self.depth = left, depth
        self.parsed: dict[str, tuple[ast.Module | None, int, bool]] = {}
        self.segments: list[str] = []
        self.blocks: list[_Block] = []
        lines, fences = _split(text)
        bounds = [(-1, False), *fences, (len(lines), False)][-_MOST_SEGMENTS:]
        start, inside = 0, bounds[0][0] >= 0
        while start < len(bounds) - 1:
            end = self._end(lines, bounds, start)
            segment = "\n".join(lines[bounds[start][0] + 1 : bounds[end][0]])
            self.segments.append(segment)
            self.blocks += self._read(_dedented(segment), inside)
            inside = bounds[end][1] or not inside
            start = end

    def _end(self, lines: list[str], bounds: list[tuple[int, bool]], start: int) -> int:
        """Where a segment ends: not at a fence that stands within a string."""
        for end in range(start + 1, min(start + 8, len(bounds))):
            segment = "\n".join(lines[bounds[start][0] + 1 : bounds[end][0]])
            if self.parse(_dedented(segment)):
                return end
            if not self.cut_string:
                break
        return start + 1

    def parse(self, code: str) -> ast.Module | None:
        """The syntax tree; None for what is no Python or too long.

        Then `line` says where it stops being Python (0: unknown), and `cut_string` whether a string in triple
        quotes has no end.
        """
        self.left -= len(code)
        if code not in self.parsed:
            self.parsed[code] = self._parse(code)
        tree, self.line, self.cut_string = self.parsed[code]
        return tree

    def _parse(self, code: str) -> tuple[ast.Module | None, int, bool]:
        if len(code) > _MOST_CHARACTERS or self.left < 0:
            return None, 0, False
        try:
            return parse(code), 0, False
        except SyntaxError as error:
            return None, error.lineno or 0, "unterminated triple-quoted" in str(error.msg)
        except (ValueError, RecursionError, MemoryError):
            return None, 0, False

    def _read(self, source: str, fenced: bool) -> list[_Block]:
        """The Python of a segment: all of it, else what is left without its decorations, else parts."""
        if not source.strip():
            return []
        if texts := _wrapped(source) if self.depth < 2 else []:
            inner = [_Reader(text, self.left, self.depth + 1) for text in texts[:10]]
            self.left = min([self.left, *(reader.left for reader in inner)])
            return [block for reader in inner for block in reader.blocks]
        text = source
        if (tree := self.parse(text)) and not _escaped(tree, text):
            return [_Block(text, tree, fenced)]
        for clean in _CLEANERS:
            cleaned = _dedented(clean(text))
            if cleaned != text and (tree := self.parse(cleaned)):
                return [_Block(cleaned, tree, fenced)]
            text = cleaned
        for part in (source, text):
            if found := list(self._parts(part, fenced)):
                return found
        return []

    def _parts(self, text: str, fenced: bool) -> Iterator[_Block]:
        """Code within prose: from a line that begins like code to the last statement that is Python."""
        lines = text.split("\n")
        depths = [len(line) - len(line.lstrip()) if line.strip() else 1000 for line in lines]
        at = 0
        while at < len(lines) and self.left > 0:
            if not _CODE_LINE.match(lines[at]):
                at += 1
                continue
            depth, end, size = depths[at], at + 1, len(lines[at])
            while end < len(lines) and depths[end] >= depth and size < _MOST_CHARACTERS:
                size += len(lines[end]) + 1
                end += 1
            while end > at:
                code = _dedented("\n".join(lines[at:end]))
                if tree := self.parse(code):
                    yield _Block(code, tree, fenced)
                    break
                if not self.line:
                    end = at
                    break
                broken = range(min(end - 1, at + self.line - 1), at, -1)
                end = next((number for number in broken if depths[number] == depth), at)
            at = max(end, at + 1)
            if end < at:  # no code begins in the middle of what is broken
                while at < len(lines) and depths[at] > depth:
                    at += 1


def _split(text: str) -> tuple[list[str], list[tuple[int, bool]]]:
    """The lines, fences on lines of their own, and the fences: which line, and whether it can only open."""
    lines: list[str] = []
    fences: list[tuple[int, bool]] = []

    def fence(info: str) -> None:
        fences.append((len(lines), bool(info)))
        lines.append(f"```{info}")

    for line in text.split("\n"):
        mark = line.rfind("```")
        if found := _FENCE.match(line):
            info = found[1].strip()
            ends = len(info) > 3 and info.endswith("```")
            info = info.rstrip("`") if ends else info
            tag = _PYTHON_TAG.match(info)
            code = info[tag.end() :] if tag else info
            is_code = ends or _DEFINITION.match(code)
            fence("python" if is_code else info)
            lines += [code] if is_code else []
            if ends:
                fence("")
        elif (
            mark > 0 and line.find("```") == mark and re.fullmatch(r"\s*[\w+#.-]{0,15}\s*", line[mark + 3 :])
        ):
            lines.append(line[:mark])
            fence(line[mark + 3 :].strip())
        else:
            lines.append(line)
    return lines, fences


def _dedented(text: str) -> str:
    """Without common indentation and empty lines around; `dedent` alone would also touch strings in code."""
    text = text.strip("\n")
    return textwrap.dedent(text) if text[:1].isspace() else text


def _wrapped(text: str) -> list[str]:
    """The texts within JSON or a Python literal, where the code is wrapped in one."""
    text = text.strip()
    if text[:1] not in ("{", "[", '"', "'") or len(text) > _MOST_CHARACTERS:
        return []
    value: Any = None
    for read in (lambda: json.loads(text, strict=False), lambda: ast.literal_eval(text)):
        try:
            value = read()
            break
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            continue
    found: list[str] = []
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, (dict, list, tuple)):
            waiting += reversed(list(value.values()) if isinstance(value, dict) else value)
        elif isinstance(value, str) and _CODE_LINE.search(value):
            found.append(value)
    return found


# --- decorations, taken off where the text is no Python with them
def _escaped(tree: ast.Module, text: str) -> bool:
    """`a &lt; b` is Python, but nobody means that."""
    if not re.search(r"&(?:lt|gt|amp);", text):
        return False
    return any(isinstance(node, ast.Name) and node.id in ("lt", "gt", "amp") for node in ast.walk(tree))


def _without_quote_marks(text: str) -> str:
    return re.sub(r"(?m)^[ \t]*>(?!>>)[ ]?", "", text)


def _without_prompts(text: str) -> str:
    """What was typed at a prompt: at `>>>` lines without one are output, in a notebook they are code."""
    lines = text.split("\n")
    if any(line.lstrip().startswith(">>>") for line in lines):
        lines = [line for line in lines if _PROMPT.match(line)]
    lines = [_PROMPT.sub("", line, count=1) for line in lines]
    return "\n".join("" if re.match(r"[!%]\w|%%|Out ?\[\d*\]:|\$ ", line) else line for line in lines)


def _without_line_numbers(text: str) -> str:
    lines = [line for line in text.split("\n") if line.strip()]
    numbers = [re.match(r"[ \t]*(\d+)(?:[.:|)]|[ \t]*[|│])?", line) for line in lines]
    if len(lines) < 2 or [int(found[1]) for found in numbers if found] != [*range(1, len(lines) + 1)]:
        return text
    rest = [line[found.end() :] for line, found in zip(lines, numbers, strict=True) if found]
    return "\n".join(rest)


_CLEANERS: tuple[Callable[[str], str], ...] = (
    _without_quote_marks,
    _without_prompts,
    lambda text: text.translate(_CHARACTERS),
    html.unescape,
    lambda text: re.sub(r"\\([_*\[\]<>#])", r"\1", text),  # as Markdown escapes them
    lambda text: text.replace("\\n", "\n").replace('\\"', '"') if "\n" not in text.strip() else text,
    _without_line_numbers,
)


# --- which of the blocks
def _definition(blocks: list[_Block], entry: str) -> _Block | None:
    ranks = [(_defines(block.tree, entry), number) for number, block in enumerate(blocks)]
    rank, number = max(ranks, default=(0, 0))
    return blocks[number] if rank else None


def _defines(tree: ast.Module, entry: str) -> int:
    """3: a function or method of this name; 2: something else of this name; 1: one without a body; 0: no."""
    rank = 0
    for node in tree.body:
        functions = methods_of(node) if isinstance(node, ast.ClassDef) else [node]
        for function in functions:
            if isinstance(function, Function) and function.name == entry:
                rank = max(rank, 1 if _is_stub(function) else 3)
        if isinstance(node, ast.ImportFrom) and not is_standard(node.module):
            continue  # tests that import the solution
        if not isinstance(node, Function) and entry in bound_names(node):
            lambdas = isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
            rank = max(rank, 3 if lambdas or not isinstance(node, ast.Assign) else 2)
    return rank


def _is_stub(function: Function) -> bool:
    """Nothing but a docstring, `pass`, `...` or `raise NotImplementedError`."""
    for node in function.body:
        if isinstance(node, ast.Raise) and "NotImplementedError" in ast.dump(node):
            continue
        if not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and _is_constant(node.value))):
            return False
    return True


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant)


def _other_function(blocks: list[_Block]) -> _Block | None:
    """The last block with a function that may be meant, else with any."""
    some = None
    for block in reversed(blocks):
        groups = [[node] if isinstance(node, Function) else [] for node in block.tree.body]
        groups += [methods_of(node) for node in block.tree.body if isinstance(node, ast.ClassDef)]
        functions = [function for group in groups for function in group]
        if [function for function in eligible(functions) if not _is_stub(function)]:
            return block
        some = some or (block if functions else None)
    return some


def _script(blocks: list[_Block]) -> _Block | None:
    """The last block that runs and reads input, else runs by reading with another's function, else runs."""
    fenced = [block for block in blocks if block.fenced]
    runs = [block for block in fenced or blocks if _runs(block.tree)]
    reads = [block for block in runs if _reads(block.source)]
    reads = reads or [block for block in runs if _reads(_joined(block, blocks, ""))]
    chosen = reads or runs or fenced or blocks
    return chosen[-1] if chosen else None


def _runs(tree: ast.Module) -> bool:
    kinds = (ast.Expr, ast.If, ast.For, ast.While, ast.With, ast.Try)
    found = [node for node in tree.body if isinstance(node, kinds)]
    return any(isinstance(part, ast.Call) for node in found for part in ast.walk(node))


def _reads(code: str) -> bool:
    return re.search(r"\binput\(|\bstdin\b|\bopen\(0|\bfileinput\b", code) is not None


def _joined(main: _Block, blocks: list[_Block], entry: str) -> str:
    """A block, and before it the statements of others that it needs: the nearest before it, else after it."""
    place = next(number for number, block in enumerate(blocks) if block is main)
    own = set().union(*(bound_names(node) for node in main.tree.body))
    waiting = free_names(main.source) - {entry}
    seen = own | waiting
    chosen: set[tuple[int, int]] = set()
    texts = [list(statements_of(block.source, block.tree)) for block in blocks] if waiting else []
    while waiting:
        name = waiting.pop()
        for number in (*range(place - 1, -1, -1), *range(place + 1, len(blocks))):
            if not any(name in bound_names(node) for node in blocks[number].tree.body):
                continue
            for index, (nodes, text) in enumerate(texts[number]):
                if any(_concerns(node, name) for node in nodes) and (number, index) not in chosen:
                    chosen.add((number, index))
                    more = free_names(text) - seen
                    waiting |= more
                    seen |= more
            break
    needed = [texts[number][index][1] for number, index in sorted(chosen)]
    return "\n\n".join([*needed, main.source])


def _concerns(node: ast.stmt, name: str) -> bool:
    """Does a statement define a name, or change what it stands for?"""
    if name in bound_names(node):
        return True
    if isinstance(node, (Function, ast.ClassDef, ast.Assert, ast.If)) or is_print(node):
        return False
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


# --- a body without its `def`
def _continued(reader: _Reader, entry: str, prompt: str) -> str | None:
    """The prompt with a segment of the reply as the rest of its function, where that returns something."""
    unfinished = [node for node in parse(prompt).body if getattr(node, "name", "") == entry]
    if not unfinished or not isinstance(unfinished[-1], Function):
        return None
    indent = " " * unfinished[-1].body[0].col_offset
    for segment in reversed(reader.segments):
        segment = segment.strip("\n")
        if not segment.strip():
            continue
        if re.match(rf"\s*{re.escape(entry)}\s*\(.*\n", segment):
            forms = [_dedented(f"def {segment.lstrip()}")]
        else:
            bodies = [segment, textwrap.indent(_dedented(segment), indent), indent + segment.lstrip()]
            forms = [f"{prompt.rstrip()}\n{body}" for body in bodies]
        for code in forms:
            if (found := _finished(reader, code, entry)) is not None:
                return found
    return None


def _finished(reader: _Reader, code: str, entry: str) -> str | None:
    """The code up to the last statement that is Python, where its function `entry` is more than a stub."""
    lines = code.split("\n")
    while lines:
        code = "\n".join(lines)
        if tree := reader.parse(code):
            functions = [node for node in tree.body if isinstance(node, Function) and node.name == entry]
            return code if functions and _returns(functions[-1]) else None
        broken = range(min(reader.line, len(lines)) - 1, 0, -1)
        end = next((number for number in broken if re.match(r"\S", lines[number])), 0)
        lines = lines[:end]
    return None


def _returns(function: Function) -> bool:
    """Does a function itself, not one within it, return or yield something?"""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            waiting += ast.iter_child_nodes(node)
    return False
