"""What the owner of a model knew, on the scale of rewards: its scores, times the slope of rewards over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from treetop.arrays import Bools, Float32s, Floats
from treetop.learning.pooled_means import interpolate, resampled
from treetop.learning.samples import Samples
from treetop.model.model import Model
from treetop.model.prior import Prior

BLOCK = 65_536  # samples that are added up together, from the first one on: wherever they lie
LEAST = 0.15  # what the correlation of rewards with the owner's scores is taken to be at least
LARGEST = 0.25  # the variance that rewards in [0, 1] have at most, as one sample more


def scaled_prior(
    model: Model, samples: Samples, slacks: Floats, left: Floats | Float32s, fitted: Bools
) -> tuple[Prior | None, Floats | None]:
    """What the owner knew, with its scale, and what that says of every sample; nothing if the model has nothing of it.

    `slacks` and `left` are of the samples: how well they are routed, and what of their rewards is to be explained;
    `fitted` which of them the scale is fitted to.

    >>> from treetop.arrays import as_rows
    >>> from treetop.tree.tree import Tree
    >>> model = Model.from_weights(Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), np.zeros((3, 2)), np.ones((5, 2)))
    >>> none = np.zeros(0, np.int32)
    >>> samples = Samples(as_rows(np.ones((0, 1))), none, none, np.zeros(0, np.float32), np.zeros(0), np.zeros(0))
    >>> scaled_prior(model, samples, np.zeros(0), np.zeros(0), np.zeros(0, bool))
    (None, None)
    >>> model = replace(model, prior=Prior(model.reward_rows))
    >>> scaled_prior(model, samples, np.zeros(0), np.zeros(0), np.zeros(0, bool))[0].scale
    1.0
    """
    prior = model.prior
    if prior is None:
        return None, None
    said = prior.scores(samples.contexts, samples.row, model.tree.n_nodes + samples.arm)
    if prior.means is not None:
        said += interpolate(resampled(prior.means), slacks)
    scale = prior_scale(said[fitted], left[fitted], samples.weight[fitted])
    return replace(prior, scale=scale), scale * said


def prior_scale(said: Floats, reward: Floats | Float32s, weight: Floats) -> float:
    """The slope of rewards over the owner's scores, by least squares; at least that of a correlation of LEAST.

    Nobody knows what an owner's score of 7 means: the scale follows from how far apart scores of what was shown are.
    What is shown is what scores highest: where rewards hardly differ among that, others may still be worth less.

    >>> said, weight = np.tile([0.0, 10.0], 500), np.ones(1000)
    >>> [round(prior_scale(said * by, said / 10, weight), 5) for by in (1, 100, -1)]
    [0.1, 0.001, 0.015]
    >>> prior_scale(said[:0], said[:0], weight[:0])
    1.0
    """
    blocks = [slice(low, low + BLOCK) for low in range(0, len(said), BLOCK)]

    def total(of: Callable[[Floats, Floats], Floats]) -> float:
        """Over all samples, as they weigh."""
        return sum(float(weight[some] @ of(said[some], reward[some].astype(np.float64))) for some in blocks)

    count = total(lambda s, r: np.ones(len(s)))
    s_mean, r_mean = total(lambda s, r: s) / max(count, 1.0), total(lambda s, r: r) / max(count, 1.0)
    square = total(lambda s, r: (s - s_mean) ** 2)
    if square == 0:
        return 1.0
    noise = (total(lambda s, r: (r - r_mean) ** 2) + LARGEST) / (count + 1)
    together = total(lambda s, r: (s - s_mean) * (r - r_mean))
    return float(max(together / square, LEAST * np.sqrt(noise * count / square)))
