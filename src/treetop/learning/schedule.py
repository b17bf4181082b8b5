"""When to refit. Knows rounds, nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from treetop.arrays import check_float, check_int


@dataclass(frozen=True)
class Epochs:
    """When to refit: after how many rounds in all.

    >>> Epochs.doubling(4096).until(20_000)
    [4096, 8192, 16384]
    >>> Epochs.geometric(100, 1.5).until(400)
    [100, 150, 225, 338]
    >>> Epochs.linear(1000).until(3000), Epochs.explicit([5, 50]).until(100)
    ([1000, 2000], [5, 50])
    """

    first: int
    following: Callable[[int], float]

    @classmethod
    def doubling(cls, first: int = 2) -> Epochs:
        """After first, 2 first, 4 first, ... rounds; by default N_l = 2^l as in the theorems."""
        return cls.geometric(first, 2.0)

    @classmethod
    def geometric(cls, first: int, factor: float) -> Epochs:
        """After first, first factor, first factor^2, ... rounds, rounded up."""
        factor = check_float("factor", factor, 1 + 1e-9, 1e100)
        return cls(check_int("first", first, 1, 2**62), lambda n: max(n + 1, math.ceil(n * factor)))

    @classmethod
    def linear(cls, every: int) -> Epochs:
        """After so many rounds again and again."""
        every = check_int("every", every, 1, 2**62)
        return cls(every, lambda n: n + every)

    @classmethod
    def explicit(cls, rounds: Sequence[int]) -> Epochs:
        """After exactly these rounds."""
        chosen = [check_int("round", n, 1, 2**62) for n in rounds]
        if not chosen or any(b <= a for a, b in pairwise(chosen)):
            raise ValueError(f"rounds must rise strictly and not be empty: {list(rounds)[:10]}")
        return cls(chosen[0], lambda n: next((c for c in chosen if c > n), math.inf))

    def until(self, horizon: int) -> list[int]:
        """The refits that come before round `horizon` is over."""
        check_int("horizon", horizon, 0, 2**62)
        found: list[int] = []
        n = float(self.first)
        while n < horizon:
            if found and int(n) <= found[-1]:
                raise ValueError(f"after the refit at round {found[-1]} follows one at round {n}; rounds must rise")
            found.append(int(n))
            n = self.following(int(n))
        return found
