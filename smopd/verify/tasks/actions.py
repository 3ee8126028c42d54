"""The task actions: the function calls of a reply are compared by BFCL's AST rule, in any order.

Nothing in a reply is executed, no reply text raises, and the time is linear in its length. It leaves out
arguments that are no literals: a name or an expression in a call is a wrong answer.
"""

import ast
import json
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from smopd.verify.task import Answer, Placeholder, Record, Task
from smopd.verify.verdict import Verdict

SYSTEM = (
    "You call functions. The user may reveal the request over several messages. Reply with nothing but a "
    'Python list of calls with named arguments, such as [f(a=1), g(b="x")], using only these functions:\n'
    "{functions}"
)
FUNCTIONS = Placeholder(
    "{functions}", "the schemas", lambda a: "\n".join(map(json.dumps, a.get("functions") or ()))
)

# --- finding the calls
_NAME = r"(?<![\w.])[^\W\d][\w.]*+"
_OPENER = re.compile(rf"\[|{_NAME}\(")
_LIST_OF_CALLS = re.compile(rf"\[\s*+(?={_NAME}\s*+\()")
_BETWEEN = re.compile(r"\s*+[,;]?\s*+")
# Strings and comments first: brackets within them don't count. `cut`: a string that does not end on its line.
_STRING = r"""(?:"(?:[^"\\\n]|\\[^\n])*+"|'(?:[^'\\\n]|\\[^\n])*+'|(?P<cut>["'][^\n]*+))"""
_TOKEN = re.compile(_STRING + r"|#[^\n]*+|[\[\](){}]")
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_MOST_DEPTH = 20
_MOST_CHARACTERS = 20_000  # of one list of calls
_MOST_TEXT = 100_000  # characters of a reply, from its end: the last list counts
_MOST_READINGS = 20  # of each character, on average: what keeps the search linear where brackets are tangled
_NOT_LITERAL = object()  # stands for an argument that can equal nothing


@dataclass(frozen=True)
class _Call:
    name: str
    positional: list[Any]
    named: dict[str, Any]


def _find_calls(text: str, names: set[str]) -> tuple[str, list[_Call]] | None:
    """The last list of calls and its source; else the last run of bare calls, if it has a known function."""
    listed: tuple[str, list[_Call]] | None = None
    run, known_run = list[str](), list[str]()
    at, run_end, cut_short, readings = 0, 0, -1, _MOST_READINGS * (len(text) + 1000)
    while opener := _OPENER.search(text, at):
        start = opener.start()
        end, stop = _close(text, opener.end() - 1)
        at = end if end > 0 else opener.end()
        if (readings := readings - (stop - start)) < 0:
            return None
        if opener[0] != "[":
            if not run or not _BETWEEN.fullmatch(text, run_end, start):
                # The lone bracket spoils a run that is not bare.
                run = ["["] if start == cut_short or start < run_end else []
            run.append(text[start:at])
            run_end = max(run_end, at)
            if opener[0][:-1] in names:
                known_run = run
            else:
                at = opener.end()  # in print([f(a=1)]) look inside
        elif (head := _LIST_OF_CALLS.match(text, start)) is None:
            at = start + 1  # a bracket in the prose: what counts may stand inside
        elif end > 0:
            listed = _parse(text[start:end]) or listed
        else:
            cut_short = head.end()
    return listed or _parse(f"[{', '.join(known_run)}]")


def _close(text: str, start: int) -> tuple[int, int]:
    """The end of the bracket that opens at `start` (-1: it does not close), and how far the text was read."""
    waiting: list[str] = []
    limit = min(len(text), start + _MOST_CHARACTERS)
    for token in _TOKEN.finditer(text, start, limit):
        first = token[0][0]
        if first in _CLOSERS:
            waiting.append(_CLOSERS[first])
        elif first in ")]}":
            fits = waiting.pop() == first
            if not fits or not waiting:
                return token.end() if fits else -1, token.end()
        if len(waiting) > _MOST_DEPTH or token["cut"]:
            return -1, token.end()
    return -1, limit


