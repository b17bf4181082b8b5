"""A bandit's folder, made: first model, catalogue, vocabulary, labels and settings, there in one step or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from treetop.arrays import Matrix, as_rows
from treetop.bandit import config as settings
from treetop.bandit.catalogue import ArmId, Catalogue, Vocabulary, line_added
from treetop.bandit.config import Config
from treetop.bandit.folder import CATALOGUE, CURRENT, LABELLED, MODELS, Home, State, name_of
from treetop.files import put, sync_folder
from treetop.learning.label_samples import LabelSamples, save_label_samples
from treetop.learning.refit import initial_fit
from treetop.model.model import Model
from treetop.tree.tree import Tree

VOCABULARY = "vocabulary.json"


def make_folder(
    folder: Path, config: Config, X: Matrix | None = None, Y: Matrix | None = None, vectors: Matrix | None = None,
    model: Model | None = None, arms: Iterable[ArmId] | None = None, features: Iterable[str] | None = None,
    branching: int = 2, seed: int = 0,
) -> None:  # fmt: skip
    """What `Bandit.create` writes, and says of its arguments.

    >>> with tempfile.TemporaryDirectory() as place:
    ...     make_folder(Path(place, "tea"), Config(), vectors=np.eye(3), arms=["mint", "rose", "oolong"])
    ...     sorted(path.name for path in Path(place, "tea").glob("[!.]*"))
    ['catalogue.jsonl', 'config.toml', 'current', 'history.jsonl', 'models']
    """
    made = _first_model(X, Y, vectors, model, config.tree.max_leaf, branching, seed, config.learner.takes_labels)
    catalogue = Catalogue.of(range(made.n_arms) if arms is None else arms)
    if len(catalogue) != made.n_arms:
        raise ValueError(f"{len(catalogue)} ids for {made.n_arms} arms")
    names = None if features is None else tuple(features)
    Vocabulary(made.n_features, names)
    known = _labels(made, X, Y, config)
    if known is not None and made.n_seen == 0:
        made = initial_fit(made, config.learner.regressor(known))
    config = replace(config, learner=replace(config.learner, warm=known is not None))
    _write_folder(folder, made, catalogue, names, config, known)


def _first_model(
    X: Matrix | None, Y: Matrix | None, vectors: Matrix | None, model: Model | None, max_leaf: int, branching: int,
    seed: int, apart: bool,
) -> Model:  # fmt: skip
    if (
        (X is None) != (Y is None)
        or (X is None) + (vectors is None) + (model is None) == 3
        or (vectors is not None and (X is not None or model is not None))
    ):
        raise ValueError("a bandit begins with X and Y, with vectors, or with a model: one of the three")
    if model is not None:
        largest = int(np.bincount(model.tree.leaf_of).max())
        if largest > max_leaf:
            raise ValueError(f"the model has a leaf of {largest} arms; max_leaf is {max_leaf}")
        return model
    if vectors is not None:
        return Model.from_vectors(Tree.from_vectors(vectors, max_leaf, branching, seed), vectors)
    build = Tree.from_labels_separated if apart else Tree.from_labels
    return Model.initial(build(X, Y, max_leaf, branching, seed), X, Y)


def _labels(model: Model, X: Matrix | None, Y: Matrix | None, config: Config) -> LabelSamples | None:
    """What the first model and every refit learn of X and Y."""
    if X is None or Y is None or not config.learner.takes_labels:
        return None
    return LabelSamples.of(model.tree, as_rows(X, model.n_features), Y, beam=config.policy.beam)


def check_new(folder: Path) -> None:
    """Refuses a place that holds something.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     check_new(Path(folder))
    ...     check_new(Path(folder, "not yet there"))
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists and is not an empty folder; nothing was written")


def _write_folder(
    folder: Path, model: Model, catalogue: Catalogue, names: tuple[str, ...] | None, config: Config,
    known: LabelSamples | None,
) -> None:  # fmt: skip
    """All of it beside its place, then there in one step."""
    check_new(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        put(work / settings.CONFIG, lambda file: file.write(settings.text_of(config).encode()))
        lines = line_added(catalogue.ids)
        put(work / CATALOGUE, lambda file: file.write(lines))
        if names is not None:
            put(work / VOCABULARY, lambda file: file.write(json.dumps(names).encode() + b"\n"))
        if known is not None:
            save_label_samples(known, work / LABELLED)
        name = name_of(model.epoch)
        model.save(work / MODELS / name)
        Home(work).note("created", model=name)
        state = State(name, len(lines), model.epoch + 1)
        put(work / CURRENT, lambda file: file.write(json.dumps(asdict(state)).encode() + b"\n"))
        os.replace(work, folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(work, ignore_errors=True)
