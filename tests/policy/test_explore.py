"""Native exploration and decisions: stated propensities against the twin, drawn frequencies against both."""

import math
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from helpers.frequencies import fits
from helpers.reference import STRATEGIES, Effective, Floats, Model, Sequence, decisions, search, shown_arms
from helpers.strategies import (
    ALL,
    BOLTZMANN,
    EPSILON,
    EVERY_ARM,
    EXCEPT,
    GREEDY,
    IGW,
    ONLY,
    Case,
    Eligible,
    balanced_model,
    cases,
    context,
    csr,
    engine,
    many,
    seeds,
)
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

from treetop import _core

DRAWS = 30_000
RATES = {GREEDY: [0.0], IGW: [0.0, 3.0, 1e4], BOLTZMANN: [0.0, 2.0], EPSILON: [0.0, 0.3, 1.0]}
BATTERY = [(strategy, rate) for strategy, rates in RATES.items() for rate in rates]
NAMES = ["greedy", "igw", "boltzmann", "epsilon"]
battery = pytest.mark.parametrize(("strategy", "rate"), BATTERY, ids=[f"{NAMES[s]}-{r:g}" for s, r in BATTERY])

# Three arms and two nodes in canonical order, with ties for the best between an arm and a node and between two arms.
SCORES: Floats = np.array([0.25, 0.75, 0.25, 0.75, -0.5])
IS_NODE = np.array([False, False, False, True, True])
IDS = np.array([4, 7, 9, 2, 5], dtype=np.int32)
SHUFFLED = np.array([3, 0, 4, 2, 1])  # the order in which the native code meets them

INT64 = np.iinfo(np.int64)


def choose(scores: Floats, k: int, explore: int, strategy: int, rate: float, key: int) -> tuple[Any, Any, Any]:
    """Slots as places in the canonical order of the five candidates above."""
    order = SHUFFLED
    chosen, probability, explored = _core.choose(
        scores[order].astype(np.float32), IS_NODE[order], IDS[order], k, explore, strategy, rate, key
    )
    return order[chosen], probability, explored


def test_the_chi_square_test_sees_small_errors() -> None:
    expected: dict[Sequence, float] = {(i,): p for i, p in enumerate([0.5, 0.3, 0.2])}
    wrong: Counter[Sequence] = Counter({(0,): int(0.515 * DRAWS), (1,): int(0.285 * DRAWS), (2,): int(0.2 * DRAWS)})
    assert not fits(wrong, expected)
    assert fits(Counter({d: round(p * DRAWS) for d, p in expected.items()}), expected)


# -------------------- choose


@battery
@pytest.mark.parametrize(("k", "explore"), [(1, 1), (3, 2)])
def test_choices_follow_the_enumerated_distribution(strategy: int, rate: float, k: int, explore: int) -> None:
    found = decisions(SCORES, k, explore, STRATEGIES[strategy], rate)
    counts: Counter[Sequence] = Counter()
    stated: dict[Sequence, list[float]] = {}
    for key in _core.row_keys(2024, 0, DRAWS).tolist():
        chosen, probability, _ = choose(SCORES, k, explore, strategy, rate, key)
        counts[tuple(chosen.tolist())] += 1
        stated[tuple(chosen.tolist())] = probability.tolist()
    assert fits(counts, {d: math.prod(p) for d, p in found.items()})
    for decision, probability in stated.items():
        assert probability == pytest.approx(found[decision], rel=1e-12)


