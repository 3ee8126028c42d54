r"""The task math: numbers are judged by one of two rules, expressions by math-verify in a worker process.

The rule "reader" takes the answer a careful reader would take (`smopd.verify.math`); "strict" takes what
LiC takes: the number of the last box, otherwise the last number of the text. math-verify is used only if one
side is no plain number: a reference such as \frac{\sqrt{3}}{2}, or a box such as \boxed{2\cdot 3}.
Finding an answer takes linear time and never raises. Expressions outside boxes, dollars etc. are not found.

    user       How many apples are left?
    assistant  I assume there were 10 and 3 were eaten: 7.
    user       There were 7.
    user       Two were eaten.
    assistant  7 - 2 = 5, so 5 apples are left.
    answer     {"value": "5"}
"""

import logging
import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from fractions import Fraction
from typing import Any

from smopd.verify import tasks, workers
from smopd.verify.math import numbers, reader
from smopd.verify.math.choice import Reading
from smopd.verify.task import Judged, Record, Task
from smopd.verify.verdict import Verdict

TIMEOUT = 5.0  # seconds for one comparison of expressions
KIND = workers.Kind(__name__)
SYSTEM = (
    "You solve math problems. The user may reveal the problem over several messages. Work step by step from "
    "everything the user has said, and finish with a line of the form: The answer is <number>."
)
_MOST_CHARACTERS = 500  # of an expression; longer ones are no answer
_TAIL = 2000  # characters at the end of a reply without a box that are searched for an expression

# A comma counts only before groups of three digits, a leading point only if no word or number precedes.
_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]++)"
_UNSIGNED = rf"(?:{_DIGITS}(?:\.[0-9]++)?|(?<![\w.])\.[0-9]++)(?:[eE][-+]?[0-9]++)?"
_NUMBER = re.compile(  # a minus is a sign unless it could subtract from what stands right before it
    rf"(?P<sign>(?<![\w)\]}}%])[-\u2212])?[$€£¥]?(?P<top>{_UNSIGNED})(?:/(?P<bottom>{_UNSIGNED}))?"
)
_BOXED = re.compile(r"\\[{}]|(?P<open>(?:\\boxed\s*+)?\{)|(?P<close>\})")
_FRAC = re.compile(r"(?<![0-9])\\[dt]?frac\s*+\{\s*+(-?[0-9.]++)\s*+\}\s*+\{\s*+([0-9.]++)\s*+\}")
_POWER = re.compile(r"(?<=[A-Za-z}])\^(?:[0-9]++|\{[0-9]++\})")


def judge(example: Judged, text: str) -> Verdict | workers.Job:
    answer = example.answer
    reference = str(answer.get("value", "")).rpartition("####")[2].strip()  # GSM8K's answers end in "#### n"
    if not _is_number(reference):
        return _judge_expression(reference, text)
    if tasks.rule("math") == "strict":
        expected, reading = _read_strictly(reference), _read_strictly(text)
        right = expected.value if expected else None
    else:
        *_, right = [None, *(number.value for number in numbers.find(numbers.plain(reference)))]
        reading = reader.read(str(getattr(example, "full", "")), text)
    if right is None:
        return Verdict(False, None, "error", "the reference answer holds no number")
    if reading is None:
        return Verdict(False, None, "no_answer", "no number in the reply, or it asks back")
    correct = reading.value == right
    took = f"took the {reading.how} answer"
    took = took if reading.value is not None else "several numbers, a range, a sum or too long a number"
    verdict = Verdict(correct, reading.text, "ok", "" if correct else f"expected {right}; {took}")
    return _compare_box(_plain(reading.box, powers=True), right, verdict)


def _compare_box(box: str, right: Fraction, verdict: Verdict) -> Verdict | workers.Job:
    """Return the verdict or, if the box holds an expression, a job that compares it in a worker."""
    if not box or len(box) > _MOST_CHARACTERS or not _OPERATED.search(_bare(box)):
        return verdict
    candidate = re.sub(r"(?<=[0-9]),(?=[0-9]{3})|[$€£¥%]", "", _right_side(box))
    call = {"reference": str(right), "candidate": candidate, "shown": box, "otherwise": asdict(verdict)}
    return workers.Job(KIND, call, TIMEOUT, extracted=box)


