"""Does the JSON of a file have the form that its reader relies on? A complaint names the place."""

from collections.abc import Mapping
from typing import Any

from smopd.errors import UserError

STEP = {"step": int}  # a row of a run's metrics or timings
NAMES = {
    str: "a text", int: "a whole number", float: "a number", bool: "true or false", type(None): "null",
    dict: "an object", list: "a list", object: "anything",
}  # fmt: skip


def check_shape(value: Any, shape: Any, where: str) -> None:
    """A UserError unless `value` has the shape: a type, a tuple of shapes of which one fits, [shape of every
    item], {str: shape of every value}, or {key: shape of its value} (a key with "?" at its end may be absent;
    other keys may be there).
    """
    if (problem := _problem(value, shape)) is not None:
        place, what = problem
        named = f", field '{place.strip('.')}'" if place else ""
        raise UserError(f"{where}{named}: {what}; the file is damaged or of another version of smopd")


def _problem(value: Any, shape: Any) -> tuple[str, str] | None:
    """(place inside the value, what is wrong there), None if nothing is."""
    if isinstance(shape, tuple):
        found = [_problem(value, one) for one in shape]
        return None if None in found else next((one for one in found if one and one[0]), found[0])
    if shape is None:
        return None if value is None else _unlike(value, type(None))
    if isinstance(shape, list):
        if not isinstance(value, list):
            return _unlike(value, list)
        return _first((f".{number}", item, shape[0]) for number, item in enumerate(value, 1))
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            return _unlike(value, dict)
        if str in shape:
            return _first((f".{key}", item, shape[str]) for key, item in value.items())
        missing = [key for key in shape if not key.endswith("?") and key not in value]
        if missing:
            return f".{missing[0]}", "missing"
        known = ((key.rstrip("?"), inner) for key, inner in shape.items())
        return _first((f".{key}", value[key], inner) for key, inner in known if key in value)
    if isinstance(value, bool) and shape in (int, float):
        return _unlike(value, shape)
    fits = isinstance(value, (int, float) if shape is float else shape)
    return None if fits else _unlike(value, shape)


def _first(parts: Any) -> tuple[str, str] | None:
    for place, value, shape in parts:
        if (problem := _problem(value, shape)) is not None:
            return f"{place}{problem[0]}", problem[1]
    return None


def _unlike(value: Any, shape: Any) -> tuple[str, str]:
    return "", f"expected {NAMES[shape]}, found {NAMES.get(type(value), type(value).__name__)}"
