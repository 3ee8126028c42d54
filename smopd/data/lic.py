"""Lost in Conversation's own items as examples: all six tasks are read, the four with a verifier here can be
scored.

The system prompts are ours; our JSONL may carry any other. It leaves out files and lines, which are
`smopd.data.example`'s.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from smopd.errors import UserError

if TYPE_CHECKING:
    from smopd.data.example import Example

MATH = (
    "You solve math problems. The user may reveal the problem over several messages. Work step by step from everything the "
    "user has said, and finish with a line of the form: The answer is <number>."
)
ACTIONS = (
    "You call functions. The user may reveal the request over several messages. Reply with nothing but a Python list of calls "
    "with named arguments, such as [f(a=1), g(b=\"x\")], using only these functions:\n{functions}"
)  # fmt: skip
DATABASE = (
    "You write SQL for SQLite. The user may reveal the request over several messages. Reply with one query that answers "
    "everything the user has asked for, in a ```sql block, for a database with this schema:\n{schema}"
)
CODE = (
    "You write Python. The user may reveal the task over several messages. Reply with one complete function that does everything "
    "the user has asked for, imports included, in a ```python block."
)
DATA2TEXT = (
    "You describe data in words. The user may reveal the request over several messages. Reply with the description alone, "
    "for this table:\n{table}"
)
SUMMARY = (
    "You summarise documents. The user may reveal documents and wishes over several messages. Reply with the summary alone, "
    "citing the documents you use by their number in brackets."
)


def with_system(example: "Example", prompt: str) -> "Example":
    """The example with another system prompt, {functions} and {schema} filled in as in ours."""
    functions = "\n".join(json.dumps(f) for f in example.answer.get("functions") or ())
    filled = prompt.replace("{functions}", functions).replace(
        "{schema}", str(example.answer.get("schema_sql", ""))
    )
    return replace(example, system=filled)


Fields = tuple[str, str, dict[str, Any]]  # system, full, answer


def fields_of(item: dict[str, Any], where: str) -> tuple[str, str, list[str], Fields]:
    """(id, task, shards, (system, full, answer)) of one item; a UserError names what is missing."""

    def need(field: str) -> Any:
        if field not in item:
            raise UserError(f"{where}, field '{field}': missing")
        return item[field]

    shards, task = need("shards"), need("task")
    if not isinstance(shards, list) or not all(isinstance(s, dict) and "shard" in s for s in shards):
        raise UserError(f"{where}, field 'shards': expected a list of objects with a 'shard'")
    if task not in _READERS:
        raise UserError(f"{where}, field 'task': {task!r} is no task of LiC; those are {', '.join(_READERS)}")
    told = [s["shard"] for s in shards]
    return need("task_id"), task, told, _READERS[task](item, where, need)


def _math(item: dict[str, Any], where: str, need: Callable[[str], Any]) -> Fields:
    answer = need("answer")
    if not isinstance(answer, str) or "####" not in answer:
        raise UserError(f"{where}, field 'answer': expected a text that ends in '#### <number>'")
    return MATH, need("question"), {"value": answer.rsplit("####", 1)[1].strip()}


def _actions(item: dict[str, Any], where: str, need: Callable[[str], Any]) -> Fields:
    functions, question = need("function"), need("fully_specified_question")
    try:
        full = question[0][0]["content"]
    except (IndexError, KeyError, TypeError):
        raise UserError(
            f"{where}, field 'fully_specified_question': expected [[{{'content': ...}}]]"
        ) from None
    system = ACTIONS.format(functions="\n".join(json.dumps(f) for f in functions))
    return system, full, {"calls": need("reference_answer"), "functions": functions}


def _database(item: dict[str, Any], where: str, need: Callable[[str], Any]) -> Fields:
    answer = {name: need(name) for name in ("reference_sql", "schema_sql", "db_id")}
    return DATABASE.format(schema=answer["schema_sql"]), need("fully_specified_question"), answer


def _code(item: dict[str, Any], where: str, need: Callable[[str], Any]) -> Fields:
    names = ("prompt", "test", "entry_point", "metadata", "public_test_cases", "private_test_cases")
    answer = {name: item[name] for name in names if item.get(name)}
    if not answer.keys() & {"test", "public_test_cases"}:
        raise UserError(f"{where}, field 'test': missing, and so is 'public_test_cases'")
    starter = f"\n\n{item['starter_code']}" if item.get("starter_code") else ""
    full = (
        f"{item['question_content']}{starter}"
        if item.get("question_content")
        else f"Complete this function:\n{need('prompt')}"
    )
    return CODE, full, answer


def _data2text(item: dict[str, Any], where: str, need: Callable[[str], Any]) -> Fields:
    table = item.get("table_highlighted_html") or need("table_html")
    full = "Describe the highlighted cells of the table in one sentence."
    return DATA2TEXT.format(table=table), full, {"references": need("references")}


def _summary(item: dict[str, Any], where: str, need: Callable[[str], Any]) -> Fields:
    try:
        documents = [f"[{d['document_index']}] {d['document_text']}" for d in need("documents")]
    except (KeyError, TypeError):
        raise UserError(
            f"{where}, field 'documents': expected objects with document_index and document_text"
        ) from None
    return SUMMARY, "\n\n".join([*documents, need("query")]), {"insights": need("insights")}


_READERS: dict[str, Callable[[dict[str, Any], str, Callable[[str], Any]], Fields]] = {
    "math": _math, "actions": _actions, "database": _database, "code": _code, "data2text": _data2text, "summary": _summary,
}  # fmt: skip
