"""A study report on disk: well-formed in every form, safe against hostile names, the same bytes again, and
audited to the digit.

Most cases draw no real figures, which take seconds. It leaves out looks: those were judged by eye.
"""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from support.page_parser import Page
from support.synthetic_study import HOSTILE, study

from smopd.study.drawing import Figure
from smopd.study.report import (
    audit_report,
    inline_svg,
    make_document,
    ranges,
    render_files,
    render_html,
    short,
    write_study_report,
)
from smopd.study.results import Results
from smopd.tables import latex, markdown

ARMS = {"baseline": 0.5, "entropy": 0.66, "outcome": 0.5, "combined": 0.36}
SVG = """<?xml version="1.0"?>
<!DOCTYPE svg PUBLIC "x" "http://www.w3.org/x.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="468pt" height="9pt" viewBox="0 0 9 9" xmlns="http://www.w3.org/2000/svg">
 <metadata><rdf:RDF xmlns:rdf="http://x"></rdf:RDF></metadata>
 <defs><style type="text/css">*{stroke-linejoin: round}</style>
 <clipPath id="p1"><path id="m1" d="M0 0"/></clipPath></defs>
 <g id="figure_1" clip-path="url(#p1)"><use xlink:href="#m1" x="1"/><!-- a --></g>
</svg>
"""


def drawn(results: Results) -> list[Figure]:
    """Two drawings whose ids are the same."""
    return [
        Figure(name, f"Title of {name}", "A caption.", SVG, b"%PDF \xff" + name.encode(), [])
        for name in ("one", "two")
    ]


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smopd.study.figures.make_figures", drawn)


STUDIES = {
    "plain": study(ARMS, measured=True, paper="ablation"),
    "one seed": study(ARMS, seeds=[42], items=20),
    "grid": study({"a": 0.5, "b": 0.6}, models=["x", "y/z", "w"], axes={"train.steps": [1, 2]}, seeds=[1, 2],
                  items=20),
    "missing": study(ARMS, missing=[("entropy", 1), *(("outcome", seed) for seed in range(1, 6))], items=20),
    "hostile": replace(
        study(dict.fromkeys(HOSTILE, 0.5), models=["<i>m&m</i>/x_y"], axes={"a_b%": ["<u>", 'q"z']},
              items=20, seeds=[1, 2]),
        name="n_%\n\\input{x}", title=HOSTILE[3], about=HOSTILE[1], missing=HOSTILE,
    ),
}  # fmt: skip


@cache
def files_of(name: str) -> dict[str, bytes]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("smopd.study.figures.make_figures", drawn)
        return render_files(make_document(STUDIES[name]))


@pytest.fixture(params=STUDIES)
def rendered(request: pytest.FixtureRequest) -> tuple[Results, dict[str, bytes]]:
    return STUDIES[request.param], files_of(request.param)


def test_page_is_well_formed_and_self_contained(rendered: tuple[Results, dict[str, bytes]]) -> None:
    results, files = rendered
    text = files["index.html"].decode()
    page = Page(text)
    tags = [tag for tag, _ in page.tags]
    assert not {"script", "img", "link", "iframe", "object", "metadata", "b2"} & set(tags)
    assert tags.count("style") == 1
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    for _, attrs in page.tags:
        for name, value in attrs.items():
            assert not name.startswith("on")
            if name in ("href", "xlink:href"):
                assert (value or "").startswith("#")
                assert (value or "")[1:] in ids
            assert name != "src"
            assert (
                "http" not in (value or "") or name.startswith("xmlns") or attrs.get("name") == "viewport"
            ), (name, value)
    for arm in results.arms:
        assert (arm in text) == (not re.search(r"[<&\"]", arm))
    assert all(tag not in text for tag in ("<b>&", "<script", "<u>", "<i>m"))


