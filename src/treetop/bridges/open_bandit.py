"""The Open Bandit Dataset (Saito et al. 2020) as it is published: CSV of one policy and campaign, and of the items.

There is no slate id: a row is a decision of one slot, with the position that it had on the screen.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Floats, Int64s, Ints, Rows, as_rows
from treetop.bridges.dsjson import from_time
from treetop.bridges.obp import to_bandit_feedback
from treetop.records import Decisions, Feedback

COLUMNS = ("timestamp", "item_id", "position", "click", "propensity_score")


@dataclass(frozen=True, eq=False)
class OpenBandit:
    """A log of the Open Bandit Dataset in treetop's records.

    `features` names the columns of the contexts: `user_feature_0=...` for every value of a hashed feature, and the
    affinities. `positions` count from 0. `items` (n_items, ...) are the items' own features, None without their file.
    """

    shown: Decisions
    feedback: Feedback
    features: tuple[str, ...]
    positions: Ints
    times: Floats
    n_items: int
    items: Rows | None

    def bandit_feedback(self) -> dict[str, Any]:
        """As obp's estimators take it."""
        items = None if self.items is None else self.items.csr().toarray()
        return to_bandit_feedback(self.shown, self.feedback, self.n_items, items, self.positions)


def read_open_bandit(file: str | os.PathLike[str], items: str | os.PathLike[str] | None = None) -> OpenBandit:
    """Reads `random.csv.gz` or the like, and `item_context.csv` if it is given.

    >>> import tempfile
    >>> lines = ["timestamp,item_id,position,click,propensity_score,user_feature_0,user-item_affinity_0"]
    >>> lines += ["2019-11-24 00:00:01+00:00,1,3,1,0.5,a,0.0", "2019-11-24 00:00:02+00:00,0,1,0,0.5,b,2.0"]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "log.csv").write_text("\\n".join(lines))
    ...     log = read_open_bandit(f"{folder}/log.csv")
    >>> log.features, log.shown.arms.tolist(), log.positions.tolist()
    (('user_feature_0=a', 'user_feature_0=b', 'user-item_affinity_0'), [[1], [0]], [1, 0])
    """
    path = Path(file)
    names, rows = _table(path)
    if missing := [name for name in COLUMNS if name not in names]:
        raise ValueError(f"{path} has no column {missing[0]}; a file of the Open Bandit Dataset is needed")
    if not rows:
        raise ValueError(f"{path} has no rows")
    column = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    arms = _whole(column["item_id"], path, "item_id")
    chances = _real(column["propensity_score"], path, "propensity_score")
    if not ((chances > 0) & (chances <= 1)).all():
        raise ValueError(f"{path}: propensity_score {chances[(chances <= 0) | (chances > 1)][0]:g} is outside (0, 1]")
    given = [name for name in names if name.startswith(("user_feature", "user-item_affinity"))]
    features, contexts = _encoded({name: column[name] for name in given}, path)
    vectors = None if items is None else _items(Path(items))
    n_items = int(arms.max()) + 1 if vectors is None else len(vectors)
    if arms.max() >= n_items or arms.min() < 0:
        raise ValueError(f"{path} has item {arms.max() if arms.min() >= 0 else arms.min()}; there are {n_items}")
    one, shape = arms[:, None].astype(np.int32), (len(rows), 1)
    shown = Decisions(
        None, 0, one, chances[:, None], np.zeros(shape, np.float32), chances[:, None] < 1, np.full(shape, -1, np.int32)
    )
    feedback = Feedback(contexts, one, None, _real(column["click"], path, "click")[:, None])
    positions = np.unique(_whole(column["position"], path, "position"), return_inverse=True)[1].astype(np.int32)
    times = np.array([from_time(text.replace(" ", "T", 1)) for text in column["timestamp"]])
    return OpenBandit(shown, feedback, features, positions, times, n_items, vectors)


def _items(path: Path) -> Rows:
    """The items' features in the order of their ids."""
    names, rows = _table(path)
    if "item_id" not in names:
        raise ValueError(f"{path} has no column item_id")
    ids = _whole([row[names.index("item_id")] for row in rows], path, "item_id")
    if sorted(ids.tolist()) != list(range(len(ids))):
        raise ValueError(f"{path}: item ids are not 0 to {len(ids) - 1}, each once")
    order = np.argsort(ids)
    columns = {name: [rows[i][names.index(name)] for i in order] for name in names if name.startswith("item_feature")}
    return _encoded(columns, path)[1]


def _encoded(columns: dict[str, list[str]], path: Path) -> tuple[tuple[str, ...], Rows]:
    """Numbers as they are; of text, a column a value, as obp makes them."""
    parts, names = [], list[str]()
    for name, texts in columns.items():
        if all(_is_number(text) for text in texts):
            parts.append(sp.csr_matrix(_real(texts, path, name)[:, None]))
            names.append(name)
        else:
            values, at = np.unique(np.array(texts), return_inverse=True)
            one = np.ones(len(texts))
            parts.append(sp.csr_matrix((one, (np.arange(len(texts)), at)), shape=(len(texts), len(values))))
            names += [f"{name}={value}" for value in values.tolist()]
    return tuple(names), as_rows(sp.hstack(parts, format="csr"))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _table(path: Path) -> tuple[list[str], list[list[str]]]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        reader = csv.reader(file)
        names = next(reader, [])
        rows = list(reader)
    if wrong := next((i for i, row in enumerate(rows) if len(row) != len(names)), None):
        raise ValueError(f"{path}, line {wrong + 2} has {len(rows[wrong])} columns; there are {len(names)}")
    return names, rows


def _real(texts: Sequence[str], path: Path, name: str) -> Floats:
    try:
        return np.array([float(text) for text in texts])
    except ValueError as error:
        raise ValueError(f"{path}, column {name}: {error}") from None


def _whole(texts: Sequence[str], path: Path, name: str) -> Int64s:
    try:
        return np.array([int(text) for text in texts], np.int64)
    except ValueError as error:
        raise ValueError(f"{path}, column {name}: {error}") from None
