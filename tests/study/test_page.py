"""docs/evidence.md is what the committed results give, and it says what it must."""

import re
from pathlib import Path

import pytest
from evidence_page import main, make_page

from smopd.data import load_examples
from smopd.study.plan import load_study
from smopd.study.results import load_results

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def page_and_files() -> tuple[str, dict[str, str]]:
    return make_page(DOCS / "evidence")


@pytest.mark.long
def test_the_page_is_generated_and_its_reports_and_figures_are_there(page_and_files):
    page, files = page_and_files
    assert page == (DOCS / "evidence.md").read_text(encoding="utf-8"), "run: make docs"
    for name, content in files.items():
        assert (DOCS / "evidence" / name).read_text(encoding="utf-8") == content, "run: make docs"
        if name.endswith(".md"):
            assert f"(evidence/{name})" in page
        else:
            assert f"({name})" in files[f"{Path(name).parent}.md"]
    assert set(re.findall(r"\(evidence/(.*?)\)", page)) <= set(files)
    there = {
        p.relative_to(DOCS / "evidence").as_posix()
        for p in (DOCS / "evidence").rglob("*")
        if p.suffix in (".svg", ".md")
    }
    assert there == {*files, "reading.md"}


@pytest.mark.parametrize("file", sorted((DOCS / "evidence").glob("*.json")), ids=lambda file: file.stem)
def test_every_study_there_is_whole_and_was_run_by_one_state_of_the_code(file):
    results, study = load_results(file), load_study(file.stem)
    assert not results.missing
    assert len(results.cells) == len(study.cells)
    assert len(results.base) == 1
    config = study.cells[0].config
    assert results.views == [*config.eval.views, *(["turns"] if results.middle else [])]
    assert results.items == [example.id for example in load_examples(config.data.eval)]
    assert len(results.items) >= 200
    assert len({c.source.trained_by for c in results.cells}) == 1
    assert len({c.source.adapter for c in results.cells}) == len(results.cells)
    assert file.stat().st_size < 1_000_000


def test_writing_it_removes_what_is_no_longer_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("evidence_page.make_page", lambda folder: ("page\n", {"a/one.svg": "<svg/>"}))
    (tmp_path / "evidence" / "a").mkdir(parents=True)
    (tmp_path / "evidence" / "a" / "old.svg").touch()
    (tmp_path / "evidence" / "old.md").touch()
    (tmp_path / "evidence" / "reading.md").touch()
    main(tmp_path / "evidence", tmp_path / "evidence.md")
    assert [p.name for p in (tmp_path / "evidence" / "a").iterdir()] == ["one.svg"]
    assert sorted(p.name for p in (tmp_path / "evidence").iterdir()) == ["a", "reading.md"]
    assert (tmp_path / "evidence.md").read_text() == "page\n"
