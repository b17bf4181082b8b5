"""Small made-up problems, a strategy of a user's own, and a check that draws are as explained."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import chisquare

import treetop
from treetop.arrays import Floats


@dataclass(frozen=True, eq=False)
class Problem:
    """Contexts from a few topics; each topic has its own arms."""

    X: Any
    Y: Any
    tree: treetop.Tree
    model: treetop.Model

    def feedback(self, n: int, policy: treetop.Policy | None = None, seed: int = 0) -> treetop.Feedback:
        """What a policy would have seen on the first n contexts."""
        d = (policy or treetop.Policy()).decide_batch(self.model, self.X[:n], seed=seed)
        return treetop.Feedback(self.X[:n], d.arms, d.nodes, self.hits(d.arms))

    def hits(self, arms: Any) -> Any:
        """The rewards of the arms shown for the first contexts."""
        return self.Y.toarray()[np.arange(len(arms))[:, None], arms]


def topics(n: int = 600, arms: int = 60, features: int = 40, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    centre = rng.random((8, features)) * (rng.random((8, features)) < 0.3)
    topic = rng.integers(0, 8, n)
    X = centre[topic] * (rng.random((n, features)) < 0.7) + 0.3 * (rng.random((n, features)) < 0.05)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    Y = (rng.random((n, arms)) < 0.3) & (np.arange(arms)[None, :] % 8 == topic[:, None])
    return sp.csr_matrix(X.astype(np.float32)), sp.csr_matrix(Y.astype(np.float32))


def check_drawn_as_explained(policy: treetop.Policy, model: treetop.Model, row: sp.csr_matrix) -> float:
    """One slot, drawn many times: as often and with the propensities that `explain` says. The share through nodes."""
    n, view = 20_000, policy.explain(model, row)
    drawn = policy.decide_batch(model, row[np.zeros(n, int)], event_ids=range(n))
    through = drawn.nodes[:, 0] >= 0
    keys = np.where(through, drawn.nodes[:, 0] + model.n_arms, drawn.arms[:, 0])
    names = view.id + np.where(view.is_node, model.n_arms, 0)
    counts = np.array([(keys == name).sum() for name in names])
    likely = view.probability * n >= 5
    seen = np.append(counts[likely], counts[~likely].sum())
    want = np.append(view.probability[likely], view.probability[~likely].sum()) * n
    assert chisquare(seen[want > 0], want[want > 0]).pvalue > 1e-4
    chance = dict(zip(names.tolist(), view.probability.tolist(), strict=True))
    below = np.where(through, model.tree.sizes[np.maximum(drawn.nodes[:, 0], 0)], 1)
    np.testing.assert_allclose(drawn.propensities[:, 0] * below, [chance[key] for key in keys.tolist()], rtol=1e-5)
    return float(through.mean())


class Halving:
    """A strategy of the user's own: each next best arm is half as likely."""

    def probabilities(self, scores: Floats, n_seen: int) -> Floats:
        p = np.empty(len(scores))
        p[np.argsort(-scores, kind="stable")] = 0.5 ** np.arange(len(scores))
        p /= p.sum()
        return p
