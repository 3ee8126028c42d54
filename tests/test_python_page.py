"""docs/python.md and docs/notebook.ipynb: every block and every cell, as they stand there.

The notebook is run by the small runner below, in this process: each cell a text of its own that only the line
cache knows, as in IPython, so that functions and classes of a cell are found as they are in a kernel.
"""

import ast
import json
import linecache
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import smopd

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    """Runs cells one after the other in one namespace, in an empty folder; the last value of each."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("notebook_under_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names: list[str] = []

    def run(text: str) -> Any:
        name = f"<cell {len(names)} of a test>"
        names.append(name)
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        tree = ast.parse(text)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), vars(module))
        if last is None:
            return None
        return eval(compile(ast.Expression(last.value), name, "eval"), vars(module))

    yield run
    for name in names:
        del linecache.cache[name]


def test_the_script_of_the_readme_is_short():
    script = BLOCKS[0]
    assert len([line for line in script.splitlines() if line.strip()]) <= 12
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = [b for b in re.findall(r"^```python\n(.*?)^```", readme, re.M | re.S) if "smopd.train(" in b]
    assert all(block == script for block in shown)


@pytest.mark.slow
def test_the_page_works_as_written(notebook, tmp_path, capsys):
    notebook(BLOCKS[0])
    # The script shows what the page and the README say it shows, up to the rounding of another machine.
    learnt = notebook("[e[view]['correct'] for view in ('full', 'sharded') for e in (before, after)]")
    printed = capsys.readouterr().out
    assert printed.startswith("before training\nFULL")
    shown = re.search(r"^```\n(before training\n.*?)^```", PAGE, re.M | re.S)
    assert shown
    assert shown[1] in (ROOT / "README.md").read_text(encoding="utf-8")
    full_before, sharded_before, full_after, sharded_after = map(int, re.findall(r"\((\d+)/200\)", shown[1]))
    page_counts = (full_before, full_after, sharded_before, sharded_after)
    assert all(abs(now - then) <= 10 for now, then in zip(learnt, page_counts, strict=True))
    assert learnt[3] - learnt[2] > 40
    for block in BLOCKS[1:]:
        notebook(block)
    assert (tmp_path / "apples.png").stat().st_size > 10_000
    assert "eval_sharded" in capsys.readouterr().out
    assert (tmp_path / "models" / "apples" / "adapter_model.safetensors").exists()
    text = next((tmp_path / "runs").glob("pocket-entropy-variant-*")) / "inputs" / "method.py"
    assert "def total_variation(rows):" in text.read_text()


@pytest.mark.slow
def test_the_notebook_works_as_written(notebook, tmp_path):
    cells = json.loads((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    values = [notebook("".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"]
    run = next(value for value in values if isinstance(value, smopd.Run))
    assert "def last_number" in (run.path / "inputs" / "verifier.py").read_text()
    distance_run = next((tmp_path / "runs").glob("pocket-distance-*"))
    # Python does not give back the text of a class of a cell: the notebook says so too.
    assert "continue or evaluate the run from Python" in (distance_run / "inputs" / "method.py").read_text()
    assert "sharpness = 1.5" in (distance_run / "config.toml").read_text()
    assert set(values[-1]) >= {"eval_full", "eval_sharded"}


def test_every_name_offered_is_in_the_page():
    for name in smopd.__all__:
        assert f"`{name}" in PAGE, name
        assert getattr(smopd, name).__doc__
