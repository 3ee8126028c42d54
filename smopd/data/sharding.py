"""Splits a request into the turns of a conversation by rule, and checks any split, whoever made it.

The rule (CCOPD's, as far as it goes): split into sentences; where these are fewer than three, at connectives
too, and a single sentence at other clauses; the goal goes first, the rest in order. Every word stays. It
leaves out rewording, which an LLM does better (`smopd.data.llm_sharding`).

A text is cut at the ends of sentences and where a clause begins, never inside quotes, brackets or code. The
rules are lists of words and patterns (words.toml), made by reading results on GSM8K, Spider, BFCL and MBPP:
no grammar is parsed, so some cuts read oddly.
"""

import re
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

# For each text its shards, or the reason why there are none.
Sharder = Callable[[Sequence[str]], list[tuple[str, ...] | str]]
LONGEST = 1200  # characters of a request
_LISTS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_PATTERNS: dict[str, list[str]] = _LISTS.pop("patterns")
WORDS = {name: dict.fromkeys(text.split()) for name, text in _LISTS.items()}  # in order, and quick to look up


def normalise(text: str) -> str:
    """The text in one line, single spaces between words, without quotes around the whole of it."""
    text = " ".join(text.split())
    quoted = len(text) > 1 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1].strip() if quoted else text


def pieces(text: str) -> list[str]:
    """The goal and then the rest in order; a single piece where nothing can be split off."""
    statements = _join_short_sentences(sentences(normalise(text)))
    if not statements:
        return []
    if len(statements) == 1:
        parts, first = _split(statements[0], connectives_only=False)
        return [parts[first], *parts[:first], *parts[first + 1 :]]
    asked = [i for i, s in enumerate(statements) if s.endswith("?") and not pattern("courtesy").fullmatch(s)]
    requests = [i for i, sentence in enumerate(statements) if asks(sentence)]
    asked, requests = (
        [i for i in some if not pattern("further").match(statements[i])] or some for some in (asked, requests)
    )
    goal = (asked[-1:] or requests[:1] or [len(statements) - 1])[0]
    if len(statements) >= 3:
        return [statements[goal], *statements[:goal], *statements[goal + 1 :]]
    rest: list[str] = []
    for i, sentence in enumerate(statements):
        parts, first = _split(sentence, connectives_only=True, goal=i == goal)
        if i == goal:
            ahead = parts.pop(first)
        rest += parts
    return [ahead, *rest]


def shard(text: str) -> tuple[str, ...] | str:
    """The shards of a request by rule, or the reason why there are none, by which requests are counted."""
    if len(normalise(text)) > LONGEST:
        return f"over {LONGEST} characters"
    if len(shards := pieces(text)) < 2:
        return "fewer than two shards"
    problem = check_shards(text, shards)
    return problem.split(":")[0] if problem else tuple(shards)


def by_rule(texts: Sequence[str]) -> list[tuple[str, ...] | str]:
    return [shard(text) for text in texts]


def _join_short_sentences(statements: list[str]) -> list[str]:
    """A sentence of one word ("Hello!") goes with the next one, or the one before where it is the last."""
    out: list[str] = []
    for sentence in statements:
        if out and (len(out[-1].split()) < 2 or len(sentence.split()) < 2):
            out[-1] += f" {sentence}"
        else:
            out.append(sentence)
    return out


def _split(sentence: str, connectives_only: bool, goal: bool = True) -> tuple[list[str], int]:
    """The clauses of one sentence, each as a turn that can stand alone, and which of them is the goal."""
    parts = clauses(sentence, connectives_only)
    if len(parts) < 2:
        return parts, 0
    free = [not i or parts[i - 1].endswith(",") for i in range(len(parts))]
    joined = [not free[i] and pattern("relative").match(piece) is not None for i, piece in enumerate(parts)]
    parts = [piece.rstrip(",;: ") for piece in parts]
    end = "?" if sentence.endswith("?") else ""  # it belongs to the goal, wherever that stood
    parts[-1] = parts[-1].rstrip("? ") if end else parts[-1]
    whole = [free[i] or not pattern("subordinate").match(piece) for i, piece in enumerate(parts)]
    first = next((i for i, piece in enumerate(parts) if goal and whole[i] and asks(piece)), 0)
    if first:  # in front nothing stands before it that it could be joined to
        parts[first] = re.sub(r"^(?:and\s+then|and|then|so)\s+(?=\w)", "", parts[first], flags=re.IGNORECASE)
    turns = [_add_antecedent(piece, parts[i - 1]) if joined[i] else piece for i, piece in enumerate(parts)]
    turns[first] += end
    return turns, first


