"""Tallies of several candidates, made by threads beside whoever reads the log."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import Tally


class Tallies:
    """One tally a candidate. Rounds are added in the order in which they come, those of several candidates at a time:
    what comes out does not depend on the number of threads. At most one stretch of rounds a candidate waits.

    >>> import numpy as np
    >>> one = np.ones((4, 1))
    >>> even = Judged(one, one, one, np.ones(4), 0 * one, 0 * one, np.zeros((4, 1, 0)), one > 0)
    >>> with Tallies(candidates=2, threads=2) as tallies:
    ...     tallies.add(1, lambda: even)
    ...     tallies.add(1, lambda: even)
    ...     [tallies.of(0).rounds, tallies.of(1).rounds]
    [0, 8]
    """

    def __init__(self, candidates: int, threads: int, bound: float | None = None) -> None:
        self.bound = bound
        self._done = [Tally() for _ in range(candidates)]
        self._coming: dict[int, Future[Tally]] = {}
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None

    def add(self, candidate: int, rounds: Callable[[], Judged]) -> None:
        """Adds rounds, which are computed by the thread that adds them."""
        before = self.of(candidate)
        if self._pool is None:
            self._done[candidate] = before.after(rounds(), self.bound)
        else:
            self._coming[candidate] = self._pool.submit(lambda: before.after(rounds(), self.bound))

    def of(self, candidate: int) -> Tally:
        """What has been added to a candidate so far."""
        if (coming := self._coming.pop(candidate, None)) is not None:
            self._done[candidate] = coming.result()
        return self._done[candidate]

    def __enter__(self) -> Tallies:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
