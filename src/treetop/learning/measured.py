"""What the owner's measure says of rewards: a logistic curve over the measure, fitted to the rewards that were seen.

The curve starts where the model's first one is (`Measure.first_curve`), which ranks items as the measure does; rewards
move it. It always rises, so that the measure keeps its order whatever was seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Float32s, Floats
from treetop.learning.samples import Samples
from treetop.model.measure import Measure, curve
from treetop.model.model import Model

ROUNDS = 50  # of Newton's method, at most; five or six are usual
FLATTEST, STEEPEST = 0.01, 8.0  # slopes that a fitted curve may have, in parts of the first one
SPREAD = (
    0.25,
    1.0,
)  # of slope and offset around the first ones, in parts of the first slope: offsets are easily learned


@dataclass(frozen=True, eq=False)
class Measured:
    """The curve that was fitted, and what it says of every sample."""

    means: Float32s
    range: tuple[float, float]
    said: Floats
    in_sample: bool = False  # whether it has seen so much of the rewards that it is no judge of itself

    @classmethod
    def of(cls, model: Model, samples: Samples) -> Measured | None:
        """None for a model without item vectors. Samples count as their weights say."""
        if model.item_vectors is None or model.measure is None:
            return None
        measure = model.measure
        mapped, reward = model.context_map is not None, samples.reward.astype(np.float64)
        values = measure.values(samples.contexts, model.item_vectors, samples.row, samples.arm, model.context_map)
        if mapped:  # whose lengths have learned how steep the curve is
            slope, offset = measure.first_curve()[0], fitted_offset(measure, values, reward)
        else:
            slope, offset = fitted_curve(measure, values, reward, samples.weight)
        low, high = measure.first_range()
        if (measure.metric != "cosine" or mapped) and len(values):
            low, high = min(low, float(values.min())), max(high, float(values.max()))
        means = curve(slope, offset, low, high)
        said = np.interp(values, np.linspace(low, high, len(means)), means)
        return cls(means, (low, high), said, mapped)


def fitted_offset(measure: Measure, values: Floats, reward: Floats) -> float:
    """The offset with which the first curve expects what all samples together have brought.

    >>> measure = Measure(metric="cosine", dims=2, context_dims=2)
    >>> round(fitted_offset(measure, np.zeros(4), np.array([1.0, 0, 0, 0])), 3)  # the log odds of 1 in 4
    -1.099
    """
    slope, first = measure.first_curve()
    if not len(values) or not 0 < reward.mean() < 1:
        return first
    low, high = -50.0 - slope * float(values.max()), 50.0 - slope * float(values.min())
    for _ in range(60):
        middle = (low + high) / 2
        more = float((1 / (1 + np.exp(-np.clip(slope * values + middle, -500, 500))) - reward).sum()) > 0
        low, high = (low, middle) if more else (middle, high)
    return (low + high) / 2


def fitted_curve(measure: Measure, values: Floats, reward: Floats, weight: Floats) -> tuple[float, float]:
    """Slope and offset of the curve: logistic regression with the first curve as its prior.

    >>> measure = Measure(metric="cosine", dims=2)
    >>> fitted_curve(measure, np.zeros(0), np.zeros(0), np.zeros(0)) == measure.first_curve()
    True
    """
    first = np.array(measure.first_curve())
    unit = first[0] / np.array(Measure(metric="cosine", dims=1).first_curve())[0]  # what makes measures comparable
    known = weight > 0
    z = np.stack([values[known] * unit, np.ones(int(known.sum()))], axis=1)
    y, count = reward[known], weight[known]
    prior = np.array([first[0] / unit, first[1]])
    precision = 1 / (np.array(SPREAD) * prior[0]) ** 2
    found, best = prior.copy(), np.inf

    def loss(at: Floats) -> float:
        score = z @ at
        return float(count @ (np.logaddexp(0, score) - y * score) + precision @ (at - prior) ** 2 / 2)

    for _ in range(ROUNDS):
        before, best = best, loss(found)
        if not best < before - 1e-9 * (1 + abs(best)):
            break
        p = 1 / (1 + np.exp(-np.clip(z @ found, -500, 500)))
        fall = z.T @ (count * (p - y)) + precision * (found - prior)
        bend = (z.T * (count * p * (1 - p))) @ z + np.diag(precision)
        step = np.linalg.solve(bend, fall)
        while loss(found - step) > best and np.abs(step).max() > 1e-9:  # far from the best it leaps past it
            step = step / 2
        found = found - step
    flattest, steepest = FLATTEST * prior[0], STEEPEST * prior[0]
    return float(np.clip(found[0], flattest, steepest) * unit), float(found[1])
