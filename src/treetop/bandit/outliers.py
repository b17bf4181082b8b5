"""Values far outside what a feature has shown: clipped or refused, before a decision is made of them.

The row that is decided on is the one that is logged. A request is told by the row that was given, so that the same one
is the same request whatever the limits are when it is sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop import _core
from treetop.arrays import Float32s, Rows
from treetop.bandit.config import FeatureConfig
from treetop.bandit.vocabulary import Vocabulary
from treetop.errors import FeatureOutlier
from treetop.model.model import Model


@dataclass(frozen=True, eq=False)
class ClippedRow(Rows):
    """A row with `clipped` values at their limits, and the row that was `given`."""

    given: Rows
    clipped: int


@dataclass(frozen=True, eq=False)
class OutlierLimits:
    """The largest value, in size, that is taken of each feature; larger ones are clipped to it, or refused.

    >>> limits = OutlierLimits(np.array([10.0, 20.0], np.float32), False, Vocabulary(2, ("age", "height")))
    >>> limits.bound(limits.vocabulary.sparse([0, 1], [3.0, -1000.0])).value
    array([  3., -20.], dtype=float32)
    """

    limit: Float32s
    refuse: bool
    vocabulary: Vocabulary

    @classmethod
    def of(cls, model: Model, config: FeatureConfig, vocabulary: Vocabulary) -> OutlierLimits | None:
        """The limits of a model; None if the settings want none, or if the model has no scale of its features."""
        if config.outliers == "accept" or model.feature_scale is None:
            return None
        most = np.float32(np.finfo(np.float32).max)
        limit = np.minimum(model.feature_scale.astype(np.float64) * config.outlier_factor, most).astype(np.float32)
        return cls(limit, config.outliers == "refuse", vocabulary)

    def bound(self, row: Rows) -> Rows:
        """The row itself if all its values are within their limits, a ClippedRow if not. Raises FeatureOutlier."""
        count = _core.beyond(row.index, row.value, self.limit)
        if count == 0:
            return row
        limit = self.limit[row.index]
        if self.refuse:
            at = int((np.abs(row.value) > limit).argmax())
            name = self.vocabulary.name(int(row.index[at]))
            raise FeatureOutlier(
                f"feature {name!r} is {row.value[at]:g}; by what it has shown, it must lie in [-{limit[at]:g}, "
                f"{limit[at]:g}]"
            )
        return ClippedRow(row.start, row.index, np.clip(row.value, -limit, limit), row.columns, row, count)
