"""Takes the pictures of the docs: the pages of a run, light and dark, wide and on a phone.

    python tools/screenshots.py RUN docs/pictures [PREFIX]

With a prefix, the two pictures of conversations alone, named so. RUN should have token logs
(train.save_tokens, eval.save_tokens). Needs chromium, chromedriver and selenium.
"""

import sys
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.browser import Browser, browser, missing

from smopd.files import read_jsonl
from smopd.viewer.pages.build import make_view

WIDE, PHONE = (1280, 860), (400, 800)
OPEN = "document.querySelectorAll('.tokens .k').length"


def shot(
    window: Browser, page: Path, where: str, size: tuple[int, int], scheme: str, file: Path, opened: bool
) -> None:
    """One picture; `opened`: of a conversation, the first that the filters leave where none is named."""
    window.scheme(scheme)
    window.size(*size)
    window.open(page, where)
    if opened:
        window.until(OPEN)
    window.driver.save_screenshot(str(file))
    print(f"{file} {file.stat().st_size // 1000} kB")


def late_rollout(run: Path) -> str:
    """A link to a long conversation of a late step, at a token of one of its last middle replies."""
    file = sorted((run / "rollouts").glob("step-*.jsonl"))[-5:][0]
    rows = [row for row in read_jsonl(file) if row.get("sharded")]
    row = max(rows, key=lambda row: (not row["correct"], len(row["sharded"])))
    step = int(file.stem.removeprefix("step-"))
    key = f"{run.resolve().name}:training~sharded~{step}~{row.get('sample', 0)}~{row['id']}"
    return f"&c={quote(key, safe='')}&t={max(0, len(row['sharded']) - 2)}.5"


def main(run: Path, out: Path, prefix: str = "") -> None:
    """All pictures of a run, or with a prefix two."""
    if reason := missing():
        sys.exit(reason)
    page = make_view([run])
    name = quote(run.resolve().name)
    out.mkdir(parents=True, exist_ok=True)
    training = f"#page=conversations&source={name}%3Atraining&view=sharded{late_rollout(run)}"
    after = f"#page=conversations&source={name}%3Atrained&view=sharded"
    with browser() as window:
        if prefix:
            shot(window, page, training, WIDE, "light", out / f"{prefix}tokens.png", True)
            shot(window, page, after, WIDE, "dark", out / f"{prefix}before-after.png", True)
            return
        shot(window, page, "", WIDE, "light", out / "improved.png", False)
        shot(window, page, "#page=run", WIDE, "dark", out / "run.png", False)
        shot(window, page, training, WIDE, "light", out / "tokens.png", True)
        shot(window, page, training + "&by=difference", WIDE, "dark", out / "tokens-dark.png", True)
        shot(window, page, after + "&change=gained", WIDE, "light", out / "before-after.png", True)
        shot(window, page, training, PHONE, "light", out / "phone.png", True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
