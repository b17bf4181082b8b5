"""How long and how large the paper's experiments are, on its own sets and on those that stand in for them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from treetop.data.datasets import Dataset
from treetop.data.presets import PRESETS, Preset
from treetop.tree.tree import usual_max_leaf

QUICK_ROUNDS, QUICK_INIT, QUICK_EPOCH = 6_000, 2_000, 1_024
DEBIAN = (3_413, 50_000, 10)  # init, horizon, max_leaf: as in the demo


def preset_of(spec: str, arms: int) -> Preset | None:
    """The row of Table 1 that a dataset is, is shaped like, or has as many arms as.

    >>> preset_of("synthetic:like=wiki10-31k,rows=100", 5).horizon
    141460
    """
    like = re.search(r"like=([^,]+)", spec) if spec.startswith("synthetic:") else None
    name = like.group(1) if like else spec
    return PRESETS.get(name) or next((row for row in PRESETS.values() if row.arms == arms), None)


@dataclass(frozen=True)
class Sizes:
    """How a dataset is played: rows for initialisation, rounds, arms in a leaf, rounds before the first refit."""

    init: int
    horizon: int
    max_leaf: int
    first_epoch: int

    @classmethod
    def of(cls, spec: str, dataset: Dataset, quick: bool, most: int | None) -> Sizes:
        """Those of Table 1, as far as there are rows; the sets that the paper bootstraps are drawn with replacement."""
        row = preset_of(spec, dataset.n_arms)
        pool = len(dataset.X_init) if dataset.X_init is not None else max(1, len(dataset.X) // 4)
        init, horizon, leaf = (row.init, row.horizon, row.max_leaf) if row else (5_000, len(dataset.X), 0)
        if spec == "debian":
            init, horizon, leaf = DEBIAN
        init = min(init, pool, QUICK_INIT if quick else pool)
        left = max(1, len(dataset.X) - (init if dataset.X_init is None else 0))
        if not (row and row.bootstrap):
            horizon = min(horizon, left)
        limits = [horizon, *([most] if most else []), *([QUICK_ROUNDS] if quick else [])]
        return cls(init, min(limits), leaf or usual_max_leaf(dataset.n_arms), QUICK_EPOCH if quick else 4096)
