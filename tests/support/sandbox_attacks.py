"""Programs whose function `f` is wrong (it should double) and that try to be taken for right all the same.

A table by kind of attack; the longer ones are sections of the files in verify/sandbox_attacks. Some speak on
the program's end of the socket themselves, as any program can.
"""

import re
from pathlib import Path

from support.sandbox_levels import ONLY_IN_A_NAMESPACE

_OURS = """
# Our own code in the program's process: where it lies, and the object that serves the tests.
import sys
modules = [module for name, module in list(sys.modules.items()) if name.startswith("smopd")]
side = next(module for module in modules if hasattr(module, "Program"))
def server():
    frame = sys._getframe()
    while frame := frame.f_back:
        if type(frame.f_locals.get("self")).__name__ == "Program": return frame.f_locals["self"]
"""
_WIRE = """
# What the tests ask, heard and answered by hand.
import json, os, struct
def hear():
    data, size = b"", struct.unpack("!I", os.read(3, 4))[0]
    while len(data) < size: data += os.read(3, size - len(data))
    return json.loads(data)
def send(data): os.write(3, struct.pack("!I", len(data)) + data)
def say(*answer): send(json.dumps(answer).encode())
def names(number, **more):
    given = {"candidate": {"handle": 0}, "f": {"handle": 0}} | more
    say(number, True, {"dict": [list(given), list(given.values())]})
def f(x): return 0
number, *_ = hear()
"""
_PICKLE = """
# Pieces of a pickle.
import struct
def text(value): return b"X" + struct.pack("<I", len(value)) + value.encode()
def handle(function): return text("object") + b"K" + bytes([server().keep(function)[1]]) + b"\\x86Q"
def module(name): return text("module") + text(name) + b"\\x86Q"
"""
_EXTRA = """
# Names that nobody asked for.
class Module:
    isclose = staticmethod(lambda *x, **y: True)
    loads = staticmethod(lambda text: 0)
    fabs = staticmethod(lambda x: 0)
extra = dict(
    abs=lambda x: 0, sorted=lambda x: [4, 6], all=lambda x: True, set=lambda x: {4}, len=lambda x: 4,
    isinstance=lambda *x: False, math=Module, json=Module, isclose=Module.isclose, round=lambda *x: 4,
    check=lambda c: None, plain=lambda x: True, unittest=Module, range=lambda *x: [], map=lambda *x: [],
    zip=lambda *x: [], AssertionError=StopIteration, __name__="x")
"""
_INCLUDED = {
    "ours": _OURS, "wire": _WIRE, "pickle": _PICKLE, "extra": _EXTRA, "namespace": ONLY_IN_A_NAMESPACE
}  # fmt: skip


