"""The bundled real set: packages of Debian 12 as contexts, the packages they depend on as arms. Knows no algorithm.

`data/README.md` says where it comes from; `scripts/build_debian.py` builds it.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from importlib import resources
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[Any]

FILE = "debian.npz"


@dataclass(frozen=True, eq=False)
class DebianData:
    """Row i is package `context_names[i]`: what it is about in X, what it depends on in Y.

    Rows stand in the order of their sources, so neighbours are alike: shuffle before you cut. Arms are in alphabetical
    order, so an arm's number says nothing about its popularity.

    >>> data = load_debian()
    >>> row = data.context_names.index("python3-requests")
    >>> data.descriptions[row]
    'elegant and simple HTTP library for Python3, built for human beings'
    >>> [data.arm_names[arm] for arm in data.Y[row].indices][:2]
    ['ca-certificates', 'python3']
    """

    X: sp.csr_matrix  # float32: sublinear tf-idf of name and description, rows of length 1
    Y: sp.csr_matrix  # float32: ones
    arm_names: tuple[str, ...]
    context_names: tuple[str, ...]
    descriptions: tuple[str, ...]
    feature_names: tuple[str, ...]


def load_debian() -> DebianData:
    """The set that comes with treetop.

    >>> load_debian().Y.shape
    (53413, 34773)
    """
    folder = resources.files("treetop") / "data"
    return decode((folder / FILE).read_bytes(), (folder / f"{FILE}.sha256").read_text().split()[0])


def decode(data: bytes, sha256: str) -> DebianData:
    """The bytes that `scripts/build_debian.py` wrote, if they still have the checksum that it wrote beside them.

    >>> decode(b"not it", "0000")
    Traceback (most recent call last):
    ValueError: debian.npz is corrupt: 6 bytes with sha256 ...
    """
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise ValueError(
            f"{FILE} is corrupt: {len(data)} bytes with sha256 {found} where {sha256} is needed; install treetop again"
        )
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        arms, contexts, descriptions, features = (
            tuple(file[key].tobytes().decode().split("\n")) for key in ("arms", "contexts", "descriptions", "features")
        )
        counts = _unpack(file["x_counts"], file["x_gaps"], file["x_lengths"], len(features))
        labels = _unpack(np.ones(len(file["y_gaps"])), file["y_gaps"], file["y_lengths"], len(arms))
    return DebianData(tf_idf(counts), labels, arms, contexts, descriptions, features)


def tf_idf(counts: sp.csr_matrix) -> sp.csr_matrix:
    """(1 + ln count) * (1 + ln((1 + n) / (1 + df))), rows scaled to length 1; a row without terms stays empty.

    >>> tf_idf(sp.csr_matrix(np.array([[3, 0], [0, 1]], np.float32))).toarray()
    array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    n, d = counts.shape
    df = np.bincount(counts.indices, minlength=d)
    idf = 1 + np.log((1 + n) / (1 + df))
    values = (1 + np.log(counts.data, dtype=np.float64)) * idf[counts.indices]
    row_of = np.repeat(np.arange(n), np.diff(counts.indptr))
    values /= np.sqrt(np.bincount(row_of, values**2, minlength=n))[row_of]
    return _csr(values, counts.indices, counts.indptr, d)


def _unpack(values: Numbers, gaps: Numbers, lengths: Numbers, columns: int) -> sp.csr_matrix:
    """Gaps to indices: a running sum that begins anew in each row."""
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    total = np.concatenate([[0], np.cumsum(gaps, dtype=np.int64)])
    return _csr(values, total[1:] - np.repeat(total[indptr[:-1]], lengths), indptr, columns)


def _csr(values: Numbers, indices: Numbers, indptr: Numbers, columns: int) -> sp.csr_matrix:
    """A float32 matrix with int32 indices, which are known to be sorted and distinct."""
    parts = values.astype(np.float32), indices.astype(np.int32), indptr.astype(np.int32)
    matrix = sp.csr_matrix(parts, shape=(len(indptr) - 1, columns), copy=False)
    matrix.has_canonical_format = True
    return matrix
