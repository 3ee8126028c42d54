"""What crosses between a program and its tests: every kind of plain data exactly, and nothing else from any
bytes.
"""

import collections
import datetime
import decimal
import enum
import fractions
import math
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smopd.verify.wire import TYPES, Decoder, Encoder


def refuse(value: Any) -> Any:
    raise TypeError(f"{value!r} is no plain data")


encode, decode = Encoder(refuse), Decoder()

zones = st.none() | st.timedeltas(-datetime.timedelta(hours=23), datetime.timedelta(hours=23)).map(
    datetime.timezone
)
numbers = st.decimals().filter(lambda number: not number.is_snan())  # these cannot even be hashed
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(1 << 70), 1 << 70), st.floats(),
    st.complex_numbers(), st.text(st.characters(categories=None)), st.binary(), numbers, st.fractions(),
    st.dates(), st.datetimes(timezones=zones), st.times(timezones=zones), st.timedeltas(),
    st.sampled_from(list(TYPES.values())), st.builds(range, st.integers(), st.integers(), st.integers(1)),
)  # fmt: skip
hashable = st.recursive(leaves, lambda inner: st.lists(inner).map(tuple) | st.frozensets(inner), max_leaves=3)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(st.integers()), st.lists(st.tuples(st.integers(), st.integers())),
        st.lists(inner).map(tuple), st.sets(hashable), st.dictionaries(hashable, inner),
        st.binary().map(bytearray), st.lists(inner).map(lambda items: collections.deque(items, 9)),
        st.dictionaries(hashable, inner).map(dict.keys), st.dictionaries(hashable, inner).map(dict.values),
        st.dictionaries(hashable, inner).map(dict.items), st.builds(slice, leaves, leaves, leaves),
        st.dictionaries(hashable, inner).map(collections.OrderedDict),
        st.dictionaries(hashable, st.integers()).map(collections.Counter),
        st.dictionaries(hashable, inner).map(lambda items: collections.defaultdict(list, items)),
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(values)
def test_plain_data_cross_exactly(value: Any) -> None:
    assert told(decode(encode(value))) == told(value)


VIEWS = type({}.keys()) | type({}.values()) | type({}.items())


def told(value: Any) -> Any:
    """Types, order, signs of zeros within a value, as text: in it not even a nan differs from itself."""
    if isinstance(value, dict):
        return type(value), [(told(key), told(item)) for key, item in value.items()]
    if isinstance(value, list | tuple | collections.deque | VIEWS):
        return type(value), [*map(told, value)], getattr(value, "maxlen", None)
    if isinstance(value, set | frozenset):
        return type(value), sorted(str(told(item)) for item in value)
    return type(value), repr(value), getattr(value, "fold", None)


def kinds(value: Any) -> set[type]:
    """The exact types of everything within a value."""
    inner = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(value, dict | list | tuple | set | frozenset | collections.deque):
        return {type(value)}
    return {type(value)}.union(*map(kinds, inner))


PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "null",
    "true",
    "NaN",
    "-1",
    "0.5",
    "1e999",
    '""',
    '"0x4"',
    '"\\ud800"',
    "9" * 4400,
]
PIECES += [f'{{"{tag}":' for tag in (*Decoder().builders, "handle", "object")] + [
    "[[1],[2]]",
    "[1,2,3]",
    '"list"',
]


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.binary(max_size=60),
        st.lists(st.sampled_from(PIECES), max_size=9).map("".join).map(str.encode),
        st.tuples(st.sampled_from(PIECES[16:]), st.lists(st.sampled_from(PIECES), max_size=4)).map(
            lambda parts: (parts[0] + "".join(parts[1]) + "}").encode()
        ),
        st.tuples(values, st.integers(0, 50), st.binary(max_size=3)).map(
            lambda parts: (whole := encode(parts[0]))[: parts[1]] + parts[2] + whole[parts[1] + 1 :]
        ),
    )
)
def test_any_bytes_are_plain_data_or_an_exception(data: bytes) -> None:
    try:
        value = decode(data)
    except Exception:
        return
    assert kinds(value) <= {*TYPES.values(), type}


