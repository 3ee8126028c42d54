"""The task actions: the function calls of a reply are compared by BFCL's AST rule, in any order.

`smopd.verify.calls` gathers the calls of a reply; nothing is executed, no text raises, and time is bounded.
A value equals an allowed one as in BFCL: texts without case, spaces and ,./-_*^; an integer passes for a
float as an argument but not within a list; a tuple passes for a list only if the schema says tuple; objects
are compared key by key; every argument of a call must be named. Unlike BFCL, calls are matched by any
one-to-one matching (BFCL takes the first that fits), an object within an object lists its allowed values like
the outer one, an argument of the reference counts as expected even if the schema lacks it, and [] does not
stand for an optional array. A name is no value, though BFCL takes it for a text (`city=Rome`, `x=true`);
it passes only in a quoted call, or if the reference itself has a variable where no text is expected.

    system     Reply with a list of calls. Functions: [{"name": "get_weather", ...}]
    user       What is the weather like?
    user       I mean in Rome, tomorrow.
    assistant  [get_weather(city="Rome", day="tomorrow")]
    answer     {"calls": [{"get_weather": {"city": ["Rome"], "day": ["tomorrow"]}}]}
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from smopd.verify.calls import Call, Unread, Untyped, gather, load_object
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

# --- comparing the calls
_ANOTHER = "another function"
_IGNORED = str.maketrans({**dict.fromkeys(" ,./-_*^"), "'": '"'})
_FLOATS = ("float", "number")
_NO_TEXTS = (*_FLOATS, "integer", "boolean", "array", "tuple", "dict", "object")


def verify_actions(answer: Answer, text: str) -> Verdict:
    reference, functions = answer.get("calls"), answer.get("functions") or []
    if not isinstance(reference, list) or not all(isinstance(c, dict) and len(c) == 1 for c in reference):
        return Verdict(False, None, "error", "the reference answer is not a list of calls")
    wanted = [next(iter(call.items())) for call in reference]
    schemas = {f["name"]: f.get("parameters") or {} for f in functions}
    source, calls, problem = gather(text, {name for name, _ in wanted} | set(schemas))
    if problem:
        return Verdict(False, None, "no_answer", f"no calls that can be compared: {problem}")
    if len(calls) != len(wanted):
        return Verdict(False, source, "ok", f"expected {len(wanted)} calls, found {len(calls)}")
    misses = [[_mismatch(c, name, args, schemas.get(name) or {}) for c in calls] for name, args in wanted]
    if (unmatched := _find_unmatched(misses)) is None:
        return Verdict(True, source, "ok", "")
    why = [miss for miss in misses[unmatched] if miss not in ("", _ANOTHER)] or ["matched by no call"]
    return Verdict(False, source, "ok", f"expected call {unmatched + 1}, {wanted[unmatched][0]}: {why[0]}")


def _find_unmatched(misses: Sequence[Sequence[str]]) -> int | None:
    """Return a row left over by a maximum matching of rows to columns ("" is an edge), or None."""
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


def _mismatch(call: Call, name: str, args: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return why a call is not the reference call `name(args)`; empty if it is."""
    if call.name != name:
        return _ANOTHER
    if call.problem:
        return call.problem
    if not call.named.keys() >= set(schema.get("required") or ()):
        return "a required argument is missing"
    if not call.named.keys() <= args.keys():
        return "an argument that is not expected"
    for key, allowed in args.items():
        choices = allowed if isinstance(allowed, list) else [allowed]
        if key not in call.named:
            if "" not in choices:
                return f"argument {key!r} is missing"
        elif not _is_among(call.named[key], choices, (schema.get("properties") or {}).get(key) or {}):
            value = call.named[key]  # not in the message, as it may be huge
            why = f"is {value.reason}" if isinstance(value, Unread) else "has another value"
            return f"argument {key!r} {why}"
    return ""


