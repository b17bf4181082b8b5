"""The arms that a bandit is created with, as the user describes them. Knows nothing of models or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from treetop.arrays import Matrix, as_rows
from treetop.bandit.arm_index import ArmId, ArmIndex
from treetop.tree.vectors import check_metric


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The arms of a new bandit; arm i has the id `ids[i]` and the vector `vectors[i]`.

    `ids` are text or whole numbers, each used once; without them the arms are called 0, 1, 2, ... `vectors` (n_arms,
    n_features) lie in the space of the contexts: the tree groups arms with similar ones. Both are optional where the
    arms are known from labels or from a model. `metric` is how the owner compares a context with an item: "cosine",
    "inner_product" or "euclidean"; scores start there.

    >>> import numpy as np
    >>> Catalogue(["mint", "rose"], vectors=np.eye(2))
    Catalogue(2 ids, 2 vectors)
    >>> Catalogue(["mint", "mint"])
    Traceback (most recent call last):
    ValueError: there is already an arm 'mint' in the catalogue; an id is used once, for ever
    """

    ids: Sequence[ArmId] | None = None
    vectors: Matrix | None = None
    metric: str = "cosine"

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if self.ids is not None:
            object.__setattr__(self, "ids", ArmIndex.of(self.ids).ids)
        if self.vectors is not None:
            object.__setattr__(self, "vectors", as_rows(self.vectors, what="arm vectors"))
        if self.ids is not None and self.vectors is not None and len(self.ids) != len(self.vectors):
            raise ValueError(f"{len(self.ids)} ids for {len(self.vectors)} vectors")

    def __repr__(self) -> str:
        ids = "no" if self.ids is None else f"{len(self.ids):,}"
        vectors = "no" if self.vectors is None else f"{len(self.vectors):,}"
        return f"Catalogue({ids} ids, {vectors} vectors)"

    @classmethod
    def of(cls, arms: Catalogue | Sequence[ArmId] | None) -> Catalogue:
        """A catalogue as it is, or one from a plain list of ids.

        >>> Catalogue.of(["mint", "rose"])
        Catalogue(2 ids, no vectors)
        """
        return arms if isinstance(arms, Catalogue) else cls(arms)

    def index(self, n_arms: int) -> ArmIndex:
        """The ids with their dense indices, for a model of `n_arms` arms.

        >>> Catalogue().index(2).ids
        (0, 1)
        """
        if self.ids is None:
            return ArmIndex(tuple(range(n_arms)))
        if len(self.ids) != n_arms:
            raise ValueError(f"{len(self.ids)} ids for {n_arms} arms")
        return ArmIndex(tuple(self.ids))