@many
@given(seeds, st.integers(1, 12), st.integers(0, 14), st.integers(0, 14), st.sampled_from(BATTERY), st.integers(0, 99))
def test_stated_probabilities_are_those_of_the_twin(
    seed: int, n: int, k: int, explore: int, how: tuple[int, float], key: int
) -> None:
    rng = np.random.default_rng(seed)
    k, explore = max(1, k), min(max(1, k), explore)
    strategy, rate = how
    scores = rng.integers(-4, 5, size=n) / 4.0  # many ties
    is_node = np.sort(rng.random(n) < 0.4)
    ids = np.concatenate([np.sort(rng.choice(50, size=m, replace=False)) for m in ((~is_node).sum(), is_node.sum())])
    order = rng.permutation(n)
    chosen, probability, explored = _core.choose(
        scores[order].astype(np.float32), is_node[order], ids[order].astype(np.int32), k, explore, strategy, rate, key
    )
    places = order[chosen].tolist()
    assert len(places) == len(set(places)) == min(k, n), "k distinct slots, or all there are"
    for slot, place in enumerate(places):
        drawn = slot >= k - explore and strategy != GREEDY
        in_play = [i for i in range(n) if i not in places[:slot]]
        p = STRATEGIES[strategy if drawn else GREEDY](scores[in_play], rate)
        assert probability[slot] == pytest.approx(p[in_play.index(place)], rel=1e-12)
        assert probability[slot] > 0
        assert explored[slot] == drawn


@pytest.mark.parametrize(("strategy", "rate"), [(IGW, 0.0), (BOLTZMANN, 0.0), (EPSILON, 1.0)])
def test_no_weight_on_scores_is_uniform(strategy: int, rate: float) -> None:
    for key in range(200):
        assert choose(SCORES, 1, 1, strategy, rate, key)[1].tolist() == pytest.approx([1 / 5], rel=1e-12)


@pytest.mark.parametrize(("strategy", "rate"), [(IGW, 1e300), (BOLTZMANN, 1e300), (EPSILON, 0.0), (GREEDY, 0.0)])
def test_all_weight_on_scores_is_greedy(strategy: int, rate: float) -> None:
    scores = np.array([0.25, 0.75, 0.125, 0.5, -0.5])  # without ties, which even the greediest IGW shares out
    for key in range(200):
        chosen, probability, _ = choose(scores, 4, 4, strategy, rate, key)
        assert chosen.tolist() == [1, 3, 0, 2]
        assert probability.tolist() == pytest.approx([1.0] * 4, rel=1e-12)


def test_twin_strategies_are_distributions() -> None:
    for strategy, rate in BATTERY:
        p = STRATEGIES[strategy](SCORES, rate)
        assert p.sum() == pytest.approx(1.0)
        assert (p >= 0).all() if strategy == GREEDY or rate == 0 else (p > 0).all()


def test_the_key_alone_decides() -> None:
    first = [choose(SCORES, 3, 3, IGW, 1.0, key) for key in range(100)]
    again = [choose(SCORES, 3, 3, IGW, 1.0, key) for key in reversed(range(100))][::-1]
    for a, b in zip(first, again, strict=True):
        assert [part.tobytes() for part in a] == [part.tobytes() for part in b]
    assert len({a[0].tobytes() for a in first}) > 20


def test_uniform_numbers_are_uniform() -> None:
    by_key = np.array([_core.uniform(key, 0) for key in range(20_000)])
    by_slot = np.array([_core.uniform(7, slot) for slot in range(20_000)])
    for numbers in (by_key, by_slot):
        assert (numbers >= 0).all()
        assert (numbers < 1).all()
        assert kstest(numbers, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(by_key, by_slot)[0, 1]) < 0.03


def test_row_keys_continue_a_batch() -> None:
    keys = _core.row_keys(3, 0, 1000)
    assert len(set(keys.tolist())) == 1000
    assert keys[400:].tobytes() == _core.row_keys(3, 400, 600).tobytes()


# -------------------- decide

NO_LIST = np.empty(0, dtype=np.int32)
ONE_LIST = np.empty(0, dtype=np.int64)  # of row pointers: one list serves all rows


def decide(
    model: Model,
    x: Floats,
    keys: npt.NDArray[np.int64],
    k: int,
    explore: int,
    strategy: int = IGW,
    rate: float = 1.0,
    beam: int = 1,
    eligible: Eligible = EVERY_ARM,
    threads: int = 1,
) -> tuple[Any, ...]:
    """One decision for the context x per key."""
    _, index, value = csr(x)
    rows = np.arange(len(keys) + 1, dtype=np.int64) * len(index)
    batch = rows, np.tile(index, len(keys)), np.tile(value, len(keys))
    positions = eligible.positions(model.tree)
    ask: Any = k, explore, beam, -1.0, strategy, rate, eligible.kind, positions, ONE_LIST, threads
    return engine(model).decide(*batch, keys, *ask)


