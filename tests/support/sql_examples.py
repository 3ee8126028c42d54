"""A small schema with a reference query, LiC's database items, and the verdict on a query in a reply."""

import json

from conftest import shared

from smopd.verify.sql.database import verify_database

PETS = {
    "schema_sql": """CREATE TABLE student (id INTEGER PRIMARY KEY, name TEXT, age INT);
        CREATE TABLE pet (id INTEGER PRIMARY KEY, owner INT, kind TEXT NOT NULL, 2nd_name TEXT,
        weight_(kg) REAL,
        FOREIGN KEY (owner) REFERENCES student(id));""",
    "reference_sql": "SELECT s.name FROM student s JOIN pet p ON s.id = p.owner WHERE p.kind = 'dog' AND "
    "s.age > 20",
}


def lic_items() -> list[dict]:
    return json.loads(shared("data/lic/database.json").read_text())


def correct(answer: dict, query: str, **settings: object) -> bool:
    verdict = verify_database(answer, f"Here it is:\n```sql\n{query}\n```", timeout=60, **settings)
    assert verdict.status == "ok", verdict
    return verdict.correct
