"""Synthetic sets: the sizes asked for, the same bytes for the same spec, the structure that the docstrings promise."""

import json
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.commands import call
from helpers.reference_synthetic import World, derive
from hypothesis import given, settings
from hypothesis import strategies as st

import treetop
from treetop import _core
from treetop.arrays import Rows
from treetop.data.synthetic import SHAPES, Spec, generate, parse_spec

SMALL = "synthetic:arms=600,features=1500,rows=6000,init=1000,nonzeros=40,labels=4"


@pytest.fixture(scope="module")
def small() -> treetop.Dataset:
    return treetop.load(SMALL)


def same(a: Rows, b: Rows) -> bool:
    return all(np.array_equal(getattr(a, part), getattr(b, part)) for part in ("start", "index", "value"))


def mean_length(rows: Rows) -> float:
    return len(rows.index) / len(rows)


def check_rows(X: Rows, Y: Rows) -> None:
    """Sorted, in range, of length 1, positive; labels are ones."""
    assert _core.inspect_rows(X.start, X.index, X.value, X.columns, "contexts")
    assert _core.inspect_rows(Y.start, Y.index, Y.value, Y.columns, "labels")
    assert (np.diff(X.start) >= 1).all()
    assert (np.diff(Y.start) >= 1).all()
    assert (X.value > 0).all()
    assert (Y.value == 1).all()
    np.testing.assert_allclose(sp.linalg.norm(X.csr().astype(np.float64), axis=1), 1, atol=1e-6)


def test_the_set_is_what_was_asked_for_and_says_that_it_is_synthetic(small: treetop.Dataset) -> None:
    assert small.X_init is not None
    assert small.Y_init is not None
    assert (small.n_arms, small.X.columns, len(small.X), len(small.X_init)) == (600, 1500, 6000, 1000)
    for X, Y in ((small.X, small.Y), (small.X_init, small.Y_init)):
        check_rows(X, Y)
        assert mean_length(X) == pytest.approx(40, rel=0.05)
        assert mean_length(Y) == pytest.approx(4, rel=0.05)
    assert small.facts()["synthetic"] is True
    assert str(small.facts()["name"]) == SMALL
    assert treetop.Dataset("real", small.X, small.Y).facts()["synthetic"] is False


def test_the_same_spec_gives_the_same_bytes_on_any_number_of_threads() -> None:
    spec = parse_spec(SMALL)
    one = generate(spec, threads=1)
    for threads in (2, 5):
        assert all(same(a, b) for a, b in zip(one, generate(spec, threads=threads), strict=True))
    other = generate(parse_spec(SMALL + ",seed=1"))
    assert not any(same(a, b) for a, b in zip(one, other, strict=True))


def test_rows_do_not_depend_on_how_many_there_are() -> None:
    X, Y, X_init, Y_init = generate(parse_spec(SMALL + ",topics=30"))
    x, y, x_init, y_init = generate(Spec(600, 1500, 70, 50, 40, 4, topics=30))
    assert same(X.head(70), x)
    assert same(Y.head(70), y)
    assert same(X_init.head(50), x_init)
    assert same(Y_init.head(50), y_init)
    assert not same(x.head(50), x_init)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_rows_equal_the_slow_twin(data: st.DataObject) -> None:
    arms, features = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 60))
    shape: Any = (
        arms,
        features,
        data.draw(st.integers(1, arms)),
        data.draw(st.floats(1, features)),
        data.draw(st.floats(1, min(arms, 12))),
        data.draw(st.floats(0, 3)),
        data.draw(st.floats(0, 1)),
        data.draw(st.integers(0, 2**63 - 1)),
        2,
        3,
        1,
    )
    start, index, value, y_start, y_index = _core.synthesize(*shape)
    world = World(*shape[:8])
    for i in range(5):
        labels, words = world.row(derive(derive(world.seed, 4), i) if i < 2 else derive(derive(world.seed, 5), i - 2))
        assert y_index[y_start[i] : y_start[i + 1]].tolist() == labels
        assert index[start[i] : start[i + 1]].tolist() == list(words)
        np.testing.assert_allclose(value[start[i] : start[i + 1]], list(words.values()), rtol=1e-5)


