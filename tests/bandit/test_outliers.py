"""Values far outside what a feature has shown: clipped, refused or accepted, and never the end of a good arm."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import Running, running, small_bandit
from helpers.running import settings as bandit_settings

import treetop
from treetop.arrays import Rows, as_rows
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.outliers import ClippedRow, OutlierLimits
from treetop.bandit.results import same_decision
from treetop.bandit.vocabulary import Vocabulary
from treetop.errors import EventConflict, FeatureOutlier
from treetop.model.feature_scale import feature_scale, raised_scale

X, Y = topics()
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


def scale_of(model: treetop.Model) -> Any:
    assert model.feature_scale is not None
    return model.feature_scale


def settings(learner: str = "treetop", **features: Any) -> config.Config:
    chosen = config.Config.of(learner)
    return replace(
        chosen,
        policy=replace(chosen.policy, k=8, explore=0),
        refit=config.RefitConfig(first=10**9),
        features=config.FeatureConfig(**features),
    )


@pytest.fixture
def shop_of(tmp_path: Path) -> Iterator[Any]:
    opened: list[Bandit] = []

    def make(**features: Any) -> Bandit:
        folder = tmp_path / f"shop-{len(opened)}"
        small_bandit(folder, X, Y, config=bandit_settings(features=config.FeatureConfig(**features)))
        opened.append(Bandit.open(folder))
        return opened[-1]

    yield make
    for bandit in opened:
        bandit.close()


@pytest.mark.parametrize("learner", ["treetop", "paper"])
@pytest.mark.parametrize("outliers", ["accept", "clip"])
def test_one_absurd_value_does_not_wreck_the_best_arm(tmp_path: Path, learner: str, outliers: str) -> None:
    """Arm a0 is best where f0 is high. One event with f0 = 1000 and no reward would leave it fifth or worse."""
    rng = np.random.default_rng(0)
    chance = rng.random((8, 8)) * 0.3
    chance[0], chance[0, 0] = 0.3, 0.9

    def contexts(n: int) -> Any:
        return ((rng.random((n, 8)) < 0.3) * rng.random((n, 8))).astype(np.float32)

    def rewards(x: Any, arms: list[Any]) -> dict[Any, float]:
        return {arm: float(rng.random() < x @ chance[:, int(arm[1:])]) for arm in arms}

    first = contexts(400)
    labels = (rng.random((400, 8)) < first @ chance).astype(np.float32)
    arms, names = [f"a{i}" for i in range(8)], [f"f{i}" for i in range(8)]
    chosen = settings(learner, outliers=outliers)
    with Bandit.create(tmp_path / "shop", arms, first, labels, features=names, config=chosen) as bandit:

        def play(n: int) -> None:
            for x in contexts(n):
                served = bandit.decide(x)
                bandit.reward(served.event_id, rewards(x, served.arms))

        play(300)
        bandit.refit()
        assert bandit.decide({"f0": 1.0}).arms[0] == "a0"
        bandit.decide({"f0": 1000.0, "f1": 0.4, "f2": 0.4}, event_id="absurd")
        bandit.reward("absurd", {"a0": 0.0})
        play(40)  # so that the arm is fitted again
        bandit.refit()
        assert bandit.decide({"f0": 1.0}).arms[0] == "a0"
        logged = bandit.event("absurd").event.value[0]
        assert logged == (1000.0 if outliers == "accept" else 10 * np.abs(first[:, 0]).max())


def test_what_is_decided_on_is_what_is_logged(shop_of: Any) -> None:
    bandit = shop_of()
    assert bandit.snapshot.model.feature_scale is not None
    limit = 10 * bandit.snapshot.model.feature_scale[1]
    served = bandit.decide({"f1": 1000.0, "f2": -0.1}, event_id="far")
    event, again = bandit.replay("far")
    assert event.value.tolist() == [limit, np.float32(-0.1)]
    assert same_decision(event, again)
    at_limit = bandit.decide({"f1": float(limit), "f2": -0.1}, event_id="at")
    assert [slot.score for slot in at_limit.slots[:2]] == [slot.score for slot in served.slots[:2]]
    assert len(bandit.explain({"f1": 1000.0})) > 0


def test_the_same_request_is_the_same_after_the_limits_have_changed(shop_of: Any) -> None:
    bandit = shop_of()
    served = bandit.decide({"f1": 1000.0}, event_id="far")
    for i in range(12):
        bandit.decide({"f1": 500.0 + i})
    before = bandit.snapshot.model.feature_scale
    bandit.refit()
    after = bandit.snapshot.model.feature_scale
    assert after[1] == 10 * before[1]  # what 10 of them have reached, clipped as they are
    assert np.array_equal(np.delete(after, 1), np.delete(before, 1))
    assert bandit.decide({"f1": 1000.0}, event_id="far") == served
    with pytest.raises(EventConflict):  # the row is the same, but not the request
        bandit.decide({"f1": 999.0}, event_id="far")


@pytest.mark.parametrize("x", [{"f1": -1000.0}, np.eye(40)[1] * -1000.0], ids=["named", "row"])
def test_refusals_name_feature_value_and_limit(shop_of: Any, x: Any) -> None:
    bandit = shop_of(outliers="refuse", outlier_factor=3.0)
    limit = 3 * bandit.snapshot.model.feature_scale[1]
    said = re.escape(f"feature 'f1' is -1000; by what it has shown, it must lie in [-{limit:g}, {limit:g}]")
    with pytest.raises(FeatureOutlier, match=said):
        bandit.decide(x, event_id="far")
    assert bandit.log.counts().decisions == 0
    bandit.decide(X[0])


def test_accepted_values_are_taken_as_they_are(shop_of: Any) -> None:
    bandit = shop_of(outliers="accept")
    bandit.decide({"f1": 1e30}, event_id="far")
    assert bandit.event("far").event.value.tolist() == [np.float32(1e30)]


def test_a_folder_from_a_model_alone_learns_the_scale_from_its_log(tmp_path: Path, problem: Any) -> None:
    with Bandit.create(tmp_path / "shop", model=problem.model, config=bandit_settings()) as bandit:
        assert bandit.snapshot.limits is None
        bandit.decide({"1": 1e6})
        for i in range(20):
            bandit.decide(X[i])
        bandit.refit()
        assert scale_of(bandit.snapshot.model).max() <= 1.0  # not what one of them has shown
        bandit.decide({"1": 1e6}, event_id="far")
        assert bandit.event("far").event.value[0] <= 10.0


def test_vectors_and_the_scale_outlive_the_process(tmp_path: Path) -> None:
    arms = Catalogue(vectors=np.eye(4) * [1, 2, 3, 4])
    with Bandit.create(tmp_path / "shop", arms, config=settings("paper")) as bandit:
        assert scale_of(bandit.snapshot.model).tolist() == [4.0] * 4  # of too few rows to tell them apart
        bandit.add_arms([4], vectors=np.ones(4))
    with Bandit.open(tmp_path / "shop") as bandit:
        bandit.decide({"0": 100.0}, event_id="far")
        assert bandit.event("far").event.value.tolist() == [40.0]


def test_contexts_may_be_longer_than_the_items_they_are_compared_with(tmp_path: Path) -> None:
    """A cosine knows no length: nobody can say how large contexts are, until the log does."""
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=np.eye(4)), config=settings()) as bandit:
        assert bandit.snapshot.limits is None
        assert bandit.decide([1000.0, 900.0, 0.0, 0.0], event_id="long").arms[:2] == [0, 1]
        for i in range(20):
            bandit.decide([100.0, 50.0, 0.0, float(i)])
        bandit.refit()
        assert scale_of(bandit.snapshot.model).max() == pytest.approx(100.0)


def test_a_model_of_before_has_no_limits(problem: Any, tmp_path: Path) -> None:
    problem.model.save(tmp_path / "model")
    loaded = treetop.Model.load(tmp_path / "model")
    assert loaded.feature_scale is None
    scaled = replace(loaded, feature_scale=np.full(40, 2.0, np.float32))
    scaled.save(tmp_path / "scaled")
    assert scale_of(treetop.Model.load(tmp_path / "scaled")).tolist() == [2.0] * 40
    assert OutlierLimits.of(loaded, config.FeatureConfig(), Vocabulary(40)) is None
    for wrong in (np.ones(39), np.zeros(40), np.full(40, np.inf), np.full(40, np.nan)):
        with pytest.raises(ValueError, match=r"scales? of"):
            replace(loaded, feature_scale=wrong.astype(np.float32))


def brute_raised(scale: Any, rows: Any) -> Any:
    """The slow twin, for a scale that is there."""
    out = scale.copy()
    for j in range(rows.shape[1]):
        size = np.sort(np.abs(rows[:, j][rows[:, j] != 0]))[::-1]
        needed = max(10, int(np.ceil(len(size) / 1000)))
        above = size[size > scale[j]]
        if len(above) >= needed:
            out[j] = above[needed - 1]
    return out


@pytest.mark.parametrize("seed", range(3))
def test_the_scale_rises_to_what_many_rows_have_reached(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = (rng.normal(size=(15_000, 6)) * (rng.random((15_000, 6)) < [0.9, 0.5, 0.01, 0.001, 0.0, 1.0])).astype("f4")
    scale = np.array([0.5, 3.9, 0.1, 0.1, 0.1, 1.0], np.float32)
    np.testing.assert_array_equal(
        raised_scale(scale, [as_rows(rows[:7]), as_rows(rows[7:])]), brute_raised(scale, rows)
    )
    first = feature_scale(as_rows(rows))
    often = (rows != 0).sum(axis=0) >= 10
    np.testing.assert_array_equal(first, np.where(often, np.abs(rows).max(axis=0), np.abs(rows).max()))
    assert feature_scale(as_rows(np.zeros((20, 3)))) is None
    assert raised_scale(None, [as_rows(np.zeros((20, 3)))]) is None
    assert raised_scale(None, [as_rows(np.ones((9, 3)))]) is None


def clipped(first: Rows, stream: Rows) -> int:
    scale = feature_scale(first)
    assert scale is not None
    return int((np.abs(stream.value) > scale[stream.index] * config.FeatureConfig().outlier_factor).sum())


@pytest.mark.parametrize("rows", [300, 3000])
def test_ordinary_contexts_of_debian_are_never_clipped(rows: int) -> None:
    data = treetop.load("debian").X.csr()
    order = np.random.default_rng(rows).permutation(data.shape[0])
    assert clipped(as_rows(data[order[:rows]]), as_rows(data[order[rows:]])) == 0


@pytest.mark.parametrize("name", ["eurlex57k", "tate"])
@pytest.mark.parametrize("rows", [300, 3000])
def test_ordinary_contexts_of_other_sets_are_never_clipped(name: str, rows: int) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"the set {name} is not beside this checkout")
    data = treetop.load(DATA / name)
    assert data.X_init is not None
    order = np.random.default_rng(rows).permutation(len(data.X_init))[:rows]
    assert clipped(as_rows(data.X_init.csr()[order]), data.X) == 0


def test_a_row_within_its_limits_is_passed_on_as_it_is() -> None:
    limits = OutlierLimits(np.ones(3, np.float32), False, Vocabulary(3))
    row = Vocabulary(3).dense([1.0, 0.0, -1.0])
    assert limits.bound(row) is row
    far = limits.bound(Vocabulary(3).dense([1.0, 7.0, -9.0]))
    assert isinstance(far, ClippedRow)
    assert (far.value.tolist(), far.given.value.tolist(), far.clipped) == ([1, 1, -1], [1, 7, -9], 2)


@pytest.mark.parametrize(
    ("wrong", "said"), [({"outliers": "drop"}, "clip, refuse, accept"), ({"outlier_factor": 0.5}, "[1, ")]
)
def test_settings_that_cannot_be(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        config.FeatureConfig(**wrong)


SPELLINGS = [{"f1": 1000.0}, {"indices": [1], "values": [1000.0]}, {"dense": [0.0, 1000.0, *[0.0] * 38]}]


def count(service: Running) -> float:
    text = service.get("/metrics").content.decode()
    return float(re.findall(r"^treetop_clipped_features_total (\S+)", text, re.MULTILINE)[0])


def test_a_service_clips_and_counts_all_spellings(shop: Running) -> None:
    before = count(shop)
    answers = [shop.post("/v1/decide", {"event_id": "clipped", "features": features}) for features in SPELLINGS]
    assert [answer.status for answer in answers] == [200] * 3
    assert answers[0].content == answers[1].content == answers[2].content
    batch = {"requests": [{"features": features} for features in SPELLINGS]}
    assert [result["status"] for result in shop.post("/v1/decide/batch", batch).json["results"]] == [200] * 3
    assert count(shop) == before + 6
    assert shop.get("/v1/events/clipped").json["features"]["values"][0] < 11
    assert shop.post("/v1/explain", {"features": SPELLINGS[0]}).status == 200


def test_a_service_refuses_but_knows_what_it_has_decided(tmp_path: Path) -> None:
    chosen = bandit_settings(features=config.FeatureConfig(outliers="accept"))
    folder = small_bandit(tmp_path / "shop", X, Y, config=chosen)
    with Bandit.open(folder) as bandit:
        served = bandit.decide({"f1": 1000.0}, event_id="before")
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace('outliers = "accept"', 'outliers = "refuse"'))
    with running(folder) as service:
        for features in SPELLINGS:
            answer = service.post("/v1/decide", {"features": features})
            assert (answer.status, answer.code) == (422, "outlier")
            assert answer.json["error"]["message"].startswith("feature 'f1' is 1000; ")
        requests = [{"features": SPELLINGS[0], "event_id": name} for name in ("before", "after")]
        results = service.post("/v1/decide/batch", {"requests": requests}).json["results"]
        assert [result["status"] for result in results] == [200, 422]
        assert count(service) > 0
        again = service.post("/v1/decide", requests[0]).json
        assert [slot["arm"] for slot in again["slots"]] == served.arms
