"""The verifiers' benchmark at tiny counts: items are what they claim to be, reports have their shape. No time
is looked at.
"""

import json

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.verify import KINDS, Verify, items, report
from smopd.evaluation import verify_all
from smopd.verify import sandbox, workers
from smopd.verify.tasks.math import judge

SANDBOXED = sandbox.isolation() != "none"


@pytest.mark.parametrize("kind", KINDS)
def test_every_other_reply_is_right(kind: str) -> None:
    if kind == "code" and not SANDBOXED:
        pytest.skip("neither bubblewrap nor namespaces work on this machine")
    pairs = items(kind, 24)
    assert pairs == items(kind, 24)
    verdicts = verify_all(pairs)
    assert [verdict.correct for verdict in verdicts] == [True, False] * 12
    assert {verdict.status for verdict in verdicts} == {"ok"}


def test_expressions_are_expressions_and_numbers_numbers() -> None:
    for kind, asked in (("math, expressions", True), ("math, numbers", False)):
        are_jobs = [isinstance(judge(example, reply), workers.Job) for example, reply in items(kind, 40)]
        assert set(are_jobs) == {asked}


def test_report_and_command_line() -> None:
    verify_report = report(Verify(quick=6, slow=4), 2)
    assert [row["name"] for row in verify_report["results"]] == [
        kind for kind in KINDS if kind != "code" or SANDBOXED
    ]
    for row in verify_report["results"]:
        assert row["same"]
        assert (row["correct"] * 2, row["failed"]) == (row["verdicts"], 0)
        assert all(rate > 0 for rate in row["per_second"].values())
    arguments = ["verify", "--quick", "4", "--slow", "2", "--reps", "1"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["settings"] == {"quick": 4, "slow": 2}
    table = CliRunner().invoke(app, arguments)
    assert table.exit_code == 0, table.output
    assert "math, expressions" in table.stdout
    assert "both ways gave the same verdicts" in table.stdout
