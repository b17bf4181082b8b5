"""Puts the results of `treetop reproduce` into docs/experiments.md, between `<!-- NAME -->` and `<!-- end -->`.

    python scripts/fill_experiments.py docs/experiments.md runs/paper [runs/more ...]

NAME is claims or a target of reproduce. A target's part comes from the first folder that has it, and stays as it is if
none has; the claims are judged over all folders together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from treetop.claims import sheet
from treetop.report import Chapter
from treetop.reproduce import TARGETS

JOINED = ("datasets", "cells", "variants")  # lists in a chapter's data: one entry a dataset, or a pair on all of them


def together(folders: Sequence[Path]) -> list[Chapter]:
    """The chapters of all folders; one that several have is the first, with what all of them measured."""
    found: dict[str, Chapter] = {}
    for path in [folder / f"{name}.json" for folder in folders for name in TARGETS]:
        if not path.is_file():
            continue
        new = Chapter.load(path)
        first = found.get(new.name)
        more = {key: first.data[key] + new.data[key] for key in JOINED if key in new.data} if first else {}
        found[new.name] = replace(first, data={**first.data, **more}) if first else new
    return list(found.values())


def fill(text: str, folders: Sequence[Path]) -> str:
    """The page with every part for which there are results."""
    chapters = together(folders)
    content = {chapter.name: chapter.markdown() for chapter in chapters}
    if chapters:
        content["claims"] = sheet(chapters).markdown()

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in content:
            return found.group(0)
        body = re.sub(r"^## .*\n+|^\*\*The paper's claims\*\*\n+", "", content[name], count=1)
        return f"<!-- {name} -->\n{body.strip()}\n<!-- end -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", part, text, flags=re.S)


if __name__ == "__main__":
    page, folders = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    page.write_text(fill(page.read_text(), folders))
