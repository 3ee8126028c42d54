"""The verifiers against hand-made cases, the benchmark's own reference answers and mutations of them, and hostile text."""

import itertools
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from smopd.data import Example, load_examples
from smopd.errors import UserError
from smopd.evaluation.verifiers import Verdict, verify

LIC = Path(__file__).parents[2].parent / "shared" / "data" / "lic"


def check(task: str, answer: dict[str, Any], text: str) -> Verdict:
    return verify(Example("t", task, "", ("goal",), "goal", answer), text)


def math(value: str, text: str) -> Verdict:
    return check("math", {"value": value}, text)


def actions(calls: list[Any], text: str, functions: list[Any] | None = None) -> Verdict:
    return check("actions", {"calls": calls} | ({"functions": functions} if functions else {}), text)


def lic(task: str) -> list[Example]:
    path = LIC / f"{task}.json"
    if not path.exists():
        pytest.skip(f"the benchmark's {path.name} is not beside the repository (shared/data/lic)")
    return load_examples(path)


def shown(calls: list[tuple[str, dict[str, Any]]]) -> str:
    return "[" + ", ".join(f"{name}({', '.join(f'{k}={v!r}' for k, v in args.items())})" for name, args in calls) + "]"


def reference(example: Example) -> list[tuple[str, dict[str, Any]]]:
    """The first allowed value of each argument; optional ones whose first value is "" are left out."""
    calls = [item for call in example.answer["calls"] for item in call.items()]
    return [(name, {k: v[0] for k, v in args.items() if v[0] != ""}) for name, args in calls]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("18", "The answer is 18."), ("18", "18.0"), ("18.0", "It is 18"), ("1234.5", "$1,234.50"), ("1,234", "1234"),
        ("$5", "5"),
        ("5", "$5"), ("100", "$100.00"), ("50", "50%"), ("50%", "50"), ("4", "3, 4"), ("4", "3,4"), ("23", "1,23"),
        ("2345", "1,2345"),
        ("1234567", "1,234,567 people."), ("567", "1234,567"), ("-3", "x = -3"), ("-3", "-3"), ("-3", "It is \u22123."),
        ("3", "10-3"),
        ("3", "10 - 3"), ("-5", "-$5"), ("-5", "$-5"), ("3/4", "0.75"), ("0.75", "3/4"), ("0.75", "6/8 of it"), ("-0.75", "-3/4"),
        ("0.5", "is .5"), ("5", "wait...5"), ("0", "3/0"), ("1000", "1e3"), ("0.001", "1e-3"),
        ("18", r"\boxed{18} apples, not 20"),
        ("18", r"\boxed{17}, no: \boxed{18}. 3 steps"), ("18", r"$\boxed{\$18.00}$"), ("18", r"\boxed{x = {18}} 7"),
        ("5", r"\boxed{\boxed{5}} 6"),
        ("1234", r"\boxed{1{,}234}"), ("0.75", r"\boxed{\dfrac{3}{4}}"), ("-0.75", r"is $-\frac{3}{4}$"),
        ("18", r"\boxed{18\text{ cm}^2}"),
        ("7", r"\boxed{3 and 7"), ("7", r"\boxed{} 7"), ("18", "18 <think>no, 19</think>"),
        ("18", "<think>19</think>18<think>20</think>"),
        ("2", "1<think></think>2"), ("19", "18 <think>no, 19"), ("18", "so it is 20</think>18"), ("18", "**18**"), ("18", "18kg"),
    ],
)  # fmt: skip
def test_right_number(value: str, text: str) -> None:
    verdict = math(value, text)
    assert verdict.correct, verdict
    assert verdict.status == "ok"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("18", "17"), ("18", "18 or 19"), ("123", "1,23"), ("34", "3, 4"), ("1", "$100.00"), ("3", "-3"), ("-3", "10-3"),
        ("18", "18.01"),
        ("0.333333333333333333", "1/3"), ("18", r"\boxed{19} 18"), ("18", "1e999999999"), ("18", "9" * 100_000),
        ("1", "1e" + "9" * 100_000),
        ("18", "1.8"), ("12345", "1,2345"), ("0.18", "18%"),
    ],
)  # fmt: skip
def test_wrong_number(value: str, text: str) -> None:
    verdict = math(value, text)
    assert (verdict.correct, verdict.status) == (False, "ok")
    assert verdict.extracted is not None


