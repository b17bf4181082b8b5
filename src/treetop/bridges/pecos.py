"""PECOS: a cluster chain becomes a tree, an XLinear model a model that ranks as PECOS does. PECOS itself is not needed.

PECOS scores a label by the product of g(w.[x; bias]) along its path, its own g included, with
g(z) = exp(-max(0, 1 - z)^3) (`l3-hinge`): so do routes here that end at the arm, which go on from the parent of the
arm's leaf. Every last cluster therefore gets one leaf below it, whose own g is 1 for every context. Scores are the
routes, until a refit learns more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Ints, Matrix, Rows, as_rows, check_float
from treetop.model.model import Model
from treetop.model.pooled_state import PooledState
from treetop.tree.tree import Tree

PROCESSORS = ("l3-hinge", "log-l3-hinge")  # what treetop's routing is
KNOTS, WIDEST = 4097, 4.0  # of the scores by route: linear in between, right to six digits


def read_cluster_chain(folder: str | os.PathLike[str]) -> list[Any]:
    """The matrices of a ClusterChain that PECOS saved: (clusters or labels, clusters above them) a level.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "config.json").write_text('{"len": 1}')
    ...     sp.save_npz(f"{folder}/C0.npz", sp.csc_matrix(np.ones((3, 1))))
    ...     [level.shape for level in read_cluster_chain(folder)]
    [(3, 1)]
    """
    path = Path(folder)
    about = _about(path / "config.json")
    return [_matrix(path / f"C{level}.npz") for level in range(int(about.get("len", 0)))]


def tree_from_clusters(chain: Sequence[Matrix]) -> Tree:
    """The tree of a cluster chain: labels are arms, the last clusters are leaves.

    >>> tree_from_clusters([np.ones((2, 1)), [[1, 0], [0, 1], [1, 0]]])
    Tree(3 arms, 3 nodes, depth 1)
    """
    parents, leaf_of = _levels(chain)
    return Tree(np.concatenate(parents), leaf_of)


def model_from_xlinear(folder: str | os.PathLike[str]) -> Model:
    """The model of an XLinearModel that PECOS saved (not one compiled to be memory-mapped).

    With `Greedy()` and the same beam it decides for the labels that PECOS predicts, in the same order, with the same
    scores up to rounding. `Bandit.create(folder, ids, model=...)` serves it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     layer = Path(folder, "ranker", "0.model")
    ...     layer.mkdir(parents=True)
    ...     _ = Path(folder, "ranker", "param.json").write_text('{"model": "HierarchicalMLModel", "depth": 1}')
    ...     _ = (layer / "param.json").write_text('{"bias": 1.0, "pred_kwargs": {"post_processor": "l3-hinge"}}')
    ...     sp.save_npz(layer / "W.npz", sp.csc_matrix([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]))
    ...     sp.save_npz(layer / "C.npz", sp.csc_matrix(np.ones((2, 1))))
    ...     model_from_xlinear(folder).tree
    Tree(2 arms, 2 nodes, depth 1)
    """
    path = Path(folder)
    path = path / "ranker" if (path / "ranker").is_dir() else path
    about = _about(path / "param.json")
    if about.get("is_mmap"):
        raise ValueError(f"{path} is compiled for memory mapping; the folder that it was compiled from is needed")
    depth = int(about.get("depth", 0))
    if depth < 1:
        raise ValueError(f"{path} has no layers; a folder of a saved XLinearModel is needed")
    weights, clusters, biases = [], [], []
    for level in range(depth):
        layer = path / f"{level}.model"
        facts = _about(layer / "param.json")
        processor = facts.get("pred_kwargs", {}).get("post_processor", "l3-hinge")
        if processor not in PROCESSORS:
            raise ValueError(f"{layer} has the post-processor {processor!r}; routing here is {PROCESSORS[0]}")
        weights.append(_matrix(layer / "W.npz"))
        clusters.append(_matrix(layer / "C.npz"))
        biases.append(check_float("bias", facts.get("bias", -1.0), -1e6, 1e6))
    if len(set(biases)) > 1:
        raise ValueError(f"the layers of {path} have biases {sorted(set(biases))}; one is needed")
    return model_from_layers(weights, clusters, biases[0])


def model_from_layers(weights: Sequence[Matrix], clusters: Sequence[Matrix], bias: float = 1.0) -> Model:
    """The same from matrices: of each level W (features and the bias, members) and C (members, clusters above them).

    `bias` is what PECOS puts behind a context; without one (0 or less), W has no row for it.

    >>> made = model_from_layers([np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])], [np.ones((2, 1))])
    >>> made.n_arms, made.n_features, made.has_arm_routes
    (2, 2, True)
    """
    if len(weights) != len(clusters):
        raise ValueError(f"{len(weights)} matrices of weights for {len(clusters)} of clusters")
    parents, below = _levels(clusters)
    rows = [_rows(W, bias) for W in weights]
    columns = rows[0].shape[1]
    for level, (W, members) in enumerate(zip(rows, [*map(len, parents[1:]), len(below)], strict=True)):
        if W.shape != (members, columns):
            raise ValueError(f"weights of level {level} are {W.shape[::-1]}; {(columns, members)} are needed")
    nodes = sum(map(len, parents))
    leaves, leaf_of = np.unique(below, return_inverse=True)
    tree = Tree(np.concatenate([*parents, leaves]).astype(np.int32), (nodes + leaf_of).astype(np.int32))
    root = sp.csr_matrix((np.zeros(0, np.float32), ([], [])), shape=(1, columns))
    one = np.ones(len(leaves), np.float32)  # a bias of 1: nothing is lost on the way to a leaf
    through = sp.csr_matrix(
        (one, (np.arange(len(leaves)), np.full(len(leaves), columns - 1))), shape=(len(leaves), columns)
    )
    routing = as_rows(sp.vstack([root, *rows[:-1], through, rows[-1]], format="csr"), what="routing")
    model = Model.unlearned(tree, Rows(routing.start, routing.index, routing.value, columns))
    return Model(tree=tree, route_rows=routing, reward_rows=model.reward_rows, pooled=_scores_by_route(tree.n_arms))


def _scores_by_route(arms: int) -> PooledState:
    """A score is the arm's route: exp(-slack^3)."""
    means = np.exp(-(np.linspace(0, WIDEST, KNOTS) ** 3)).astype(np.float32)
    none = np.zeros(arms, np.int32)
    return PooledState(means=means, sample_count=none, trial_value=none.astype(np.float32))


