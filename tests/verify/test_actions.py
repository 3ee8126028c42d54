"""The actions verifier: BFCL's rule on hand-made cases, and the benchmark's references with one thing
changed.
"""

import itertools
import re
from typing import Any

import pytest
from conftest import shared
from hypothesis import given
from hypothesis import strategies as st

from smopd.data import Example, load_examples
from smopd.verify.verifiers import Verdict, verify

Calls = list[tuple[str, dict[str, Any]]]


def actions(calls: list[Any], text: str, functions: list[Any] | None = None) -> Verdict:
    answer = {"calls": calls} | ({"functions": functions} if functions else {})
    return verify(Example("t", "actions", "", ("goal",), "goal", answer), text)


def shown(calls: Calls) -> str:
    return (
        "["
        + ", ".join(f"{name}({', '.join(f'{k}={v!r}' for k, v in args.items())})" for name, args in calls)
        + "]"
    )


def reference(example: Example) -> Calls:
    """The first allowed value of each argument; optional ones whose first value is "" are left out."""
    calls = [item for call in example.answer["calls"] for item in call.items()]
    return [(name, {k: v[0] for k, v in args.items() if v[0] != ""}) for name, args in calls]


ONE = [{"f": {"a": [1], "b": ["x", ""]}}]


@pytest.mark.parametrize(
    "text",
    [
        "[f(a=1)]", '[f(a=1, b="x")]', "f(a=1)", "From your words: [f(b='X', a=1)]",
        "```python\n[f(a=1)]\n```",
        "```\nf(a=1)\n```",
        "[f(a=2)] no, [f(a=1)]", "[f(a=1)] (a list of calls [see above])",
        "[f(a=1)], where f(a=2) would be wrong",
        "calls = [f(a=1)]", "print([f(a=1)])",
        "I don't know [it's so]: [f(a=1, b='x')]", "[f(\n  a=1,  # it's one :)\n  b='x',\n)]",
        "[note: [f(a=1)] ]",
        "f(a=1). I used sqrt(16)",
        "<think>[f(a=2)]</think>[f(a=1)]<think>[f(a=3)]</think>", "[f(a=1)", "[f(a=2-1)]",
        '[f(a=1, b="")]',
        "**f(a=1)**",
    ],
)  # fmt: skip
def test_right_call(text: str) -> None:
    verdict = actions(ONE, text)
    assert verdict.correct, verdict
    assert verdict.status == "ok"


@pytest.mark.parametrize(
    "text",
    [
        "[f(a=2)]", "[g(a=1)]", "[f(a=1), f(a=1)]", "[f(a=1), g()]", "f(a=1), g(b=2)", "f(a=1)\ng(b=2)",
        "[f()]", "[f(b='x')]",
        "[f(a=1, b='y')]",
        "[f(a=1, c=1)]", "[f(1)]", "[f(a=True)]", "[f(a=1.0)]", "[f(a='1')]", "[f(a=x)]", "[f(a=2+1)]",
        "[f(a=int('1'))]",
        "[f(a=1, a=1)]",
        "[f(**{'a': 1})]", "[f(*[1])]", "[f(a=1)] no, [f(a=2)]", "[f(a=1), f(a=y)]", "[f.g(a=1)]",
        "[f(a=None)]", "[f(a=[1])]",
        "[f(a=1, b=b'x')]",
    ],
)  # fmt: skip
def test_wrong_call(text: str) -> None:
    verdict = actions(ONE, text)
    assert (verdict.correct, verdict.status) == (False, "ok"), verdict
    assert verdict.extracted is not None
    assert verdict.detail


@pytest.mark.parametrize(
    "text",
    [
        "",
        "f",
        "[]",
        "[1, 2]",
        "call f",
        "[f(a=1), g(b=",
        "f(a=1), g(b=",
        "[f(a=1, b=to be said)]",
        "[f(a=1)] [f(a=2, b=to be cut)]",
        "g(f(a=1))",
    ],
)
def test_no_call(text: str) -> None:
    verdict = actions(ONE, text)
    assert (verdict.correct, verdict.extracted, verdict.status) == (False, None, "no_answer")
    assert verdict.detail


SCHEMA = [
    {"name": "m.area", "parameters": {"type": "dict", "required": ["w", "h"], "properties": {
        "w": {"type": "float"}, "h": {"type": "float"}, "unit": {"type": "string"},
        "n": {"type": "integer"}}}},
]  # fmt: skip
AREA = [{"m.area": {"w": [5], "h": [2.0, ""], "unit": ["sq. cm", ""], "n": [3, ""]}}]


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("[m.area(w=5, h=2)]", True), ("[m.area(w=5.0, h=2.0)]", True), ("[m.area(5, 2)]", False),
        ("[m.area(w=5, h=2, unit='SQ-CM')]", True), ("[m.area(5, h=2, unit='SQ-CM')]", False),
        ("[m.area(w=5, h=2, unit='sq cm', n=3)]", True), ("m.area(w=5, h=2)", True),
        ("[area(w=5, h=2)]", False), ("[m.area(w=2, h=5)]", False), ("[m.area({'w': 5, 'h': 2})]", False),
        ("[m.area(w=5)]", False), ("[m.area(5, w=5, h=2)]", False), ("[m.area(w=5, h=2, n=3.0)]", False),
        ("[m.area(w=5, h=2, n='')]", False), ("[m.area(w=5, h=2, unit='')]", True),
        ("[m.area(w=True, h=2)]", False), ("[m.area(w=5.5, h=2)]", False), ("[m.area(w=-5, h=2)]", False),
        ("[m.area(w=10/2, h=2)]", True), ("[m.area(w=5, h=2, unit=cm)]", False),
    ],
)  # fmt: skip
def test_schema(text: str, correct: bool) -> None:
    assert actions(AREA, text, SCHEMA).correct is correct


