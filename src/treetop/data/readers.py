"""Files of labelled data to rows: XMC and svmlight text, the XMC repository's sparse text and splits, scipy's .npz.

A text file is recognised by its first line; `layouts` says which files make up a set. Knows nothing of experiments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Float32s, Int64s, Ints, Rows, as_rows, check_int
from treetop.data.layouts import DatasetFiles, file_names

LabelledRows: TypeAlias = tuple[Rows, Rows]  # contexts, labels
ZeroBased: TypeAlias = bool | str

TEXT_FORMS = ("xmc", "svmlight", "sparse")  # in the order of the core's codes
PACKED = {b"PK\x03\x04": "zip", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}
BLOCK, HEAD = 1 << 20, 1 << 16  # bytes read at once; bytes that must hold the first line's first words


@dataclass(frozen=True, eq=False)
class Text:
    """What the core makes of a text file; labels have no values."""

    start: Int64s
    index: Ints
    value: Float32s
    label_start: Int64s
    label: Ints
    columns: int
    labels: int

    def contexts(self, columns: int | None = None) -> Rows:
        return Rows(self.start, self.index, self.value, self.columns if columns is None else columns)

    def rewards(self, labels: int | None = None) -> Rows:
        ones = np.ones(len(self.label), np.float32)
        return Rows(self.label_start, self.label, ones, self.labels if labels is None else labels)


def parse_text(path: Path, form: str) -> Text:
    """One text file of a known form, read in blocks. Features come out sorted, repeated ones added up, labels once.

    A malformed line, a number out of range or a wrong count of rows is a ValueError that names path and line.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "toy.txt")
    ...     _ = path.write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     parse_text(path, "xmc").label
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


def read_labelled(paths: Sequence[Path], zero_based: ZeroBased = "auto") -> list[LabelledRows]:
    """Text files with labels and features in every row: the parts of one set, which have the same form and columns.

    XMC text counts from 0 and its headers say how many features and labels there are; svmlight text may count its
    features from 1, which "auto" takes for granted if no file has a feature 0, and is as wide as its largest index.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "toy.txt")
    ...     _ = path.write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     read_labelled([path])[0][0].csr().toarray()
    array([[0. , 0. , 0. , 0. , 0.5]], dtype=float32)
    """
    forms = [text_form(path) for path in paths]
    if "sparse" in forms:
        raise ValueError(
            f"{paths[forms.index('sparse')]} has a header of two numbers: it is one of {file_names('sparse')}; "
            f"load the folder that holds them all"
        )
    if len(set(forms)) > 1:
        raise ValueError(f"{paths[forms.index('xmc')]} has a header, {paths[forms.index('svmlight')]} has none")
    parts = [parse_text(path, form) for path, form in zip(paths, forms, strict=True)]
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


def read_matrix(path: Path) -> Rows:
    """One matrix: scipy's .npz, or sparse text with the header `rows columns`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "trn_X_Xf.txt")
    ...     _ = path.write_text("1 2\\n1:3\\n")
    ...     read_matrix(path).csr().toarray()
    array([[0., 3.]], dtype=float32)
    """
    if path.suffix != ".npz":
        return parse_text(path, "sparse").contexts()
    try:
        with path.open("rb") as file:
            loaded = sp.load_npz(file)
    except Exception as error:  # zipfile, zlib, tokenize, numpy and scipy have each their own for a broken file
        raise ValueError(f"{path} is not a scipy sparse matrix: {error}") from None
    return as_rows(loaded, what=str(path))


def split_rows(path: Path, column: int, n: int) -> Int64s:
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
    rows: Int64s = table[:, check_int("split", column, 0, table.shape[1] - 1)]
    if wrong := rows[(rows < 1) | (rows > n)].tolist():
        raise ValueError(f"{path} lists row {wrong[0]}; the data has rows 1 to {n}")
    return rows - 1


def read_split(
    found: DatasetFiles, split: int = 0, zero_based: ZeroBased = "auto"
) -> tuple[LabelledRows, LabelledRows]:
    """The training part and the test part of a set.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.data.layouts import find_files
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("eurlex_train.txt", "eurlex_test.txt"):
    ...         _ = Path(folder, name).write_text("1 5 3\\n0,2 4:0.5\\n")
    ...     [len(X) for X, Y in read_split(find_files(Path(folder)))]
    [1, 1]
    """
    if found.form == "pair":
        train, test = read_labelled(found.files, zero_based)
        return train, test
    if found.form == "split":
        (X, Y), *_ = read_labelled(found.files[:1], zero_based)
        train_rows, test_rows = (split_rows(path, split, len(X)) for path in found.files[1:])
        return _take(X, Y, train_rows), _take(X, Y, test_rows)
    X, Y, X_test, Y_test = (read_matrix(path) for path in found.files)
    return (X, Y), (X_test, Y_test)


def _take(X: Rows, Y: Rows, rows: Int64s) -> LabelledRows:
    return as_rows(X.csr()[rows]), as_rows(Y.csr()[rows], what="labels")
