"""Puts the results of `treetop reproduce` into docs/experiments.md, between `<!-- NAME -->` and `<!-- end -->`.

    python scripts/fill_experiments.py docs/experiments.md runs/paper [runs/more ...]

NAME is claims, verdicts or a target of reproduce. A target's part comes from the first folder that has it, and stays as
it is if none has; only the tables of flat-vs-tree and realizable come from all folders, and the claims are judged over
all together.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from treetop.paper.claims import claims_table, verdicts_table
from treetop.paper.reproduce import TARGETS
from treetop.report.sections import Section, Table

SHARED = ("flat-vs-tree", "realizable")  # sections whose tables come from all folders
JOINED = ("datasets", "cells", "variants")  # lists in a section's data: one entry a dataset, or a pair on all of them


def joined_sections(folders: Sequence[Path]) -> list[Section]:
    """The sections of all folders; one that several have is the first, with what all of them measured."""
    found: dict[str, Section] = {}
    for path in [folder / f"{name}.json" for folder in folders for name in TARGETS]:
        if not path.is_file():
            continue
        new = Section.load(path)
        first = found.get(new.name)
        if first is None:
            found[new.name] = new
            continue
        data = {**first.data, **{key: first.data[key] + new.data[key] for key in JOINED if key in new.data}}
        tables = _joined_tables(first.tables, new.tables) if new.name in SHARED else first.tables
        found[new.name] = replace(first, data=data, tables=tables)
    return list(found.values())


def _joined_tables(one: Sequence[Table], two: Sequence[Table]) -> tuple[Table, ...]:
    """Tables of the same title become one, which must have the same columns; the others follow."""
    found = {table.title: table for table in one}
    for new in two:
        first = found.get(new.title, replace(new, rows=()))
        if first.columns != new.columns:
            raise ValueError(f"{new.title!r} has the columns {new.columns} here, {first.columns} there")
        found[new.title] = replace(first, rows=first.rows + new.rows)
    return tuple(found.values())


def fill(text: str, folders: Sequence[Path]) -> str:
    """The page with every part for which there are results."""
    sections = joined_sections(folders)
    content = {section.name: section.markdown() for section in sections}
    if sections:
        content["claims"], content["verdicts"] = claims_table(sections).markdown(), verdicts_table(sections).markdown()

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in content:
            return found.group(0)
        body = re.sub(r"^## .*\n+|^\*\*(The paper's claims|Dataset by dataset)\*\*\n+", "", content[name], count=1)
        return f"<!-- {name} -->\n{body.strip()}\n<!-- end -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", part, text, flags=re.S)


if __name__ == "__main__":
    page, folders = Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    page.write_text(fill(page.read_text(), folders))