def _parse(source: str) -> tuple[str, list[_Call]] | None:
    """The source and the calls of a Python list of calls, or None where it is something else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "\d" in a reply is none of our user's business
            tree = ast.parse(source[: _MOST_CHARACTERS + 1], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = tree.elts if isinstance(tree, ast.List) else []
    calls = [call for node in nodes if (call := _call(node))]
    return (source, calls) if calls and len(calls) == len(nodes) else None


def _call(node: ast.expr) -> _Call | None:
    if not isinstance(node, ast.Call):
        return None
    function, names = node.func, []
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        return None
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        key = keyword.arg or "**"  # no reference has an argument of that name
        named[key] = _NOT_LITERAL if key in named else _literal(keyword.value)
    return _Call(".".join([function.id, *reversed(names)]), [_literal(arg) for arg in node.args], named)


def _literal(node: ast.expr) -> Any:
    """A literal's value, a tuple as a list. `ast.literal_eval` also takes bytes, sets and complex sums."""
    match node:
        case ast.Constant(value=None | str() | bool() | int() | float()):
            return node.value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant()):
            number = _literal(node.operand)
            return -number if type(number) in (int, float) else _NOT_LITERAL
        case ast.List() | ast.Tuple():
            return [_literal(element) for element in node.elts]
        case ast.Dict():
            keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
            if all(isinstance(key, str) for key in keys):
                return dict(zip(keys, map(_literal, node.values), strict=True))
    return _NOT_LITERAL


# --- comparing the calls
_ANOTHER = "another function"
_IGNORED = str.maketrans({**dict.fromkeys(" ,./-_*^"), "'": '"'})


def verify_actions(answer: Answer, text: str) -> Verdict:
    """Compare the calls of a reply with the reference's, in any order."""
    reference, functions = answer.get("calls"), answer.get("functions") or []
    if not isinstance(reference, list) or not all(isinstance(c, dict) and len(c) == 1 for c in reference):
        return Verdict(False, None, "error", "the reference answer is not a list of calls")
    wanted = [next(iter(call.items())) for call in reference]
    schemas = {f["name"]: f.get("parameters") or {} for f in functions}
    if (found := _find_calls(text[-_MOST_TEXT:], {name for name, _ in wanted} | set(schemas))) is None:
        return Verdict(False, None, "no_answer", "no list of calls in the reply")
    source, calls = found
    if len(calls) != len(wanted):
        return Verdict(False, source, "ok", f"expected {len(wanted)} calls, found {len(calls)}")
    misses = [[_mismatch(c, name, args, schemas.get(name) or {}) for c in calls] for name, args in wanted]
    if (unmatched := _unmatched(misses)) is None:
        return Verdict(True, source, "ok", "")
    why = [miss for miss in misses[unmatched] if miss not in ("", _ANOTHER)] or ["matched by no call"]
    return Verdict(False, source, "ok", f"expected call {unmatched + 1}, {wanted[unmatched][0]}: {why[0]}")


def _unmatched(misses: Sequence[Sequence[str]]) -> int | None:
    """A row left over when rows are matched one to one to columns ("" is an edge): augmenting paths."""
    taken: dict[int, int] = {}

    def place(row: int, seen: set[int]) -> bool:
        for column, miss in enumerate(misses[row]):
            if not miss and column not in seen:
                seen.add(column)
                if column not in taken or place(taken[column], seen):
                    taken[column] = row
                    return True
        return False

    return next((row for row in range(len(misses)) if not place(row, set())), None)


