"""Find the code of a reply: the last block that defines what was asked for, and what it needs of others.

A reply may hold several versions among helpers, examples and tests, or only a body for the prompt's function.
"""

import ast
import re
import sys
import textwrap

from smopd.verify.code import program
from smopd.verify.code.blocks import Block, Reader, dedented
from smopd.verify.code.program import Function, bound_names, functions_in, mentions

_LONGEST_REPLY = 300_000
_TAG = re.compile(  # marks around code besides fences: tokens of chat templates, HTML tags and prompt tags
    r"(?i)<\|\w{1,40}\|>|\[/?(?:PYTHON|CODE|ANSWER|SOLUTION|INST)\]|\\(?:begin|end)\{\w{1,20}\}"
    r"|<!\[CDATA\[|\]\]>|</?[a-z][\w-]{0,30}(?:\s[^<>\n]{0,100})?>"
)
_CODE_SPAN = re.compile(r"(?<!`)`((?:def|class|lambda|\w+ ?= ?lambda)\b[^`\n]{1,300})`(?!`)")


def find_code(text: str, entry: str = "", prompt: str = "") -> str | None:
    """Return code that defines `entry` or continues `prompt`, else any function; no `entry`: a script."""
    text = re.sub(r"\r\n?", "\n", text[-_LONGEST_REPLY:])
    tagged = _CODE_SPAN.sub(r"\n```\n\1\n```\n", _TAG.sub("\n```\n", text))
    readers: list[Reader] = []
    for form in dict.fromkeys([text, tagged]):
        readers.append(reader := Reader(form))
        main = _definition(reader.blocks, entry) if entry else _script(reader.blocks)
        if main is not None:
            return _join(main, reader.blocks, entry)
    for reader in readers if entry and prompt else []:
        if (body := _continue_prompt(reader, entry, prompt)) is not None:
            return body
    for reader in readers if entry else []:
        if (main := _other_function(reader.blocks)) is not None:
            return _join(main, reader.blocks, entry)
    return None


# --- which of the blocks
def _definition(blocks: list[Block], entry: str) -> Block | None:
    best = max(reversed(blocks), key=lambda block: _defines(block.tree, entry), default=None)
    return best if best and _defines(best.tree, entry) else None


def _defines(tree: ast.Module, entry: str) -> int:
    """Rank a definition of `entry`: 3 a function, 2 something else, 1 a stub without a result, 0 none."""
    rank = 0
    for node in tree.body:
        for function in functions_in(node):
            if function.name == entry:
                rank = max(rank, 3 if _has_result(function) or mentions(function, "print") else 1)
        package = (getattr(node, "module", "") or "").partition(".")[0]
        if isinstance(node, ast.ImportFrom) and package not in sys.stdlib_module_names:
            continue  # tests that import the solution
        if not isinstance(node, Function) and entry in bound_names(node):
            surely = not isinstance(node, ast.Assign) or isinstance(node.value, ast.Lambda)
            rank = max(rank, 3 if surely else 2)
    return rank


def _has_result(function: Function) -> bool:
    """Whether a function itself, not one nested in it, returns or yields something."""
    results = (ast.Return, ast.Yield, ast.YieldFrom)
    return any(isinstance(node, results) for node in program.nodes_outside(*function.body))


def _other_function(blocks: list[Block]) -> Block | None:
    """Return the last block with an eligible function that returns, else with any function."""
    some = None
    for block in reversed(blocks):
        functions = [function for node in block.tree.body for function in functions_in(node)]
        if any(map(_has_result, program.eligible(functions))):
            return block
        some = some or (block if functions else None)
    return some


def _script(blocks: list[Block]) -> Block | None:
    """Return the last block that reads and prints, else reads, else calls what reads, else runs."""
    fenced = [block for block in blocks if block.fenced]
    runs = [block for block in fenced or blocks if _runs(block.tree)]
    reads = [block for block in runs if _reads(block.source)]
    prints = [block for block in reads if re.search(r"\bprint\(|\bstdout\b", block.source)]
    reads = prints or reads or [block for block in runs if _reads(_join(block, blocks, ""))]
    return next(reversed(reads or runs or fenced or blocks), None)


def _runs(tree: ast.Module) -> bool:
    kinds = (ast.Expr, ast.If, ast.For, ast.While, ast.With, ast.Try)
    statements = [node for node in tree.body if isinstance(node, kinds)]
    return any(isinstance(part, ast.Call) for node in statements for part in ast.walk(node))


def _reads(code: str) -> bool:
    return re.search(r"\binput\(|\bstdin\b|\bopen\(0|\bfileinput\b", code) is not None


def _join(main: Block, blocks: list[Block], entry: str) -> str:
    """Put statements that a block needs in front of it, from the nearest block before, else after it."""
    place = next(number for number, block in enumerate(blocks) if block is main)
    waiting = program.free_names(main.source) - {entry}
    seen = waiting.union(*(bound_names(node) for node in main.tree.body))
    chosen: set[tuple[int, int]] = set()
    texts = [program.statements_of(block.source, block.tree) for block in blocks] if waiting else []
    while waiting:
        name = waiting.pop()
        for number in (*range(place - 1, -1, -1), *range(place + 1, len(blocks))):
            if not any(name in bound_names(node) for node in blocks[number].tree.body):
                continue
            for index, (nodes, text) in enumerate(texts[number]):
                if any(_concerns(node, name) for node in nodes) and (number, index) not in chosen:
                    chosen.add((number, index))
                    more = program.free_names(text) - seen
                    waiting |= more
                    seen |= more
            break
    return "\n\n".join([*(texts[number][index][1] for number, index in sorted(chosen)), main.source])


def _concerns(node: ast.stmt, name: str) -> bool:
    """Whether a statement defines a name or changes what it stands for."""
    inert = isinstance(node, (Function, ast.ClassDef, ast.Assert, ast.If)) or program.is_print(node)
    return name in bound_names(node) or (not inert and mentions(node, name))


# --- a body without its `def`
def _continue_prompt(reader: Reader, entry: str, prompt: str) -> str | None:
    """Complete the prompt's function by a segment of the reply; None if it returns nothing then."""
    unfinished = [node for node in program.parse(prompt).body if getattr(node, "name", "") == entry]
    if not unfinished or not isinstance(unfinished[-1], Function):
        return None
    indent = " " * unfinished[-1].body[0].col_offset
    for segment in reversed([text.strip("\n") for text in reader.segments if text.strip()]):
        if re.match(rf"\s*{re.escape(entry)}\s*\(.*\n", segment):
            forms = [dedented(f"def {segment.lstrip()}")]
        else:
            bodies = [segment, textwrap.indent(dedented(segment), indent), indent + segment.lstrip()]
            forms = [f"{prompt.rstrip()}\n{body}" for body in bodies]
        for code in forms:
            lines = code.split("\n")
            start = next(number for number, line in enumerate(lines) if line.strip())
            end, tree = reader.cut(lines, start, len(lines))
            body = tree.body if tree else []
            functions = [node for node in body if isinstance(node, Function) and node.name == entry]
            if functions and _has_result(functions[-1]):  # more than a stub
                return "\n".join(lines[:end])
    return None
