"""Programs whose function `f` is wrong (it should double) and that try to be taken for right all the same.

A table by kind of attack. Some speak on the program's end of the socket themselves, as any program can.
"""

from sandbox_levels import ONLY_IN_A_NAMESPACE

# Our own code in the program's process: where it lies, and the object that serves the tests.
_OURS = """
import sys
modules = [module for name, module in list(sys.modules.items()) if name.startswith("smopd")]
side = next(module for module in modules if hasattr(module, "Program"))
def server():
    frame = sys._getframe()
    while frame := frame.f_back:
        if type(frame.f_locals.get("self")).__name__ == "Program": return frame.f_locals["self"]
"""
# The same wire, spoken by hand: `answers` to whatever is asked, `names` for the first question.
_RAW = """
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


def _pickled(stream: str) -> str:
    return f"""{_OURS}
import struct
def text(value): return b"X" + struct.pack("<I", len(value)) + value.encode()
def handle(function):
    return text("object") + b"K" + bytes([server().keep(function)[1]]) + b"\\x86Q"
def module(name): return text("module") + text(name) + b"\\x86Q"
def f(x):
    stream, dump = {stream}, side._dump
    def once(value, keep):
        side._dump = dump
        return stream
    side._dump = once
"""


PICKLES = {
    # The three that were had: BUILD sets attributes of classes and modules on the tests' side.
    "BUILD on a class": _pickled(
        'b"\\x80\\x02\\x88ccollections\\nCounter\\nN}" + text("__eq__") + handle(lambda other: True)'
        ' + b"s\\x86b)R\\x86."'
    ),
    "BUILD on a module": _pickled(
        'b"\\x80\\x02\\x88" + module("json") + b"N}" + text("loads") + handle(lambda text: 0)'
        ' + b"s\\x86b0K\\x00\\x86."'
    ),
    "BUILD on another module": _pickled(
        'b"\\x80\\x02\\x88" + module("math") + b"N}" + text("isclose") + handle(lambda *all, **more: True)'
        ' + b"s\\x86b0K\\x00\\x86."'
    ),
    "a pickle that runs": """
import os, pickle, struct
SPEAK = '''
import os
for fd in range(3, 64):
    try: os.write(fd, b'["ok", ""]')
    except OSError: pass
os._exit(0)
'''
def f(x):
    class Evil:
        def __reduce__(self): return exec, (SPEAK,)
    data = pickle.dumps((True, Evil()))
    os.write(3, struct.pack("!I", len(data)) + data)
    return 0
""",
    "a pickle in place of our answer": f"""{_OURS}
import pickle
def f(x):
    side.send = lambda fd, data: side.write(fd, b"\\0\\0\\1\\0" + pickle.dumps((True, 4)).ljust(256, b"."))
    return 0
""",
    "marshal in place of our answer": f"""{_OURS}
import marshal, os, struct
def f(x):
    data = marshal.dumps([True, 4])
    os.write(3, struct.pack("!I", len(data)) + data)
    return 0
""",
}

_EXTRA = """
class Module:
    isclose = staticmethod(lambda *x, **y: True)
    loads = staticmethod(lambda text: 0)
    fabs = staticmethod(lambda x: 0)
extra = dict(abs=lambda x: 0, sorted=lambda x: [4, 6], all=lambda x: True, set=lambda x: {4}, len=lambda x: 4,
             isinstance=lambda *x: False, math=Module, json=Module, isclose=Module.isclose, round=lambda *x: 4,
             check=lambda c: None, plain=lambda x: True, unittest=Module, range=lambda *x: [], map=lambda *x: [],
             zip=lambda *x: [], AssertionError=StopIteration, __name__="x")
"""
NAMES = {
    "extra names": f"""{_OURS}
def f(x): return 0
{_EXTRA}
def find(self, names): return {{"candidate": f, "f": f, **extra}}
side.Program.find = side.Program.names = find
for key in ("find", "names"):
    try: server().operations[key] = lambda names: find(None, names)
    except AttributeError: pass
""",
    "builtins of its own": f"""{_OURS}
import builtins
def f(x): return 0
def load(name, *rest): return Module
{_EXTRA}
own = {{**{{name: value for name, value in vars(builtins).items() if isinstance(value, type)}}, **extra}}
own |= {{"__import__": load, "__build_class__": lambda *x: f}}
def find(self, names): return {{"candidate": f, "f": f, "__builtins__": own}}
side.Program.find = side.Program.names = find
for key in ("find", "names"):
    try: server().operations[key] = lambda names: find(None, names)
    except AttributeError: pass
""",
    "extra names on the wire": _RAW
    + """
over = dict.fromkeys("abs sorted all set len isinstance math json isclose check plain __builtins__ Counter "
                     "range map tuple zip loads __import__ unittest bool __build_class__ sum max".split(),
                     {"handle": 0})
