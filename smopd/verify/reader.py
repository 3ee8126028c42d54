r"""Which of a reply's numbers is its answer, as a careful reader takes it. The last that applies of:

1. What is declared: a box, "#### 18", "the answer is 18", "Answer: 18", <answer>18</answer>. The last declaration counts,
   unless the reply takes it back ("Wait, ..."); no later number does.
2. The closing sentence: the last one with a number.
Where such a place holds several numbers, those are left aside, as long as others remain, that are operands, ordinals,
without the unit the question asks for, in an adjunct ("in 40 seconds"), or stated by the question; of what remains the first
of a declaration and the last of a closing sentence counts. A range and a sum that is not worked out are no answer.
A new question that the reply goes on to ask itself is not read.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from smopd.verify import numbers
from smopd.verify.numbers import Number
from smopd.verify.question import Asked, asked, stem

_WINDOW = 600  # characters of one sentence
_MOST_PLACES = 40  # declarations, or sentences from the end, that are looked at


@dataclass(frozen=True)
class Reading:
    """The answer: its value (None: no usable one, as of a range), its text, and how it was found."""

    value: Fraction | None
    text: str
    how: str
    box: str = ""  # what the box holds, where that is the answer


def value(written: str) -> Fraction | None:
    """The value of a text that is a number, or of the last one in it."""
    found = numbers.find(plain(written))
    return found[-1].value if found else None


def read(question: str, text: str) -> Reading | None:
    """The answer to a question in a reply; None where the reply holds no number."""
    wanted = asked(question)
    text = text[: _run_on(text)]
    declared = _declared(text, wanted)
    if declared is None:
        return _closing(text, wanted)
    reading, end = declared
    back = _TAKEN_BACK.search(text, end)
    return (back and _closing(text[back.start() :], wanted)) or reading


# --- where the reply goes on to another question
_NEXT_QUESTION = re.compile(
    r"^[ \t]*+(?:[#*]{1,4}[ \t]*+)?(?:(?:Question|Problem|Exercise|Example|Q)[ \t]*+[0-9]*+[ \t]*+:|Human:|User:|### ?(?:Instruction|Problem|Question))"
    r"|<\|(?:im_start|im_end|eot_id|endoftext|start_header_id)",
    re.MULTILINE,
)


def _run_on(text: str) -> int:
    """Where the first question begins after a declared answer."""
    first = _CUE.search(text)
    cut = first and _NEXT_QUESTION.search(text, first.end())
    return cut.start() if cut else len(text)


# --- declarations
_CUE = re.compile(
    r"^[ \t]*+\#{4}[ \t]*+(?=[-$€£\\0-9*])|<answer>"
    r"|(?<!\w)(?:the|my|our|your|final|correct|right|exact|numerical)\s++answers?\b(?P<gap>[^.!?\n:=]{0,60}?)"
    r"(?:\b(?P<verb>is|are|equals|would be|will be|comes to|should be)\b\s*+:?|(?P<label>:|=|[*_]{0,3}\s*+\n))"
    r"|^[ \t*_#>-]*+(?:answer|ans|solution|result)\b[*_ \t.]*+(?P<bare_label>:|=|\n)|^[ \t*_]*+(?-i:A)[*_]*+(?P<short_label>:)",
    re.IGNORECASE | re.MULTILINE,
)
_JUNK = re.compile(r"(?:[\s*_:#>`~\[(=]|\\[\[(]|\$(?=\\))*+")
_SENTENCE_END = re.compile(r"\n|[.!?](?=[\s)\]\"'*_}$\\]|$)|</answer>")
_MARKER = re.compile(r"(?:[-*•]|\(?[0-9]{1,2}[.)])[ \t]++(?=\S)")
_REFUSED = re.compile(r"\b(?:not|n't|wrong|incorrect|unknown|cannot|whether|if)\b", re.IGNORECASE)
_TIMES = re.compile(r"\s+times\b", re.IGNORECASE)
_TAKEN_BACK = re.compile(
    r"\b(?:wait|oops|hold on|correction|mistake|apologi[sz]e|actually|incorrect|let me (?:re|correct|fix|try)|"
    r"let's (?:re|correct)|not (?:right|correct))",
    re.IGNORECASE,
)
_BOX = re.compile(r"\\[{}]|(?P<open>(?:\\f?box(?:ed)?\s*+)?\{)|(?P<close>\})")


def _declared(text: str, wanted: Asked) -> tuple[Reading, int] | None:
    """The last declared answer and where it ends."""
    box = _last_box(text, wanted) if "box" in text else None
    cues = list(_CUE.finditer(text, box[0].end if box else 0))[-_MOST_PLACES:]
    for cue in reversed(cues):
        if found := _after(text, cue, wanted):
            return found
    return (box[1], box[0].end) if box else None


@dataclass(frozen=True)
class _Span:
    start: int
    end: int


def _last_box(text: str, wanted: Asked) -> tuple[_Span, Reading] | None:
    """The last box that holds a number."""
    boxes, open_braces = list[_Span](), list[re.Match[str]]()
    for token in _BOX.finditer(text):
        if token["open"]:
            open_braces.append(token)
        elif token["close"] and open_braces and (opened := open_braces.pop())["open"] != "{":
            boxes.append(_Span(opened.end(), token.start()))
    for span in reversed(boxes[-_MOST_PLACES:]):
        box = text[span.start : span.end]
        said = plain(box[-_WINDOW:])
        if found := numbers.find(said) or numbers.find_words(said):
            return span, replace(_choose(said, found, wanted, first=False, how="boxed"), box=box)
    return None


def _after(text: str, cue: re.Match[str], wanted: Asked) -> tuple[Reading, int] | None:
    start = cue.end()
    if junk := _JUNK.match(text, start):
        start = junk.end()
    below = "\n" in text[cue.end() - 1 : start]  # the answer stands below its heading
    if _REFUSED.search(cue["gap"] or "") or (below and _MARKER.match(text, start)):
        return None
    scope, end = _until_end(text, start)
    said = plain(scope)
    found = numbers.find(said) or numbers.find_words(said)
    if not found or found[0].start > 60 or _REFUSED.search(said[: found[0].start]) or _TIMES.match(said, found[-1].end):
        return None
    label = cue["label"] or cue["bare_label"] or cue["short_label"]
    if below or (label and len(said[: found[0].start].split()) > 3):
        # A solution may follow such a heading, not an answer: one number on the line, or the end of the reply.
        line = text[start : start + _WINDOW].partition("\n")[0]
        if len(numbers.find(plain(line))) > 1 and text[end:].strip(" .*_$\n)]}\\"):
            return None
    return _choose(said, found, wanted, first=True, how="declared"), end


def _until_end(text: str, start: int) -> tuple[str, int]:
    stop = _SENTENCE_END.search(text, start, start + _WINDOW)
    end = stop.start() if stop else min(len(text), start + _WINDOW)
    return text[start:end], end


# --- the closing sentence
_BOUNDARY = re.compile(r"\n|[.!?][)\]\"'*_}$]*\s+(?=[A-Z0-9\"'(*\\$\[])")
_MARKERS = re.compile(r"^[ \t#*>]*+\(?[0-9]{1,2}[.)][ \t]++(?=\S)", re.MULTILINE)
_CONCLUDES = re.compile(r"\W*(?:so|thus|therefore|hence|in (?:total|all|conclusion)|altogether|consequently)\b", re.IGNORECASE)


def _closing(text: str, wanted: Asked) -> Reading | None:
    return _last_sentence(_MARKERS.sub("", text), wanted) or _last_sentence(text, wanted)


def _last_sentence(text: str, wanted: Asked) -> Reading | None:
    end = len(text)
    digitless = not any(digit in text for digit in "0123456789")
    for _ in range(_MOST_PLACES):
        at = max(text.rfind(digit, 0, end) for digit in "0123456789")
        tail = text[max(at + 1, end - 2 * _WINDOW) : end]
        if end == len(text):
            words = _in_words(tail, wanted, digitless)
            if words:
                return words
        if at < 0:
            return None
        before = text[max(0, at - _WINDOW) : at]
        start = at - len(before) + max((match.end() for match in _BOUNDARY.finditer(before)), default=0)
        stop = _SENTENCE_END.search(text, at + 1, at + _WINDOW)
        said = plain(text[start : stop.start() if stop else at + _WINDOW])
        if found := _usable(said):
            return _choose(said, found, wanted, first=False, how="closing")
        end = start
    return None


def _in_words(tail: str, wanted: Asked, digitless: bool) -> Reading | None:
    """A conclusion in words, after the last digit; or any number where there are no digits at all."""
    for sentence in reversed(_BOUNDARY.split(tail)):
        if digitless or _CONCLUDES.match(sentence):
            said = plain(sentence)
            if found := numbers.find_words(said):
                return _choose(said, found, wanted, first=False, how="closing")
    return None


# --- which of several numbers
_BOLD = "\x01"
_WORDS = re.compile(r"[\s$)\]}\x01]*+([A-Za-z][A-Za-z']*)")
_STOP = frozenset("in for per of to and out from at on by with or is are was were each every a an the if when than".split())
_ADJUNCT = re.compile(
    r"\b(?:in|within|after|per|every|each|out of|over|during|from|at|with|than|for|among|into)\s+"
    r"(?:(?:the|a|all|these|just|about|only|next|first|last|his|her|their|those|any|another|of)\s+){0,3}[$€£]?$"
)
_SO = re.compile(
    r"(?:[,;:]|\band)\s+(?:so|then|thus|therefore|hence|which means|meaning|that means|we (?:see|get|find|have))\b|\bthat means\b",
    re.IGNORECASE,
)
_SUBORDINATE = re.compile(r"\b(?:if|since|because|when|after|before|given|assuming)\b", re.IGNORECASE)
_COMPARED = re.compile(
    r"\s+(?:[a-z]+\s+){0,2}(?:times\b|(?:more|less|fewer|(?:old|young|long|short|tall|great|high|low|fast|heavi)er)\b)(?!\s*[.,])",
    re.IGNORECASE,
)
_OPERATOR = re.compile(r"(?:[+*×x÷·/\u2212-])\s*[(\[]*$")
_LABEL = re.compile(r"([A-Za-z]+)\W{0,3}\s*[=:]\W{0,6}$")
_STEP = re.compile(r"\b(?:step|part|question|problem|note|equation|case|method|option)\s#?$", re.IGNORECASE)
_RANGE = re.compile(r"\s*(?:-|–|—|or|to)\s*$")


def _usable(said: str) -> list[Number]:
    """The numbers of a sentence that can be answers, not those of a step."""
    return [number for number in numbers.find(said) if not _STEP.search(said, max(0, number.start - 12), number.start)]


def _choose(said: str, found: Sequence[Number], wanted: Asked, first: bool, how: str) -> Reading:
    operands, ranged = _tied(said, found)
    keep = [number for number in found if number not in operands]
    if not keep:
        last = found[-1]
        return Reading(None if len(found) > 1 else last.value, said[found[0].start : last.end], how)
    for test in _tests(said, wanted):
        if said[: keep[-1].start].rstrip(" $").endswith("="):
            keep = keep[-1:]  # the result of the calculation that ends the sentence
        keep = [number for number in keep if test(number)] or keep
    number = keep[0 if first else -1]
    if number in ranged or _several(said, keep, wanted, first):
        return Reading(None, said[keep[0].start : keep[-1].end], how)
    return Reading(number.value, said[number.start : number.end], how)


def _several(said: str, keep: Sequence[Number], wanted: Asked, declared: bool) -> bool:
    """Whether more than one answer is left: "3 onions and 1 potato" where both are asked for, "4, 5, 6"."""
    if len({number.value for number in keep}) < 2:
        return False
    between = [said[left.end : right.start] for left, right in zip(keep, keep[1:], strict=False)]
    listed = all(re.fullmatch(r"\s*(?:,|and|, and|&)\s*", gap) for gap in between)
    joined = all(re.search(r",|\band\b|&", gap) for gap in between)
    return listed or (joined and (declared or wanted.several))


def _tests(said: str, wanted: Asked) -> list[Callable[[Number], bool]]:
    concluded = max((match.end() for match in _SO.finditer(said)), default=-1)
    return [
        lambda n: not n.ordinal and not n.compound,
        lambda n: said.count(_BOLD, 0, n.start) % 2 == 1,
        lambda n: n.start > concluded,
        lambda n: not _SUBORDINATE.search(said, _clause(said, n.start), n.start),
        lambda n: wanted.difference or not _COMPARED.match(said, n.end),
        lambda n: _matches(said, n, wanted),
        lambda n: not _ADJUNCT.search(said[max(0, n.start - 30) : n.start].lower()),
        lambda n: n.value not in wanted.stated,
    ]


def _clause(said: str, at: int) -> int:
    return max(said.rfind(", ", 0, at), said.rfind(";", 0, at)) + 1


def _matches(said: str, number: Number, wanted: Asked) -> bool:
    """Whether a number has the unit, or the label, that is asked for."""
    if number.unit in wanted.units:
        return True
    label = _LABEL.search(said[max(0, number.start - 30) : number.start])
    if label and stem(label[1]) in wanted.units:
        return True
    at = number.end
    for _ in range(4):
        word = _WORDS.match(said, at)
        if word is None or word[1].lower() in _STOP:
            return False
        if stem(word[1]) in wanted.units:
            return True
        at = word.end()
    return False


def _tied(said: str, found: Sequence[Number]) -> tuple[set[Number], set[Number]]:
    """The numbers that are operands of a calculation, and those that are ends of a range."""
    operands, ranged = set[Number](), set[Number]()
    for left, right in zip(found, found[1:], strict=False):
        gap = said[left.end : right.start]
        if len(gap) > 80:
            continue
        equals = re.search(r"=|≈|\bequals\b", gap)
        if equals and not re.search(r"[,;]|\band\b|\bso\b|\bor\b", gap[: equals.start()]):
            operands.add(left)
        elif _RANGE.fullmatch(gap):
            ascending = left.value is not None and right.value is not None and left.value < right.value
            if re.search(r"\bfrom\s+[$€£]?$", said[: left.start]):
                operands.add(left)
            elif left.unit != right.unit and right.unit:
                continue  # 0.35 or 35%
            elif ascending or "or" in gap:
                ranged |= {left, right}
            elif gap.strip() != "to":
                operands |= {left, right}
        elif re.search(r"\bbetween\s+$", said[: left.start]) and gap.strip() == "and":
            ranged |= {left, right}
        elif _OPERATOR.search(gap) and not re.search(r"[,;:]", gap):
            operands |= {left, right}
    return operands, ranged


# --- LaTeX and markdown
_REPLACED = (
    ("{,}", ","), ("\\!", ""), ("\\$", "$"), ("\\%", "%"), ("\\times", "×"), ("\\cdot", "·"), ("\\div", "÷"),
    ("\\approx", "≈"), ("\\left", ""), ("\\right", ""), ("\\(", " "), ("\\)", " "), ("\\[", " "), ("\\]", " "), ("\\ ", " "),
    ("\\;", " "), ("~", " "), ("\\quad", " "),
)  # fmt: skip
_NOTE = re.compile(r"<<[^<>\n]*+>>")
_TEXT = re.compile(r"\\(?:text(?:bf|rm|it)?|mathrm|mathbf|mbox|boxed|fbox|operatorname)\s*+\{([^{}]*+)\}")
_AFTER_DIGIT = re.compile(r"(?<=[0-9])(?=\\[dt]?frac)")  # 2\frac{1}{2} is 2 1/2
_FRAC = re.compile(r"\\[dt]?frac\s*+\{\s*+(-?[0-9.,]++)\s*+\}\s*+\{\s*+([0-9.,]++)\s*+\}")
_POWER = re.compile(r"(?<=[A-Za-z)]) ?\^(?:[0-9]++|\{[0-9]++\})")
_THIN_SPACE = re.compile(r"(?<=[0-9])\\,(?=[0-9]{3})")


def plain(text: str) -> str:
    """A sentence without LaTeX, calculator notes and markdown; bold begins and ends with a mark."""
    text = _NOTE.sub("", text).replace("**", _BOLD)
    if "\\" in text or "{" in text:
        text = _THIN_SPACE.sub("", text)
        for latex, written in _REPLACED:
            text = text.replace(latex, written)
        text = _TEXT.sub(r" \1 ", _TEXT.sub(r" \1 ", text)).replace("\\,", " ")
        text = _FRAC.sub(r"\1/\2", _AFTER_DIGIT.sub(" ", text))
    return _POWER.sub("", text)
