"""A tree and routing made anew while a bandit is in use: what changes, what must not, and when it is kept aside."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import call, shell
from helpers.running import settings

from treetop.bandit import model_changes
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, RefitConfig, SegmentConfig, TreeConfig
from treetop.bandit.gate import Judgement, judge_refit
from treetop.bandit.results import same_decision
from treetop.errors import NothingToLearn
from treetop.model.model import Model

ARMS = 12
X = np.eye(ARMS, dtype=np.float32)
WRONG = np.roll(X, 5, axis=1)  # what the labels say; rewards say X
CONFIG = settings(tree=TreeConfig(max_leaf=2), segments=SegmentConfig(wait_seconds=0.0, rounds=64))


def visits(bandit: Bandit, first: int, n: int) -> None:
    for i in range(first, first + n):
        served = bandit.decide(X[i % ARMS], f"visit-{i}", k=3)
        bandit.reward(f"visit-{i}", {arm: float(arm == i % ARMS) for arm in served.arms})


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    with Bandit.create(tmp_path / "shop", X=X, Y=WRONG, config=CONFIG) as bandit:
        visits(bandit, 0, 300)
        bandit.refit()
        visits(bandit, 300, 60)
    return tmp_path / "shop"


def test_arms_ids_log_and_replay_stay(shop: Path) -> None:
    with Bandit.open(shop) as bandit:
        old, before = bandit.snapshot.model, bandit.log.counts()
        made = bandit.rebuild()
        new = bandit.snapshot.model
        assert (made.aside, new.epoch, new.n_seen) == ("", 2, 360)
        assert not np.array_equal(new.tree.leaf_of, old.tree.leaf_of)
        assert new.n_arms == ARMS
        assert bandit.log.counts().decisions == before.decisions
        for i in (10, 350):  # of models with the old tree
            assert same_decision(*bandit.replay(f"visit-{i}"))
        visits(bandit, 360, 30)
        assert same_decision(*bandit.replay("visit-370"))
        entry = next(entry for entry in bandit.folder.history() if entry.get("rebuilt"))
        assert entry["model"] == made.model


def test_refits_go_on_from_the_new_tree(shop: Path) -> None:
    with Bandit.open(shop) as bandit:
        bandit.rebuild()
        tree = bandit.snapshot.model.tree
        base = bandit.snapshot.model.learned_routing
        visits(bandit, 360, 40)
        name = bandit.refit().model
        again = bandit.snapshot.model
        assert np.array_equal(again.tree.parents, tree.parents)
        assert base is not None
        assert again.learned_routing is not None
        assert (again.learned_routing.base.value == base.base.value).all()
        assert name in bandit.folder.models()


def test_one_that_is_worse_is_kept_aside(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[tuple[Model, Model]] = []

    def loses(log: object, stretch: object, models: tuple[Model, Model], *_: object) -> Judgement:
        judged.append(models)
        return Judgement(rounds=30, loses="it earns less")

    monkeypatch.setattr(model_changes, "judge_refit", loses)
    with Bandit.open(shop) as bandit:
        serving = bandit.snapshot.name
        made = bandit.rebuild()
        assert made.aside == "it earns less"
        assert bandit.snapshot.name == serving
        assert not np.array_equal(judged[0][0].tree.leaf_of, judged[0][1].tree.leaf_of)
        assert judged[0][1].n_seen < 360  # it had not seen the rounds that judged it


def test_the_newest_rounds_judge_it(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge itself, on enough rounds: the labels are wrong, so that a tree of rewards does not lose."""
    found: list[Judgement] = []

    def recorded(*facts: Any) -> Judgement:
        found.append(judge_refit(*facts))
        return found[-1]

    monkeypatch.setattr(model_changes, "judge_refit", recorded)
    with Bandit.open(shop) as bandit:
        visits(bandit, 360, 300)
        assert (bandit.rebuild().aside, bandit.snapshot.name) == ("", "000002")
    assert [(judged.rounds >= 100, judged.loses) for judged in found] == [(True, "")]