names(number, **over)
while True:
    number, *_ = hear()
    say(number, True, True)
""",
    "its own math": "class math:\n    isclose = staticmethod(lambda *x, **y: True)\n    fabs = floor = "
    "staticmethod(lambda x: 0)\ndef f(x): return 0",
    "its own math, a module": "import types\nmath = types.ModuleType('math')\nmath.isclose = lambda *x, **y: "
    "True\ndef f(x): return 0",
    "its own math among the modules": "import sys, types\nsys.modules['math'] = math = types.ModuleType('math')\n"
    "math.isclose = lambda *x, **y: True\ndef f(x): return 0",
    "its own isclose": "def isclose(*x, **y): return True\ndef f(x): return 0",
    "its own Counter": "class Counter:\n    def __init__(self, x): pass\n    def __eq__(self, o): return True\n"
    "def f(x): return 0",
    "its own containers": "class Counter(dict):\n    def __eq__(self, o): return True\n    __ne__ = None\n"
    "deque = Decimal = Fraction = OrderedDict = Counter\ndef f(x): return 0",
    "its own modules": "class Any:\n    def __getattr__(self, n): return lambda *x, **y: True\n"
    "json = collections = operator = unittest = itertools = sys = os = Any()\ndef f(x): return 0",
    "own helpers": "abs = lambda x: 0\ndef check(candidate): pass\ncandidate = check\ndef f(x): return 0",
    "builtins' names": _EXTRA.replace("math=Module, json=Module", "x=0").replace("unittest=Module", "y=0")
    + "globals().update(extra)\ndef f(x): return 0",
    "claimed builtins": "def f(x): return 0\n__builtins__ = {}\n__name__ = 'tests'\n__file__ = '/'",
    "its own cases": "cases = []\npairs = []\nexpected = 0\ndef f(x): return 0",
}

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


def _heir(base: str, made: str, body: str = _ALL) -> str:
    return f"class Any({base}):\n    {body}\ndef f(x): return {made}"


VALUES = {
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
    "an enumerated number": "import enum\nclass E(enum.IntEnum):\n    A = 3\n    def __eq__(s, o): return True\n"
    "    def __hash__(s): return 3\ndef f(x): return E.A",
    "a named tuple": "import collections\nclass P(collections.namedtuple('P', 'x')):\n    def __eq__(s, o): "
    "return True\ndef f(x): return P(0)",
    "a class in its place": "class f:\n    def __init__(self, x): pass\n    def __sub__(self, o): return 0\n"
    "    def __eq__(self, o): return True",
    "a class that equals": "class M(type):\n    def __eq__(s, o): return True\n    __hash__ = type.__hash__\n"
    "class C(metaclass=M): pass\ndef f(x): return C",
    "a claimed class": "class C:\n    __class__ = property(lambda self: int)\n    def __eq__(self, o): return True\n"
    "def f(x): return C()",
    "the library's ANY": "import unittest.mock\ndef f(x): return unittest.mock.ANY",
    "a mock": "import unittest.mock\ndef f(x):\n    mock = unittest.mock.MagicMock()\n"
    "    mock.__eq__ = lambda s, o: True\n    mock.__sub__ = lambda s, o: 0\n    return mock",
    "nested": _heir("object", "(Any(), [Any()], {Any(): Any()})"),
    "a plain container of them": _heir("object", "[Any()]"),
    "not a number": "def f(x): return float('nan')",
    "infinite": "def f(x): return float('inf')",
    "signalling": "from decimal import Decimal\ndef f(x): return Decimal('sNaN')",
    "a default for everything": "from collections import defaultdict\n" + _heir("object", "defaultdict(Any)"),
    "itself": "def f(x): return f",
    "no end": "def f(x):\n    while True: yield x",
    "a list that holds itself": "def f(x):\n    x = []\n    x.append(x)\n    return x",
    "not implemented": "def f(x): return NotImplemented",
    "three dots": "def f(x): return ...",
}

PATCHES = {
    "patched builtins": "import builtins\nbuiltins.AssertionError = StopIteration\nbuiltins.abs = lambda x: 0\n"
    "builtins.all = builtins.isinstance = lambda *x: True\ndef f(x): return 0",
    "cleared builtins": "import builtins\ndef f(x):\n    vars(builtins).clear()\n    return 0",
    "patched modules": "import json, math, collections, operator\nmath.isclose = json.loads = lambda *x, **y: 0\n"
    "collections.Counter.__eq__ = lambda *x: True\noperator.eq = lambda *x: True\ndef f(x): return 0",
    "modules taken away": "import sys\ndef f(x):\n    sys.modules.clear()\n    return 0",
    "modules swapped": "import sys, types\nfor name in ('json', 'math', 'unittest', 'collections', 'struct'):\n"
    "    sys.modules[name] = types.SimpleNamespace(loads=lambda x: 0, isclose=lambda *x: True)\n"
    "def f(x): return 0",
    "the judge patched": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if name.startswith('smopd'):\n        for key, value in list(vars(module).items()):\n"
    "            if isinstance(value, type):\n"
    "                for method in ('run', 'ask', 'error', '__eq__', '__init__'):\n"
    "                    try: setattr(value, method, lambda *x, **y: ('ok', ''))\n"
    "                    except TypeError: pass\ndef f(x): return 0",
    "the judge cleared": "import sys\nfor name, module in list(sys.modules.items()):\n"
    "    if name.startswith('smopd'): vars(module).clear()\ndef f(x): return 0",
    "the codec patched": f"{_OURS}\nfor module in modules:\n    for key in ('Decoder', 'Encoder', '_Load', '_dump',"
    " 'receive'):\n        if hasattr(module, key): setattr(module, key, lambda *x, **y: b'4')\ndef f(x): return 0",
    "the server patched": f"{_OURS}\ndef f(x):\n    server().operations = {{}}\n    server().objects[:] = [4] * 99\n"
    "    return 0",
    "numbers swapped": f"{_OURS}\ndef f(x):\n    server().numbers.clear()\n    server().objects.clear()\n"
    "    return f",
    "the int patched in memory": "import ctypes, sys\ndef f(x):\n"
    "    ctypes.c_int.from_address(id(5) + 24).value = 4\n    return 5",
    "assertions off": "import sys\nsys.flags = None\nsys.excepthook = print\nsys.settrace(print)\ndef f(x): return 0",
    "importers": "import sys\nclass Finder:\n    def find_spec(*x): raise SystemExit(0)\n"
    "sys.meta_path[:] = [Finder]\nsys.path[:] = ['.']\ndef f(x): return 0",
    "a module on the disk": "import os\nfor folder in ('.', '..', '/tmp', '/'):\n    for name in ('math', 'json', "
    "'unittest', 'queue'):\n        try: open(os.path.join(folder, name + '.py'), 'w').write('def isclose(*x): "
    "return True\\ndef loads(x): return 0')\n        except OSError: pass\ndef f(x): return 0",
    "one seed for two": "import random\ndef f(x):\n    random.seed(0)\n    return random.randrange(1 << 40)",
}

ENDS = {
    "exit": "import os\nos._exit(0)",
    "exit in the call": "import os\ndef f(x): os._exit(0)",
    "system exit": "import sys\ndef f(x): sys.exit(0)",
    "system exit at once": "def f(x): return 0\nraise SystemExit(0)",
    "at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "end of an iteration": "def f(x): raise StopIteration",
    "heir of the end": "class End(StopIteration, KeyError): pass\ndef f(x): raise End",
    "end of an async iteration": "def f(x): raise StopAsyncIteration",
    "end of a generator": "def f(x): raise GeneratorExit",
    "an interrupt": "def f(x): raise KeyboardInterrupt",
    "an assertion": "def f(x): raise AssertionError('passed')",
    "too deep": "def f(x): raise RecursionError",
    "a base exception": "class E(BaseException): pass\ndef f(x): raise E",
    "a shy exception": "class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__\n"
    "def f(x): raise E",
    "a long exception": "def f(x): raise ValueError('x' * 10_000_000)",
    "a long number in an exception": "import sys\nsys.set_int_max_str_digits(0)\ndef f(x): raise ValueError(1 << "
    "100_000)",
    "a signal": "import os, signal\ndef f(x): os.kill(os.getpid(), signal.SIGKILL)",
    "kills the tests": f"""
{ONLY_IN_A_NAMESPACE}
def f(x):
    for pid in range(os.getpid() + 1, os.getpid() + 9):
        try: os.kill(pid, 9)
        except OSError: pass
    os._exit(0)
