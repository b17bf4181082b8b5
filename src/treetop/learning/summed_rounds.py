"""What the first rounds of a log add up to, of which contexts may be gone: all that a refit needs of them but samples.

Every number here is carried on exactly as a refit that reads all rounds would find it. Knows no files and no log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats
from treetop.learning.arm_routing import NO_ROUNDS, rounds_checksums
from treetop.learning.arm_totals import OF_ARMS, ArmTotals
from treetop.learning.samples import context_norms
from treetop.model.feature_scale import PastValues
from treetop.records import Feedback


@dataclass(frozen=True, eq=False)
class SummedRounds:
    """- `first_epoch`: of the model that decided the first round: arms that came later are new
    - `totals`: sums of each arm
    - `checksums`: of contexts and rewards, which tell whether routing was fitted from the same
    - `norms`: the length of each context, whose median says which are outliers, in pieces
    - `values`: how often features occurred, and values that are larger than usual

    >>> shown = Feedback([[3.0, 4.0]], arms=[[0]], nodes=None, rewards=[[1]])
    >>> summed = SummedRounds.none(0, late=np.zeros(2, bool), scale=np.ones(2, np.float32)).after(shown)
    >>> summed.totals.rounds, summed.totals.shown.tolist(), summed.norms[0].tolist(), summed.values.size.tolist()
    (1, [1, 0], [5.0], [3.0, 4.0])
    """

    first_epoch: int
    totals: ArmTotals
    checksums: tuple[int, ...]
    norms: tuple[Floats, ...]
    values: PastValues

    @classmethod
    def none(cls, first_epoch: int, late: Bools, scale: Float32s) -> SummedRounds:
        """Before any round; `scale` is how large features usually are."""
        return cls(first_epoch, ArmTotals.none(late), NO_ROUNDS, (), PastValues.none(scale))

    def continued(self, late: Bools, scale: Float32s) -> SummedRounds:
        """The same with more arms and another scale of features, to go on from."""
        return replace(self, totals=self.totals.continued(late), values=self.values.after(scale, ()))

    def after(self, rounds: Feedback) -> SummedRounds:
        """With the next rounds."""
        t, slot = np.nonzero(rounds.observed)
        told = rounds.contexts, t, rounds.arms[t, slot], rounds.rewards[t, slot]
        totals = self.totals.continued(self.totals.late)
        totals.add(rounds)
        norms = (*self.norms, context_norms(rounds.contexts))
        values = self.values.after(self.values.scale, (rounds.contexts,))
        return SummedRounds(self.first_epoch, totals, rounds_checksums(self.checksums, *told), norms, values)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What is stored of it beside the norms: arrays of one dimension."""
        values = {f"feature_{name}": getattr(self.values, name) for name in ("scale", "counts")}
        large = {"large_feature": self.values.feature, "large_size": self.values.size}
        of_arms = {name: getattr(self.totals, name) for name in ("late", *OF_ARMS, "last")}
        return {**of_arms, **values, **large, "checksums": np.array(self.checksums, np.int64)}

    def numbers(self) -> dict[str, int]:
        """And numbers."""
        return {"first_epoch": self.first_epoch, "rounds": self.totals.rounds, "draws": self.totals.draws}

    @classmethod
    def read(
        cls, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, Any], norms: tuple[Floats, ...]
    ) -> SummedRounds:
        """From what was stored."""
        of_arms = {name: np.array(arrays[name]) for name in ("late", *OF_ARMS, "last")}
        totals = ArmTotals(rounds=numbers["rounds"], draws=numbers["draws"], **of_arms)
        scale, counts = arrays["feature_scale"], arrays["feature_counts"]
        values = PastValues(scale, totals.rounds, counts, arrays["large_feature"], arrays["large_size"])
        return cls(numbers["first_epoch"], totals, tuple(arrays["checksums"].tolist()), norms, values)