class Number(int):
    def __int__(self) -> int:
        return 99

    __index__ = __pos__ = __add__ = __int__  # type: ignore[assignment]


class Real(float):
    def __float__(self) -> float:
        return 99.0

    __pos__ = __float__


class Text(str):
    def __str__(self) -> str:
        return "other"


class Items(list):
    def __iter__(self) -> Any:
        return iter("other")

    def __getitem__(self, key: Any) -> Any:
        return ["other"]


class Table(dict):
    def keys(self) -> Any:
        return ["other"]

    items = values = __iter__ = keys


class Colour(enum.IntEnum):
    RED = 3


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Number(3), 3), (Real(-0.0), -0.0), (Text("x"), "x"), (Items([1, 2]), [1, 2]), (Table(a=1), {"a": 1}),
        (Colour.RED, 3), (collections.namedtuple("P", "x y")(1, 2), (1, 2)),
        (type("Bytes", (bytes,), {})(b"x"), b"x"), (type("Set", (set,), {"__iter__": None})({1}), {1}),
        (type("Date", (datetime.date,), {})(2020, 1, 2), datetime.date(2020, 1, 2)),
        (type("Tuples", (tuple,), {"__iter__": None})([1]), (1,)),
    ],
)  # fmt: skip
def test_heirs_arrive_as_the_plain_type(value: Any, plain: Any) -> None:
    for decoded, wanted in ((decode(encode(value)), plain), (decode(encode([value, 0]))[0], plain)):
        assert (type(decoded), repr(decoded)) == (type(wanted), repr(wanted))


@pytest.mark.parametrize("value", [object(), len, test_heirs_arrive_as_the_plain_type, ..., enum, iter([])])
def test_the_rest_is_for_the_caller(value: Any) -> None:
    with pytest.raises(TypeError, match="no plain data"):
        encode([value])
    assert Decoder(handle=lambda number: ("the", number))(Encoder(lambda value: {"handle": 7})([value])) == [
        ("the", 7)
    ]


@pytest.mark.parametrize(
    "data",
    [
        '{"complex":[1,2]}', '{"tuples":["ab"]}', '{"range":[true,true,true]}', '{"date":[2020,true,true]}',
        '{"tuple":"ab"}', '{"set":{"tuple":[1]}}', '{"dict":[[1],{"tuple":[2]}]}', '{"dict":[[1,2],[3]]}',
        '{"dict":[[1]]}', '{"int":4}', '{"int":"four"}', '{"bytes":[1]}', '{"Decimal":4}', '{"Decimal":"x"}',
        '{"Fraction":[1.0,2.0]}', '{"deque":[-1,[]]}', '{"defaultdict":[4,[],[]]}', '{"type":"object"}',
        '{"time":[0,1,1,1,1,4]}', '{"timezone":[4]}', '{"slice":[1]}', '{"object":4}', '{}', "", "[1", "1 2",
        '{"int":"0x1","tuple":[]}', "\ufeff1", '{"set":[[1]]}',
    ],
)  # fmt: skip
def test_what_is_not_exactly_as_we_write_it_is_refused(data: str) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, ArithmeticError)):
        decode(data.encode())


def test_large_data_cross_soon() -> None:
    started = time.monotonic()
    for value in (
        list(range(100_000)), {str(n): n for n in range(100_000)}, [(n, -n) for n in range(100_000)],
        [n / 7 for n in range(100_000)], {n: [str(n)] for n in range(20_000)}, "é" * 1_000_000,
        3 ** 1_000_000, math.factorial(20_000), fractions.Fraction(10**5000, 3),
        decimal.Decimal("1." + "3" * 100_000),
    ):  # fmt: skip
        assert decode(encode(value)) == value
    assert time.monotonic() - started < 30


def test_depth_is_limited() -> None:
    for opened in ("[", '{"tuple":[', '{"dict":[[1],['):
        with pytest.raises(RecursionError):
            decode(opened.encode() * 100_000)