def test_every_number_of_the_page_tells_its_id_and_its_runs(light: None) -> None:
    document = make_document(STUDIES["plain"])
    links = [
        attrs for tag, attrs in Page(render_html(document)).tags if tag == "a" and attrs.get("class") == "n"
    ]
    shown = {re.split(" = ", attrs["title"] or "")[0]: attrs for attrs in links}
    assert set(shown) == {number.id for number in document.numbers}
    (number,) = [n for n in document.numbers if n.id == "main/pocket/entropy/sharded/mean"]
    assert (
        shown[number.id]["title"] == f"{number.id} = {number.value:.10g}; runs 7-11"
    )  # the base model is run 1, baseline 2-6
    assert ranges([1, 2, 3, 5, 7, 8]) == "1-3, 5, 7, 8"
    assert short(f"0.1.0 {'ab' * 32}") == "0.1.0 abababababab"


def test_provenance_names_every_run(rendered: tuple[Results, dict[str, bytes]]) -> None:
    results, files = rendered
    page, plain = files["index.html"].decode(), files["report.md"].decode()
    for cell in [*results.base, *results.cells]:
        assert cell.source.config in page
        assert cell.source.config[:12] in plain
        assert (cell.source.adapter or "") in page
    assert plain.rstrip().endswith("|")


def test_markdown_tables_have_equal_columns(rendered: tuple[Results, dict[str, bytes]]) -> None:
    _, files = rendered
    blocks = [block for block in files["report.md"].decode().split("\n\n") if block.startswith("|")]
    assert len(blocks) == len([path for path in files if path.startswith("tables/")]) + 1
    for block in blocks:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}
        assert len(counts) == 1
        assert re.fullmatch(r"\|( -+:? \|)+", block.splitlines()[1])
    assert "![Title of one](figures/one.svg)" in files["report.md"].decode()
    assert not re.search(r"<(b|script|u|i)\b", files["report.md"].decode())


def test_markdown_and_latex_escape() -> None:
    assert markdown("a_b|c *d* <b> < 0.1 [1, 2] [x](y) ![i](j) &amp; a&b \n#") == (
        r"a\_b\|c \*d\* &lt;b> < 0.1 [1, 2] [x\](y) \![i\](j) &amp;amp; a&b \#"
    )
    assert markdown("&#60;") == r"&\#60;"
    assert latex("50% a_b & #1 ^ ~ <") == r"50\% a\_b \& \#1 \textasciicircum{} \textasciitilde{} $<$"
    assert (
        latex("\\x {y} $z$ -- [é] \u2212 ∑")
        == r"\textbackslash{}x \{y\} \$z\$ -{}- {[}\'{e}{]} $-$ \texttt{U+2211}"
    )


