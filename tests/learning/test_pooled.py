"""The learner that shares strength: the pooled means, what native scores make of them, labelled rows, windows."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import reference
from helpers.problems import Problem
from sklearn.isotonic import IsotonicRegression
from typer.testing import CliRunner

import treetop
from treetop.arrays import as_rows
from treetop.cli.main import app
from treetop.data.datasets import Stream, load
from treetop.experiments.execute import execute
from treetop.experiments.settings import Plan, Settings
from treetop.learning.component_weights import UNLABELLED_FIRST
from treetop.learning.label_samples import LabelSamples
from treetop.learning.pooled import Mechanisms, Pooled
from treetop.learning.pooled_means import KNOTS, WIDEST, interpolate, pooled_means
from treetop.learning.routes import routed_samples
from treetop.model.model import Model
from treetop.policy.budgeted import Budgeted
from treetop.policy.eligibility import Eligible
from treetop.policy.search import search
from treetop.records import Feedback
from treetop.simulation.play import Environment, Learning, TreeBuilding, begin, run
from treetop.simulation.scenario import Scenario, SwappedRewards
from treetop.simulation.worlds import Labels

SMALL = "synthetic:arms=300,features=200,rows=3000,init=400"


@pytest.fixture(scope="module")
def pooled(problem: Problem) -> Model:
    return Pooled().learn(problem.model, problem.feedback(600))


def test_pooled_means_are_isotonic_regression() -> None:
    rng = np.random.default_rng(0)
    place = rng.integers(0, KNOTS, 2000)  # at the knots, where each sample counts for one place alone
    slack, weight = place * WIDEST / (KNOTS - 1), rng.uniform(0.5, 2, 2000)
    reward = (rng.random(2000) < 0.8 - slack / 6).astype(float)
    found = pooled_means(slack, reward, weight)
    twin = IsotonicRegression(increasing=False).fit(slack, reward, sample_weight=weight)
    seen = np.unique(place)
    np.testing.assert_allclose(found[seen], twin.predict(seen * WIDEST / (KNOTS - 1)), atol=1e-12)
    assert (np.diff(found) <= 1e-12).all()


def test_no_samples_give_no_means() -> None:
    assert not pooled_means(np.zeros(0), np.zeros(0), np.zeros(0)).any()


def test_scores_are_weighted_pooled_means_and_regressors(problem: Problem, pooled: Model) -> None:
    """The twin of the core: a table over the cube root of -log route, and the dot product with the arm's weights."""
    assert pooled.pooled is not None
    means, of_nodes = pooled.pooled.means.astype(float), pooled.pooled.node_mean
    of_mean, of_own = pooled.pooled.weights
    assert (of_mean, of_own) == UNLABELLED_FIRST != (1.0, 1.0)  # nothing was logged that could say better
    X = problem.feedback(600).contexts.csr()
    for i in range(20):
        row = as_rows(X[i])
        for c in (search(pooled, row, beam, None, 1, Eligible.of(pooled.tree)) for beam in (1, 3, 50)):
            with np.errstate(divide="ignore"):
                slack = np.minimum(np.cbrt(-np.log(c.route)), WIDEST)
            base = np.where(c.is_node, of_nodes, of_mean * interpolate(means, slack))
            rows = np.where(c.is_node, c.id, pooled.tree.n_nodes + c.id)
            own = pooled.rewards[rows] @ np.append(X[i].toarray().ravel(), 1.0)
            np.testing.assert_allclose(c.score, base + np.where(c.is_node, 1.0, of_own) * own, atol=1e-5)


def test_the_exploration_value_of_an_arm_is_by_score_and_trials_that_of_a_node_by_its_arms(
    problem: Problem, pooled: Model
) -> None:
    assert pooled.pooled is not None
    value = np.random.default_rng(0).exponential(1e-4, pooled.n_arms).astype(np.float32)
    model, trials = replace(pooled, pooled=replace(pooled.pooled, trial_value=value)), pooled.pooled.sample_count
    some = np.flatnonzero(np.arange(pooled.n_arms) % 3 == 0)
    for i in range(20):
        row = problem.feedback(600).contexts.row(i)
        for eligible in (Eligible.of(pooled.tree), Eligible.listed(pooled.tree, some, None)):
            c = search(model, row, 1, None, 1, eligible)
            arms, nodes = c.id[~c.is_node], c.id[c.is_node]
            by_trials = np.maximum(c.score[~c.is_node], 0) / (1 + trials[arms])
            np.testing.assert_allclose(c.exploration_value[~c.is_node], by_trials, rtol=1e-5)
            below = [value[pooled.tree.arms_below(int(node))].mean() for node in nodes]
            assert c.exploration_value[c.is_node] == pytest.approx(below, rel=1e-5)


