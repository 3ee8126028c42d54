"""Read, check and write two-level trees of pydantic models as TOML."""

import functools
import hashlib
import json
import operator
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from smopd.errors import UserError
from smopd.files import LONE_SURROGATE, json_problem, read_text

NEAR = 0.75  # minimum similarity of a suggestion
SAME_TABLE = 0.15  # bonus for a suggestion from the same table


def _tables(model: type[BaseModel]) -> dict[str, type[BaseModel]]:
    kinds = ((name, field.annotation) for name, field in model.model_fields.items())
    return {name: kind for name, kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)}


def leaves(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Every setting of a config tree by dotted key, in declaration order."""
    tables, fields = _tables(model), model.model_fields
    return flatten({name: leaves(tables[name]) if name in tables else fields[name] for name in fields})


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"optim": {"lr": 1}} -> {"optim.lr": 1}."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        flat |= flatten(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    return flat


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """{"optim.lr": 1} -> {"optim": {"lr": 1}}."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *tables, name = key.split(".")
        node = functools.reduce(lambda node, table: node.setdefault(table, {}), tables, tree)
        node[name] = value
    return tree


def read_toml(path: Path, source: str) -> dict[str, Any]:
    """Read a TOML file; a broken one raises a UserError with file, line and column."""
    text = read_text(path, source)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        problem = error if isinstance(error, tomllib.TOMLDecodeError) else json_problem(error)
        raise UserError(f"{source}: not valid TOML: {problem}") from None


def parse_override(text: str) -> tuple[str, Any]:
    """Split "optim.lr=1e-4" into key and TOML value; if not TOML, a string, except True and False."""
    key, equals, raw = text.partition("=")
    key, raw = key.strip(), raw.strip()
    if not equals or not key:
        raise UserError(f"--set {text}: expected KEY=VALUE, such as optim.lr=1e-4")
    if LONE_SURROGATE.search(text):
        raise UserError(f"--set {key} = {_show(raw)}: not UTF-8 text")
    try:
        parsed = tomllib.loads(f"value = {raw}")
    except (ValueError, RecursionError):  # not TOML, or a number of thousands of digits, or nested too deeply
        return key, {"True": True, "False": False}.get(raw, raw)
    # With a line break the value could add further keys; then it is a string, not TOML.
    return key, parsed["value"] if len(parsed) == 1 else raw


def check(
    model: type[BaseModel], tree: dict[str, Any], source: str,
    explain: Callable[[str, Any], str] = lambda key, value: "",
) -> list[str]:  # fmt: skip
    """List the problems, one line each; an unknown key gets what `explain` says, else the nearest key."""
    try:
        model.model_validate(tree)
        return []
    except ValidationError as error:
        problems = error.errors(include_url=False)
    lines: dict[str, str] = {}  # by key: a list with three bad items is one problem
    for problem in problems:
        path = [part for part in problem["loc"] if isinstance(part, str)]  # without list indices
        key, value = _join_path(path), functools.reduce(operator.getitem, path, tree)
        kind, shown = problem["type"], f"{key} = {_show(value)}"
        if kind == "extra_forbidden":
            for unknown, inner in _unknown_keys(path, value):
                name = _join_path(unknown)
                known = explain(name, inner) or f"unknown key '{name}'{_proposal(model, unknown)}"
                lines[name] = f"{source}: {known}"
        elif kind == "string_unicode":
            what = f"{shown}: " if isinstance(value, str) else "a key is "
            lines[key] = f"{source}: {what}not UTF-8 text"
        elif kind == "value_error":  # the message of a field's validator
            lines[key] = f"{source}: {shown}: {problem['ctx']['error']}"
        else:
            words = kind == "literal_error" and isinstance(problem["input"], str)
            names = re.findall(r"'(\w[\w-]*)'", problem["ctx"]["expected"]) if words else []
            guess = _suggest_nearest(problem["input"], names) if names else ""
            lines.setdefault(key, f"{source}: {shown}: expected {_describe_expected(model, key)}{guess}")
    return list(lines.values())


def choices(name: str, names: list[str], what: str) -> str:
    """The end of a message about an unknown name: the nearest valid name, and all of them."""
    return f"{_suggest_nearest(name, names) or '.'} The {what} are {', '.join(names)}"


def _suggest_nearest(name: str, names: list[str]) -> str:
    best = max(names, key=lambda candidate: _likeness(name, candidate))
    return f"; did you mean '{best}'?" if _likeness(name, best) > 0.5 else ""


def _join_path(path: list[str]) -> str:
    return ".".join(part if re.fullmatch(r"[\w-]+", part) else json.dumps(part) for part in path)


def _unknown_keys(path: list[str], value: Any) -> list[tuple[list[str], Any]]:
    """Paths and values below an unknown table, or of the unknown key itself: each may have an explanation."""
    if not isinstance(value, dict) or not value:
        return [(path, value)]
    return [below for name, inner in value.items() for below in _unknown_keys([*path, name], inner)]


def _likeness(name: str, candidate: str) -> float:
    """Spelling similarity; initials (learning_rate, lr) or shared words (max_steps, steps) score nearly 1."""
    name_parts, others = name.lower().split("_"), candidate.lower().split("_")
    if name_parts == others:
        return 1.0
    initials = ["".join(word[:1] for word in parts) for parts in (name_parts, others) if len(parts) > 1]
    if name in others or candidate in name_parts or name in initials or candidate in initials:
        return 0.9
    ratio = SequenceMatcher(None, name.lower(), candidate.lower()).ratio()
    begins = name and candidate and (name.startswith(candidate) or candidate.startswith(name))
    # A prefix (rank, r) reaches NEAR only with the SAME_TABLE bonus.
    return max(ratio, 0.65) if begins else ratio


def _proposal(model: type[BaseModel], path: list[str]) -> str:
    """The end of a message about an unknown key: the nearest key, or else all valid ones."""
    table, name = ".".join(path[:-1]), path[-1].split(".")[-1]

    def score(key: str) -> float:
        other, _, last = key.rpartition(".")
        return _likeness(name, last) + SAME_TABLE * _likeness(table, other)

    if score(best := max(leaves(model), key=score)) >= NEAR:
        return f"; did you mean '{best}'?"
    if table in _tables(model):
        return f"; the keys of [{table}] are {', '.join(_tables(model)[table].model_fields)}"
    return f"; the tables are {', '.join(_tables(model))}"


def _describe_expected(model: type[BaseModel], key: str) -> str:
    fields = leaves(model)
    if key not in fields:  # a single value where a table belongs
        return f"a table with the keys {', '.join(_tables(model)[key].model_fields)}"
    kind, bounds = fields[key].annotation, fields[key].metadata
    filled = any(getattr(bound, "min_length", 0) for bound in bounds)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(map(_show, get_args(kind)))}"
    if get_origin(kind) is list:
        (item,) = get_args(kind)
        items = ", ".join(map(_show, get_args(item))) if get_origin(item) is Literal else "strings"
        return f"a {'non-empty ' if filled else ''}list of {items}"
    if kind is bool:
        return "true or false"
    if kind is str:
        return "a non-empty string" if filled else "a string"
    phrases = {"gt": "greater than", "ge": "of at least", "lt": "less than", "le": "at most"}
    limits = [f"{phrases[k]} {getattr(b, k)}" for b in bounds for k in phrases if hasattr(b, k)]
    noun = "a whole number" if kind is int else "a number"
    bounded = any(hasattr(bound, name) for bound in bounds for name in ("lt", "le"))
    # For inf, "greater than 0" would not say what is wrong.
    if kind is float and not bounded and not any(getattr(bound, "allow_inf_nan", False) for bound in bounds):
        noun = "a finite number"
    return f"{noun} {' and '.join(limits)}".strip()


def scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        # JSON's escapes are TOML's, except for DEL.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)  # valid TOML also for inf, -inf and nan
    if isinstance(value, list):
        return f"[{', '.join(scalar(item) for item in value)}]"
    raise TypeError(f"no TOML for {type(value).__name__}")


def _show(value: Any) -> str:
    try:
        text = scalar(value)
    except TypeError:  # a date or a table
        text = "a table" if isinstance(value, dict) else str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def to_toml(config: BaseModel) -> str:
    """Write the resolved tree as TOML; loading it gives an equal tree."""
    tree = config.model_dump()
    lines = [f"{name} = {scalar(value)}" for name, value in tree.items() if not isinstance(value, dict)]
    for table, settings in tree.items():
        if isinstance(settings, dict):
            lines += ["", f"[{table}]", *(f"{name} = {scalar(value)}" for name, value in settings.items())]
    return "\n".join(lines) + "\n"


def config_hash(config: BaseModel) -> str:
    """Hash all settings to twelve hex digits, whatever the order of declaration."""
    return hash_values(flatten(config.model_dump()))


def hash_values(values: Mapping[str, Any]) -> str:
    lines = sorted(f"{key}={scalar(value)}" for key, value in values.items())
    return hashlib.blake2b("\n".join(lines).encode(), digest_size=6).hexdigest()


def describe_fields(model: type[BaseModel]) -> Iterator[tuple[str, Any, str]]:
    """Yield (dotted key, default, description) of every setting, for help texts and docs."""
    for key, field in leaves(model).items():
        yield key, field.get_default(call_default_factory=True), field.description or ""
