"""Gathering: which calls a reply makes, whatever form they take, and how long it may take to find them."""

import time

import pytest

from smopd.verify.calls import gathering as calls
from smopd.verify.calls.gathering import Gathered, gather

NAMES = {"f", "g", "get_time"}
MEGABYTE = 1_000_000


def shown(text: str) -> str:
    """The calls of a reply in one line; in brackets, why they cannot be told."""
    gathered: Gathered = gather(text, NAMES)
    if gathered.problem:
        return f"({gathered.problem})"
    return " ".join(f"{c.name}:{','.join(f'{k}={v}' for k, v in c.named.items())}" for c in gathered.calls)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # added up: pieces in any form
        ("[f(a=1)]\n[g(b=2)]", "f:a=1 g:b=2"), ("f(a=1); g(b=2)", "f:a=1 g:b=2"),
        ("['f(a=1)', 'g(b=2)']", "f:a=1 g:b=2"), ("[f(a=1), g(b=2)", "f:a=1 g:b=2"),
        ("[f(a=1), g(b=2]", "f:a=1 g:b=2"), ("First:\n[f(a=1)]\nSecond:\n[g(b=2)]", "f:a=1 g:b=2"),
        ("1. f(a=1)\n2. g(b=2)", "f:a=1 g:b=2"), ("x = f(a=1)\ny = g(b=2)", "f:a=1 g:b=2"),
        ("I call f(a=1) and later g(b=2).", "f:a=1 g:b=2"),
        ("[f(a=1)]\n\nf(a=1)\ng(b=2)", "f:a=1 f:a=1 g:b=2"),
        ('{"name": "f", "arguments": {"a": 1}}\n{"g": {"b": 2}}', "f:a=1 g:b=2"),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', "f:a=1"), ("f(a=1).get('b')[0]", "f:a=1"),
        ('{"calls": [{"name": "f", "arguments": {"a": 1}}]}', "f:a=1"),
        ("<function=f><parameter=a>1</parameter></function>", "f:a=1"), ('f\n{"a": 1}', "f:a=1"),
        ("Action: f\nAction Input: {'a': 1}\nAction: g\nAction Input: {'b': 2}", "f:a=1 g:b=2"),
        ("[get\\_time(the\\_city='x')]", "get_time:the_city=x"),
        # mentions
        ("[f(a=1)], where f(a=2) would be wrong", "f:a=1"), ("With f() or f(a, b): [f(a=1)]", "f:a=1"),
        ("[f(a=1)] and also g(b=2)", "f:a=1 g:b=2"), ("[f(a=1)]. Later you need g(b=2) too.", "f:a=1 g:b=2"),
        ("[f(a=1)]\n# not needed: g(b=2)", "f:a=1"), ("def f(a=1):\n    ...\n[f(a=2)]", "f:a=2"),
        ('{"name": "f", "description": "d", "parameters": {"properties": {}}} [f(a=1)]', "f:a=1"),
        # what is repeated, what is corrected
        ("[f(a=1)]\nThat is:\nf(a=1)", "f:a=1"),
        ("f(a=1) first.\ng(b=2) later.\nSo: [f(a=1), g(b=2)]", "f:a=1 g:b=2"),
        ("[f(a=1)]\nIn full:\n[f(a=1), g(b=2)]", "f:a=1 g:b=2"),
        ("[f(a=1), f(a=1)]", "f:a=1 f:a=1"), ("[f(a=1)]\n[f(a=1)]", "f:a=1 f:a=1"),
        ("[f(a=1)] no, [f(a=2)]", "f:a=2"), ("Draft: [f(a=1)]\n**Final answer:** [f(a=2)]", "f:a=2"),
        ("[f(a=1)] and the final velocity: [g(b=2)]", "f:a=1 g:b=2"), ("[f(a=1)] or [f(a=2)]", "f:a=1 f:a=2"),
        # functions that are not known
        ("[f(a=1), h(c=3)]", "f:a=1 h:c=3"), ("f(a=1)\nh(c=3)", "f:a=1 h:"),
        ("[f(a=1)]. I used sqrt(16)", "f:a=1"),
        ("[f(a=1)]\nThen:\n[h(c=3)]", "f:a=1 h:c=3"), ("[f(a=1)]\nThe urls are [path('', x)]", "f:a=1"),
        ("run([f(a=1)])", "f:a=1"), ("print(f(a=1))", "f:a=1"), ("[h(c=3)]", "h:c=3"),
        # what cannot be told
        ("", "(no call of a function)"), ("f", "(no call of a function)"),
        ("h(f(a=1))", "(no call of a function)"),
        ("[f(a=1), g(b=", "(a call that does not end)"), ("[f(a=1), g(b=2", "(a call that does not end)"),
        ("[f(a=1),", "(a list of calls that is cut short)"),
        ("[f(a=1), ge", "(a list of calls that is cut short)"),
        ("[f(a=1) for x in y]", "(a comprehension)"), ("[f(a: 1)]", "(a call that is not Python)"),
        ("[f(a=1)]()", "(a list that is called)"),
        ("<function=f>a=1</function>", "(a tag that cannot be read)"),
    ],
)  # fmt: skip
def test_gathering(text: str, expected: str) -> None:
    assert shown(text) == expected


