"""Whether counted decisions follow a stated distribution."""

import math
from collections import Counter

from scipy.stats import chisquare

from helpers.reference import Sequence


def fits(counts: Counter[Sequence], expected: dict[Sequence, float]) -> bool:
    """Whether counted decisions follow the expected distribution: nothing impossible, chi-square above 1e-4. Rare
    decisions are pooled, so that every cell expects at least 20."""
    draws = counts.total()
    assert math.isclose(sum(expected.values()), 1.0, rel_tol=1e-9)
    assert not set(counts) - set(expected), "a decision of probability 0 was made"
    common = [d for d, p in expected.items() if p * draws >= 20]
    observed = [counts[d] for d in common] + [draws - sum(counts[d] for d in common)]
    wanted = [expected[d] * draws for d in common]
    wanted.append(max(0.0, draws - sum(wanted)))
    if wanted[-1] < 20:
        if observed[-1] > 60:
            return False
        observed, wanted = observed[:-1], wanted[:-1]
        wanted = [w * sum(observed) / sum(wanted) for w in wanted]
    return len(wanted) == 1 or bool(chisquare(observed, wanted).pvalue > 1e-4)