def sections(file: Path) -> dict[str, str]:
    """The parts of a text, by their headings."""
    parts = re.split(r"^=== (.*)\n", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _programs(kind: str) -> dict[str, str]:
    texts = sections(Path(__file__).parents[1] / "verify" / "sandbox_attacks" / f"{kind}.txt")
    include = re.compile(r"^#include (\w+)$", re.MULTILINE)
    return {name: include.sub(lambda match: _INCLUDED[match[1]], text) for name, text in texts.items()}


_ALL = """
def __eq__(self, o): return True
    def __ne__(self, o): return False
    def __hash__(self): return hash(4)
    def __lt__(self, o): return True
    __le__ = __gt__ = __ge__ = __contains__ = __lt__
    def __sub__(self, o): return 0
    __rsub__ = __add__ = __radd__ = __xor__ = __mod__ = __abs__ = __round__ = __sub__
    def __float__(self): return 4.0
    def __index__(self): return 4
    __int__ = __trunc__ = __floor__ = __ceil__ = __index__
    def __bool__(self): return True
    def __str__(self): return "4"
    __repr__ = __str__
""".strip()


def _heir(base: str, expression: str, body: str = _ALL) -> str:
    return f"class Any({base}):\n    {body}\ndef f(x): return {expression}"


_VALUES = {
    "equals everything": _heir("object", "Any()"),
    "a number that equals everything": _heir("int", "Any(3)"),
    "a float that equals everything": _heir("float", "Any(3)"),
    "a complex that equals everything": _heir("complex", "Any(3)"),
    "a text that equals everything": _heir("str", "Any()", _ALL.replace('return "4"', "return 'x'")),
    "bytes that equal everything": _heir("bytes", "Any()"),
    "a list that equals everything": _heir("list", "Any([3])", _ALL.replace("__hash__", "hash_")),
    "a tuple that equals everything": _heir("tuple", "Any([3])"),
    "a dict that equals everything": _heir("dict", "Any()"),
    "a set that equals everything": _heir("set", "Any()"),
    "a Decimal that equals everything": "from decimal import Decimal\n" + _heir("Decimal", "Any(3)"),
    "a Fraction that equals everything": "from fractions import Fraction\n" + _heir("Fraction", "Any(3)"),
    "a Counter that equals everything": "from collections import Counter\n" + _heir("Counter", "Any()"),
    "a date that equals everything": "import datetime\n" + _heir("datetime.date", "Any(2000, 1, 1)"),
    "an enumerated number": "import enum\nclass E(enum.IntEnum):\n    A = 3\n"
    "    def __eq__(s, o): return True\n    def __hash__(s): return 3\ndef f(x): return E.A",
    "a named tuple": "import collections\nclass P(collections.namedtuple('P', 'x')):\n    def __eq__(s, o): "
    "return True\ndef f(x): return P(0)",
    "a class in its place": "class f:\n    def __init__(self, x): pass\n    def __sub__(self, o): return 0\n"
    "    def __eq__(self, o): return True",
    "a class that equals": "class M(type):\n    def __eq__(s, o): return True\n    __hash__ = type.__hash__\n"
    "class C(metaclass=M): pass\ndef f(x): return C",
    "a claimed class": "class C:\n    __class__ = property(lambda self: int)\n"
    "    def __eq__(self, o): return True\ndef f(x): return C()",
    "the library's ANY": "import unittest.mock\ndef f(x): return unittest.mock.ANY",
    "a mock": "import unittest.mock\ndef f(x):\n    mock = unittest.mock.MagicMock()\n"
    "    mock.__eq__ = lambda s, o: True\n    mock.__sub__ = lambda s, o: 0\n    return mock",
    "nested": _heir("object", "(Any(), [Any()], {Any(): Any()})"),
    "a plain container of them": _heir("object", "[Any()]"),
    "not a number": "def f(x): return float('nan')",
    "infinite": "def f(x): return float('inf')",
    "signalling": "from decimal import Decimal\ndef f(x): return Decimal('sNaN')",
    "a default for everything": "from collections import defaultdict\n" + _heir("object", "defaultdict(Any)"),
    "a difference that is empty": "class Any(object):\n    def __sub__(self, o): return Any()\n"
    "    __xor__ = __rsub__ = __sub__\n    def __bool__(self): return False\ndef f(x): return Any()",
    "itself": "def f(x): return f",
    "no end": "def f(x):\n    while True: yield x",
    "a list that holds itself": "def f(x):\n    x = []\n    x.append(x)\n    return x",
    "not implemented": "def f(x): return NotImplemented",
    "three dots": "def f(x): return ...",
}


def _raw(answer: str) -> str:
    return f"{_WIRE}names(number)\nwhile True:\n    number, operation, args, named = hear()\n    {answer}\n"


def _error(*answer: str) -> str:
    return _raw(f"say(number, False, {', '.join(answer)})")


_CRAFTED = {  # in place of a value
    "a handle below zero": {"handle": -1},
    "a handle that is true": {"handle": True},
    "a handle of text": {"handle": "0"},
    "a handle of half a number": {"handle": 0.0},
    "a handle beyond all": {"handle": 1 << 70},
    "a handle of handles": {"handle": {"handle": 0}},
    "an unknown kind": {"eval": "4"},
    "two kinds": {"tuple": [], "list": []},
    "no kind": {},
    "another type": {"type": "object"},
    "a type of a handle": {"type": {"handle": 0}},
    "a type itself": {"type": "Counter"},
    "a tuple of a handle": {"tuple": {"handle": 0}},
    "tuples of handles": {"tuples": [{"handle": 0}]},
    "a dict of one side": {"dict": [[1, 2], [1]]},
    "a dict of three sides": {"dict": [[1], [1], [1]]},
    "keys that don't hash": {"dict": [[[1]], [1]]},
    "a set of lists": {"set": [[1]]},
    "a set of a text": {"set": "4"},
    "a number that is none": {"int": "four"},
    "a number of a list": {"int": [4]},
    "a range of floats": {"range": [0.0, 1.0, 1.0]},
    "a range that stands still": {"range": [0, 1, 0]},
    "a range of handles": {"range": [{"handle": 0}, {"handle": 0}, {"handle": 0}]},
    "a Decimal that is none": {"Decimal": "four"},
    "a Fraction over zero": {"Fraction": [1, 0]},
    "a Fraction of a handle": {"Fraction": [{"handle": 0}, 1]},
    "a month too many": {"date": [2000, 13, 1]},
    "a zone of a handle": {"datetime": [0, 2000, 1, 1, 0, 0, 0, 0, {"handle": 0}]},
    "an offset of a handle": {"timezone": [{"handle": 0}]},
    "a deque of no room": {"deque": [-1, []]},
    "a default that is none": {"defaultdict": [4, [], []]},
    "a default of a handle": {"defaultdict": [{"handle": 0}, [], []]},
    "a complex of handles": {"complex": [{"handle": 0}, 0.0]},
    "bytes beyond bytes": {"bytes": "\u0444"},
    "an exception for a value": {"exception": [9, "E", "Exception"]},
    "an exception of no kind": {"exception": [9, "E", "BaseException"]},
    "an exception of itself": {"exception": [9, "E", {"exception": [9, "E", "Exception"]}]},
    "an exception of a handle": {"exception": [9, "E", {"handle": 0}]},
    "an exception without a name": {"exception": [9, 4, "Exception"]},
    "an exception with a number for a name": {"exception": [9, "\0", "Exception"]},
}
_WIRES = {
    **{name: _raw(f"say(number, True, {value!r})") for name, value in _CRAFTED.items()},
    "no answer but an end": _raw("os._exit(0)"),
    "an empty answer": _raw("send(b'')"),
    "half an answer": _raw("send(json.dumps([number, True, 0]).encode()[:-1])"),
    "two answers in one": _raw("send(json.dumps([number, True, 0]).encode() * 2)"),
    "two answers": _raw("say(number, True, 0); say(number, True, 4)"),
    "the answer before": _raw("say(number, True, 0); say(None, True, 4)"),
    "an answer to nobody": _raw("say(None, True, 4)"),
    "an answer to somebody else": _raw("say('0' * 16, True, 4)"),
    "an answer to a handle": _raw("say({'handle': 0}, True, 4)"),
    "an answer good as one": _raw("say(number, 1, 4)"),
    "an answer good as a handle": _raw("say(number, {'handle': 0}, 4)"),
    "an answer too long": _raw("say(number, True, 4, 4)"),
    "an answer too short": _raw("say(number, True)"),
    "an answer that is a dict": _raw("send(json.dumps({'dict': [[number], [4]]}).encode())"),
    "not text": _raw("send(b'\\xff\\xfe')"),
    "too deep an answer": _raw("send(b'[' * 100_000)"),
    "too deep a tuple": _raw("send(b'{\"tuple\":[' * 50_000)"),
    "a number of too many digits": _raw("send(f'[\"{number}\",true,'.encode() + b'9' * 100_000 + b']')"),
    "an exit for an error": _error("'SystemExit'", "[0]"),
    "our own error": _error("'_Gone'", "[]"),
    "no error": _error("'print'", "['ok']"),
    "an error of no name": _error("4", "[]"),
    "an error of a handle": _error("{'handle': 0}", "[]"),
    "an error that ends iterations": _error("'StopIteration'", "[4]"),
    "an heir that ends iterations": _error("{'exception': [9, 'E', 'StopIteration']}", "[4]"),
    "an error that ends generators": _error("'GeneratorExit'", "[]"),
    "an error without arguments": _error("'ValueError'"),
    "an error with a handle": _error("'ValueError'", "[{'handle': 0}]"),
    "an error with too much": _error("'ValueError'", "['x' * 5_000_000]"),
    "an error with too many": _error("'ValueError'", "[0] * 1000"),
    "an error that wants more": _error("'UnicodeDecodeError'", "['x']"),
}


_FILES = ("pickles", "names", "patches", "ends", "files", "frames", "threads")
_TABLES = {"values": _VALUES, "wire": _WIRES} | {kind: _programs(kind) for kind in _FILES}
ATTACKS = {f"{kind}: {name}": program for kind, table in _TABLES.items() for name, program in table.items()}

# For a test of `candidate(n)`, a list of n zeros: what an object in its place answers to the questions that a
# test asks of it, by operation.
CONTAINERS = {
    "a length below zero": {"len": -1},
    "a length that is true": {"len": True},
    "a length of half a number": {"len": 3.0},
    "a length that is a handle": {"len": {"handle": 0}},
    "a length beyond all": {"len": 1 << 200},
    "a truth that is a number": {"len": 3, "bool": 1},
    "a truth that is a handle": {"len": 3, "bool": {"handle": 0}},
    "items that are a text": {"len": 3, "pull": "000"},
    "items that are a handle": {"len": 3, "iter": {"handle": 0}, "pull": {"handle": 0}},
    "items that never end": {"len": 3, "iter": {"handle": 0}, "pull": [0]},
    "an iterator that is a number": {"len": 3, "iter": 0},
    "a text that is a handle": {"len": 3, "str": {"handle": 0}, "repr": {"handle": 0}, "iter": 0},
}


def container(answers: dict[str, object]) -> str:
    """The program that gives these answers, and a handle to every other question."""
    return _raw(f"say(number, True, {answers!r}.get(operation, {{'handle': 0}}))")


# Servers by hand whose values are right (`answer` is the double), and whose manners are not.
MANNERS = {
    "an answer to nobody": "say(None, True, answer)",
    "an answer to the question before": "say(before, True, answer)",
    "an answer good as one": "say(number, 1, answer)",
    "an answer too long": "say(number, True, answer, answer)",
    "an answer and an error": "say(number, False, answer)",
    "two answers": "say(number, True, answer); say(number, True, answer)",
    "two answers in one": "send(json.dumps([number, True, answer]).encode() * 2)",
    "a space after it": "send(json.dumps([number, True, answer]).encode() + b' ')",
    "an answer as a tuple": "say({'tuple': [number, True, answer]})",
    "an answer as a dict": "send(json.dumps({'dict': [[number, True, answer], [0, 0, 0]]}).encode())",
}


def mannered(answer: str) -> str:
    """The program that answers so, from the first question about its function on."""
    double = "answer = 2 * args[1] if operation == 'call' else {'handle': 0}"
    serve = f"number, operation, args, named = hear()\n    {double}\n    {answer}\n    before = number"
    return f"{_WIRE}before = number\nnames(number)\nwhile True:\n    {serve}\n"
