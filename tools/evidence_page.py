"""Writes docs/evidence.md from the results committed beside it (`make docs`):

    python tools/evidence_page.py docs/evidence docs/evidence.md

Every number on the page comes from docs/evidence/*.json through the same code that writes a study's report;
only reading.md is written by hand. The page has the main table of every study; the whole report is
docs/evidence/NAME.md, with its figures in docs/evidence/NAME/. It leaves out running studies.
"""

import re
import sys
from dataclasses import replace
from pathlib import Path

from wrapping import wrap_markdown

from smopd.files import write_text
from smopd.study.report import Document, make_document, render_markdown
from smopd.study.results import load_results

INTRO = """# Evidence

What has been measured with this software so far, and what has not. The page is made by `make docs` from
`docs/evidence/*.json`, which hold the verdict on every item of every run; the runs were made with

```
{commands}
```

How the intervals, tests and verdicts are computed is in [studies](study.md).
"""


def make_page(folder: Path) -> tuple[str, dict[str, str]]:
    """The page, and the reports and figures by their path inside the folder."""
    parts, commands, files = [], [], {}
    for file in sorted(folder.glob("*.json"), key=lambda path: path.stem):
        results = load_results(file)
        document = make_document(results)
        parts.append(_brief(document, f"{folder.name}/{results.name}"))
        files[f"{results.name}.md"] = render_markdown(document).replace("](figures/", f"]({results.name}/")
        files |= {f"{results.name}/{figure.name}.svg": figure.svg for figure in document.figures}
        commands.append(f"smopd study {results.name} --jobs 2")
    reading = (folder / "reading.md").read_text(encoding="utf-8").strip()
    page = "\n\n".join([INTRO.format(commands="\n".join(commands)).strip(), reading, *parts])
    return wrap_markdown(page) + "\n", files


def _brief(document: Document, place: str) -> str:
    (main,) = [table for table in document.tables if table.name == "main"]
    more = f"Tests, power, every seed and run, and the figures: [the whole report]({place}.md)."
    text = f"{render_markdown(replace(document, tables=[main]), brief=True)}\n{more}"
    return re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)


def main(folder: Path, page: Path) -> None:
    """Write the page, the reports and the figures; remove what only an earlier page had."""
    text, files = make_page(folder)
    for name, content in files.items():
        write_text(folder / name, content)
    reports = (path for path in folder.glob("*.md") if path.name != "reading.md")
    for old in (*folder.glob("*/*.svg"), *reports):
        if old.relative_to(folder).as_posix() not in files:
            old.unlink()
    write_text(page, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
