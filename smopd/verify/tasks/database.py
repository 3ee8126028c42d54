"""The task database: a SQLite query must give what the reference query gives (sql/database.py).

system     Reply with one SQLite query. Tables: CREATE TABLE singer (name TEXT, age INTEGER)
user       How many singers are there?
user       Count only those over 30.
assistant  SELECT COUNT(*) FROM singer WHERE age > 30
answer     {"reference_sql": "SELECT count(*) FROM singer WHERE age > 30", "schema_sql": ..., "db_id": ...}
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from smopd.errors import UserError
from smopd.verify import tasks, workers
from smopd.verify.sql.query import TIMEOUT
from smopd.verify.task import Answer, Judged, Placeholder, Record, Task
from smopd.verify.verdict import Verdict

KIND = workers.Kind(__name__)
SYSTEM = (
    "You write SQL for SQLite. The user may reveal the request over several messages. Reply with one query "
    "that answers everything the user has asked for, in a ```sql block, for a database with this schema:\n"
    "{schema}"
)
SCHEMA = Placeholder("{schema}", "the tables", lambda answer: str(answer.get("schema_sql", "")))
_databases: Path | None = None


def use_databases(folder: str | Path | None) -> None:
    """Run queries on a folder's DB_ID/DB_ID.sqlite files, as in Spider, or (None) on synthetic databases."""
    global _databases
    place = Path(folder).expanduser() if folder else None
    if place and not place.exists():
        raise UserError(f"{folder}: no such folder of databases")
    if place and place.is_dir() and not [*place.glob("*/*.sqlite"), *place.glob("*.sqlite")]:
        expected = "expected DB_ID/DB_ID.sqlite, as in Spider's database folder"
        raise UserError(f"{folder}: holds no .sqlite files; {expected}")
    _databases = place


def _judge(example: Judged, reply: str) -> workers.Job:
    needed = {name: example.answer.get(name, "") for name in ("reference_sql", "schema_sql", "db_id")}
    texts = [example.full, *getattr(example, "shards", ())]
    place = _databases and str(_databases)
    rule = tasks.rule(example.task)
    call = {"answer": needed, "reply": reply, "database": place, "texts": texts, "rule": rule}
    # The verifier keeps its time limit, except in steps that it cannot interrupt, such as SQLite's prepare.
    # Queries with one reference go to one process, which builds their databases once.
    return workers.Job(KIND, call, TIMEOUT + workers.GRACE, group=str(needed["reference_sql"]))


def worker() -> Callable[..., Verdict]:
    from smopd.verify.sql.database import verify_database

    return verify_database


def _from_lic(item: Record) -> tuple[str, str, dict[str, Any]]:
    answer = {name: item[name] for name in ("reference_sql", "schema_sql", "db_id")}
    return SCHEMA.fill(SYSTEM, answer), item["fully_specified_question"], answer


def _reference_problem(answer: Answer) -> str | None:
    from smopd.verify.sql.database import shows_something

    problem = shows_something(answer)
    return f"{problem} (queries are sampled)" if problem else None


TASKS = (Task(
    "database", ("reference_sql", "schema_sql"), judge=_judge, rules=("suite", "lic"),
    rules_meaning="suite: the reference's result on every database; lic: LiC's own, which forgives literals "
    "and DISTINCT",
    system=SYSTEM, placeholder=SCHEMA, from_lic=_from_lic, answer_form="The answer is the whole SQL query.",
    reference_replies=lambda answer: [f"```sql\n{answer['reference_sql']}\n```"],
    reference_problem=_reference_problem, references_checked=100,  # each takes 0.01 to 0.02 s
),)  # fmt: skip
