"""The documentation says what the code does: settings, commands, files that are named."""

import re
import runpy
from pathlib import Path

import pytest
from typer.main import get_command

from smopd.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_settings_page_is_current():
    assert runpy.run_path(str(ROOT / "docs" / "settings.py"))["page"]() == (ROOT / "docs" / "configuration.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_exist(page):
    verbs = set(get_command(app).commands)  # type: ignore[attr-defined]
    for verb in re.findall(r"(?:^|`)\s*smopd ([a-z]+)", page.read_text(), flags=re.MULTILINE):
        assert verb in verbs, verb


def test_shipped_files_are_small_and_there():
    shipped = [p for p in (ROOT / "smopd" / "pocket" / "model").iterdir() if p.is_file()]
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {p.name for p in shipped}
    assert sum(p.stat().st_size for p in shipped) < 10_000_000
