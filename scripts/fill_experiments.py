"""Writes the tables of docs/experiments.md to docs/results: a file a target of `treetop reproduce`, and claims.md.

    python scripts/fill_experiments.py                          # docs/results from its own folders
    python scripts/fill_experiments.py RESULTS FOLDER [...]     # RESULTS/*.md from other folders of results

A target that no folder has keeps the file it has. Tables of flat-vs-tree, realizable and curves come from all folders,
those of the other targets from the first that has them; the claims are judged over all folders together.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from treetop.paper.claims import claims_table, verdicts_table
from treetop.paper.reproduce import TARGETS
from treetop.report.sections import Section, Table

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
OWN = ("paper", "large", "flat", "realizable-*")  # of docs/results; horizon is left out: it has one seed
SHARED = ("curves", "flat-vs-tree", "realizable")  # targets whose tables come from all folders
JOINED = ("datasets", "cells", "variants")  # lists in a target's data: one entry a dataset, or a pair on all of them
NOTE = "<!-- Written by scripts/fill_experiments.py; README.md here has the command and commit of every folder. -->"


def merged(folders: Sequence[Path]) -> list[Section]:
    """The results of all folders; of a target that several have, the first with what all of them measured."""
    found: dict[str, Section] = {}
    for path in [folder / f"{name}.json" for folder in folders for name in TARGETS]:
        if not path.is_file():
            continue
        new = Section.load(path)
        first = found.get(new.name)
        if first is None:
            found[new.name] = new
            continue
        more = {key: first.data[key] + new.data[key] for key in JOINED if key in new.data}
        tables = _joined(first.tables, new.tables) if new.name in SHARED else first.tables
        found[new.name] = replace(first, data={**first.data, **more}, tables=tables)
    return list(found.values())


def _joined(one: Sequence[Table], two: Sequence[Table]) -> tuple[Table, ...]:
    """Tables of the same title become one, which must have the same columns; the others follow."""
    found = {table.title: table for table in one}
    for new in two:
        first = found.get(new.title, replace(new, rows=()))
        if first.columns != new.columns:
            raise ValueError(f"{new.title!r} has the columns {new.columns} here, {first.columns} there")
        found[new.title] = replace(first, rows=first.rows + new.rows)
    return tuple(found.values())


def pages(results: Path, folders: Sequence[Path]) -> dict[str, str]:
    """The text of every file to write, by its name. Pictures are linked where a folder below `results` has them."""
    sections = merged(folders)
    found = {}
    for section in sections:
        drawn = [folder / f"{section.name}.png" for folder in folders if folder.parent == results]
        links = [f"![{path.parent.name}]({path.relative_to(results)})\n" for path in drawn if path.is_file()]
        found[section.name] = "\n".join(["#" + section.markdown().removeprefix("##"), *links])
    if sections:
        judged = [claims_table(sections).markdown(), verdicts_table(sections).markdown()]
        found["claims"] = "\n\n".join(["# Claims of the paper", *judged]) + "\n"
    return {f"{name}.md": f"{NOTE}\n\n{text}" for name, text in found.items()}


def main(words: Sequence[str]) -> None:
    results = Path(words[0]) if words else RESULTS
    folders = [Path(word) for word in words[1:]] or [path for name in OWN for path in sorted(results.glob(name))]
    for name, text in pages(results, folders).items():
        (results / name).write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
