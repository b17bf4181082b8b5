"""Creates a bandit's folder: first model, arm ids, vocabulary, labels and settings, in one step or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from treetop.arrays import Matrix, Rows, as_rows
from treetop.bandit.arm_index import ArmIndex, line_added
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, TreeConfig
from treetop.bandit.config_file import CONFIG, config_text
from treetop.bandit.folder import (
    ATTRIBUTES,
    CATALOGUE,
    CURRENT,
    LABEL_SAMPLES,
    MODELS,
    VOCABULARY,
    BanditFolder,
    model_name,
)
from treetop.bandit.growth import constant_rows
from treetop.bandit.rebuilding import check_rebuild_setting
from treetop.bandit.state import FolderState, ModelOrigin
from treetop.bandit.vocabulary import VECTOR, Parts, Vocabulary, part_names
from treetop.files import locked, put, sync_folder
from treetop.learning.label_samples import LabelSamples, save_label_samples
from treetop.learning.refit import initial_fit
from treetop.model.coverage import Coverage
from treetop.model.feature_scale import feature_scale
from treetop.model.measure import Measure, first_map
from treetop.model.model import Model
from treetop.model.pooled_state import PooledState
from treetop.model.prior import Prior
from treetop.tree.categories import Categories
from treetop.tree.labels import pifa
from treetop.tree.tree import Tree, usual_max_leaf
from treetop.tree.vectors import dense_vectors

Step: TypeAlias = Callable[[str], object]  # told what is being made


@dataclass(frozen=True, eq=False)
class Contents:
    """What a new folder holds. `names` are those of the features, None if they have none."""

    config: Config
    model: Model
    arms: ArmIndex
    names: tuple[str, ...] | None
    label_samples: LabelSamples | None
    attributes: bytes = b""  # records of attributes.bin


def create_folder(
    folder: Path,
    catalogue: Catalogue,
    X: Matrix | None = None,
    Y: Matrix | None = None,
    features: Iterable[str] | Parts | None = None,
    model: Model | None = None,
    config: Config | None = None,
    progress: Step | None = None,
) -> None:
    """Writes the folder of a new bandit; the arguments are those of `Bandit.create`, and
    `progress` is told what is being made.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     create_folder(Path(place, "tea"), Catalogue(["mint", "rose", "oolong"], vectors=np.eye(3)))
    ...     sorted(path.name for path in Path(place, "tea").glob("[!.]*"))
    ['catalogue.jsonl', 'config.toml', 'current', 'history.jsonl', 'models']
    """
    config = _with_leaf(config or Config(), catalogue, Y, model)
    say, room = progress or (lambda step: None), config.features.grow_features
    names = _names(features, catalogue, alone=room > 0 and X is None and model is None)
    if room:
        if model is not None or (names is None and X is not None):
            raise ValueError("grow_features needs names of the features that there are, and a model made here")
        names, X = names or (), None if X is None else _widened(X, room)
    first = _first_model(catalogue, X, Y, model, config, names, say)
    arms = catalogue.index(first.n_arms)
    vocabulary = Vocabulary(first.n_features, names, reserved=room)
    # Of contexts that are compared with items by a measure nobody knows how large they are.
    if (shown := catalogue.vectors if X is None else X) is not None and first.measure is None:
        first = replace(first, feature_scale=feature_scale(as_rows(shown, first.n_features)))
    if first.coverage is None:
        first = replace(first, coverage=_coverage(catalogue, config))
    check_rebuild_setting(first, config)
    say("the first model")
    samples = _label_samples(first, X, Y, config)
    if samples is None or first.pooled is None:
        first = _with_prior(first)
    if samples is None and model is None and catalogue.vectors is None and config.learner.uses_label_samples:
        samples = _no_labels(first.n_features)  # with them, rounds teach routing, which is open everywhere
    elif samples is not None and first.n_seen == 0:
        first = initial_fit(first, config.learner.make_learner(samples, tuple(vocabulary.vectors.values())))
    config = replace(config, learner=replace(config.learner, label_samples=samples is not None))
    say("the folder")
    _write(folder, Contents(config, first, arms, names, samples, catalogue.records()))


def _with_leaf(config: Config, catalogue: Catalogue, Y: Matrix | None, model: Model | None) -> Config:
    """The settings with how many arms a leaf may have. A model has its leaves already."""
    leaf = config.tree.leaf_limit
    if config.tree.max_leaf is None and model is None and Y is not None:
        leaf = usual_max_leaf(as_rows(Y, what="labels").columns, labelled=catalogue.vectors is None)
    return replace(config, tree=replace(config.tree, max_leaf=leaf))


def _with_prior(model: Model) -> Model:
    """The model with what it knows by now as what its owner knew. Reward models that a learner fits have that in them,
    which these were not fitted with."""
    if (prior := Prior.of(model.reward_rows, model.pooled)) is None:
        return model
    r = model.reward_rows
    return replace(model, prior=prior, reward_rows=Rows(r.start, r.index, r.value, r.columns))


def _coverage(catalogue: Catalogue, config: Config) -> Coverage | None:
    """What the arms cover: their categories, or directions of their vectors if the settings go by it."""
    if (paths := catalogue.paths) is not None:
        return Coverage.of_categories([paths.paths[code] or None for code in paths.code.tolist()])
    if not (config.policy.diversity or config.rewards.saturates):
        return None
    if catalogue.vectors is None:
        asked = f"diversity is {config.policy.diversity:g}" if config.policy.diversity else "saturates is true"
        raise ValueError(f"{asked}; it needs a catalogue with categories or vectors")
    return Coverage.of_vectors(catalogue.vectors)


def check_coverage(model: Model, config: Config) -> None:
    """Raises ValueError if rewards are said to saturate where nothing says which arms are alike.

    >>> check_coverage(Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4)), Config())
    """
    if config.rewards.saturates and model.coverage is None:
        raise ValueError(
            "saturates is true in [rewards], and the bandit does not know which arms are alike: it has no categories, "
            "and was created without saturates. Set it to false, or create the bandit anew"
        )


def _widened(X: Matrix, columns: int) -> Matrix:
    """Contexts with so many more columns, which are empty."""
    rows = as_rows(X)
    return Rows(rows.start, rows.index, rows.value, rows.columns + columns).csr()


def _first_model(
    catalogue: Catalogue,
    X: Matrix | None,
    Y: Matrix | None,
    model: Model | None,
    config: Config,
    names: tuple[str, ...] | None,
    say: Step,
) -> Model:
    """The model given, or one built from what there is. A model comes with its tree, and perhaps with its labels.

    The tree follows categories, else vectors, else labels; routing is fitted to labels, else follows vectors, and
    without either is open everywhere, for contexts with features of these names.
    """
    vectors, tree = catalogue.vectors, config.tree
    if (X is None) != (Y is None):
        raise ValueError("labels are X and Y: contexts, and which arms were right for each")
    if model is not None and vectors is not None:
        raise ValueError("a bandit starts from a catalogue's vectors or from a model with its tree: not from both")
    if model is not None:
        _check_unused(tree)
        largest = int(np.bincount(model.tree.leaf_of).max())
        limit = 2 * tree.leaf_limit if model.has_new_arms else tree.leaf_limit  # where arms come and go: `grow`
        if largest > limit:
            raise ValueError(
                f"the model has a leaf of {largest} arms; max_leaf is {tree.leaf_limit}: set it to {largest}"
            )
        return model
    if X is None and catalogue.n_arms is None:
        raise ValueError("a bandit starts from X and Y, from a catalogue or from a model; there is none of them")
    say("the tree")
    if X is not None and Y is not None:
        built = _tree(catalogue, X, Y, config)
        say("routing")
        labelled = Model.initial(built, X, Y)
        return labelled if vectors is None or config.learner.name == "paper" else _measured(labelled, catalogue, names)
    if vectors is not None:
        return _from_vectors(catalogue, config, names, say)
    built = _tree(catalogue, X, Y, config)
    columns = len(names or ()) + config.features.grow_features
    return Model.unlearned(built, constant_rows(built.n_nodes, 1.0, columns + 1))


def _tree(catalogue: Catalogue, X: Matrix | None, Y: Matrix | None, config: Config) -> Tree:
    how = config.tree.leaf_limit, config.tree.branching, config.tree.seed
    vectors, categories = catalogue.vectors, catalogue.paths
    if categories is not None:
        return categories.tree(*how, vectors if vectors is not None or X is None else pifa(X, Y))
    if vectors is not None:
        return Tree.from_vectors(vectors, *how)
    if X is None:
        return Categories.of([None] * (catalogue.n_arms or 0)).tree(*how)
    build = Tree.from_labels if config.learner.name == "paper" else Tree.from_labels_flattened
    build = Tree.from_labels_separated if config.learner.uses_label_samples else build
    return build(X, Y, *how)


def _from_vectors(catalogue: Catalogue, config: Config, names: tuple[str, ...] | None, say: Step) -> Model:
    """For treetop's learner by the owner's measure, for the paper's with the geometry of Section 4."""
    vectors, tree = as_rows(catalogue.vectors), config.tree
    if config.learner.name == "paper":
        if catalogue.metric != Catalogue().metric:
            raise ValueError(f"metric is {catalogue.metric!r}; it is for the learner treetop, not for paper")
        return Model.from_vectors(_tree(catalogue, None, None, config), vectors)
    dense = dense_vectors(vectors)
    if catalogue.paths is not None:
        built = _tree(catalogue, None, None, config)
    else:
        branching = None if tree.branching == TreeConfig().branching else tree.branching
        built = Tree.from_vectors(dense, tree.leaf_limit, branching, tree.seed, metric=catalogue.metric)
    first, dims = vector_place(names, vectors.columns)
    other = dims if dims != vectors.columns or not catalogue.same_space else 0
    columns = max(len(names or ()), first + dims) + config.features.grow_features
    say("routing")
    return Model.from_vectors(built, dense, catalogue.metric, n_features=columns, first=first, context_dims=other)


