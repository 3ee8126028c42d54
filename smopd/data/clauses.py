"""Where a text may be cut: the ends of its sentences, and the places in one where a clause begins.

Never inside quotes, brackets or code. The rules are lists of words (words.toml), made by reading results on
GSM8K, Spider, BFCL and MBPP: no grammar is parsed, so some cuts read oddly.
"""

import re
import tomllib
from bisect import bisect_left
from itertools import pairwise
from pathlib import Path

_TEXTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
WORDS = {name: dict.fromkeys(text.split()) for name, text in _TEXTS.items()}  # in order, and quick to look up


def _any_of(name: str) -> str:
    return "|".join(WORDS[name])


# --- what stays whole
_QUOTED_OR_BRACKET = re.compile(
    # Of bounded length: a quote that nobody closes would be looked for to the end of the text, each anew.
    r"(?P<quoted>```.*?```|`[^`]+`|(?<![\w\"])\"[^\"]+\"(?![\w\"])|“[^”]{0,500}”|‘[^’]{0,500}’(?!\w)"
    r"|(?<![\w'])'(?=\S)(?:[^']|'(?=\w)){0,500}'(?!\w)|https?://\S+)|[()\[\]{}]"
)
_CLOSERS = {")": "(", "]": "[", "}": "{"}


def whole_spans(text: str) -> list[tuple[int, int]]:
    """(start, end) of every quotation, bracket, code and address, none inside another."""
    opened, spans, outer = list[re.Match[str]](), list[tuple[int, int]](), list[tuple[int, int]]()
    for m in _QUOTED_OR_BRACKET.finditer(text):
        if m["quoted"]:
            spans.append(m.span())
        elif m[0] not in _CLOSERS:
            opened.append(m)
        elif opened and opened[-1][0] == _CLOSERS[m[0]]:
            spans.append((opened.pop().start(), m.end()))
    for span in sorted(spans, key=lambda s: (s[0], -s[1])):
        if not outer or span[0] >= outer[-1][1]:
            outer.append(span)
    return outer


# --- sentences
_END = re.compile(
    r"(?<![.?!…])(?P<mark>[.?!…]+)(?P<close>[\"'”’)\]}]*)(?P<gap>\s+|(?<=[a-z][.?!])(?=[A-Z][a-z]*\s))"
)
_AHEAD = 200  # characters behind a mark that are looked at


def sentences(text: str) -> list[str]:
    """The sentences of a text in one line; joined by single spaces they are the same text."""
    spans, cuts = whole_spans(text), [0]
    for end in _END.finditer(text):
        # Of the spans, which are in order, the last that begins before the mark's end.
        before = bisect_left(spans, end.end(), key=lambda span: span[0])
        inside = before > 0 and end.start("gap") < spans[before - 1][1]
        after = text[end.end() : end.end() + _AHEAD]
        if not inside and _ends(text[cuts[-1] : end.start("mark")], end, after):
            cuts.append(end.end())
    return [piece for a, b in pairwise([*cuts, len(text)]) if (piece := text[a:b].strip())]


def _ends(before: str, end: re.Match[str], after: str) -> bool:
    if not after or not before.strip():
        return False
    following = re.match(r"[^\w$]*(\w[\w']*)", after)
    next_word = following[0].lower().strip("\"'“‘([") if following else ""
    if not end["gap"]:  # no space after the mark: a sentence only where the next word says so
        return next_word in WORDS["starters"]
    lower = re.match(r"[\"'“‘(\[]*[a-z]", after) is not None
    if "?" in end["mark"] or "!" in end["mark"]:
        return not (lower and end["close"])  # "Why?" he asked
    last = re.sub(r"^\W+", "", before.rsplit(None, 1)[-1])
    if lower or (re.fullmatch(r"\d+", last) and len(before.split(None, 1)) == 1):
        return False  # "1. clone" is an enumeration
    word = last.lower()
    if word in WORDS["ambiguous"] or re.fullmatch(r"(?:[A-Za-z]\.)*[A-Z]", last):
        return next_word in WORDS["starters"] and not (word == "no" and next_word.isdigit())
    return word not in WORDS["abbreviations"]