def _judge_expression(reference: str, text: str) -> Verdict | workers.Job:
    readable = re.search(r"[0-9\\]|(?<![A-Za-z])[A-Za-z]{1,2}(?![A-Za-z])", reference)
    if not readable or len(reference) > _MOST_CHARACTERS:
        return Verdict(False, None, "error", "the reference answer holds neither a number nor an expression")
    box = _last_box(text)
    box_text = text[box].strip() if box else ""
    candidate = box_text or text[-_TAIL:].strip()
    if len(box_text) > _MOST_CHARACTERS:
        return Verdict(False, box_text[:_MOST_CHARACTERS], "ok", "the answer is too long for an expression")
    if not candidate:
        return Verdict(False, None, "no_answer", "no answer in the reply")
    if "".join(candidate.split()) == "".join(reference.split()):
        return Verdict(True, candidate, "ok", "")
    call = {"reference": reference, "candidate": candidate, "shown": candidate, "boxed": bool(box_text)}
    return workers.Job(KIND, call, TIMEOUT, extracted=box_text or None)


# --- numbers, as the rule "strict" reads them
def _plain(text: str, powers: bool = False) -> str:
    r"""Rewrite LaTeX spellings of numbers; without `powers`, drop x^2 and \text{cm}^2 as well."""
    for latex, plain in (("{,}", ","), ("\\!", ""), ("\\$", "$"), ("\\%", "%")):
        text = text.replace(latex, plain)
    text = numbers.THIN_SPACE.sub("", text)
    return _FRAC.sub(r"\1/\2", text if powers else _POWER.sub("", text))


def _read_strictly(text: str) -> Reading | None:
    """Return the number of the last box that holds one, otherwise the last number of the text."""
    plain = _plain(text)
    matches = list(_NUMBER.finditer(plain))
    if not matches:
        return None
    starts = [match.start() for match in matches]
    box = _last_box(plain, starts)
    number = matches[bisect(starts, box.stop) - 1 if box else -1]
    value = numbers.quotient(number["top"], number["bottom"])
    value = -value if value is not None and number["sign"] else value
    plain = _plain(text, powers=True)
    box = _last_box(plain, [match.start() for match in re.finditer("[0-9]", plain)])
    return Reading(value, number[0], "last", plain[box].strip() if box else "")


# --- telling numbers from expressions
_RELATION = re.compile(r"=|≈|\\approx(?![A-Za-z])")
_TEXT = re.compile(r"\\(?:text(?:bf|rm)?|mathrm|mbox|operatorname)\s*+\{[^{}]*+\}(?:\^(?:[0-9]|\{[0-9]\}))?")
_UNIT = re.compile(  # cm^2, degrees, 18^{th}, and what a fraction of units leaves
    r"(?<![A-Za-z\\])(?:[mcdk]?m|ft|in|yd|mi|s)\^(?:[23]|\{[23]\})|°"
    r"|\^\s*+(?:\\circ|\{\s*+(?:\\circ|st|nd|rd|th)?\s*+\})"
    r"|\\[dt]?frac\s*+\{\s*+(?:[A-Za-z]{2,})?\s*+\}\s*+\{\s*+[A-Za-z]*+\s*+\}"
)
_DRESS = re.compile(r"[$€£¥%]|\\(?:left|right|displaystyle|boxed|quad)(?![A-Za-z])|\\[,;:! ]|~")
_BINARY = r"(?:[-+*/^×÷·\u2212]|\\(?:cdot|times|div)(?![A-Za-z]))"
_FUNCTION = r"\\(?:sqrt|[dt]?frac|[dt]?binom|pi|log|ln|exp|sin|cos|tan|sum|prod|infty)(?![a-z])"
# In a reply's box a letter is a unit. In a reference it may be a variable, and next to an operator it is.
_OPERATED = re.compile(rf"{_FUNCTION}|[0-9)}}\]!]\s*+{_BINARY}\s*+[-\u2212]?[0-9.({{\\]|[0-9)}}]!")
_LETTERED = re.compile(
    r"\\pm(?![a-z])|(?<![A-Za-z\\])(?:[xyznki](?![A-Za-z])|[A-Za-z]\s*+[-+*/^]\s*+[0-9({\\])"
    r"|[0-9)}]\s*+[-+*]\s*+[a-z](?![A-Za-z])"
)
_SEVERAL = re.compile(r"[0-9)}\]]\s*+,\s*+[-(\[]?[0-9]|\\[{}]")


def _is_number(reference: str) -> bool:
    bare = _bare(_plain(reference, powers=True))
    if re.search(r"[0-9]", bare) is None:
        return re.search(r"[0-9]", reference) is not None and "\\" not in reference
    if "\\begin" in bare:
        return False
    has_words = re.search(r"(?<![A-Za-z\\])[A-Za-z]{3,}", bare) is not None
    if _OPERATED.search(bare) or _LETTERED.search(bare):
        return has_words and "\\" not in bare  # in prose with a calculation the last number counts
    return has_words or not _SEVERAL.search(bare)


