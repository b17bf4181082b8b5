"""Which slots are observed: each model's frequencies and its c, randomness by key, and what reaches the learner."""

import re

import numpy as np
import pytest
from helpers.datasets import made_up
from scipy.stats import binomtest

import treetop
from treetop.arrays import Bools
from treetop.simulation.observation import (
    OBSERVERS,
    All,
    Cascade,
    Each,
    Observer,
    Position,
    make_observer,
    observer_text,
    uniforms,
)
from treetop.simulation.play import Environment, Learning, begin

N, K = 20_000, 5


def seen(observer: Observer, seed: int = 0) -> Bools:
    rewards = (np.random.default_rng(seed).random((N, K)) < 0.3).astype(np.float32)
    return observer.observed(rewards, uniforms("feedback", seed, 0, np.broadcast_to(np.arange(K), (N, K))))


@pytest.mark.parametrize(
    ("observer", "chances"),
    [
        (All(), [1, 1, 1, 1, 1]),
        (Each(0.25), [0.25] * 5),
        (Position(0.8), [0.8**s for s in range(5)]),
        (Cascade(), [0.7**s for s in range(5)]),
    ],
)
def test_slots_are_observed_as_often_as_the_model_says(observer: Observer, chances: list[float]) -> None:
    mask = seen(observer)
    for slot, chance in enumerate(chances):
        if chance == 1:
            assert mask[:, slot].all()
        else:
            assert binomtest(int(mask[:, slot].sum()), N, chance).pvalue > 1e-4
    if (c := observer.c(K)) is not None:
        assert c == pytest.approx(min(chances))


def test_slots_are_independent_where_the_model_says_so() -> None:
    together = (mask := seen(Each(0.5)))[:, 0] & mask[:, 1]
    assert binomtest(int(together.sum()), N, 0.25).pvalue > 1e-4


def test_a_cascade_is_a_run_of_misses_and_the_first_click() -> None:
    rewards = (np.random.default_rng(3).random((500, K)) < 0.3).astype(np.float32)
    for row, mask in zip(rewards, Cascade().observed(rewards, np.zeros((500, K))), strict=True):
        n = int(mask.sum())
        assert mask[:n].all()
        assert not row[: n - 1].any()
        assert row[n - 1] > 0 or n == K


def test_draws_belong_to_their_key_and_to_nothing_else() -> None:
    columns = np.random.default_rng(0).integers(0, 2**31 - 1, (300, 7))
    whole = uniforms("noise", 5, 0, columns)
    np.testing.assert_array_equal(uniforms("noise", 5, 120, columns[120:]), whole[120:])
    np.testing.assert_array_equal(uniforms("noise", 5, 0, columns[:, ::-1]), whole[:, ::-1])
    for purpose, seed, first in (("noise", 6, 0), ("feedback", 5, 0), ("noise", 5, 1)):
        assert not np.isin(uniforms(purpose, seed, first, columns), whole).any()
    assert whole.min() > 0
    assert whole.max() < 1


def test_draws_are_uniform() -> None:
    draws = uniforms("noise", 1, 0, np.broadcast_to(np.arange(50), (2000, 50)))
    counts, _ = np.histogram(draws, bins=100, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 160  # chi-square with 99 degrees of freedom: 1e-4 lies at 160
    assert abs(np.corrcoef(draws[:, 0], draws[:, 1])[0, 1]) < 0.1


@pytest.mark.parametrize("spec", ["all", "each:c=0.5", "cascade", "position:decay=0.8"])
def test_text_and_observer_are_one(spec: str) -> None:
    assert observer_text(make_observer(spec)) == spec
    assert observer_text(make_observer(spec.partition(":")[0])) == spec  # these are the defaults


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("magic", "it must be one of all, each:c=0.5, cascade, position:decay=0.8"),
        ("each:p=1", "each has no 'p'; it has c"),
        ("cascade:c=1", "cascade has no 'c'; it has no settings"),
        ("each:c=much", "c must be a number, not 'much'"),
        ("each:c=0", "c is 0.0; it must be finite and lie in [1e-12, 1]"),
        ("position:decay=1.1", "decay is 1.1; it must be finite and lie in [1e-12, 1]"),
    ],
)
def test_mistakes_are_named(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make_observer(spec)


@pytest.mark.parametrize("spec", sorted(OBSERVERS))
def test_only_observed_rewards_reach_the_learner_and_all_are_counted(spec: str) -> None:
    stream, model = begin(made_up(600), init=100, horizon=400, max_leaf=4, seed=0)
    played = treetop.run(
        stream,
        model,
        treetop.Policy(),
        seed=3,
        learning=Learning(epochs=treetop.Epochs.explicit([150])),
        environment=Environment(make_observer(spec)),
    )
    history = played.history
    np.testing.assert_array_equal(played.feedback.observed, history.observed)
    np.testing.assert_array_equal(played.feedback.rewards[history.observed], history.rewards[history.observed])
    truth = stream.dataset.Y.csr().toarray()[stream.rows[:, None], history.arms]
    np.testing.assert_array_equal(history.rewards, truth)
    assert played.mean_reward == pytest.approx(truth.sum() / 400)
    assert (history.observed.mean() == 1) == (spec == "all")
    known = np.where(history.observed, truth, np.nan)[:150]
    learned = treetop.refit(model, treetop.Feedback(stream.X.head(150), history.arms[:150], history.nodes[:150], known))
    later = treetop.Policy().decide_batch(learned, stream.X.slice(150, 400), seed=3, first_row=150)
    np.testing.assert_array_equal(later.arms, history.arms[150:])
