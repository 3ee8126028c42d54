"""Python objects as text: what a written file makes is what was passed."""

import functools
import json
import re
import subprocess
import sys
from dataclasses import dataclass
from math import pow
from types import ModuleType

import pytest

from smopd.api.objects import NoSourceError, Source

WORD = re.compile(r"\w+", re.I)
LIMIT = 3


def helper(text: str) -> int:
    return len(WORD.findall(text))


def uses_helper(text, most=LIMIT):
    """Looks up what stands around it."""
    return helper(text) <= most


def shadows():
    return pow(2, LIMIT)


def other_helper():
    def helper(text):
        return 0

    return helper


def around(limit):
    def inner(reply):
        return len(reply) < limit

    return inner


class Base:
    size = LIMIT


class Derived(Base):
    def double(self):
        return self.size * 2


@dataclass(frozen=True)
class Pair:
    first: int
    call: object = None
    most: object = None


def made(value, name="thing"):
    """What the written file makes of a value."""
    source = Source()
    expression = source.expression(value)
    text = source.text(f"{name} = {expression}")
    module = ModuleType("written")
    sys.modules["written"] = module
    try:
        exec(compile(text, "<written>", "exec"), vars(module))
    finally:
        del sys.modules["written"]
    return getattr(module, name), text


def test_a_function_with_what_it_refers_to():
    function, text = made(uses_helper)
    assert function("a b c")
    assert not function("a b c d")
    assert "def helper(text: str) -> int:" in text
    assert "LIMIT = 3" in text


def test_classes_and_records():
    assert made(Derived)[0]().double() == 6
    record, _ = made(Pair(1, helper, {"b", "a"}))
    assert (record.first, record.call("a b"), record.most) == (1, 2, {"a", "b"})
    assert "most={'a', 'b'}" in made(Pair(1, most={"b", "a"}))[1]


def test_what_is_installed_is_imported():
    assert "from json import dumps" in made(json.dumps)[1]
    assert "from math import pow\n" in made(shadows)[1]  # not the built-in of that name
    assert made(shadows)[0]() == 8.0


def test_a_module_of_the_users_stands_with_the_hash_of_its_text(tmp_path, monkeypatch):
    (tmp_path / "my_helper_module.py").write_text("def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_script.py").write_text("import my_helper_module as m\n\ndef g(x):\n    return m.f(x)\n")
    import my_script

    text = made(my_script.g)[1]
    hashed = "your own module; its text had the hash [0-9a-f]{12}"
    assert re.match(rf"import my_helper_module as m  # {hashed}\n", text)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x".upper, "an object of the class builtin_function_or_method has no text"),
        (Derived().double, "an object of the class method has no text"),
        (functools.partial(helper), "an object of the class partial has no text"),
        (lambda a: a, "a lambda has no text of its own"),
        (around(3), "inner uses variables of the function around it"),
        (object(), "an object of the class object has no text"),
    ],
)
def test_what_has_no_text_says_why(value, why):
    with pytest.raises(NoSourceError, match=why):
        made(value)


def test_two_things_of_one_name_are_not_mixed_up():
    source = Source()
    source.expression(helper)
    with pytest.raises(NoSourceError, match="two different things are named helper"):
        source.expression(other_helper())


def test_importing_smopd_is_light():
    heavy = ("torch", "transformers", "pydantic", "numpy", "matplotlib")
    code = f"import smopd, sys; smopd.__all__; print([m for m in {heavy!r} if m in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