@pytest.mark.parametrize(("zipf", "low", "high"), [(0.0, -0.2, 0.1), (0.6, -0.75, -0.45), (1.0, -1.15, -0.75)])
def test_popularity_falls_like_a_power_of_the_rank(zipf: float, low: float, high: float) -> None:
    _, Y, _, _ = generate(parse_spec(f"synthetic:arms=2000,features=2000,rows=40000,init=1,nonzeros=2,zipf={zipf}"))
    counts = np.sort(np.bincount(Y.index, minlength=2000))[::-1]
    ranks = np.arange(10, 1000)
    slope = np.polyfit(np.log(ranks), np.log(counts[ranks - 1]), 1)[0]
    assert low < slope < high


def test_labels_of_a_row_share_their_topic_more_than_chance(small: treetop.Dataset) -> None:
    """The twin knows which topic an arm is in."""
    world = World(600, 1500, 30, 40, 4, 1.0, 0.5, 0)
    topic = np.empty(600, np.int64)
    topic[world.arm_at] = [world.topic_of(position) for position in range(600)]
    rows = np.repeat(np.arange(len(small.Y)), np.diff(small.Y.start))
    pairs = np.flatnonzero(rows[1:] == rows[:-1])
    of_label = topic[small.Y.index]
    together = (of_label[pairs] == of_label[pairs + 1]).mean()
    by_chance = (of_label == np.random.default_rng(0).permutation(of_label)).mean()
    assert together > 0.3
    assert together > 4 * by_chance


def hits(scores: Any, Y: Rows, k: int = 5) -> float:
    top = np.argsort(-scores, axis=1)[:, :k]
    return float(Y.csr().toarray()[np.arange(len(Y))[:, None], top].sum(axis=1).mean())


def linear_and_popular(spec: str) -> tuple[float, float]:
    """Hits among 5 on unseen rows: of a linear model of every arm, and of the arms that are popular everywhere."""
    X, Y, X_test, Y_test = generate(parse_spec(spec))
    contexts = X.csr().toarray()
    ridge = contexts.T @ contexts + 0.5 * np.eye(X.columns)
    learned = X_test.csr() @ np.linalg.solve(ridge, contexts.T @ Y.csr().toarray())
    popular = np.tile(np.bincount(Y.index, minlength=Y.columns).astype(float), (len(Y_test), 1))
    return hits(learned, Y_test), hits(popular, Y_test)


def test_a_linear_model_learns_the_arms_and_noise_makes_it_harder() -> None:
    learned, popular = linear_and_popular(SMALL)
    assert learned > 2.5 * popular
    harder, _ = linear_and_popular(SMALL + ",noise=0.9")
    assert popular < harder < 0.8 * learned
    nothing, popular = linear_and_popular(SMALL + ",noise=1")
    assert nothing < 1.1 * popular


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_of_the_paper_parses_and_may_be_overridden(name: str) -> None:
    spec = parse_spec(f"synthetic:like={name}")
    assert spec.init == {"wiki-500k": 20_000, "amazon-670k": 20_000, "amazon-3m": 50_000}.get(name, 5_000)
    assert spec.topics > 100
    assert spec.zipf == 1
    assert (spec.rows + spec.init) * (spec.nonzeros + spec.labels) * 8 < 8e9
    own = parse_spec(f"synthetic:noise=0.25,like={name},rows=3000,seed=7")
    assert (own.arms, own.rows, own.noise, own.seed) == (spec.arms, 3000, 0.25, 7)


def test_shapes_are_those_of_table_1() -> None:
    assert {name: parse_spec(f"synthetic:like={name}").arms for name in SHAPES} == {
        "eurlex-4k": 4271,
        "amazoncat-13k": 13330,
        "wiki10-31k": 30938,
        "wiki-500k": 501070,
        "amazon-670k": 670091,
        "amazon-3m": 2812281,
    }


