"""The orders of a stream: as in the file from its first row on, and two kinds of contexts in turns."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.datasets import folder, made_up
from helpers.problems import topics

import treetop
from treetop.arrays import as_rows
from treetop.data import orders
from treetop.data.orders import BLOCK_ROUNDS, principal_sides


def draw(data: treetop.Dataset, init: int, horizon: int, seed: int = 0, order: str = "blocks") -> treetop.Stream:
    return treetop.Stream.draw(data, init, horizon, seed, order)


def two_kinds(n: int = 9000, seed: int = 0) -> treetop.Dataset:
    """Contexts of feature 0 or of feature 1, a third of them of the second kind, and a little of everything."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0, 0.05, (n, 6))
    X[np.arange(n), (np.arange(n) % 3 == 0).astype(int)] += 1
    labels = as_rows(np.eye(4)[rng.integers(0, 4, n)], what="labels")
    return treetop.Dataset("two kinds", as_rows(X), labels)


@pytest.mark.parametrize("apart", [False, True], ids=["one file", "trn and tst"])
def test_the_order_of_the_file_begins_with_the_initialisation_set(apart: bool, tmp_path: Path) -> None:
    data = treetop.load(folder(tmp_path)) if apart else made_up(100)
    X, Y = (rows.csr().toarray() for rows in (data.X, data.Y))
    for seed in (0, 7):
        stream = draw(data, 30, 50, seed, "file")
        np.testing.assert_array_equal(stream.X_init.csr().toarray(), X[:30])
        np.testing.assert_array_equal(stream.Y_init.csr().toarray(), Y[:30])
        np.testing.assert_array_equal(stream.rows, np.arange(30, 80))
        np.testing.assert_array_equal(stream.X.csr().toarray(), X[30:80])


def test_the_order_of_the_file_goes_round_again_after_the_last_row() -> None:
    rows = draw(made_up(100), 30, 150, order="file").rows
    np.testing.assert_array_equal(rows, [*range(30, 100), *range(30, 100), *range(30, 40)])


def test_the_order_of_the_file_needs_a_row_after_the_initialisation_set(tmp_path: Path) -> None:
    data = treetop.load(folder(tmp_path))
    assert draw(data, 99, 3, order="file").rows.tolist() == [99, 99, 99]
    with pytest.raises(ValueError, match=r"init is 100; it must lie in \[1, 99\]"):
        draw(data, 100, 3, order="file")


def test_sizes_in_the_order_of_the_file_leave_the_initialisation_set_out(tmp_path: Path) -> None:
    data = treetop.load(folder(tmp_path))
    assert data.sizes(30, None, 4) == (30, 100, 4)
    assert data.sizes(30, None, 4, "file") == (30, 70, 4)
    synthetic = treetop.load("synthetic:arms=50,features=30,rows=200,init=80")
    assert synthetic.sizes(None, None, 4) == (80, 200, 4)
    assert synthetic.sizes(None, None, 4, "blocks") == (80, 200, 4)
    assert synthetic.sizes(None, None, 4, "file") == (80, 120, 4)
    short = treetop.load("synthetic:arms=50,features=30,rows=20,init=80")
    assert short.sizes(None, None, 4, "file") == (19, 1, 4)


def test_blocks_take_turns_between_the_two_kinds() -> None:
    data = two_kinds()
    stream = draw(data, 900, 7000)
    kind = data.X.csr()[stream.rows].toarray()[:, 1] > 0.5
    turns = [kind[first : first + BLOCK_ROUNDS] for first in range(0, 7000, BLOCK_ROUNDS)]
    assert [len(turn) for turn in turns] == [2000, 2000, 2000, 1000]
    assert all(turn.all() or not turn.any() for turn in turns)
    assert [bool(turn[0]) for turn in turns] in ([True, False] * 2, [False, True] * 2)


def test_blocks_play_every_row_of_a_side_once_before_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "BLOCK_ROUNDS", 50)
    data = two_kinds(240)
    stream = draw(data, 60, 1000)
    kind = data.X.csr()[stream.rows].toarray()[:, 1] > 0.5
    for side in (stream.rows[kind], stream.rows[~kind]):
        every = np.unique(side)
        rounds = [side[first : first + len(every)] for first in range(0, len(side), len(every))]
        assert all(sorted(one) == every.tolist() for one in rounds[:-1])
        assert (rounds[0] != rounds[1]).any(), "shuffled anew"
        assert (np.sort(rounds[0]) != rounds[0]).any()
    init = treetop.Stream.draw(data, 60, 10, 0)
    np.testing.assert_array_equal(stream.X_init.csr().toarray(), init.X_init.csr().toarray())
    left = [row for row in range(240) if not (data.X.csr()[row].toarray() == init.X_init.csr().toarray()).all(1).any()]
    assert sorted(set(stream.rows.tolist())) == left


def test_blocks_are_the_same_again_and_other_seeds_shuffle_otherwise() -> None:
    data = made_up()
    one, same, other = (draw(data, 200, 900, seed).rows for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


@pytest.mark.parametrize("shape", [(300, 40), (50, 200), (40, 3), (30, 1)])
def test_sides_are_those_of_the_first_singular_vector(shape: tuple[int, int]) -> None:
    """Against a full decomposition of the centred matrix; rows next to the border may fall on either side."""
    rng = np.random.default_rng(1)
    X = rng.random(shape) * (rng.random(shape) < 0.3) * np.linspace(3, 1, shape[1])
    X[:, 0] += 2 * (np.arange(shape[0]) % 2)
    u = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0]
    clear = np.abs(u[:, 0]) > 1e-4
    sides = principal_sides(as_rows(X).csr())
    assert 0 < sides.sum() < len(sides)
    agree = (sides == (u[:, 0] > 0))[clear]
    assert agree.all() or not agree.any()


@pytest.mark.parametrize("X", [np.ones((5, 3)), np.zeros((5, 3)), np.full((5, 30), 0.1), np.ones((1, 4))])
def test_contexts_that_are_all_the_same_have_no_sides(X: Any) -> None:
    with pytest.raises(ValueError, match=f"the {len(X)} contexts of the stream are all the same; order 'blocks' needs"):
        principal_sides(as_rows(X).csr())


def test_rows_of_equal_sums_have_a_component_too() -> None:
    """The vector of ones is then in the null space: an iteration that begins with it never leaves it."""
    X = sp.csr_matrix(np.eye(40, dtype=np.float32)[np.arange(400) % 40])
    assert 0 < principal_sides(X).sum() < 400


def test_shuffled_is_what_it_was(tmp_path: Path) -> None:
    """The numbers that NumPy gives for a seed are fixed; so are the streams of all results so far."""
    single = treetop.Stream.draw(made_up(12), init=4, horizon=6, seed=3)
    rng = np.random.default_rng(3)
    chosen = rng.permutation(12)[:4]
    np.testing.assert_array_equal(single.rows, rng.permutation(np.setdiff1d(np.arange(12), chosen))[:6])
    apart = treetop.Stream.draw(treetop.load(folder(tmp_path)), 30, 500, seed=3, order="shuffled")
    rng = np.random.default_rng(3)
    rng.permutation(100)
    np.testing.assert_array_equal(apart.rows, rng.choice(np.arange(100), 500, replace=True))


def test_another_order_is_refused() -> None:
    X, Y = topics(n=20)
    data = treetop.Dataset("made up", as_rows(X), as_rows(Y, what="labels"))
    with pytest.raises(ValueError, match="order is 'backwards'; it must be one of shuffled, file, blocks"):
        draw(data, 5, 10, order="backwards")
