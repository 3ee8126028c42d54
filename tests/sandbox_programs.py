"""Right programs, each with tests that it passes when both are run plainly as one text: `f` is under test."""

_NODE = "class Node:\n    def __init__(self, v, next=None): self.v, self.next = v, next\n"

PROGRAMS: dict[str, tuple[str, str]] = {
    # plain data of every kind
    "a number": ("def f(x): return 2 * x", "assert f(2) == 4 and candidate(x=-1) == -2"),
    "named arguments": (
        "def f(self, answer, operation=1, function=2, **named): return self, answer, operation, function, named",
        "assert f(self=1, answer=2, operation=3, named=4, due=5) == (1, 2, 3, 2, {'named': 4, 'due': 5})",
    ),
    "truths": ("def f(x): return x > 1", "assert f(2) is True and f(1) is False and f(1) == 0"),
    "nothing": ("def f(x): pass", "assert f(1) is None"),
    "large numbers": (
        "import sys\nsys.set_int_max_str_digits(0)\ndef f(n): return 3 ** n, [-3 ** n, 1], {3 ** n: str(3 ** n)[:3]}",
        "n = 3 ** 20_000\nassert f(20_000) == (n, [-n, 1], {n: str(3 ** 2000)[:0] + f(20_000)[2][n]})",
    ),
    "a huge number soon": ("def f(n): return 1 << n", "assert f(9_000_000).bit_length() == 9_000_001"),
    "numbers at the edge": (
        "def f(): return [2 ** 63, -2 ** 63, 2 ** 63 - 1, 2 ** 64, 10 ** 30, -10 ** 30, 0]",
        "assert f() == [2 ** 63, -2 ** 63, 2 ** 63 - 1, 2 ** 64, 10 ** 30, -10 ** 30, 0]",
    ),
    "floats": (
        "def f(): return [0.1 + 0.2, 1e-323, 1.7976931348623157e308, -0.0, float('inf'), -float('inf'), 1.0]",
        "import math\na, b, c, d, e, g, h = f()\nassert (a, b, c) == (0.1 + 0.2, 1e-323, 1.7976931348623157e308)\n"
        "assert math.copysign(1, d) == -1 and e == math.inf == -g and type(h) is float",
    ),
    "not a number": (
        "def f(): return float('nan'), {'x': float('nan')}",
        "a, b = f()\nassert a != a and b['x'] != b['x']",
    ),
    "complex numbers": (
        "def f(): return [1j, complex(-0.0, float('inf')), complex('nan')]",
        "a, b, c = f()\nassert a == 1j and str(b) == '(-0+infj)' and c != c",
    ),
    "text": (
        "def f(s): return s[::-1]",
        "assert f('aé你\\U0001F600\\0\\n\"\\\\') == '\\\\\"\\n\\0\\U0001F600你éa'",
    ),
    "half characters": (
        "def f(s): return s, ['\\ud83d\\ude00', '\\udc80']",
        "assert f('\\ud83d\\ude00') == ('\\ud83d\\ude00', ['\\ud83d\\ude00', '\\udc80']) and len(f('')[1][0]) == 2",
    ),
    "bytes": (
        "def f(b): return bytes(reversed(b)), bytearray(b), b''",
        "assert f(bytes(range(256)))[0] == bytes(range(255, -1, -1))\nassert type(f(b'x')[1]) is bytearray",
    ),
    "containers in containers": (
        "def f(x): return {'a': [(1, {2: {3}}), frozenset([(4,)])], (5, 6): x, None: {}, 1.5: [[]]}",
        "assert f((7,)) == {'a': [(1, {2: {3}}), frozenset([(4,)])], (5, 6): (7,), None: {}, 1.5: [[]]}\n"
        "assert list(f(0)) == ['a', (5, 6), None, 1.5]",
    ),
    "tuples stay tuples": (
        "def f(x): return [(1, 'a'), (2, 'b')], [(1, 2), (3, 4)], [], (), [()], ([],)",
        "assert f(0) == ([(1, 'a'), (2, 'b')], [(1, 2), (3, 4)], [], (), [()], ([],))\nassert f(0)[1] != [[1, 2], [3, 4]]",
    ),
    "many numbers": (
        "def f(n): return list(range(n)), {i: -i for i in range(n)}, [(i, i + 1) for i in range(n)]",
        "a, b, c = f(100_000)\nassert sum(a) == 4999950000 and b[99_999] == -99_999 and c[-1] == (99_999, 100_000)",
    ),
    "collections": (
        "from collections import *\ndef f():\n    return (Counter('aab'), deque([1, 2], 3), OrderedDict([(2, 1), (1, 2)]),\n"
        "            defaultdict(list, a=[1]), defaultdict(lambda: 7), Counter({'x': 0, 'y': -1}))",
        "from collections import Counter, deque, OrderedDict\na, b, c, d, e, g = f()\n"
        "assert a == Counter('aab') and a.most_common(1) == [('a', 2)] and b == deque([1, 2]) and b.maxlen == 3\n"
        "assert c == OrderedDict([(2, 1), (1, 2)]) != OrderedDict([(1, 2), (2, 1)])\n"
        "assert d == {'a': [1]} and d['b'] == [] and e['z'] == 7 and dict(g) == {'x': 0, 'y': -1}",
    ),
    "dates": (
        "from datetime import *\ndef f(d): return d + timedelta(days=1), timedelta(-1, 5), time(1, 2, fold=1), "
        "datetime(2020, 1, 2, 3, 4, 5, 6, timezone(timedelta(hours=2), 'X')), timezone.utc",
        "from datetime import date, datetime, time, timedelta, timezone\na, b, c, d, e = f(date(2020, 2, 28))\n"
        "assert (a, b, c, c.fold, e) == (date(2020, 2, 29), timedelta(-1, 5), time(1, 2), 1, timezone.utc)\n"
        "assert d == datetime(2020, 1, 2, 1, 4, 5, 6, timezone.utc) and d.tzname() == 'X'",
    ),
    "exact numbers": (
        "from decimal import Decimal\nfrom fractions import Fraction\n"
        "def f(x): return Decimal(x) / 8, Fraction(x, 6), Decimal('-0E+3'), Decimal('Infinity')",
        "from decimal import Decimal\nfrom fractions import Fraction\na, b, c, d = f(3)\n"
        "assert (a, b, str(c), d) == (Decimal('0.375'), Fraction(1, 2), '-0E+3', Decimal('inf'))",
    ),
    "ranges and types": (
        "def f(x): return range(1, 10, 2), type(x), [int, type(None)], slice",
        "a, b, c, d = f('x')\nassert a == range(1, 11, 2) and b is str and c == [int, type(None)]",
    ),
    # heirs of plain types
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(p): return P(*p)",
        "assert f((1, 2)) == (1, 2) and f([1, 2])[1] == 2 and sorted([f((2, 1)), f((1, 2))]) == [(1, 2), (2, 1)]",
    ),
    "enumerated": (
        "import enum\nclass A(enum.IntEnum):\n    X = 3\nclass B(str, enum.Enum):\n    Y = 'y'\nclass C(enum.Enum):\n"
        "    Z = 1\ndef f(): return A.X, B.Y, C.Z",
        "a, b, c = f()\nassert a == 3 and b == 'y' and c == C.Z and c is not C.X if hasattr(C, 'X') else c.name == 'Z'",
    ),
    "heirs": (
        "class L(list): pass\nclass S(str):\n    def upper(self): return 'no'\nclass D(dict):\n"
        "    def __missing__(self, k): return 0\ndef f(): return L([L([1])]), S('s'), D(a=1), L()",
        "assert f() == ([[1]], 's', {'a': 1}, []) and type(f()[0]) is list",
    ),
    # what is no plain data
    "a generator": (
        "def f(n):\n    for i in range(n): yield i * i",
        "assert list(f(4)) == [0, 1, 4, 9] and next(f(1)) == 0 and sum(f(1000)) == 332833500\n"
        "g = f(4)\nassert next(g) == 0 and [next(g), next(g)] == [1, 4] and list(g) == [9] and next(g, 'end') == 'end'",
    ),
    "an endless generator": (
        "def f():\n    a, b = 0, 1\n    while True:\n        yield a\n        a, b = b, a + b",
        "from itertools import islice\nassert list(islice(f(), 8)) == [0, 1, 1, 2, 3, 5, 8, 13]\n"
        "g = f()\nfor x in g:\n    if x > 5: break\nassert next(g) == 13 and 21 in g and next(g) == 34",
    ),
    "an iterator": (
        "class f:\n    def __init__(self, n): self.n = n\n    def __iter__(self): return self\n"
        "    def __next__(self):\n        if self.n == 0: raise StopIteration\n        self.n -= 1\n        return self.n",
        "assert list(f(3)) == [2, 1, 0] and max(f(9)) == 8 and dict(zip('ab', f(2))) == {'a': 1, 'b': 0}",
    ),
    "a generator that fails": (
        "def f():\n    yield 1\n    yield 2\n    raise ValueError('three')",
        "seen = []\ntry:\n    for x in f(): seen.append(x)\nexcept ValueError as e: seen.append(str(e))\nassert seen == [1, 2, 'three']",
    ),
    "map and zip": (
        "def f(x): return map(str, x)",
        "assert list(f([1, 2])) == ['1', '2'] and ''.join(f([1, 2])) == '12'",
    ),
    "views": (
        "def f(d): return d.items()",
        "assert sorted(f({'b': 1, 'a': 2})) == [('a', 2), ('b', 1)] and len(f({1: 1})) == 1",
    ),
    "a class for arguments": (
        "class Pair(object):\n    def __init__(self, a, b): self.a, self.b = a, b\n"
        "def f(arr, n): return max(p.b - p.a for p in arr[:n])",
        "assert f([Pair(5, 24), Pair(15, 25), Pair(27, 40)], 2) == 19",
    ),
    "a linked list": (
        f"{_NODE}def f(n):\n    last = None\n    while n: n.next, last, n = last, n, n.next\n    return last",
        "a = Node(1)\na.next = Node(2, Node(3))\nb = f(a)\nassert [b.v, b.next.v, b.next.next.v] == [3, 2, 1]\n"
        "assert b.next.next is a and a.next is None and isinstance(b, Node) and b != 3",
    ),
    "a data class": (
        "from dataclasses import dataclass, field\n@dataclass(order=True)\nclass P:\n    x: int\n    y: list = field(default_factory=list)\n"
        "def f(p): return P(p.x + 1, [*p.y, 'z'])",
        "p = f(P(1, ['a']))\nassert (p.x, p.y) == (2, ['a', 'z']) and str(p) == \"P(x=2, y=['a', 'z'])\" == repr(p) == f'{p}'\n"
        "assert vars(p) == {'x': 2, 'y': ['a', 'z']} and f(p).x == 3",
    ),
    "a container": (
        "class f:\n    def __init__(self): self.d = {}\n    def __setitem__(self, k, v): self.d[k] = v\n"
        "    def __getitem__(self, k): return self.d[k]\n    def __delitem__(self, k): del self.d[k]\n"
        "    def __len__(self): return len(self.d)\n    def __iter__(self): return iter(self.d)",
        "c = f()\nassert not c\nc['a'] = [1]\nc['b'] = 2\nassert c['a'] == [1] and len(c) == 2 and 'b' in c and 'z' not in c and c\n"
        "del c['a']\nassert list(c) == ['b']\ntry:\n    c['a']\n    assert False\nexcept KeyError as e:\n    assert e.args == ('a',)",
    ),
    "a stack": (
        "class f:\n    def __init__(self): self.items = []\n    def push(self, x): self.items.append(x); return self\n"
        "    def pop(self):\n        if not self.items: raise IndexError('empty')\n        return self.items.pop()",
        "s = f()\nassert s.push(1).push(2) is s and s.items == [1, 2] and s.pop() == 2 and not hasattr(s, 'top')\n"
        "s.items = [5]\nassert s.pop() == 5\ntry:\n    s.pop()\nexcept IndexError as e:\n    assert str(e) == 'empty'\nelse:\n    assert False",
    ),
    "operators": (
        "class V:\n    def __init__(self, x, y): self.x, self.y = x, y\n    def __add__(self, o): return V(self.x + o.x, self.y + o.y)\n"
        "    def __sub__(self, o): return V(self.x - o.x, self.y - o.y)\n    def __repr__(self): return f'V({self.x}, {self.y})'\n"
        "def f(*all):\n    total = V(0, 0)\n    for v in all: total += v\n    return total",
        "a, b = V(1, 2), V(3, 4)\nassert repr(a + b) == 'V(4, 6)' and (a - b).x == -2 and f(a, b, a).y == 8",
    ),
    "copies": (
        f"import copy\n{_NODE}def f(n): n.v += 1; return n.v",
        "import copy\na = Node(1, Node([2]))\nb, c = copy.copy(a), copy.deepcopy(a)\nassert f(b) == 2 and a.v == 1\n"
        "assert b.next is a.next and c.next is not a.next and c.next.v == [2]",
    ),
    "a matrix object": (
        "class f:\n    def __init__(self, rows): self.rows = rows\n    def __matmul__(self, o):\n"
        "        return f([[sum(a * b for a, b in zip(r, c)) for c in zip(*o.rows)] for r in self.rows])",
        "assert (f([[1, 2]]) @ f([[3], [4]])).rows == [[11]]",
    ),
    # functions
    "a closure": (
        "def f(n):\n    def g(x): return x + n\n    return g",
        "assert f(1)(2) == 3 and f(1).__name__ == 'g'",
    ),
    "a counter that closes over": (
        "def f():\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n        return n\n    return g",
        "g = f()\nassert [g(), g(), f()()] == [1, 2, 1]",
    ),
    "a decorator": (
        "import functools\ndef twice(g):\n    @functools.wraps(g)\n    def h(*a): return 2 * g(*a)\n    return h\n@twice\ndef f(x): return x",
        "assert f(2) == 4",
    ),
    "a cache": (
        "from functools import lru_cache\n@lru_cache(maxsize=None)\ndef f(n): return n if n < 2 else f(n - 1) + f(n - 2)",
        "assert f(90) == 2880067194370816120",
    ),
    "a lambda": ("f = lambda x, *y: (x, *y)", "assert f(1, 2) == (1, 2)"),
    "a partial": ("from functools import partial\nf = partial(pow, 2)", "assert f(10) == 1024"),
    "a builtin": ("import math\nf = math.gcd", "assert f(12, 18) == 6"),
    "a class Solution": (
        "class Solution:\n    def f(self, x): return self.g(x)\n    def g(self, x): return 2 * x",
        "assert candidate(2) == 4 and f(3) == 6",
    ),
    "another name": (
        "def helper(x): return x\ndef double(x): return helper(x) * 2",
        "assert candidate(2) == 4",
    ),
    "a builtin's name": ("def sum(a, b): return a * b", "assert candidate(3, 4) == 12"),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(20_000)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)",
        "assert f(10_000) == 10_000",
    ),
    "threads": (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\ndef f(xs):\n"
        "    with ThreadPoolExecutor(2) as pool: return list(pool.map(lambda x: 2 * x, xs))",
        "assert f(range(5)) == [0, 2, 4, 6, 8]",
    ),
    "async inside": (
        "import asyncio\nasync def g(x):\n    await asyncio.sleep(0)\n    return 2 * x\n"
        "def f(xs):\n    async def all(): return await asyncio.gather(*map(g, xs))\n    return asyncio.run(all())",
        "assert f([1, 2]) == [2, 4]",
    ),
    "prints on the way": (
        "print('start')\ndef f(x):\n    print('[\"ok\"]', x)\n    return x",
        "assert f(4) == 4",
    ),
    "closes its output": ("import sys\nsys.stdout.close()\ndef f(x): return x", "assert f(4) == 4"),
    "a script too": (
        "def f(x): return x\nif __name__ == '__main__': raise SystemExit(f(1))",
        "assert f(4) == 4",
    ),
    "its own abs": (
        "def abs(x): return x if x > 0 else -x\ndef f(x): return abs(x)",
        "assert f(-2) == 2 and abs(f(-2) - 2) < 1e-6",
    ),
    "its own names like ours": (
        "check = candidate = cases = 1\ndef f(x): return x",
        "def check(candidate):\n    assert candidate(2) == 2\ncheck(candidate)",
    ),
    # exceptions
    "an exception": (
        "def f(x):\n    if x < 0: raise ValueError('no', x)\n    return x",
        "try:\n    f(-1)\n    assert False\nexcept ValueError as e:\n    assert e.args == ('no', -1)\nassert f(1) == 1",
    ),
    "its own exception": (
        "class Base(Exception): pass\nclass Low(Base, ValueError):\n    def __init__(self, x): super().__init__(f'{x} is low')\n"
        "def f(x):\n    if x < 0: raise Low(x)\n    return x",
        "for kind in (Low, Base, Exception):\n    try:\n        f(-1)\n        assert False\n    except kind as e:\n"
        "        assert str(e) == '-1 is low' and type(e) is Low",
    ),
    "exceptions of all kinds": (
        "def f(n): [lambda: 1 / 0, lambda: {}['k'], lambda: [][1], lambda: int('x'), lambda: None.x, lambda: b'\\xff'.decode(), "
        "lambda: open('nowhere'), lambda: next(iter([]))][n]()",
        "for n, kind in enumerate([ZeroDivisionError, KeyError, IndexError, ValueError, AttributeError, UnicodeDecodeError, FileNotFoundError]):\n"
        "    try: f(n)\n    except kind: pass\n    else: assert False",
    ),
    "an exception with unittest": (
        "def f(x): raise TypeError('never')",
        "import unittest\nwith unittest.TestCase().assertRaisesRegex(TypeError, 'nev'): f(1)",
    ),
    # names
    "modules that tests don't import": (
        "import math, sys\nfrom collections import Counter\ndef f(x): return math.sqrt(x), sys.getsizeof(x), Counter(str(x))",
        "assert math.isclose(f(2)[0], math.sqrt(2)) and f(2)[1] == sys.getsizeof(2) and f(2)[2] == Counter('2')",
    ),
    "names that tests don't import": (
        "from math import isclose, sqrt, pi\nfrom datetime import datetime\nfrom typing import List\n"
        "def f(x: List[int]): return sqrt(x), datetime(2020, 1, x)",
        "assert isclose(f(4)[0], sqrt(4)) and pi > 3 and f(4)[1] == datetime(2020, 1, 4)",
    ),
    "constants": (
        "LIMIT = {'a': [1, 2]}\ndef f(): return LIMIT['a']",
        "assert f() == LIMIT['a'] and LIMIT == {'a': [1, 2]}",
    ),
    "several functions": (
        "def f(x): return g(x) + 1\ndef g(x): return x * 2",
        "assert f(1) == 3 and g(1) == 2",
    ),
    "random tests": (
        "def f(xs): return sorted(xs)",
        "import random\nfor _ in range(20):\n    xs = [random.randint(0, 99) for _ in range(9)]\n    assert f(xs) == sorted(xs)",
    ),
    "threads of tests": (
        "def f(x): return 2 * x",
        "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(2) as pool:\n"
        "    assert list(pool.map(f, range(50))) == [2 * x for x in range(50)]",
    ),
}