def _is_among(value: Any, choices: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    """Whether an argument is one of the choices; "" among them means that it may be left out."""
    kind = schema.get("type")
    if isinstance(value, Untyped):
        value = load_object(value) if kind in _NO_TEXTS else str(value)
    if isinstance(value, tuple) and kind in (None, "tuple"):
        value = list(value)
    if value == "" and "" in choices:
        return kind in ("string", "any") or (kind is None and all(isinstance(c, str) for c in choices))
    return any(_same(value, choice, schema) for choice in choices if choice != "")


def _same(value: Any, choice: Any, schema: Mapping[str, Any]) -> bool:
    kind = schema.get("type")
    if isinstance(choice, str) and isinstance(value, Unread) and kind in (*_NO_TEXTS, "any"):
        value = value.name  # a text in place of another type names a variable
    if isinstance(choice, str) and kind in _NO_TEXTS:
        return bool(value == choice)
    if isinstance(value, list) and isinstance(choice, list):
        kinds = (schema.get("items") or {}).get("type")
        pairs = zip(value, choice, strict=False)
        return len(value) == len(choice) and all(_same_part(v, c, kinds, (None,)) for v, c in pairs)
    return _same_part(value, choice, kind, (None, "integer", *_FLOATS))


def _same_part(value: Any, choice: Any, kind: str | None, widened: Sequence[str | None]) -> bool:
    """Compare what is no list; `widened` are the kinds for which an integer passes for a float."""
    if isinstance(value, str) and isinstance(choice, str):
        return _bare(value) == _bare(choice)
    if isinstance(value, dict) and isinstance(choice, dict):
        return _same_object(value, choice)
    if type(value) is float and type(choice) is int:
        return kind in _FLOATS and value == choice
    if type(value) is int and type(choice) is float:
        return kind in widened and value == choice
    return type(value) is type(choice) and bool(value == choice)


def _same_object(value: Mapping[str, Any], choice: Mapping[str, Any]) -> bool:
    """Compare objects; each key of `choice` lists its allowed values."""
    for key, inner in choice.items():
        choices = inner if isinstance(inner, list) else [inner]
        # BFCL has no rule for an object within an object, and requires it to be equal.
        equal = isinstance(value.get(key), dict) and value[key] in choices
        if key not in value and "" not in choices:
            return False
        if key in value and not (equal or any(_same_part(value[key], c, "float", _FLOATS) for c in choices)):
            return False
    return value.keys() <= choice.keys()


def _bare(text: str) -> str:
    return text.translate(_IGNORED).lower()


# --- examples
def render(calls: Any) -> str:
    """Write a reply that the answer allows, with the first value that it lists for every argument."""
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        return ""
    shown = []
    for name, arguments in (pair for call in calls for pair in call.items()):
        keywords = [f"{key}={_first(values)!r}" for key, values in arguments.items() if _has_value(values)]
        shown.append(f"{name}({', '.join(keywords)})")
    return f"[{', '.join(shown)}]"


def _has_value(values: Any) -> bool:
    """Whether there is a value besides "", which means that the argument may be left out."""
    return not isinstance(values, list) or any(value != "" for value in values)


def _first(values: Any) -> Any:
    return _plain(next((v for v in values if v != ""), "") if isinstance(values, list) else values)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _first(inner) for key, inner in value.items() if _has_value(inner)}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value


def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    answer, question = {"functions": item["function"]}, item["fully_specified_question"]
    try:
        full = question[0][0]["content"]
    except (IndexError, KeyError, TypeError):
        raise item.error("fully_specified_question", "expected [[{'content': ...}]]") from None
    return FUNCTIONS.fill(SYSTEM, answer), full, {"calls": item["reference_answer"], **answer}


TASKS = (Task(
    "actions", ("calls",), judge=lambda example, reply: verify_actions(example.answer, reply),
    system=SYSTEM, placeholder=FUNCTIONS, from_lic=_from_lic,
    answer_form="The answer is the whole list of function calls.",
    reference_problem=lambda answer: None if verify_actions(answer, render(answer["calls"])).correct
    else "the reference calls do not verify",
    reference_replies=lambda answer: [render(answer["calls"])],
),)  # fmt: skip