@pytest.mark.parametrize("text", ["", "no idea", r"\boxed{x}", "<think>18</think>", "eighteen.", "18</think>"])
def test_no_number(text: str) -> None:
    verdict = math("18", text)
    assert (verdict.correct, verdict.extracted, verdict.status) == (False, None, "no_answer")


def test_a_reference_that_cannot_be_used_is_an_error_and_an_unknown_task_the_users() -> None:
    assert math("none", "18").status == "error"
    assert check("actions", {"calls": "f(a=1)"}, "[f(a=1)]").status == "error"
    assert check("database", {}, "select 1").status == "error"
    assert check("code", {}, "def f(): pass").status == "error"
    with pytest.raises(UserError, match="summary"):
        check("summary", {}, "all is well")


@given(st.decimals(-(10**9), 10**9, places=3))
def test_every_spelling_of_a_number_is_that_number(value: Any) -> None:
    for spelling in (f"{value}", f"{value:,}", f"${value:,}", f"\\boxed{{{value}}} 77"):
        assert math(str(value), f"So 3 and 4 make {spelling}.").correct
    assert not math(str(value + 1), f"The answer is {value:,}.").correct


ONE = [{"f": {"a": [1], "b": ["x", ""]}}]


@pytest.mark.parametrize(
    "text",
    [
        "[f(a=1)]", '[f(a=1, b="x")]', "f(a=1)", "From your words: [f(b='X', a=1)]", "```python\n[f(a=1)]\n```",
        "```\nf(a=1)\n```",
        "[f(a=2)] no, [f(a=1)]", "[f(a=1)] (a list of calls [see above])", "[f(a=1)], where f(a=2) would be wrong",
        "calls = [f(a=1)]", "print([f(a=1)])",
        "I don't know [it's so]: [f(a=1, b='x')]", "[f(\n  a=1,  # it's one :)\n  b='x',\n)]", "[note: [f(a=1)] ]",
        "f(a=1). I used sqrt(16)",
        "<think>[f(a=2)]</think>[f(a=1)]<think>[f(a=3)]</think>", "[f(a=1)] [f(a=2, b=to be cut)]", '[f(a=1, b="")]',
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
        "[f(a=2)]", "[g(a=1)]", "[f(a=1), f(a=1)]", "[f(a=1), g()]", "f(a=1), g(b=2)", "f(a=1)\ng(b=2)", "[f()]", "[f(b='x')]",
        "[f(a=1, b='y')]",
        "[f(a=1, c=1)]", "[f(1)]", "[f(a=True)]", "[f(a=1.0)]", "[f(a='1')]", "[f(a=x)]", "[f(a=2-1)]", "[f(a=int('1'))]",
        "[f(a=1, a=1)]",
        "[f(**{'a': 1})]", "[f(*[1])]", "[f(a=1)] no, [f(a=2)]", "[f(a=1), f(a=y)]", "[f.g(a=1)]", "[f(a=None)]", "[f(a=[1])]",
        "[f(a=1, b=b'x')]",
    ],
)  # fmt: skip
def test_wrong_call(text: str) -> None:
    verdict = actions(ONE, text)
    assert (verdict.correct, verdict.status) == (False, "ok"), verdict
    assert verdict.extracted is not None
    assert verdict.detail


@pytest.mark.parametrize(
    "text", ["", "f", "[]", "[1, 2]", "call f", "[f(a=1)", "[f(a=1), g(b=", "f(a=1), g(b=", "[f(a=1, b=to be said)]", "g(f(a=1))"]
)
def test_no_call(text: str) -> None:
    verdict = actions(ONE, text)
    assert (verdict.correct, verdict.extracted, verdict.status) == (False, None, "no_answer")


SCHEMA = [
    {"name": "m.area", "parameters": {"type": "dict", "required": ["w", "h"], "properties": {
        "w": {"type": "float"}, "h": {"type": "float"}, "unit": {"type": "string"}, "n": {"type": "integer"}}}},
]  # fmt: skip
AREA = [{"m.area": {"w": [5], "h": [2.0, ""], "unit": ["sq. cm", ""], "n": [3, ""]}}]


