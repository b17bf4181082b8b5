"""Contexts, by names or as numbers, as rows of the model's features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from treetop.arrays import Matrix, Rows
from treetop.bandit.unknown_features import UnknownFeatures
from treetop.bandit.vocabulary import Vocabulary
from treetop.policy.policy import one_row


class ContextRows:
    """The part of `Bandit` that reads contexts."""

    if TYPE_CHECKING:  # what `Bandit` has
        vocabulary: Vocabulary
        unknown: UnknownFeatures

    def row(self, x: Mapping[str, Any] | Matrix) -> Rows:
        """The row of a context, which is given by the names of its parts or as numbers.

        >>> import tempfile
        >>> import numpy as np
        >>> from treetop.bandit.bandit import Bandit
        >>> from treetop.bandit.catalogue import Catalogue
        >>> arms = Catalogue(vectors=np.eye(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Bandit.create(f"{folder}/tea", arms, features=["fresh", "floral"]) as tea:
        ...         tea.row({"floral": 2.0}).csr().toarray().tolist()
        [[0.0, 2.0]]
        """
        return self._read(x)[0]

    def _read(self, x: Mapping[str, Any] | Matrix) -> tuple[Rows, tuple[str, ...]]:
        """The row of a context, and the features that are not in it."""
        if isinstance(x, Mapping):
            row, unknown = self.vocabulary.named(x)
            return row, self.note_unknown(x) if unknown else ()
        row = one_row(x, self.vocabulary.given)
        return row if not self.vocabulary.reserved else replace(row, columns=self.vocabulary.columns), ()

    def note_unknown(self, x: Mapping[str, Any]) -> tuple[str, ...]:
        """The features of a context that the vocabulary does not know; counted if they may join it.

        >>> import tempfile, numpy as np
        >>> from pathlib import Path
        >>> from treetop.bandit.bandit import Bandit
        >>> X, place = np.eye(2, dtype=np.float32), Path(tempfile.mkdtemp(), "shop")
        >>> with Bandit.create(place, ["a", "b"], X=X, Y=X, features=["mobile", "evening"]) as shop:
        ...     shop.note_unknown({"mobile": 1.0, "weekend": 1.0})
        ('weekend',)
        """
        if self.vocabulary.room:
            self.unknown.note(self.vocabulary.unknown(x))
        return self.vocabulary.ignored(x)
