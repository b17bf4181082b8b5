"""Slow twins of the map between the spaces of contexts and items: what is compared, and how it is learned."""

from typing import Any

import numpy as np
from scipy.optimize import minimize


def mapped_value(metric: str, context_map: Any, x: Any, item: Any) -> float:
    """The measure of one context and one item, number by number."""
    length = sum(float(value) ** 2 for value in x) ** 0.5 if metric == "cosine" else 1.0
    total = 0.0
    for i, value in enumerate(x):
        for j, other in enumerate(item):
            total += float(value) / length * float(context_map[i][j]) * float(other)
    return total


def nearest_rotation(contexts: Any, items: Any, row: Any, arm: Any, reward: Any) -> Any:
    """Of the sum of all rewarded pairs, one by one."""
    pairs = np.zeros((contexts.shape[1], items.shape[1]))
    for i, j, y in zip(row, arm, reward, strict=True):
        pairs += y * np.outer(contexts[i], items[j])
    left, _, right = np.linalg.svd(pairs, full_matrices=False)
    return left @ right


def learned_map(
    contexts: Any, items: Any, row: Any, arm: Any, reward: Any, slope: float, centre: Any, strength: float
) -> Any:
    """Bilinear logistic regression with its penalty, over every pair of numbers as a feature."""
    products = np.einsum("ni,nj->nij", contexts[row], items[arm]).reshape(len(row), -1).astype(float)
    dims = items.shape[1]

    def loss(at: Any) -> float:
        z = slope * products @ at[:-1] + at[-1]
        return float((np.logaddexp(0, z) - reward * z).sum() + strength * dims / 2 * ((at[:-1] - centre) ** 2).sum())

    centre = centre.ravel()
    found = minimize(loss, np.zeros(products.shape[1] + 1), tol=1e-10, options={"maxiter": 500}).x
    return found[:-1].reshape(contexts.shape[1], dims)
