"""Model: tree, routing and reward models of one epoch. Frozen; on disk a folder of .npy files, memory-mapped."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Fitted, Float32s, Matrix, Rows, as_rows, check_int
from treetop.display import html_table
from treetop.errors import ModelFileError
from treetop.files import sync_folder
from treetop.model.contents import model_fields, model_numbers, read_arrays
from treetop.model.coverage import NAMES as COVERAGE
from treetop.model.coverage import Coverage
from treetop.model.learned_routing import LearnedRouting
from treetop.model.measure import Measure, check_vectors, first_map, measured_routing
from treetop.model.pooled_state import PooledState
from treetop.model.prior import Prior
from treetop.model.routing import fit_routing, geometric_routing
from treetop.model.serving import add_terms, plain_engine
from treetop.model.storage import (
    CSR,
    SERVING,
    forget_pages,
    identity,
    map_layout,
    model_manifest,
    swap,
    why_not_replaceable,
    write_array,
    write_layout,
    write_manifest,
)
from treetop.tree.tree import Tree
from treetop.tree.vectors import check_metric, dense_vectors

MADE = ("engine", "routing", "rewards", "layout", "own_folder")  # on first use, from the fields, or by `backed_by`


@dataclass(frozen=True, eq=False, kw_only=True)
class Model:
    """What one epoch decides with; `pooled` is what treetop's own learner adds to the paper's.

    `route_rows` has a row a node, and a row an arm behind them where arms have routing functions of their own;
    `reward_rows` a row a node, then a row an arm; columns: features, then the bias. `learned_routing` is what a learner
    that refits routing keeps.
    `feature_scale` says how large each feature has been, None if nobody knows.
    `measure` says how contexts and items are compared, if the owner has vectors; `item_vectors` (n_arms, dims) are
    those of the arms, and have a say in the scores of treetop's learner. `context_map` (context_dims, dims) leads from
    the space of contexts to that of the items, where these differ. `coverage` says what each arm covers, for policies
    with `diversity`. `prior` is what the owner of a bandit's first model knew, to which refits add what rewards say.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/monday")
    ...     Model.load(f"{folder}/monday").tree
    Tree(4 arms, 3 nodes, depth 1)
    """

    tree: Tree
    route_rows: Rows
    reward_rows: Rows
    epoch: int = 0
    n_seen: int = 0
    geometric: bool = False
    pooled: PooledState | None = None
    feature_scale: Float32s | None = None
    learned_routing: LearnedRouting | None = None
    measure: Measure | None = None
    item_vectors: Float32s | None = None
    context_map: Float32s | None = None
    coverage: Coverage | None = None
    prior: Prior | None = None

    def __post_init__(self) -> None:
        nodes, arms = self.tree.n_nodes, self.tree.n_arms
        if self.route_rows.columns < 1:
            raise ValueError("routing has 0 columns; there must be at least 1, the bias")
        routed = nodes + arms if self.has_arm_routes else nodes
        prior = [] if self.prior is None else [("the owner's rewards", self.prior.rows, nodes + arms)]
        known = ("routing", self.route_rows, routed), ("rewards", self.reward_rows, nodes + arms)
        for name, rows, wanted in (*known, *prior):
            if (len(rows), rows.columns) != (wanted, self.route_rows.columns):
                raise ValueError(
                    f"{name} have shape {(len(rows), rows.columns)}; {nodes} nodes and {arms} arms with "
                    f"{self.n_features} features need {(wanted, self.route_rows.columns)}"
                )
            if not _core.inspect_rows(rows.start, rows.index, rows.value, rows.columns, name):
                raise ValueError(f"{name}: indices must rise strictly in every row")
            if isinstance(rows, Fitted) and len(rows.fingerprints) != wanted:
                raise ValueError(f"{len(rows.fingerprints)} fingerprints of {name}; there are {wanted} rows")
        if self.pooled is not None:
            self.pooled.check_fits(arms, nodes)
        if self.learned_routing is not None:
            self.learned_routing.check_fits(nodes, arms, self.route_rows.columns)
        if (scale := self.feature_scale) is not None:
            if scale.shape != (self.n_features,):
                raise ValueError(f"the scale of {len(scale)} features does not fit a model of {self.n_features}")
            if len(scale) and not (scale.min() > 0 and scale.max() < np.inf):
                raise ValueError(f"scales of features from {scale.min():g} to {scale.max():g}; each must be positive")
        self._check_measure()
        if self.coverage is not None:
            self.coverage.check_fits(arms)
        check_int("epoch", self.epoch, 0, 2**62)
        check_int("n_seen", self.n_seen, 0, 2**62)
        if not isinstance(self.geometric, bool):
            raise TypeError(f"geometric must be True or False, not {self.geometric!r}")
        if self.geometric and self.has_arm_routes:
            raise ValueError(f"geometric routing has {len(self.route_rows)} rows; there are {nodes} nodes")
        if self.geometric:
            radius = self.route_rows.value[self.route_rows.index == self.n_features]
            if (radius < 0).any():
                raise ValueError(f"routing: the radius {radius.min():g} in the last column must be at least 0")

    def _check_measure(self) -> None:
        measure, items = self.measure, self.item_vectors
        if measure is not None:
            measure.check_fits(self.n_features)
            if measure.routes and (self.geometric or self.has_arm_routes):
                raise ValueError("routing is by the owner's measure, by geometry or down to arms: one of the three")
        check_vectors(measure, items, self.context_map, self.n_arms)
        if self.pooled is not None and (self.pooled.measure_means is None) != (items is None):
            raise ValueError(
                "the learner's state knows the owner's measure where there are item vectors, and only there"
            )

    @classmethod
    def initial(cls, tree: Tree, X: Matrix, Y: Matrix, **routing: Any) -> Model:
        """Epoch 0: routing fitted on a supervised set (see fit_routing for its settings), reward models still empty."""
        return cls.unlearned(tree, fit_routing(tree, X, Y, **routing))

    @classmethod
    def from_vectors(
        cls,
        tree: Tree,
        vectors: Matrix,
        metric: str | None = None,
        *,
        n_features: int | None = None,
        first: int = 0,
        context_dims: int = 0,
    ) -> Model:
        """Epoch 0 with geometric routing: contexts and arms live in one space (the paper's motivating example).

        With `metric`, "cosine", "inner_product" or "euclidean", routing finds what that measure ranks highest, and
        scores start at it. A context then has `n_features` columns, of which those from `first` on are its vector. With
        `context_dims` that vector has so many numbers and lies in another space than the items': the map is learned.

        >>> arms = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]
        >>> Model.from_vectors(Tree.from_vectors(arms, max_leaf=2), arms).geometric
        True
        >>> tree = Tree.from_vectors(arms, max_leaf=2, metric="cosine")
        >>> model = Model.from_vectors(tree, arms, "cosine", n_features=3)  # a vector and one feature more
        >>> model.measure, model.item_vectors.shape
        (Measure(metric='cosine', dims=2, first=0, scale=1.0, routes=True, context_dims=0), (4, 2))
        """
        if metric is None:
            if first or context_dims or n_features is not None:
                raise ValueError("n_features, first and context_dims are for a metric; else a context is a vector")
            return cls.unlearned(tree, geometric_routing(tree, vectors), geometric=True)
        dense = dense_vectors(vectors)
        if len(dense) != tree.n_arms:
            raise ValueError(f"there are {len(dense)} arm vectors; the tree has {tree.n_arms} arms")
        measure = Measure.of(dense, check_metric(metric), check_int("first", first, 0), context_dims)
        columns = sum(measure.place) if n_features is None else check_int("n_features", n_features, 1)
        measure.check_fits(columns)
        items, map_ = measure.item_vectors(dense), first_map(measure)
        model = cls.unlearned(tree, measured_routing(tree, items, measure, columns, map_))
        untaught = PooledState.untaught(tree.n_arms, measure)
        return replace(model, measure=measure, item_vectors=items, context_map=map_, pooled=untaught)

    @classmethod
    def from_weights(
        cls, tree: Tree, routing: Matrix, rewards: Matrix, epoch: int = 0, n_seen: int = 0, geometric: bool = False
    ) -> Model:
        """A model from matrices made elsewhere, in the shapes of `routing` and `rewards`.

        >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2])
        >>> Model.from_weights(tree, routing=np.zeros((3, 2)), rewards=np.ones((5, 2)), epoch=3).epoch
        3
        """
        return cls(
            tree=tree,
            route_rows=as_rows(routing, what="routing"),
            reward_rows=as_rows(rewards, what="rewards"),
            epoch=epoch,
            n_seen=n_seen,
            geometric=geometric,
        )

    @classmethod
    def unlearned(cls, tree: Tree, routing: Rows, geometric: bool = False) -> Model:
        """A tree and its routing alone: reward models still empty.

        >>> Model.unlearned(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), as_rows(np.eye(3))).rewards.nnz
        0
        """
        rewards = Rows(
            np.zeros(tree.n_nodes + tree.n_arms + 1, np.int64),
            np.zeros(0, np.int32),
            np.zeros(0, np.float32),
            routing.columns,
        )
        return cls(tree=tree, route_rows=routing, reward_rows=rewards, geometric=geometric)

    @property
    def n_features(self) -> int:
        return self.route_rows.columns - 1

    @property
    def n_arms(self) -> int:
        return self.tree.n_arms

    @property
    def has_new_arms(self) -> bool:
        """Whether arms were added to it, whose trials are counted."""
        return self.pooled is not None and self.pooled.new_trials is not None

    @property
    def has_arm_routes(self) -> bool:
        """Whether routing ends at the arm, not at its leaf."""
        return len(self.route_rows) != self.tree.n_nodes

    @property
    def path_weight(self) -> float:
        """How much the path counts in the route of an arm with a routing function of its own."""
        return 1.0 if self.learned_routing is None else self.learned_routing.path_weight

    @cached_property
    def routing(self) -> sp.csr_matrix:
        """(n_nodes, d + 1): a linear function of [x; 1] per node, or its centre and radius if `geometric`."""
        return self.route_rows.head(self.tree.n_nodes).csr()

    @cached_property
    def rewards(self) -> sp.csr_matrix:
        """(n_nodes + n_arms, d + 1): the reward model of every node, then of every arm; no data, no weights."""
        return self.reward_rows.csr()

    @cached_property
    def engine(self) -> _core.Engine:
        """The weights in the order in which a decision reads them; shared by threads. A loaded model has them in a
        memory-mapped file, any other makes them at its first decision."""
        engine = self._plain_engine()
        engine.set_path_weight(self.path_weight)
        add_terms(engine, self.pooled, self.measure, self.item_vectors, self.context_map, self.coverage)
        return engine

    def _plain_engine(self) -> _core.Engine:
        own: Path | None = self.__dict__.get("own_folder")
        layout, file = self.__dict__.get("layout"), "" if own is None else str(own / SERVING)
        return plain_engine(self.tree, self.route_rows, self.reward_rows, self.geometric, layout, file)

    def __getstate__(self) -> dict[str, Any]:
        """To be pickled: without what is made again on first use."""
        return {name: value for name, value in self.__dict__.items() if name not in MADE}

    def __repr__(self) -> str:
        weights = len(self.route_rows.value) + len(self.reward_rows.value)
        return f"Model(epoch {self.epoch}, {self.n_seen:,} rounds seen, {self.tree}, {weights:,} weights)"

    def _repr_html_(self) -> str:
        facts = {
            "epoch": self.epoch,
            "rounds seen": self.n_seen,
            "arms": self.n_arms,
            "features": self.n_features,
            "nodes": self.tree.n_nodes,
            "levels below the root": self.tree.depth,
            "routing": "geometric" if self.geometric else "to the arms" if self.has_arm_routes else "to the leaves",
            "routing weights": len(self.route_rows.value),
            "reward weights": len(self.reward_rows.value),
        }
        return html_table("model", {"": list(facts), " ": list(facts.values())})

    def backed_by(self, folder: Path) -> Model:
        """The same model, whose serving layout is made in a file of this folder, not in memory.

        The folder is its own and stays while it is used: `save` gives files there another name instead of copying.

        >>> X = np.eye(2, dtype=np.float32)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model = Model.initial(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), X, X).backed_by(Path(folder))
        ...     model.save(f"{folder}/monday")
        """
        backed = replace(self)
        backed.__dict__["own_folder"] = folder
        return backed

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model beside `folder` and renames it into place; an older model there is replaced.

        The folder holds the plain arrays and the serving layout, which is made for it if no decision has made it yet.
        """
        target = Path(folder)
        if target.exists() and (what := why_not_replaceable(target)):
            raise FileExistsError(f"{target} {what}; nothing was written")
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            fresh = work / "new"
            fresh.mkdir()
            own: Path | None = self.__dict__.get("own_folder")
            files = {name: write_array(fresh / f"{name}.npy", array, own) for name, array in self._arrays().items()}
            made = self.engine if own else self.__dict__.get("engine") or self._plain_engine()  # in a file: made once
            layout = write_layout(fresh / SERVING, made.layout(), files, own and own / SERVING)
            write_manifest(fresh, {**model_numbers(self), "files": files, "serving": layout})
            swap(fresh, target, work / "old")
            sync_folder(target.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        r, w = self.route_rows, self.reward_rows
        return {
            "parents": self.tree.parents,
            "leaf_of": self.tree.leaf_of,
            **{f"routing_{name}": getattr(r, name) for name in CSR},
            **{f"rewards_{name}": getattr(w, name) for name in CSR},
            **({"routing_fingerprints": r.fingerprints} if isinstance(r, Fitted) else {}),
            **({"rewards_fingerprints": w.fingerprints} if isinstance(w, Fitted) else {}),
            **({"feature_scale": self.feature_scale} if self.feature_scale is not None else {}),
            **({"item_vectors": self.item_vectors.reshape(-1)} if self.item_vectors is not None else {}),
            **({"context_map": self.context_map.reshape(-1)} if self.context_map is not None else {}),
            **({f"coverage_{name}": getattr(self.coverage, name) for name in COVERAGE} if self.coverage else {}),
            **(self.prior.arrays() if self.prior else {}),
            **(self.pooled.arrays() if self.pooled else {}),
            **(self.learned_routing.arrays() if self.learned_routing else {}),
        }

    @classmethod
    def load(cls, folder: str | os.PathLike[str], *, layout: bool = True) -> Model:
        """Opens a saved model: sizes, checksums and indices are checked, arrays and layout stay memory-mapped.

        Several processes that load one folder share its memory. With `layout=False` the layout is not read but made
        again by the first decision, in memory of its own: for a folder in which that file is damaged.
        """
        source = Path(folder)
        for _ in range(100):
            before = identity(source)
            try:
                return cls._open(source, model_manifest(source), layout)
            except ModelFileError:
                if identity(source) == before:
                    raise  # otherwise a newer model took its place while this one was being read
        raise ModelFileError(f"{source}: replaced again and again while it was being read")

    @classmethod
    def _open(cls, source: Path, manifest: dict[str, Any], with_layout: bool) -> Model:
        try:
            arrays = read_arrays(source, manifest)
            model = cls(**model_fields(arrays, manifest))
            for array in arrays.values():
                forget_pages(array)
            if with_layout and (layout := map_layout(source, manifest)) is not None:
                model.__dict__["layout"] = layout
                _ = model.engine  # which checks the layout
            return model
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ModelFileError(f"{source}: not a valid model: {error}") from error
