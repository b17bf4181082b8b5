"""Labelled data to play bandit with: the bundled set, made-up sets, folders of matrices. Knows nothing of bandits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from treetop import debian, synthetic
from treetop.types import Longs, Rows, as_rows, whole

FOLDER_FILES = ("X.trn.npz", "Y.trn.npz", "X.tst.npz", "Y.tst.npz")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Contexts X with the rewards Y of their arms; `X_init`, `Y_init` where a part is set apart for initialisation."""

    name: str
    X: Rows
    Y: Rows
    X_init: Rows | None = None
    Y_init: Rows | None = None
    arm_names: tuple[str, ...] | None = None
    context_names: tuple[str, ...] | None = None
    descriptions: tuple[str, ...] | None = None
    synthetic: bool = False  # made up: every table and file says so

    def __post_init__(self) -> None:
        if (self.X_init is None) != (self.Y_init is None):
            raise ValueError(f"{self.name}: of X_init and Y_init, one is given without the other")
        for names, wanted in (
            (self.arm_names, self.Y.columns), (self.context_names, len(self.X)), (self.descriptions, len(self.X))
        ):  # fmt: skip
            if names is not None and len(names) != wanted:
                raise ValueError(f"{self.name}: {len(names)} names where {wanted} are needed")
        for X, Y, part in ((self.X, self.Y, "the stream"), (self.X_init, self.Y_init, "the initialisation set")):
            if X is None or Y is None:
                continue
            if len(X) != len(Y):
                raise ValueError(f"{self.name}: {part} has {len(X)} contexts, but {len(Y)} rows of labels")
            if (X.columns, Y.columns) != (self.X.columns, self.Y.columns):
                raise ValueError(
                    f"{self.name}: {part} has {X.columns} features and {Y.columns} arms; "
                    f"{self.X.columns} and {self.Y.columns} are needed"
                )
            if len(Y.value) and not (Y.value.min() >= 0 and Y.value.max() <= 1):
                raise ValueError(
                    f"{self.name}: rewards from {Y.value.min():g} to {Y.value.max():g}; they must lie in [0, 1]"
                )

    @property
    def n_arms(self) -> int:
        return self.Y.columns

    def facts(self) -> dict[str, object]:
        """Name and size, for tables and JSON."""
        return {
            "name": self.name, "rows": len(self.X), "features": self.X.columns, "arms": self.n_arms,
            "features_per_row": round(len(self.X.value) / max(1, len(self.X)), 2),
            "labels_per_row": round(len(self.Y.value) / max(1, len(self.Y)), 2), "synthetic": self.synthetic,
        }  # fmt: skip


def load(spec: str | os.PathLike[str]) -> Dataset:
    """`debian`; `synthetic:arms=10000,...` or `synthetic:like=amazon-3m`; or a folder of four scipy sparse matrices.

    The folder has X.trn.npz and Y.trn.npz for the stream, X.tst.npz and Y.tst.npz for initialisation.

    >>> load("debian").n_arms
    34773
    >>> load("synthetic:arms=500,rows=2000").facts()["synthetic"]
    True
    """
    if str(spec) == "debian":
        data = debian.load()
        return Dataset(
            "debian", as_rows(data.X), as_rows(data.Y, what="labels"), arm_names=data.arm_names,
            context_names=data.context_names, descriptions=data.descriptions,
        )  # fmt: skip
    if str(spec).startswith(synthetic.PREFIX):
        return Dataset(str(spec), *synthetic.generate(synthetic.parse(str(spec))), synthetic=True)
    folder = Path(spec)
    if not folder.is_dir():
        raise FileNotFoundError(f"{str(spec)!r} is neither 'debian' nor a folder, and does not begin with 'synthetic:'")
    if missing := [name for name in FOLDER_FILES if not (folder / name).is_file()]:
        raise FileNotFoundError(f"{folder} lacks {', '.join(missing)}; a dataset is {', '.join(FOLDER_FILES)}")
    X, Y, X_init, Y_init = (_read(folder / name) for name in FOLDER_FILES)
    return Dataset(folder.resolve().name, X, Y, X_init, Y_init)


def _read(path: Path) -> Rows:
    try:
        with path.open("rb") as file:
            matrix = sp.load_npz(file)
    except Exception as error:  # zipfile, zlib, tokenize, numpy and scipy have each their own for a broken file
        raise ValueError(f"{path} is not a scipy sparse matrix: {error}") from None
    return as_rows(matrix, what=str(path))


@dataclass(frozen=True, eq=False)
class Stream:
    """One shuffled experiment: the initialisation set, and the row of the dataset that comes in each round."""

    dataset: Dataset
    X_init: Rows
    Y_init: Rows
    rows: Longs
    X: Rows  # the contexts of the rounds

    @classmethod
    def draw(cls, dataset: Dataset, init: int, horizon: int, seed: int) -> Stream:
        """`init` random rows first, then the rounds in random order: without replacement while they last.

        The initialisation rows come from the part set apart for them, otherwise from the same rows as the stream,
        which then leaves them out. A horizon beyond what is left is drawn with replacement.
        """
        whole("horizon", horizon, 1)
        rng = np.random.default_rng(whole("seed", seed, 0, 2**64 - 1))
        if len(dataset.X) == 0:
            raise ValueError(f"{dataset.name}: the stream has 0 rows; at least 1 is needed")
        X_pool, Y_pool = dataset.X, dataset.Y
        if dataset.X_init is not None and dataset.Y_init is not None:
            X_pool, Y_pool = dataset.X_init, dataset.Y_init
        whole("init", init, 1, len(X_pool) if dataset.X_init is not None else len(X_pool) - 1)
        chosen = rng.permutation(len(X_pool))[:init]
        left = np.arange(len(dataset.X))
        if dataset.X_init is None:
            left = np.setdiff1d(left, chosen)
        if horizon <= len(left):
            rows = rng.permutation(left)[:horizon]
        else:
            rows = rng.choice(left, horizon, replace=True)
        X, Y = as_rows(X_pool.csr()[chosen]), as_rows(Y_pool.csr()[chosen], what="labels")
        return cls(dataset, X, Y, rows.astype(np.int64), as_rows(dataset.X.csr()[rows]))