# --- clauses
_COMMANDS = _any_of("commands")
_ASK = r"(?:how|what|which|who|whom|where|when|why|what's|who's|whose)"
_POLITE = (
    r"(?:can|could|would|will|should|may|do|does|did|is|are|was|were|has|have|had)\s+(?:you|i|we|he|she|it|"
    r"they|there|the|my|his|her)\b"
)
_WISH = (
    r"(?:i|we)(?:'d|'m| would| need| want| wish| am| must| have to)?\s*(?:like|love|need|want|wish|looking|"
    r"planning|trying|interested|thinking|curious|wondering|require|searching)\b"
)
_HOW = (
    r"how (?:many|much|long|far|old|tall|often|fast|big|large)|what(?:'s| is| are| was| were| will| would| "
    r"percent| fraction)"
)
_ASKING = re.compile(
    rf"(?i)\W*(?:(?:and|so|then|also|now|first|hey|hi|hello|ok|okay|next|finally|please|just|"
    rf"{_ASK}\s+about)\W+)*(?:{_ASK}|{_COMMANDS}|in (?:what|which)|(?:by|at|for|from|on|to|of|with) (?:how|"
    rf"what|which)|{_POLITE}|{_WISH})\b"
)
_INNER_ASK = re.compile(
    rf"(?i)\b(?:{_HOW}|{_POLITE}|(?:calculate|determine|find|compute) (?:the|how|what|his|her|their)|(?:i|"
    rf"we) (?:need|want|would like|wish) (?:to|an?|the)|i'(?:d like|m looking))\b"
)


def asks(text: str) -> bool:
    """Does it begin like a question or a request, or hold a question?"""
    asked = text.rstrip("\"'”) ").endswith("?")
    return asked or _ASKING.match(text) is not None or _INNER_ASK.search(text) is not None


