"""Labelled data into files of every form that the readers know, in slow, plain Python; and text into the reader."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core

XMC, SVMLIGHT, SPARSE = 0, 1, 2  # the native codes of text
Parts = tuple[Any, Any, Any, Any]  # X and Y of the training part, X and Y of the test part


def pairs(row: Any, first: int = 0) -> str:
    return " ".join(f"{i + first}:{v}" for i, v in zip(row.indices.tolist(), row.data, strict=True))


def row_text(x: Any, y: Any, first: int = 0) -> str:
    return ",".join(map(str, y.indices.tolist())) + " " + pairs(x, first)


def xmc(path: Path, X: Any, Y: Any) -> None:
    lines = [f"{X.shape[0]} {X.shape[1]} {Y.shape[1]}", *map(row_text, X, Y)]
    path.write_text("\n".join(lines) + "\n")


def svmlight(path: Path, X: Any, Y: Any, first: int = 0) -> None:
    path.write_text("".join(row_text(x, y, first) + "\n" for x, y in zip(X, Y, strict=True)))


def sparse(path: Path, X: Any) -> None:
    path.write_text("\n".join([f"{X.shape[0]} {X.shape[1]}", *map(pairs, X)]) + "\n")


def npz_folder(folder: Path, parts: Parts, features: str = "") -> None:
    (folder / features).mkdir(exist_ok=True)
    for name, M in zip(("X.trn", "Y.trn", "X.tst", "Y.tst"), parts, strict=True):
        sp.save_npz(folder / (features if name[0] == "X" else "") / f"{name}.npz", M)


def sparse_folder(folder: Path, parts: Parts) -> None:
    for name, M in zip(("trn_X_Xf", "trn_X_Y", "tst_X_Xf", "tst_X_Y"), parts, strict=True):
        sparse(folder / f"{name}.txt", M)


def pair_folder(folder: Path, parts: Parts, stem: str = "") -> None:
    xmc(folder / f"{stem}train.txt", *parts[:2])
    xmc(folder / f"{stem}test.txt", *parts[2:])


def svmlight_folder(folder: Path, parts: Parts, first: int = 0) -> None:
    svmlight(folder / "train.svm", *parts[:2], first)
    svmlight(folder / "test.svm", *parts[2:], first)


def split_folder(folder: Path, parts: Parts, data: str = "Toy_data.txt", splits: str = "toy_{}Split.txt") -> None:
    """One text file in a shuffled order, and two splits: the parts, and one row each."""
    X, Y = (sp.vstack(half).tocsr() for half in (parts[::2], parts[1::2]))
    order = np.random.default_rng(0).permutation(X.shape[0])
    xmc(folder / data, X[order], Y[order])
    place, cut = np.argsort(order) + 1, parts[0].shape[0]
    for name, rows in ((splits.format("tr"), place[:cut]), (splits.format("tst"), place[cut:])):
        (folder / name).write_text("".join(f"{row} {rows[0]}\n" for row in rows))


FOLDERS: dict[str, Callable[[Path, Parts], None]] = {
    "npz": npz_folder,
    "npz as PECOS packs it": lambda folder, parts: npz_folder(folder, parts, "tfidf-attnxml"),
    "sparse": sparse_folder,
    "pair": pair_folder,
    "named pair": lambda folder, parts: pair_folder(folder, parts, "eurlex_"),
    "svmlight": svmlight_folder,
    "svmlight from 1": lambda folder, parts: svmlight_folder(folder, parts, 1),
    "split": split_folder,
    "split, newer names": lambda folder, parts: split_folder(folder, parts, "bow.txt", "{}_split.txt"),
}


def run(form: int, blocks: list[bytes]) -> tuple[Any, ...]:
    reader = _core.TextReader(form)
    for block in blocks:
        reader.feed(block)
    return reader.finish()


def whole_text(form: int, text: str) -> tuple[Any, ...]:
    return run(form, [text.encode()])


def cut(text: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({min(place, len(text)) for place in places})
    return [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]


def same_rows(rows: Any, M: Any) -> None:
    """Identical arrays, not only equal sums."""
    assert (len(rows), rows.columns) == M.shape
    for ours, theirs in ((rows.start, M.indptr), (rows.index, M.indices), (rows.value, M.data)):
        np.testing.assert_array_equal(ours, theirs)
    assert (rows.start.dtype, rows.index.dtype, rows.value.dtype) == (np.int64, np.int32, np.float32)