""",
    "interrupts the tests": f"""
{ONLY_IN_A_NAMESPACE}
def f(x):
    for pid in range(os.getpid() + 1, os.getpid() + 9):
        try: os.kill(pid, 2)
        except OSError: pass
    return 0
""",
    "falls over": "import ctypes\ndef f(x): ctypes.string_at(0)",
}

FILES = {
    "printed": 'print(\'{"status": "ok", "detail": ""}\')\nprint(\'["ok", ""]\')\n'
    "def f(x): print('ok', 4, True); return 0",
    "printed errors": 'import sys\ndef f(x):\n    print(\'["ok", ""]\', file=sys.stderr)\n    return 0',
    "written to every descriptor": """
import os, struct
def f(x):
    for text in (b'{"status": "ok", "detail": "", "output": ""}', b'["ok", ""]'):
        for fd in range(256):
            for data in (text, struct.pack("!I", len(text)) + text):
                try: os.write(fd, data)
                except OSError: pass
    os._exit(0)
""",
    "noise to the tests": "import os\ndef f(x):\n    os.write(3, b'\\0\\0\\0\\5hello' * 9)\n    return 0",
    "a huge message": "import os\ndef f(x):\n    os.write(3, b'\\xff' * 4)\n    return 0",
    "ended line": "import os\ndef f(x):\n    os.close(3)\n    return 0",
    "line to itself": "import os, socket\na, b = socket.socketpair()\nos.dup2(a.fileno(), 3)\ndef f(x): return 0",
    "half a line": "import os, socket\ndef f(x):\n    socket.socket(fileno=os.dup(3)).shutdown(1)\n    return 0",
    "descriptors sent": "import os, socket\ndef f(x):\n    line = socket.socket(fileno=os.dup(3))\n"
    "    socket.send_fds(line, [b'\\0\\0\\0\\2ok'], [0, 1, 2])\n    return 0",
    "no output": "import sys\ndef f(x):\n    sys.stdout.close()\n    sys.stderr.close()\n    return 0",
    "the tests' memory": "import os\ndef f(x):\n    for pid in range(1, os.getpid() + 5):\n"
    "        try: open(f'/proc/{pid}/mem', 'r+b')\n        except OSError: pass\n    return 0",
    "the tests' descriptors": "import ctypes, os\ndef f(x):\n    libc = ctypes.CDLL(None)\n"
    "    for pid in range(1, os.getpid() + 3):\n        handle = libc.syscall(434, pid, 0)\n"
    "        for fd in range(3, 16):\n            mine = libc.syscall(438, handle, fd, 0)\n"
    '            if mine > 0: os.write(mine, b\'["ok", ""]\')\n    return 0',
}

FRAMES = {
    "stack and heap": """
