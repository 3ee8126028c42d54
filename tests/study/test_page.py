"""docs/evidence.md is what the committed results give, and it says what it must."""

from pathlib import Path

import pytest

from smopd.study.page import main, make_page
from smopd.study.results import load_results

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def made() -> tuple[str, dict[str, str]]:
    return make_page(DOCS / "evidence")


def test_the_page_is_generated_and_its_figures_are_there(made):
    page, figures = made
    assert page == (DOCS / "evidence.md").read_text(encoding="utf-8"), "run: make docs"
    for name in figures:
        assert f"(evidence/{name})" in page
        assert (DOCS / "evidence" / name).read_text(encoding="utf-8").startswith("<")
    assert {p.relative_to(DOCS / "evidence").as_posix() for p in (DOCS / "evidence").glob("*/*")} == set(figures)


def test_the_miniature_study_is_whole():
    results = load_results(DOCS / "evidence" / "miniature.json")
    assert not results.missing
    assert len(results.base) == 1
    assert results.views == ["full", "sharded"]
    assert len(results.items) == 400
    for arm in ("baseline", "entropy", "outcome", "combined", "random mask", "inverted mask", "fixed denominator", "clip scale"):
        assert len(results.group("pocket", arm)) >= 5
    assert len({c.source.trained_by for c in results.cells}) == 1  # one state of the code
    assert len({c.source.adapter for c in results.cells}) == len(results.cells)
    assert (DOCS / "evidence" / "miniature.json").stat().st_size < 1_000_000


def test_writing_it_removes_what_is_no_longer_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("smopd.study.page.make_page", lambda folder: ("page\n", {"a/one.svg": "<svg/>"}))
    (tmp_path / "evidence" / "a").mkdir(parents=True)
    (tmp_path / "evidence" / "a" / "old.svg").touch()
    main(tmp_path / "evidence", tmp_path / "evidence.md")
    assert [p.name for p in (tmp_path / "evidence" / "a").iterdir()] == ["one.svg"]
    assert (tmp_path / "evidence.md").read_text() == "page\n"
