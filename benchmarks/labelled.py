"""What a model makes of rows with all their labels, PECOS' above all, and where a reward lies in its curve.

Knows which rows of a stream may be learned from and which are for judging; plays nothing and prints nothing.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Ints, Rows, as_rows
from treetop.bench.peers import Peer, save_rows
from treetop.data.datasets import Stream
from treetop.experiments.records import BLOCKS

PECOS_BEAM = 20


class Recommender(Protocol):
    """Learns from labelled rows, then names the k best arms of contexts: PECOS, or what stands in for it."""

    def train(self, X: Rows, Y: Rows) -> None: ...

    def top(self, X: Rows, k: int) -> Ints:
        """(contexts, k) arms; -1 where there are fewer."""
        ...


@dataclass(frozen=True, eq=False)
class Pecos:
    """PECOS' XLinear, in a process of its own environment."""

    peer: Peer
    folder: Path
    threads: int = 1

    @classmethod
    @contextmanager
    def started(cls, where: tuple[Path, Path], threads: int) -> Iterator[Pecos]:
        with tempfile.TemporaryDirectory(prefix="treetop-quality-") as folder, Peer(where, "xlinear") as peer:
            yield cls(peer, Path(folder), threads)

    def train(self, X: Rows, Y: Rows) -> None:
        self.peer.ask("train", contexts=self._saved("X", X), labels=self._saved("Y", Y), threads=self.threads)

    def top(self, X: Rows, k: int) -> Ints:
        contexts = self._saved("asked", X)
        found = self.peer.ask("top", contexts=contexts, beam=PECOS_BEAM, k=k, threads=self.threads)
        return np.array([arms + [-1] * (k - len(arms)) for arms in found], np.int32)

    def _saved(self, name: str, rows: Rows) -> str:
        path = self.folder / f"{name}.npz"
        save_rows(rows, path)
        return str(path)


def last_fifth(rounds: int) -> slice:
    """The rounds that `RunRecord.late_reward` is the mean of."""
    blocks = min(rounds, BLOCKS)
    return slice((blocks - max(1, blocks // 5)) * rounds // blocks, rounds)


def labelled_rows(stream: Stream, n: int) -> tuple[Rows, Rows] | None:
    """The first n of the initialisation set and then of the stream, each once; None if there are fewer.

    Rows that come in the last fifth are left out: they are what a model of these rows is judged on.
    """
    judged = stream.rows[last_fifth(len(stream.rows))]
    free = stream.rows[~np.isin(stream.rows, judged)]
    further = free[np.sort(np.unique(free, return_index=True)[1])]
    first = min(n, len(stream.X_init))
    if n - first > len(further):
        return None
    chosen = further[: n - first]
    X = sp.vstack([stream.X_init.csr()[:first], stream.dataset.X.csr()[chosen]], format="csr")
    Y = sp.vstack([stream.Y_init.csr()[:first], stream.dataset.Y.csr()[chosen]], format="csr")
    return as_rows(X), as_rows(Y, what="labels")


def worth(reward: float, curve: Mapping[int, float]) -> float:
    """After how many rows a curve of rewards first reaches a reward, linear in log(rows) between its points.

    -inf if it begins above it, inf if it never comes to it.
    """
    points = sorted(curve.items())
    if reward <= points[0][1]:
        return float(points[0][0]) if reward == points[0][1] else -math.inf
    for (few, low), (many, high) in pairwise(points):
        if low < reward <= high:
            return math.exp(math.log(few) + (reward - low) / (high - low) * math.log(many / few))
    return math.inf


def worth_in_words(reward: float, curve: Mapping[int, float]) -> str:
    found = worth(reward, curve)
    if math.isfinite(found):
        return f"{found:,.0f}"
    return f"below {min(curve):,}" if found < 0 else f"beyond {max(curve):,}"
