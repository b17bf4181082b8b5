"""Heirs of fallen arms: where they are sought, among which arms, and when the search is over."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import check_drawn_as_explained

import treetop
from treetop.datasets import load
from treetop.explore import Greedy, Thrifty
from treetop.grow import grow
from treetop.learn import Epochs, Linear
from treetop.lost import BEFORE, FALLEN, Lost, _fallen
from treetop.model import Model
from treetop.next_model import begun
from treetop.pooled import Labelled, Pooled
from treetop.scenario import Scenario
from treetop.search import EVERY_ARM, Eligible, search
from treetop.settle import Standing
from treetop.simulate import begin, run
from treetop.types import Feedback, as_rows

SMALL = "synthetic:arms=300,features=200,rows=3000,init=400"
Drifted = tuple[Model, treetop.Policy, sp.csr_matrix]
ARMS, NODE = 8, 1  # arms of the made-up histories, and a node that some are drawn through


def history(*parts: tuple[int, int, int, float, int]) -> Feedback:
    """One slot a round: (rounds, feature of the context, arm, reward, node) for each part."""
    columns = [np.repeat([part[i] for part in parts], [part[0] for part in parts]) for i in range(1, 5)]
    X = np.eye(3, dtype=np.float32)[columns[0]]
    return Feedback(X, columns[1][:, None], columns[3][:, None], columns[2][:, None], reward_range=None)


WANTED, OTHERS = (200, 0, 0, 1.0, -1), (200, 1, 1, 1.0, -1)  # arm 0 earns in contexts of feature 0, arm 1 in others
FELL = (60, 0, 0, 0.0, -1)


def looked(feedback: Feedback, told: np.ndarray | None = None) -> tuple[Lost | None, Standing]:
    labelled = np.ones(ARMS, np.bool_) if told is None else told
    return Lost.of(feedback, Standing.of(feedback, labelled), Linear())


def at(lost: Lost, feature: int) -> float:
    return float(lost.missed[feature] + lost.missed[-2])


def test_nothing_is_missed_where_nothing_fell() -> None:
    assert looked(history(WANTED, OTHERS))[0] is None
    assert looked(history((5, 0, 0, 0.0, -1)))[0] is None
    nobody = Feedback.none(3, 1)
    assert looked(nobody)[0] is None


def test_what_is_missed_is_missed_where_it_was_wanted() -> None:
    feedback = history(WANTED, OTHERS, FELL)
    lost, standing = looked(feedback)
    assert lost is not None
    assert standing.since[0] == 400
    assert at(lost, 0) > 20 * abs(at(lost, 1))
    # half of the rounds wanted it; arm 0 failed 60 times, arm 1 may be the heir: it has not earned since
    worth = 0.5 * 400 / 2  # as much as it brought before it fell, halved
    assert at(lost, 0) == pytest.approx(worth / ARMS * (7 / 8) / (1 + 1 / 8), rel=0.02)


def test_arms_that_failed_or_earned_are_not_sought() -> None:
    tried = (20, 0, 3, 0.0, NODE)
    earns = (20, 1, 1, 1.0, -1)
    elsewhere = (20, 1, 4, 0.0, -1)  # says nothing of contexts that wanted arm 0
    lost, _ = looked(history(WANTED, OTHERS, FELL, tried, earns, elsewhere))
    assert lost is not None
    assert lost.heirs.mean() == pytest.approx(1)
    assert lost.heirs[[0, 1, 3]].max() < 1e-3
    np.testing.assert_allclose(lost.heirs[[2, 4, 5, 6, 7]], 8 / 5, rtol=0.05)


def test_looking_in_vain_makes_less_of_it() -> None:
    """An arm that was tried where the fallen one was wanted is one less, and speaks against there being an heir."""
    promised = []
    for tried in range(1, 7):
        parts = [(20, 0, arm, 0.0, NODE) for arm in range(2, 2 + tried)]
        lost, _ = looked(history(WANTED, OTHERS, FELL, *parts))
        promised.append(0.0 if lost is None else at(lost, 0) * float(lost.heirs[1]))
    assert all(a > b for a, b in itertools.pairwise(promised))


def test_an_heir_that_was_found_ends_the_search() -> None:
    told = np.arange(ARMS) != 5
    once = history(WANTED, OTHERS, FELL, (1, 0, 5, 1.0, NODE))
    assert looked(once, told)[0] is not None
    assert looked(history(WANTED, OTHERS, FELL, (1, 0, 5, 1.0, NODE), (30, 0, 5, 1.0, -1)), told)[0] is None
    rare = history(WANTED, OTHERS, FELL, (5, 0, 5, 1.0, NODE), (30, 0, 0, 0.0, -1))  # of what there was to have, a few
    assert looked(rare, told)[0] is not None


def test_an_arm_drawn_as_an_heir_is_not_told_of_any_more() -> None:
    feedback = history(WANTED, OTHERS, FELL, (1, 0, 5, 1.0, NODE), (1, 1, 6, 1.0, NODE))
    _, standing = looked(feedback)
    assert np.flatnonzero(~standing.told).tolist() == [0, 5]  # arm 6 paid where arm 0 was not wanted
    assert standing.since[5] == standing.since[0]
    shown = history(WANTED, OTHERS, FELL, (1, 0, 5, 1.0, -1))  # by its score, as ever
    assert looked(shown)[1].told[5]


def test_an_arm_that_earned_since_is_what_it_was() -> None:
    earns = (20, 1, 5, 1.0, -1)
    lucky = history(WANTED, OTHERS, FELL, earns, (1, 0, 5, 1.0, NODE))
    assert looked(lucky)[1].told[5]
    drawn = history(WANTED, OTHERS, FELL, (1, 1, 5, 1.0, NODE), (1, 0, 5, 1.0, NODE))  # never by its score
    assert not looked(drawn)[1].told[5]


def test_an_heir_is_the_heir_of_the_first_arm_that_it_was_found_for() -> None:
    second = [(200, 2, 2, 1.0, -1), (60, 2, 2, 0.0, -1)]
    found = [(1, 0, 5, 1.0, NODE), (30, 0, 5, 1.0, -1)]
    feedback = history(WANTED, OTHERS, FELL, *found, *second, (1, 2, 5, 1.0, NODE))
    standing = looked(feedback)[1]
    assert standing.since[5] == standing.since[0] < standing.since[2]
    assert standing.counted[feedback.arms == 5].all()


def test_an_arm_that_fell_too_may_be_the_heir() -> None:
    """What it earned before its own fall says nothing, though another arm had fallen by then."""
    other = [(100, 1, 3, 1.0, -1), (60, 1, 3, 0.0, -1)]
    lost, standing = looked(history(WANTED, OTHERS, FELL, *other))
    assert standing.since[3] > standing.since[0]
    assert lost is not None
    assert lost.heirs[3] > 0.5


def test_rewards_that_nobody_saw_say_nothing() -> None:
    feedback = history(WANTED, OTHERS, FELL, (1, 0, 5, 1.0, NODE))
    t = np.arange(len(feedback))[:, None]
    unseen = (t % 5 > 0) & (t < 400) & (feedback.arms == 0)
    rewards = np.where(unseen, np.nan, feedback.rewards)
    partial = Feedback(feedback.contexts.csr(), feedback.arms, feedback.nodes, rewards)
    lost, standing = looked(partial)
    assert lost is not None
    assert at(lost, 0) > 20 * abs(at(lost, 1))
    assert not standing.told[5]


@pytest.mark.parametrize("size", [0.4, 1e19])
def test_rewards_of_any_size(size: float) -> None:
    feedback = history((200, 0, 0, size, -1), OTHERS, (400, 0, 0, 0.0, -1), (1, 0, 5, size, NODE))
    lost, standing = looked(feedback)
    assert lost is not None
    assert np.isfinite(lost.missed).all()
    assert not standing.told[5]


def test_only_the_arms_that_earned_most_are_looked_for() -> None:
    many = FALLEN + 4
    earned = [(30 + arm, arm % 3, arm, 1.0, -1) for arm in range(many)]
    failed = [(60, arm % 3, arm, 0.0, -1) for arm in range(many)]
    feedback = history(*earned, *failed)
    standing = Standing.of(feedback, np.ones(many, np.bool_))
    assert (standing.since > 0).all()
    arms, rate = _fallen(feedback, standing.since)
    mean = (30 + np.arange(many)) / standing.since
    assert arms.tolist() == list(range(many - 1, 3, -1))  # of those that earned as much, the latest fell first
    np.testing.assert_allclose(rate, mean[arms])


def test_what_was_wanted_long_ago_is_not_missed() -> None:
    long = history((BEFORE, 0, 0, 1.0, -1), (BEFORE, 1, 1, 1.0, -1), FELL)
    assert looked(long)[1].since[0] == 2 * BEFORE
    assert looked(long)[0] is None


@pytest.fixture(scope="module")
def drifted() -> Drifted:
    """A model of a stream in which a fifth of the arms swapped rewards, at a refit that misses something."""
    data = load(SMALL)
    scenario = Scenario.of("drift", data.n_arms, 4000, 0)
    stream, model = begin(data, 400, 4000, 10, 0, scenario=scenario, apart=True)
    learner = Pooled(known=Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=5))
    policy = treetop.Policy(k=5, explore=3, beam=5, strategy=Thrifty())
    played = run(stream, begun(model, learner), policy, epochs=Epochs.geometric(256, 1.1), regressor=learner,
                 scenario=scenario)  # fmt: skip
    assert played.model.lost is not None
    return played.model, policy, stream.X.csr()[:200]


def test_a_node_promises_what_its_arms_do(drifted: Drifted) -> None:
    model, _, X = drifted
    assert model.lost is not None
    assert model.heirs is not None
    assert model.hope is not None
    assert model.trials is not None
    for i in range(X.shape[0]):
        missed = min(max(0.0, float((X[i] @ model.lost[:-2] + model.lost[-2]).item())), float(model.lost[-1]))
        found = search(model, as_rows(X[i]), 5, None, 5, EVERY_ARM)
        for node, promise, weight in zip(
            found.id[found.is_node], found.promise[found.is_node], found.weight[found.is_node], strict=True
        ):
            below = model.tree.arms_below(int(node))
            hope, heir = max(float(model.hope[below].mean()), 1e-5), missed * float(model.heirs[below].mean())
            assert promise == pytest.approx(hope + heir, rel=1e-4)
            assert weight == pytest.approx(hope + heir * len(below), rel=1e-4)
        single = ~found.is_node
        np.testing.assert_array_equal(found.weight[single], found.promise[single])
        arms = found.id[single]
        own = 0.1 * np.maximum(found.score[single], 1e-4) / (1 + model.trials[arms])
        np.testing.assert_allclose(found.promise[single], own + missed * model.heirs[arms], rtol=1e-4)


def test_only_arms_that_may_be_shown_count(drifted: Drifted) -> None:
    model, _, X = drifted
    assert model.lost is not None
    assert model.heirs is not None
    assert model.hope is not None
    some = np.flatnonzero(np.arange(model.n_arms) % 3 == 0)
    x = X[int((X @ model.lost[:-2]).argmax())]
    missed = min(float((x @ model.lost[:-2] + model.lost[-2]).item()), float(model.lost[-1]))
    found = search(model, as_rows(x), 5, None, 5, Eligible.of(model.tree, some))
    for node, weight in zip(found.id[found.is_node], found.weight[found.is_node], strict=True):
        below = model.tree.arms_below(int(node))
        hope, heir = max(float(model.hope[below].mean()), 1e-5), missed * float(model.heirs[below].mean())
        assert weight == pytest.approx(hope + heir * np.isin(below, some).sum(), rel=1e-4)


@pytest.mark.parametrize("scale", [1e10, 1e30, -1e30])
def test_large_contexts_have_exact_propensities_too(drifted: Drifted, scale: float) -> None:
    model, _, X = drifted
    policy = treetop.Policy(k=1, explore=1, beam=5, strategy=Thrifty(zeal=20))
    view = policy.explain(model, X[3] * scale)
    assert np.isfinite(view.weight).all()
    assert (view.probability > 0).all()


def test_heirs_of_another_number_of_arms_are_refused(drifted: Drifted) -> None:
    model: Any = drifted[0]
    none = np.zeros(0, np.int32)
    engine = Model.unlearned(model.tree, model.route_rows).engine
    known = model.prior, model.trials, model.hope, none, none
    with pytest.raises(ValueError, match="3 heirs for 300 arms"):
        engine.start_from(*known, model.lost, np.ones(3, np.float32))
    with pytest.raises(ValueError, match="5 weights of what was lost for 201 columns"):
        engine.start_from(*known, np.ones(5, np.float32), model.heirs)


def test_draws_are_as_likely_as_stated(drifted: Drifted) -> None:
    model, _, X = drifted
    assert model.lost is not None
    most = int((X @ model.lost[:-2]).argmax())
    policy = treetop.Policy(k=1, explore=1, beam=5, strategy=Thrifty(zeal=20))
    assert check_drawn_as_explained(policy, model, X[most]) > 0.1


def test_greedy_does_not_care(drifted: Drifted) -> None:
    model, policy, X = drifted
    greedy = replace(policy, strategy=Greedy())
    without = replace(model, lost=None, heirs=None)
    first, second = (greedy.decide_batch(m, X, seed=0).arms for m in (model, without))
    np.testing.assert_array_equal(first, second)


def test_a_saved_model_misses_the_same(drifted: Drifted, tmp_path: Path) -> None:
    model, policy, X = drifted
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    first, second = (policy.decide_batch(m, X, seed=3) for m in (model, again))
    np.testing.assert_array_equal(first.arms, second.arms)
    np.testing.assert_array_equal(first.propensities, second.propensities)


def test_new_arms_may_be_heirs(drifted: Drifted) -> None:
    model = drifted[0]
    grown = grow(model, 7, max_leaf=10)
    assert model.heirs is not None
    assert grown.heirs is not None
    np.testing.assert_array_equal(grown.heirs, np.append(model.heirs, np.ones(7)))
    np.testing.assert_array_equal(grown.lost, model.lost)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lost": None}, "lost and heirs have None"),
        ({"heirs": np.ones(3, np.float32)}, "and 3 values"),
        ({"lost": np.full(202, np.nan, np.float32)}, "a weight of lost is nan"),
        ({"heirs": np.full(300, -1, np.float32)}, "heirs are -1"),
    ],
)
def test_bad_parts_are_refused(drifted: Drifted, changed: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(drifted[0], **changed)  # type: ignore[arg-type]


def test_a_stream_that_drifts_is_played_the_same_again() -> None:
    data = load(SMALL)
    scenario = Scenario.of("drift", data.n_arms, 3000, 1)
    stream, model = begin(data, 400, 3000, 10, 1, scenario=scenario, apart=True)
    runs = []
    for threads in (1, 2):
        learner = Pooled(known=Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=5), threads=threads)
        policy = treetop.Policy(k=5, explore=3, beam=5, strategy=Thrifty())
        runs.append(run(stream, begun(model, learner), policy, epochs=Epochs.geometric(256, 1.1), regressor=learner,
                        scenario=scenario))  # fmt: skip
    np.testing.assert_array_equal(runs[0].history.arms, runs[1].history.arms)
    assert (runs[0].history.nodes >= 0).any()
