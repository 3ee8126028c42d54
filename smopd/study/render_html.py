"""A study report as one HTML page: no script, no outside resource, light and dark, and it prints.

Every number of a table is a link to the set of runs it was computed from; its tooltip tells its id, its
unrounded value and those runs. It looks like a run's report, whose styles it takes over. It leaves out what
the numbers are (tables.py).
"""

import re
from itertools import groupby

from smopd.formatting import esc
from smopd.pages import html_page, section, style_sheet
from smopd.study.drawing import Figure
from smopd.study.render import Document, short
from smopd.study.table_parts import VERDICTS, Entry, Number, Table

NEAR = ",\u00a0"  # keeps what follows a comma in a head on its line
WIDE = 500  # points; a wider drawing gets the whole width of the page


def render_html(document: Document) -> str:
    """The page as one string."""
    results = document.results
    head = [f"<h1>{esc(results.title or results.name)}</h1>"]
    head.append(f'<p class="subtitle">{esc(document.subtitle())}</p>')
    head += [f'<p class="lede">{esc(results.about)}</p>'] if results.about else []
    head.append(f'<ul class="findings">{_items(document.summary)}</ul>')
    if results.missing:
        names = "".join(f"<li>{esc(name)}</li>" for name in results.missing)
        count = f"{len(results.missing)} cell{'s' * (len(results.missing) > 1)}"
        head.append(f'<div class="warning"><b>No result yet for {count}</b><ul>{names}</ul></div>')
    sections = []
    for title, tables in groupby(document.tables, lambda table: table.section):
        sections.append(section(title, "".join(_table(table, document) for table in tables)))
    plates = "".join(_figure(figure) for figure in document.figures)
    sections.insert(1, section("Figures", f'<div class="plates">{plates}</div>' if plates else ""))
    words = _fold("Sentences", f"<ul>{_items(document.sentences)}</ul>") if document.sentences else ""
    sections.append(section("Every comparison in words", words))
    sections.append(section("Provenance", _provenance(document)))
    style = style_sheet("smopd.study", "report.css")
    return html_page(results.title or results.name, "".join(head), "".join(sections), style)


def inline_svg(figure: Figure) -> str:
    """The drawing inside a page: no prolog, no style sheet of its own, ids that no other drawing has."""
    text = figure.svg[figure.svg.index("<svg") :].strip()
    text = re.sub(r"<(metadata|style)\b[^>]*>.*?</\1>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    prefix = "fig-" + re.sub(r"[^A-Za-z0-9]", "-", figure.name) + "-"
    text = re.sub(r'(\s(?:id|clip-path|mask)=")(?!url)', rf"\g<1>{prefix}", text)
    text = text.replace('href="#', f'href="#{prefix}').replace("url(#", f"url(#{prefix}")
    return text.replace("<svg", f'<svg role="img" aria-label="{esc(figure.title)}"', 1)


def _minus(text: str) -> str:
    """Escaped, with a true minus sign before a number."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\u2212", esc(text))


def _items(lines: list[str]) -> str:
    return "".join(f"<li>{_minus(line)}</li>" for line in lines)


def _fold(summary: str, body: str) -> str:
    return f"<details><summary>{esc(summary)}</summary>{body}</details>"


def _table(table: Table, document: Document) -> str:
    words = [' class="words"' if i in table.words else "" for i in range(len(table.heads))]
    heads = ""
    for css, head in zip(words, table.heads, strict=True):
        heads += f'<th scope="col"{css}>{esc(head.replace(", ", NEAR))}</th>'
    body, group = [], ""
    for row in table.rows:
        if row.group != group:
            group = row.group
            wide = f'<th scope="rowgroup" colspan="{len(table.heads)}">{esc(group)}</th>'
            body.append(f'<tr class="group">{wide}</tr>\n')
        columns = zip(words[1:], row.entries, strict=False)
        cells = "".join(f"<td{css}>{_entry(entry, document)}</td>" for css, entry in columns)
        body.append(f'<tr><th scope="row">{esc(row.label)}</th>{cells}</tr>\n')
    inner = f"<table><thead><tr>{heads}</tr></thead><tbody>\n{''.join(body)}</tbody></table>"
    inner = f'<div class="scroll">{inner}</div>'
    inner = f'<p class="caption">{esc(table.caption)}</p>{inner}' if table.caption else inner
    inner = _fold("Show the table", inner) if table.fold else inner
    return f'<h3 id="table-{esc(table.name)}">{esc(table.title)}</h3>{inner}'


def _entry(entry: Entry, document: Document) -> str:
    if len(entry) == 1 and entry[0] in VERDICTS:
        css = str(entry[0]) if entry[0] in ("gain", "loss") else "open"
        return f'<span class="{css}">{esc(entry[0])}</span>'
    return "".join(_number(part, document) if isinstance(part, Number) else esc(part) for part in entry)


def _number(number: Number, document: Document) -> str:
    value = "not defined" if number.value is None else f"{number.value:.10g}"
    title = f"{number.id} = {value}; {document.run_list(number)}"
    target = f'href="#set-{document.sets[number.sources]}" title="{esc(title)}"'
    return f'<a class="n" {target}>{_minus(number.text)}</a>'


def _figure(figure: Figure) -> str:
    drawing = f'<div class="plate">{inline_svg(figure)}</div>'
    width = re.search(r'<svg[^>]*\swidth="([\d.]+)pt"', figure.svg)
    css = ' class="wide"' if width and float(width[1]) > WIDE else ""
    title, caption = f"<figcaption>{esc(figure.title)}</figcaption>", esc(figure.caption)
    return f'<figure{css}>{title}{drawing}<p class="caption">{caption}</p></figure>\n'


def _provenance(document: Document) -> str:
    heads, rows = document.provenance(full=True)
    top = "".join(f'<th scope="col">{esc(head)}</th>' for head in heads)
    body = ""
    for number, *row in rows:
        cells = ""
        for cell in row:
            whole = f' title="{esc(cell)}"' if short(cell) != cell else ""
            cells += f"<td{whole}>{esc(short(cell))}</td>"
        body += f'<tr id="run-{number}"><th scope="row">{number}</th>{cells}</tr>\n'
    table = f"<table><thead><tr>{top}</tr></thead><tbody>\n{body}</tbody></table>"
    table = f'<div class="scroll origin">{table}</div>'
    sets = []
    for folders, place in document.sets.items():
        runs = [document.places[folder] for folder in folders]
        links = ", ".join(f'<a href="#run-{run}">{run}</a>' for run in runs)
        sets.append(f'<li id="set-{place}">runs {links}</li>\n')
    caption = (
        "One line a run. A number in a table above is a link to the set of runs it was computed from; "
        "resting on it shows its id in report.json, its unrounded value and those runs. Hashes are cut to "
        "twelve digits here and whole in report.json."
    )
    listed = f'<h3>Sets of runs</h3><ol class="sets">\n{"".join(sets)}</ol>' if sets else ""
    return f'<p class="caption">{esc(caption)}</p>{table}{listed}'
