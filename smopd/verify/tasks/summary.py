"""Summarising documents: Lost in Conversation's examples are read, replies are not scored."""

from typing import Any

from smopd.verify.task import Record, Task

SYSTEM = (
    "You summarise documents. The user may reveal documents and wishes over several messages. Reply with the "
    "summary alone, citing the documents you use by their number in brackets."
)


def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    try:
        documents = [f"[{d['document_index']}] {d['document_text']}" for d in item["documents"]]
    except (KeyError, TypeError):
        raise item.error("documents", "expected objects with document_index and document_text") from None
    return SYSTEM, "\n\n".join([*documents, item["query"]]), {"insights": item["insights"]}


TASK = Task("summary", system=SYSTEM, from_lic=_from_lic)