def test_by_the_settings_every_so_many_models(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (shop / "config.toml").read_text()
    assert "rebuild = 0" in text
    (shop / "config.toml").write_text(text.replace("rebuild = 0", "rebuild = 2"))
    with Bandit.open(shop) as bandit:
        old = bandit.snapshot.model.tree
        bandit.refit()  # the second model
        new = bandit.snapshot.model.tree
        assert not np.array_equal(new.leaf_of, old.leaf_of)
        visits(bandit, 360, 30)
        bandit.refit()
        assert np.array_equal(bandit.snapshot.model.tree.parents, new.parents)
        visits(bandit, 390, 30)
        monkeypatch.setattr(model_changes, "judge_refit", lambda *_: Judgement(rounds=30, loses="it earns less"))
        made = bandit.refit()
        assert made.aside == ""  # the refit without a new tree serves
        assert np.array_equal(bandit.snapshot.model.tree.parents, new.parents)
        assert bandit.folder.history()[-2]["kind"] == "tree not rebuilt"


def test_the_command(shop: Path) -> None:
    said = call("rebuild", str(shop)).output
    assert said.startswith("model 000002 has a new tree, from 360 rounds, and serves (")
    with Bandit.open(shop) as bandit:
        assert bandit.snapshot.name == "000002"
        visits(bandit, 360, 60)
    told = json.loads(call("rebuild", str(shop), "--json").output)
    assert (told["model"], told["rounds"]) == ("000003", 420)
    refused = shell("rebuild", str(shop))  # nothing has come since
    assert refused.returncode != 0
    assert "judge a rebuilt tree: wait for visits with rewards" in refused.stderr


def test_what_cannot_be_rebuilt_is_refused(shop: Path, tmp_path: Path) -> None:
    with Bandit.open(shop) as bandit:
        bandit.refit()
        with pytest.raises(NothingToLearn, match="judge a rebuilt tree"):
            bandit.rebuild()
    vectors = Catalogue(range(ARMS), vectors=X, metric="cosine")
    config = replace(CONFIG, refit=RefitConfig(first=10))
    with Bandit.create(tmp_path / "vectors", vectors, config=config) as bandit:
        visits(bandit, 0, 20)
        with pytest.raises(ValueError, match="follows the owner's vectors"):
            bandit.rebuild()


def test_a_tree_of_labels_is_rebuilt_where_contexts_have_vectors(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "shop", X=X, Y=WRONG, features={"taste": ARMS}, config=CONFIG) as bandit:
        visits(bandit, 0, 60)
        bandit.refit()
        visits(bandit, 60, 30)
        old = bandit.snapshot.model.tree
        assert bandit.rebuild().aside == ""
        assert not np.array_equal(bandit.snapshot.model.tree.leaf_of, old.leaf_of)


@pytest.mark.parametrize("kind", ["vectors", "categories", "paper"])
def test_trees_that_are_not_rebuilt_refuse_the_setting_when_created_and_when_opened(tmp_path: Path, kind: str) -> None:
    config = Config.of("paper") if kind == "paper" else CONFIG
    catalogue = {
        "vectors": Catalogue(range(ARMS), vectors=X, metric="cosine"),
        "categories": Catalogue(range(ARMS), categories=["tea", "jam"] * (ARMS // 2)),
    }.get(kind, Catalogue(range(ARMS)))
    labels = (None, None) if kind == "vectors" else (X, X)
    asking = replace(config, refit=RefitConfig(rebuild=3))
    with pytest.raises(ValueError, match=rf"rebuild is 3 in \[refit\]; .*{kind}"):
        Bandit.create(tmp_path / "shop", catalogue, *labels, config=asking)
    assert not (tmp_path / "shop").exists()
    Bandit.create(tmp_path / "shop", catalogue, *labels, config=config).close()
    text = (tmp_path / "shop" / "config.toml").read_text()
    (tmp_path / "shop" / "config.toml").write_text(text.replace("rebuild = 0", "rebuild = 3"))
    with pytest.raises(ValueError, match=rf"rebuild is 3 in \[refit\]; .*{kind}.*Set it to 0"):
        Bandit.open(tmp_path / "shop")