def _measured(model: Model, catalogue: Catalogue, names: tuple[str, ...] | None) -> Model:
    """A model whose routing labels have taught, with the owner's measure as a component of its scores."""
    dense = dense_vectors(as_rows(catalogue.vectors))
    numbers, columns = dense.shape[1], model.n_features if names is None else len(names)
    first, dims = vector_place(names, numbers)
    if (first, dims) == (0, numbers) and columns != numbers and not _has_vectors(names):
        raise ValueError(
            f"items have vectors of {numbers} numbers, and contexts {columns} features without a vector to compare "
            f"them with: name one as a part (features), or leave out the items' vectors or the labels"
        )
    other = dims if dims != numbers or not catalogue.same_space else 0
    measure = replace(Measure.of(dense, catalogue.metric, first, other), routes=False)
    return replace(
        model,
        measure=measure,
        item_vectors=measure.item_vectors(dense),
        context_map=first_map(measure),
        pooled=PooledState.untaught(model.n_arms, measure),
    )


def _names(features: Iterable[str] | Parts | None, catalogue: Catalogue, alone: bool = False) -> tuple[str, ...] | None:
    """The names of the features. Parts without any vector get the one that is compared with the items', in front;
    `alone`: also if there are no parts."""
    if features is None and alone and catalogue.vectors is not None:
        features = {}
    if not isinstance(features, Mapping):
        return None if features is None else tuple(features)
    vectors: Any = catalogue.vectors
    if vectors is not None and not any(isinstance(kind, int) for kind in features.values()):
        features = {VECTOR: vectors.columns, **features}
    return part_names(features)