_PLAIN_VERB = _any_of("plain_verb")
_VERB = rf"(?:{_PLAIN_VERB}|{_any_of('other_verb')}|\w{{3,}}ed)"
_PRONOUN = rf"(?:{_any_of('pronoun')})"
_CLEAR_COMMANDS = _any_of("clear_commands") + "|search for"
# What must follow "and" for it to join clauses; many a command is a noun too, so it needs its object.
_CLAUSE = (
    rf"(?:then\b|also\b|finally\b|afterwards\b|{_PRONOUN}\s+(?:\w+\s+){{0,3}}?{_VERB}\b|(?:the\s+|"
    rf"an?\s+)?(?:[\w'-]+\s+){{1,2}}(?:{_PLAIN_VERB})\b|{_ASK}\b|(?:please\s+)?(?:{_CLEAR_COMMANDS})\b|"
    rf"(?:please\s+)?(?:{_COMMANDS})\s+(?:the|an?|me|my|it|them|all|their|its|his|her|how|what|this|that|"
    rf"\d)\b|{_VERB}\b)"
)
_GAP = r"(?:,\s+|\s+)"
_JOINS = rf"and\s+then\b|then\b|but\b|while\b|when\b|and\s+if\b|if\b|and\s+{_CLAUSE}"
_CONNECTIVE = re.compile(rf"(?i){_GAP}(?=(?:{_JOINS}))")
_SORTED = (
    r"(?:and )?(?:sorted|sort them|sort the results?|order them|ordered|listed|ranked|arranged|grouped|"
    r"group) (?:by|in|from|alphabetically|based)\b|(?:from|in) (?:the )?(?:\w+ )?(?:ascending|descending|"
    r"alphabetical|alphabetic|lexicographic\w*|increasing|decreasing|chronological|reverse|oldest|youngest|"
    r"high|low|highest|lowest|largest|smallest|most|least|early|earliest) (?:\w+ )?(?:order|to)\b|in (?:the "
    r")?order of\b"
)
_PARTICIPLE = (
    r"(?:also )?known as\b|(?:located|situated|based|born|made|taught|written|held|produced|published|owned|"
    r"directed|hosted|used|offered|taken|released|founded|established|developed|provided|played|served|"
    r"created|issued|filed|built|living|working|studying|starting|ending|beginning) (?:by|in|from|at|on|"
    r"before|after|between|with|under|near|within|against)\b|(?:containing|having|belonging|named|called|"
    r"titled|costing|avoiding|specializing) "
)
_AND_MORE = (
    r"and (?:also )?(?:the|its|their|his|her|an?|how|what|which) (?:\w+ ){0,3}(?:number|count|average|total|"
    r"sum|maximum|minimum|amount|percentage|ids?|names?)\b|and (?:(?:an?|the|its) )?(?:[\w-]+ "
    r"){1,4}?(?:(?:of|to|as|is) (?:[$\"'\[]|\d)|[\"'](?=\w))"
)
_OTHER = re.compile(
    rf"(?i){_GAP}(?=(?:for|by|of|in) (?:each|every)\b(?! other)|{_SORTED}|whose\b|who\b|(?:that|which) "
    rf"[a-z]+\b|where\b|such that\b|so that\b|because\b|(?:by )?using\b|given (?:that|the|an?|its|by)\b|"
    rf"based on\b|including\b|excluding\b|except\b|without\b|as well as\b|along with\b|together with\b|"
    rf"with\b|between \d|{_PARTICIPLE}|{_AND_MORE}|but not\b|and not\b|in (?:the )?(?:year|month|city|state|"
    rf"country|county) |in \d{{4}}\b|or (?:before|after)\b)"
)
_PLACED = re.compile(
    rf"{_GAP}(?=(?:in|at|from|near|on|for|during|within|over|around|through|under|above|below|against|among|"
    rf"into|after|before) (?:(?:the|an?|all|my|our|any|its|their|two|three|both|given|more|less|least|today|"
    rf"tomorrow|next|this|last)\b|[A-Z\"'$\d(\[“‘]))"
)
_LEADING = re.compile(
    rf"(?i)\W*(?:if|when|while|for|in|given|among|of|on|after|at|as|assuming|suppose|since|because|out of|"
    rf"from|before|during|considering|with|using|by|to|once|between|based on)\b.*?,\s+(?=(?:{_ASK}|"
    rf"{_COMMANDS}|{_POLITE}|{_WISH})\b)"
)
_LATER_ASK = re.compile(rf",\s+(?=(?:and\s+)?(?:{_HOW}|{_POLITE})\b)", re.IGNORECASE)
_BEFORE_WITH = re.compile(rf"(?i)(?:{_any_of('before_with')})\w*|\w+ed")
_BEFORE_PLACE = re.compile(rf"(?i)(?:{_any_of('before_place')}|\d+|\w+ed|\w+ing)")


def clauses(sentence: str, connectives_only: bool = False) -> list[str]:
    """The pieces of one sentence, in order and with their commas; itself where no place to cut is found."""
    leading = _first_cut(sentence)
    cuts = {*leading, *_cuts(_CONNECTIVE, sentence)}
    if not connectives_only:
        # In "For each year, return the name and the number" a turn "and the number" would follow "For each".
        for cut in _cuts(_OTHER, sentence):
            if not leading or cut < leading[0] or _ORDERED.match(sentence[cut:]):
                cuts.add(cut)
        cuts = cuts or set(_cuts(_PLACED, sentence))
    kept = [0]
    for cut in sorted(cuts):
        if _is_long_enough(sentence[kept[-1] : cut]) and _is_long_enough(sentence[cut:]):
            kept.append(cut)
    return [piece for a, b in pairwise([*kept, len(sentence)]) if (piece := sentence[a:b].strip())]