def test_latex_tables_are_balanced_ascii(rendered: tuple[Results, dict[str, bytes]]) -> None:
    results, files = rendered
    tables = {path: content.decode("ascii") for path, content in files.items() if path.endswith(".tex")}
    assert "tables/main.tex" in tables
    hashes = {cell.source.config[:12] for cell in [*results.base, *results.cells]}
    for path, text in tables.items():
        comments, body = (re.findall(rf"^{start}.*$", text, re.MULTILINE) for start in ("%", "[^%]"))
        assert text.startswith("% ")
        assert "% data hash: " in text
        assert set(re.search(r"config hashes: (.*)", "\n".join(comments))[1].split()) <= hashes  # type: ignore[index]
        columns = re.fullmatch(r"\\begin\{tabular\}\{([lr]+)\}", body[1])
        assert columns, path
        assert (body[0][:11], body[0][-2:], body[-1]) == (r"\resizebox{", "{%", r"\end{tabular}}")
        assert [body.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
        for line in body[2:-1]:
            bare = re.sub(r"\\[\\%_&#${}^~`'\"=]", "", line)  # what is escaped, and the end of the row
            assert bare.count("{") == bare.count("}"), line
            assert bare.count("$") % 2 == 0
            assert not re.search(r"[%#~^_]", re.sub(r"\$[^$]*\$", "", bare)), line
            assert set(re.findall(r"\\([a-zA-Z]+)", line)) <= {
                "toprule", "midrule", "bottomrule", "addlinespace", "multicolumn", "textbf", "textbackslash",
                "textasciicircum",
                "textasciitilde", "textasciigrave", "texttt", "pm", "v", "c", "r", "dots",
            }, line  # fmt: skip
            if line.endswith(r"\\") and r"\multicolumn" not in line:
                assert bare.count("&") == len(columns[1]) - 1
            assert not line.startswith(("[", "*"))


@pytest.mark.latex
@pytest.mark.skipif(not shutil.which("pdflatex"), reason="needs pdflatex")
def test_latex_compiles_and_no_table_is_wider_than_the_line(
    rendered: tuple[Results, dict[str, bytes]], tmp_path: Path
) -> None:
    _, files = rendered
    tables = [content.decode() for path, content in files.items() if path.endswith(".tex")]
    body = "\n".join(rf"\noindent {{{table}}}\par" for table in tables)
    begin = r"\documentclass{article}\usepackage{booktabs}\usepackage{graphicx}\begin{document}"
    (tmp_path / "all.tex").write_text("\n".join([begin, body, r"\end{document}"]))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert run.returncode == 0, run.stdout[-2000:]
    assert not re.findall(r"Overfull \\hbox \((?:[1-9]|\d\d)", run.stdout)


def test_json_holds_every_number_with_runs_that_exist(rendered: tuple[Results, dict[str, bytes]]) -> None:
    results, files = rendered
    whole = json.loads(files["report.json"])
    runs = {source["folder"] for source in whole["sources"]}
    assert runs == {cell.source.folder for cell in [*results.base, *results.cells]}
    names = [number["id"] for number in whole["numbers"]]
    assert len(names) == len(set(names)) > 20
    assert all(set(number["sources"]) <= runs for number in whole["numbers"])
    assert all(
        number["sources"] or number["value"] == 0 for number in whole["numbers"]
    )  # an arm without results has 0 seeds
    assert whole["missing"] == results.missing


def test_drawings_of_one_page_share_no_id() -> None:
    one, two = (inline_svg(figure) for figure in drawn(STUDIES["plain"]))
    assert '<clipPath id="fig-one-p1">' in one
    assert 'clip-path="url(#fig-one-p1)"' in one
    assert 'xlink:href="#fig-one-m1"' in one
    assert "fig-two-p1" in two
    assert not re.search("metadata|style|<!--|DOCTYPE|<[?]", one)


def test_written_audited_and_cleared(tmp_path: Path, light: None) -> None:
    results = STUDIES["plain"]
    written = write_study_report(results, tmp_path)
    assert sorted(p for p in tmp_path.rglob("*") if p.is_file()) == sorted(written)
    before = {path: path.read_bytes() for path in written}
    for name in ("figures/old.svg", "figures/old.pdf", "tables/old.tex", "tables/notes.txt", "mine.svg"):
        (tmp_path / name).write_text("x")
    (tmp_path / "figures" / "folder.svg").mkdir()
    assert audit_report(tmp_path, results) == [
        f"{name}: not part of this report"
        for name in ("figures/old.pdf", "figures/old.svg", "tables/old.tex")
    ]
    assert write_study_report(results, tmp_path) == written
    assert {path: path.read_bytes() for path in written} == before
    assert audit_report(tmp_path, results) == []
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")} - {
        str(p.relative_to(tmp_path)) for p in written
    }
    assert left == {"figures", "tables", "tables/notes.txt", "mine.svg", "figures/folder.svg"}