@pytest.mark.parametrize(
    "spec",
    [
        "arms=10,features=3,rows=40,init=5",
        "arms=1,features=1,rows=1,init=1",
        "arms=10,features=3,rows=40,init=5,nonzeros=3,labels=10,zipf=10",
        "arms=9,features=50,rows=40,init=5,nonzeros=50,noise=0,topics=9",
        "arms=70,features=9,rows=40,init=5,noise=1,topics=70,labels=69.5,zipf=0",
    ],
)
def test_small_and_extreme_sizes(spec: str) -> None:
    asked = parse_spec("synthetic:" + spec)
    X, Y, X_init, Y_init = generate(asked)
    for x, y in ((X, Y), (X_init, Y_init)):
        check_rows(x, y)
    assert mean_length(X) == pytest.approx(asked.nonzeros, rel=0.2)
    assert mean_length(Y) == pytest.approx(asked.labels, rel=0.2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("arm=5", "unknown 'arm'; it must be one of like, arms, features"),
        ("arms=many", "arms is 'many'; it must be a whole number"),
        ("arms=1.5", "arms is '1.5'; it must be a whole number"),
        ("arms=0", r"arms is 0; it must lie in \[1, 1073741824\]"),
        ("arms=-7", "arms is -7"),
        ("rows=0", r"rows is 0; it must lie in \[1, 1073741824\]"),
        ("init=0", "init is 0"),
        ("features=3,nonzeros=4", r"nonzeros is 4.0; it must be finite and lie in \[1, 3\]"),
        ("labels=0.5", r"labels is 0.5; it must be finite and lie in \[1, 10000\]"),
        ("arms=3,labels=9", r"labels is 9.0; it must be finite and lie in \[1, 3\]"),
        ("arms=3,topics=4", r"topics is 4; it must lie in \[1, 3\]"),
        ("zipf=nan", r"zipf is nan; it must be finite and lie in \[0, 10\]"),
        ("noise=1.1", r"noise is 1.1; it must be finite and lie in \[0, 1\]"),
        ("noise=x", "noise is 'x'; it must be a number"),
        ("seed=-1", "seed is -1"),
        ("like=amazon", "like is 'amazon'; it must be one of eurlex-4k, amazoncat-13k"),
        ("arms=5,arms=6", "'arms=6' is said twice"),
        ("arms", "'arms' is not of the form key=value"),
        ("rows=1000000000", "1,000,005,000 rows of 70 features and 5 labels are 7.5e[+]10 entries; at most 8.59e[+]09"),
    ],
)
def test_mistakes_in_a_spec_are_named(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^synthetic: {message}"):
        treetop.load("synthetic:" + spec)


@pytest.mark.parametrize(
    "wrong",
    [
        {"arms": 0},
        {"arms": 2**40},
        {"features": 0},
        {"topics": 0},
        {"topics": 11},
        {"nonzeros": 0.5},
        {"nonzeros": 21.0},
        {"labels": 0.0},
        {"labels": 10.5},
        {"zipf": -1.0},
        {"noise": float("nan")},
        {"init": -1},
        {"rows": -1},
        {"rows": 2**62},
    ],
)
def test_the_core_refuses_what_it_cannot_make(wrong: dict[str, float]) -> None:
    right: dict[str, Any] = {
        "arms": 10,
        "features": 20,
        "topics": 3,
        "nonzeros": 5.0,
        "labels": 2.0,
        "zipf": 1.0,
        "noise": 0.5,
        "seed": 0,
        "init": 2,
        "rows": 3,
        "threads": 1,
    }
    assert len(_core.synthesize(**right)[0]) == 6
    with pytest.raises(ValueError, match=next(iter(wrong))):
        _core.synthesize(**(right | wrong))


def test_simulate_plays_a_synthetic_set() -> None:
    spec = "synthetic:arms=500,features=900,rows=3000,init=800,nonzeros=30"
    result = json.loads(call("simulate", spec, "--strategy", "igw", "--first-epoch", "512", "--json").stdout)
    assert result["dataset"]["synthetic"] is True
    assert result["dataset"]["name"] == spec
    run = result["runs"][0]
    assert run["settings"]["init"] == 800
    assert run["checkpoints"][-1][0] == 3000
    assert run["mean_reward"] > 0.3
    assert spec in call("simulate", spec, "--horizon", "100").output.replace("\n", "")
