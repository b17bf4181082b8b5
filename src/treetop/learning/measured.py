"""What the owner's measure says of rewards: a logistic curve over the measure, fitted to the rewards that were seen.

The curve starts where the model's first one is (`Measure.first_curve`), which ranks items as the measure does; rewards
move it. It always rises, so that the measure keeps its order whatever was seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from treetop.arrays import Bools, Float32s, Floats
from treetop.learning.samples import Samples
from treetop.model.measure import Measure, curve
from treetop.model.model import Model

BLOCK = 65_536  # samples that are added up together, from the first one on: wherever they lie
ROUNDS = 50  # of Newton's method, at most; five or six are usual
FLATTEST, STEEPEST = 0.01, 8.0  # slopes that a fitted curve may have, in parts of the first one
SPREAD = (
    0.25,
    1.0,
)  # of slope and offset around the first ones, in parts of the first slope: offsets are easily learned


@dataclass(frozen=True, eq=False)
class Measured:
    """The curve that was fitted, and what it says of samples: of all, or of the last ones."""

    means: Float32s
    range: tuple[float, float]
    said: Floats
    in_sample: bool = False  # whether it has seen so much of the rewards that it is no judge of itself

    @classmethod
    def of(cls, model: Model, samples: Samples, fitted: Bools) -> Measured | None:
        """None for a model without item vectors. Samples that it is `fitted` to count as their weights say."""
        if model.item_vectors is None or model.measure is None:
            return None
        values = np.empty(len(samples))
        for some, alone in ((fitted, False), (~fitted, True)):
            place = samples.contexts, model.item_vectors, samples.row[some], samples.arm[some], model.context_map
            values[some] = model.measure.values(*place, alone=alone)
        return cls.fitted(model, values[fitted], samples.reward[fitted], samples.weight[fitted]).saying(values)

    @classmethod
    def fitted(cls, model: Model, values: Floats, reward: Floats | Float32s, weight: Floats) -> Measured:
        """The curve over what the measure is of each sample; it says nothing of them yet. Arrays may be mapped."""
        measure, mapped = model.measure, model.context_map is not None
        assert measure is not None
        if mapped:  # whose lengths have learned how steep the curve is
            slope, offset = measure.first_curve()[0], fitted_offset(measure, values, reward)
        else:
            slope, offset = fitted_curve(measure, values, reward, weight)
        low, high = measure.first_range()
        if (measure.metric != "cosine" or mapped) and len(values):
            low, high = min(low, float(values.min())), max(high, float(values.max()))
        return cls(curve(slope, offset, low, high), (low, high), values[:0], mapped)

    def saying(self, values: Floats) -> Measured:
        """The same with what it says of some samples."""
        return replace(self, said=self(values))

    def __call__(self, values: Floats) -> Floats:
        """The reward that the curve expects."""
        return np.interp(values, np.linspace(*self.range, len(self.means)), self.means)


def fitted_offset(measure: Measure, values: Floats, reward: Floats | Float32s) -> float:
    """The offset with which the first curve expects what all samples together have brought.

    >>> measure = Measure(metric="cosine", dims=2, context_dims=2)
    >>> round(fitted_offset(measure, np.zeros(4), np.array([1.0, 0, 0, 0])), 3)  # the log odds of 1 in 4
    -1.099
    """
    slope, first = measure.first_curve()
    blocks = [slice(low, low + BLOCK) for low in range(0, len(values), BLOCK)]
    if not 0 < sum(float(reward[some].astype(np.float64).sum()) for some in blocks) < len(values):
        return first

    def too_much(offset: float, some: slice) -> float:
        expected = 1 / (1 + np.exp(-np.clip(slope * values[some] + offset, -500, 500)))
        return float((expected - reward[some]).sum())

    low, high = -50.0 - slope * float(values.max()), 50.0 - slope * float(values.min())
    for _ in range(60):
        middle = (low + high) / 2
        more = sum(too_much(middle, some) for some in blocks) > 0
        low, high = (low, middle) if more else (middle, high)
    return (low + high) / 2


def fitted_curve(measure: Measure, values: Floats, reward: Floats | Float32s, weight: Floats) -> tuple[float, float]:
    """Slope and offset of the curve: logistic regression with the first curve as its prior.

    >>> measure = Measure(metric="cosine", dims=2)
    >>> fitted_curve(measure, np.zeros(0), np.zeros(0), np.zeros(0)) == measure.first_curve()
    True
    """
    first = np.array(measure.first_curve())
    unit = first[0] / np.array(Measure(metric="cosine", dims=1).first_curve())[0]  # what makes measures comparable
    prior = np.array([first[0] / unit, first[1]])
    precision = 1 / (np.array(SPREAD) * prior[0]) ** 2
    found, best = prior.copy(), np.inf

    def blocks() -> Iterator[tuple[Floats, Floats, Floats]]:
        for low in range(0, len(values), BLOCK):
            known = np.flatnonzero(weight[low : low + BLOCK]) + low
            if len(known):
                z = np.stack([values[known] * unit, np.ones(len(known))], axis=1)
                yield z, reward[known].astype(np.float64), weight[known]

    def loss(at: Floats) -> float:
        total = 0.0
        for z, y, count in blocks():
            score = z @ at
            total += float(count @ (np.logaddexp(0, score) - y * score))
        return float(total + precision @ (at - prior) ** 2 / 2)

    for _ in range(ROUNDS):
        before, best = best, loss(found)
        if not best < before - 1e-9 * (1 + abs(best)):
            break
        fall, bend = precision * (found - prior), np.diag(precision)
        for z, y, count in blocks():
            p = 1 / (1 + np.exp(-np.clip(z @ found, -500, 500)))
            fall = fall + z.T @ (count * (p - y))
            bend = bend + (z.T * (count * p * (1 - p))) @ z
        step = np.linalg.solve(bend, fall)
        while loss(found - step) > best and np.abs(step).max() > 1e-9:  # far from the best it leaps past it
            step = step / 2
        found = found - step
    flattest, steepest = FLATTEST * prior[0], STEEPEST * prior[0]
    return float(np.clip(found[0], flattest, steepest) * unit), float(found[1])
