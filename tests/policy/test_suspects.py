"""Suspects in decisions: what contexts that miss a fallen arm promise, and who is drawn there, as twins have it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.stats import chisquare

import treetop
from treetop.arrays import as_rows
from treetop.bandit.growth import grow
from treetop.data.datasets import load
from treetop.learning.linear import Epochs
from treetop.learning.pooled import Labelled, Pooled
from treetop.learning.refit import initial_fit
from treetop.lost import HASTE
from treetop.model.model import Model
from treetop.model.storage import read_manifest, write_array, write_signed
from treetop.policy.search import EVERY_ARM, Eligible, search
from treetop.policy.strategies import Greedy, Thrifty
from treetop.simulation.play import begin, run
from treetop.simulation.scenario import Scenario

SMALL = "synthetic:arms=300,features=200,rows=3000,init=400"
Drifted = tuple[Model, treetop.Policy, sp.csr_matrix]


@pytest.fixture(scope="module")
def drifted() -> Drifted:
    """A model of a stream in which a fifth of the arms swapped rewards, that misses three arms; made up: which."""
    data = load(SMALL)
    scenario = Scenario.of("drift", data.n_arms, 2500, 0)
    stream, model = begin(data, 400, 2500, 10, 0, scenario=scenario, apart=True)
    learner = Pooled(known=Labelled.of(model.tree, stream.X_init, stream.Y_init, beam=5))
    policy = treetop.Policy(k=5, explore=3, beam=5, strategy=Thrifty())
    played = run(stream, initial_fit(model, learner), policy, epochs=Epochs.geometric(256, 1.1), regressor=learner,
                 scenario=scenario)  # fmt: skip
    assert played.model.lost is not None
    rng = np.random.default_rng(0)
    lost = np.column_stack([rng.normal(0, 0.3, (3, 200)), rng.normal(0, 0.1, 3), np.full(3, HASTE)])
    lists = [np.append(rng.choice(data.n_arms, many, replace=False), -1) for many in (100, 250, 0)]
    made = replace(played.model, lost=lost.astype(np.float32).ravel(), ruled=np.concatenate(lists).astype(np.int32))
    return made, policy, stream.X.csr()[:200]


def missed(model: Model, x: sp.csr_matrix) -> tuple[float, np.ndarray]:
    """The twin of the core: what a suspect promises in a context, and which arms are suspects."""
    assert model.lost is not None
    assert model.ruled is not None
    lists = np.split(model.ruled, np.flatnonzero(model.ruled < 0) + 1)[:-1]
    weights = model.lost.reshape(len(lists), -1).astype(float)
    promises = np.clip(x @ weights[:, :-2].T + weights[:, -2], 0, weights[:, -1]).ravel()
    i = int(promises.argmax())
    out = lists[i][:-1] if promises[i] > 0 else np.arange(model.n_arms)
    return float(promises[i]), np.setdiff1d(np.arange(model.n_arms), out)


def longing(model: Model, X: sp.csr_matrix) -> sp.csr_matrix:
    """The context that misses most."""
    return X[int(np.argmax([missed(model, X[i])[0] for i in range(X.shape[0])]))]


def test_a_node_promises_what_its_arms_do(drifted: Drifted) -> None:
    model, _, X = drifted
    assert model.hope is not None
    assert model.trials is not None
    some = 0
    for i in range(X.shape[0]):
        promised, suspects = missed(model, X[i])
        found = search(model, as_rows(X[i]), 5, None, 5, EVERY_ARM)
        for node, promise, weight in zip(
            found.id[found.is_node], found.promise[found.is_node], found.weight[found.is_node], strict=True
        ):
            below = model.tree.arms_below(int(node))
            hope, each = max(float(model.hope[below].mean()), 1e-5), promised * np.isin(below, suspects).sum()
            assert weight == pytest.approx(hope + each, rel=1e-4)
            assert promise == pytest.approx((hope * hope + each * promised) / (hope + each), rel=1e-4)
            some += each > 0
        single = ~found.is_node
        np.testing.assert_array_equal(found.weight[single], found.promise[single])
        arms = found.id[single]
        own = 0.1 * np.maximum(found.score[single], 1e-4) / (1 + model.trials[arms])
        np.testing.assert_allclose(found.promise[single], own + promised * np.isin(arms, suspects), rtol=1e-4)
    assert some > 100, "the case has lost its point"


@pytest.mark.parametrize(
    "eligible",
    [
        lambda model, some: Eligible.of(model.tree, some),
        lambda model, some: Eligible.listed(model.tree, some, None),
        lambda model, some: Eligible.listed(model.tree, None, np.setdiff1d(np.arange(model.n_arms), some)),
    ],
    ids=["mask", "only", "except"],
)
def test_arms_that_may_not_be_shown_do_not_count(drifted: Drifted, eligible: Callable[..., Eligible]) -> None:
    """Where not all arms are eligible, suspects among them count, but one is drawn like another."""
    model, _, X = drifted
    assert model.hope is not None
    some = np.flatnonzero(np.arange(model.n_arms) % 3 == 0)
    x = longing(model, X)
    promised, suspects = missed(model, x)
    found = search(model, as_rows(x), 5, None, 5, eligible(model, some))
    chosen = {}
    for node, promise, weight in zip(
        found.id[found.is_node], found.promise[found.is_node], found.weight[found.is_node], strict=True
    ):
        below = model.tree.arms_below(int(node))
        hope, may = max(float(model.hope[below].mean()), 1e-5), below[np.isin(below, some)]
        each = promised * np.isin(may, suspects).sum()
        assert weight == pytest.approx(hope + each, rel=1e-4)
        assert promise == pytest.approx(hope + each / len(may), rel=1e-4)
        chosen[int(node)] = len(may)
    policy = treetop.Policy(k=1, explore=1, beam=5, strategy=Thrifty(zeal=20))
    view = policy.explain(model, x, eligible=some)
    chance = {int(node): p for node, p, at in zip(view.id, view.probability, view.is_node, strict=True) if at}
    drawn = policy.decide_batch(model, x[np.zeros(500, int)], event_ids=range(500), eligible=some)
    through = drawn.nodes[:, 0] >= 0
    assert through.sum() > 50
    assert np.isin(drawn.arms, some).all()
    for node, p in zip(drawn.nodes[through, 0].tolist(), drawn.propensities[through, 0].tolist(), strict=True):
        assert p == pytest.approx(chance[node] / chosen[node], rel=1e-5)


@pytest.mark.parametrize("many", [50, 200, 300])
def test_suspects_are_drawn_as_often_as_stated(drifted: Drifted, many: int) -> None:
    """Arm by arm, also those below one node: suspects and others."""
    model, _, X = drifted
    assert model.hope is not None
    x = next(x for x in X if len(missed(model, x)[1]) == many and missed(model, x)[0] > 0.2)
    promised, suspects = missed(model, x)
    policy = treetop.Policy(k=1, explore=1, beam=5, strategy=Thrifty(zeal=20))
    view = policy.explain(model, x)
    chance = np.zeros(model.n_arms)
    for name, p, is_node in zip(view.id, view.probability, view.is_node, strict=True):
        if not is_node:
            chance[name] += p
            continue
        below = model.tree.arms_below(int(name))
        may = np.isin(below, suspects)
        hope, each = max(float(model.hope[below].mean()), 1e-5), promised * may.sum()
        part = min(each / (hope + each), 0.999)
        chance[below] += p * ((1 - part) / len(below) + part * may / max(1, may.sum()))
    assert chance.sum() == pytest.approx(1)
    assert (chance > 0).all()
    n = 40_000
    drawn = policy.decide_batch(model, x[np.zeros(n, int)], event_ids=range(n))
    np.testing.assert_allclose(drawn.propensities[:, 0], chance[drawn.arms[:, 0]], rtol=1e-4)
    counts = np.bincount(drawn.arms[:, 0], minlength=model.n_arms)
    likely = chance * n >= 5
    seen, want = (np.append(v[likely], v[~likely].sum()) for v in (counts, chance * n))
    assert likely.sum() > many / 2
    assert chisquare(seen[want > 0], (want * seen.sum() / want.sum())[want > 0]).pvalue > 1e-4


@pytest.mark.parametrize("scale", [1e10, 1e30, -1e30])
def test_large_contexts_have_exact_propensities_too(drifted: Drifted, scale: float) -> None:
    model, _, X = drifted
    policy = treetop.Policy(k=1, explore=1, beam=5, strategy=Thrifty(zeal=20))
    view = policy.explain(model, X[3] * scale)
    assert np.isfinite(view.weight).all()
    assert (view.probability > 0).all()


def test_the_core_refuses_what_does_not_fit(drifted: Drifted) -> None:
    model: Any = drifted[0]
    none = np.zeros(0, np.int32)
    engine = Model.unlearned(model.tree, model.route_rows).engine
    known = model.prior, model.trials, model.hope, none, none
    each = np.zeros(202, np.float32)
    for lost, lists, words in (
        (np.ones(5, np.float32), [-1], "5 weights of what was lost and 1 lists of arms do not fit 201 columns"),
        (each, [-1, -1], "202 weights of what was lost and 2 lists"),
        (each, [3], "202 weights of what was lost and 0 lists"),
        (each, [300, -1], "arm 300 is not an heir; there are arms 0 to 299"),
        (each, [3, 3, -1], "an arm is twice not the heir"),
        (np.zeros(202 * 65, np.float32), [-1] * 65, "65 lists"),
    ):
        with pytest.raises(ValueError, match=words):
            engine.start_from(*known, lost, np.array(lists, np.int32))


def test_greedy_does_not_care(drifted: Drifted) -> None:
    model, policy, X = drifted
    greedy = replace(policy, strategy=Greedy())
    without = replace(model, lost=None, ruled=None)
    first, second = (greedy.decide_batch(m, X, seed=0).arms for m in (model, without))
    np.testing.assert_array_equal(first, second)


def test_a_saved_model_misses_the_same(drifted: Drifted, tmp_path: Path) -> None:
    model, policy, X = drifted
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    first, second = (policy.decide_batch(m, X, seed=3) for m in (model, again))
    np.testing.assert_array_equal(first.arms, second.arms)
    np.testing.assert_array_equal(first.propensities, second.propensities)


def test_an_older_model_does_without(drifted: Drifted, tmp_path: Path) -> None:
    """Models were saved with a promise of each arm instead of lists of suspects; they are still read."""
    model, policy, X = drifted
    model.save(tmp_path / "m")
    manifest = read_manifest(tmp_path / "m")
    (tmp_path / "m" / "ruled.npy").unlink()
    (tmp_path / "m" / "serving.bin").unlink()
    del manifest["files"]["ruled"], manifest["serving"]
    manifest["files"]["heirs"] = write_array(tmp_path / "m" / "heirs.npy", np.ones(model.n_arms, np.float32))
    write_signed(tmp_path / "m", manifest)
    again = Model.load(tmp_path / "m")
    assert again.lost is None
    without = replace(model, lost=None, ruled=None)
    first, second = (policy.decide_batch(m, X, seed=3).arms for m in (without, again))
    np.testing.assert_array_equal(first, second)
    again.save(tmp_path / "m")
    assert not (tmp_path / "m" / "heirs.npy").exists()


def test_new_arms_may_be_heirs(drifted: Drifted) -> None:
    model, _, X = drifted
    grown = grow(model, 7, max_leaf=10)
    x = longing(model, X)
    assert np.setdiff1d(missed(grown, x)[1], missed(model, x)[1]).tolist() == list(range(300, 307))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lost": None}, "lost and ruled come together"),
        ({"ruled": np.array([3], np.int32)}, "lost has [0-9]+ values; 0 fallen arms need 202 each"),
        ({"ruled": np.array([-1] * 9, np.int32)}, "9 fallen arms need 202 each"),
        ({"lost": np.full(202, np.nan, np.float32), "ruled": np.array([-1], np.int32)}, "a weight of lost is nan"),
        ({"lost": np.zeros(202, np.float32), "ruled": np.array([300, -1], np.int32)}, "arms -1 to 300 are ruled out"),
    ],
)
def test_bad_parts_are_refused(drifted: Drifted, changed: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(drifted[0], **changed)  # type: ignore[arg-type]
