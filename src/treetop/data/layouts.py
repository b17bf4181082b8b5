"""Which files make up a dataset? Recognises a folder by the names in it. Reads none of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DatasetFiles:
    """The files of one set, in the order of their form's names."""

    form: str
    files: tuple[Path, ...]


# In the order of preference: what to call the files, and which names (in lower case) they go by. * is a set's own name.
LAYOUTS: dict[str, tuple[tuple[str, str], ...]] = {
    "npz": (
        ("X.trn.npz", r"x\.trn\.npz"),
        ("Y.trn.npz", r"y\.trn\.npz"),
        ("X.tst.npz", r"x\.tst\.npz"),
        ("Y.tst.npz", r"y\.tst\.npz"),
    ),
    "sparse": (
        ("trn_X_Xf.txt", r"trn_x_xf\.txt"),
        ("trn_X_Y.txt", r"trn_x_y\.txt"),
        ("tst_X_Xf.txt", r"tst_x_xf\.txt"),
        ("tst_X_Y.txt", r"tst_x_y\.txt"),
    ),
    "pair": (
        ("train.txt or *_train.txt", r"{stem}train\.(txt|svm|libsvm)"),
        ("test.txt or *_test.txt", r"{stem}test\.(txt|svm|libsvm)"),
    ),
    "split": (
        ("*_data.txt", r"{stem}data\.txt"),
        ("*_trSplit.txt or trn_split.txt", r"{stem}trn?_?split\.txt"),
        ("*_tstSplit.txt or tst_split.txt", r"{stem}tst_?split\.txt"),
    ),
}
NOT_DATA = "filter_labels_"  # pairs of row and label that the repository leaves out of its scores
FEATURE_FOLDER = "tfidf-attnxml"  # where PECOS keeps the features, next to the labels


def file_names(form: str) -> str:
    """The files that a folder of this form holds, in words.

    >>> file_names("pair")
    'train.txt or *_train.txt, test.txt or *_test.txt'
    """
    return ", ".join(name for name, _ in LAYOUTS[form])


def known_layouts() -> str:
    """Every form a folder may have, in words.

    >>> known_layouts().split("; or ")[0]
    'X.trn.npz, Y.trn.npz, X.tst.npz, Y.tst.npz'
    """
    return "; or ".join(file_names(form) for form in LAYOUTS)


def find_files(folder: Path, stem: str | None = None) -> DatasetFiles | None:
    """The set in a folder; None if there is no trace of one, an error that says what is missing of a part of one.

    `stem` limits the names that begin with a set's own name to one set: `eurlex` finds eurlex_train.txt and train.txt.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("eurlex_train.txt", "eurlex_test.txt"):
    ...         _ = Path(folder, name).write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     find_files(Path(folder)).form
    'pair'
    """
    there = [path for place in (folder / FEATURE_FOLDER, folder) for path in sorted(place.glob("*")) if path.is_file()]
    files = [path for path in there if not path.name.startswith(NOT_DATA)]
    matches = {form: _match(form, files, stem) for form in LAYOUTS}
    complete = [form for form, slots in matches.items() if all(slots)]
    if complete:
        return DatasetFiles(complete[0], tuple(_only(folder, slot) for slot in matches[complete[0]]))
    form, slots = max(matches.items(), key=lambda item: sum(map(bool, item[1])))
    if not any(slots):
        return None
    missing = [name for (name, _), slot in zip(LAYOUTS[form], slots, strict=True) if not slot]
    raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}; a dataset is {file_names(form)}")


def _match(form: str, files: Sequence[Path], stem: str | None) -> list[list[Path]]:
    before = "(.*[_-])?" if stem is None else f"({re.escape(stem.lower())}[_-])?"
    patterns = [pattern.replace("{stem}", before) for _, pattern in LAYOUTS[form]]
    slots = [[path for path in files if re.fullmatch(pattern, path.name.lower())] for pattern in patterns]
    if form == "split" and slots[1] and slots[2] and not slots[0]:  # splits of a text file of any name
        slots[0] = [path for path in files if path.suffix == ".txt" and path not in slots[1] + slots[2]]
    return slots


def _only(folder: Path, paths: Sequence[Path]) -> Path:
    if len(paths) > 1:
        raise ValueError(
            f"{folder} has {', '.join(path.name for path in paths)} where one of them is meant; a folder holds one set"
        )
    return paths[0]
