"""Random trees, models, contexts and eligible sets for the tests, and their way into the native core.

Weights and contexts are small multiples of 1/8: float32 sums of their products are exact, so that rankings and ties
can be compared exactly with the float64 twins.
"""

import os
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from helpers.reference import Floats, Ints, Model, Tree
from treetop import _core

Csr = tuple[npt.NDArray[np.int64], Ints, npt.NDArray[np.float32]]

# The same examples on every run, and no clock: slow machines and sanitizers are welcome. More of them by hand.
slow_checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]
examples = int(os.environ.get("TREETOP_EXAMPLES", "400"))
many = settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=slow_checks)
few = settings(many, max_examples=60)

ALL, ONLY, EXCEPT = 0, 1, 2  # the native codes of eligibility
GREEDY, IGW, BOLTZMANN, EPSILON = 0, 1, 2, 3  # of strategies
SQUARED, SQUARED_HINGE, ABSOLUTE = 0, 1, 2  # of losses


@dataclass(frozen=True)
class Eligible:
    """All arms, only the listed, or all but the listed."""

    kind: int
    listed: tuple[int, ...]

    def arms(self, tree: Tree) -> set[int]:
        if self.kind == ALL:
            return set(range(tree.n_arms))
        listed = set(self.listed)
        return listed if self.kind == ONLY else set(range(tree.n_arms)) - listed

    def positions(self, tree: Tree) -> Ints:
        """The listed arms as sorted positions in the native layout."""
        position_of = _core.layout(tree.parents, tree.leaf_of)[3]
        return np.sort(position_of[list(self.listed)]).astype(np.int32)


EVERY_ARM = Eligible(ALL, ())


@dataclass(frozen=True)
class Case:
    model: Model
    x: Floats
    eligible: Eligible

    @property
    def eligible_arms(self) -> set[int]:
        return self.eligible.arms(self.model.tree)


def csr(dense: Floats) -> Csr:
    """Dense rows as the three arrays that the native core takes."""
    matrix = sp.csr_array(np.atleast_2d(dense))
    matrix.sort_indices()
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data.astype(np.float32)


def dense(start: npt.NDArray[np.int64], index: Ints, value: npt.NDArray[np.float32], columns: int) -> Floats:
    """The three arrays as dense rows."""
    rows = sp.csr_array((value.astype(np.float64), index, start), shape=(len(start) - 1, columns))
    return np.asarray(rows.toarray())


def engine(model: Model, threads: int = 1) -> _core.Engine:
    tree, columns = model.tree, model.routing.shape[1]
    return _core.Engine(
        tree.parents, tree.leaf_of, *csr(model.routing), *csr(model.rewards), columns, model.geometric, threads
    )


def eighths(rng: np.random.Generator, *shape: int, density: float = 0.5) -> Floats:
    """Multiples of 1/8 in [-2, 2], zero outside of the given density."""
    return np.where(rng.random(shape) < density, rng.integers(-16, 17, size=shape) / 8.0, 0.0)


def random_tree(rng: np.random.Generator) -> Tree:
    """Branching 1 to 4, leaves at any depth, some of them empty; now and then the root alone."""
    branching = rng.choice([1, 2, 2, 3, 3, 4])
    parents = [-1]
    for node in range(1, rng.integers(1, 25)):
        parents.append(int(rng.choice([p for p in range(node) if parents.count(p) < branching])))
    leaves = [node for node in range(len(parents)) if node not in parents]
    leaf_of = rng.choice(leaves, size=rng.integers(1, 31))
    return Tree(np.array(parents, dtype=np.int32), leaf_of.astype(np.int32))


def random_model(rng: np.random.Generator, geometric: bool) -> Model:
    tree = random_tree(rng)
    columns, density = int(rng.choice([2, 3, 4, 6, 8, 40, 300])), float(rng.choice([0.02, 0.2, 0.5, 1.0]))
    routing = eighths(rng, tree.n_nodes, columns, density=density)
    rewards = eighths(rng, tree.n_nodes + tree.n_arms, columns, density=density)
    if geometric:
        routing[:, -1] = np.abs(routing[:, -1])  # a radius
    return Model(tree, routing, rewards, geometric)


def random_eligible(rng: np.random.Generator, tree: Tree) -> Eligible:
    """With at least one eligible arm."""
    kind = int(rng.choice([ALL, ONLY, EXCEPT]))
    if kind == ALL:
        return EVERY_ARM
    count = rng.integers(1, tree.n_arms + 1) if kind == ONLY else rng.integers(0, tree.n_arms)
    return Eligible(kind, tuple(sorted(rng.permutation(tree.n_arms)[:count].tolist())))


def random_case(seed: int, geometric: bool) -> Case:
    rng = np.random.default_rng(seed)
    model = random_model(rng, geometric)
    x = eighths(rng, model.routing.shape[1] - 1, density=0.7)
    return Case(model, x, random_eligible(rng, model.tree))


# A seed makes the whole case: sizes drawn by hypothesis itself stay so small that the search has nothing to prune.
seeds = st.integers(0, 2**32 - 1)
linear_cases = st.builds(random_case, seeds, st.just(False))
geometric_cases = st.builds(random_case, seeds, st.just(True))
cases = st.builds(random_case, seeds, st.booleans())


def everyone(case: Case) -> Case:
    """The same case with all arms eligible."""
    return replace(case, eligible=EVERY_ARM)


def balanced_model(seed: int, features: int = 6, branching: int = 3, depth: int = 2, per_leaf: int = 3) -> Model:
    """A balanced tree with dense dyadic weights, for the tests that count draws."""
    rng = np.random.default_rng(seed)
    parents, level = [-1], [0]
    for _ in range(depth):
        grown = [parent for parent in level for _ in range(branching)]
        level = list(range(len(parents), len(parents) + len(grown)))
        parents += grown
    tree = Tree(np.array(parents, dtype=np.int32), np.repeat(level, per_leaf).astype(np.int32))
    routing = rng.integers(-8, 9, size=(tree.n_nodes, features + 1)) / 8.0
    rewards = rng.integers(-4, 5, size=(tree.n_nodes + tree.n_arms, features + 1)) / 16.0
    return Model(tree, routing, rewards)


def context(seed: int, features: int = 6) -> Floats:
    return np.asarray(np.random.default_rng(seed).integers(-8, 9, size=features) / 8.0)
