"""Labelled data to play bandit with: bundled, made up, in files and folders, the paper's. Knows nothing of bandits."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from treetop.arrays import Int64s, Rows, as_rows, check_int
from treetop.data import debian, layouts, readers, synthetic
from treetop.data.orders import arrange, check_order
from treetop.data.presets import PRESETS, Preset
from treetop.tree.tree import usual_max_leaf

INIT = 5_000  # rows for tree and routing, where nothing else is said


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Contexts X with the rewards Y of their arms; `X_init`, `Y_init` where a part is set apart for initialisation.

    The matrices are scipy's, NumPy's or lists; they are kept as `Rows`.

    >>> data = Dataset("mine", [[1.0], [2.0], [3.0]], [[1, 0], [0, 1], [0, 1]])
    >>> data.facts()["arms"], data.sizes(init=1, horizon=None, max_leaf=None)
    (2, (1, 2, 10))
    >>> len(data.initial_part("file")[0])
    3
    """

    name: str
    X: Rows
    Y: Rows
    X_init: Rows | None = None
    Y_init: Rows | None = None
    arm_names: tuple[str, ...] | None = None
    context_names: tuple[str, ...] | None = None
    descriptions: tuple[str, ...] | None = None
    feature_names: tuple[str, ...] | None = None
    preset: Preset | None = None
    synthetic: bool = False  # made up: every table and file says so

    def __post_init__(self) -> None:
        for field, what in (("X", "contexts"), ("Y", "labels"), ("X_init", "contexts"), ("Y_init", "labels")):
            given = getattr(self, field)
            if given is not None and not isinstance(given, Rows):
                object.__setattr__(self, field, as_rows(given, what=what))
        if (self.X_init is None) != (self.Y_init is None):
            raise ValueError(f"{self.name}: of X_init and Y_init, one is given without the other")
        for what, names, wanted in (
            ("arms", self.arm_names, self.Y.columns),
            ("contexts", self.context_names, len(self.X)),
            ("descriptions", self.descriptions, len(self.X)),
            ("features", self.feature_names, self.X.columns),
        ):
            if names is not None and len(names) != wanted:
                raise ValueError(f"{self.name}: {len(names)} names of {what} where {wanted} are needed")
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

    @property
    def init_rows(self) -> int:
        """Rows to initialise from, at most; one is left for the stream where both come from the same rows."""
        return len(self.X) - 1 if self.X_init is None else len(self.X_init)

    def __repr__(self) -> str:
        return f"Dataset({self.name}: {len(self.X):,} contexts, {self.X.columns:,} features, {self.n_arms:,} arms)"

    def facts(self) -> dict[str, object]:
        """Name and size, for tables and JSON; `paper_arms` where the paper counts other arms than these files have."""
        facts: dict[str, object] = {
            "name": self.name,
            "rows": len(self.X),
            "features": self.X.columns,
            "arms": self.n_arms,
            "features_per_row": round(len(self.X.value) / max(1, len(self.X)), 2),
            "labels_per_row": round(len(self.Y.value) / max(1, len(self.Y)), 2),
            "synthetic": self.synthetic,
        }
        if self.preset and self.preset.arms != self.n_arms:
            facts["paper_arms"] = self.preset.arms
        return facts

    def initial_part(self, order: str = "shuffled") -> tuple[Rows, Rows]:
        """Contexts and labels that a stream of this order takes its initialisation set from: the part set apart for
        it, unless there is none or the order is that of the file, which begins with its first row."""
        check_order(order)
        if order == "file" or self.X_init is None or self.Y_init is None:
            return self.X, self.Y
        return self.X_init, self.Y_init

    def sizes(
        self, init: int | None, horizon: int | None, max_leaf: int | None, order: str = "shuffled"
    ) -> tuple[int, int, int]:
        """The same with gaps filled: by the preset, as far as there are rows; otherwise by INIT, rows and arms."""
        preset, shared = self.preset, self.initial_part(order)[0] is self.X
        if init is None:
            most = max(1, len(self.X) - 1) if shared else self.init_rows
            init = min(preset.init, max(1, most)) if preset else min(self.init_rows, most) if self.synthetic else INIT
        if horizon is None:
            left = max(1, len(self.X) - (init if shared else 0))
            horizon = left if not preset else preset.horizon if preset.bootstrap else min(preset.horizon, left)
        if max_leaf is None:
            max_leaf = preset.max_leaf if preset else usual_max_leaf(self.n_arms)
        return init, horizon, max_leaf


