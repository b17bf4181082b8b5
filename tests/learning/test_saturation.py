"""Arms of one group that take from each other's rewards: how much is learned, and decisions and refits go by it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.reference_diversity import left_of_score

import treetop
from treetop import Bandit, Catalogue, Feedback, Model, Tree
from treetop.arrays import Floats
from treetop.bandit.results import same_decision
from treetop.learning.saturation import learned_saturation, slot_factors, unsaturated, with_saturation
from treetop.model.coverage import Coverage
from treetop.model.pooled_state import PooledState

ARMS = 30


def covering_model(coverage: Coverage, saturation: float = 0.0) -> Model:
    X, nothing = np.ones((1, 1), np.float32), np.zeros(ARMS, np.float32)
    tree = Tree(np.array([-1, 0, 0], np.int32), np.where(np.arange(ARMS) % 2, 1, 2).astype(np.int32))
    state = PooledState(
        means=nothing[:2], sample_count=nothing.astype(np.int32), trial_value=nothing, weights=(1.0, 0.75)
    )
    return replace(
        Model.initial(tree, X, np.ones((1, ARMS))), pooled=state, coverage=replace(coverage, saturation=saturation)
    )


def several_groups(rng: np.random.Generator) -> Coverage:
    share = (rng.random((ARMS, 3)) * (rng.random((ARMS, 3)) < 0.6)).astype(np.float32)
    start, group = 3 * np.arange(ARMS + 1, dtype=np.int64), np.tile(np.arange(3, dtype=np.int32), ARMS)
    return Coverage(start, group, share.ravel(), 3)


def played(rng: np.random.Generator, rounds: int, coverage: Coverage, truth: float, looked_at: Floats) -> Feedback:
    """Slots whose true chances are 0.6 of what was said, of groups that saturate by the truth."""
    arms = np.array([rng.permutation(ARMS)[:4] for _ in range(rounds)], np.int32)
    said = rng.uniform(0.1, 0.6, (rounds, 4, 2))
    right = rng.random((rounds, 4)) < said @ np.array([1.0, 0.75]) * 0.6
    factors = slot_factors(replace(coverage, saturation=truth), arms, right.astype(float))
    return Feedback(np.ones((rounds, 1)), arms, None, right * factors * looked_at, components=said)


def test_factors_are_those_of_the_twin() -> None:
    rng = np.random.default_rng(0)
    coverage = replace(several_groups(rng), saturation=0.7)
    arms, score = rng.integers(-1, ARMS, (50, 4)).astype(np.int32), rng.random((50, 4))
    found = slot_factors(coverage, arms, score)
    for t in range(50):
        there = np.flatnonzero(arms[t] >= 0).tolist()
        shares = coverage.shares()[arms[t, there]]
        for s, slot in enumerate(there):
            left = left_of_score(score[t, there], shares, tuple(range(s)), s, 0.7)
            assert found[t, slot] * score[t, slot] == pytest.approx(left)


@pytest.mark.parametrize("truth", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("kind", ["categories", "several groups"])
def test_what_saturates_is_learned(truth: float, kind: str) -> None:
    """Whatever scale the scores have, and however seldom later positions are looked at. It is multiplied by scores,
    which say more here than arms earn: so it is less than the truth. What chance leaves of several groups at once is
    more than what is left of their means: so it is less again."""
    rng = np.random.default_rng(1)
    coverage = (
        Coverage.of_categories(rng.integers(0, 3, ARMS).tolist()) if kind == "categories" else several_groups(rng)
    )
    feedback = played(rng, 16_000, coverage, truth, np.array([1.0, 0.8, 0.6, 0.5]))
    found = learned_saturation(covering_model(coverage), feedback)
    assert found == pytest.approx(0.6 * truth, abs=0.1 if kind == "categories" else 0.2)


def test_few_rounds_say_little() -> None:
    rng = np.random.default_rng(2)
    coverage = Coverage.of_categories(rng.integers(0, 3, ARMS).tolist())
    few = played(rng, 100, coverage, 0.7, np.ones(4))
    assert learned_saturation(covering_model(coverage), few) <= 0.2
    assert learned_saturation(covering_model(coverage), replace(few, components=None)) == 0
    plain = replace(covering_model(coverage), coverage=None)
    assert learned_saturation(plain, few) == 0
    assert with_saturation(plain, 0.5) is plain


def test_rewards_are_as_if_nothing_stood_above() -> None:
    rng = np.random.default_rng(3)
    coverage = Coverage.of_categories(rng.integers(0, 2, ARMS).tolist())
    model, feedback = covering_model(coverage, 0.42), played(rng, 40_000, coverage, 0.7, np.ones(4))
    mean = unsaturated(model, feedback).rewards.mean(axis=0)
    np.testing.assert_allclose(mean, mean[0], rtol=0.03)
    assert feedback.rewards.mean(axis=0)[3] < 0.75 * mean[0]
    assert unsaturated(with_saturation(model, 0.0), feedback) is feedback


@pytest.mark.parametrize("vectors", [False, True])  # refits from disk, and in memory
def test_a_bandit_learns_it_and_decides_by_it(tmp_path: Path, vectors: bool) -> None:
    """The model has it, through files, added arms, evaluation, replay and the gate; without the setting it goes."""
    rng = np.random.default_rng(4)
    centre = rng.normal(size=(4, 6))[np.arange(24) % 4] + rng.normal(0, 0.3, (24, 6))
    right = rng.integers(0, 24, 300)
    X = centre[right] + rng.normal(0, 0.5, (300, 6))
    Y = (np.arange(24) % 4 == right[:, None] % 4).astype(float)
    items = Catalogue([f"a{i}" for i in range(24)], centre if vectors else None, [f"shelf {i % 4}" for i in range(24)])
    rewards = treetop.RewardConfig(saturates=True)
    policy = treetop.PolicyConfig(k=4, explore=2, beam=24)
    config = treetop.Config(policy=policy, rewards=rewards, refit=treetop.RefitConfig(first=10**9, gate="not-worse"))
    labels = {} if vectors else {"X": X, "Y": Y}

    def visits(shop: Bandit, first: int, count: int) -> float:
        shelves = 0
        for i in range(first, first + count):
            wanted, seen = i % 24, False
            arms = [int(str(arm)[1:]) for arm in shop.decide(centre[wanted] + rng.normal(0, 0.3, 6), f"visit-{i}").arms]
            clicks: dict[str | int, float] = {}
            for arm in arms:
                good = arm % 4 == wanted % 4 and rng.random() < 0.8
                clicks[f"a{arm}"] = float(good and not seen)
                seen = seen or good
            shop.reward(f"visit-{i}", clicks)
            shelves += len({arm % 4 for arm in arms})
        return shelves / count

    with Bandit.create(tmp_path / "shop", items, **labels, config=config) as shop:
        before = visits(shop, 0, 1500)
        shop.refit()
        visits(shop, 1500, 1500)
        shop.refit()
        after = visits(shop, 3000, 300)
        model = shop.snapshot.model
        assert model.coverage is not None
        assert model.coverage.saturation >= 0.2
        assert after > before + 0.4
        shop.add_arms(["new"], vectors=centre[:1], categories=["shelf 0"])
        grown = shop.snapshot.model.coverage
        assert grown is not None
        assert grown.saturation == model.coverage.saturation
        shop.decide(centre[0], "last")
        assert all(same_decision(*shop.replay(name)) for name in ("visit-3", "visit-1700", "visit-3100", "last"))
        assert treetop.evaluate(shop, ["explore=0"]).differing == 0
        ungated = treetop.RefitConfig(first=10**9)  # a gate would rightly keep what has learned it
        shop.config = replace(shop.config, rewards=treetop.RewardConfig(), refit=ungated)
        shop.refit()
        off = shop.snapshot.model.coverage
        assert off is not None
        assert off.saturation == 0
    with Bandit.open(tmp_path / "shop") as shop:
        assert shop.roll_back() == model_before(shop)


def model_before(shop: Bandit) -> str:
    loaded = shop.snapshot.model.coverage
    assert loaded is not None
    assert loaded.saturation > 0
    return shop.snapshot.name


def test_what_cannot_saturate_is_refused(tmp_path: Path) -> None:
    config = treetop.Config(rewards=treetop.RewardConfig(saturates=True))
    with pytest.raises(ValueError, match="saturates is true; it needs a catalogue with categories or vectors"):
        Bandit.create(tmp_path / "shop", X=np.eye(4), Y=np.eye(4), config=config)
    with pytest.raises(TypeError, match="saturates must be true or false, not 1"):
        treetop.RewardConfig(saturates=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"saturation is 1\.5"):
        covering_model(Coverage.of_categories([0] * ARMS), 1.5)
