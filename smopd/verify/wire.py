"""Inside a sandbox: plain data as bytes, between two processes of which one is not trusted.

A value is JSON. What JSON cannot express is an object with one key, the name of a builder below. The reader
builds exact types from that closed list only, so it never runs a method of the sender's choice; any other
input raises. Subclasses (named tuples, int enums) go as the plain type, and a list that occurs twice as two.
"""

import collections
import datetime
import decimal
import fractions
import itertools
import json
import os
import select
import struct
from collections.abc import Callable, Iterable
from typing import Any

_MESSAGE = 64 << 20  # bytes of one message, at most
_SMALL = 1 << 63  # larger integers go in base 16, since decimal takes quadratic time


# --- messages
def take(fd: int, size: int, wait: Callable[[], None] = lambda: None) -> bytes:
    data = bytearray()
    while len(data) < size:
        wait()
        if not (piece := os.read(fd, min(size - len(data), 1 << 20))):
            raise EOFError
        data += piece
    return bytes(data)


def send(fd: int, data: bytes, more: bytes = b"", wait: Callable[[], None] = lambda: None) -> None:
    left = memoryview(struct.pack("!I", len(data)) + data + more)
    while left:
        wait()
        left = left[os.write(fd, left[: select.PIPE_BUF]) :]  # a pipe ready for writing takes this at once


def receive(fd: int, first: bytes = b"", wait: Callable[[], None] = lambda: None) -> bytes:
    (size,) = struct.unpack("!I", first + take(fd, 4 - len(first), wait))
    if size > _MESSAGE:
        raise ValueError("a message too large")
    return take(fd, size, wait)


# --- values to bytes
_dumps = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode
_AS_THEY_ARE = {type(None), bool, str, float}
_CLOCK = "hour minute second microsecond"


class Encoder:
    """Encode plain data; `keep` returns what stands for anything else, or raises."""

    def __init__(self, keep: Callable[[Any], Any]) -> None:
        self.keep = keep

    def __call__(self, value: Any) -> bytes:
        # Lone surrogates are encoded one by one: JSON escapes would fuse two of them into one character.
        return _dumps(self.form(value)).encode("utf-8", "surrogatepass")

    def form(self, value: Any) -> Any:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            return value
        for base in (kind,) if kind in _FORMS else kind.__mro__:
            if base in _FORMS:
                return _FORMS[base](self, value)
        if isinstance(value, type) and TYPES.get(value.__name__) is value:
            return {"type": value.__name__}
        return self.keep(value)

    def items(self, values: Iterable[Any]) -> list[Any]:
        values = list(values)
        # The encoder in C takes uniform values as they are.
        return values if _uniform(values) else [self.form(value) for value in values]

    def list(self, values: list[Any]) -> Any:
        values = list.__getitem__(values, slice(None))
        # A list of tuples, such as a table, has one tag instead of one per tuple.
        if set(map(type, values)) == {tuple} and _uniform(itertools.chain.from_iterable(values)):
            return {"tuples": values}
        return self.items(values)

    def pairs(self, value: Any) -> Any:
        return [self.items(dict.keys(value)), self.items(dict.values(value))]

    def moment(self, tag: str, fields: str, value: Any) -> Any:
        if type(value.tzinfo) not in (type(None), datetime.timezone):
            return self.keep(value)
        numbers = [getattr(value, field) for field in fields.split()]
        return {tag: [value.fold, *numbers, self.form(value.tzinfo)]}


def _uniform(values: Iterable[Any]) -> bool:
    """Whether the values are all small integers, or all of types that JSON takes unchanged."""
    values = list(values)
    kinds = set(map(type, values))
    return kinds <= _AS_THEY_ARE or (kinds == {int} and min(values) > -_SMALL and max(values) < _SMALL)


def _whole(value: int) -> Any:
    value = int.__pos__(value)
    return value if -_SMALL < value < _SMALL else {"int": hex(value)}