def _levels(chain: Sequence[Matrix]) -> tuple[list[Ints], Ints]:
    """The parent of every node, level by level from the root on, and of every label."""
    if not chain:
        raise ValueError("the cluster chain has no levels")
    parents, above, first = [np.full(1, -1, np.int32)], 1, 0
    for level, given in enumerate(chain):
        matrix = as_rows(given, what=f"clusters of level {level}").csr()
        if matrix.shape[1] != above:
            raise ValueError(
                f"level {level} of the cluster chain has {matrix.shape[1]} clusters above it; there are {above}"
            )
        if (wrong := np.diff(matrix.indptr) != 1).any():
            at = int(np.flatnonzero(wrong)[0])
            raise ValueError(f"member {at} of level {level} is in {np.diff(matrix.indptr)[at]} clusters; 1 is needed")
        parents.append((first + matrix.indices).astype(np.int32))
        first, above = first + above, matrix.shape[0]
    return parents[:-1], parents[-1]


def _rows(W: Matrix, bias: float) -> Any:
    """Weights as treetop has them: a row a member, the last column the bias."""
    found = as_rows(W, what="weights").csr().T.tocsr()
    if bias <= 0:
        return sp.csr_matrix((found.data, found.indices, found.indptr), shape=(found.shape[0], found.shape[1] + 1))
    scale = np.ones(found.shape[1], np.float32)
    scale[-1] = bias
    return sp.csr_matrix(found @ sp.diags_array(scale, dtype=np.float32))


def _about(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there is no {path}; a folder that PECOS saved is needed") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is not an object")
    return found


def _matrix(path: Path) -> Any:
    try:
        return sp.load_npz(path)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: {error}") from None