def _add_antecedent(piece: str, before: str) -> str:
    """A relative clause with what it is about: "who swim" alone is no turn, "the ones who swim" is."""
    word = piece.split()[1].lower()
    noun = before.split()[-1].rstrip(".,\"'")
    several = re.search(r"(?<!s)s$|^(?:people|men|women|children)$", noun) is not None
    if not piece.lower().startswith("whose"):
        # The verb tells more than the noun, which may stand further to the left.
        several = word in WORDS["plural_verbs"] or (several and not pattern("singular").fullmatch(word))
    return f"the {'ones' if several else 'one'} {piece}"


# --- checks
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|(?<![\w.])\.\d+")
_CODE = re.compile(r"\b\w*[A-Za-z]\w*(?:[._]\w*[A-Za-z]\w*)+\b|\b[a-z]+[A-Z]\w*\b|\b[A-Za-z]+\d\w*\b")
_COUNTED = {word: str(number) for number, word in enumerate(WORDS["up_to_twenty"])}


def numbers(text: str) -> Counter[str]:
    """The numbers of a text as plain digits ("1,200" is "1200", "2.50" is "2.5"), words up to twenty too."""
    digits = [n.replace(",", "") for n in _NUMBER.findall(text)]
    digits = [(n.rstrip("0").rstrip(".") if "." in n else n).lstrip("0") or "0" for n in digits]
    digits = [f"0{n}" if n.startswith(".") else n for n in digits]
    return Counter(digits) + Counter(_COUNTED[w] for w in words(text) if w in _COUNTED)


def words(text: str) -> list[str]:
    """The words of a text in lower case, apostrophes made straight."""
    return [w.replace("’", "'").lower() for w in _WORD.findall(text)]


def names(text: str) -> set[str]:
    """Capitalised words that don't begin a sentence, in lower case, without the possessive."""
    capitalised = set()
    for sentence in sentences(normalise(text)):
        first = True
        for m in re.finditer(r"[^\W\d_][\w'’-]*", sentence):
            if m[0][0].isupper() and not first and m[0] not in ("I", "I'm", "I'd", "I've", "I'll"):
                capitalised.add(re.sub(r"['’]s?$", "", m[0]).lower())
            first = sentence[m.end() : m.end() + 1] in (":", '"')
    return capitalised - WORDS["function_words"].keys()


def _find_verbatim(text: str) -> list[str]:
    """Quoted strings and code identifiers: these must not change in any letter."""
    quoted = [text[a + 1 : b - 1] for a, b in whole_spans(text) if text[a] in "\"'`“‘"]
    strings = [q.strip("` ").rstrip(".,?!") for q in quoted if len(q) <= 200]
    # No identifier is longer; in a word of 40,000 letters the expression would look from every letter on.
    runs = (run[0] for run in re.finditer(r"[\w.]+", text) if len(run[0]) <= 200)
    return strings + [code for run in runs for code in _CODE.findall(run)]


def _stem(word: str) -> str:
    word = re.sub(r"'s?$", "", word)
    return re.sub(r"(?:ing|ies|ied|es|ed|ly|s|d|e|y|er)$", "", word) if len(word) > 3 else word


def check_shards(full: str, shards: Sequence[str], most_new: float = 0.0, goal: bool = True) -> str | None:
    """What is wrong with a split, None if nothing: facts lost, facts added, or no goal in front.

    Numbers, names, quoted strings and code identifiers of the request must all occur in the shards; numbers
    and names in the shards must come from it, and so must all but a share `most_new` of the other words.
    """
    full, joined = normalise(full), normalise(" ".join(shards))
    have, wanted = numbers(joined), numbers(full)
    if lost := sorted(n for n in wanted if n not in have):
        return f"a number is lost: {', '.join(lost[:3])}"
    plain = joined.lower().replace("’", "'")
    if lost := sorted(n for n in names(full) if n not in plain):
        return f"a name is lost: {', '.join(lost[:3])}"
    if lost := [v for v in _find_verbatim(" ".join(sentences(full))) if normalise(v) not in joined]:
        return f"a quoted text or identifier is lost: {lost[0][:60]}"
    if added := sorted(n for n in have if n not in wanted and n != "1"):  # "one" is a pronoun too
        return f"a number is added: {', '.join(added[:3])}"
    known = {_stem(w) for w in words(full)}
    content_words = [w for w in words(joined) if w not in WORDS["function_words"] and w not in _COUNTED]
    new = sorted({w for w in content_words if _stem(w) not in known})
    named = {name for s in shards for name in names(s)}
    if added := [w for w in new if w in named]:
        return f"a name is added: {', '.join(added[:3])}"
    if len(new) > most_new * max(1, len(set(content_words))):
        return f"words are added: {', '.join(new[:5])}"
    if goal and (not shards or not asks(shards[0])) and any(asks(s) for s in sentences(full)):
        return "the goal does not come first"
    return None


