"""Right programs, with tests of `f` that they pass: the sections of the files in verify/sandbox_programs."""

from pathlib import Path

from support.sandbox_attacks import sections

_FOLDER = Path(__file__).parents[1] / "verify" / "sandbox_programs"
_SECTIONS = {name: text for file in sorted(_FOLDER.glob("*.txt")) for name, text in sections(file).items()}
PROGRAMS = {name: tuple(text.split("--- tests\n")) for name, text in _SECTIONS.items()}
