"""Contexts that new arms are right for, as their owner gives them: labelled rows that come later."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Bools, Ints, Matrix, Rows, as_rows
from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder
from treetop.bandit.snapshot import Snapshot
from treetop.bandit.vocabulary import Vocabulary
from treetop.learning.label_samples import LabelSamples
from treetop.model.model import Model
from treetop.tree.labels import pifa

Examples: TypeAlias = Sequence[Sequence[Mapping[str, Any]] | Matrix | None]  # of each arm: contexts, listed or a matrix


def example_rows(
    examples: Examples | None, arms: int, vocabulary: Vocabulary, row: Callable[[Any], Rows]
) -> tuple[Ints, Rows]:
    """The examples of so many arms as rows, with the place of each one's arm among them; `row` reads a context that is
    given by name.

    >>> place, rows = example_rows([[[1.0, 0.0], [0.0, 2.0]], None], 2, Vocabulary(2), as_rows)
    >>> place, rows.csr().toarray().tolist()
    (array([0, 0], dtype=int32), [[1.0, 0.0], [0.0, 2.0]])
    >>> example_rows([{"mint": 1.0}], 1, Vocabulary(2), as_rows)
    Traceback (most recent call last):
    TypeError: the examples of new arm 0 must be a list of contexts, not {'mint': 1.0}
    """
    if examples is None:
        examples = [None] * arms
    if isinstance(examples, Mapping | str | bytes) or sp.issparse(examples) or len(examples) != arms:
        raise ValueError(f"examples must be a list with one list of contexts for each of {arms} arms")
    found, counts = [sp.csr_matrix(np.zeros((0, vocabulary.columns), np.float32))], list[int]()
    for arm, some in enumerate(examples):
        if isinstance(some, Mapping | str | bytes):
            raise TypeError(f"the examples of new arm {arm} must be a list of contexts, not {some!r}")
        if some is not None and not (isinstance(some, Sequence) and len(some) == 0):
            try:
                found.append(_contexts(some, vocabulary, row).csr())
            except (ValueError, TypeError) as error:
                raise type(error)(f"the examples of new arm {arm}: {error}") from None
            counts.append(found[-1].shape[0])
        else:
            counts.append(0)
    return np.repeat(np.arange(arms, dtype=np.int32), counts), as_rows(sp.vstack(found, format="csr"))


def _contexts(some: Any, vocabulary: Vocabulary, row: Callable[[Any], Rows]) -> Rows:
    """Contexts by name or as rows, or as numbers for all columns that have a name or for all."""
    if isinstance(some, Sequence) and any(isinstance(x, Mapping | Rows) for x in some):
        each = [x if isinstance(x, Rows) else row(x) for x in some]
        some = sp.vstack([x.csr() for x in each], format="csr")
    rows = as_rows(some)
    if rows.columns not in (vocabulary.given, vocabulary.columns):
        raise ValueError(f"contexts have {rows.columns} features; the model has {vocabulary.given}")
    return replace(rows, columns=vocabulary.columns)


def labels_of(folder: BanditFolder, config: Config, model: Model, now: Snapshot) -> LabelSamples:
    """The labelled rows that refits learn now. Raises ValueError if there are none, to which others could be added.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     len(labels_of(tea.folder, tea.config, tea.snapshot.model, tea.snapshot).contexts)
    4
    """
    if config.learner.uses_label_samples:
        labels = folder.label_samples(model, now.arms.is_removed, now.attributes)
        if len(labels):
            return labels
    raise ValueError(
        "examples are labelled rows, and this bandit learns none: it was created without (X and Y), or label_samples "
        "is false in [learner]. Give vectors, categories or like instead"
    )


def placed_by_examples(vectors: Rows | None, place: Ints, contexts: Matrix, apart: Bools) -> Rows | None:
    """The vectors of new arms, with the mean of its examples for each that has none and is not to stand `apart`.

    >>> placed_by_examples(None, np.array([1], np.int32), [[0.0, 2.0]], np.array([False, False])).csr().toarray()
    array([[0., 0.],
           [0., 1.]], dtype=float32)
    """
    if vectors is not None:
        apart = apart | (np.diff(vectors.start) > 0)
    taken = ~apart[place]
    if not taken.any():
        return vectors
    labels = sp.csr_matrix((np.ones(len(place), np.float32), (np.arange(len(place)), place)), (len(place), len(apart)))
    means = pifa(as_rows(contexts).csr()[taken], labels[taken])
    return means if vectors is None else as_rows(vectors.csr() + means.csr())
