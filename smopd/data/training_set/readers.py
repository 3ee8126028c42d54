"""The items of GSM8K, BFCL, Spider and MBPP from their raw files; evaluation halves are never read for them.

A reader gives the items of its files in order; a text in place of an item is why one was left out. BFCL:
single-turn requests only, and `parallel` is left out whole, as half of it is LiC's.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from smopd.data.reading import as_record, file_items
from smopd.data.sharding import LONGEST, normalise
from smopd.data.training_set.sql_query import Schema
from smopd.data.training_set.sql_shards import shard_query
from smopd.errors import UserError
from smopd.seeds import derive
from smopd.verify.task import Record
from smopd.verify.tasks import actions, code, database, math

GSM8K, MBPP = "gsm8k_train.jsonl", "mbpp.jsonl"
BFCL = ["simple_python", "multiple", "parallel_multiple"]
BFCL += ["live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"]
SPIDER = ("spider/train_spider_slim.json", "spider/train_spider.json")
SPIDER_DEV, SPIDER_TABLES = "spider/dev.json", "spider/tables.json"
SOURCES = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
_KINDS = {"number": "REAL", "time": "DATETIME", "boolean": "BOOL"}
_LEAD = "Your code should pass these tests:"


class Item(NamedTuple):
    id: str
    task: str
    system: str
    text: str  # what the sharder splits
    full: str
    answer: dict[str, Any]
    file: str
    reference: str  # a reply that must verify as correct
    extra: tuple[str, ...] = ()  # shards that follow those of the text
    shards: tuple[str, ...] = ()  # made from the reference; better than those of the text where they check


def _require(raw: Path, task: str, *names: str) -> Path:
    """The first of these files that is there; a UserError says which is missing and where to get it."""
    for name in names:
        if (raw / name).is_file():
            return raw / name
    others = ",".join(domain for domain in SOURCES if domain != task)
    missing = f"{raw / names[0]}: missing; it comes from {SOURCES[task]['project']}"
    raise UserError(f"{missing}. Put it there, or leave the domain out with --domains {others}")


def read_rows(path: Path) -> Iterator[Record]:
    return (as_record(item, where) for where, item in file_items(path))


def gsm8k(raw: Path) -> Iterator[Item | str]:
    """Every question of gsm8k_train.jsonl; `gsm8k/train/17` is its line 18."""
    for number, row in enumerate(read_rows(_require(raw, "math", GSM8K))):
        text, reply = normalise(row.text("question")), row.text("answer")
        if "####" not in reply:
            raise row.error("answer", "expected a text that ends in '#### <number>'")
        answer = {"value": reply.rsplit("####", 1)[1].strip()}
        yield Item(f"gsm8k/train/{number}", "math", math.SYSTEM, text, text, answer, GSM8K, reply)


def mbpp(raw: Path) -> Iterator[Item | str]:
    """Every task of mbpp.jsonl: its text, then the asserts that fit; they tell the signature, one a shard."""
    for row in read_rows(_require(raw, "code", MBPP)):
        text, tests = normalise(row.text("text")), row["test_list"]
        asserts = isinstance(tests, list) and all(isinstance(t, str) and t.strip() for t in tests)
        if not asserts or not tests:
            raise row.error("test_list", "expected a list of asserts")
        shown: list[str] = []
        for test in (t.strip() for t in tests):
            if shown and len("\n".join([text, _LEAD, *shown, test])) > LONGEST:
                break
            shown.append(test)
        first, *others = shown
        extra = (f"It should pass this test: {first}", *(f"And this one: {test}" for test in others))
        answer = {"test_list": tests, "test_setup_code": str(row.get("test_setup_code") or "")}
        answer |= {"test_imports": row["test_imports"]} if row.get("test_imports") else {}
        reply = "```python\n{}\n```".format(row.text("code").replace("\r\n", "\n"))
        id, full = f"mbpp/{row['task_id']}", "\n".join([text, _LEAD, *shown])
        yield Item(id, "code", code.SYSTEM, text, full, answer, MBPP, reply, extra)


def spider(raw: Path, split: str = "train") -> Iterator[Item | str]:
    """Every question of the split's file; `spider/train/120` is its item 121."""
    path = _require(raw, "database", *(SPIDER if split == "train" else (SPIDER_DEV,)))
    tables = _require(raw, "database", SPIDER_TABLES)
    schemas = {row["db_id"]: (spider_ddl(row), Schema(row)) for row in read_rows(tables)}
    for number, row in enumerate(read_rows(path)):
        if (db_id := row["db_id"]) not in schemas:
            raise row.error("db_id", f"{db_id!r} is not in {tables}")
        text, query = normalise(row.text("question")), row.text("query")
        ddl, schema = schemas[db_id]
        answer = {"reference_sql": query, "schema_sql": ddl, "db_id": db_id}
        id, system = f"spider/{split}/{number}", database.SCHEMA.fill(database.SYSTEM, answer)
        shards, file = shard_query(query, schema, derive("sql shards", id)), str(path.relative_to(raw))
        yield Item(id, "database", system, text, text, answer, file, query, shards=shards)