@pytest.mark.parametrize(
    ("text", "correct"),
    [
        ("[m.area(w=5, h=2)]", True), ("[m.area(w=5.0, h=2.0)]", True), ("[m.area(5, 2)]", True),
        ("[m.area(5, h=2, unit='SQ-CM')]", True),
        ("[m.area(5, 2, 'sq cm', 3)]", True), ("m.area(w=5, h=2)", True), ("[area(w=5, h=2)]", False), ("[m.area(2, 5)]", False),
        ("[m.area(w=5)]", False), ("[m.area(5, 2, w=5)]", False), ("[m.area(5, 2, 'sq cm', 3, 4)]", False),
        ("[m.area(5, 2, n=3.0)]", False),
        ("[m.area(5, 2, n='')]", False), ("[m.area(5, 2, unit='')]", True), ("[m.area(w=True, h=2)]", False),
        ("[m.area(w=5.5, h=2)]", False),
        ("[m.area(w=-5, h=2)]", False),
    ],
)  # fmt: skip
def test_schema(text: str, correct: bool) -> None:
    assert actions(AREA, text, SCHEMA).correct is correct


@pytest.mark.parametrize(
    ("allowed", "value", "correct"),
    [
        ([[1, 2]], "[1, 2]", True), ([[1, 2]], "(1, 2)", True), ([[1, 2]], "[2, 1]", False), ([[1, 2]], "[1]", False),
        ([[1.0]], "[1]", True),
        ([[1]], "[1.0]", False), ([["New York"]], "['new-york']", True), ([["it's"]], "['it\"s']", True),
        ([[True]], "[1]", False),
        ([{"k": [1, 2], "o": ["x", ""]}], "{'k': 2}", True), ([{"k": [1], "o": ["x", ""]}], "{'k': 1, 'o': 'X'}", True),
        ([{"k": [1]}], "{'k': 3}", False), ([{"k": [1]}], "{}", False), ([{"k": [1]}], "{'k': 1, 'l': 1}", False),
        ([{"k": [1]}], "{1: 1}", False),
        ([[{"k": [1]}, {"k": [2]}]], "[{'k': 1}, {'k': 2}]", True), ([[{"k": [1]}, {"k": [2]}]], "[{'k': 2}, {'k': 1}]", False),
        ([{"k": [{"i": ["a"]}]}], "{'k': {'i': 'A'}}", True), ([True], "True", True), ([1], "True", False), ([0.5], ".5", True),
        ([-2], "-2", True),
        ([-2], "--2", False), (["2*x^2"], "'2x2'", True), (["Rome, Italy"], "'rome italy'", True), (["Rome"], "'Romes'", False),
        ([None], "None", True),
    ],
)  # fmt: skip
def test_values(allowed: list[Any], value: str, correct: bool) -> None:
    assert actions([{"f": {"a": allowed}}], f"[f(a={value})]").correct is correct


@given(st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), st.integers(0, 3)), min_size=1, max_size=5))
def test_calls_are_matched_by_any_perfect_matching_there_is(pairs: list[tuple[set[int], int]]) -> None:
    allowed, values = [sorted(a) for a, _ in pairs], [v for _, v in pairs]
    possible = any(all(v in a for v, a in zip(order, allowed, strict=True)) for order in itertools.permutations(values))
    text = shown([("f", {"a": v}) for v in values])
    assert actions([{"f": {"a": a}} for a in allowed], text).correct is possible


def test_math_references_verify_and_their_neighbours_do_not() -> None:
    for example in lic("math"):
        value = int(example.answer["value"].replace(",", ""))
        assert verify(example, f"3 steps, 2 of them easy. The answer is {example.answer['value']}.").correct, example.id
        for wrong in (value + 1, value - 1, -value, value * 10):
            assert wrong == value or not verify(example, f"The answer is {wrong}.").correct, example.id


