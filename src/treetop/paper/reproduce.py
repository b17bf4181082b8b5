"""The paper's figures and tables beside ours: targets by name, and the folder that their sections are written to."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from treetop.paper.claims import claims_table, verdicts_table
from treetop.paper.figure_3a import realizable
from treetop.paper.figure_3b import inference
from treetop.paper.hierarchy import hierarchy
from treetop.paper.results_folder import MANIFEST, versions
from treetop.paper.run_cache import RunCache
from treetop.paper.sections import datasets, flat_and_tree, flat_is_feasible, progressive_rewards, win_draw_loss
from treetop.report import pictures
from treetop.report.sections import Section, Table, write_file

TARGETS: dict[str, Callable[[RunCache], Section]] = {
    "tables": datasets,
    "realizable": realizable,
    "inference": inference,
    "curves": progressive_rewards,
    "flat-vs-tree": flat_and_tree,
    "wdl": win_draw_loss,
}
ILLUSTRATIONS: dict[str, Callable[[RunCache], Section]] = {
    "hierarchy": hierarchy
}  # of no dataset; "all" leaves them out
SLOW = ("realizable", "inference")  # played last, so that the others need not wait for them


def reproduce(cache: RunCache, what: Sequence[str]) -> list[Section]:
    """The sections asked for, written to the cache's folder with their pictures, and the claims that follow from them.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = "synthetic:arms=150,features=40,rows=200,init=100,nonzeros=8"
    ...     cache = RunCache((spec,), (0,), Path(folder), quick=True, horizon=100)
    ...     [section.name for section in reproduce(cache, ["curves", "tables"])]
    ['tables', 'curves']
    """
    known = TARGETS | ILLUSTRATIONS
    if wrong := [name for name in what if name not in (*known, "all")]:
        raise ValueError(f"cannot reproduce {wrong[0]!r}; it must be one of {', '.join(known)}, all or claims")
    wanted = [name for name in known if name in what or ("all" in what and name in TARGETS)]
    for spec in cache.data:  # dataset by dataset, so that each is loaded once
        if {"curves", "wdl", "flat-vs-tree"} & set(wanted):
            cache.tree(spec)
        if "flat-vs-tree" in wanted and flat_is_feasible(cache, spec):
            cache.flat(spec)
    made = {}
    for name in sorted(wanted, key=SLOW.__contains__):
        # forty runs a dataset: on all of them only if it is asked for by name and with datasets
        few = name == "realizable" and ("all" in what or not cache.chosen)
        made[name] = realizable(cache, [cache.easiest()]) if few else known[name](cache)
        _keep(cache, made[name], f"treetop reproduce {' '.join(what)} {cache.options()}")
    return [made[name] for name in wanted]


def _keep(cache: RunCache, section: Section, command: str) -> None:
    """The section's files, the manifest with its name in it, and the claims as they stand now."""
    section.save(cache.out)
    with suppress(ModuleNotFoundError):  # without matplotlib there are tables only
        pictures.draw(section.panels, cache.out / f"{section.name}.png")
    there = cache.out / MANIFEST
    before = json.loads(there.read_text()) if there.is_file() else {"sections": {}, "datasets": {}}
    commands = {**before["sections"], section.name: command}
    manifest = {
        "sections": {name: commands[name] for name in TARGETS | ILLUSTRATIONS if name in commands},
        "datasets": {**before["datasets"], **cache.seen()},
        "versions": versions(),
    }
    write_file(there, json.dumps(manifest, indent=1).encode() + b"\n")
    claims(cache.out)


def claims(out: Path) -> Table:
    """The claims table from whatever sections a folder holds, written to claims.md and claims.json in it; which claim
    holds on which dataset is in verdicts.md and verdicts.json.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = "synthetic:arms=150,features=40,rows=200,init=100,nonzeros=8"
    ...     cache = RunCache((spec,), (0,), Path(folder), quick=True, horizon=100)
    ...     _ = reproduce(cache, ["tables"])
    ...     {row[3] for row in claims(cache.out).rows}
    {'not measured'}
    """
    if not (out / MANIFEST).is_file():
        raise FileNotFoundError(f"{out} has no {MANIFEST}; `treetop reproduce all --out {out}` writes it")
    sections = [Section.load(out / f"{name}.json") for name in json.loads((out / MANIFEST).read_text())["sections"]]
    for name, found in (("verdicts", verdicts_table(sections)), ("claims", claims_table(sections))):
        write_file(out / f"{name}.md", (found.markdown() + "\n").encode())
        write_file(out / f"{name}.json", json.dumps(found.records(), indent=1).encode() + b"\n")
    return found
