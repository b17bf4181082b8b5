"""The arms that a bandit is created with, as the user describes them. Knows nothing of models or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from treetop.arrays import Matrix, as_rows
from treetop.bandit.arm_index import ArmId, ArmIndex
from treetop.bandit.attributes import Attributes, AttributeTable, attribute_records
from treetop.tree.categories import Categories
from treetop.tree.vectors import check_magnitude, check_metric


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The arms of a new bandit; arm i has the id `ids[i]`, the vector `vectors[i]`, and so on. All of it is optional.

    `ids` are text or whole numbers, each used once; without them the arms are called 0, 1, 2, ... `vectors` (n_arms,
    n_features) lie in the space of the contexts: the tree groups arms with similar ones. `metric` is how the owner
    compares a context with an item: "cosine", "inner_product" or "euclidean"; scores start there. With
    `same_space=False` contexts have vectors of another space than items: how one leads to the other is learned from
    rewards. `categories` are paths such as "dept 3 > cat 7" or ["dept 3", "cat 7"], None for an arm without: the tree
    follows them. `attributes` has a list of values for each name, which requests may ask for: true or false, numbers,
    or text, None for no value.

    >>> import numpy as np
    >>> Catalogue(["mint", "rose"], vectors=np.eye(2))
    Catalogue(2 ids, 2 vectors)
    >>> Catalogue(["mint", "rose"], categories=["tea > green", "tea"], attributes={"price": [4.5, 6]})
    Catalogue(2 ids, no vectors, 2 categories, attributes price)
    >>> Catalogue(["mint", "mint"])
    Traceback (most recent call last):
    ValueError: arm 'mint' is listed twice
    """

    ids: Sequence[ArmId] | None = None
    vectors: Matrix | None = None
    categories: Sequence[str | Sequence[str] | None] | None = None
    attributes: Attributes | None = None
    metric: str = "cosine"
    same_space: bool = True

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if not isinstance(self.same_space, bool):
            raise TypeError(f"same_space must be True or False, not {self.same_space!r}")
        if self.ids is not None:
            object.__setattr__(self, "ids", ArmIndex.of(self.ids).ids)
        if self.vectors is not None:
            rows = as_rows(self.vectors, what="arm vectors")
            check_magnitude(rows.value, self.metric)
            object.__setattr__(self, "vectors", rows)
        if self.ids is not None and self.vectors is not None and len(self.ids) != len(self.vectors):
            raise ValueError(f"{len(self.ids)} ids for {len(self.vectors)} vectors")
        if self.categories is not None and self.n_arms not in (None, len(self.categories)):
            raise ValueError(f"{len(self.categories)} categories for {self.n_arms} arms")
        self.records()

    @property
    def n_arms(self) -> int | None:
        """How many arms it says there are; None if it does not say.

        >>> Catalogue(categories=["tea", "jam"]).n_arms, Catalogue().n_arms
        (2, None)
        """
        return next((len(part) for part in (self.ids, self.vectors, self.categories) if part is not None), None)

    def __repr__(self) -> str:
        ids = "no" if self.ids is None else f"{len(self.ids):,}"
        vectors = "no" if self.vectors is None else f"{len(self.vectors):,}"
        more = "" if self.paths is None else f", {len(self.paths.paths):,} categories"
        more += f", attributes {', '.join(self.attributes)}" if self.attributes else ""
        return f"Catalogue({ids} ids, {vectors} vectors{more})"

    @cached_property
    def paths(self) -> Categories | None:
        """The categories, as paths with a number for each arm; None if there are none."""
        return None if self.categories is None else Categories.of(self.categories)

    def records(self) -> bytes:
        """Categories and attributes as records of attributes.bin. Raises ValueError for values that cannot be kept.

        >>> Catalogue(["mint"]).records(), Catalogue(["mint"], categories=["tea"]).records()[:20]
        (b'', b'{"column": "category')
        """
        if self.categories is None and not self.attributes:
            return b""
        n_arms = self.n_arms
        if n_arms is None:
            n_arms = len(next(iter(self.attributes.values()))) if self.attributes else 0
        return attribute_records(np.arange(n_arms, dtype=np.int32), self.categories, self.attributes, AttributeTable())

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
        described = {
            "categories": self.categories,
            **{f"attribute {n!r}": v for n, v in (self.attributes or {}).items()},
        }
        for name, values in described.items():
            if values is not None and len(values) != n_arms:
                raise ValueError(f"{name}: {len(values)} values for {n_arms} arms")
        if self.ids is None:
            return ArmIndex(tuple(range(n_arms)))
        if len(self.ids) != n_arms:
            raise ValueError(f"{len(self.ids)} ids for {n_arms} arms")
        return ArmIndex(tuple(self.ids))