def _bare(text: str) -> str:
    """Return the right side without texts, units and currencies, and every number replaced by 0."""
    return _NUMBER.sub("0", _DRESS.sub(" ", _UNIT.sub("", _TEXT.sub("", _right_side(text)))))


def _right_side(text: str) -> str:
    return next((part for part in reversed(_RELATION.split(text)) if part.strip()), text)


def _last_box(text: str, places: Sequence[int] | None = None) -> slice | None:
    """Return where the last box is that is not empty or, if given, contains one of `places`."""
    for start, end in reversed([*numbers.boxes(text, _BOXED)]):
        if start < end if places is None else bisect(places, start - 1) < bisect(places, end):
            return slice(start, end)
    return None


# --- in the worker
def worker() -> Any:
    """Return the function that judges a job, warmed up before the time limit of a job starts."""
    logging.disable(logging.CRITICAL)  # math-verify warns that its own time limits are off
    compare("x+1", "1+x", "1+x")
    return compare


def compare(
    reference: str, candidate: str, shown: str, boxed: bool = True, otherwise: Mapping[str, Any] | None = None
) -> Verdict:
    """Compare two expressions by math-verify; `otherwise` is the verdict on an unreadable candidate."""
    from math_verify import verify

    wanted, members = _members(reference), _members(candidate) if boxed else None
    if wanted and members:
        # Two numbers in brackets are an interval to math-verify: (5,3) and (5,2), both empty, would be equal.
        alike = wanted[0] == members[0] and len(wanted) == len(members)
        parts = zip(wanted[1:], members[1:], strict=False)
        correct = alike and all(verify(_read(a), _read(b), timeout_seconds=None) for a, b in parts)
        return Verdict(correct, shown, "ok", "" if correct else f"expected {reference}")
    right, expressions = _read(reference), _read(candidate, boxed)
    if otherwise is not None and (not expressions or isinstance(expressions[0], str)):
        return Verdict(**otherwise)
    if not right:
        return Verdict(False, None, "error", "the reference answer cannot be read as an expression")
    if not expressions:
        return Verdict(False, None, "no_answer", "no expression in the reply")
    correct = bool(verify(right, expressions, timeout_seconds=None))
    correct = correct and not (wanted and str(right[0]) == "EmptySet")
    shown = shown if boxed else str(expressions[-1])[:_MOST_CHARACTERS]
    return Verdict(correct, shown, "ok", "" if correct else f"expected {reference}")


def _members(text: str) -> list[str] | None:
    """Return the brackets and the parts of a point, tuple or interval; None for anything else."""
    text = re.sub(r"\\(?:left|right)(?![A-Za-z])", "", _right_side(text)).strip()
    if text[:1] not in ("(", "[") or text[-1:] not in (")", "]"):
        return None
    depth, start, parts = 0, 1, list[str]()
    for at, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0 and at < len(text) - 1:
            return None  # the first bracket closes before the end: a product, a union
        if depth == 1 and sign == ",":
            parts.append(text[start:at])
            start = at + 1
    return [text[0] + text[-1], *parts, text[start:-1]] if parts and depth == 0 else None


def _read(text: str, boxed: bool = True) -> list[Any]:
    """Return math-verify's parse of a text: an expression, if it can, and the text it came from."""
    from math_verify import LatexExtractionConfig, parse

    if not boxed:  # no time limits, which use signals: here the parent kills the process instead
        return list(parse(text, parsing_timeout=None))
    latex = LatexExtractionConfig(boxed_match_priority=0)
    return list(parse(f"\\boxed{{{text}}}", [latex], parsing_timeout=None))


# --- examples
def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    answer = item["answer"]
    if not isinstance(answer, str) or "####" not in answer:
        raise item.error("answer", "expected a text that ends in '#### <number>'")
    return SYSTEM, item["question"], {"value": answer.rsplit("####", 1)[1].strip()}


def _plain_answer(value: Any) -> str:
    if isinstance(value, (list, bool)):
        raise ValueError("expected a number, a text or an object")
    text = str(value).rsplit("####", 1)[-1].strip()
    if not any(c.isdigit() for c in text):
        raise ValueError("expected a number or a text that ends in '#### <number>'")
    return text


TASKS = (Task(
    "math", ("value",), judge=judge, rules=("reader", "strict"),
    rules_meaning="reader: the answer a careful reader would take; strict: the last number, LiC's own",
    system=SYSTEM, from_lic=_from_lic, plain_answer=_plain_answer,
    answer_form="The answer is a number, with its unit if it has one.",
    reference_problem=lambda answer: None if any(c.isdigit() for c in str(answer["value"]))
    else "the reference answer holds no number",
    reference_replies=lambda answer: [f"The answer is {str(answer['value']).rpartition('####')[2].strip()}."],
),)  # fmt: skip