PIECES = [
    "(", "[", "{", "'", '"', "f(", "f(a=", "[f(a=", "['", '["', '{"', "{'a':", "f('", "a", "a.", "f()",
    "f(a=1)", "f(a=1) x ", "f(a=1) no, ", "[f(a=1)] x ", "h(a=1) x ", "h(f(", "<function=f>", "<parameter=a>",
    "x=", "1. ", "f(a=-", "f(a=(", "1+", "f(a=1)[0].a ", '[{"name": "f", "arguments": {"a": 1}}] x ',
    '{"a":{"a":', "```", "f(a=9**9**9) ", "[f(x y) ", "final\n", "\\_", "f(a='\\",
    "<function=f>" + "<parameter=a>" * 1400 + "</function>",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_a_moment(piece: str) -> None:
    text = piece * (MEGABYTE // len(piece))
    began = time.perf_counter()
    gathered = gather(text, NAMES)
    assert time.perf_counter() - began < 5  # 0.3 s on an idle core
    assert len(gathered.source) <= calls.MOST_TEXT * 2


def test_the_work_is_bounded_by_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """However brackets nest, what is read and parsed ends soon after the limit."""
    for piece in ("f(", "[", "f(a=(", "h(f(", "[f(a=1)] x ", "[f(x y) ", "<function=f>", '{"a":{"a":'):
        scan = calls._Scan((piece * calls.MOST_TEXT)[: calls.MOST_TEXT], NAMES)
        list(scan.pieces(0, calls.MOST_TEXT))
        assert calls._MOST_READINGS - scan.readings < 500_000, piece
    monkeypatch.setattr(calls, "_MOST_READINGS", 300)
    assert shown("[f(a=1)] " * 9) == "(too much, or too tangled, to read)"


@pytest.mark.parametrize("depth", [10, 30, 100, 300, 900, 3000, 9000])
@pytest.mark.parametrize(
    "text",
    [
        "<function=f>{'a': %s}</function>", '<function=f>{"a": %s}</function>', "f(a=%s)", "['f(a=%s)']",
        '{"name": "f", "arguments": "{\\"a\\": %s}"}', '{"f": {"a": %s}}', "%s f(a=1)", "['%s f(a=1)']",
    ],
)  # fmt: skip
def test_no_depth_is_too_deep(text: str, depth: int) -> None:
    reply = text.replace("%s", "[" * depth + "]" * depth)
    assert gather(reply, NAMES) == gather(reply, NAMES)
    assert gather(f"{reply} {reply}", NAMES).source is not None


def test_only_the_end_of_a_long_reply_counts() -> None:
    assert shown("[f(a=1)]" + " " * calls.MOST_TEXT + "[g(b=2)]") == "g:b=2"
