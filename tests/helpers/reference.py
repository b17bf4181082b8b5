"""Slow, obvious NumPy twins of the native core, written from the paper and the design, in float64.

They share no code with the package: parity with them is the check of the C++ kernels. Matrices are dense, sets are
sets, and everything is recomputed from scratch.
"""

import functools
import itertools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]

# -------------------- the tree


@dataclass(frozen=True)
class Tree:
    """The hierarchy T of Section 4: `parents[node]` (-1 for the root, node 0) and `leaf_of[arm]`."""

    parents: Ints
    leaf_of: Ints

    @property
    def n_nodes(self) -> int:
        return len(self.parents)

    @property
    def n_arms(self) -> int:
        return len(self.leaf_of)

    def children(self, node: int) -> list[int]:
        """C_{h,i}, in ascending order."""
        return [child for child in range(self.n_nodes) if self.parents[child] == node]

    def is_leaf(self, node: int) -> bool:
        return not self.children(node)

    def path(self, node: int) -> list[int]:
        """The nodes from the root down to `node`, both included."""
        path = [node]
        while self.parents[path[0]] >= 0:
            path.insert(0, int(self.parents[path[0]]))
        return path

    def arms_below(self, node: int) -> list[int]:
        """e_{h,i} read as a set of arms."""
        return [arm for arm in range(self.n_arms) if node in self.path(int(self.leaf_of[arm]))]

    @property
    def depth(self) -> int:
        """Levels below the root."""
        return max(len(self.path(node)) for node in range(self.n_nodes)) - 1

    @property
    def branching(self) -> int:
        """p: the most children of a node."""
        return max(len(self.children(node)) for node in range(self.n_nodes))

    @property
    def max_leaf(self) -> int:
        """m: the most arms of a leaf."""
        return int(np.bincount(self.leaf_of).max())


@dataclass(frozen=True)
class Measure:
    """The owner's: metric, the columns of a context that are its vector, and what makes slacks comparable."""

    metric: str
    first: int
    dims: int
    scale: float = 1.0

    def slack(self, row: Floats, x: Floats) -> float:
        """How far the centre of a routing row is from the context."""
        part = x[self.first : self.first + self.dims]
        centre, length = row[self.first : self.first + self.dims], math.sqrt(float(part @ part))
        if self.metric == "euclidean":
            return math.sqrt(float(np.sum((part - centre) ** 2))) / self.scale
        return max(0.0, 1.0 - (float(part @ centre) / (length * self.scale) if length > 0 else 0.0))


@dataclass(frozen=True)
class Model:
    """A tree with its routing rows and reward rows (nodes first, then arms), both on [x; 1]."""

    tree: Tree
    routing: Floats
    rewards: Floats
    geometric: bool = False
    measure: "Measure | None" = None  # routing rows are centres, compared by it


# -------------------- routing, rewards, search


@dataclass(frozen=True, order=True)
class Effective:
    """A member of A_x. The order of the fields is the canonical order: single arms by id, then nodes by id."""

    is_node: bool
    id: int
    route: float  # log of the product of routing scores along the path
    score: float


def with_bias(x: Floats) -> Floats:
    """[x; 1]"""
    return np.append(x, 1.0)


def log_routing(model: Model, node: int, x: Floats) -> float:
    """log g(x): linear -max(0, 1 - w.[x; 1])^3, geometric log min(1, rad / |x - ctr|) (Section 4), or by a measure."""
    row = model.routing[node]
    if model.measure is not None:
        return -(model.measure.slack(row, x) ** 3)
    if not model.geometric:
        return -(max(0.0, 1.0 - float(row @ with_bias(x))) ** 3)
    radius, distance = float(row[-1]), math.sqrt(float(np.sum((x - row[:-1]) ** 2)))
    if distance <= radius:
        return 0.0
    return math.log(radius / distance) if radius > 0 else -math.inf


def log_path(model: Model, node: int, x: Floats) -> float:
    """The product of the routing scores along the path, as a sum of logs. The root has no say in it."""
    logs = [log_routing(model, step, x) for step in model.tree.path(node)[1:]]
    if model.measure is not None:  # the node's own nearness is all that counts
        return logs[-1] if logs else 0.0
    return functools.reduce(operator.add, logs, 0.0)


def score(model: Model, is_node: bool, index: int, x: Floats) -> float:
    """The reward model's estimate: nu . [x; 1]."""
    row = index if is_node else model.tree.n_nodes + index
    return float(model.rewards[row] @ with_bias(x))


def beam_search(model: Model, x: Floats, eligible: set[int], beam: int) -> tuple[list[int], list[int]]:
    """Algorithm 2: the surviving leaves (their arms are S_x) and the pruned nodes I_x.

    Subtrees without an eligible arm take no place in the beam; a leaf above the last level keeps its place by its
    path score; of equal scores the lower node id survives.
    """
    tree = model.tree
    codes, pruned = [0], []
    while not all(tree.is_leaf(node) for node in codes):
        labels = [node for node in codes if tree.is_leaf(node)]
        labels += [child for node in codes for child in tree.children(node) if eligible & set(tree.arms_below(child))]
        labels.sort(key=lambda node: (-log_path(model, node, x), node))
        codes = labels[:beam]
        pruned += [node for node in labels if node not in codes]
    return codes, pruned


