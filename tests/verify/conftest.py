"""Fixtures of the sandbox's tests."""

from collections.abc import Iterator

import pytest

from smopd.verify import sandbox, workers


@pytest.fixture(
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("bubblewrap", "namespaces")]
)
def level(request) -> str:
    """Every isolation that works here; a test of isolation is worth nothing without one."""
    if request.param not in sandbox.available():
        pytest.skip(f"{request.param} does not work on this machine")
    return request.param


@pytest.fixture(scope="module")
def sandbox_workers() -> Iterator[None]:
    """They end with the module."""
    yield
    workers.close()