def test_the_search_is_the_papers(problem: Problem, pooled: Model) -> None:
    twin = reference.Model(
        reference.Tree(pooled.tree.parents, pooled.tree.leaf_of), pooled.routing.toarray(), pooled.rewards.toarray()
    )
    for i in range(20):
        row = problem.feedback(600).contexts.row(i)
        for beam in (1, 3, 5):
            found = search(pooled, row, beam, None, 1, Eligible.of(pooled.tree))
            wanted = reference.search(twin, row.csr().toarray()[0], set(range(pooled.n_arms)), 1, beam)
            assert found.id.tolist() == [e.id for e in wanted]
            assert found.is_node.tolist() == [e.is_node for e in wanted]


def test_labelled_rows_alone_make_the_means() -> None:
    """They know all arms of a beam; the rounds only those that were shown."""
    stream, model = begin(load(SMALL), 400, 600, 10, tree=TreeBuilding(separate_unlabelled=True))
    known = LabelSamples.of(model.tree, stream.X_init, stream.Y_init)
    learner = Pooled(label_samples=known)
    first = learner.learn(model, Feedback.none(model.n_features, 5))
    played = run(stream, first, treetop.Policy(strategy=Budgeted()), learning=Learning(learner))
    later = learner.learn(first, played.feedback.head(79))  # too few to fit routing again
    assert first.pooled is not None
    assert later.pooled is not None
    np.testing.assert_array_equal(first.pooled.means, later.pooled.means)
    routed, _ = routed_samples(first, known, Feedback.none(model.n_features, 5))
    assert routed is not None
    slack = np.minimum(np.cbrt(-routed.log_route), WIDEST)
    means = pooled_means(slack, known.reward.astype(float), known.weight)
    np.testing.assert_allclose(first.pooled.means.astype(float), means, atol=1e-6)
    assert (later.rewards.toarray() != first.rewards.toarray()).any()


def test_routes_are_those_of_the_search(problem: Problem, pooled: Model) -> None:
    row = as_rows(problem.feedback(600).contexts.csr()[3])
    found = search(pooled, row, 10**6, None, 1, Eligible.of(pooled.tree))
    arms = np.concatenate([found.id, [-1]]).astype(np.int32)
    routes = pooled.engine.routes(row.start, row.index, row.value, arms, len(arms), 1)[0]
    np.testing.assert_allclose(np.exp(routes[:-1]), found.route, atol=1e-12)
    assert np.isnan(routes[-1])


def test_bad_arms_are_refused(pooled: Model, problem: Problem) -> None:
    row = as_rows(problem.feedback(600).contexts.csr()[3])
    with pytest.raises(ValueError, match="an arm"):
        pooled.engine.routes(row.start, row.index, row.value, np.array([pooled.n_arms], np.int32), 1, 1)


def test_saved_and_loaded_it_decides_the_same(problem: Problem, pooled: Model, tmp_path: Path) -> None:
    pooled.save(tmp_path / "m")
    policy = treetop.Policy(k=4, explore=2, beam=3, strategy=Budgeted())
    a, b = (
        policy.decide_batch(m, problem.feedback(600).contexts, seed=1) for m in (pooled, Model.load(tmp_path / "m"))
    )
    np.testing.assert_array_equal(a.arms, b.arms)
    np.testing.assert_array_equal(a.propensities, b.propensities)


def test_the_window_keeps_the_latest_samples(problem: Problem) -> None:
    """With a window of 1, an arm's regressor knows only its last showing."""
    feedback = problem.feedback(600)
    narrow = treetop.refit(problem.model, feedback, Pooled(window=1, mechanisms=Mechanisms(growth=1)))
    wide = treetop.refit(problem.model, feedback, Pooled())
    t, slot = np.nonzero(feedback.observed)
    arm = feedback.arms[t, slot]
    often = int(np.bincount(arm).argmax())
    row = problem.model.tree.n_nodes + often
    last = t[arm == often][-1]
    outside = np.setdiff1d(wide.rewards[row].indices, [*feedback.contexts.row(last).index, wide.n_features])
    assert len(outside)
    assert set(narrow.rewards[row].indices) <= {*feedback.contexts.row(last).index.tolist(), wide.n_features}


