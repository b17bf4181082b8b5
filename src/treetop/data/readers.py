"""Files of labelled data to rows: XMC and svmlight text, the XMC repository's sparse text and splits, scipy's .npz.

A folder is recognised by the names in it, a text file by its first line. Knows nothing of experiments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Ints, Longs, Rows, Singles, as_rows, whole

Labelled: TypeAlias = tuple[Rows, Rows]  # contexts, labels
ZeroBased: TypeAlias = bool | str

TEXT_FORMS = ("xmc", "svmlight", "sparse")  # in the order of the core's codes
PACKED = {b"PK\x03\x04": "zip", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
BLOCK, HEAD = 1 << 20, 1 << 16  # bytes read at once; bytes that must hold the first line's first words


@dataclass(frozen=True, eq=False)
class Text:
    """What the core makes of a text file; labels have no values."""

    start: Longs
    index: Ints
    value: Singles
    label_start: Longs
    label: Ints
    columns: int
    labels: int

    def contexts(self, columns: int | None = None) -> Rows:
        return Rows(self.start, self.index, self.value, self.columns if columns is None else columns)

    def rewards(self, labels: int | None = None) -> Rows:
        ones = np.ones(len(self.label), np.float32)
        return Rows(self.label_start, self.label, ones, self.labels if labels is None else labels)


def parse(path: Path, form: str) -> Text:
    """One text file of a known form, read in blocks. Features come out sorted, repeated ones added up, labels once.

    A malformed line, a number out of range or a wrong count of rows is a ValueError that names path and line.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "toy.txt")
    ...     _ = path.write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     parse(path, "xmc").label
    array([0, 2], dtype=int32)
    """
    reader = _core.TextReader(TEXT_FORMS.index(form))
    try:
        with path.open("rb", buffering=0) as file:
            while block := file.read(BLOCK):
                reader.feed(block)
        return Text(*reader.finish())
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None


def text_form(path: Path) -> str:
    """xmc, sparse or svmlight: the first line is three whole numbers, two, or something else.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "toy.txt")
    ...     _ = path.write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     text_form(path)
    'xmc'
    """
    with path.open("rb") as file:
        head = file.read(HEAD)
    if not head.strip():
        raise ValueError(f"{path} is empty" + (f": its {len(head)} bytes are blank" if head else ""))
    if packed := [name for magic, name in PACKED.items() if head.startswith(magic)]:
        raise ValueError(f"{path} is a {packed[0]} file; unpack it first")
    words = head.split(b"\n", 1)[0].split()
    header = all(word.isdigit() for word in words)
    return {3: "xmc", 2: "sparse"}.get(len(words), "svmlight") if header else "svmlight"


def labelled(paths: Sequence[Path], zero_based: ZeroBased = "auto") -> list[Labelled]:
    """Text files with labels and features in every row: the parts of one set, which have the same form and columns.

    XMC text counts from 0 and its headers say how many features and labels there are; svmlight text may count its
    features from 1, which "auto" takes for granted if no file has a feature 0, and is as wide as its largest index.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "toy.txt")
    ...     _ = path.write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     labelled([path])[0][0].csr().toarray()
    array([[0. , 0. , 0. , 0. , 0.5]], dtype=float32)
    """
    forms = [text_form(path) for path in paths]
    if "sparse" in forms:
        raise ValueError(
            f"{paths[forms.index('sparse')]} has a header of two numbers: it is one of {_names('sparse')}; "
            f"load the folder that holds them all"
        )
    if len(set(forms)) > 1:
        raise ValueError(f"{paths[forms.index('xmc')]} has a header, {paths[forms.index('svmlight')]} has none")
    parts = [parse(path, form) for path, form in zip(paths, forms, strict=True)]
    if forms[0] == "xmc":
        return [(part.contexts(), part.rewards()) for part in parts]
    if empty := [path for path, part in zip(paths, parts, strict=True) if len(part.start) == 1]:
        raise ValueError(f"{empty[0]} holds no rows, only comments")
    first = _first_feature(parts, zero_based)
    for part in parts:
        part.index[:] -= first
    columns, labels = max(part.columns - first for part in parts), max(part.labels for part in parts)
    return [(part.contexts(max(0, columns)), part.rewards(labels)) for part in parts]


def _first_feature(parts: Sequence[Text], zero_based: ZeroBased) -> int:
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based is {zero_based!r}; it must be True, False or 'auto'")
    lowest = min((int(part.index.min()) for part in parts if len(part.index)), default=0)
    if zero_based is False and lowest == 0 and any(len(part.index) for part in parts):
        raise ValueError("zero_based is False, but there is a feature 0")
    return int(lowest > 0) if zero_based == "auto" else int(not zero_based)


def matrix(path: Path) -> Rows:
    """One matrix: scipy's .npz, or sparse text with the header `rows columns`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "trn_X_Xf.txt")
    ...     _ = path.write_text("1 2\\n1:3\\n")
    ...     matrix(path).csr().toarray()
    array([[0., 3.]], dtype=float32)
    """
    if path.suffix != ".npz":
        return parse(path, "sparse").contexts()
    try:
        with path.open("rb") as file:
            loaded = sp.load_npz(file)
    except Exception as error:  # zipfile, zlib, tokenize, numpy and scipy have each their own for a broken file
        raise ValueError(f"{path} is not a scipy sparse matrix: {error}") from None
    return as_rows(loaded, what=str(path))


def split_rows(path: Path, column: int, n: int) -> Longs:
    """The rows, from 0, that a column (from 0) of a split file lists from 1.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "toy_trSplit.txt")
    ...     _ = path.write_text("3 1\\n1 2\\n")
    ...     split_rows(path, column=0, n=3)
    array([2, 0])
    """
    if not path.read_bytes().strip():
        raise ValueError(f"{path} is empty; it must list row numbers")
    try:
        table = np.loadtxt(path, np.int64, comments=None, ndmin=2)
    except ValueError as error:
        raise ValueError(f"{path} is not a table of row numbers: {error}") from None
    rows: Longs = table[:, whole("split", column, 0, table.shape[1] - 1)]
    if wrong := rows[(rows < 1) | (rows > n)].tolist():
        raise ValueError(f"{path} lists row {wrong[0]}; the data has rows 1 to {n}")
    return rows - 1


@dataclass(frozen=True)
class Found:
    """The files of one set, in the order of their form's names."""

    form: str
    files: tuple[Path, ...]


