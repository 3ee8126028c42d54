"""The pages as a site: mkdocs.yml names all of them, and where mkdocs is installed it builds strictly."""

import re
from importlib.util import find_spec

import pytest
from support.doc_pages import ROOT

SETTINGS = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
# What a browser loads by itself; a link that a reader clicks may lead anywhere.
LOADED = (
    r'<(?:script|img|iframe)\b[^>]*\bsrc="([^"]+)"',
    r'<link\b[^>]*rel="(?:stylesheet|preconnect|icon|preload)"[^>]*href="([^"]+)"',
    r'<link\b[^>]*href="([^"]+)"[^>]*rel="(?:stylesheet|preconnect|icon|preload)"',
)


def test_the_navigation_names_every_page():
    named = re.findall(r": ([\w/-]+\.md)$", SETTINGS.partition("\nnav:\n")[2], re.MULTILINE)
    docs = ROOT / "docs"
    pages = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} - {"evidence/reading.md"}
    assert sorted(named) == sorted(pages | {"start.md"})


@pytest.mark.site
@pytest.mark.skipif(find_spec("material") is None, reason="needs mkdocs-material: pip install 'smopd[site]'")
def test_the_strict_build_passes_and_fetches_nothing(tmp_path, monkeypatch):
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    monkeypatch.chdir(ROOT)
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, site_dir=str(tmp_path)))
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = [address for pattern in LOADED for address in re.findall(pattern, text)]
        assert loaded
        assert [address for address in loaded if re.match(r"(?:https?:)?//", address)] == []
    for sheet in tmp_path.rglob("*.css"):
        assert re.findall(r"url\(['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")) == []
    start = (tmp_path / "start.html").read_text(encoding="utf-8")
    assert "make quickstart" in start
    assert 'src="pictures/step.svg"' in start
    assert "reliability" in (tmp_path / "search" / "search_index.json").read_text(encoding="utf-8")
    assert [path.name for path in tmp_path.rglob("*.json")] == ["search_index.json"]


@pytest.mark.site
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="needs mkdocs: pip install 'smopd[site]'")
def test_links_out_of_docs_are_text_on_the_site():
    from site_hooks import on_page_markdown

    page = "[a](../smopd/x.py), [b](../README.md#how), [c](method.md), ![d](../x.svg)"
    assert on_page_markdown(page) == "a, [b](start.md#how), [c](method.md), ![d](../x.svg)"