def test_action_references_verify_and_mutations_do_not() -> None:
    mutations = 0
    for example in lic("actions"):
        calls = reference(example)
        for right in (calls, calls[::-1]):
            assert verify(example, f"Here you are: {shown(right)}").correct, example.id
        broken = [calls[:-1], [*calls, calls[-1]], [*calls, ("other", {})], [("other" + calls[0][0], calls[0][1]), *calls[1:]]]
        for index, (name, args) in enumerate(calls):
            for key, value in args.items():
                others: list[Any] = ["zzz", None, [value]]
                if isinstance(value, int) and not isinstance(value, bool):
                    others += [n for n in (value + 1, value - 1) if n not in example.answer["calls"][index][name][key]]
                changed = [(name, {**args, key: other}) for other in others] + [(name, {**args, "zzz": 1})]
                broken += [[*calls[:index], one, *calls[index + 1 :]] for one in changed]
        for wrong in broken:
            verdict = verify(example, shown(wrong))
            assert not verdict.correct, (example.id, shown(wrong))
            mutations += 1
    assert mutations > 1000


def test_pocket_world_answers_verify() -> None:
    examples = load_examples("pocket:eval:40")
    assert {e.task for e in examples} == {"math", "actions"}
    for example in examples:
        if example.task == "math":
            value = int(example.answer["value"])
            assert verify(example, f"start 4; noon + 2 = 6. That makes {value}.").correct
            assert not verify(example, f"start 4; noon + 2 = 6. That makes {value + 1}.").correct
        else:
            calls = reference(example)
            assert verify(example, f"As before? No, From your words: {shown(calls)}").correct
            assert not verify(example, shown([(calls[0][0], dict(list(calls[0][1].items())[1:]))])).correct


EXAMPLES = [
    Example("m", "math", "", ("g",), "g", {"value": "18"}),
    Example("a", "actions", "", ("g",), "g", {"calls": ONE}),
    Example("s", "actions", "", ("g",), "g", {"calls": AREA, "functions": SCHEMA}),
]
PIECES = ["f(", "m.area(", "a=", "1", "'", '"', "\\", "\n", "[", "]", "(", ")", "{", "}", ",", "-", "\\boxed{", "<think>",
          "</think>", "#", "e9", "/",
          ".", "$", "\\frac{", "x", " ", "\0", "\ud800", "*", ":", "lambda", "b'", "\\d", "^"]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(st.characters()), st.lists(st.sampled_from(PIECES), max_size=60).map("".join)))
def test_no_text_raises(text: str) -> None:
    for example in EXAMPLES:
        verdict = verify(example, text)
        assert verdict.status in ("ok", "no_answer", "error")
        assert verdict.status == "ok" or not verdict.correct
        assert (verdict.extracted is not None) == (verdict.status == "ok")


N = 100_000
HOSTILE = {
    "brackets": "[" * N, "calls": "f(" * N, "lists": "[f(" * N, "unclosed": "[f(a=1)" * (N // 7), "quotes": "['" * N,
    "escapes": '\\"[' * N,
    "minuses": f"[f(a={'-' * N}1)]", "short minuses": f"[f(a={'-' * 19_000}1)]", "nots": f"[f(a={'not ' * 4_900}1)]",
    "sums": f"[f(a={'1+' * 9_000}1)]", "dots": f"[f{'.f' * 9_000}(a=1)]", "lambdas": f"[f(a={'lambda:' * 2_800}1)]",
    "hex": f"[f(a=0x{'f' * 19_000})]", "digits": f"[f(a={'9' * 5_000})]", "float": "[f(a=1e999)]", "boxes": "\\boxed{" * (N // 7),
    "closed boxes": "\\boxed{" * (N // 8) + "5" + "}" * (N // 8), "thoughts": "<think>" * (N // 7), "ends": "</think>" * (N // 8),
    "commas": "1," * N,
    "groups": "1" + ",234" * (N // 4) + "5", "fractions": "1/" * N, "word": "a" * N, "names": "a." * N, "bare": "f()" * (N // 3),
    "fracs": "\\frac{" * (N // 6), "spaces": "[" + " " * N, "escape": "[f(a='\\d')]", "comments": "[f( #" * (N // 5),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_refused_in_linear_time_and_silence(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for example in EXAMPLES:
            began = time.process_time()
            verdict = verify(example, HOSTILE[name])
            # Quadratic readings of so much text take minutes.
            assert time.process_time() - began < 10
            assert not verdict.correct
