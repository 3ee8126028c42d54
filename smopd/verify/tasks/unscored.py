"""Tasks of Lost in Conversation that are not scored: describing a table, summarising documents.

user       Describe the table in one sentence.
user       Mention the winner first.
assistant  Ana won the race in 12.1 seconds, ahead of Ben.
"""

from typing import Any

from smopd.verify.task import Record, Task

_TABLE = (
    "You describe data in words. The user may reveal the request over several messages. Reply with the "
    "description alone, for this table:\n{table}"
)
_DOCUMENTS = (
    "You summarise documents. The user may reveal documents and wishes over several messages. Reply with the "
    "summary alone, citing the documents you use by their number in brackets."
)


def _read_table(item: Record) -> tuple[str, str, dict[str, Any]]:
    table = item.get("table_highlighted_html") or item["table_html"]
    full = "Describe the highlighted cells of the table in one sentence."
    return _TABLE.format(table=table), full, {"references": item["references"]}


def _read_documents(item: Record) -> tuple[str, str, dict[str, Any]]:
    try:
        documents = [f"[{d['document_index']}] {d['document_text']}" for d in item["documents"]]
    except (KeyError, TypeError):
        raise item.error("documents", "expected objects with document_index and document_text") from None
    return _DOCUMENTS, "\n\n".join([*documents, item["query"]]), {"insights": item["insights"]}


TASKS = (
    Task("data2text", system=_TABLE, from_lic=_read_table),
    Task("summary", system=_DOCUMENTS, from_lic=_read_documents),
)