# Methods of the base type read a value, so that overrides in a subclass do not change what is sent.
_FORMS: dict[type, Callable[[Encoder, Any], Any]] = {
    int: lambda to, value: _whole(value),
    float: lambda to, value: float.__pos__(value),
    str: lambda to, value: str.__str__(value),
    complex: lambda to, value: {"complex": [complex.real.__get__(value), complex.imag.__get__(value)]},
    bytes: lambda to, value: {"bytes": bytes.__getitem__(value, slice(None)).decode("latin-1")},
    bytearray: lambda to, value: {"bytearray": bytearray.decode(value, "latin-1")},
    tuple: lambda to, value: {"tuple": to.items(tuple.__getitem__(value, slice(None)))},
    list: lambda to, value: to.list(value),
    dict: lambda to, value: {"dict": to.pairs(value)},
    set: lambda to, value: {"set": to.items(set.__iter__(value))},
    frozenset: lambda to, value: {"frozenset": to.items(frozenset.__iter__(value))},
    type({}.keys()): lambda to, value: {"dict_keys": to.items(value)},
    type({}.values()): lambda to, value: {"dict_values": to.items(value)},
    type({}.items()): lambda to, value: {"dict_items": [to.items(v[i] for v in value) for i in (0, 1)]},
    slice: lambda to, value: {"slice": to.items((value.start, value.stop, value.step))},
    range: lambda to, value: {"range": to.items((value.start, value.stop, value.step))},
    collections.Counter: lambda to, value: {"Counter": to.pairs(value)},
    collections.OrderedDict: lambda to, v: {"OrderedDict": [to.items(v.keys()), to.items(v.values())]},
    collections.defaultdict: lambda to, v: {"defaultdict": [to.form(v.default_factory), *to.pairs(v)]},
    collections.deque: lambda to, v: {"deque": [v.maxlen, to.items(collections.deque.__iter__(v))]},
    datetime.date: lambda to, value: {"date": [value.year, value.month, value.day]},
    datetime.datetime: lambda to, value: to.moment("datetime", f"year month day {_CLOCK}", value),
    datetime.time: lambda to, value: to.moment("time", _CLOCK, value),
    datetime.timedelta: lambda to, value: {"timedelta": [value.days, value.seconds, value.microseconds]},
    datetime.timezone: lambda to, value: {"timezone": to.items(value.__getinitargs__())},
    decimal.Decimal: lambda to, value: {"Decimal": decimal.Decimal.__str__(value)},
    fractions.Fraction: lambda to, value: {"Fraction": to.items((value.numerator, value.denominator))},
}
TYPES = {kind.__name__: kind for kind in (*_FORMS, type(None), bool)}  # classes that can be sent


# --- bytes to values
def listed(payload: Any, kind: type | None = None, size: int | None = None) -> list[Any]:
    """Return the payload if it is a list of this size with items of exactly this type, else raise."""
    if type(payload) is not list or (kind and not set(map(type, payload)) <= {kind}):
        raise ValueError("not the list that was due")
    if size is not None and len(payload) != size:
        raise ValueError("not as many items as were due")
    return payload


def text(payload: Any) -> str:
    if type(payload) is not str:
        raise ValueError("not the text that was due")
    return payload


def _dict(payload: Any) -> dict[Any, Any]:
    keys, values = listed(payload, list, 2)
    return dict(zip(keys, values, strict=True))


def _moment(kind: Callable[..., Any], fields: int) -> Callable[[Any], Any]:
    def build(payload: Any) -> Any:
        fold, *numbers, zone = listed(payload, size=fields)
        if type(zone) not in (type(None), datetime.timezone):
            raise ValueError("not the time zone that was due")
        return kind(*listed(numbers, int), tzinfo=zone, fold=fold)

    return build


_BUILDERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda payload: int(text(payload), 16),
    "complex": lambda payload: complex(*listed(payload, float, 2)),
    "bytes": lambda payload: text(payload).encode("latin-1"),
    "bytearray": lambda payload: bytearray(text(payload).encode("latin-1")),
    "tuple": lambda payload: tuple(listed(payload)),
    "tuples": lambda payload: list(map(tuple, listed(payload, list))),
    "dict": _dict,
    "set": lambda payload: set(listed(payload)),
    "frozenset": lambda payload: frozenset(listed(payload)),
    "dict_keys": lambda payload: dict.fromkeys(listed(payload)).keys(),
    "dict_values": lambda payload: dict(enumerate(listed(payload))).values(),
    "dict_items": lambda payload: _dict(payload).items(),
    "slice": lambda payload: slice(*listed(payload, size=3)),
    "range": lambda payload: range(*listed(payload, int, 3)),
    "Counter": lambda payload: collections.Counter(_dict(payload)),
    "OrderedDict": lambda payload: collections.OrderedDict(_dict(payload)),
    "defaultdict": lambda payload: collections.defaultdict(listed(payload, size=3)[0], _dict(payload[1:])),
    "deque": lambda payload: collections.deque(listed(listed(payload, size=2)[1]), payload[0]),
    "date": lambda payload: datetime.date(*listed(payload, int, 3)),
    "datetime": _moment(datetime.datetime, 9),
    "time": _moment(datetime.time, 6),
    "timedelta": lambda payload: datetime.timedelta(*listed(payload, int, 3)),
    "timezone": lambda payload: datetime.timezone(listed(payload)[0], *map(text, payload[1:])),
    "Decimal": lambda payload: decimal.Decimal(text(payload)),
    "Fraction": lambda payload: fractions.Fraction(*listed(payload, int, 2)),
    "type": lambda payload: TYPES[payload],
}


class Decoder:
    """Decode plain data and what the builders in `more` make; any other input raises an exception."""

    def __init__(self, **more: Callable[[Any], Any]) -> None:
        self.builders = _BUILDERS | more
        self.scan = json.JSONDecoder(object_hook=self.build).raw_decode

    def build(self, tagged: dict[str, Any]) -> Any:
        ((tag, payload),) = tagged.items()
        return self.builders[tag](payload)

    def __call__(self, data: bytes) -> Any:
        source = data.decode("utf-8", "surrogatepass")
        value, end = self.scan(source)  # nesting that is too deep raises a RecursionError
        if end != len(source):
            raise ValueError("more than one value")
        return value
