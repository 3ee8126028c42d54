"""A small lint of names and prose: what a reader stumbles over is kept out."""

import ast
import re
from pathlib import Path

import pytest
from support.doc_pages import FRONT, PAGES, ROOT, prose

PACKAGE = ROOT / "smopd"
FILLERS = {"found", "own", "said", "words", "made", "told", "given", "heard", "felt"}
GENERATED = {"configuration.md", "evidence.md", "methods.md"}
WRITTEN = [page for page in PAGES if page.name not in GENERATED]
FILES = [
    path for folder in ("smopd", "benchmarks", "tools", "tests") for path in (ROOT / folder).rglob("*.py")
]
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in FILES}


def assigned(tree: ast.AST) -> list[str]:
    """Names of variables and parameters, once for each place that gives them a value."""
    nodes = list(ast.walk(tree))
    names = [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    return names + [node.arg for node in nodes if isinstance(node, ast.arg)]


def test_names_say_what_they_hold():
    places = [f"{path.name}: {name}" for path, tree in TREES.items() for name in assigned(tree)
              if name in FILLERS]  # fmt: skip
    assert len(places) <= 20, places


def test_a_docstring_says_something():
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)
    empty = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(TREES[path]):
            text = ast.get_docstring(node) if isinstance(node, kinds) else None
            if text is not None and len(text.split()) < 4:
                empty.append(f"{path.name}: {getattr(node, 'name', 'module')}: {text}")
    assert empty == []


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_prose_is_wrapped(page: Path):
    lines = prose(page.read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if len(line) > 110 and not line.startswith(("|", "#", "!["))] == []


def test_pages_are_short():
    word_counts = {page.name: len(page.read_text(encoding="utf-8").split()) for page in WRITTEN}
    assert sum(word_counts[page.name] for page in WRITTEN if page not in FRONT) <= 18_600, word_counts
    assert {name: count for name, count in word_counts.items() if count > 1_650} == {}
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 140


def test_the_lint_sees_what_it_looks_for():
    tree = ast.parse("def f(words):\n    found = [x for own in words]\n")
    assert sorted(assigned(tree)) == ["found", "own", "words"]
    assert re.search(r"^wide", prose("```\ncode\n```\nwide " + "x" * 120), re.M)
