"""Context to decision: search, score, explore. The one `decide` that library, simulator and service share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Arms, Floats, Matrix, Rows, as_rows, check_float, check_int
from treetop.model.model import Model
from treetop.policy.budgeted import Bonus, Budgeted
from treetop.policy.draws import batch_keys, choose, draw_probabilities, event_key, event_name, new_event_id
from treetop.policy.eligibility import ALL, Eligible
from treetop.policy.probability import SlateProbabilities, SlateProbability, given_arms, slot_chances
from treetop.policy.search import search
from treetop.policy.strategies import IGW, Strategy, check_strategy, is_native
from treetop.records import Candidates, Decision, Decisions, Explanation

MAX_SLOTS = 65_536
CSR = (sp.csr_matrix, sp.csr_array)
M = TypeVar("M")


@dataclass(frozen=True)
class Policy:
    """How to decide: k slots, the last `explore` of them drawn by the strategy, over the effective arms of a search.

    `beam` nodes survive on each level (Algorithm 2); with `beta`, every node whose routing score exceeds it instead
    (the adaptive search of Section 4). `threads` are those of `decide_batch`, 0 for all cores; no decision depends on
    them. `diversity` is what covering one more group is worth, in rewards: slot by slot, scores have what an arm adds
    to what the slots before cover (`Model.coverage`).

    >>> from treetop.tree.tree import Tree
    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)  # four contexts, each with an arm of its own
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> policy = Policy(k=2, explore=1, beam=1)
    >>> decision = policy.decide(model, X[0], event_id="visit-1")
    >>> sorted(decision.explored.tolist()), len(set(decision.arms.tolist()))
    ([False, True], 2)
    >>> policy.decide_batch(model, X, seed=0)
    Decisions(4 events, 2 slots, epoch 0)
    >>> round(float(policy.explain(model, X[0]).probability.sum()), 9)
    1.0
    """

    k: int = 5
    explore: int = 3
    beam: int = 10
    strategy: Strategy = field(default_factory=IGW)
    beta: float | None = None
    threads: int = 0
    diversity: float = 0.0

    def __post_init__(self) -> None:
        check_int("k", self.k, 1, MAX_SLOTS)
        check_int("explore", self.explore, 0, self.k)
        check_int("beam", self.beam, 1)
        if self.beta is not None:
            check_float("beta", self.beta, 0, 1)
        check_int("threads", self.threads, 0, 4096)
        check_strategy(self.strategy, self.explore)
        check_float("diversity", self.diversity, 0, 1e6)
        if self.diversity and not is_native(self.strategy):
            raise ValueError(f"diversity is {self.diversity:g}; a strategy written in Python has none: it must be 0")

    def decide(
        self,
        model: Model,
        x: Matrix,
        event_id: str | int | None = None,
        eligible: Arms | Eligible | None = None,
        exclude: Arms | None = None,
    ) -> Decision:
        """One decision. The same event id, context, model and settings give the same decision again.

        `event_id` is text or a whole number; without one the decision gets a new one. `eligible` is a list or set of
        arms, a boolean mask over all arms, or a prepared Eligible; `exclude` a list or set of arms. Fewer than k
        eligible arms give a shorter decision, none an error.
        """
        name = new_event_id() if event_id is None else event_name(event_id)
        allowed = _allowed(expect(model, Model, self), eligible, exclude, 1)
        if (quick := self._decide_quickly(model, x, name, allowed)) is not None:
            return quick
        row = one_row(x, model.n_features)
        keys = np.array([event_key(name)], np.int64)
        *slots, components = self._run(model, row, keys, allowed, 1)
        return Decisions((name,), model.epoch, *slots, components=components)[0]

    def decide_batch(
        self,
        model: Model,
        X: Matrix,
        seed: int | None = None,
        event_ids: Sequence[str | int] | None = None,
        eligible: Arms | Eligible | None = None,
        exclude: Arms | None = None,
        *,
        first_row: int = 0,
    ) -> Decisions:
        """One decision per row, on `threads` cores. Randomness comes from the event ids, or from (seed, row number).

        Without either, every row gets a new event id. Rows with fewer than k eligible arms are padded with -1.
        `first_row` numbers the rows from there, so that a batch cut into pieces decides the same. `eligible` is one set
        for all rows or a boolean mask with one row per context.
        """
        rows = as_rows(X, expect(model, Model, self).n_features)
        names, keys = batch_keys(len(rows), seed, event_ids, first_row)
        allowed = _allowed(model, eligible, exclude, len(rows))
        *slots, components = self._run(model, rows, keys, allowed, self.threads)
        return Decisions(names, model.epoch, *slots, components=components)

    def explain(
        self, model: Model, x: Matrix, eligible: Arms | Eligible | None = None, exclude: Arms | None = None
    ) -> Explanation:
        """Every effective arm of a context: route, score, and its chance under the strategy with no slot taken yet."""
        row = one_row(x, expect(model, Model, self).n_features)
        allowed = _allowed(model, eligible, exclude, 1).row(0)
        trials = self.strategy.trials if isinstance(self.strategy, Budgeted) else (0, None)
        found = search(model, row, self.beam, self.beta, self.k, allowed, trials=trials)
        return Explanation(
            found.is_node,
            found.id,
            found.route,
            found.score,
            found.exploration_value,
            self._first_draw(model, found),
            components=found.components,
            new_share=found.new_share,
            prior=found.prior,
        )

    def probability(
        self, model: Model, x: Matrix, arms: Arms, eligible: Arms | Eligible | None = None, exclude: Arms | None = None
    ) -> SlateProbability:
        """The exact chance that a decision shows these arms in this order, and of each given those before it.

        It is what `decide` records for a decision with these arms. With fewer than k arms it is the chance that a
        decision begins with them. An arm that cannot be shown has probability 0, and so have those after it.

        >>> from treetop.tree.tree import Tree
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
        >>> policy = Policy(k=2, explore=1)  # all four arms score 0: the first is the best, then any other
        >>> policy.probability(model, X[0], [0, 3])
        SlateProbability(slots=array([1.        , 0.33333333]), whole=0.333...)
        """
        row = one_row(x, expect(model, Model, self).n_features)
        found = self.probability_batch(model, row, given_arms(arms, 1, model, self.k), eligible, exclude)
        return SlateProbability(found.slots[0], float(found.whole[0]))

    def probability_batch(
        self, model: Model, X: Matrix, arms: Any, eligible: Arms | Eligible | None = None, exclude: Arms | None = None
    ) -> SlateProbabilities:
        """The same for a row of arms per context, (n, up to k) padded with -1, on `threads` cores.

        >>> from treetop.tree.tree import Tree
        >>> X = np.eye(4, dtype=np.float32)
        >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
        >>> policy = Policy(k=2, explore=2, beam=1)
        >>> shown = policy.decide_batch(model, X, seed=0)
        >>> bool((policy.probability_batch(model, X, shown.arms).slots == shown.propensities).all())
        True
        """
        rows = as_rows(X, expect(model, Model, self).n_features)
        given = given_arms(arms, len(rows), model, self.k)
        p = slot_chances(self, model, rows, given, _allowed(model, eligible, exclude, len(rows))).probability
        possible = np.cumprod(np.where(given < 0, 1.0, p > 0), axis=1) > 0
        slots: Floats = np.where(possible, p, 0.0)
        return SlateProbabilities(slots, np.where(given < 0, 1.0, slots).prod(axis=1))

    def _first_draw(self, model: Model, found: Candidates) -> Floats:
        """The chances in the first slot, if it is one that is drawn."""
        bonus = coverage_bonus(model, found, self.diversity) if self.diversity or _saturates(model) else None
        if type(self.strategy) is not Budgeted:
            gained = found if bonus is None else replace(found, score=np.asarray(found.score + bonus(())))
            return draw_probabilities(self.strategy, gained, model.n_seen)
        strategy = self.strategy.after(model.pooled.exploration_net if model.pooled else 0.0)
        return strategy.slot_probabilities(found, (), self.k, self.k, bonus)

    def begin(
        self, model: Model, row: Rows, event_id: str, allowed: Eligible, ahead: _core.Ahead | None = None
    ) -> Callable[[], Decision]:
        """A function that returns the decision. With `ahead`, a second native thread starts on it now.

        >>> from treetop.policy.eligibility import EVERY_ARM
        >>> from treetop.tree.tree import Tree
        >>> X = np.eye(4, dtype=np.float32)
        >>> model, x = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X), as_rows(X[:1])
        >>> policy = Policy(k=2, explore=1)
        >>> coming = policy.begin(model, x, "visit-1", EVERY_ARM, _core.Ahead())
        >>> bool((coming().arms == policy.decide(model, x, "visit-1").arms).all())
        True
        """
        if ahead is not None and (quick := self._quickly(row, event_id, allowed, model.n_seen)) is not None:
            started = model.engine.begin_one(ahead, *quick)
            if started is not None:
                return lambda: _decision(event_id, model.epoch, started.take())
        return lambda: self.decide(model, row, event_id, allowed)

    def _decide_quickly(self, model: Model, x: Any, name: str, allowed: Eligible) -> Decision | None:
        """The decision for a row that the core can read as it is; None for whatever has to be looked at first."""
        quick = self._quickly(x, name, allowed, model.n_seen)
        out = None if quick is None else model.engine.decide_one(*quick)
        return None if out is None else _decision(name, model.epoch, out)

    def _quickly(self, x: Any, name: str, allowed: Eligible, n_seen: int) -> tuple[Any, ...] | None:
        """What the core takes for a single decision, of a row that it may be able to read as it is."""
        if type(x) in CSR:
            arrays, columns = (x.indptr, x.indices, x.data), x.shape[-1]
        elif type(x) is Rows:
            arrays, columns = (x.start, x.index, x.value), x.columns
        else:
            return None
        if not is_native(self.strategy) or (allowed.kind != ALL and allowed.mask is None):
            return None
        beta = -1.0 if self.beta is None else self.beta
        strategy = self.strategy.native(n_seen)  # type: ignore[attr-defined]
        slots = event_key(name), self.k, self.explore, self.beam, beta
        return (*arrays, columns, *slots, *strategy, allowed.mask, self.diversity)

    def _run(self, model: Model, x: Rows, keys: Any, allowed: Eligible, threads: int) -> tuple[Any, ...]:
        if not is_native(self.strategy):
            return self._run_slowly(model, x, keys, allowed)
        kind, rate = self.strategy.native(model.n_seen)  # type: ignore[attr-defined]
        beta = -1.0 if self.beta is None else self.beta
        asked = (x.start, x.index, x.value, keys, self.k, self.explore, self.beam, beta, kind, rate)
        given = allowed.kind, allowed.positions, allowed.start
        return model.engine.decide(*asked, *given, threads=threads, mask=allowed.mask, diversity=self.diversity)

    def _run_slowly(self, model: Model, x: Rows, keys: Any, allowed: Eligible) -> tuple[Any, ...]:
        """The same arrays for a strategy written in Python, one context at a time."""
        n, k = len(x), self.k
        arms, nodes = np.full((n, k), -1, np.int32), np.full((n, k), -1, np.int32)
        propensities, scores = np.zeros((n, k)), np.zeros((n, k), np.float32)
        explored = np.zeros((n, k), np.bool_)
        components = np.zeros((n, k, model.engine.n_components), np.float32)
        for i in range(n):
            mine, key = allowed.row(i), int(keys[i])
            found = search(model, x.row(i), self.beam, self.beta, k, mine)
            chosen, p, drawn = choose(found, k, self.explore, self.strategy, model.n_seen, key)
            for slot, candidate in enumerate(chosen):
                arms[i, slot], below = found.id[candidate], 1
                if found.is_node[candidate]:
                    nodes[i, slot] = found.id[candidate]
                    arms[i, slot], below = model.engine.arm_below(
                        int(found.id[candidate]), key, slot, mine.kind, mine.positions, mine.mask
                    )
                propensities[i, slot] = p[slot] / below
            scores[i, : len(chosen)] = found.score[chosen]
            explored[i, : len(chosen)] = drawn
            components[i, : len(chosen)] = found.components[chosen]
        return arms, propensities, scores, explored, nodes, components


def _decision(event_id: str, epoch: int, found: tuple[Any, ...]) -> Decision:
    arms, propensities, scores, explored, nodes, components = found
    return Decision(event_id, epoch, arms, propensities, scores, explored, nodes, components=components)


def coverage_bonus(model: Model, found: Candidates, weight: float) -> Bonus:
    """What each effective arm adds to a slate of some of them beside its score, or earns less of that where arms
    saturate; a node covers what one of its arms does on average.

    >>> from treetop.model.coverage import Coverage
    >>> from treetop.tree.tree import Tree
    >>> X = np.eye(3, dtype=np.float32)
    >>> initial = Model.initial(Tree.from_labels(X, X, max_leaf=3), X, X)
    >>> model = replace(initial, coverage=Coverage.of_categories(["tea", "tea", "jam"]))
    >>> bonus = coverage_bonus(model, Policy(beam=1).explain(model, X[0]), weight=0.5)
    >>> bonus([]).tolist(), bonus([0]).tolist()
    ([0.5, 0.5, 0.5], [0.0, 0.0, 0.5])
    """
    coverage, below = model.coverage, model.tree.arms_below
    if coverage is None:
        raise ValueError("a model without coverage has no bonus")
    each = zip(found.is_node, found.id, strict=True)
    means = coverage.means([below(int(z)) if node else [int(z)] for node, z in each])
    rows = [slice(*ends) for ends in pairwise(means.start.tolist())]
    covers = [(means.group[row], means.share[row].astype(np.float64)) for row in rows]

    earns = np.maximum(found.score.astype(np.float64), 0)
    takes = coverage.saturation * np.minimum(earns, 1)

    def bonus(slate: Sequence[int]) -> Floats:
        left, free = np.ones(coverage.groups), np.ones(coverage.groups)
        for i in slate:
            group, share = covers[i]
            left[group] *= 1 - share
            free[group] *= 1 - takes[i] * share
        covered = [float(share @ left[group]) for group, share in covers]
        fresh = [float(np.prod(1 - share * (1 - free[group]))) for group, share in covers]
        return np.asarray(weight * np.array(covered) + earns * (np.array(fresh) - 1))

    return bonus


def _saturates(model: Model) -> bool:
    return model.coverage is not None and model.coverage.saturation > 0


def expect(model: Any, kind: type[M], policy: object) -> M:
    """The model, if it is of the kind that the policy decides with.

    >>> expect(3, int, policy=None)
    3
    """
    if not isinstance(model, kind):
        raise TypeError(f"{type(policy).__name__} decides with a {kind.__name__}, not with a {type(model).__name__}")
    if getattr(policy, "diversity", 0) and getattr(model, "coverage", None) is None:
        raise ValueError("diversity needs a model that knows what its arms cover: Model.coverage, from categories")
    return model


def one_row(x: Matrix, n_features: int) -> Rows:
    """One context as a matrix of one row.

    >>> len(one_row([1.0, 0.0], n_features=2))
    1
    """
    row = as_rows(x, n_features)
    if len(row) != 1:
        raise ValueError(f"decide and explain take 1 context, not {len(row)}; decide_batch takes many")
    return row


def _allowed(model: Model, eligible: Arms | Eligible | None, exclude: Arms | None, contexts: int) -> Eligible:
    allowed = Eligible.listed(model.tree, eligible, exclude)
    if len(allowed.start) and len(allowed.start) != contexts + 1:
        raise ValueError(f"the mask has {len(allowed.start) - 1} rows for {contexts} contexts")
    return allowed