def _is_long_enough(piece: str) -> bool:
    tokens = re.findall(r"[\w$][\w'.,-]*", piece)
    leads = tokens and tokens[0].lower() in ("and", "after", "for", "if", "that", "which")
    return len(tokens) >= (3 if leads else 2)


def _first_cut(sentence: str) -> list[int]:
    """Where the question begins after a condition: "If there are 3, how many ...?"."""
    spans, leading = whole_spans(sentence), _LEADING.match(sentence)
    cuts = [leading.end()] if leading else []
    for later in _LATER_ASK.finditer(sentence):
        # In "how long, in years, will it take" the question has begun before.
        if not re.search(rf"\b{_ASK}\b", sentence[max([0, *cuts]) : later.start()], re.IGNORECASE):
            cuts.append(later.end())
    return [cut for cut in cuts if not any(a < cut < b for a, b in spans)]


def _cuts(marker: re.Pattern[str], sentence: str) -> list[int]:
    spans, cuts = whole_spans(sentence), []
    for m in marker.finditer(sentence):
        before = re.findall(r"[\w'$.%-]+|[\"”)\]]", sentence[: m.start()])
        after = [w.lower() for w in re.findall(r"[\w'$-]+", sentence[m.end() :])[:3]]
        inside = any(a < m.end() and m.start() < b for a, b in spans)
        if not inside and len(after) > 1 and _fits(before, after, sentence[: m.start()], sentence[m.end() :]):
            cuts.append(m.end())
    return cuts


_PAIRED = re.compile(r"\b(?:both|either|neither|between)\b", re.IGNORECASE)
_ORDERED = re.compile(
    r"(?i)(?:and )?(?:sort|order|list|rank|arrang|group)\w*\b|(?:in|from) .*\border\b|for each|but\b"
)
_VERB_LAST = re.compile(
    r"\b(?:has|have|had|is|are|was|were|be|do|does|did|own|owns|like|get|made|most)\W*$|\w+ed the (?:most|"
    r"least)\W*$"
)
_JOINING = re.compile(rf"(?i)\b(?:{_any_of('joining')})\w*\b")
_ONE_OF_TWO = re.compile(r"and (?:i|he|she|an? \w+) (?:are|were|have)\b", re.IGNORECASE)
_OBJECT = re.compile(r"\b(?:that|what|which|where) (?:the|an?) [\w' ]{1,30}$", re.IGNORECASE)


def _fits(before: list[str], after: list[str], left: str, right: str) -> bool:
    """May a clause begin here? `before`: the words to the left, `after`: the next three, in lower case."""
    if not before or before[-1].lower() in WORDS["hanging"]:
        return False
    last, word = before[-1].lower().strip(".,"), after[0]
    if _PAIRED.search(left) and not _ORDERED.match(right):
        return False  # "both a club that swims and one that runs" falls apart
    if word == "and" and ((before[-1][0].isupper() and right[4:5].isupper()) or _ONE_OF_TWO.match(right)):
        return False  # "Ana, Tom and Eva have", "my friend and I are"
    if _OBJECT.search(left) or (word.endswith("ing") and last.endswith("ed")):
        return False  # "the songs that the man | with a hat sang", "started | working in"
    if word in WORDS["prepositions"] and _VERB_LAST.search(right):
        return False  # "does the document with id 2 have"
    if word in ("if", "when", "where"):
        return last not in WORDS["before_if"] and last != "or"
    if word == "with":
        return after[1] != "each" and not _JOINING.search(left) and _BEFORE_WITH.fullmatch(last) is None
    if word in WORDS["prepositions"]:
        return _BEFORE_PLACE.fullmatch(last) is None
    if word in ("that", "which"):
        return after[1] not in WORDS["subjects"]
    return not (word == "then" and last in WORDS["than"])