@pytest.mark.parametrize(
    ("allowed", "value", "correct"),
    [
        ([[1, 2]], "[1, 2]", True), ([[1, 2]], "(1, 2)", True), ([[1, 2]], "[2, 1]", False),
        ([[1, 2]], "[1]", False),
        ([[1.0]], "[1]", True),
        ([[1]], "[1.0]", False), ([["New York"]], "['new-york']", True), ([["it's"]], "['it\"s']", True),
        ([[True]], "[1]", False),
        ([{"k": [1, 2], "o": ["x", ""]}], "{'k': 2}", True),
        ([{"k": [1], "o": ["x", ""]}], "{'k': 1, 'o': 'X'}", True),
        ([{"k": [1]}], "{'k': 3}", False), ([{"k": [1]}], "{}", False),
        ([{"k": [1]}], "{'k': 1, 'l': 1}", False),
        ([{"k": [1]}], "{1: 1}", False),
        ([[{"k": [1]}, {"k": [2]}]], "[{'k': 1}, {'k': 2}]", True),
        ([[{"k": [1]}, {"k": [2]}]], "[{'k': 2}, {'k': 1}]", False),
        ([{"k": [{"i": ["a"]}]}], "{'k': {'i': 'A'}}", True), ([True], "True", True), ([1], "True", False),
        ([0.5], ".5", True),
        ([-2], "-2", True),
        ([-2], "--2", False), (["2*x^2"], "'2x2'", True), (["Rome, Italy"], "'rome italy'", True),
        (["Rome"], "'Romes'", False),
        ([None], "None", True),
    ],
)  # fmt: skip
def test_values(allowed: list[Any], value: str, correct: bool) -> None:
    assert actions([{"f": {"a": allowed}}], f"[f(a={value})]").correct is correct


@pytest.mark.parametrize(
    ("schema", "allowed", "value", "correct"),
    [
        ({"type": "tuple", "items": {"type": "integer"}}, [[1, 2]], "(1, 2)", True),
        ({"type": "tuple", "items": {"type": "integer"}}, [[1, 2]], "[1, 2]", True),
        ({"type": "array", "items": {"type": "integer"}}, [[1, 2]], "(1, 2)", False),
        ({"type": "array", "items": {"type": "array"}}, [[[1, 2]]], "[(1, 2)]", False),
        ({"type": "array", "items": {"type": "float"}}, [[1.0, 2.5]], "[1, 2.5]", False),
        ({"type": "array", "items": {"type": "float"}}, [[1, 2.5]], "[1.0, 2.5]", True),
        ({"type": "array", "items": {"type": "string"}}, [["New York"], ""], "['new-york']", True),
        ({"type": "array", "items": {"type": "string"}}, [["New York"], ""], "[]", False),
        ({"type": "array", "items": {"type": "string"}}, [[], ""], "[]", True),
        ({"type": "array", "items": {"type": "string"}}, [["New York"]], "[]", False),
        ({"type": "array", "items": {"type": "array"}}, [[["New York"]]], "[['new york']]", False),
        ({"type": "dict"}, [{"k": [["New York"]]}], "{'k': ['new york']}", False),
        ({"type": "dict"}, [{"k": [["New York"]]}], "{'k': ['New York']}", True),
        ({"type": "array", "items": {"type": "dict"}}, ["my_data"], "my_data", True),
        ({"type": "array", "items": {"type": "dict"}}, ["my_data"], "'my_data'", True),
        ({"type": "array", "items": {"type": "dict"}}, ["my_data"], "other", False),
        ({"type": "string"}, ["my_data"], "my_data", False),
        ({"type": "boolean"}, [True], "true", False),
        ({"type": "integer"}, [5], "5.0", False),
        ({"type": "float"}, [5], "5.0", True),
        ({"type": "integer"}, [""], "''", False),
        ({"type": "string"}, [""], "''", True),
    ],
)
def test_values_by_schema(schema: dict[str, Any], allowed: list[Any], value: str, correct: bool) -> None:
    functions = [{"name": "f", "parameters": {"type": "dict", "properties": {"a": schema}}}]
    assert actions([{"f": {"a": allowed}}], f"[f(a={value})]", functions).correct is correct


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("5*10**-12", 5e-12), ("110/(5.2**2/2)", 110 / (5.2**2 / 2)), ("2 * 12", 24), ("7//2", 3),
        ("7 % 4", 3), ("+5", 5), ("-(2+3)", -5), ("--2", 2), ("2**-1", 0.5), ("(1 + 2) * 3 - 4", 5),
        ("'ab' + 'cd'", "abcd"), ("'ab' 'cd'", "abcd"), ("f'abcd'", "abcd"), ("[1 + 1]", [2]),
    ],
)  # fmt: skip
def test_arithmetic_of_literals(value: str, number: Any) -> None:
    assert actions([{"f": {"a": [number]}}], f"[f(a={value})]").correct


