"""A tree and routing made anew from what is known by now: labelled rows, and rounds in which something was found.

Arms, their indices and the log stay as they are. Models of before keep their trees, so replay and propensities do too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Rows, as_rows
from treetop.bandit.config import Config
from treetop.effort import Effort
from treetop.learning.history import History, gathered, stacked
from treetop.learning.label_samples import LabelSamples
from treetop.model.model import Model
from treetop.tree.tree import Tree

MOST = 200_000  # rounds with a reward, the latest ones, that a tree is made of beside the labels: they are in memory


def check_rebuildable(model: Model, config: Config) -> None:
    """Raises ValueError for a tree that was not made of labels or rewards, or whose nodes have regressors.

    >>> from treetop.bandit.config import LearnerConfig
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> check_rebuildable(model, Config(learner=LearnerConfig("paper")))
    Traceback (most recent call last):
    ValueError: a tree is rebuilt for the learner treetop; this bandit has 'paper', whose regressors belong to nodes
    """
    if config.learner.name != "treetop":
        name = config.learner.name
        words = f"a tree is rebuilt for the learner treetop; this bandit has {name!r}, whose regressors belong to nodes"
        raise ValueError(words)
    if model.measure is not None or model.geometric:
        raise ValueError("the tree follows the owner's vectors, which rewards do not change: it is not rebuilt")
    if model.prior is not None:
        raise ValueError("the tree leads to what its owner's model knew, which rewards do not tell: it is not rebuilt")
    if model.coverage is not None:
        raise ValueError("the tree follows the owner's categories, which rewards do not change: it is not rebuilt")


def check_rebuild_setting(model: Model, config: Config) -> None:
    """Raises ValueError if the settings ask for a new tree every so many models, and this one is not rebuilt.

    >>> from treetop.bandit.config import RefitConfig
    >>> model = Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4))
    >>> check_rebuild_setting(model, Config())
    >>> check_rebuild_setting(model, Config(refit=RefitConfig(rebuild=5)))
    Traceback (most recent call last):
    ValueError: rebuild is 5 in [refit]; the tree follows the owner's vectors, which rewards do not change: it is not \
rebuilt. Set it to 0
    """
    if config.refit.rebuild == 0:
        return
    try:
        check_rebuildable(model, config)
    except ValueError as error:
        raise ValueError(f"rebuild is {config.refit.rebuild} in [refit]; {error}. Set it to 0") from None


def rebuilt(model: Model, history: History, labels: LabelSamples | None, config: Config, effort: Effort) -> Model:
    """A model before any round whose tree and routing are made of labels and of the latest rewards of a history.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from treetop.learning.history import HistoryWriter
    >>> from treetop.records import Feedback
    >>> X = np.eye(4, dtype=np.float32)
    >>> old = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1, 2]), X, X)
    >>> found = Feedback(X[[0, 0, 2, 2]], arms=[[0], [1], [2], [3]], nodes=None, rewards=[[1], [1], [1], [1]])
    >>> with TemporaryDirectory() as place:
    ...     writer = HistoryWriter(Path(place, "history"), columns=4, late=np.zeros(4, bool))
    ...     writer.add(found)
    ...     tree = rebuilt(old, writer.done(found), None, Config(), Effort()).tree
    >>> bool(tree.leaf_of[0] == tree.leaf_of[1])  # the arms of one context are together now
    True
    """
    contexts: list[Rows] = []
    row: list[Any] = []
    arm: list[Any] = []
    count, left = 0, MOST
    if labels is not None:
        right = labels.reward > 0
        contexts, row, arm, count = [labels.contexts], [labels.row[right]], [labels.arm[right]], len(labels.contexts)
    for part in reversed(history.parts):
        samples = part.samples(0, model.n_arms)
        found = samples.reward > 0
        rows, place = np.unique(samples.row[found], return_inverse=True)
        first = max(0, len(rows) - left)
        contexts.append(gathered(part.contexts, rows[first:]))
        row.append(count + place[place >= first] - first)
        arm.append(samples.arm[found][place >= first])
        count, left = count + len(rows) - first, left - len(rows) + first
        if left == 0:
            break
    X = stacked(contexts, history.columns)
    at = np.concatenate(row), np.concatenate(arm)
    Y = sp.csr_matrix((np.ones(len(at[0]), np.float32), at), shape=(count, model.n_arms))
    Y.data[:] = 1  # an arm may have been found twice
    build = Tree.from_labels_flattened if labels is None else Tree.from_labels_separated
    tree = build(as_rows(X.csr()), Y, config.tree.leaf_limit, config.tree.branching, config.tree.seed, effort=effort)
    made = Model.initial(tree, X, Y)
    return replace(made, epoch=model.epoch, n_seen=model.n_seen, feature_scale=model.feature_scale)
