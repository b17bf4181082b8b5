"""Puts the results of `treetop reproduce` into docs/experiments.md, between `<!-- NAME -->` and `<!-- end -->`.

    python scripts/fill_experiments.py runs/paper docs/experiments.md

NAME is claims or a target of reproduce; a name without results in the folder keeps what it has.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path


def fill(text: str, results: Path) -> str:
    """The page with every part for which the folder has a Markdown file."""

    def part(found: re.Match[str]) -> str:
        file = results / f"{found.group(1)}.md"
        if not file.is_file():
            return found.group(0)
        content = re.sub(r"^## .*\n+|^\*\*The paper's claims\*\*\n+", "", file.read_text(), count=1)
        return f"<!-- {found.group(1)} -->\n{content.strip()}\n<!-- end -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", part, text, flags=re.S)


if __name__ == "__main__":
    results, page = Path(sys.argv[1]), Path(sys.argv[2])
    page.write_text(fill(page.read_text(), results))
