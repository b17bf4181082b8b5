"""The slow twin of a search with the scores of treetop's learner, from docs/learner-formulas.md, in float64.

    score = weights[0] * (pooled mean at the route down to the arm) + weights[1] * (the arm's own regressor)

Nodes score the mean of draws and what their regressor says. What a search finds does not depend on it.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from helpers.reference import Effective, Floats, Model, log_path, log_routing, score, search

WIDEST = 4.0


@dataclass(frozen=True)
class Scored:
    """A model whose routing may have a row an arm behind the nodes', and what its scores are made of."""

    model: Model
    means: Floats
    weights: tuple[float, float]
    node_mean: float
    path_weight: float = 1.0

    @property
    def arm_routes(self) -> bool:
        return len(self.model.routing) > self.model.tree.n_nodes


def log_route(scored: Scored, arm: int, x: Floats) -> float:
    """The log routing score down to the arm: what is above one with a function of its own counts `path_weight`."""
    model = scored.model
    leaf = log_path(model, int(model.tree.leaf_of[arm]), x)
    if not scored.arm_routes:
        return leaf
    own = log_routing(model, model.tree.n_nodes + arm, x)
    at = int(model.tree.leaf_of[arm])
    return scored.path_weight * (leaf - (log_routing(model, at, x) if at > 0 else 0.0)) + own


def cube_root(x: float) -> float:
    """Of a number in [0, inf): Drepper's, as the core has it, to the last bit."""
    root, square = 1.2599210498948731648, 1.5874010519681994748
    m, e = math.frexp(x)
    u = 1.83469277483613086 - (0.784932344976639262 - 0.145263899385486367 * m) * m
    for a in (2.4469312256353444, 2.11499494167371287, 1.50819193781584896):
        u = a - u * m
    u = 0.354895765043919860 + u * m
    cube = u * u * u
    rest = (1 / square, 1 / root, 1.0, root, square)[2 + int(math.fmod(e, 3))]
    return math.ldexp(u * (cube + 2 * m) / (2 * cube + m) * rest, int(e / 3)) if x > 0 else 0.0


def pooled_mean(means: Floats, route: float) -> float:
    """A table over the cube root of -log g: evenly spaced in [0, 4], linear in between."""
    slack = min(float(np.cbrt(-route)), WIDEST)
    return float(np.interp(slack, np.linspace(0, WIDEST, len(means)), means))


def components(scored: Scored, is_node: bool, index: int, x: Floats) -> tuple[float, float]:
    own = score(scored.model, is_node, index, x)
    return (scored.node_mean if is_node else pooled_mean(scored.means, log_route(scored, index, x))), own


def scored_search(
    scored: Scored, x: Floats, eligible: set[int], wanted: int, beam: int = 1, beta: float | None = None
) -> list[Effective]:
    """A_x in canonical order, with routes down to the arm and weighted scores."""

    def judged(e: Effective) -> Effective:
        mean, own = components(scored, e.is_node, e.id, x)
        if e.is_node:
            return replace(e, score=mean + own)
        a, b = scored.weights
        return replace(e, route=log_route(scored, e.id, x), score=a * mean + b * own)

    return [judged(e) for e in search(scored.model, x, eligible, wanted, beam, beta)]
