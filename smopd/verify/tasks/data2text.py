"""Describing a table in words: Lost in Conversation's examples are read, replies are not scored."""

from typing import Any

from smopd.verify.task import Record, Task

SYSTEM = (
    "You describe data in words. The user may reveal the request over several messages. Reply with the "
    "description alone, for this table:\n{table}"
)


def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    table = item.get("table_highlighted_html") or item["table_html"]
    full = "Describe the highlighted cells of the table in one sentence."
    return SYSTEM.format(table=table), full, {"references": item["references"]}


TASK = Task("data2text", system=SYSTEM, from_lic=_from_lic)
