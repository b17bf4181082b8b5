"""The six sets of the paper's Table 1: how it played them, what their files are called. Knows nothing of bandits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from treetop.data import layouts

REPOSITORY = "http://manikvarma.org/downloads/XC/XMLRepository.html"
PACKED = (".zip", ".tar.gz", ".tgz", ".7z", ".rar")
CONTAINER = "xmc-base"  # the folder that PECOS packs its sets in


@dataclass(frozen=True)
class Preset:
    """A row of Table 1, and the names of the set in the Extreme Classification Repository.

    `bootstrap`: the paper draws the horizon from the training rows with replacement.
    """

    name: str
    init: int
    horizon: int
    arms: int
    max_leaf: int
    bootstrap: bool
    files: tuple[str, str]
    folders: tuple[str, ...]  # the repository's name for it first

    @property
    def stem(self) -> str:
        """What the set's own files begin with."""
        return self.files[0].removesuffix("_train.txt")

    def find(self, data_dir: Path) -> layouts.DatasetFiles:
        """The set's files in a folder of its name below `data_dir`, or in `data_dir` itself."""
        lacking = []
        for place in [*self._places(data_dir), data_dir]:
            found, why = self._look(place, own=place != data_dir or self._is_named(data_dir.resolve()))
            if found:
                return found
            lacking += [why] if why else []
        lacking += [f"{path} is still packed: unpack it there" for path in self._packed(data_dir)]
        raise FileNotFoundError("; ".join([f"{self.name} is not in {data_dir}", *lacking, self._advice(data_dir)]))

    def _look(self, place: Path, own: bool) -> tuple[layouts.DatasetFiles | None, str]:
        """The set in one folder, or what is missing of it there. A folder that is not its own may hold other sets."""
        try:
            return layouts.find_files(place, stem=None if own else self.stem), ""
        except FileNotFoundError as error:
            return None, str(error)

    def _places(self, base: Path) -> Iterator[Path]:
        """Folders named after the set, and those within them, since archives bring a folder of their own."""
        for path in sorted(base.iterdir()) if base.is_dir() else []:
            if path.is_dir() and (path.name == CONTAINER or self._is_named(path)):
                yield path
                yield from self._places(path)

    def _packed(self, base: Path) -> Iterator[Path]:
        """Archives named after the set, as they are downloaded."""
        for path in sorted(base.iterdir()) if base.is_dir() else []:
            ending = next((end for end in PACKED if path.name.lower().endswith(end)), "")
            if ending and self._is_named(path.with_name(path.name[: -len(ending)])):
                yield path

    def _is_named(self, path: Path) -> bool:
        return _plain(path.name) in {_plain(name) for name in (self.name, *self.folders)}

    def _advice(self, data_dir: Path) -> str:
        return (
            f"put {self.files[0]} and {self.files[1]} (in newer archives train.txt and test.txt) from the archive "
            f"{self.folders[0]} (BoW features) of {REPOSITORY} into {data_dir / self.name}, or into a folder beside it "
            f"called {' or '.join(self.folders)}; or X.trn.npz, Y.trn.npz, X.tst.npz and Y.tst.npz as PECOS packs them"
        )


def _plain(name: str) -> str:
    """Amazon-670K.bow and amazon670k are the same name."""
    return re.sub("[^a-z0-9]", "", name.lower().removesuffix(".bow"))


def _pair(stem: str) -> tuple[str, str]:
    return f"{stem}_train.txt", f"{stem}_test.txt"


_TABLE_1 = (
    Preset("eurlex-4k", 5_000, 154_490, 4_271, 10, True, _pair("eurlex"), ("Eurlex-4K", "Eurlex")),
    Preset("amazoncat-13k", 5_000, 1_186_239, 13_330, 10, False, _pair("amazonCat"), ("AmazonCat-13K", "AmazonCat")),
    Preset("wiki10-31k", 5_000, 141_460, 30_938, 10, True, _pair("wiki10"), ("Wiki10-31K", "Wiki10")),
    Preset(
        "wiki-500k",
        20_000,
        1_779_881,
        501_070,
        100,
        False,
        _pair("WikipediaLarge-500K"),
        ("Wikipedia-500K", "WikipediaLarge-500K", "Wiki-500K"),
    ),
    Preset("amazon-670k", 20_000, 490_449, 670_091, 100, False, _pair("amazon"), ("Amazon-670K", "Amazon")),
    Preset("amazon-3m", 50_000, 1_717_899, 2_812_281, 100, False, _pair("amazon-3M"), ("Amazon-3M",)),
)
PRESETS = {preset.name: preset for preset in _TABLE_1}
