"""The math verifier: the rules for numbers, expressions through math-verify, the benchmark's references and
mutations of them.
"""

import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest
from conftest import shared
from hypothesis import given, settings
from hypothesis import strategies as st

from smopd.data import Example, load_examples
from smopd.verify import tasks, workers
from smopd.verify.tasks.math import TIMEOUT, _is_number, judge
from smopd.verify.verifiers import Verdict, verify


def asked(value: str, question: str = "goal") -> Example:
    return Example("t", "math", "", ("goal",), question, {"value": value})


def math(value: str, text: str) -> Verdict:
    return verify(asked(value), text)


@pytest.fixture(params=["reader", "strict"])
def rule(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both rules for numbers."""
    tasks.use_rules({"math": request.param})
    yield request.param
    tasks.use_rules({})


# What only the last number gives: an answer to a reader are neither lists nor differences, and words are.
STRICT = {"3, 4", "3,4", "1,23", "1,2345", "1234,567", "10-3", "10 - 3", r"\boxed{3 and 7", r"\boxed{3, 18}"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("18", "The answer is 18."), ("18", "18.0"), ("18.0", "It is 18"), ("1234.5", "$1,234.50"),
        ("1,234", "1234"),
        ("$5", "5"),
        ("5", "$5"), ("100", "$100.00"), ("50", "50%"), ("50%", "50"), ("4", "3, 4"), ("4", "3,4"),
        ("23", "1,23"),
        ("2345", "1,2345"),
        ("1234567", "1,234,567 people."), ("567", "1234,567"), ("-3", "x = -3"), ("-3", "-3"),
        ("-3", "It is \u22123."),
        ("3", "10-3"),
        ("3", "10 - 3"), ("-5", "-$5"), ("-5", "$-5"), ("3/4", "0.75"), ("0.75", "3/4"),
        ("0.75", "6/8 of it"), ("-0.75", "-3/4"),
        ("0.5", "is .5"), ("5", "wait...5"), ("0", "3/0"), ("1000", "1e3"), ("0.001", "1e-3"),
        ("18", r"\boxed{18} apples, not 20"),
        ("18", r"\boxed{17}, no: \boxed{18}. 3 steps"), ("18", r"$\boxed{\$18.00}$"),
        ("18", r"\boxed{x = {18}} 7"),
        ("5", r"\boxed{\boxed{5}} 6"),
        ("1234", r"\boxed{1{,}234}"), ("0.75", r"\boxed{\dfrac{3}{4}}"), ("-0.75", r"is $-\frac{3}{4}$"),
        ("18", r"\boxed{18\text{ cm}^2}"),
        ("7", r"\boxed{3 and 7"), ("7", r"\boxed{} 7"), ("18", "18 <think>no, 19</think>"),
        ("18", "<think>19</think>18<think>20</think>"),
        ("2", "1<think></think>2"), ("19", "18 <think>no, 19"), ("18", "so it is 20</think>18"),
        ("18", "**18**"), ("18", "18kg"),
    ],
)  # fmt: skip
def test_right_number(value: str, text: str, rule: str) -> None:
    verdict = math(value, text)
    assert verdict.correct is (rule == "strict" or text not in STRICT), verdict
    assert verdict.status == "ok"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("18", "17"), ("18", "18 or 19"), ("123", "1,23"), ("34", "3, 4"), ("1", "$100.00"), ("3", "-3"),
        ("-3", "10-3"),
        ("18", "18.01"),
        ("0.333333333333333333", "1/3"), ("18", r"\boxed{19} 18"), ("18", "1e999999999"),
        ("18", "9" * 100_000),
        ("1", "1e" + "9" * 100_000),
        ("18", "1.8"), ("12345", "1,2345"), ("0.18", "18%"),
    ],
)  # fmt: skip
def test_wrong_number(value: str, text: str, rule: str) -> None:
    verdict = math(value, text)
    assert (verdict.correct, verdict.status) == (False, "ok")
    assert verdict.extracted is not None


@pytest.mark.parametrize(
    "text", ["", "no idea", r"\boxed{x}", "<think>18</think>", "eighteen.", "18</think>"]
)
def test_no_number(text: str, rule: str) -> None:
    verdict = math("18", text)
    if rule == "reader" and text == "eighteen.":
        assert verdict.correct
        return
    assert (verdict.correct, verdict.extracted, verdict.status) == (False, None, "no_answer")


@pytest.mark.parametrize("value", ["none", "", "Evelyn", "9" * 100_000, "x+" * 300 + "1"])
def test_a_reference_that_cannot_be_used_is_an_error(value: str) -> None:
    assert math(value, "18").status == "error"


def test_the_reference_of_gsm8k_as_it_is(rule: str) -> None:
    assert math("She has 3 + 4 = <<3+4=7>>7 eggs.\n#### 7", "It is 7.").correct


@given(st.decimals(-(10**9), 10**9, places=3))
def test_every_spelling_of_a_number_is_that_number(value: Any) -> None:
    for spelling in (f"{value}", f"{value:,}", f"${value:,}", f"\\boxed{{{value}}} 77"):
        assert math(str(value), f"So 3 and 4 make {spelling}.").correct
    assert not math(str(value + 1), f"The answer is {value:,}.").correct


# --- expressions
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("6", r"\boxed{2\cdot 3}"), ("1.75", r"\boxed{\frac{3}{4}+1}"),
        ("4", r"So $\boxed{\sqrt{16}}$. 3 steps."),
        ("2.5", r"\boxed{2\frac{1}{2}}"), ("1500", r"\boxed{\$1,200 + \$300}"),
        ("1500", r"\boxed{1.5 \times 10^{3}}"),
        ("120", r"\boxed{5!}"), ("1024", r"\boxed{2^{10}}"), ("1,024", r"\boxed{x = 2^{10}}"),
        ("-2", r"\boxed{3-5}"),
        ("18", r"\boxed{3+14}, no: \boxed{3+15}"), ("6", r"\boxed{\boxed{2\cdot 3}}"),
        ("0.001", r"\boxed{10^{-3}}"),
        ("12", r"\boxed{3×4}"),
        (r"\frac{\sqrt{3}}{2}", r"$\boxed{\sqrt{3}/2}$"),
        (r"\frac{\sqrt{3}}{2}", r"\boxed{\frac{\sqrt{3}}{2}}"),
        ("x+1", r"\boxed{1+x}"), ("x+1", "The answer is $1+x$."), ("x+1", r"Hence \(1 + x\)."),
        ("x+1", "x + 1"),
        ("(x+1)^2", r"\boxed{x^2+2x+1}"), ("y=2x+1", r"\boxed{2x+1}"), ("(1,2)", r"\boxed{(1, 2)}"),
        ("(5,3)", r"\boxed{(5,2+1)}"), ("(5,3)", r"\boxed{(x,y)=\left(5,3\right)}"),
        ("[1,2)", r"\boxed{[1,2)}"), ("1,-2", r"\boxed{-2, 1}"),
        (r"\{1,2\}", r"\boxed{\{2,1\}}"), (r"\text{Friday}", r"\boxed{\text{Friday}}"),
        (r"2\pi", r"\boxed{\pi + \pi}"),
        (r"\frac{3}{4}", "0.75"), ("2+3i", r"\boxed{3i+2}"),
    ],
)  # fmt: skip
def test_right_expression(value: str, text: str) -> None:
    verdict = math(value, text)
    assert (verdict.correct, verdict.status) == (True, "ok"), verdict


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("7", r"\boxed{2\cdot 3}"), ("3", r"\boxed{2\cdot 3}"), ("18", r"\boxed{3+18}"), ("5", r"\boxed{5!}"),
        ("10", r"\boxed{2^{10}}"),
        (r"\frac{\sqrt{3}}{2}", r"\boxed{\frac{\sqrt{2}}{2}}"), (r"\frac{\sqrt{3}}{2}", r"\boxed{2}"),
        ("x+1", r"\boxed{x+2}"),
        ("x+1", r"\boxed{y+1}"), ("x+1", "$x+1$, no: $x+2$"), ("(1,2)", r"\boxed{(2,1)}"),
        ("(5,3)", r"\boxed{(5,2)}"),
        ("(5,3)", r"\boxed{(6,3)}"), ("(5,3)", r"\boxed{[5,3]}"), ("(5,3)", r"\boxed{(5,3,0)}"),
        ("(5,3)", r"\boxed{\emptyset}"),
        ("[1,2)", r"\boxed{[1,2]}"), ("1,-2", r"\boxed{1,2}"), ("x+1", r"\boxed{" + "x+" * 500 + "1}"),
        ("x+1", r"\boxed{x+}"),
        (r"\text{Friday}", r"\boxed{\text{Monday}}"),
    ],
)  # fmt: skip
def test_wrong_expression(value: str, text: str) -> None:
    verdict = math(value, text)
    assert (verdict.correct, verdict.status) == (False, "ok"), verdict
    assert verdict.extracted
    assert verdict.detail


@pytest.mark.parametrize("text", ["", "no idea", "<think>$x+1$</think>", r"\boxed{}"])
def test_no_expression(text: str) -> None:
    verdict = math("x+1", text)
    assert (verdict.correct, verdict.extracted, verdict.status) == (False, None, "no_answer")


@pytest.mark.parametrize(
    "text",
    [
        "18", r"\boxed{18}", r"\boxed{18\text{ apples}}", r"\boxed{x=18}", r"\boxed{\$18}", r"\boxed{18\%}",
        r"\boxed{18\text{ cm}^2}",
        r"\boxed{18 cm^2}", r"\boxed{18 \text{ km}/\text{h}}", r"\boxed{18^\circ}", r"\boxed{\frac{36}{2}}",
        r"\boxed{36/2 apples}",
        r"\boxed{x = 3 + 15 = 18}", r"\boxed{\approx 18}", r"\boxed{\text{3 + 15 makes } 18}",
        r"\boxed{\left(18\right)}",
        r"\boxed{3, 18}", r"\boxed{x^2} 18", r"2\cdot 9 = 18", r"\boxed{18 + }",
        r"\boxed{18 \, \frac{\text{km}}{\text{h}}}",
        r"\boxed{18\frac{km}{h}}",
        r"\boxed{18^{\text{th}}}", r"\boxed{18^{th}}", r"\boxed{\pm 18}", r"\boxed{\mathbf{18}}",
    ],
)  # fmt: skip
def test_a_number_is_judged_by_the_rule_for_numbers_alone(text: str, rule: str) -> None:
    verdict = judge(asked("18"), text)
    assert isinstance(verdict, Verdict), "asked math-verify"
    assert verdict.correct is (rule == "strict" or text not in STRICT)


def test_what_math_verify_cannot_read_falls_back_on_the_last_number(rule: str) -> None:
    assert isinstance(judge(asked("18"), r"\boxed{3 + 15) = (18+}"), Verdict)
    text = r"\boxed{3+15 \text{ or so} \undefined{} (18}"
    assert not isinstance(judge(asked("18"), text), Verdict)
    assert (math("18", text).correct, math("18", text).extracted) == (True, "18")


NUMBERS = ["18", "$5", "50%", "1,234", "x=18", "18 apples", "3/4", r"\frac{3}{4}", "-3", "1e3", "18kg",
    "18 cm^2", "5 km/h",
           "18 a day",
           r"18\text{ cm}^2", "3 and 4 make 7", r"90^\circ", "12:30", "18-hole", r"\$18", r"10\%", "\u221218",
           "x = 3 + 15 = 18"]  # fmt: skip
EXPRESSIONS = [r"\frac{\sqrt{3}}{2}", "x+1", "(1,2)", "2x", "1,2", "1,-2", "x^2", "2a+1", "a-1", r"2\pi", "x",
    "5!", "3+4",
               r"\{1,2\}",
               "[1,2)", r"2\frac{1}{2}", "2^{10}", r"\pm 3", "y=2x+1", r"\text{June 3}",
               r"\begin{pmatrix}1\\2\end{pmatrix}",
               "3i"]  # fmt: skip


@pytest.mark.parametrize("text", NUMBERS)
def test_references_that_are_numbers(text: str) -> None:
    assert _is_number(text)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_references_that_are_expressions(text: str) -> None:
    assert not _is_number(text)


@pytest.mark.parametrize(("limit", "power"), [(TIMEOUT, "9^{9^{9^{9}}}"), (1.0, "99999999999!")])
def test_what_hangs_is_ended_and_the_next_verdict_is_none_the_worse(
    limit: float, power: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr("smopd.verify.tasks.math.TIMEOUT", limit)
    assert math("6", r"\boxed{2\cdot 3}").correct  # the process is warm
    began = time.monotonic()
    verdict = math("5", f"\\boxed{{{power}}}")
    assert not verdict.correct
    assert verdict.status in ("timeout", "ok")
    assert time.monotonic() - began < limit + workers.GRACE
    monkeypatch.undo()
    assert math("6", r"\boxed{2\cdot 3}").correct


@settings(max_examples=60)
@given(st.integers(-99, 99), st.integers(1, 99), st.sampled_from([("+", 1), ("-", -1)]), st.integers(1, 9))
def test_sums_of_fractions(top: int, bottom: int, sign: tuple[str, int], more: int) -> None:
    value = Fraction(top, bottom) + sign[1] * more
    box = rf"\boxed{{\frac{{{top}}}{{{bottom}}} {sign[0]} {more}}}"
    assert math(str(value), box).correct
    assert not math(str(value + 1), box).correct


# --- the benchmark
def other_numbers(value: int) -> set[int]:
    """Numbers one slip away: off by one, sign, a digit changed, dropped or doubled, two swapped, a factor of
    ten.
    """
    digits = str(abs(value))
    slips = {value + 1, value - 1, -value, value * 10, value // 10, value + 10, value - 10}
    for at in range(len(digits)):
        slips |= {int(digits[:at] + d + digits[at + 1 :]) for d in "0123456789"} | {
            int(digits[:at] + digits[at] + digits[at:])
        }
        slips |= {
            int("0" + digits[:at] + digits[at + 1 :]),
            int(digits[:at] + digits[at : at + 2][::-1] + digits[at + 2 :]),
        }
    return slips - {value}


def test_lic_references_are_right_and_every_number_a_slip_away_is_not(rule: str) -> None:
    mutants = 0
    for example in load_examples(shared("data/lic/math.json")):
        value = int(example.answer["value"].replace(",", ""))
        for right in (
            f"The answer is {value:,}.",
            f"3 steps. **${value}.00**",
            rf"\boxed{{{value}}} in 2 steps",
        ):
            assert verify(example, right).correct, example.id
        for wrong in other_numbers(value):
            for text in (f"The answer is {wrong}.", rf"\boxed{{{wrong:,}}}, for {value} is too easy"):
                assert not verify(example, text).correct, (example.id, text)
                mutants += 1
    assert mutants > 2000


def test_lic_references_as_expressions(rule: str) -> None:
    for example in load_examples(shared("data/lic/math.json"))[:25]:
        value = int(example.answer["value"].replace(",", ""))
        assert verify(example, rf"\boxed{{{value - 7} + 7}}").correct, example.id
        assert not verify(example, rf"\boxed{{{value} + 7}}").correct, example.id


def test_pocket_world_answers(rule: str) -> None:
    examples = [e for e in load_examples("pocket:eval:40") if e.task == "math"]
    assert examples
    for example in examples:
        value = int(example.answer["value"])
        assert verify(example, f"start 4; noon + 2 = 6. That makes {value}.").correct
        assert not verify(example, f"start 4; noon + 2 = 6. That makes {value + 1}.").correct
