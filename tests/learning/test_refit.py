"""Refits fit again only what changed: equal to a refit from scratch, bit for bit; and what looks on at long fits."""

import _thread
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem
from helpers.reference import fingerprint, least_squares
from helpers.strategies import csr, dense, few, seeds
from hypothesis import given
from hypothesis import strategies as st

import treetop
from treetop import Feedback, Linear, Model, _core
from treetop.arrays import Fitted, Rows
from treetop.effort import Effort
from treetop.experiments.execute import execute
from treetop.experiments.settings import Plan
from treetop.learning.linear import NO_THRESHOLDS
from treetop.learning.samples import paper_samples

EARLIER, LATE = 250, 520


def same_bits(a: Rows, b: Rows) -> bool:
    return all(getattr(a, name).tobytes() == getattr(b, name).tobytes() for name in ("start", "index", "value"))


def histories(problem: Problem) -> list[Feedback]:
    """A history that grows, is completed by late rewards, is corrected, loses a round, and gets another order."""
    full = problem.feedback(600)
    rng = np.random.default_rng(5)

    def part(rows: Any, rewards: Any) -> Feedback:
        return Feedback(full.contexts.csr()[rows], full.arms[rows], full.nodes[rows], rewards[rows])

    waiting = np.where(rng.random(full.rewards.shape) < 0.2, np.nan, full.rewards)
    corrected = full.rewards.copy()
    corrected[7, 0] = 1 - corrected[7, 0]
    everything = np.arange(600)
    return [
        part(everything[:EARLIER], waiting),
        part(everything[:LATE], waiting),
        part(everything[:LATE], full.rewards),
        part(everything[:LATE], full.rewards),
        part(everything, full.rewards),
        part(everything, corrected),
        part(np.delete(everything, 9), corrected),
        part(rng.permutation(600), corrected),
    ]


@pytest.mark.filterwarnings("ignore:the feedback has")
@pytest.mark.parametrize("regressor", [Linear(), Linear(loss="absolute"), Linear(cost=0.1)], ids=str)
def test_a_chain_of_refits_is_a_refit_from_scratch(problem: Problem, regressor: Linear) -> None:
    sizes: list[int] = []
    model = problem.model
    for history in histories(problem):
        model = treetop.refit(model, history, regressor)
        scratch = treetop.refit(problem.model, history, regressor)
        assert same_bits(model.reward_rows, scratch.reward_rows)
        assert (model.reward_rows.fingerprints == scratch.reward_rows.fingerprints).all()
        sizes += np.diff(paper_samples(history, problem.model)[0]).tolist()
    assert min(sizes) == 0
    assert max(sizes) > 64, "no row was fitted by coordinate descent"


def marked(fitted: Fitted) -> Fitted:
    """The same with weights that no fit would find."""
    return replace(fitted, value=fitted.value + np.float32(100))


def solved_again(before: Fitted, after: Fitted) -> list[int]:
    """The rows that do not carry the marks of `before`."""
    return [
        g
        for g in range(len(after))
        if after.row(g).value.tobytes() != before.row(g).value.tobytes() or len(after.row(g).value) == 0
    ]


GROUPS = [[0, 1, 2], [], [3, 4], [5], list(range(80))]


def group_arrays(groups: list[list[int]], target: Callable[[int, int], float]) -> tuple[Any, Any, Any]:
    start = np.cumsum([0, *map(len, groups)]).astype(np.int64)
    rows = np.array([row for group in groups for row in group], np.int32)
    y = np.array([target(g, s) for g, group in enumerate(groups) for s in range(len(group))], np.float32)
    return start, rows, y


