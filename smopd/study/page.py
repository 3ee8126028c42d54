"""Writes docs/evidence.md from the results committed beside it: `python -m smopd.study.page docs/evidence docs/evidence.md`.

Every number on the page comes from docs/evidence/*.json through the same code that writes a study's report; only reading.md is
written by hand. Figures are written to docs/evidence/NAME/. It leaves out running studies.
"""

import re
import sys
from pathlib import Path

from smopd.files import write_text
from smopd.study.render_text import render_markdown
from smopd.study.report import make_document
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
    """The page, and the figures by their path inside the folder."""
    files = sorted(folder.glob("*.json"))
    figures: dict[str, str] = {}
    parts, commands = [], []
    for file in files:
        results = load_results(file)
        document = make_document(results)
        text = render_markdown(document)
        text = re.sub(r"^(#+ )", r"#\1", text, flags=re.MULTILINE)
        parts.append(re.sub(r"\]\(figures/", f"]({folder.name}/{results.name}/", text))
        figures |= {f"{results.name}/{figure.name}.svg": figure.svg for figure in document.figures}
        commands += [f"smopd study {results.name} --jobs 2"]
    reading = (folder / "reading.md").read_text(encoding="utf-8").strip()
    page = "\n\n".join([INTRO.format(commands="\n".join(commands)).strip(), reading, *(part.strip() for part in parts)])
    return page + "\n", figures


def main(folder: Path, page: Path) -> None:
    """Write the page and the figures; figures of an earlier page that are no longer drawn are removed."""
    text, figures = make_page(folder)
    for name, svg in figures.items():
        write_text(folder / name, svg)
    for old in folder.glob("*/*.svg"):
        if old.relative_to(folder).as_posix() not in figures:
            old.unlink()
    write_text(page, text)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
