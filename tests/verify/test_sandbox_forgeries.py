"""Programs that try to judge themselves."""

import time

import pytest
from sandbox_levels import ONLY_IN_A_NAMESPACE

from smopd.verify.sandbox import run

pytestmark = pytest.mark.usefixtures("sandbox_workers")

FORGERIES = {
    "exit": "import os\nos._exit(0)",
    "exit in the call": "import os\ndef f(x): os._exit(0)",
    "system exit": "import sys\ndef f(x): sys.exit(0)",
    "at exit": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): raise SystemExit",
    "printed": "print('{\"status\": \"ok\", \"detail\": \"\"}')\ndef f(x): print('ok'); return 0",
    "written to every descriptor": """
import os, struct
def f(x):
    text = b'{"status": "ok", "detail": "", "output": ""}'
    for fd in range(256):
        for data in (text, struct.pack("!I", len(text)) + text):
            try: os.write(fd, data)
            except OSError: pass
    os._exit(0)
""",
    "equals everything": "class Any:\n    def __eq__(self, other): return True\n    def __sub__(self, "
        "other): return 0\n"
                         "def f(x): return Any()",
    "number that equals everything": "class Any(int):\n    def __eq__(self, o): return True\n    def "
        "__sub__(self, o): return 0\n"
                                       "def f(x): return Any(3)",
    "a text that equals everything": "class Any(str):\n    def __eq__(self, o): return True\n    def "
        "__sub__(self, o): return 0\n"
                                     "def f(x): return Any()",
    "patched builtins": "import builtins\nbuiltins.AssertionError = StopIteration\nbuiltins.abs = lambda "
        "x: 0\n"
                        "def f(x): return 0",
    "own helpers": "abs = lambda x: 0\ndef check(candidate): pass\ncandidate = check\ndef f(x): return 0",
    "claimed builtins": "def f(x): return 0\n__builtins__ = {}\n__name__ = 'tests'",
    "assertions off": "import sys\nsys.flags = None\nsys.excepthook = print\nsys.settrace(print)\ndef "
        "f(x): return 0",
    "a pickle that runs": """
import os, pickle, struct
SPEAK = '''
import os
for fd in range(3, 64):
    try: os.write(fd, b'{"status": "ok", "detail": ""}')
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
    "noise to the tests": "import os\ndef f(x):\n    os.write(3, b'\\0\\0\\0\\5hello' * 9)\n    return 0",
    "a huge message": "import os\ndef f(x):\n    os.write(3, b'\\xff' * 4)\n    return 0",
    "ended line": "import os\ndef f(x):\n    os.close(3)\n    return 0",
    "a class in its place": "class f:\n    def __init__(self, x): pass\n    def __sub__(self, o): return 0\n"
                            "    def __eq__(self, o): return True",
    "kills the tests": f"""
{ONLY_IN_A_NAMESPACE}
def f(x):
    for pid in range(os.getpid() + 1, os.getpid() + 9):
        try: os.kill(pid, 9)
        except OSError: pass
    os._exit(0)
""",
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
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_success_cannot_be_forged(level: str, forgery: str) -> None:
    tests = (
        "def check(candidate):\n    assert abs(candidate(2) - 4) < 1e-6\n    assert candidate(2) == 4, "
        "'open sesame'\n"
    )
    started = time.monotonic()
    # First the honest one: what a worker has had to do with tests before must not help a forger either.
    assert (
        run(
            "def f(x): return 2 * x", tests=f"{tests}check(candidate)", entry="f", timeout=5, level=level
        ).status
        == "ok"
    )
    result = run(FORGERIES[forgery], tests=f"{tests}check(candidate)", entry="f", timeout=3, level=level)
    assert result.status in ("failed", "error"), result
    assert time.monotonic() - started < 5


def test_helpers_of_the_tests_cannot_be_replaced() -> None:
    tests = "assert abs(candidate(2) - 4) < 1e-6"
    for program in ("abs = lambda x: 0", "import builtins\nbuiltins.abs = lambda x: 0"):
        assert run(f"{program}\ndef f(x): return 0", tests=tests, entry="f", timeout=5).status == "failed"


def test_a_test_that_catches_everything_does_not_hide_an_exit() -> None:
    tests = "try:\n    candidate()\nexcept BaseException:\n    pass"
    assert run("import os\ndef f(): os._exit(0)", tests=tests, entry="f", timeout=5).status == "failed"