def test_labelled_rows_are_routed_by_what_has_not_seen_them() -> None:
    data = load(SMALL)
    stream = Stream.draw(data, 400, 100, seed=0)
    tree = treetop.Tree.from_labels(stream.X_init, stream.Y_init, max_leaf=5, seed=0)
    known = LabelSamples.of(tree, stream.X_init, stream.Y_init, beam=5)
    labels = stream.Y_init.csr()
    assert known.reward.sum() == labels.nnz  # every label is there once, led to or not
    np.testing.assert_array_equal(known.reward, np.asarray(labels[known.row, known.arm]).ravel() > 0)
    own = Model.initial(tree, stream.X_init, stream.Y_init)
    rows = as_rows(stream.X_init.csr()[known.row])
    for_itself = own.engine.routes(rows.start, rows.index, rows.value, known.arm, 1, 1)[:, 0]
    right = known.reward > 0
    assert for_itself[right].mean() > known.log_route[right].mean()  # its own rows flatter it
    assert len(known.arm) < len(labels.indices) + 400 * 64


@pytest.mark.parametrize("bad", [{"cost": 0}, {"tolerance": -1}, {"window": 0}])
def test_settings_are_checked(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Pooled(**bad)  # type: ignore[arg-type]


def test_scenarios_do_what_they_say() -> None:
    stream = Stream.draw(load(SMALL), 400, 1000, seed=0)
    new = Scenario.of("new-arms", 300, 1000, seed=0)
    assert new is not None
    assert new.late is not None
    assert new.late.sum() == 60
    assert new.change == 500
    first = new.initial(stream)
    assert not np.isin(first.Y_init.index, np.flatnonzero(new.late)).any()
    assert len(first.Y_init.index) < len(stream.Y_init.index)
    drift = Scenario.of("drift", 300, 1000, seed=0)
    assert drift is not None
    assert drift.partner is not None
    assert (drift.partner[drift.partner] == np.arange(300)).all()
    assert (drift.partner != np.arange(300)).sum() == 60
    labels = Labels(stream.dataset.Y)
    arms = np.tile(np.arange(300, dtype=np.int32), (4, 1))
    shifting = SwappedRewards(labels, drift)
    before, across = shifting.rewards(stream.rows[:4], arms, 0), shifting.rewards(stream.rows[:4], arms, 498)
    plain = labels.rewards(stream.rows[:4], arms)
    np.testing.assert_array_equal(before, plain)
    np.testing.assert_array_equal(across[:2], plain[:2])
    np.testing.assert_array_equal(across[2:], plain[2:][:, drift.partner])
    half = Scenario.of("half-init", 300, 1000, seed=0)
    assert half is not None
    assert half.late is None
    assert half.unlabelled is not None
    assert half.unlabelled.sum() == 150
    assert Scenario.of("stationary", 300, 1000, seed=0) is None
    with pytest.raises(ValueError, match="it must be one of stationary, new-arms, drift, half-init"):
        Scenario.of("magic", 300, 1000, seed=0)


def test_arms_are_not_shown_before_they_appear() -> None:
    data = load(SMALL)
    new = Scenario.of("new-arms", data.n_arms, 2000, seed=0)
    assert new is not None
    assert new.late is not None
    stream, model = begin(data, 400, 2000, 5, 0, scenario=new)
    learning, environment = Learning(Pooled(), treetop.Epochs.doubling(256)), Environment(scenario=new)
    played = run(stream, model, treetop.Policy(strategy=Budgeted()), learning=learning, environment=environment)
    late = np.flatnonzero(new.late)
    assert not np.isin(played.history.arms[:1000], late).any()
    assert np.isin(played.history.arms[1000:], late).any()


def test_simulate_shows_both_learners_and_the_ceiling() -> None:
    asked = ["simulate", SMALL, "--learner", "paper", "--learner", "treetop", "--ceiling", "--json"]
    result = json.loads(CliRunner().invoke(app, asked).stdout)
    assert [(run["settings"]["learner"], run["strategy"]) for run in result["runs"]] == [
        ("paper", "igw"),
        ("treetop", "budgeted"),
    ]
    paper, ours = (run["mean_reward"] for run in result["runs"])
    assert ours > paper
    assert result["ceiling"]["mean_reward"] > 0


def test_better_than_the_faithful_learner_on_eurlex(eurlex: treetop.Dataset) -> None:
    sizes: dict[str, Any] = {"init": 1000, "horizon": 8_000, "max_leaf": 10}
    plan = Plan(
        "eurlex57k",
        (
            Settings("igw", **sizes),
            Settings("budgeted", learner="treetop", label_samples=False, **sizes),
            Settings("budgeted", learner="treetop", **sizes),
        ),
    )
    paper, cold, with_labels = (record.mean_reward for record in execute(None, plan, dataset=eurlex))
    assert cold > 1.8 * paper
    assert with_labels > 2.2 * paper


def first(feedback: Feedback, n: int) -> Feedback:
    return Feedback(feedback.contexts.head(n), feedback.arms[:n], feedback.nodes[:n], feedback.rewards[:n])


def test_between_doublings_arms_without_new_samples_keep_their_weights(problem: Problem) -> None:
    """And a refit on top of another gives what one from nothing gives, to the bit."""
    history = problem.feedback(600)
    base, learner = problem.model, Pooled()
    then, later, doubled = (learner.learn(base, first(history, n)) for n in (300, 304, 512))
    assert then.pooled is not None
    assert later.pooled is not None
    assert doubled.pooled is not None
    assert np.array_equal(then.pooled.means, later.pooled.means)
    assert not np.array_equal(then.pooled.means, doubled.pooled.means)
    quiet = np.setdiff1d(history.arms[:300], history.arms[300:304])
    assert len(quiet) > 5
    rows = base.tree.n_nodes + quiet
    np.testing.assert_array_equal(then.rewards[rows].toarray(), later.rewards[rows].toarray())
    assert np.array_equal(then.reward_rows.fingerprints[rows], later.reward_rows.fingerprints[rows])  # type: ignore[attr-defined]
    step = Pooled().learn(then, first(history, 304))
    for name in ("start", "index", "value", "fingerprints"):
        assert np.array_equal(getattr(step.reward_rows, name), getattr(later.reward_rows, name))


def test_the_bench_of_learners_compares_the_same_refits() -> None:
    words = ["synthetic:arms=60,features=40,rows=900,init=100", "--horizon", "5000", "--afresh", "--json"]
    script = Path(__file__).parents[2] / "benchmarks" / "learners.py"
    done = subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [entry["rounds"] for entry in found["refits"]] == Settings(learner="treetop").epochs().until(5000)
    assert all(entry["treetop"] > 0 and entry["paper"] > 0 for entry in found["refits"])
    assert found["mean_reward"]["treetop"] > found["mean_reward"]["paper"]


def test_an_adaptive_search_that_must_widen_to_all_arms() -> None:
    """Leaves of radius 0 are far from everything at every beta; in the end all arms are near."""
    V = np.repeat(np.eye(2, dtype=np.float32), 4, axis=0)
    model = Model.from_vectors(treetop.Tree.from_vectors(V, max_leaf=4), V)
    seen = Feedback(V, arms=[[i] for i in range(8)], nodes=None, rewards=[[1.0]] * 8)
    policy = treetop.Policy(k=5, explore=2, beta=0.5)
    for learned in (model, treetop.refit(model, seen, Pooled())):
        assert len(set(policy.decide(learned, [-1.0, -1.0], event_id=1).arms.tolist())) == 5


def test_regressors_have_no_weights_that_change_nothing(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where labels tell how large features are; what is left is what the whole fit has there, and scores stay."""
    labels = LabelSamples.of(problem.tree, problem.X[:300], problem.Y[:300])
    feedback = problem.feedback(600)
    few = Pooled(label_samples=labels).learn(problem.model, feedback)
    monkeypatch.setattr("treetop.learning.pooled.NEGLIGIBLE", 0.0)
    every = Pooled(label_samples=labels).learn(problem.model, feedback)
    some, all_of = few.rewards.toarray(), every.rewards.toarray()
    left = some != 0
    assert left.sum() < (all_of != 0).sum()
    np.testing.assert_array_equal(some[left], all_of[left])
    np.testing.assert_array_equal(some[:, -1], all_of[:, -1])  # the bias is always kept
    lost = problem.X[:200] @ (all_of - some)[:, :-1].T
    assert 0 < np.sqrt(np.square(lost[:, left.any(axis=1)]).mean()) < 2 * 0.002


def test_features_that_no_label_has_keep_their_weights() -> None:
    """An age in years beside words of size 1: its weights are small, and what they say is not."""
    X = as_rows(np.hstack([np.eye(4), np.zeros((4, 1))]).astype(np.float32))
    tree = treetop.Tree(np.array([-1, 0, 0], np.int32), np.array([1, 1, 2, 2], np.int32))
    labels = LabelSamples.of(tree, X, np.eye(4, dtype=np.float32))
    limits = Pooled(label_samples=labels).negligible_weights()
    assert (limits[:4] > 0).all()
    assert limits[4:].tolist() == [0.0, 0.0]