def adaptive_search(model: Model, x: Floats, eligible: set[int], log_beta: float) -> tuple[list[int], list[int]]:
    """The adaptive search of Section 4: a node is far, and pruned, if its own g(x) <= beta; the root is visited."""
    leaves, pruned = [], []
    waiting = [0]
    while waiting:
        node = waiting.pop()
        if not eligible & set(model.tree.arms_below(node)):
            continue
        if node != 0 and log_routing(model, node, x) <= log_beta:
            pruned.append(node)
        elif model.tree.is_leaf(node):
            leaves.append(node)
        else:
            waiting += model.tree.children(node)
    return leaves, pruned


def search(
    model: Model, x: Floats, eligible: set[int], wanted: int, beam: int = 1, beta: float | None = None
) -> list[Effective]:
    """A_x in canonical order: beam search, or adaptive search if beta is given.

    Fewer than `wanted` effective arms: again with twice the beam, or half of beta, until there are enough or all are
    single arms. A node of radius 0 stays far at any beta, so that after 64 attempts every node counts as near.
    """
    tree = model.tree
    for attempt in itertools.count():
        if beta is None:
            leaves, pruned = beam_search(model, x, eligible, beam * 2**attempt)
        elif attempt < 64:
            log_beta = math.log(beta / 2**attempt) if beta > 0 else -math.inf
            leaves, pruned = adaptive_search(model, x, eligible, log_beta)
        else:
            leaves, pruned = beam_search(model, x, eligible, tree.n_nodes)
        arms = [arm for arm in sorted(eligible) if tree.leaf_of[arm] in leaves]
        if not pruned or len(arms) + len(pruned) >= wanted:
            break
    routes = {node: log_path(model, node, x) for node in leaves + pruned}
    found = [Effective(False, arm, routes[int(tree.leaf_of[arm])], score(model, False, arm, x)) for arm in arms]
    return found + [Effective(True, node, routes[node], score(model, True, node, x)) for node in sorted(pruned)]


# -------------------- exploration
# Scores come in canonical order, so that the first maximum is the best: single arms before nodes, then the lower id.


def igw(scores: Floats, rate: float) -> Floats:
    """Inverse gap weighting (Section 3.2) with gamma = sqrt(rate * A'), rate = C * N."""
    best, n = int(np.argmax(scores)), len(scores)
    p = 1.0 / (n + math.sqrt(rate * n) * (scores[best] - scores))
    p[best] = 0.0
    p[best] = 1.0 - p.sum()
    return np.asarray(p)


def boltzmann(scores: Floats, rate: float) -> Floats:
    """Proportional to exp(rate * score), rate = beta log N (Section 5)."""
    p = np.exp(rate * (scores - scores.max()))
    return np.asarray(p / p.sum())


def epsilon_greedy(scores: Floats, rate: float) -> Floats:
    """1 - epsilon + epsilon / A' for the best, epsilon / A' for the others (Section 5)."""
    p = np.full(len(scores), rate / len(scores))
    p[np.argmax(scores)] += 1.0 - rate
    return p


def greedy(scores: Floats, rate: float) -> Floats:
    """The best, for sure."""
    p = np.zeros(len(scores))
    p[np.argmax(scores)] = 1.0
    return p


Strategy = Callable[[Floats, float], Floats]
STRATEGIES: list[Strategy] = [greedy, igw, boltzmann, epsilon_greedy]  # in the order of the native codes

Sequence = tuple[int, ...]


def decisions(scores: Floats, k: int, explore: int, strategy: Strategy, rate: float) -> dict[Sequence, list[float]]:
    """Algorithms 1 and 3, lines 8 to 14, by enumeration: every decision that can happen, with the probability of each
    slot given the slots before it. The first k - explore slots are greedy, the others drawn without replacement."""
    found: dict[Sequence, list[float]] = {(): []}
    for slot in range(min(k, len(scores))):
        step = greedy if slot < k - explore else strategy
        grown: dict[Sequence, list[float]] = {}
        for taken, probabilities in found.items():
            in_play = [i for i in range(len(scores)) if i not in taken]
            for i, p in zip(in_play, step(scores[in_play], rate), strict=True):
                if p > 0:
                    grown[(*taken, i)] = [*probabilities, float(p)]
        found = grown
    return found


def shown_arms(found: dict[Sequence, list[float]], arms_of: list[list[int]]) -> dict[Sequence, float]:
    """Decisions over effective arms -> decisions over arms: a node is replaced by a uniform arm below it
    (Algorithm 3, line 19). `arms_of[i]` lists the eligible arms of effective arm i."""
    shown: dict[Sequence, float] = {}
    for sequence, probabilities in found.items():
        below = [arms_of[i] for i in sequence]
        p = math.prod(probabilities) / math.prod(len(arms) for arms in below)
        for arms in itertools.product(*below):
            shown[arms] = shown.get(arms, 0.0) + p
    return shown


