"""Read one piece of text as function calls: a Python expression, a JSON object, or the parameters of a tag.

Nothing is executed. An argument is a literal, or arithmetic of literals; anything else (a name, a call, a
comprehension) becomes `Unread`, which equals nothing and says why. Unlike in BFCL, a name is a text only if
the whole call is quoted (its own quotes were lost), and a call with a positional argument equals nothing.
"""

import ast
import json
import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

MOST_CHARACTERS = 20_000  # of one piece
_MOST_DEPTH = 30  # of a value or a sum
_MOST_BITS = 1500  # of a number that arithmetic gives
_FAILURES = (SyntaxError, ValueError, RecursionError, MemoryError)


@dataclass(frozen=True)
class Unread:
    """An argument that is no literal; `name` is set if it is a variable."""

    reason: str
    name: str = ""


class Untyped(str):
    """A value in a tag, which has no type of its own: the schema decides."""

    __slots__ = ()


@dataclass(frozen=True)
class Call:
    """A function and its arguments; with a `problem` it equals nothing."""

    name: str
    named: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""


# --- Python
def python_calls(source: str, quoted: bool = False) -> list[Call] | str | None:
    """Return the calls in a call or list of calls, a reason as text if unreadable, None for anything else."""
    tree = _parse(source.strip()) if len(source) <= MOST_CHARACTERS else None
    if isinstance(tree, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        return "a comprehension"
    return _calls_of(tree, quoted) if tree else None


def _parse(source: str) -> ast.expr | None:
    try:
        with warnings.catch_warnings(action="ignore"):  # for example about "\d"
            return ast.parse(source, mode="eval").body
    except _FAILURES:
        return None


def _calls_of(tree: ast.expr, quoted: bool) -> list[Call] | None:
    match tree:
        case ast.Call():
            return _read_call(tree, quoted)
        case ast.List() | ast.Tuple() if tree.elts:
            return _flatten([_calls_of(element, quoted) for element in tree.elts])
        case ast.Constant(value=str(text)) if not quoted:
            calls = python_calls(text, quoted=True)
            return calls if isinstance(calls, list) else None
    return None


def _flatten(parts: list[list[Call] | None]) -> list[Call] | None:
    return None if not parts or None in parts else [call for part in parts if part for call in part]


def _read_call(node: ast.Call, quoted: bool) -> list[Call] | None:
    function, names = node.func, []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return None
    named = {keyword.arg: _value(keyword.value, quoted) for keyword in node.keywords if keyword.arg}
    problem = "arguments that are unpacked or given twice" if len(named) < len(node.keywords) else ""
    problem = "positional arguments, where every argument has to be named" if node.args else problem
    return [Call(".".join([function.id, *reversed(names)]), named, problem)]


def _value(node: ast.expr, quoted: bool, depth: int = 0) -> Any:
    """Return a literal's value; bytes, sets and complex sums, which `ast.literal_eval` takes, are none."""
    if depth > _MOST_DEPTH:
        return Unread("nested too deep")
    match node:
        case ast.Constant(value=None | str() | bool() | int() | float()):
            return node.value
        case ast.Name():
            return node.id if quoted else Unread(f"the name {node.id[:60]}, not a literal", node.id)
        case ast.List():
            return [_value(element, quoted, depth + 1) for element in node.elts]
        case ast.Tuple():
            return tuple(_value(element, quoted, depth + 1) for element in node.elts)
        case ast.Dict():
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
                values = [_value(value, quoted, depth + 1) for value in node.values]
                return dict(zip(keys, values, strict=True))
            return Unread("a dict whose keys are not different texts")
        case ast.JoinedStr(values=[ast.Constant(value=str(text))]):
            return text
        case ast.UnaryOp() | ast.BinOp():
            return _arithmetic(node, quoted, depth + 1)
    return Unread(f"a {type(node).__name__}, not a literal")


_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
}  # fmt: skip
_NOT_ARITHMETIC = Unread("an expression that is no arithmetic of literals")