def spider_ddl(entry: Mapping[str, Any]) -> str:
    """CREATE TABLE text for one entry of tables.json."""
    tables, columns = entry["table_names_original"], entry["column_names_original"]
    lines: list[list[str]] = [[] for _ in tables]
    for (table, column), kind in zip(columns, entry["column_types"], strict=True):
        if table >= 0:
            lines[table].append(f'"{column}" {_KINDS.get(kind, "TEXT")}')
    for key in entry["primary_keys"]:
        for column in key if isinstance(key, list) else [key]:  # Spider 2020 lists keys of several columns
            lines[columns[column][0]].append(f'PRIMARY KEY ("{columns[column][1]}")')
    for child, parent in entry["foreign_keys"]:
        target = f'"{tables[columns[parent][0]]}" ("{columns[parent][1]}")'
        lines[columns[child][0]].append(f'FOREIGN KEY ("{columns[child][1]}") REFERENCES {target}')
    pairs = zip(tables, lines, strict=True)
    return "\n".join(f'CREATE TABLE "{name}" ({", ".join(parts)});' for name, parts in pairs)


def bfcl(raw: Path) -> Iterator[Item | str]:
    """Every single-turn request of the categories whose files are there; ids such as bfcl/simple_python_3."""
    if not (pairs := bfcl_files(raw)):
        _require(raw, "actions", f"bfcl/BFCL_v4_{BFCL[0]}.json")
    for file, answer_file in pairs:
        answers_path = _require(raw, "actions", answer_file)
        answers = {row["id"]: row["ground_truth"] for row in read_rows(answers_path)}
        for row in read_rows(raw / file):
            if row["id"] not in answers:
                raise row.error("id", f"{row['id']!r} has no answer in {answers_path}")
            text, calls = bfcl_request(row), answers[row["id"]]
            if text is None:
                yield "more than one user turn, or a system turn"
            elif not {name for call in calls for name in call} <= {f["name"] for f in row["function"]}:
                yield "the answer calls a function that is not offered"
            else:
                answer = {"calls": calls, "functions": row["function"]}
                system, reply = actions.FUNCTIONS.fill(actions.SYSTEM, answer), actions.render(calls)
                yield Item(f"bfcl/{row['id']}", "actions", system, text, text, answer, file, reply)


def bfcl_files(raw: Path) -> list[tuple[str, str]]:
    """The files of requests that are there, each with its file of answers."""
    pairs = [(f"bfcl/BFCL_v4_{c}.json", f"bfcl/possible_answer/BFCL_v4_{c}.json") for c in BFCL]
    return [(requests, answers) for requests, answers in pairs if (raw / requests).is_file()]


def bfcl_request(row: Record) -> str | None:
    """The one user message of an item in one line; None where there are others."""
    try:
        messages = [message for turn in row["question"] for message in turn]
        return normalise(messages[0]["content"]) if [m["role"] for m in messages] == ["user"] else None
    except (TypeError, KeyError, AttributeError):
        raise row.error("question", "expected [[{'role': ..., 'content': ...}]]") from None


READERS = {"math": gsm8k, "actions": bfcl, "database": spider, "code": mbpp}
VALIDATION = {"database": partial(spider, split="dev")}


def input_files(raw: Path, domain: str, validation: bool = False) -> list[str]:
    """The files that a reader has read, seen from the raw folder."""
    if validation:
        return [SPIDER_DEV, SPIDER_TABLES]
    if domain == "actions":
        return [file for pair in bfcl_files(raw) for file in pair]
    if domain == "database":
        return [*[name for name in SPIDER if (raw / name).is_file()][:1], SPIDER_TABLES]
    return [GSM8K if domain == "math" else MBPP]
