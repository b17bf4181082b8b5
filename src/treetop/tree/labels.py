"""Labelled rows, checked, and what they say of arms: the mean of an arm's positive contexts. Builds nothing."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Matrix, Rows, as_rows


def pifa(X: Matrix, Y: Matrix) -> Rows:
    """Positive instance feature aggregation: an arm's vector is the mean of its positive contexts at unit length.

    >>> pifa([[3.0, 4.0], [0.0, 1.0]], [[1, 0], [0, 0]]).csr().toarray()
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    contexts, labels = check_labelled(X, Y)
    sums = (labels.T @ contexts.csr()).tocsr()
    if not np.isfinite(sums.data).all():
        limit = np.finfo(np.float32).max
        raise ValueError(f"the positive contexts of an arm add up beyond the limit {limit:g} of float32")
    arm = np.repeat(np.arange(sums.shape[0]), np.diff(sums.indptr))
    length = np.sqrt(np.bincount(arm, sums.data.astype(np.float64) ** 2, minlength=sums.shape[0]))
    sums.data = (sums.data / np.where(length > 0, length, 1)[arm]).astype(np.float32)
    sums.eliminate_zeros()
    return as_rows(sums, what="arm vectors")


def check_labelled(X: Matrix, Y: Matrix) -> tuple[Rows, sp.csr_matrix]:
    """Contexts and their labels (as ones) of a supervised set, checked against each other.

    >>> contexts, labels = check_labelled([[1.0, 0.0]], [[0.0, 0.5]])
    >>> labels.toarray()
    array([[0., 1.]], dtype=float32)
    """
    contexts, labels = as_rows(X), as_rows(Y, what="labels")
    if len(contexts) != len(labels):
        raise ValueError(f"there are {len(contexts)} contexts, but {len(labels)} rows of labels")
    if len(contexts) == 0:
        raise ValueError("the matrix of contexts is empty: 0 rows")
    for wrong in (labels.value.min(initial=0), labels.value.max(initial=1)):
        if not 0 <= wrong <= 1:
            raise ValueError(f"labels hold {wrong:g}; they must lie in [0, 1], and all but 0 say that an arm was right")
    positive = labels.csr() if labels.value.all() else labels.csr().copy()  # the caller's matrix stays as it is
    positive.data = np.asarray(positive.data != 0, np.float32)
    positive.eliminate_zeros()
    if positive.nnz == 0:
        raise ValueError(f"the label matrix of shape {positive.shape} has no labels; at least 1 is needed")
    return contexts, positive