def _mismatch(call: _Call, name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Why a call is not the reference call `name(args)`; an empty text where it is."""
    if call.name != name:
        return _ANOTHER
    order = list(schema.get("properties") or ())
    by_place = dict(zip(order, call.positional, strict=False))
    if len(call.positional) > len(order) or by_place.keys() & call.named.keys():
        return "positional arguments that no schema or no free parameter takes"
    given = {**by_place, **call.named}
    if not given.keys() >= set(schema.get("required") or ()):
        return "a required argument is missing"
    return _misfit(given, args, schema)


def _misfit(given: Mapping[str, Any], args: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Compare named values with lists of allowed ones: the arguments of a call, or a dict within one."""
    if not given.keys() <= args.keys():
        return "an argument that is not expected"
    for key, allowed in args.items():
        choices = allowed if isinstance(allowed, list) else [allowed]
        if key not in given:
            if "" not in choices:
                return f"argument {key!r} is missing"
        elif not _among(given[key], choices, (schema.get("properties") or {}).get(key) or {}):
            return f"argument {key!r} has another value"  # which one is left out: it may be huge
    return ""


def _among(value: Any, choices: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    # "" says that the parameter is optional; it is a value only where the parameter is a text.
    textual = schema["type"] == "string" if "type" in schema else all(isinstance(c, str) for c in choices)
    return any(_same(value, choice, schema) for choice in choices if choice != "" or textual)


def _same(value: Any, choice: Any, schema: Mapping[str, Any]) -> bool:
    if isinstance(value, bool) or isinstance(choice, bool) or value is None or choice is None:
        return value is choice
    if isinstance(value, str) and isinstance(choice, str):
        return value.translate(_IGNORED).lower() == choice.translate(_IGNORED).lower()
    if isinstance(value, (int, float)) and isinstance(choice, (int, float)):
        # 5 for an expected 5.0, but not 5.0 for an expected 5 unless the schema asks for a float.
        floating = isinstance(choice, float) or schema.get("type") in ("float", "number")
        return (isinstance(value, int) or floating) and value == choice
    if isinstance(value, list) and isinstance(choice, list):
        items, pairs = schema.get("items") or {}, zip(value, choice, strict=False)
        return len(value) == len(choice) and all(_same(v, c, items) for v, c in pairs)
    return isinstance(value, dict) and isinstance(choice, dict) and not _misfit(value, choice, schema)


# --- examples
def render(calls: Any) -> str:
    """A reply that a published answer allows: for every argument the first value it lists."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return ""
    shown = []
    for name, arguments in (pair for call in calls for pair in call.items()):
        given = [f"{key}={_first(values)!r}" for key, values in arguments.items() if _stated(values)]
        shown.append(f"{name}({', '.join(given)})")
    return f"[{', '.join(shown)}]"


def _stated(values: Any) -> bool:
    """Is there a value other than "", which says that the argument may be left out?"""
    return not isinstance(values, list) or any(value != "" for value in values)


def _first(values: Any) -> Any:
    return _plain(next((v for v in values if v != ""), "") if isinstance(values, list) else values)


def _plain(value: Any) -> Any:
    """Inside an object every key again lists its allowed values."""
    if isinstance(value, dict):
        return {key: _first(inner) for key, inner in value.items() if _stated(inner)}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    answer, question = {"functions": item["function"]}, item["fully_specified_question"]
    try:
        full = question[0][0]["content"]
    except (IndexError, KeyError, TypeError):
        raise item.error("fully_specified_question", "expected [[{'content': ...}]]") from None
    return FUNCTIONS.fill(SYSTEM, answer), full, {"calls": item["reference_answer"], **answer}


def _reference_problem(answer: Answer) -> str | None:
    right = verify_actions(answer, render(answer["calls"])).correct
    return None if right else "the reference calls do not verify"


TASK = Task(
    "actions", ("calls",), judge=lambda example, reply: verify_actions(example.answer, reply),
    system=SYSTEM, placeholder=FUNCTIONS, from_lic=_from_lic,
    answer_form="The answer is the whole list of function calls.", reference_problem=_reference_problem,
    reference_replies=lambda answer: [render(answer["calls"])],
)  # fmt: skip