@pytest.mark.parametrize(
    "value",
    [
        "9**9**9", "2**100000", "10**400 * 10**400", "1/0", "0**-1", "1e308*10**400", "(-8)**0.5", "'a'*9",
        "[1]*9", "1 if 2 else 3", "~1", "not 1", "1 < 2", "1 << 9", "x+1", "int('1')", "f'{1}'", "'%d' % 1",
        "[x for x in y]", "lambda: 1", "{1, 2}", "b'x'", "1j", "...", "1+" * 3000 + "1", "-" * 3000 + "1",
        "1+" * 400 + "1", "-" * 90 + "1", "[" * 25 + "]" * 25,
    ],
)  # fmt: skip
def test_what_is_no_literal_is_refused_with_a_reason(value: str) -> None:
    verdict = actions([{"f": {"a": [1]}}], f"[f(a={value})]")
    assert not verdict.correct
    assert "argument 'a' is" in verdict.detail or verdict.status == "no_answer", verdict


@given(st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), st.integers(0, 3)), min_size=1, max_size=5))
def test_calls_are_matched_by_any_perfect_matching_there_is(pairs: list[tuple[set[int], int]]) -> None:
    allowed, values = [sorted(a) for a, _ in pairs], [v for _, v in pairs]
    possible = any(
        all(v in a for v, a in zip(order, allowed, strict=True)) for order in itertools.permutations(values)
    )
    text = shown([("f", {"a": v}) for v in values])
    assert actions([{"f": {"a": a}} for a in allowed], text).correct is possible


def loosely(value: Any) -> str:
    """Texts that the rule takes for equal are the same; so are 1 and "1", which are no slip for sure."""
    return re.sub(r"[ ,./_*^-]", "", str(value)).lower()


def other_values(value: Any, allowed: list[Any]) -> list[Any]:
    """Values one slip away from an allowed one."""
    others: list[Any] = ["zzz", None, [value], {"zzz": value}]
    if isinstance(value, bool):
        others += [not value, str(value), int(value)]
    elif isinstance(value, (int, float)):
        others += [value + 1, value - 1, -value - 1, str(value), value * 10 + 1]
    elif isinstance(value, str):
        others += [value + " x", value[1:], "x" + value, 7, True]
    elif isinstance(value, list):
        others += [value[:-1], [*value, "zzz"], [*value, *value[:1]], str(value)]
    texts = {loosely(a) for a in allowed}
    return [other for other in others if loosely(other) not in texts]


def mutants(calls: Calls, answer: list[dict[str, Any]]) -> list[Calls]:
    """One call missing, doubled, added or renamed; one argument changed, renamed, dropped or added."""
    broken: list[Calls] = [[*calls, ("other", {})], calls + calls]
    for index, (name, args) in enumerate(calls):
        before, after = calls[:index], calls[index + 1 :]
        broken += [[*before, *after]] if len(calls) > 1 else []
        broken += [[*before, (name, args), (name, args), *after], [*before, ("other" + name, args), *after]]
        broken.append([*before, (name, {**args, "zzz": 1}), *after])
        for key, value in args.items():
            allowed = answer[index][name][key]
            rest = {k: v for k, v in args.items() if k != key}
            broken += [
                [*before, (name, {**args, key: other}), *after] for other in other_values(value, allowed)
            ]
            broken.append([*before, (name, {**rest, key + "z": value}), *after])
            broken += [[*before, (name, rest), *after]] if "" not in allowed else []
    return broken


def test_lic_references_are_right_in_any_order_and_mutants_are_not() -> None:
    count = 0
    for example in load_examples(shared("data/lic/actions.json")):
        calls = reference(example)
        for right in (calls, calls[::-1]):
            assert verify(example, f"Here you are: {shown(right)}").correct, example.id
        for wrong in mutants(calls, example.answer["calls"]):
            verdict = verify(example, shown(wrong))
            assert not verdict.correct, (example.id, shown(wrong))
            count += 1
    assert count > 5000


def test_pocket_world_answers() -> None:
    examples = [e for e in load_examples("pocket:eval:40") if e.task == "actions"]
    assert examples
    for example in examples:
        calls = reference(example)
        assert verify(example, f"As before? No, From your words: {shown(calls)}").correct
        assert not verify(example, shown([(calls[0][0], dict(list(calls[0][1].items())[1:]))])).correct
