"""How data get into a page opened from disk, where a script may not read other files: as scripts that hand
over one string each, loaded on demand.

A string is base64 of deflated bytes, so nothing in it can act as markup or code. A pack holds the records of
several conversations; a record is JSON followed by columns of numbers.
"""

import base64
import json
import struct
import zlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from smopd.formatting import visible

SCALE = 1024  # fixed point: steps of 1/1024, up to 64
PACK_BYTES = 300_000  # of records in a pack, before compression
CHARTS = ("dom", "charts", "curves")  # what a page needs to draw
SCRIPTS = ("data", "state", *CHARTS, "summary", "run", "study", "list", "tokens", "conversation", "main")
STYLES = ("base", "parts", "charts", "tokens")


def script(name: str, content: bytes) -> bytes:
    packed = base64.b64encode(zlib.compress(content, 6)).decode()
    return f'smopdData("{name}","{packed}");\n'.encode()


def json_bytes(value: Any) -> bytes:
    """JSON without control characters and bidirectional marks in its texts."""
    return json.dumps(_sanitize(value), ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def _sanitize(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(str(key)): _sanitize(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_sanitize(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def fixed(values: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 64 as two-byte steps of 1/1024; NaN becomes the largest."""
    scaled = np.nan_to_num(values.astype(np.float64), nan=64.0, posinf=64.0, neginf=0.0) * SCALE
    return np.clip(np.rint(scaled), 0, 65535).astype("<u2")


def record(head: dict[str, Any], columns: Sequence[np.ndarray]) -> bytes:
    """JSON and columns of one or two bytes per number; the two-byte ones come first."""
    text = json_bytes({**head, "columns": [len(column) for column in columns]})
    text += b" " * (len(text) % 2)
    return struct.pack("<I", len(text)) + text + b"".join(column.tobytes() for column in columns)


def pack(records: Sequence[bytes]) -> bytes:
    """Join records: their number, their lengths, and the records, each at an even offset."""
    even = [one + b"\0" * (len(one) % 2) for one in records]
    return struct.pack(f"<{len(even) + 1}I", len(even), *map(len, even)) + b"".join(even)


def read_script(names: Sequence[str]) -> str:
    """Bundle these scripts into one that defines no global names."""
    return f'(function () {{\n"use strict";\n{read_app(names, "js")}}})();\n'


def read_app(names: Sequence[str], kind: str) -> str:
    folder = files("smopd.viewer.pages") / "app"
    return "\n".join((folder / f"{name}.{kind}").read_text(encoding="utf-8") for name in names)
