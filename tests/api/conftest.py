"""One small run, made from Python objects, that most tests of this folder look at."""

import os
from pathlib import Path

import pytest
from apples import EXAMPLES, SMALL, last_number

import smopd


@pytest.fixture(scope="session")
def apples(tmp_path_factory) -> smopd.Run:
    """Two steps on a list of dicts with a verifier function, in a folder that is not the current one."""
    folder = tmp_path_factory.mktemp("apples")
    before = Path.cwd()
    os.chdir(folder)
    try:
        return smopd.train(
            "pocket", train=EXAMPLES, eval=EXAMPLES[:2], verifier=last_number, steps=2, out=folder / "run",
            settings=SMALL | {"train.save_tokens": True}, progress=False,
        )  # fmt: skip
    finally:
        os.chdir(before)