SMALL = balanced_model(seed=1, branching=2, depth=2, per_leaf=3)  # 12 arms
SMALL_X = context(seed=2)
SOME = [EVERY_ARM, Eligible(ONLY, (0, 1, 4, 6, 7, 10)), Eligible(EXCEPT, (0, 3, 5, 11))]


def arms_of(found: list[Effective], model: Model, eligible: Eligible) -> list[list[int]]:
    allowed = eligible.arms(model.tree)
    return [[a for a in model.tree.arms_below(e.id) if a in allowed] if e.is_node else [e.id] for e in found]


@battery
@pytest.mark.parametrize("eligible", SOME, ids=["all", "only", "except"])
def test_shown_arms_follow_the_enumerated_distribution(strategy: int, rate: float, eligible: Eligible) -> None:
    k, explore = 2, 1
    arms, *_ = decide(SMALL, SMALL_X, _core.row_keys(5, 0, DRAWS), k, explore, strategy, rate, eligible=eligible)
    found = search(SMALL, SMALL_X, eligible.arms(SMALL.tree), k, 1)
    assert {e.is_node for e in found} == {True, False}, "the case has lost its point"
    scores = np.array([e.score for e in found])
    possible = decisions(scores, k, explore, STRATEGIES[strategy], rate)
    assert fits(Counter(map(tuple, arms.tolist())), shown_arms(possible, arms_of(found, SMALL, eligible)))


@many
@given(cases, st.integers(1, 6), st.integers(0, 6), st.sampled_from(BATTERY), st.integers(1, 3))
def test_decisions_state_what_happened(case: Case, k: int, explore: int, how: tuple[int, float], beam: int) -> None:
    explore, (strategy, rate) = min(k, explore), how
    keys = _core.row_keys(9, 0, 5)
    rows = decide(case.model, case.x, keys, k, explore, strategy, rate, beam, case.eligible)
    found = search(case.model, case.x, case.eligible_arms, k, beam)
    place = {(e.is_node, e.id): i for i, e in enumerate(found)}
    possible = np.array([e.score for e in found])
    below = arms_of(found, case.model, case.eligible)
    for arms, propensities, scores, explored, nodes, _ in zip(*rows, strict=True):
        filled = min(k, len(found))
        assert filled >= min(k, len(case.eligible_arms))
        assert arms[filled:].tolist() == nodes[filled:].tolist() == [-1] * (k - filled)
        assert not propensities[filled:].any()
        assert not scores[filled:].any()
        assert not explored[filled:].any()
        assert len(set(arms[:filled].tolist())) == filled, "an arm appears twice"
        taken: list[int] = []
        for slot in range(filled):
            chosen = place[(True, nodes[slot]) if nodes[slot] >= 0 else (False, arms[slot])]
            drawn = slot >= k - explore and strategy != GREEDY
            in_play = [i for i in range(len(found)) if i not in taken]
            p = STRATEGIES[strategy if drawn else GREEDY](possible[in_play], rate)[in_play.index(chosen)]
            assert arms[slot] in below[chosen]
            assert propensities[slot] == pytest.approx(p / len(below[chosen]), rel=1e-12)
            assert scores[slot] == found[chosen].score
            assert explored[slot] == drawn
            taken.append(chosen)


def test_the_number_of_threads_is_invisible() -> None:
    model = balanced_model(seed=3, branching=3, depth=3)
    matrix = csr(np.random.default_rng(0).integers(-8, 9, size=(300, 6)) / 8.0)
    keys = _core.row_keys(1, 0, 300)
    serving, everyone = engine(model), (ALL, NO_LIST, ONE_LIST)

    def decide(threads: int) -> list[bytes]:
        return [part.tobytes() for part in serving.decide(*matrix, keys, 5, 3, 4, -1.0, IGW, 10.0, *everyone, threads)]

    one = decide(1)
    for threads in (2, 3, 8, 0):
        assert decide(threads) == one
    with ThreadPoolExecutor(4) as pool:  # several callers at once, each with threads of its own
        for answer in pool.map(decide, [2] * 12):
            assert answer == one