def test_audit_finds_one_digit(tmp_path: Path, light: None) -> None:
    results = STUDIES["plain"]
    write_study_report(results, tmp_path)
    path = tmp_path / "report.md"
    text = path.read_text()
    line = next(i for i, line in enumerate(text.split("\n")) if line.startswith("| entropy | 5 |"))
    place = text.index("± ", text.index("| entropy | 5 |")) + 2
    path.write_text(text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :])
    (problem,) = audit_report(tmp_path, results)
    assert problem.startswith(f"report.md: differs from line {line + 1} on: ")
    assert "| entropy | 5 |" in problem


def test_audit_finds_a_flipped_item(tmp_path: Path, light: None) -> None:
    results = STUDIES["plain"]
    write_study_report(results, tmp_path)
    cells = list(results.cells)
    place = next(i for i, cell in enumerate(cells) if (cell.arm, cell.seed) == ("entropy", 3))
    digits = cells[place].right["sharded"]
    cells[place] = replace(
        cells[place], right=cells[place].right | {"sharded": ("1" if digits[0] == "0" else "0") + digits[1:]}
    )
    problems = audit_report(tmp_path, replace(results, cells=cells))
    folder = cells[place].source.folder
    numbers = [line for line in problems if ": the report has " in line]
    assert any(
        line.startswith("main/pocket/entropy/sharded/mean: the report has ") and folder in line
        for line in numbers
    )
    per_seed = [line for line in numbers if line.startswith("per-seed/")]
    assert [line.split(":")[0] for line in per_seed] == [
        "per-seed/pocket/entropy/3/sharded/mean",
        "per-seed/pocket/entropy/3/gap/mean",
    ]
    assert all(line.endswith(f"; from {folder}") for line in per_seed)
    assert not any("/full/" in line for line in numbers)
    assert any(line.startswith("report.json: differs from line ") for line in problems)


def test_audit_names_what_is_missing_or_altered(tmp_path: Path, light: None) -> None:
    results = STUDIES["plain"]
    write_study_report(results, tmp_path)
    (tmp_path / "figures" / "one.svg").unlink()
    (tmp_path / "figures" / "two.pdf").write_bytes(b"%PDF \xfetwo")
    (tmp_path / "tables" / "main.tex").write_text("")
    assert audit_report(tmp_path, results) == [
        "tables/main.tex: differs from line 1 on: '', recomputed '% synthetic: Base model and arms'",
        "figures/one.svg: missing",
        "figures/two.pdf: differs from byte 5 on (9 bytes, recomputed 9)",
    ]
    for content in ("not JSON", "[]", '{"numbers": [1]}'):
        (tmp_path / "report.json").write_text(content)
        problems = audit_report(tmp_path, results)
        assert problems[0].startswith("report.json: holds no numbers that can be read")
    assert any(line == "index.html: missing" for line in audit_report(tmp_path / "nowhere", results))


def test_audit_finds_a_changed_number_in_the_json(tmp_path: Path, light: None) -> None:
    results = STUDIES["plain"]
    write_study_report(results, tmp_path)
    path = tmp_path / "report.json"
    whole = json.loads(path.read_text())
    changed, gone = whole["numbers"][5], whole["numbers"].pop(6)
    changed["value"] += 1e-6
    path.write_text(json.dumps(whole))
    problems = audit_report(tmp_path, results)
    assert problems[0].startswith(f"{changed['id']}: the report has {changed['text']} (")
    assert problems[1].startswith(f"{gone['id']}: the report has no such number, recomputed {gone['text']} (")
    assert problems[2].startswith("report.json: differs from line 1 on")


def test_real_figures_agree_after_writing(tmp_path: Path) -> None:
    results = study({"baseline": 0.5, "entropy": 0.6}, seeds=[1, 2], items=20, measured=True)
    written = write_study_report(results, tmp_path)
    assert {p.suffix for p in written} == {".html", ".md", ".json", ".tex", ".svg", ".pdf"}
    assert audit_report(tmp_path, results) == []
    page = Page((tmp_path / "index.html").read_text())
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert all((attrs["xlink:href"] or "")[1:] in ids for _, attrs in page.tags if "xlink:href" in attrs)