def vector_place(names: tuple[str, ...] | None, dims: int) -> tuple[int, int]:
    """Where contexts have the vector that is compared with items' of `dims`: its first column, and how many it has.

    It is the part called vector, or the only vector that there is; without parts, the first `dims` columns.

    >>> vector_place(("age", "taste[0]", "taste[1]"), 2), vector_place(None, 2)
    ((1, 2), (0, 2))
    """
    parts = {} if names is None else Vocabulary(len(names), names).vectors
    if not parts:
        return 0, dims
    if VECTOR not in parts and len(parts) > 1:
        raise ValueError(f"which of the vectors {', '.join(parts)} is compared with the items'? Call it {VECTOR!r}")
    return parts.get(VECTOR) or next(iter(parts.values()))


def _has_vectors(names: tuple[str, ...] | None) -> bool:
    return names is not None and bool(Vocabulary(len(names), names).vectors)


def _check_unused(tree: TreeConfig) -> None:
    """A model comes with its tree. Raises ValueError for a setting that would change nothing."""
    for name in ("branching", "seed"):
        value, usual = getattr(tree, name), getattr(TreeConfig(), name)
        if value != usual:
            raise ValueError(f"{name} is {value}, but the model's tree is built already: leave {name} at {usual}")


def _label_samples(model: Model, X: Matrix | None, Y: Matrix | None, config: Config) -> LabelSamples | None:
    """The labels as samples for the first model and for every refit; None without labels, or if they are not wanted."""
    if X is None or Y is None or not config.learner.uses_label_samples:
        return None
    return LabelSamples.of(model.tree, as_rows(X, model.n_features), Y, beam=config.policy.beam)


def _no_labels(n_features: int) -> LabelSamples:
    nothing, ints, floats = np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(0)
    return LabelSamples(Rows(np.zeros(1, np.int64), ints, nothing, n_features), ints, ints, nothing, floats, floats)


def check_new(folder: Path) -> None:
    """Raises FileExistsError unless the folder is missing or empty.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_new(Path(folder))
    ...     check_new(Path(folder, "missing"))
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not an empty folder; nothing was written")


def _write(folder: Path, contents: Contents) -> None:
    """Writes everything beside the folder's place, then moves it there in one step.

    What a process that was killed here left has the same name, and is replaced. Raises FolderInUse if another process
    is at it.
    """
    check_new(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = folder.with_name(f".{folder.name}.treetop-new")
    work.mkdir(mode=0o700, exist_ok=True)
    with locked(work):
        check_new(folder)
        try:
            for left in work.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            _fill(work, contents)
            os.replace(work, folder)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    sync_folder(folder.parent)


def _fill(work: Path, contents: Contents) -> None:
    put(work / CONFIG, lambda file: file.write(config_text(contents.config).encode()))
    lines = line_added(contents.arms.ids)
    put(work / CATALOGUE, lambda file: file.write(lines))
    if contents.names is not None:
        put(work / VOCABULARY, lambda file: file.write(json.dumps(contents.names).encode() + b"\n"))
    if contents.label_samples is not None:
        save_label_samples(contents.label_samples, work / LABEL_SAMPLES)
    name = model_name(contents.model.epoch)
    contents.model.save(work / MODELS / name)
    BanditFolder(work).note("created", model=name)
    if contents.attributes:
        put(work / ATTRIBUTES, lambda file: file.write(contents.attributes))
    bandit, size = os.urandom(16).hex(), len(contents.attributes)
    state = FolderState(
        bandit, name, len(lines), contents.model.epoch + 1, {name: ModelOrigin(time=0.0)}, attributes=size
    )
    put(work / CURRENT, lambda file: file.write(state.text()))
