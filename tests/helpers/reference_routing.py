"""The slow twins of `src/core/lanes.hpp` and `routes.hpp`: one function and one pair at a time, in plain Python."""

from typing import Any

import numpy as np
import numpy.typing as npt

from treetop.learning.routing_samples import RoutingProblems

Floats = npt.NDArray[np.float64]
MASK = (1 << 64) - 1
F = np.float32


def samples_of(problems: RoutingProblems, function: int) -> list[tuple[int, float]]:
    """Context and target of every sample of a function: those of its family, then its own."""
    shared, right = [], problems.right_row[slice(*problems.right_start[function : function + 2])].tolist()
    if (family := int(problems.family[function])) >= 0:
        rows = problems.shared_row[slice(*problems.shared_start[family : family + 2])].tolist()
        shared = [(row, 1.0 if row in right else -1.0) for row in rows]
    own = slice(*problems.start[function : function + 2])
    return shared + list(zip(problems.row[own].tolist(), problems.target[own].tolist(), strict=True))


class Stream:
    """`Stream` of rng.hpp: splitmix64."""

    def __init__(self, key: int) -> None:
        self.state = key

    def below(self, n: int) -> int:
        while True:
            self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
            z = self.state
            z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
            z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
            z ^= z >> 31
            if z >= (-n & MASK) % n:
                return z % n

    def shuffle(self, order: list[int]) -> None:
        for i in range(len(order), 1, -1):
            j = self.below(i)
            order[i - 1], order[j] = order[j], order[i - 1]


def product(x: list[tuple[int, Any]], w: dict[int, Any]) -> Any:
    """In float32, in four sums."""
    sums = [F(0)] * 4
    whole = len(x) // 4 * 4
    for j, (feature, value) in enumerate(x):
        at = j % 4 if j < whole else 0
        sums[at] = F(sums[at] + F(value * w.get(feature, F(0))))
    return F(F(sums[0] + sums[1]) + F(sums[2] + sums[3]))


class SlowFunction:
    """One routing function, fitted thrice: without fold 0, without fold 1, and on all."""

    def __init__(self, X: Any, shared: list[tuple[int, float]], own: list[tuple[int, float]], fold: Any, cost: float):
        every = shared + own
        self.x = [[(int(j), F(X[row, j])) for j in np.flatnonzero(X[row])] + [(X.shape[1], F(1))] for row, _ in every]
        self.y = [F(y) for _, y in every]
        self.fold = [int(fold[row]) for row, _ in every]
        self.shared, self.D = len(shared), F(1 / (2 * cost))
        squares = [float(sum(float(v) ** 2 for _, v in x[:-1])) + 1 + 1 / (2 * cost) for x in self.x]
        self.rate = [F(1 / square) for square in squares]
        self.beta = [F(0)] * len(every)

    def weights(self, tolerance: float, held_out: float, passes: int) -> list[dict[int, Any] | None]:
        """Of the three parts; None where nothing is right."""
        found: list[dict[int, Any] | None] = []
        total: dict[int, Any] = {}
        for left_out in (0, 1):
            part = [i for i, fold in enumerate(self.fold) if fold != left_out]
            w: dict[int, Any] = {}
            known = any(self.y[i] > 0 for i in part)
            if known:
                self.descend(part, w, held_out, passes)
            found.append(w if known else None)
            for feature, value in w.items():
                total[feature] = F(total.get(feature, F(0)) + value)
        fall = sum(float(b) for b in self.beta)
        bend = sum(float(self.D) * float(b) ** 2 for b in self.beta)
        for feature in sorted(total):
            bend += float(total[feature]) ** 2
        if bend > 0:
            factor = F(fall / bend)
            self.beta = [F(b * factor) for b in self.beta]
            total = {feature: F(value * factor) for feature, value in total.items()}
        self.descend(list(range(len(self.y))), total, tolerance, passes)
        return [*found, total]

    def descend(self, part: list[int], w: dict[int, Any], tolerance: float, passes: int) -> None:
        order, shuffles, of_own = [i for i in part if i < self.shared], Stream(0), Stream(1)
        mine = [i for i in part if i >= self.shared]
        active, own = set(order), list(mine)
        shrinks = shrunk = False
        for _ in range(passes):
            shuffles.shuffle(order)
            of_own.shuffle(own)
            worst, kept = F(0), []
            for piece in range(16):
                for i in order[len(order) * piece // 16 : len(order) * (piece + 1) // 16]:
                    if i in active:
                        rests, worst = self.look(i, w, worst)
                        if rests and shrinks:
                            active.discard(i)
                            shrunk = True
                for i in own[len(own) * piece // 16 : len(own) * (piece + 1) // 16]:
                    rests, worst = self.look(i, w, worst)
                    if rests and shrinks:
                        shrunk = True
                    else:
                        kept.append(i)
            own = kept
            if worst > tolerance:
                shrinks = True
            elif shrunk:
                active, own, shrinks, shrunk = set(order), list(mine), False, False
            else:
                return

    def look(self, i: int, w: dict[int, Any], worst: Any) -> tuple[bool, Any]:
        y, b = self.y[i], self.beta[i]
        gradient = F(F(F(y * product(self.x[i], w)) - F(1)) + F(self.D * b))
        if b <= 0 and gradient > 0:
            return True, worst
        self.beta[i] = max(F(0), F(b - F(gradient * self.rate[i])))
        change = F(y * F(self.beta[i] - b))
        for feature, value in self.x[i]:
            w[feature] = F(w.get(feature, F(0)) + F(value * change))
        return False, max(worst, abs(gradient))


def slow_route(weights: Floats, parents: Any, leaf_of: Any, x: Floats, arm: int, path_weight: float = 1.0) -> float:
    """The log routing score of one context and one arm: node by node up the path, and the arm's own function."""
    nodes, node, path = len(parents), int(leaf_of[arm]), 0.0

    def log_g(function: int) -> float:
        return -(max(0.0, 1.0 - float(np.append(x, 1.0) @ weights[function])) ** 3)

    of_arms = len(weights) > nodes
    node = int(parents[node]) if of_arms else node
    while node > 0:
        path += log_g(node)
        node = int(parents[node])
    return path_weight * path + log_g(nodes + arm) if of_arms else path