# --- where a text may be cut
@cache
def pattern(name: str) -> re.Pattern[str]:
    return re.compile(_one_of(name), re.IGNORECASE)


def _one_of(name: str) -> str:
    """The alternatives of a list, with those of the lists that it names in <>."""
    alternatives = "|".join(_PATTERNS.get(name) or WORDS[name])
    return re.sub(r"<(\w+)>", lambda inner: f"(?:{_one_of(inner[1])})", alternatives)


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


def sentences(text: str) -> list[str]:
    """The sentences of a text in one line; joined by single spaces they are the same text."""
    spans, cuts = whole_spans(text), [0]
    for end in _END.finditer(text):
        # Of the spans, which are in order, the last that begins before the mark's end.
        before = bisect_left(spans, end.end(), key=lambda span: span[0])
        inside = before > 0 and end.start("gap") < spans[before - 1][1]
        after = text[end.end() : end.end() + 200]  # as much as is looked at
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


def asks(text: str) -> bool:
    """Does it begin like a question or a request, or hold a question?"""
    asked = text.rstrip("\"'”) ").endswith("?")
    return asked or bool(pattern("asking").match(text) or pattern("inner_ask").search(text))


def clauses(sentence: str, connectives_only: bool = False) -> list[str]:
    """The pieces of one sentence, in order and with their commas; itself where no place to cut is found."""
    leading = _first_cut(sentence)
    cuts = {*leading, *_cuts("connective", sentence)}
    if not connectives_only:
        # In "For each year, return the name and the number" a turn "and the number" would follow "For each".
        for cut in _cuts("other", sentence):
            if not leading or cut < leading[0] or pattern("ordered").match(sentence[cut:]):
                cuts.add(cut)
        cuts = cuts or set(_cuts("placed", sentence))
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
    spans, leading = whole_spans(sentence), pattern("leading").match(sentence)
    cuts = [leading.end()] if leading else []
    for later in pattern("later_ask").finditer(sentence):
        # In "how long, in years, will it take" the question has begun before.
        if not pattern("asked").search(sentence[max([0, *cuts]) : later.start()]):
            cuts.append(later.end())
    return [cut for cut in cuts if not any(a < cut < b for a, b in spans)]


def _cuts(marker: str, sentence: str) -> list[int]:
    spans, cuts = whole_spans(sentence), []
    for m in pattern(marker).finditer(sentence):
        before = re.findall(r"[\w'$.%-]+|[\"”)\]]", sentence[: m.start()])
        after = [w.lower() for w in re.findall(r"[\w'$-]+", sentence[m.end() :])[:3]]
        inside = any(a < m.end() and m.start() < b for a, b in spans)
        if not inside and len(after) > 1 and _fits(before, after, sentence[: m.start()], sentence[m.end() :]):
            cuts.append(m.end())
    return cuts


def _fits(before: list[str], after: list[str], left: str, right: str) -> bool:
    """May a clause begin here? `before`: the words to the left, `after`: the next three, in lower case."""
    if not before or before[-1].lower() in WORDS["hanging"]:
        return False
    last, word = before[-1].lower().strip(".,"), after[0]
    if pattern("paired").search(left) and not pattern("ordered").match(right):
        return False  # "both a club that swims and one that runs" falls apart
    two_names = before[-1][0].isupper() and right[4:5].isupper()
    if word == "and" and (two_names or pattern("one_of_two").match(right)):
        return False  # "Ana, Tom and Eva have", "my friend and I are"
    if pattern("object").search(left) or (word.endswith("ing") and last.endswith("ed")):
        return False  # "the songs that the man | with a hat sang", "started | working in"
    if word in WORDS["prepositions"] and pattern("verb_last").search(right):
        return False  # "does the document with id 2 have"
    if word in ("if", "when", "where"):
        return last not in WORDS["before_if"] and last != "or"
    if word == "with":
        joining = pattern("joining_verb").search(left) or pattern("no_with").fullmatch(last)
        return after[1] != "each" and not joining
    if word in WORDS["prepositions"]:
        return pattern("no_place").fullmatch(last) is None
    if word in ("that", "which"):
        return after[1] not in WORDS["subjects"]
    return not (word == "then" and last in WORDS["than"])
