"""Features that the vocabulary has never seen join it at the next refit, those asked for most, up to a limit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from treetop.bandit import model_changes
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, FeatureConfig, PolicyConfig, ReplicaConfig
from treetop.bandit.folder import BanditFolder
from treetop.bandit.results import same_decision
from treetop.bandit.vocabulary import Vocabulary
from treetop.errors import InvalidModel

CONFIG = Config(policy=PolicyConfig(k=1, explore=1), features=FeatureConfig(grow_features=2))


def test_the_most_frequent_join_at_a_refit_in_every_process(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "tea", ["mint", "rose"], features=["phone"], config=CONFIG) as tea:
        with Bandit.open(tmp_path / "tea") as other:
            for i in range(3):
                other.decide({"phone": 1.0, "country=DE": 1.0}, f"other-{i}")
        for i in range(2):
            tea.decide({"country=FR": 1.0, "country=DE": 2.0}, f"visit-{i}")
        tea.decide({"country=IT": 1.0}, "visit-2")
        assert tea.event("visit-0").event.index.tolist() == []
        with Bandit.open(tmp_path / "tea") as worker:
            tea.refit()
            worker.refresh()
            for bandit in (tea, worker):
                assert bandit.vocabulary.names == ("phone", "country=DE", "country=FR")
        served = tea.decide({"country=FR": 1.0, "country=IT": 1.0}, "visit-3")
        assert tea.event("visit-3").event.index.tolist() == [2]
        tea.reward("visit-3", {served.arms[0]: 1.0})
        tea.refit()  # the limit is reached: country=IT stays out
        assert tea.vocabulary.names == ("phone", "country=DE", "country=FR")
        assert tea.roll_back("000000") == "000000"
        tea.decide({"country=FR": 1.0}, "visit-4")  # an older model has a column for it too
        for name in ("visit-0", "visit-3", "visit-4"):
            assert same_decision(*tea.replay(name))


def test_refits_that_publish_nothing_leave_a_folder_that_opens(tmp_path: Path) -> None:
    """However many refits end with nothing, or aside, no more names join than there are columns for."""
    with Bandit.create(tmp_path / "tea", ["mint", "rose"], features=["phone"], config=CONFIG) as tea:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(model_changes, "validate", _refuse)
            for i in range(3):
                tea.decide({f"country={i}{j}": 1.0 for j in range(2)}, f"refused-{i}")
                with pytest.raises(InvalidModel):
                    tea.refit()
        assert tea.folder.feature_names() == ("phone",)
        with Bandit.open(tmp_path / "tea") as other, pytest.MonkeyPatch.context() as patched:
            patched.setattr(BanditFolder, "publish", _refuse)
            for bandit in (tea, other, tea):  # one of them has not heard of the names that joined
                bandit.decide({f"country=x{j}": 1.0 for j in range(9)})
                with pytest.raises(InvalidModel):
                    bandit.refit()
            assert tea.vocabulary.names == other.vocabulary.names == tea.folder.feature_names()
    with Bandit.open(tmp_path / "tea") as tea:
        assert len(tea.vocabulary.names or ()) == 3
        assert tea.folder.add_features(["late"], 3) == []
    with pytest.raises(ValueError, match="4 feature names for 1 features, 3 with those that join"):
        Vocabulary(3, tuple("abcd"), reserved=2)


def _refuse(*_: object, **__: object) -> None:
    raise InvalidModel("not this one")


def test_contexts_as_numbers_have_no_room_in_them(tmp_path: Path) -> None:
    with Bandit.create(
        tmp_path / "tea", ["mint", "rose"], np.eye(2), np.eye(2), features=["a", "b"], config=CONFIG
    ) as tea:
        assert tea.snapshot.model.n_features == 4
        assert len(tea.decide(np.ones(2)).arms) == 1
        with pytest.raises(ValueError, match="3"):
            tea.decide(np.ones(3))


def test_a_vocabulary_needs_names_to_grow(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs names"):
        Bandit.create(tmp_path / "tea", X=np.eye(2), Y=np.eye(2), config=CONFIG)
    with pytest.raises(ValueError, match="grow_features must be 0"):
        FeatureConfig(strict_features=True, grow_features=1)
    with pytest.raises(ValueError, match="grow_features is 2; replicas share no vocabulary"):
        replace(CONFIG, replicas=ReplicaConfig("/mnt/shop"))


def test_texts_join_contexts_with_parts_and_leave_vectors_alone(tmp_path: Path) -> None:
    parts = {"vector": 3, "device": ["mobile"], "age": None}
    shelf = Catalogue(["mint", "rose", "oolong"], vectors=np.eye(3))
    with Bandit.create(tmp_path / "tea", shelf, features=parts, config=CONFIG) as tea:
        visitor = {"vector": [1.0, 0.0, 0.5], "device": "tablet", "age": 3}
        for i in range(3):
            served = tea.decide({**visitor, "taste[0]": 2.0}, f"visit-{i}")
            tea.reward(f"visit-{i}", {served.arms[0]: 1.0})
        tea.decide({"device": 4.0}, "odd")  # a part of texts is no number, however often it is said
        tea.refit()
        assert tea.vocabulary.names is not None
        assert sorted(tea.vocabulary.names[5:]) == ["device=tablet", "taste[0]"]
        assert tea.vocabulary.vectors == {"vector": (0, 3)}
        assert tea.row(visitor).index.tolist() == [0, 2, 4, tea.vocabulary.index["device=tablet"]]
        tea.decide(visitor, "later")
        tea.add_arms(["sencha"], vectors=[[0.0, 1.0, 0.0]])
        assert tea.decide({"vector": [0.0, 1.0, 0.0]}, "last", k=4).arms
        for name in ("visit-0", "later", "last"):
            assert same_decision(*tea.replay(name))


def test_a_feature_that_joined_as_a_number_may_still_be_a_text(tmp_path: Path) -> None:
    """What one request called a number must not turn the texts of others into errors."""
    with Bandit.create(tmp_path / "tea", ["mint", "rose"], features=["phone"], config=CONFIG) as tea:
        for i in range(3):
            tea.decide({"size": 4.0}, f"visit-{i}")
        tea.refit()
        assert tea.vocabulary.names == ("phone", "size")
        assert tea.vocabulary.named({"size": "large", "phone": 1})[1] == 1
        assert tea.decide({"size": "large"}).arms
        with pytest.raises(TypeError, match="feature 'phone' must be a number"):
            tea.decide({"phone": "large"})


def test_the_parts_that_are_texts_are_found_once() -> None:
    """Not again for each request with an unknown feature: a vocabulary may have 200,000 names."""
    vocabulary = Vocabulary(2, ("device=mobile", "age"))
    assert vocabulary.unknown({"device": 3.0, "shoe": 44}) == ["shoe"]
    assert vocabulary.texts is vocabulary.texts