def test_a_row_of_a_batch_is_that_row_alone() -> None:
    model = balanced_model(seed=3)
    X = np.random.default_rng(0).integers(-8, 9, size=(20, 6)) / 8.0
    keys = _core.row_keys(1, 0, 20)
    lists = [np.arange(1 + i % 5, 9 + i % 7, dtype=np.int32) for i in range(20)]
    pointers = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    serving = engine(model)

    def decide(x: Floats, key: npt.NDArray[np.int64], *eligible: Any) -> Any:
        return serving.decide(*csr(x), key, 4, 2, 2, -1.0, BOLTZMANN, 3.0, ONLY, *eligible)

    batch = decide(X, keys, np.concatenate(lists), pointers, 2)
    for i in range(20):
        alone = decide(X[i], keys[i : i + 1], lists[i], ONE_LIST, 1)
        for part, row in zip(batch, alone, strict=True):
            assert part[i].tobytes() == row[0].tobytes()


def test_arm_below_is_the_arm_of_the_decision() -> None:
    """Strategies written in Python replace nodes by this function: the same key and slot give the same arm."""
    eligible = SOME[2]
    positions = eligible.positions(SMALL.tree)
    keys = _core.row_keys(8, 0, 200)
    arms, _, _, _, nodes, _ = decide(SMALL, SMALL_X, keys, 4, 4, IGW, 0.0, eligible=eligible)
    serving = engine(SMALL)
    for row, slot in zip(*np.nonzero(nodes >= 0), strict=True):
        node = int(nodes[row, slot])
        arm, below = serving.arm_below(node, int(keys[row]), int(slot), eligible.kind, positions)
        assert arm == arms[row, slot]
        assert below == len(eligible.arms(SMALL.tree) & set(SMALL.tree.arms_below(node)))


@pytest.mark.parametrize("strategy", [GREEDY, IGW, BOLTZMANN, EPSILON])
def test_fewer_eligible_arms_than_slots(strategy: int) -> None:
    few = Eligible(ONLY, (2, 9))
    arms, propensities, _, _, nodes, _ = decide(
        SMALL, SMALL_X, _core.row_keys(0, 0, 50), 5, 3, strategy, 0.5, eligible=few
    )
    assert all(sorted(row) == [-1, -1, -1, 2, 9] for row in arms.tolist())
    assert (arms[:, 2:] == -1).all()
    assert (nodes == -1).all()
    assert (propensities[:, :2] > 0).all()
    assert (propensities[:, 2:] == 0).all()


@pytest.mark.parametrize("nobody", [Eligible(ONLY, ()), Eligible(EXCEPT, tuple(range(12)))], ids=["only", "except"])
def test_no_eligible_arm_is_an_error(nobody: Eligible) -> None:
    keys = _core.row_keys(0, 0, 3)
    with pytest.raises(ValueError, match="none of the 12 arms is eligible"):
        decide(SMALL, SMALL_X, keys, 2, 1, eligible=nobody)
    with pytest.raises(ValueError, match="none of the 12 arms is eligible"):
        engine(SMALL).search(*csr(SMALL_X), 1, 1, -1.0, nobody.kind, nobody.positions(SMALL.tree))


@pytest.mark.parametrize("key", [INT64.min, -1, 0, INT64.max])
@pytest.mark.parametrize("part", [INT64.min, -1, 0, INT64.max])
def test_every_key_has_its_numbers(key: int, part: int) -> None:
    assert 0 <= _core.uniform(key, part) < 1
    assert len(set(_core.row_keys(key, part, 10).tolist())) == 10
    with pytest.raises(ValueError, match="n is -1, outside"):
        _core.row_keys(key, part, -1)
