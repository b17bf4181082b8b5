"""Labelled rows as samples of arms, in memory and on disk: what treetop's learner knows before the first round.

On disk they are a folder of arrays with a manifest, as models are, and stay memory-mapped: only pages that are read
take memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Bools, Floats, Int64s, Ints, Matrix, Rows, as_rows, check_int
from treetop.errors import ModelFileError
from treetop.learning.samples import Samples, context_fingerprints
from treetop.model.model import Model
from treetop.model.storage import load_manifest, read_array, write_array, write_manifest
from treetop.policy.eligibility import EVERY_ARM
from treetop.policy.search import search_batch
from treetop.tree.labels import check_labelled
from treetop.tree.tree import Tree

HARD, EASY = 48, 16  # arms without the label that are kept of a row: the best routes, and about so many others
BLOCK = 256  # rows that are searched at a time: what their beams hold is in memory at once


class LabelSamples(Samples):
    """The arms that routing leads to in each labelled row, with the label as the reward.

    Routing that was fitted on the same rows would flatter them: each row is routed by what was fitted on the other
    folds. `weight` is how many arms of a beam a sample stands for; 0 for a label that the beam missed.

    >>> X, Y = np.tile(np.eye(4, dtype=np.float32), (8, 1)), np.tile(np.eye(4, dtype=np.float32), (8, 1))
    >>> samples = LabelSamples.of(Tree.from_labels(X, Y, max_leaf=2), X, Y, beam=1)
    >>> float(samples.reward.sum()), len(samples.contexts)
    (32.0, 32)
    >>> float(samples.without(np.array([True, False, False, False])).reward.sum())  # arm 0 was removed
    24.0
    """

    @classmethod
    def of(cls, tree: Tree, X: Matrix, Y: Matrix, beam: int = 10, *, folds: int = 2, seed: int = 0) -> LabelSamples:
        """From the rows that a tree was made of, as a search with this beam finds their arms."""
        contexts, labels = check_labelled(X, Y)
        check_int("folds", folds, 2, max(2, labels.shape[0]))
        rng = np.random.default_rng(check_int("seed", seed, 0))
        fold = rng.permutation(labels.shape[0]) % folds
        rows = contexts.csr()
        found = [np.zeros((5, 0))]
        for f in range(folds):
            others, mine = np.flatnonzero(fold != f), np.flatnonzero(fold == f)
            if labels[others].nnz and len(mine):  # without a label there is no routing
                model = Model.initial(tree, rows[others], labels[others], tolerance=0.1)
                for first in range(0, len(mine), BLOCK):
                    block = mine[first : first + BLOCK]
                    found.append(_of_rows(model, as_rows(rows[block]), labels[block], beam, rng, block))
        row, arm, reward, log_route, weight = np.concatenate(found, axis=1)
        return cls(contexts, row.astype(np.int32), arm.astype(np.int32), reward.astype(np.float32), log_route, weight)

    def with_examples(self, contexts: Rows, arm: Ints) -> LabelSamples:
        """With more labelled rows: `arm` (n,) is right in each; of other arms they say nothing. A context that is known
        already, the same to the last bit, is that row: what it said of others stays true.

        Routing learns from them. Their weight is 0: pooled means and regressors go by what a search finds, which these
        do not tell.

        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 2])
        >>> known = LabelSamples.of(tree, X, np.eye(2, 3), beam=1)
        >>> more = known.with_examples(as_rows([[0.0, 1.0], [5.0, 0.0]]), np.array([2, 2], np.int32))
        >>> more.row[-2:].tolist(), len(more.contexts)
        ([1, 2], 3)
        """
        row, new = same_contexts(self.contexts, contexts)
        right, arms = self.reward > 0, 1 + int(max(self.arm.max(initial=0), arm.max(initial=0)))
        told = self.row[right] * np.int64(arms) + self.arm[right]
        pairs = np.setdiff1d(row * np.int64(arms) + arm, told)
        n = len(pairs)
        return LabelSamples(
            self.contexts if len(new) == 0 else as_rows(sp.vstack([self.contexts.csr(), contexts.csr()[new]], "csr")),
            np.concatenate([self.row, (pairs // arms).astype(np.int32)]),
            np.concatenate([self.arm, (pairs % arms).astype(np.int32)]),
            np.concatenate([self.reward, np.ones(n, np.float32)]),
            np.concatenate([self.log_route, np.zeros(n)]),
            np.concatenate([self.weight, np.zeros(n)]),
        )

    def check_fits(self, arms: int, features: int) -> None:
        """Refuses what is of another catalogue than a model's.

        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> LabelSamples.of(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y).check_fits(arms=2, features=3)
        Traceback (most recent call last):
        ValueError: label samples have 2 features; the model has 3
        """
        if self.contexts.columns != features:
            raise ValueError(f"label samples have {self.contexts.columns} features; the model has {features}")
        if len(self.arm) and int(self.arm.max()) >= arms:
            raise ValueError(f"label samples of arm {self.arm.max()}; the model has {arms} arms")

    def labelled_arms(self, arms: int) -> Bools:
        """Which of so many arms have a label.

        >>> X = Y = np.eye(2, dtype=np.float32)
        >>> LabelSamples.of(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 2]), X, np.eye(2, 3), beam=1).labelled_arms(3)
        array([ True,  True, False])
        """
        labelled = np.zeros(arms, np.bool_)
        labelled[self.arm[self.reward > 0]] = True
        return labelled

    def without(self, removed: Bools) -> LabelSamples:
        """The same without the samples of some arms; `removed` has a flag an arm."""
        if not removed.any():
            return self
        kept = ~removed[self.arm]
        return LabelSamples(
            self.contexts, self.row[kept], self.arm[kept], self.reward[kept], self.log_route[kept], self.weight[kept]
        )


def _of_rows(model: Model, x: Rows, labels: Any, beam: int, rng: np.random.Generator, numbers: Any) -> Floats:
    """(5, n): row numbers, arms, rewards, log routes and weights of the samples of some rows, row by row."""
    found = search_batch(model, x, beam, None, 1, EVERY_ARM)
    row = np.repeat(np.arange(len(x)), np.diff(found.start))[~found.is_node]
    arm = found.id[~found.is_node]
    pairs = np.repeat(np.arange(len(x)), np.diff(labels.indptr)) * np.int64(model.n_arms) + labels.indices
    found_pairs = row * np.int64(model.n_arms) + arm
    right = np.isin(found_pairs, pairs, assume_unique=True)
    chance = _chance(row, right, found.log_route[~found.is_node])
    kept = rng.random(len(arm)) < chance
    missed = np.setdiff1d(pairs, found_pairs[right], assume_unique=True)
    missed_row, missed_arm = missed // model.n_arms, missed % model.n_arms
    all_rows = np.concatenate([row[kept], missed_row])
    order = np.argsort(all_rows, kind="stable")  # of every row: what the beam found, then what it missed
    all_rows = all_rows[order]
    all_arms = np.concatenate([arm[kept], missed_arm])[order].astype(np.int32)
    reward = np.concatenate([right[kept], np.ones(len(missed))])[order]
    weight = np.concatenate([(1 / chance)[kept], np.zeros(len(missed))])[order]
    log_route = pair_routes(model, x, all_rows, all_arms)
    return np.stack([numbers[all_rows].astype(float), all_arms.astype(float), reward, log_route, weight])


def _chance(row: Ints | Int64s, right: Bools, log_route: Floats) -> Floats:
    """Of each arm that a search found to be kept: 1 for labels and for the HARD best routes without the label."""
    wrong = np.flatnonzero(~right)
    wrong = wrong[np.lexsort((-log_route[wrong], row[wrong]))]
    count = np.bincount(row[wrong], minlength=int(row.max(initial=0)) + 1)
    rank = np.arange(len(wrong)) - np.repeat(np.cumsum(count) - count, count)
    easy = np.maximum(1, count - HARD)[row[wrong]]
    chance = np.ones(len(row))
    chance[wrong] = np.where(rank < HARD, 1.0, np.minimum(1.0, EASY / easy))
    return chance


def pair_routes(model: Model, x: Rows, row: Ints | Int64s, arm: Ints) -> Floats:
    """The log route of each pair of a row and an arm; the rows rise.

    >>> X = Y = np.eye(2, dtype=np.float32)
    >>> model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, Y)
    >>> near, far = pair_routes(model, as_rows(X), row=np.array([0, 0]), arm=np.array([0, 1]))
    >>> bool(near > far)
    True
    """
    arms, place = as_table(row, arm, len(x))
    routes = model.engine.routes(x.start, x.index, x.value, arms.reshape(-1), arms.shape[1], 0)
    return np.asarray(routes[row, place])


def as_table(row: Ints | Int64s, arm: Ints, rows: int) -> tuple[Ints, Int64s]:
    """Pairs of a row and an arm as a table of the arms of each row, -1 where it has no more, and the pairs' places.

    >>> as_table(np.array([0, 0, 2]), np.array([7, 8, 9]), rows=3)[0].tolist()
    [[7, 8], [-1, -1], [9, -1]]
    """
    counts = np.bincount(row, minlength=rows)
    place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    arms = np.full((rows, max(1, int(counts.max(initial=0)))), -1, np.int32)
    arms[row, place] = arm
    return arms, place


def same_contexts(known: Rows, given: Rows) -> tuple[Int64s, Int64s]:
    """For each of the given contexts its number: that of the same one that is known, or behind these; and which of the
    given ones are not known, each once.

    >>> [part.tolist() for part in same_contexts(as_rows([[1.0], [2.0]]), as_rows([[3.0], [2.0], [4.0], [3.0]]))]
    [[2, 1, 3, 2], [0, 2]]
    """
    n = len(known)
    every = np.concatenate([context_fingerprints(known), context_fingerprints(given)])
    _, first, place = np.unique(every, return_index=True, return_inverse=True)
    new = np.sort(first[first >= n])
    number = np.where(first < n, first, n + np.searchsorted(new, first))
    return number[place[n:]], new - n


FORMAT, VERSION = "treetop-label-samples", 1
CONTEXT_FILES = {"contexts_start": "int64", "contexts_index": "int32", "contexts_value": "float32"}
SAMPLE_FILES = {"row": "int32", "arm": "int32", "reward": "float32", "log_route": "float64", "weight": "float64"}


def save_label_samples(samples: LabelSamples, folder: Path) -> None:
    """Writes a new folder; its manifest comes last, so that a folder with one is complete.

    >>> import tempfile
    >>> from treetop.tree.tree import Tree
    >>> X = Y = np.eye(4, dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_label_samples(LabelSamples.of(Tree.from_labels(X, Y, max_leaf=2), X, Y), Path(folder) / "labelled")
    ...     load_label_samples(Path(folder) / "labelled", arms=4, features=4).reward.sum()
    np.float32(4.0)
    """
    folder.mkdir()
    x = samples.contexts
    arrays: dict[str, Any] = dict(zip(CONTEXT_FILES, (x.start, x.index, x.value), strict=True))
    arrays |= {name: getattr(samples, name) for name in SAMPLE_FILES}
    files = {name: write_array(folder / f"{name}.npy", array) for name, array in arrays.items()}
    write_manifest(folder, {"format": FORMAT, "version": VERSION, "columns": x.columns, "files": files})


def load_label_samples(folder: Path, arms: int, features: int) -> LabelSamples:
    """What `save_label_samples` wrote, for a model of so many arms and features.

    Whatever is wrong with it is a ModelFileError.

    >>> load_label_samples(Path("no/such"), arms=2, features=3)
    Traceback (most recent call last):
    treetop.errors.ModelFileError: no/such: no manifest.json: not a saved set of label samples, or not all of it
    """
    manifest = load_manifest(folder, FORMAT, VERSION)
    try:
        found = {
            name: read_array(folder / f"{name}.npy", manifest["files"][name], kind)
            for name, kind in (CONTEXT_FILES | SAMPLE_FILES).items()
        }
        start, index, value = (found.pop(name) for name in CONTEXT_FILES)
        samples = LabelSamples(Rows(start, index, value, check_int("columns", manifest["columns"], 0)), **found)
        _check(samples, arms, features)
        return samples
    except ModelFileError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"{folder}: not valid label samples: {error}") from error


def _check(samples: LabelSamples, arms: int, features: int) -> None:
    x = samples.contexts
    if x.columns != features:
        raise ValueError(f"contexts of {x.columns} features; the model has {features}")
    if not _core.inspect_rows(x.start, x.index, x.value, x.columns, "contexts"):
        raise ValueError("indices must rise strictly in every row")
    if len({len(getattr(samples, name)) for name in SAMPLE_FILES}) > 1:
        raise ValueError("there are not as many rows, arms, rewards, routes and weights")
    for name, ids, limit in (("row", samples.row, len(x)), ("arm", samples.arm, arms)):
        if len(ids) and not 0 <= ids.min() <= ids.max() < limit:
            raise ValueError(f"{name} {ids.min()} to {ids.max()}, outside [0, {limit})")
    for name, values, low, high in (
        ("reward", samples.reward, 0, 1),
        ("log_route", samples.log_route, -np.inf, 0),
        ("weight", samples.weight, 0, np.inf),
    ):
        if len(values) and not (low <= values.min() and values.max() <= high):
            raise ValueError(f"a {name} from {values.min()} to {values.max()}, outside [{low}, {high}]")
