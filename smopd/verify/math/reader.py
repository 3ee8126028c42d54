"""Find which of a reply's numbers a careful reader takes for its answer, as docs/verdicts.md describes.

If there are several numbers, the question decides (`choice`); by default the first of a declaration or the
last of a sentence is taken. A new question that the reply goes on to ask is not read, nor are the numbers of
lists and steps. Numbers in words count if they are declared or conclude. A reply that ends by asking back ("I
assume 18?") has no answer, unless it declared one before or boxed it.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from smopd.verify.math import numbers
from smopd.verify.math.choice import TIMES, Reading, choose, usable
from smopd.verify.math.numbers import BOLD, boxes, plain
from smopd.verify.math.question import Asked, asked

_WINDOW = 600  # characters of one sentence, at most
_FARTHEST = 60  # characters between "the answer is" and its number, at most
_MOST_PLACES = 40  # declarations, or sentences from the end, that are read


def read(question: str, text: str) -> Reading | None:
    """Return the answer of a reply to a question; None if it has no number or ends by asking back."""
    wanted = asked(question)
    cues = list(_CUE.finditer(text))
    new = _NEXT_QUESTION.search(text, cues[0].end()) if cues else None  # one that the reply asks
    if new and (new["turn"] or "?" in text[new.end() : new.end() + 2 * _WINDOW]):
        text = text[: new.start()]
    declared = _read_declared(text, [cue for cue in cues if cue.end() <= len(text)], wanted)
    if declared is None:
        return None if _asks_back(text) else _read_closing(text, wanted)
    reading, end = declared
    asks = _QUESTION_MARK.match(text, end) or (text[end : end + 1] == "?" and _asks_back(text))
    if asks and reading.how == "declared":
        return None
    back = _TAKEN_BACK.search(text, end)
    return (back and _read_closing(text[back.start() :], wanted)) or reading


_NEXT_QUESTION = re.compile(
    r"(?m)^[ \t#*]*+(?:Question|Problem|Exercise|Example|Instruction|Q)[ \t]*+[0-9]*+[ \t]*+[*]*+(?::|$)"
    r"|(?P<turn>^(?:Human|User):|<\|(?:im_start|im_end|eot_id|endoftext|start_header_id))"
)


# --- declarations
_CUE = re.compile(
    r"(?im)^[ \t]*+\#{4}[ \t]*+(?=[-$€£\\0-9*])|<answer>"
    r"|(?<!\w)(?:the|my|our|your|final|correct|right|exact|numerical)\s++answers?\b(?P<gap>[^.!?\n:=]{0,60}?)"
    r"(?:\b(?P<verb>is|are|equals|would be|will be|comes to|should be)\b\s*+:?|(?::|=|[*_]{0,3}\s*+\n))"
    r"|^[ \t*_#>-]*+(?:answer|ans|result)\b[*_ \t.]*+(?::|=|\n)|^[ \t*_]*+(?-i:A)[*_]*+:"
)
_SKIPPED = re.compile(r"(?:[\s*_:#>`~\[(=]|\\[\[(]|\$(?=\\))*+")
_SENTENCE_END = re.compile(r"\n|[.!?](?=[\s)\]\"'*_}$\\]|$)|</answer>")
_MARKER = re.compile(r"(?:[-*•]|\(?[0-9]{1,2}[.)])[ \t]++(?=\S)")
_REFUSED = re.compile(r"\b(?:not|n't|wrong|incorrect|unknown|cannot|whether|if)\b", re.IGNORECASE)
_ENDED = re.compile(
    r"(?i)[\s.!*_$)\]}\\]*+(?:$|(?:explanation|note|check|verification|reason|because|here)\b)"
)
_UNBROKEN = re.compile(r"\S*+")
_TAKEN_BACK = re.compile(
    r"(?i)(?:^|[.!?\n]\s*+)(?:wait|oops|hold on|correction|sorry|actually|(?:i|we) (?:made|apologi[sz]e)|"
    r"my mistake|(?:this|that)(?:'s| is) (?:wrong|incorrect|not)|let(?: me|'s) (?:redo|correct|fix|try again|"
    r"re-?(?:calc|consider|eval|think)))"
)


def _read_declared(text: str, cues: Sequence[re.Match[str]], wanted: Asked) -> tuple[Reading, int] | None:
    box = _last_box(text, wanted) if "box" in text else None
    for cue in reversed(cues[-_MOST_PLACES:]):
        if box and cue.start() < box[1]:
            break
        if answer := _read_after(text, cue, wanted):
            return answer
    return box


def _last_box(text: str, wanted: Asked) -> tuple[Reading, int] | None:
    for start, end in reversed(list(boxes(text))[-_MOST_PLACES:]):
        content = plain(text[max(start, end - _WINDOW) : end])
        if candidates := numbers.find(content) or numbers.find_words(content):
            reading = choose(content, candidates, wanted, first=False, how="boxed")
            return replace(reading, box=text[start:end]), end
    return None


def _read_after(text: str, cue: re.Match[str], wanted: Asked) -> tuple[Reading, int] | None:
    start = next(_SKIPPED.finditer(text, cue.end())).end()  # it always matches, perhaps nothing
    below = "\n" in text[cue.end() - 1 : start]  # the answer stands below its heading
    heading = below or not cue["verb"]
    if _REFUSED.search(cue["gap"] or "") or (heading and _MARKER.match(text, start)):
        return None
    end = _end(text, start)
    bold = BOLD * (plain(text[cue.end() : start]).count(BOLD) % 2)  # bold may begin in what was skipped
    sentence = bold + plain(text[start:end])
    candidates = usable(sentence) or numbers.find_words(sentence)
    if not candidates or candidates[0].start > _FARTHEST or _REFUSED.search(sentence, 0, candidates[0].start):
        return None
    if TIMES.match(sentence, candidates[-1].end):
        return None
    before = len(sentence[: candidates[0].start].split())  # words
    after = len(sentence[candidates[-1].end :].split())
    line = text[start : start + _WINDOW].partition("\n")[0]
    alone = before < 2 and after <= 4 and not (below and len(numbers.find(plain(line))) > 1)
    if heading and not (alone or _ENDED.match(text, end)):
        return None  # a solution follows the heading, not an answer
    return choose(sentence, candidates, wanted, first=before <= 3, how="declared"), end


def _end(text: str, start: int) -> int:
    stop = _SENTENCE_END.search(text, start, start + _WINDOW)
    within = _UNBROKEN.match(text, min(len(text), start + _WINDOW))
    return stop.start() if stop else within.end() if within else len(text)


# --- the closing sentence
_BOUNDARY = re.compile(r"\n|[.!?][)\]\"'*_}$]*\s+(?=[A-Z0-9\"'(*\\$\[])")
_MARKERS = re.compile(r"^[ \t#*>]*+\(?[0-9]{1,2}[.)][ \t]++(?=\S)", re.MULTILINE)
_NONE = re.compile(r"\b(?:none|nothing|no [a-z]+) (?:is |are |will be )?(?:left|remain)", re.IGNORECASE)
_COURTESY = re.compile(
    r"(?i)\W*(?:\Z|(?:let me know|i hope|please|feel free|would you|do you|if you (?:have|need))\b)"
)
_CONCLUDES = re.compile(
    r"(?i)\W*(?:so|thus|therefore|hence|in (?:total|all|conclusion)|altogether|consequently)\b"
)
_QUESTION_MARK = re.compile(r"[?\uff1f][\W_]*+\Z")


def _asks_back(text: str) -> bool:
    """Whether a number stands in one of the questions with which a reply ends, courtesies aside."""
    digitless = not re.search(r"[0-9]", text)  # next to digits, "one" is hardly a number
    text = text.strip()[-_WINDOW:]
    while last := _BOUNDARY.split(text)[-1]:
        if not _COURTESY.match(last):
            if not _QUESTION_MARK.search(last):
                return False
            if numbers.find(plain(last)) or (digitless and numbers.find_words(plain(last))):
                return True
        text = text.removesuffix(last).rstrip()
    return False


def _read_closing(text: str, wanted: Asked) -> Reading | None:
    return _last_sentence(_MARKERS.sub("", text), wanted) or _last_sentence(text, wanted)


def _last_sentence(text: str, wanted: Asked) -> Reading | None:
    end = len(text)
    for _ in range(_MOST_PLACES):
        at = max(text.rfind(digit, 0, end) for digit in "0123456789")
        stop = _SENTENCE_END.search(text, at + 1, at + _WINDOW) if at >= 0 else None
        rest = text[stop.end() if stop else at + 1 :]
        if end == len(text) and (reading := _read_in_words(rest, wanted, digitless=at < 0)):
            return reading
        if at < 0:
            return None
        before = text[max(0, at - _WINDOW) : at]
        start = at - len(before) + max((match.end() for match in _BOUNDARY.finditer(before)), default=0)
        sentence = plain(text[start : _end(text, at + 1)])
        if _NONE.search(sentence):
            return Reading(Fraction(0), "none", "closing")
        if not _COURTESY.match(sentence) and (candidates := usable(sentence)):
            return choose(sentence, candidates, wanted, first=False, how="closing")
        end = start
    return None


def _read_in_words(rest: str, wanted: Asked, digitless: bool) -> Reading | None:
    """Read a conclusion in words after the last digit, or any number if there are no digits at all."""
    for sentence in reversed(_BOUNDARY.split(rest[-2 * _WINDOW :])):
        if digitless or _CONCLUDES.match(sentence):
            plain_sentence = plain(sentence)
            candidates = numbers.find_words(plain_sentence)
            if candidates and (digitless or any(number.value not in wanted.stated for number in candidates)):
                return choose(plain_sentence, candidates, wanted, first=False, how="closing")
            if _NONE.search(plain_sentence):
                return Reading(Fraction(0), "none", "closing")
    return None