def test_only_what_changed_is_solved_again(problem: Problem) -> None:
    contexts = treetop.arrays.as_rows(problem.X[:100])

    def reward(g: int, s: int) -> float:
        return ((3 * g + s) % 4) / 3

    given_ = group_arrays(GROUPS, reward)
    before = marked(Linear().solve(contexts, *given_))

    def again(groups: list[list[int]], target: Any = reward, how: Linear | None = None, X: Any = contexts) -> list[int]:
        after = (how or Linear()).solve(X, *group_arrays(groups, target), before=before)
        return solved_again(before, after)

    empty = 1
    assert again(GROUPS) == [empty]
    assert again([*GROUPS[:2], [4, 3], *GROUPS[3:]]) == [empty, 2]
    assert again([*GROUPS[:2], [3, 4, 5], *GROUPS[3:]]) == [empty, 2]
    assert again([*GROUPS[:3], [], GROUPS[4]]) == [empty, 3]
    assert again(GROUPS, lambda g, s: reward(g, s) if (g, s) != (4, 40) else 0.125) == [empty, 4]
    other = treetop.arrays.as_rows(problem.X[:100].multiply(np.where(np.arange(100) == 1, 1.5, 1)[:, None]))
    assert again(GROUPS, X=other) == [0, empty, 4]
    assert again(GROUPS, how=Linear(threads=3)) == [empty], "threads change no weights"
    for how in (Linear(loss="absolute"), Linear(cost=2), Linear(tolerance=1e-4)):
        assert again(GROUPS, how=how) == list(range(5))
    nothing_known = Rows(before.start, before.index, before.value, before.columns)
    fewer_rows = Linear().solve(contexts, *group_arrays(GROUPS[:4], reward))
    for before_it in (nothing_known, marked(fewer_rows), None):
        assert same_bits(Linear().solve(contexts, *given_, before=before_it), Linear().solve(contexts, *given_))


@few
@given(seeds, st.integers(-(2**63), 2**63 - 1))
def test_fingerprints_are_their_twins(seed: int, key: int) -> None:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((9, 6)) < 0.5, rng.normal(size=(9, 6)), 0.0)
    groups = [rng.integers(0, 9, m).tolist() for m in rng.integers(0, 5, 6)]
    y = rng.random(30).astype(np.float32)
    start, rows, target = group_arrays(groups, lambda g, s: float(y[5 * g + s]))
    x_start, index, value = csr(X)
    found = _core.fingerprints(x_start, index, value, 6, start, rows, target, key, 2)
    content = [(index[a:b], value[a:b]) for a, b in pairwise(x_start)]
    for g, group in enumerate(groups):
        expected = fingerprint([content[row] for row in group], target[start[g] : start[g + 1]].tolist(), key)
        assert found[g] == expected
        assert (found[g] == 0) == (len(group) == 0)


