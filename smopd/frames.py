"""Rows as a DataFrame if pandas is installed, else as a plain list of dicts."""

from typing import Any


def table(rows: list[dict[str, Any]]) -> Any:
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def messages(system: str, turns: list[dict[str, Any]]) -> list[dict[str, str]]:
    chat = [{"role": "system", "content": system}] if system else []
    for turn in turns:
        chat += [{"role": "user", "content": turn["user"]}, {"role": "assistant", "content": turn["reply"]}]
    return chat
