"""What treetop's own learner adds to a model: pooled means, trials, and where arms were before they moved. Frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treetop.arrays import Float32s, Ints, as_float32s, as_indices, check_float

LEAF_FACTOR = 1.4  # without regressors of nodes a search affords 7 leaves where the paper's has 5


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledState:
    """What the learner `Pooled` stores in a model besides tree, routing and reward models; n = number of arms.

    - `means` (65,): the mean reward of arms by routing score, at evenly spaced slacks in [0, 4]; a score starts there
    - `node_mean`: the mean reward of arms that were drawn through a pruned node; a node's score
    - `new_arm_value`: the trial value that an arm gets when it is added
    - `sample_count` (n,): samples of each arm, label samples included; a 32nd for arms without labels
    - `trial_value` (n,): the expected later gain of showing each arm once, whatever its score
    - `initial_leaf` (n,): the leaf of each arm before any moved; None if none did
    - `leaf_factor`: how many leaves survive the last level of a search, times the beam

    >>> PooledState(means=[0.5, 0.1], sample_count=[3, 0], trial_value=[0.0, float("nan")])
    Traceback (most recent call last):
    ValueError: trial_value of arm 1 is nan; it must be finite
    """

    means: Float32s
    sample_count: Ints
    trial_value: Float32s
    node_mean: float = 0.0
    new_arm_value: float = 0.0
    initial_leaf: Ints | None = None
    leaf_factor: float = LEAF_FACTOR

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("means", "trial_value"):
            values = as_float32s(getattr(self, name), name)
            if not np.isfinite(values).all():
                at = int(np.flatnonzero(~np.isfinite(values))[0])
                raise ValueError(
                    f"{name} of {'place' if name == 'means' else 'arm'} {at} is {values[at]}; it must be finite"
                )
            put(self, name, values)
        put(self, "sample_count", as_indices(self.sample_count, 2**31 - 1, "sample_count"))
        if self.initial_leaf is not None:
            put(self, "initial_leaf", as_indices(self.initial_leaf, 2**31 - 1, "initial_leaf"))
        for name in ("node_mean", "new_arm_value"):
            put(self, name, check_float(name, getattr(self, name), -np.inf))
        check_float("leaf_factor", self.leaf_factor, 1, 1000)
        if self.means.ndim != 1 or len(self.means) < 2:
            raise ValueError(f"means have shape {self.means.shape}; a list of at least 2 is needed")

    def check_fits(self, arms: int, nodes: int) -> None:
        """Refuses a state of other arms or nodes than a model has.

        >>> PooledState(means=[0.5, 0.1], sample_count=[3, 0], trial_value=[0, 0]).check_fits(arms=3, nodes=1)
        Traceback (most recent call last):
        ValueError: sample_count of 2 arms do not fit a model of 3 arms
        """
        for name in ("sample_count", "trial_value", "initial_leaf"):
            values = getattr(self, name)
            if values is not None and values.shape != (arms,):
                raise ValueError(f"{name} of {len(values)} arms do not fit a model of {arms} arms")
        if self.initial_leaf is not None:
            as_indices(self.initial_leaf, nodes, "initial_leaf")

    def grown(self, arms: int, initial_leaf: Ints | None) -> PooledState:
        """The same with so many arms more, that nobody has tried.

        >>> state = PooledState(means=[0.5, 0.1], sample_count=[3], trial_value=[0], new_arm_value=0.25)
        >>> state.grown(1, None).trial_value
        array([0.  , 0.25], dtype=float32)
        """
        return replace(
            self,
            sample_count=np.concatenate([self.sample_count, np.zeros(arms, np.int32)]),
            trial_value=np.concatenate([self.trial_value, np.full(arms, self.new_arm_value, np.float32)]),
            initial_leaf=initial_leaf,
        )

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is saved as files; the other fields are numbers."""
        names = ("means", "sample_count", "trial_value", "initial_leaf")
        return {f"pooled_{name}": value for name in names if (value := getattr(self, name)) is not None}

    def numbers(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("node_mean", "new_arm_value", "leaf_factor")}
