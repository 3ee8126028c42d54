"""Wrong queries: mutants of every LiC reference are rejected, because the databases show what a query does.

Mutants come from sqlglot, one change each. One that passes is called equivalent only for a logical reason
(`equivalence`), and a slow test then also runs it on 40 further, larger databases of other seeds; one that
passes without a reason counts as missed.
"""

import time
from collections import Counter

import pytest
from sqlglot import parse_one
from support.sql_examples import lic_items
from support.sql_mutants import equivalence, mutants

from smopd.verify.sql.database import difference, verify_database
from smopd.verify.sql.facts import query_facts
from smopd.verify.sql.reference import Suite, made_databases, suite_of
from smopd.verify.sql.schema import parse_schema


@pytest.fixture(scope="module")
def items() -> list[dict]:
    return lic_items()


def survivors(items: list[dict]) -> tuple[Counter, Counter, list]:
    """Per kind how many mutants ran and how many were rejected, and those that passed with the reason why."""
    ran, rejected, passed = Counter(), Counter(), []
    for item in items:
        schema = parse_schema(item["schema_sql"])
        for kind, tree, spot, was in mutants(item):
            verdict = verify_database(item, f"```sql\n{tree.sql('sqlite')}\n```", timeout=60)
            assert verdict.status == "ok", verdict
            if "does not run" in verdict.detail:
                continue
            ran[kind] += 1
            rejected[kind] += not verdict.correct
            if verdict.correct:
                passed.append((kind, item, tree.sql("sqlite"), equivalence(kind, spot, was, schema)))
    return ran, rejected, passed


def test_mutants_are_rejected(items):
    ran, rejected, passed = survivors(items)
    reasons = Counter(kind for kind, *_, why in passed if why)
    print({kind: f"{rejected[kind]} of {ran[kind]}, {reasons[kind]} equivalent" for kind in ran})
    missed = [(kind, text) for kind, _, text, why in passed if not why]
    assert len(missed) <= 0.01 * (sum(ran.values()) - sum(reasons.values())), missed
    assert sum(ran.values()) > 1500


@pytest.mark.long
def test_mutants_called_equivalent_agree_on_40_larger_databases(items):
    for kind, item, text, why in (entry for entry in survivors(items)[2] if entry[-1]):
        suite = suite_of(item["schema_sql"], item["reference_sql"], (), time.monotonic() + 60)
        facts = suite.facts | query_facts(parse_one(text, read="sqlite"), suite.schema)
        facts.most = max(facts.most, 20)  # sixty rows a table
        deadline = time.monotonic() + 600
        for connection, expected, _ in made_databases(suite, facts, f"more {kind}", 40, deadline):
            one = Suite(suite.schema, facts, suite.reference, [(connection, expected)], synthetic=False)
            assert not difference(one, text, time.monotonic() + 60), (why, item["reference_sql"], text)
            connection.close()


def test_few_results_of_a_reference_are_trivial(items):
    shares, wide = [], 0
    for item in items:
        suite = suite_of(item["schema_sql"], item["reference_sql"], (), time.monotonic() + 60)
        results = [expected for _, expected in suite.databases]
        shares.append(sum(expected.trivial for expected in results) / len(results))
        wide += any(expected.count > 10 for expected in results)
    assert max(shares) <= 0.2
    assert sum(shares) / len(shares) <= 0.1
    assert wide > 0.6 * len(items)  # the others give one row, or as many as a LIMIT allows