def _arithmetic(node: ast.UnaryOp | ast.BinOp, quoted: bool, depth: int) -> Any:
    """Evaluate sums of texts and arithmetic such as 5*10**-12, up to `_MOST_BITS` per number."""
    if isinstance(node, ast.UnaryOp):
        number = _value(node.operand, quoted, depth)
        if type(number) not in (int, float) or not isinstance(node.op, (ast.USub, ast.UAdd)):
            return number if isinstance(number, Unread) else _NOT_ARITHMETIC
        return -number if isinstance(node.op, ast.USub) else number
    left, right = _value(node.left, False, depth), _value(node.right, False, depth)
    if unread := [side for side in (left, right) if isinstance(side, Unread)]:
        return unread[0]
    if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
        return left + right
    if {type(left), type(right)} - {int, float} or type(node.op) not in _OPERATORS:
        return _NOT_ARITHMETIC
    if isinstance(left, int) and isinstance(right, int):
        power = max(right, 1) if isinstance(node.op, ast.Pow) else 1
        if left.bit_length() * power + right.bit_length() > _MOST_BITS:
            return Unread("arithmetic with huge numbers")
    try:
        result = _OPERATORS[type(node.op)](left, right)
    except (ArithmeticError, ValueError):
        return Unread("arithmetic without a result")
    return result if isinstance(result, (int, float)) else _NOT_ARITHMETIC  # (-8)**0.5 is complex


# --- objects
_NAME_KEYS = ("name", "function", "function_name", "tool", "tool_name", "action", "api")
_ARGS_KEYS = ["arguments", "parameters", "args", "kwargs", "params", "input", "tool_input", "action_input"]
_LIST_KEYS = ("tool_calls", "function_calls", "calls", "functions", "tools", "actions")


def load_object(source: str, most: int = MOST_CHARACTERS) -> Any:
    """Return the value of JSON or a Python literal; None for anything else and for longer texts."""
    if len(source) > most:
        return None
    try:
        value = json.loads(source, strict=False)
    except _FAILURES:
        tree = _parse(source)
        value = _value(tree, quoted=False) if tree else None
    return value if is_literal(value) else None


def is_literal(value: Any, depth: int = 0) -> bool:
    if depth > _MOST_DEPTH:
        return False
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return not isinstance(value, Unread) and all(is_literal(part, depth + 1) for part in parts)


def object_calls(value: Any, names: set[str]) -> list[Call] | None:
    """Return the calls that an object or a list of objects spells out; None for anything else.

    Forms are {"name": f, "arguments": {...}}, also below "function", and {f: {...}} for known functions;
    arguments may be JSON in a text. The schema of a function is no call of it.
    """
    if isinstance(value, (list, tuple)):
        return _flatten([object_calls(part, names) for part in value])
    if not isinstance(value, dict):
        return None
    if isinstance(inner := value.get("function"), dict):
        return object_calls(inner, names)
    for key in _LIST_KEYS:
        if isinstance(value.get(key), list) and len(value) == 1:
            return object_calls(value[key], names)
    name = next((value[key] for key in _NAME_KEYS if isinstance(value.get(key), str)), None)
    if name is not None:
        arguments, *more = [_arguments(value[key]) for key in _ARGS_KEYS if key in value] or [None]
        usable = arguments is not None and not (more or is_schema(arguments) or "description" in value)
        return [Call(name, arguments or {})] if usable else None
    calls = [Call(key, arguments) for key in value if (arguments := _arguments(value[key])) is not None]
    return calls if calls and len(calls) == len(value) and value.keys() <= names else None


def _arguments(value: Any) -> dict[str, Any] | None:
    value = load_object(value) if isinstance(value, str) else value
    return value if isinstance(value, dict) else None


def is_schema(arguments: Mapping[str, Any]) -> bool:
    return isinstance(arguments.get("properties"), dict)


# --- tags
def tag_call(name: str, body: str, parameters: Sequence[tuple[str, str]]) -> Call | None:
    """Return the call of a tag whose parameters are tags or one object; None for anything else."""
    if parameters:
        named = {key: Untyped(value.strip()) for key, value in parameters}
        return Call(name, named, "" if len(named) == len(parameters) else "an argument that is given twice")
    arguments = load_object(body.strip()) if body.strip() else {}
    return Call(name, arguments) if isinstance(arguments, dict) else None
