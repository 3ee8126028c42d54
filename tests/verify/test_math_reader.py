"""Numbers as they are written, what a question asks for, which number of a reply is read; real replies."""

import time
from fractions import Fraction

import pytest

from smopd.data import Example
from smopd.verify.math import numbers, reader
from smopd.verify.math.question import asked
from smopd.verify.verifiers import verify

TURTLE = "A turtle crawls 3 feet per second. How many feet can it crawl in 40 seconds?"


# --- numbers
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,234.50 and 70 000", ["1234.5", "70000"]), ("1\u00a0250\u00a0000", ["1250000"]),
        ("1,00,000", ["100000"]),
        ("70.000", ["70"]), ("3/4, 1 1/2, 2½ and ¾", ["3/4", "3/2", "5/2", "3/4"]), ("3 36/2", ["3", "18"]),
        ("1.2e3, 1.2 × 10^3, 2^10", ["1200", "1200", "1024"]),
        ("2 million, $2.5M, 70k", ["2000000", "2500000", "70000"]),
        ("5m and 5 km", ["5", "5"]), ("3:30 PM", ["7/2"]), ("-5, -$5, 10-3", ["-5", "-5", "10", "3"]),
        ("3rd and 5-pound", ["3", "5"]), ("50% or 50 percent", ["50", "50"]),
        ("5 100 200 3000", ["5", "100", "200", "3000"]),
    ],
)  # fmt: skip
def test_numbers_in_digits(text: str, values: list[str]) -> None:
    assert [number.value for number in numbers.find(text)] == [Fraction(value) for value in values]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("eighteen", [18]), ("twenty-five", [25]), ("one hundred and twenty", [120]), ("a hundred", [100]),
        ("three million five hundred thousand", [3_500_000]), ("two and a half", [2.5]),
        ("someone, often", []),
        ("two three", []), ("three-tenths, nine point eight", []),
    ],
)  # fmt: skip
def test_numbers_in_words(text: str, values: list[float]) -> None:
    assert [number.value for number in numbers.find_words(text)] == values


# --- questions
@pytest.mark.parametrize(
    ("question", "units"),
    [
        (TURTLE, {"foot"} | {"feet"}), ("How many hash browns can you make?", {"brown"}), ("goal", set()),
        ("How many rows of 5 stars are there?", {"row"}),
        ("How many of the animals are chickens?", {"chicken"}),
        ("How much dog food do they eat?", {"food"}),
        ("What percentage is left?", {"%", "percent", "percentage"}),
        ("A hat is $5. How much change does he get?", {"$", "dollar", "cent", "penny", "euro", "buck"}),
        ("How much, in minutes, does it take?", {"minute"}),
        ("How many dozen eggs does she need?", {"dozen"}),
    ],
)  # fmt: skip
def test_what_a_question_asks_for(question: str, units: set[str]) -> None:
    assert asked(question).units & units == asked(question).units
    assert bool(asked(question).units) == bool(units)


# --- replies
@pytest.mark.parametrize(
    ("text", "value", "how"),
    [
        ("So the turtle crawls 120 feet in 40 seconds.", 120, "closing"),
        ("The answer is 120. It took 40.", 120, "declared"),
        ("The answer is **120** (which is 12 times 10).", 120, "declared"),
        ("#### 120\n40 seconds", 120, "declared"), ("#### 3. Multiply\n3 * 40 = 120", 120, "closing"),
        (r"\boxed{120} in 40 seconds", 120, "boxed"),
        ("Answer: The speed is 3.\nSo it is 120 feet.", 120, "closing"),
        ("The answer is 90. Wait, it is 120 feet.", 120, "closing"),
        ("The answer is 120.\n\nQ: And 5?\nThe answer is 15.", 120, "declared"),
        ("The answer is 5-6.", None, "declared"), ("The answer is 3 + 40.", None, "declared"),
        ("So it is 4, 5 or 6.", None, "closing"),
        ("It crawls 90 feet.\n1. Note\n2. End", 90, "closing"), ("There are no feet left.", 0, "closing"),
        ("Step 3 is all.", None, None),
    ],
)  # fmt: skip
def test_which_number_is_read(text: str, value: int | None, how: str | None) -> None:
    reading = reader.read(TURTLE, text)
    assert (reading and reading.value, reading and reading.how) == (value, how)


@pytest.mark.parametrize(
    "text",
    [
        "Is it 18?", "I assume 18?", "You did not say how many. I assume 18?", "16 - 7 = 9.\nI assume $18?",
        "So she makes 18 dollars, right?", "Is the answer 18?", "I think the answer is 18?", "**Is it 18?**",
        "Is it eighteen?", "How many eggs are left? Is it 18?", "I assume 18? Please confirm.",
        "I assume 18?! Let me know if that is wrong.", "I assume 18? :)", "Is the answer 18? Please tell me.",
        "I assume 18? How much does an egg cost?",
        "I assume 18?\n\n---",
    ],
)  # fmt: skip
def test_a_reply_that_ends_by_asking_back_has_no_answer(text: str) -> None:
    example = Example("e", "math", "", ("goal",), "How many dollars does she make?", {"value": "18"})
    verdict = verify(example, text)
    assert (verdict.correct, verdict.status) == (False, "no_answer")


@pytest.mark.parametrize(
    "text",
    [
        "How many are left? 18.", "How much is 9 * 2? 18", "How many dollars?\n18", "How many? Eighteen.",
        "How much does she make for 9 eggs? She makes 18 dollars.", "Is it \\boxed{18}?",
        "The answer is 18. Does 18 sound right?", "She makes 18 dollars. Is that right?",
        "She makes 18 dollars. Is that the one you meant?",
        "She makes 18 dollars. Would you like to see steps 1 to 3?",
    ],
)  # fmt: skip
def test_a_question_that_the_reply_answers_or_adds_takes_no_answer_away(text: str) -> None:
    example = Example("e", "math", "", ("goal",), "How many dollars does she make?", {"value": "18"})
    assert verify(example, text).correct


def test_the_verdict_says_how_the_answer_was_taken() -> None:
    example = Example("t", "math", "", ("goal",), TURTLE, {"value": "120"})
    verdict = verify(example, "The answer is 12. 120 would be too much.")
    assert (verdict.correct, verdict.extracted) == (False, "12")
    assert verdict.detail == "expected 120; took the declared answer"


@pytest.mark.parametrize(
    "piece",
    ["1", "1,", "1,23,", "1 000 ", "(", "{", "\\boxed{", "twenty-", "hundred and ", "the answer is ",
     "the answer ", "#### 1\n", "1 1/", "A. ", "1. ", "wait ", "Q: ", "1 or ", "1 = ", "\\frac{1}{2}",
     "**1** ", "so 1, so "],
)  # fmt: skip
def test_a_megabyte_is_read_in_little_time(piece: str) -> None:
    example = Example("t", "math", "", ("goal",), TURTLE, {"value": "918273645"})
    began = time.process_time()
    assert not verify(example, piece * ((1 << 20) // len(piece))).correct
    assert time.process_time() - began < 3  # a tenth of that on an idle machine