# In the order of preference: what to call the files, and which names (in lower case) they go by. * is a set's own name.
FOLDERS: dict[str, tuple[tuple[str, str], ...]] = {
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
BESIDE = "tfidf-attnxml"  # where PECOS keeps the features, next to the labels


def _names(form: str) -> str:
    return ", ".join(name for name, _ in FOLDERS[form])


def looked_for() -> str:
    """Every form a folder may have, in words.

    >>> looked_for().split("; or ")[0]
    'X.trn.npz, Y.trn.npz, X.tst.npz, Y.tst.npz'
    """
    return "; or ".join(_names(form) for form in FOLDERS)


def find(folder: Path, stem: str | None = None) -> Found | None:
    """The set in a folder; None if there is no trace of one, an error that says what is missing of a part of one.

    `stem` limits the names that begin with a set's own name to one set: `eurlex` finds eurlex_train.txt and train.txt.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("eurlex_train.txt", "eurlex_test.txt"):
    ...         _ = Path(folder, name).write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     find(Path(folder)).form
    'pair'
    """
    there = [path for place in (folder / BESIDE, folder) for path in sorted(place.glob("*")) if path.is_file()]
    files = [path for path in there if not path.name.startswith(NOT_DATA)]
    matches = {form: _match(form, files, stem) for form in FOLDERS}
    complete = [form for form, slots in matches.items() if all(slots)]
    if complete:
        return Found(complete[0], tuple(_only(folder, slot) for slot in matches[complete[0]]))
    form, slots = max(matches.items(), key=lambda item: sum(map(bool, item[1])))
    if not any(slots):
        return None
    missing = [name for (name, _), slot in zip(FOLDERS[form], slots, strict=True) if not slot]
    raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}; a dataset is {_names(form)}")


def _match(form: str, files: Sequence[Path], stem: str | None) -> list[list[Path]]:
    before = "(.*[_-])?" if stem is None else f"({re.escape(stem.lower())}[_-])?"
    patterns = [pattern.replace("{stem}", before) for _, pattern in FOLDERS[form]]
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


def read(found: Found, split: int = 0, zero_based: ZeroBased = "auto") -> tuple[Labelled, Labelled]:
    """The training part and the test part of a set.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("eurlex_train.txt", "eurlex_test.txt"):
    ...         _ = Path(folder, name).write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     [len(X) for X, Y in read(find(Path(folder)))]
    [1, 1]
    """
    if found.form == "pair":
        train, test = labelled(found.files, zero_based)
        return train, test
    if found.form == "split":
        (X, Y), *_ = labelled(found.files[:1], zero_based)
        train_rows, test_rows = (split_rows(path, split, len(X)) for path in found.files[1:])
        return _take(X, Y, train_rows), _take(X, Y, test_rows)
    X, Y, X_test, Y_test = (matrix(path) for path in found.files)
    return (X, Y), (X_test, Y_test)


def _take(X: Rows, Y: Rows, rows: Longs) -> Labelled:
    return as_rows(X.csr()[rows]), as_rows(Y.csr()[rows], what="labels")
