"""Python objects as text: what a written file makes is what was passed."""

import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from types import ModuleType

import pytest

from smopd.api.source import NoSourceError, Source

WORD = re.compile(r"\w+", re.I)
LIMIT = 3


def helper(text: str) -> int:
    return len(WORD.findall(text))


def uses_helper(text, most=LIMIT):
    """Looks up what stands around it."""
    return helper(text) <= most


@functools.lru_cache
def cached(text):
    return text * LIMIT


class Base:
    size = LIMIT


class Derived(Base):
    def double(self):
        return self.size * 2


@dataclass(frozen=True)
class Pair:
    first: int
    call: object = None
    most: float = float("inf")


def made(value, name="thing"):
    """What the written file makes of a value."""
    source = Source()
    words = source.expression(value)
    text = source.text(f"{name} = {words}")
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


def test_variables_of_an_enclosing_function_are_written_as_they_are_now():
    words = ["yes"]

    def inner(reply):
        return reply in words and len(reply) <= LIMIT

    function, text = made(inner)
    assert function("yes")
    assert not function("no")
    assert "words = ['yes']" in text


def test_a_lambda_also_one_of_two_in_a_line():
    most = 2
    first, second = (lambda a: len(a) > most), (lambda a: len(a) < most)
    assert [made(f)[0]("abc") for f in (first, second)] == [True, False]


def test_classes_decorators_partials_and_records():
    assert made(Derived)[0]().double() == 6
    assert made(cached)[0]("a") == "aaa"
    assert made(functools.partial(uses_helper, most=1))[0]("a") is True
    record, _ = made(Pair(1, helper, 2.5))
    assert (record.first, record.call("a b"), record.most) == (1, 2, 2.5)
    assert made(Pair(1))[0].most == float("inf")
    assert "import functools" in made(cached)[1]


def test_what_is_installed_is_imported():
    assert made(functools.reduce)[1].startswith("from _functools import reduce")
    assert "from json import dumps" in made(__import__("json").dumps)[1]


def test_a_module_of_the_users_stands_with_the_hash_of_its_text(tmp_path, monkeypatch):
    (tmp_path / "my_helper_module.py").write_text("def f(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    import my_helper_module

    source = Source()
    source.define("my_helper_module", my_helper_module)
    assert re.fullmatch(
        r"import my_helper_module  # a module of yours, its text had the hash [0-9a-f]{12}\n", source.text()
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("x".upper, "upper is a built-in that cannot be imported"),
        (Derived().double, "an object of the class|text"),
        (eval("lambda a: a"), "its text is not at hand|not at hand"),
        (object(), "an object of the class object has no text"),
    ],
)
def test_what_has_no_text_says_why(value, why):
    with pytest.raises(NoSourceError, match=why):
        made(value)


def test_two_things_of_one_name_are_not_mixed_up():
    def outer(limit):
        def inner(reply):
            return len(reply) < limit

        return inner

    source = Source()
    source.expression(outer(1))
    with pytest.raises(NoSourceError, match="two different things are named"):
        source.expression(outer(2))


def test_importing_smopd_is_light():
    heavy = ("torch", "transformers", "pydantic", "numpy", "matplotlib")
    code = f"import smopd, sys; smopd.__all__; print([m for m in {heavy!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
