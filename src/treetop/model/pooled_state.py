"""What treetop's own learner adds to a model: pooled means, trials, and where arms were before they moved. Frozen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from treetop.arrays import Float32s, Ints, as_float32s, as_indices, check_float
from treetop.model.measure import Measure, curve

MEASURED_WEIGHTS = (1.0, 0.75, 1.0)  # of the components before there is any round, where items have vectors


@dataclass(frozen=True, eq=False, kw_only=True)
class PooledState:
    """What the learner `Pooled` stores in a model besides tree, routing and reward models; n = number of arms.

    - `means` (65,): the mean reward of arms by routing score, at evenly spaced slacks in [0, 4]; a score starts there
    - `node_mean`: the mean reward of arms that were drawn through a pruned node; a node's score
    - `new_arm_value`: the trial value that an arm gets when it is added
    - `exploration_net`: what arms that draws found have earned, less what draws cost, as a share of all rewards
    - `sample_count` (n,): samples of each arm, label samples included; a 32nd for arms without labels
    - `trial_value` (n,): the expected later gain of showing each arm once, whatever its score; 0 if it is known
    - `new_trials` (n,): how often each arm that was added was shown, -1 for the others; None if none was added
    - `initial_leaf` (n,): the leaf of each arm before any moved; None if none did
    - `weights`: of the components of a score: the pooled mean, the arm's own regressor, and the owner's measure where
      the model has item vectors
    - `measure_means`: the reward that a measure stands for, at evenly spaced measures in `measure_range`; None without
      item vectors
    - `examined`: how often what stands at positions 1, 2, ... is looked at, compared with the first; empty where
      nothing says position

    >>> PooledState(means=[0.5, 0.1], sample_count=[3, 0], trial_value=[0.0, float("nan")])
    Traceback (most recent call last):
    ValueError: trial_value of arm 1 is nan; it must be finite
    """

    means: Float32s
    sample_count: Ints
    trial_value: Float32s
    node_mean: float = 0.0
    new_arm_value: float = 0.0
    exploration_net: float = 0.0
    initial_leaf: Ints | None = None
    new_trials: Ints | None = None
    weights: tuple[float, ...] = (1.0, 1.0)
    measure_means: Float32s | None = None
    measure_range: tuple[float, float] = (0.0, 1.0)
    examined: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name in ("means", "trial_value", "measure_means"):
            if getattr(self, name) is None:
                continue
            values = as_float32s(getattr(self, name), name)
            if not np.isfinite(values).all():
                at = int(np.flatnonzero(~np.isfinite(values))[0])
                raise ValueError(
                    f"{name} of {'arm' if name == 'trial_value' else 'place'} {at} is {values[at]}; it must be finite"
                )
            put(self, name, values)
        put(self, "sample_count", as_indices(self.sample_count, 2**31 - 1, "sample_count"))
        if self.initial_leaf is not None:
            put(self, "initial_leaf", as_indices(self.initial_leaf, 2**31 - 1, "initial_leaf"))
        if self.new_trials is not None:
            put(self, "new_trials", as_indices(self.new_trials, 2**31 - 1, "new_trials", low=-1))
        for name in ("node_mean", "new_arm_value", "exploration_net"):
            put(self, name, check_float(name, getattr(self, name), -np.inf))
        components = 2 if self.measure_means is None else 3
        if len(self.weights) != components:
            raise ValueError(f"there are {len(self.weights)} weights; a score has {components} components")
        put(self, "weights", tuple(check_float("a component's weight", w, -1e6, 1e6) for w in self.weights))
        for name in ("means", "measure_means"):
            values = getattr(self, name)
            if values is not None and (values.ndim != 1 or len(values) < 2):
                raise ValueError(f"{name} have shape {values.shape}; a list of at least 2 is needed")
        put(self, "examined", tuple(check_float("a position's factor", f, 0, 1e3) for f in self.examined))
        low, high = (check_float("measure_range", value, -1e30, 1e30) for value in self.measure_range)
        if not low < high:
            raise ValueError(f"measure_range is from {low:g} to {high:g}; the second must be larger")
        put(self, "measure_range", (low, high))

    @classmethod
    def untaught(cls, arms: int, measure: Measure) -> PooledState:
        """Before any feedback: scores are what the owner's measure says.

        >>> PooledState.untaught(3, Measure(metric="cosine", dims=2)).weights
        (1.0, 0.75, 1.0)
        """
        ends = measure.first_range()
        nothing = np.zeros(arms, np.int32)
        return cls(
            means=np.zeros(2, np.float32),
            sample_count=nothing,
            trial_value=nothing.astype(np.float32),
            weights=MEASURED_WEIGHTS,
            measure_means=curve(*measure.first_curve(), *ends),
            measure_range=ends,
        )

    def check_fits(self, arms: int, nodes: int) -> None:
        """Refuses a state of other arms or nodes than a model has.

        >>> PooledState(means=[0.5, 0.1], sample_count=[3, 0], trial_value=[0, 0]).check_fits(arms=3, nodes=1)
        Traceback (most recent call last):
        ValueError: sample_count of 2 arms do not fit a model of 3 arms
        """
        for name in ("sample_count", "trial_value", "initial_leaf", "new_trials"):
            values = getattr(self, name)
            if values is not None and values.shape != (arms,):
                raise ValueError(f"{name} of {len(values)} arms do not fit a model of {arms} arms")
        if self.initial_leaf is not None:
            as_indices(self.initial_leaf, nodes, "initial_leaf")

    def grown(self, arms: int, initial_leaf: Ints | None) -> PooledState:
        """The same with so many arms more, that nobody has tried.

        >>> state = PooledState(means=[0.5, 0.1], sample_count=[3], trial_value=[0], new_arm_value=0.25)
        >>> state.grown(1, None).trial_value, state.grown(1, None).new_trials
        (array([0.  , 0.25], dtype=float32), array([-1,  0], dtype=int32))
        """
        known = np.full(len(self.sample_count), -1, np.int32) if self.new_trials is None else self.new_trials
        return replace(
            self,
            sample_count=np.concatenate([self.sample_count, np.zeros(arms, np.int32)]),
            trial_value=np.concatenate([self.trial_value, np.full(arms, self.new_arm_value, np.float32)]),
            new_trials=np.concatenate([known, np.zeros(arms, np.int32)]),
            initial_leaf=initial_leaf,
        )

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is saved as files; the other fields are numbers."""
        names = ("means", "sample_count", "trial_value", "initial_leaf", "new_trials", "measure_means")
        return {f"pooled_{name}": value for name in names if (value := getattr(self, name)) is not None}

    def numbers(self) -> dict[str, Any]:
        names = ["node_mean", "new_arm_value", "exploration_net", "weights"]
        names += [] if self.measure_means is None else ["measure_range"]
        names += ["examined"] if self.examined else []
        return {name: getattr(self, name) for name in names}


def load_pooled(arrays: dict[str, Any], numbers: dict[str, float] | None) -> PooledState | None:
    """What a saved model has of the learner; None if it was another learner's.

    >>> load_pooled({}, None) is None
    True
    """
    found = {name.removeprefix("pooled_"): array for name, array in arrays.items() if name.startswith("pooled_")}
    if numbers is None:
        if found:
            raise ValueError(f"there is a file of {min(found)}, but no numbers of the learner it belongs to")
        return None
    values: dict[str, Any] = {**found, **numbers}
    return PooledState(**values)