@pytest.mark.parametrize("columns", [3, 2**11, 2**11 + 1, 2**22, 2**22 + 1, 2**31 - 2])
def test_exact_solves_at_any_number_of_features(columns: int) -> None:
    """The cells of a problem are sorted in one, two or three rounds, and the memory is that of the problem."""
    rng = np.random.default_rng(columns)
    X = np.where(rng.random((40, 3)) < 0.7, rng.normal(size=(40, 3)), 0.0)
    far = np.array([0, columns // 2, columns - 1], np.int32)
    start, index, value = csr(X)
    rows, y = np.arange(40, dtype=np.int32), rng.random(40).astype(np.float32)
    groups = np.array([0, 40], np.int64), rows, y
    near = _core.fit(start, index, value, 3, *groups, 0, 1.0, 1e-9, 99, 64, NO_THRESHOLDS, 0, 1)
    there = _core.fit(start, far[index], value, columns, *groups, 0, 1.0, 1e-9, 99, 64, NO_THRESHOLDS, 0, 1)
    assert there[1].tolist() == [0, columns // 2, columns - 1, columns]
    assert there[2].tobytes() == near[2].tobytes()
    np.testing.assert_allclose(dense(*near, 4)[0], least_squares(X, y.astype(float), 1.0), rtol=1e-4, atol=1e-5)


# -------------------- on disk


def test_fingerprints_are_saved_and_known_again(problem: Problem, tmp_path: Path) -> None:
    early, late = histories(problem)[:2]
    model = treetop.refit(problem.model, early)
    model.save(tmp_path / "m")
    loaded = Model.load(tmp_path / "m")
    assert isinstance(loaded.reward_rows, Fitted)
    assert loaded.reward_rows.fingerprints.tobytes() == model.reward_rows.fingerprints.tobytes()
    carried = replace(loaded, reward_rows=marked(loaded.reward_rows))
    assert (treetop.refit(carried, early).reward_rows.value > 50).all(), "nothing was taken over"
    assert same_bits(treetop.refit(loaded, late).reward_rows, treetop.refit(problem.model, late).reward_rows)
    problem.model.save(tmp_path / "m")
    assert not isinstance(Model.load(tmp_path / "m").reward_rows, Fitted)


def test_fingerprints_that_do_not_fit_are_refused(learned: Model, tmp_path: Path) -> None:
    rewards: Any = learned.reward_rows
    with pytest.raises(ValueError, match=f"3 fingerprints of rewards; there are {len(rewards)} rows"):
        replace(learned, reward_rows=replace(rewards, fingerprints=rewards.fingerprints[:3]))
    learned.save(tmp_path / "m")
    path = tmp_path / "m" / "rewards_fingerprints.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(treetop.ModelFileError, match="rewards_fingerprints"):
        Model.load(tmp_path / "m")


def test_known_weights_that_do_not_fit_are_refused() -> None:
    X = csr(np.eye(3))
    groups = np.array([0, 2, 3], np.int64), np.array([0, 1, 2], np.int32), np.ones(3, np.float32)
    weights = np.array([0, 1, 2], np.int64), np.array([0, 1], np.int32), np.ones(2, np.float32)

    def fit(keep: Any, known: Any) -> Any:
        return _core.fit(*X, 3, *groups, 0, 1.0, 1e-3, 9, 9, NO_THRESHOLDS, 0, 1, None, np.array(keep), *known)

    assert fit([True, False], weights)[2][0] == 1
    for keep, known, words in (
        ([True], weights, "1 marks and 2 known rows for 2 groups"),
        ([True, False], (weights[0][:2], weights[1][:1], weights[2][:1]), "2 marks and 1 known rows for 2 groups"),
        ([True, False], (np.array([0, 3, 2]), *weights[1:]), "known weights row 1: row pointers fall from 3 to 2"),
        ([True, False], (None, None, None), "0 marks and 0 known rows for 2 groups"),
    ):
        with pytest.raises(ValueError, match=words):
            fit(keep, known)


# -------------------- progress and interruption


class Seen(list[tuple[int, int]]):
    def __call__(self, done: int, total: int) -> None:
        self.append((done, total))

    def check(self, total: int) -> None:
        assert self[-1] == (total, total)
        assert all(t == total for _, t in self)
        assert [done for done, _ in self] == sorted(done for done, _ in self)


def test_progress_ends_with_all_of_it(problem: Problem) -> None:
    tree, routing, rewards = Seen(), Seen(), Seen()
    built = treetop.Tree.from_labels(problem.X, problem.Y, max_leaf=4, effort=Effort(progress=tree))
    tree.check(built.n_arms * built.depth)
    model = Model.initial(built, problem.X, problem.Y, progress=routing)
    routing.check(routing[-1][1])
    assert routing[-1][1] > 2 * len(problem.Y.indices)
    history = problem.feedback(300)
    treetop.refit(problem.model, history, progress=rewards)
    rewards.check(int(paper_samples(history, problem.model)[0][-1]))
    plain = Model.initial(treetop.Tree.from_labels(problem.X, problem.Y, max_leaf=4), problem.X, problem.Y)
    assert same_bits(model.route_rows, plain.route_rows)


def test_an_experiment_tells_what_it_builds(tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    plan = Plan.of("synthetic:arms=40,rows=300,init=100", ["igw", "greedy"], horizon=200)
    execute(None, plan, building=lambda *facts: told.append(facts))
    done = [what for what, done, total in told if done == total]
    assert done == ["tree", "routing"], "two strategies share one tree"


def endless(progress: Any = None, threads: int = 1) -> None:
    """Coordinate descent that never ends by itself, on more than one problem."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 30)), rng.choice([-1.0, 1.0], 300).astype(np.float32)
    rows = np.arange(300, dtype=np.int32)
    start = np.array([0, 100, 200, 300], np.int64)
    _core.fit(*csr(X), 30, start, rows, y, 1, 1e6, 0.0, 2**62, 0, NO_THRESHOLDS, 0, threads, progress)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_progress_throws_ends_the_work(threads: int) -> None:
    class Enough(Exception):
        pass

    def fed_up(done: int, total: int) -> None:
        raise Enough(done)

    with pytest.raises(Enough):
        endless(fed_up, threads)


def test_ctrl_c_ends_the_work() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    try:
        timer = threading.Timer(0.3, _thread.interrupt_main)
        began = time.monotonic()
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            endless(threads=2)
        assert time.monotonic() - began >= 0.2
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_tree_that_is_stopped() -> None:
    class Enough(Exception):
        pass

    def fed_up(done: int, total: int) -> None:
        if done < total:
            raise Enough(done)

    vectors = np.random.default_rng(0).random((60_000, 40)).astype(np.float32)
    with pytest.raises(Enough):
        treetop.Tree.from_vectors(vectors, max_leaf=2, seed=1, effort=Effort(1, fed_up))
