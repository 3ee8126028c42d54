"""What `make site` adds to mkdocs: the README as the page start.md, and links that lead out of docs/ as text.

It leaves the pages themselves alone: they read the same in the repository and on the site.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(\.\./([^)#]+)(#[^)]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the README: links lead to pages of the site, and files that it lacks become their names."""
    readme = (Path(config.config_file_path).parent / "README.md").read_text(encoding="utf-8")
    elsewhere = re.compile(r"\[([^\]]*)\]\((?!docs/|https?:)[^)]*\)")
    content = elsewhere.sub(r"\1", readme).replace("](docs/", "](")
    files.append(File.generated(config, "start.md", content=content))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """A link to the README stays on the site; one to a source file, which the site lacks, is its name."""

    def within(link: re.Match[str]) -> str:
        text, target, anchor = link.groups()
        return f"[{text}](start.md{anchor or ''})" if target == "README.md" else text

    return LINK.sub(within, markdown)
