"""Data sets of the Hugging Face hub by name: hf:OWNER/NAME[@CONFIG][:SPLIT]. Needs the package `datasets`.

Rows are our examples or LiC's items. A table has every column in every row, so empty ones and those we don't
know are left out, and an `answer` may be JSON text, since a column cannot hold objects of many shapes.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from smopd.errors import UserError
from smopd.files import json_problem

_NAME = re.compile(r"hf:(?P<path>[^@:]+)(?:@(?P<config>[^:]+))?(?::(?P<split>[\w.-]+))?")


def hub_rows(name: str, fields: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """(place, row) of every row of a split; `fields` are those of an example of ours."""
    if (found := _NAME.fullmatch(name)) is None:
        form = "hf:OWNER/NAME, with @CONFIG and :SPLIT if need be"
        raise UserError(f"{name}: a data set of the hub is named {form}")
    try:
        import datasets
    except ImportError:
        needs = "needs the package datasets: pip install 'smopd[hf]'"
        raise UserError(f"{name}: reading data sets of the hub {needs}") from None
    try:
        table = datasets.load_dataset(found["path"], found["config"], split=found["split"] or "train")
    except Exception as error:  # whatever a loader of any kind may raise
        words = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"{name}: cannot be loaded: {words[0][:300]}") from None
    for number, row in enumerate(table, 1):
        where, item = f"{name}, row {number}", without_empty(row)
        if "task_id" not in item:
            item = {key: value for key, value in item.items() if key in fields}
            if isinstance(item.get("answer"), str):
                try:
                    item["answer"] = json.loads(item["answer"])
                except (ValueError, RecursionError) as error:
                    problem = f"not valid JSON: {json_problem(error)}"
                    raise UserError(f"{where}, field 'answer': {problem}") from None
        yield where, item


def without_empty(value: Any) -> Any:
    """The same without empty cells, at any depth."""
    if isinstance(value, dict):
        return {key: without_empty(inner) for key, inner in value.items() if inner is not None}
    return [without_empty(inner) for inner in value] if isinstance(value, list) else value