def load(
    spec: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    split: int = 0,
    zero_based: readers.ZeroBased = "auto",
) -> Dataset:
    """`debian`, `synthetic:like=amazon-3m`, a path, or a set of the paper such as `eurlex-4k`.

    The files of the paper's sets lie in `data_dir`, here by default. `synthetic:arms=10000,...` is made up.
    A path is a text file (XMC or svmlight), whose rows then serve for initialisation and stream alike, or a folder:
    the first of these that is there gives the stream by its training part and the initialisation set by its test part.

    - `X.trn.npz`, `Y.trn.npz`, `X.tst.npz`, `Y.tst.npz`: scipy sparse matrices, as PECOS has them
    - `trn_X_Xf.txt`, `trn_X_Y.txt`, `tst_X_Xf.txt`, `tst_X_Y.txt`: sparse text with the header `rows columns`
    - `train.txt`, `test.txt`, or with the set's name before them (`eurlex_train.txt`): XMC or svmlight text
    - `*_data.txt` with `*_trSplit.txt`, `*_tstSplit.txt`: column `split` (from 0) of each lists rows from 1

    `zero_based` is for svmlight text: whether features count from 0; "auto" says no if there is no feature 0.

    >>> load("debian").n_arms
    34773
    >>> load("synthetic:arms=500,rows=2000").facts()["synthetic"]
    True
    """
    name = os.fspath(spec)
    if name in PRESETS:
        preset = PRESETS[name]
        train, test = readers.read_split(preset.find(Path(data_dir or ".")), split, zero_based)
        return Dataset(name, *train, *test, preset=preset)
    if data_dir is not None:
        raise ValueError(f"data_dir is for {', '.join(PRESETS)}, not for {name!r}")
    if name.startswith(synthetic.PREFIX):
        return Dataset(name, *synthetic.generate(synthetic.parse_spec(name)), synthetic=True)
    return _debian() if name == "debian" else _from_path(Path(name), split, zero_based)


def _debian() -> Dataset:
    data = debian.load_debian()
    return Dataset(
        "debian",
        as_rows(data.X),
        as_rows(data.Y, what="labels"),
        arm_names=data.arm_names,
        context_names=data.context_names,
        descriptions=data.descriptions,
        feature_names=data.feature_names,
    )


def _from_path(path: Path, split: int, zero_based: readers.ZeroBased) -> Dataset:
    if path.is_dir():
        found = layouts.find_files(path)
        if found is None:
            raise FileNotFoundError(f"{path} holds no dataset; looked for {layouts.known_layouts()}")
        train, test = readers.read_split(found, split, zero_based)
        return Dataset(path.resolve().name, *train, *test)
    if not path.exists():
        raise FileNotFoundError(
            f"{str(path)!r} is neither 'debian' nor a folder or file, does not begin with 'synthetic:', and is not one "
            f"of {', '.join(PRESETS)}"
        )
    if path.suffix == ".npz":
        raise ValueError(f"{path} is one matrix; load the folder that holds {layouts.known_layouts()}")
    return Dataset(path.stem, *readers.read_labelled([path], zero_based)[0])


def tree_seed(seed: int) -> int:
    """The seed of the tree that goes with a stream: `simulate` and `init` build the same one from the same seed.

    >>> tree_seed(0) != tree_seed(1)
    True
    """
    return int(np.random.SeedSequence(check_int("seed", seed, 0, 2**63 - 1)).generate_state(1)[0])


@dataclass(frozen=True, eq=False)
class Stream:
    """One experiment: the initialisation set, and the row of the dataset that comes in each round."""

    dataset: Dataset
    X_init: Rows
    Y_init: Rows
    rows: Int64s
    X: Rows  # the contexts of the rounds

    @classmethod
    def draw(cls, dataset: Dataset, init: int, horizon: int, seed: int, order: str = "shuffled") -> Stream:
        """`init` random rows first, then the rounds in random order: without replacement while they last.

        The initialisation rows come from the part set apart for them, otherwise from the same rows as the stream,
        which then leaves them out. A horizon beyond what is left is drawn with replacement.

        With the order `file` nothing is drawn: the first `init` rows of the stream's own file initialise, and those
        after them come as they stand, again and again. With `blocks` the contexts on either side of their first
        principal component take turns (`treetop.data.orders`).

        >>> data = load("synthetic:arms=9,rows=5,init=5")
        >>> stream = Stream.draw(data, init=2, horizon=5, seed=0)
        >>> sorted(stream.rows.tolist()), len(stream.X_init)
        ([0, 1, 2, 3, 4], 2)
        >>> Stream.draw(data, init=2, horizon=5, seed=0, order="file").rows.tolist()
        [2, 3, 4, 2, 3]
        """
        check_int("horizon", horizon, 1)
        rng = np.random.default_rng(check_int("seed", seed, 0, 2**64 - 1))
        if len(dataset.X) == 0:
            raise ValueError(f"{dataset.name}: the stream has 0 rows; at least 1 is needed")
        X_pool, Y_pool = dataset.initial_part(order)
        shared = X_pool is dataset.X
        check_int("init", init, 1, len(X_pool) - shared)
        chosen = np.arange(init) if order == "file" else rng.permutation(len(X_pool))[:init]
        left = np.arange(len(dataset.X))
        if shared:
            left = np.setdiff1d(left, chosen)
        rows = arrange(order, left, horizon, dataset.X.csr(), rng)
        X, Y = as_rows(X_pool.csr()[chosen]), as_rows(Y_pool.csr()[chosen], what="labels")
        return cls(dataset, X, Y, rows.astype(np.int64), as_rows(dataset.X.csr()[rows]))
