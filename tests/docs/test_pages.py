"""Links and anchors lead somewhere, Python compiles, what pages name exists, made pages are current."""

import ast
import re
import runpy

import pytest
import torch
from pictures import pictures
from support.doc_pages import PAGES, ROOT, anchors, blocks, inline, links, prose

from smopd.data.training_set import overlap, readers
from smopd.methods import METHODS
from smopd.objective import keep_mask, reliability, turn_weights  # noqa: F401 - the page's examples
from smopd.objective.tokens import Moment

DOCS = ROOT / "docs"
ALL = [*PAGES, *sorted((DOCS / "evidence").glob("*.md"))]
READ = {page: page.read_text(encoding="utf-8") for page in ALL}
WRITTEN_FROM_NOWHERE = {"README.md", "AGENTS.md", "index.md", "reading.md"}


def names_of(tree: ast.Module) -> set[str]:
    """Functions, classes, their members and constants of a module, as `name` and `Class.name`."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)
            }
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


@pytest.mark.parametrize("page", ALL, ids=lambda page: page.name)
def test_links_and_anchors_lead_somewhere(page):
    for link in links(READ[page]):
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), link
        if anchor:
            assert anchor in anchors(there.read_text(encoding="utf-8")), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_compiles(page):
    for language, text in blocks(READ[page]):
        if language in ("python", "py"):
            compile(text, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_functions_that_pages_name_exist(page):
    for code in inline(READ[page]):
        match = re.fullmatch(r"((?:smopd|tests|tools|docs)/[\w./-]*\w/?)(?:::([\w.]+))?", code)
        if match:
            path, name = ROOT / match[1], match[2]
            assert path.exists(), code
            assert not name or name in names_of(ast.parse(path.read_text(encoding="utf-8"))), code


def test_the_paper_map_is_whole():
    """Nine equations, eight lines of the algorithm, eleven tables, six figures."""
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", READ[DOCS / "paper-map.md"], re.M | re.S))
    equations = re.findall(r"^\| \((\d)\)", sections["Equations"], re.M)
    lines = re.findall(r"^\| (\d),", sections["Algorithm 1"], re.M)
    figures = re.findall(r"^\| (\d) \|", sections["Figures"], re.M)
    tables = re.findall(r"\d+", " ".join(re.findall(r"^\| ([\d, ]+) \|", sections["Tables"], re.M)))
    tables.sort(key=int)  # two tables may share a row
    assert [equations, lines, tables, figures] == [
        [str(number) for number in range(1, count + 1)] for count in (9, 8, 11, 6)
    ]
    for part in ("Equations", "Algorithm 1", "Figures"):
        rows = re.findall(r"^\| (?!---|in the|line|figure)(.+) \|$", sections[part], re.M)
        assert [row for row in rows if "::" not in row] == []


def test_contents_name_every_page():
    named = set(links(READ[DOCS / "index.md"])) - {"../README.md"}
    assert named == {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    for page in PAGES:  # nothing is reached from the contents alone
        others = [READ[other] for other in ALL if other not in (page, DOCS / "index.md")]
        if page.name not in WRITTEN_FROM_NOWHERE:
            assert any(re.search(rf"\]\((?:docs/)?{page.name}[#)]", text) for text in others), page.name


def test_the_glossary_has_the_words():
    bold = re.findall(r"\*\*(.+?)\*\*", READ[DOCS / "glossary.md"], re.S)
    entries = " ".join(" ".join(bold).split()).lower()
    terms = """full sharded lic concat recap snowball delta reliability full_branch clean dirty middle answer
    keep cap clipped teacher ema turn_accuracy plan term play run study arm base lost found"""
    assert [word for word in terms.split() if word.replace("_", " ") not in entries] == []


@pytest.mark.parametrize(("tool", "name"), [("settings_page", "configuration"), ("methods_page", "methods")])
def test_the_made_pages_are_current(tool, name):
    generated = runpy.run_path(str(ROOT / "tools" / f"{tool}.py"))["page"]()
    assert generated == READ[DOCS / f"{name}.md"], "run: make docs"


def test_the_pictures_are_current():
    for name, svg in pictures(DOCS / "evidence" / "miniature.json").items():
        assert svg == (DOCS / "pictures" / name).read_text(encoding="utf-8"), "run: make docs"
        assert "prefers-color-scheme: dark" in svg
        assert re.search(r"#def0\w\w", svg) is None  # every stand-in became a colour
        assert re.findall(r"https?://(?!www\.w3\.org)", svg) == []


def test_tables_keep_their_columns():
    """A bar inside a cell would cut it short: GitHub drops what is too much."""
    for page in PAGES:
        for table in re.findall(r"(?:^\|.*\n)+", prose(READ[page]), re.M):
            counts = {len(re.findall(r"(?<!\\)\|", row)) for row in table.strip().split("\n")}
            assert len(counts) == 1, f"{page.name}: {table[:200]}"


def test_the_method_page_counts_as_the_code_does():
    page = READ[DOCS / "method.md"]
    kept = re.search(r"stay: ((?:\d+ of \d+(?:, )?)+)", page)
    assert kept is not None
    for some, of in re.findall(r"(\d+) of (\d+)", kept[1]):
        assert keep_mask(torch.arange(int(of)) / 7, 0.8).sum() == int(some)
    begins = re.search(r"With (\d+) steps it is on from step (\d+), with (\d+) from step (\d+)", page)
    assert begins is not None
    for steps, first in (begins.groups()[:2], begins.groups()[2:]):
        on = [step for step in range(1, int(steps) + 1) if Moment(step, int(steps)).after(0.33)]
        assert on[0] == int(first)
    (example,) = [text for _, text in blocks(page) if "turn_weights(" in text]
    for line in example.split("\n"):
        call, _, comment = line.partition("#")
        numbers = [float(number) for number in re.findall(r"(?<!from )\b\d\.\d+", comment)]
        if numbers:
            assert eval(call).tolist() == pytest.approx(numbers, abs=5e-4)


def test_the_readme_says_how_many_methods_there_are():
    assert re.search(rf"\[{len(METHODS)}\s+methods\]\(docs/methods.md\)", READ[ROOT / "README.md"])


def test_the_first_lines_say_what_has_not_run():
    for page, lines in ((ROOT / "README.md", 15), (ROOT / "docs" / "gpu.md", 8)):
        first = " ".join(page.read_text(encoding="utf-8").splitlines()[:lines])
        assert re.search(r"[Nn]othing (on this page )?has run on a GPU yet", first), page
        assert "smopd doctor --speed" in first


def test_the_commands_fetch_every_raw_file_that_a_build_reads():
    page = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    (categories,) = re.findall(r"^for name in (.*); do$", page, re.M)
    assert set(readers.BFCL) | {"parallel"} == set(categories.split())
    fetched = set(re.findall(r"-o raw/(\S+)", page))
    elsewhere = {*readers.SPIDER, readers.SPIDER_TABLES, "spider/dev.json"}
    needed = {readers.GSM8K, readers.MBPP, *(name for name, *_ in overlap.HELD_OUT)}
    assert {name for name in needed if "BFCL" not in name} - elsewhere <= fetched
    for text in (page, (ROOT / "README.md").read_text(encoding="utf-8")):
        assert "lost_in_conversation/data/sharded_instructions_600.json" in text
        assert "github.com/microsoft/lost_in_conversation" in text
    (names,) = re.findall(r"^for task in (.*); do$", page, re.M)
    made = {f"lic_{name}.json" for name in names.split()}
    assert "> lic_$task.json" in page
    named = {name for text in READ.values() for name in re.findall(r"\blic[_/]\w+\.json", text)}
    assert "lic_math.json" in named <= made