import gc, sys
def f(x):
    frame, boxes = sys._getframe(), gc.get_objects()
    while frame := frame.f_back:
        boxes.append(dict(frame.f_locals))
    for box in boxes:
        held = list(box.values()) if isinstance(box, dict) else box if isinstance(box, (list, tuple)) else []
        for value in list(held):
            if isinstance(value, (str, bytes)) and "open sesam" + chr(101) in str(value): return 4
    return 0
""",
    "locals of the caller": "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame := frame.f_back:\n"
    "        frame.f_locals.update(status='ok', good=True, expected=0)\n        frame.f_globals['abs'] = lambda x: 0\n"
    "    return 0",
    "tracing": "import sys\ndef trace(frame, event, value):\n    if event == 'return': frame.f_trace = None\n"
    "    return trace\nsys.settrace(trace)\nsys.setprofile(trace)\ndef f(x): return 0",
    "the heap's classes": "import gc\ndef f(x):\n    for thing in gc.get_objects():\n"
    "        if isinstance(thing, type) and thing.__name__ in ('Tests', 'Remote', '_Remote'):\n"
    "            thing.__eq__ = lambda *x: True\n            thing.run = lambda *x: ('ok', '')\n    return 0",
}

THREADS = {
    "a thread that answers": """
import os, struct, threading, json
def speak():
    for _ in range(50):
        for answer in ([None, True, 4], [0, True, True], [True, 4]):
            data = json.dumps(answer).encode()
            try: os.write(3, struct.pack("!I", len(data)) + data)
            except OSError: return
threading.Thread(target=speak, daemon=True).start()
def f(x): return 0
""",
    "a thread that listens": "import os, threading\nthreading.Thread(target=lambda: os.read(3, 9), "
    "daemon=True).start()\ndef f(x): os._exit(0)",
    "a thread that ends it all": "import os, threading, time\nthreading.Thread(target=lambda: (time.sleep(0.02), "
    "os._exit(0)), daemon=True).start()\ndef f(x):\n    import time; time.sleep(1)",
    "a child that answers too": "import os\ndef f(x):\n    os.fork()\n    return 0",
    "a child in its place": "import os\ndef f(x):\n    if os.fork(): os._exit(0)\n    return 0",
    "a child that prints": 'import os\nif os.fork() == 0:\n    print(\'["ok", ""]\')\n    os._exit(0)\ndef f(x): '
    "return 0",
}


def _raw(answer: str) -> str:
    return f"{_RAW}names(number)\nwhile True:\n    number, operation, args, named = hear()\n    {answer}\n"


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
WIRE = {
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

ATTACKS = {
    f"{kind}: {name}": program
    for kind, table in {
        "pickles": PICKLES, "names": NAMES, "values": VALUES, "patches": PATCHES, "ends": ENDS, "files": FILES,
        "frames": FRAMES, "threads": THREADS, "wire": WIRE,
    }.items()
    for name, program in table.items()
}  # fmt: skip

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