# -------------------- linear problems


def squared_loss(margin: Floats, y: Floats) -> Floats:
    return (margin - y) ** 2


def squared_hinge_loss(margin: Floats, y: Floats) -> Floats:
    return np.asarray(np.maximum(0.0, 1.0 - y * margin) ** 2)


def absolute_loss(margin: Floats, y: Floats) -> Floats:
    return np.abs(margin - y)


LOSSES = [squared_loss, squared_hinge_loss, absolute_loss]  # in the order of the native codes


def objective(w: Floats, X: Floats, y: Floats, loss: int, cost: float) -> float:
    """1/2 |w|^2 + cost * sum of losses on [x; 1], the bias penalised like the rest."""
    margin = np.hstack([X, np.ones((len(X), 1))]) @ w
    return float(0.5 * w @ w + cost * LOSSES[loss](margin, y).sum())


def least_squares(X: Floats, y: Floats, cost: float) -> Floats:
    """The minimiser for the squared loss: (I + 2 cost Z'Z) w = 2 cost Z'y with Z = [X, 1]."""
    Z = np.hstack([X, np.ones((len(X), 1))])
    return np.asarray(np.linalg.solve(np.eye(Z.shape[1]) + 2 * cost * Z.T @ Z, 2 * cost * Z.T @ y))


def few_least_squares(X: Floats, y: Floats, ridge: float, kept: int) -> Floats:
    """The ridge regression on the `kept` features that each alone explain most of y beside its mean, and a bias.

    Only features of rows with a y count; without such rows all weights are 0.
    """
    own = np.flatnonzero((X[y != 0] != 0).any(axis=0))
    gain = (X.T @ (y - y.mean())) ** 2 / ((X**2).sum(axis=0) + ridge)
    chosen = own[np.argsort(-gain[own], kind="stable")[:kept]]
    w = np.zeros(X.shape[1] + 1)
    if (y != 0).any():
        w[[*chosen, -1]] = least_squares(X[:, chosen], y, 0.5 / ridge)
    return w


# -------------------- clustering


def unit(v: Floats) -> Floats:
    """v / |v| along the last axis, zero for zero."""
    length = np.linalg.norm(v, axis=-1, keepdims=True)
    return np.asarray(np.divide(v, length, out=np.zeros_like(v), where=length > 0))


def pifa(X: Floats, Y: Floats) -> Floats:
    """Positive Instance Feature Aggregation: a label's instances summed up, to length 1."""
    return unit(Y.T @ X)


def halves(key: Floats) -> Ints:
    """0 for the ceil(n / 2) largest keys (ties: the earlier point), 1 for the others."""
    label = np.ones(len(key), dtype=np.int32)
    label[np.argsort(-key, kind="stable")[: (len(key) + 1) // 2]] = 0
    return label


def two_means_step(vectors: Floats, centroids: Floats) -> Ints:
    """Balanced assignment: by the lead of the cosine to the first unit centroid over that to the second."""
    affinity = vectors @ unit(centroids).T
    return halves(affinity[:, 0] - affinity[:, 1])


def two_means_centroids(vectors: Floats, label: Ints) -> Floats:
    return np.stack([unit(vectors[label == c].sum(axis=0)) for c in (0, 1)])


def balanced_two_means(vectors: Floats, centroids: Floats) -> Ints:
    """Spherical 2-means with halves of equal size, from given centroids until nothing changes."""
    label = two_means_step(vectors, centroids)
    while True:
        moved = two_means_step(vectors, two_means_centroids(vectors, label))
        if (moved == label).all():
            return label
        label = moved


def second_singular_vector(M: Floats) -> Floats:
    """Dhillon (2001): D1^(-1/2) times the second left singular vector of D1^(-1/2) M D2^(-1/2)."""
    rows, columns = M.sum(axis=1), M.sum(axis=0)
    left = np.linalg.svd(M / np.sqrt(np.outer(rows, columns)))[0]
    return np.asarray(left[:, 1] / np.sqrt(rows))


# -------------------- what a row of weights was fitted from


def fingerprint(contexts: list[tuple[Ints, npt.NDArray[np.float32]]], targets: list[float], key: int) -> int:
    """64 bits that depend on every sample, its place and the key; 0 without samples."""

    def mix(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    def fold(h: int, word: int) -> int:
        return (mix(h ^ word) + 0x9E3779B97F4A7C15) % 2**64

    def bits(value: float) -> int:
        return int(np.float32(value).view(np.uint32))

    h = key % 2**64
    for (index, value), target in zip(contexts, targets, strict=True):
        content = len(index)
        for i, v in zip(index, value, strict=True):
            content = fold(content, int(i) << 32 | bits(v))
        h = fold(fold(h, content), bits(target))
    found = (h or 1) if targets else 0
    return found - 2**64 if found >= 2**63 else found
