"""Find what Python code defines and needs, and make a reply's code a program that tests can call.

Top-level statements run one by one within a share of the time limit; what they raise or print is dropped, so
that an example that fails, asks for input or never ends does not spoil a right function. A script that reads
standard input runs unchanged. Both get the imports they use of those of LiveCodeBench's (and LiC's) harness.
"""

import ast
import builtins
import functools
import importlib
import re
import symtable
import warnings
from collections.abc import Iterator

from smopd.verify import sandbox

Function = ast.FunctionDef | ast.AsyncFunctionDef
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
# In this order: later names win, modules win over their contents, and builtins over everything.
_STAR_IMPORTS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics",
    "itertools", "functools", "operator", "io", "sys", "json", "typing",
)  # fmt: skip
_RECURSION = "import sys; sys.setrecursionlimit(50_000); del sys\n"  # the harness's limit
# KeyboardInterrupt passes `except Exception`, and is raised repeatedly since a bare `except` may catch it.
# Signals are handled only at calls and jumps: none arrives between a statement's end and `running = False`.
_RUNNER = """
import os, signal, sys, time
def stop(*_):
    if running:
        raise KeyboardInterrupt
sys.stdout = open(os.devnull, "w")
signal.signal(signal.SIGALRM, stop)
end = time.monotonic() + seconds
for statement in statements:
    signal.setitimer(signal.ITIMER_REAL, max(end - time.monotonic(), 0.05), 0.05)
    try:
        running = True
        exec(statement, names)
    except BaseException:
        pass
    running = False
signal.setitimer(signal.ITIMER_REAL, 0)
"""


def parse(code: str) -> ast.Module:
    """Parse code without the warnings that a "\\d" in it would cause."""
    with warnings.catch_warnings(action="ignore"):
        return ast.parse(code)


def script(code: str) -> str:
    tree = parse(code)
    lines, futures = code.split("\n"), ""
    for nodes, text in statements_of(code, tree):
        if getattr(nodes[0], "module", "") == "__future__":
            futures += f"{text}\n"
            for number in range(nodes[0].lineno - 1, nodes[-1].end_lineno or 0):
                lines[number] = ""
    return f"{futures}{_RECURSION}{_prelude(tree)}\n" + "\n".join(lines)


def tested(code: str, entry: str, around: str, seconds: float) -> str:
    """Make a program whose function `entry` tests can call; top-level statements may take `seconds`."""
    tree = parse(code)
    futures, statements = "", [around]
    for nodes, text in statements_of(code, tree):
        if getattr(nodes[0], "module", "") == "__future__":
            futures += f"{text}\n"  # must come first, and then holds for every statement
        elif not all(map(_shows, nodes)):
            statements.append(text)
    if entry.isidentifier() and (other := _stand_in(tree, entry)):
        statements.append(f"{entry} = {other}")
    namespace = f'{{"names": globals(), "statements": {statements!r}, "seconds": {seconds}}}'
    return f"{futures}{_RECURSION}{_prelude(parse(around), tree)}\nexec({_RUNNER!r}, {namespace})\n"


def statements_of(code: str, tree: ast.Module) -> list[tuple[list[ast.stmt], str]]:
    """Return top-level statements with their source; those that share a line come together."""
    lines = code.split("\n")
    groups: list[tuple[list[ast.stmt], int, int]] = []
    for node in tree.body:
        first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))])
        before, first, _ = groups.pop() if groups and first <= groups[-1][2] else ([], first, 0)
        groups.append(([*before, node], first, node.end_lineno or node.lineno))
    return [(nodes, "\n".join(lines[first - 1 : last])) for nodes, first, last in groups]


def _shows(node: ast.stmt) -> bool:
    """Whether a statement is an example without effect: an assert, a print, a loop that asks for input."""
    asks = isinstance(node, (ast.While, ast.Try, ast.For)) and mentions(node, "input")
    asks = asks and any(isinstance(part, ast.While) for part in ast.walk(node))
    return asks or isinstance(node, ast.Assert) or is_print(node)


def is_print(node: ast.stmt) -> bool:
    call = node.value if isinstance(node, ast.Expr) else None
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "print"


# --- the function under test
def _stand_in(tree: ast.Module, entry: str) -> str:
    """Return what to call if nothing is named `entry`; empty if something is, or without a candidate."""
    if any(entry in bound_names(node) for node in tree.body):
        return ""
    classes = [node for node in reversed(tree.body) if isinstance(node, ast.ClassDef)]
    for class_node in classes:
        if any(method.name == entry for method in functions_in(class_node)):
            return f"{class_node.name}().{entry}"
    functions = eligible([node for node in tree.body if isinstance(node, Function)])
    for class_node in classes:
        methods = eligible(functions_in(class_node))
        if methods and (class_node.name == "Solution" or not functions):
            return f"{class_node.name}().{_most_likely(methods)}"
    return _most_likely(functions) if functions else ""


def functions_in(statement: ast.stmt) -> list[Function]:
    """Return the methods of a class, or the function itself; none for any other statement."""
    if isinstance(statement, ast.ClassDef):
        return [f for f in statement.body if isinstance(f, Function) and not f.name.startswith("__")]
    return [statement] if isinstance(statement, Function) else []


def eligible(functions: list[Function]) -> list[Function]:
    """Return the functions that may be meant: no tests, `main` or private ones, and with a parameter."""

    def takes(args: ast.arguments) -> bool:
        return any(a.arg != "self" for a in (*args.posonlyargs, *args.args, args.vararg) if a)

    return [f for f in functions if not re.match("test|main$|check$|_", f.name) and takes(f.args)]


def _most_likely(functions: list[Function]) -> str:
    """Return the name of the last function that no other one calls, since helpers are called."""
    called = set[str]()
    for node in functions:
        names = {getattr(part, "id", "") or getattr(part, "attr", "") for part in ast.walk(node)}
        called |= names - {node.name}
    return next((node.name for node in reversed(functions) if node.name not in called), functions[-1].name)


# --- names
def bound_names(statement: ast.stmt) -> set[str]:
    names: set[str] = set()
    for node in nodes_outside(statement):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def nodes_outside(*roots: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes in the scope of `roots`, not those inside nested functions and classes."""
    stack = [*roots]
    while stack:
        yield (node := stack.pop())
        if not isinstance(node, _SCOPES):
            stack += ast.iter_child_nodes(node)


def mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def free_names(code: str) -> set[str]:
    """Return the global names that code uses and does not define, without builtins."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return sandbox.free_names(symtable.symtable(code, "<reply>", "exec")) - vars(builtins).keys()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


# --- the imports before a program
@functools.cache
def _collect_imports() -> dict[str, str]:
    imports: dict[str, str] = {}
    for name in _STAR_IMPORTS:
        module = importlib.import_module(name)
        public = getattr(module, "__all__", None) or [key for key in vars(module) if not key.startswith("_")]
        imports |= {key: f"from {name} import {key}" for key in public if not hasattr(builtins, key)}
    imports |= {name: f"import {name}" for name in _STAR_IMPORTS}
    # These two usually come from `site`, which the sandbox does not load.
    return imports | {"exit": "from sys import exit", "quit": "from sys import exit as quit"}


def _prelude(*trees: ast.Module) -> str:
    """Import all known names that occur; those that the code defines itself come later and win."""
    imports = _collect_imports()
    names = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return "".join(f"{imports[name]}\n" for name in sorted(names & imports.keys()))
