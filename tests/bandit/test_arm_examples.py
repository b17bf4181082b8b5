"""Labelled rows of arms that are added: routing learns them at once, every refit learns them, nothing forgets them."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import named, running, settings, small_bandit

from treetop.arrays import as_rows
from treetop.bandit import model_changes, promotion
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, LearnerConfig, ReplicaConfig
from treetop.bandit.replica import join
from treetop.learning.label_samples import LabelSamples, load_label_samples

X, Y = topics()
KNOWN = [arm for arm in range(60) if arm != 7]
RIGHT = np.flatnonzero(Y[:300, 7].toarray()[:, 0])  # the labelled rows of the arm that comes later
LATER = np.flatnonzero(Y[300:, 7].toarray()[:, 0]) + 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y[:, KNOWN])


def labels(bandit: Bandit) -> LabelSamples:
    now = bandit.snapshot
    return bandit.folder.label_samples(now.model, now.arms.is_removed, now.attributes)


def route(bandit: Bandit, arm: str, rows: Any) -> float:
    """How well contexts are routed to an arm, on average."""
    model, at = bandit.snapshot.model, bandit.snapshot.arms.find([arm])
    found = [bandit.row(X[i]) for i in rows]
    routes = [
        model.engine.routes(x.start, x.index, x.value, np.asarray(at, np.int32), 1, 0).reshape(-1)[0] for x in found
    ]
    return float(np.mean(np.exp(routes)))


def test_an_arm_is_found_by_its_examples_at_once_and_after_refits(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.add_arms(["blind", "taught"], vectors=np.zeros((2, 40)), examples=[None, X[RIGHT]])
        others = np.setdiff1d(np.arange(300), RIGHT)
        for _ in range(2):
            assert route(bandit, "taught", LATER) > 10 * route(bandit, "blind", LATER)
            assert route(bandit, "taught", LATER) > 3 * route(bandit, "taught", others)
            bandit.decide(X[0])
            bandit.refit()
        at = int(bandit.snapshot.arms.find(["taught"])[0])
        known = labels(bandit)
        mine = known.arm == at
        assert known.row[mine].tolist() == RIGHT.tolist()  # the rows that were labelled before, not others
        assert (known.reward[mine] == 1).all()
        assert len(known.contexts) == 300
        shown = [bandit.decide(X[i], k=4, explore=0).arms for i in LATER]  # of about eight arms that are as good
        assert np.mean(["taught" in arms for arms in shown]) >= 0.4
        assert not any("blind" in arms for arms in shown)


def test_who_gives_nothing_else_has_the_arm_where_its_examples_lead(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    mean = np.asarray(X[RIGHT].sum(axis=0))
    mean /= np.linalg.norm(mean)
    with Bandit.open(folder) as one, Bandit.open(copy) as other:
        one.add_arms(["x", "y"], examples=[X[RIGHT], []])
        other.add_arms(["x", "y"], vectors=np.concatenate([mean, 0 * mean]))
        place = one.snapshot.model.tree.leaf_of[-2:]
        assert place.tolist() == other.snapshot.model.tree.leaf_of[-2:].tolist()
        one.roll_back()
        one.add_arms(["z"])
        assert one.snapshot.model.tree.leaf_of[-3] == place[0]
        one.add_arms(["beside"], like=["a0"], examples=[X[RIGHT]])
        leaf_of, tree = one.snapshot.model.tree.leaf_of, one.snapshot.model.tree
        parent = tree.parents[leaf_of[-1]]
        assert leaf_of[-1] == leaf_of[0] or parent == tree.parents[leaf_of[0]]


def test_all_ways_to_say_contexts_say_the_same(folder: Path) -> None:
    ways: list[Any] = [X[RIGHT], X[RIGHT].toarray(), [named(X, int(i)) for i in RIGHT], X[RIGHT].toarray().tolist()]
    ways.append([named(X, int(RIGHT[0])), *X[RIGHT[1:]].toarray().tolist()])  # some by name, some as numbers
    with Bandit.open(folder) as bandit:
        bandit.add_arms([f"x{i}" for i in range(len(ways))], examples=ways)
        bandit.add_arms(["one", "two"], examples=X[RIGHT[:2]].toarray())  # a context each
        known, first = labels(bandit), len(KNOWN)
        assert known.row[known.arm >= first + len(ways)].tolist() == RIGHT[:2].tolist()
        for arm in range(first, first + len(ways)):
            assert known.row[known.arm == arm].tolist() == RIGHT.tolist()


def test_rows_that_nobody_labelled_before_are_new_ones(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.add_arms(["x", "y"], examples=[X[LATER], X[LATER[:2]]])
        known = labels(bandit)
        assert len(known.contexts) == 300 + len(LATER)
        assert known.row[known.arm == len(KNOWN) + 1].tolist() == [300, 301]  # the rows of the other
        assert np.array_equal(known.contexts.csr()[300:].toarray(), X[LATER].toarray())
        before = load_label_samples(folder / "label_samples", 59, 40)
        for name in ("row", "arm", "reward", "log_route", "weight"):
            assert np.array_equal(getattr(known, name)[: len(before)], getattr(before, name))
        assert not known.weight[len(before) :].any()


def test_removed_arms_take_their_examples_with_them_and_may_return_with_more(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.add_arms(["x"], examples=[X[RIGHT[:3]]])
        before = labels(bandit)
        bandit.remove_arms(["x"])
        assert (labels(bandit).arm != len(KNOWN)).all()
        name = bandit.snapshot.name
        bandit.add_arms(["x"], examples=[X[RIGHT]])
        assert bandit.snapshot.name == name
        assert labels(bandit).row[labels(bandit).arm == len(KNOWN)].tolist() == RIGHT.tolist()
        assert len(before) == len(labels(bandit)) - len(RIGHT) + 3


def test_a_refit_that_runs_meanwhile_has_the_arm_and_its_examples(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = promotion.streamed_fit
    with Bandit.open(folder) as bandit, Bandit.open(folder) as other:
        bandit.decide(X[0])

        def meanwhile(*given: Any) -> Any:
            other.add_arms(["taught", "blind"], examples=[X[RIGHT], None])
            return original(*given)

        monkeypatch.setattr(model_changes, "streamed_fit", meanwhile)
        for _ in range(2):
            assert bandit.refit().rounds == 1
            assert route(bandit, "taught", LATER) > 10 * route(bandit, "blind", LATER)
            monkeypatch.setattr(model_changes, "streamed_fit", original)


def test_a_rollback_keeps_the_examples(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.add_arms(["taught"], examples=[X[RIGHT]])
        bandit.roll_back()
        bandit.add_arms(["more", "blind"], examples=[X[RIGHT[:5]], None])
        for arm in ("taught", "more"):
            assert route(bandit, arm, LATER) > 3 * route(bandit, "blind", LATER)
        bandit.roll_back("000000")
        bandit.decide(X[0])
        bandit.refit()
        assert route(bandit, "taught", LATER) > 10 * route(bandit, "blind", LATER)


def test_a_crash_and_a_replica_know_the_examples(tmp_path: Path) -> None:
    store, log = str(tmp_path / "store"), str(tmp_path / "log.sqlite")
    config = settings(replicas=ReplicaConfig(store))
    with Bandit.create(tmp_path / "a", range(59), X[:300], Y[:300, KNOWN], config=config, log=log) as bandit:
        join(tmp_path / "b", store, log)
        bandit.add_arms(["x"], examples=[X[RIGHT]])
        with Bandit.open(tmp_path / "b", log) as other:
            other.folder.follow()
            other.refresh()
            assert np.array_equal(labels(other).arm, labels(bandit).arm)
            assert route(other, "x", LATER) == route(bandit, "x", LATER)
        left = Path(shutil.copytree(tmp_path / "a", tmp_path / "left"))
        with (left / "attributes.bin").open("ab") as end:
            end.write(b'{"examples": 40, "ar')
        shutil.copy(log, tmp_path / "copied.sqlite")
        shutil.copytree(store, tmp_path / "kept")
    text = (left / "config.toml").read_text().replace(store, "")
    (left / "config.toml").write_text(text)
    with Bandit.open(left, tmp_path / "copied.sqlite") as crashed:
        crashed.add_arms(["y"], examples=[X[LATER]])
        known = labels(crashed)
        assert known.row[known.arm == 59].tolist() == RIGHT.tolist()
        assert (known.arm == 60).sum() == len(LATER)


def test_a_rebuilt_tree_is_made_of_the_examples_too(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.add_arms(["x"], like=["a0"], examples=[X[RIGHT]])
        for i in range(40):
            shown = bandit.decide(X[i], f"v{i}").arms
            bandit.reward(f"v{i}", dict.fromkeys(shown, 0.0))
        base = bandit.snapshot.model
        bandit.rebuild()
        tree = bandit.snapshot.model.tree
        assert bandit.snapshot.model is not base
        x, topic = tree.leaf_of[len(KNOWN)], [arm for arm in KNOWN if arm % 8 == 7]
        alike = {int(tree.parents[tree.leaf_of[KNOWN.index(arm)]]) for arm in topic}
        assert int(tree.parents[x]) in alike


@pytest.mark.parametrize(
    ("examples", "error", "why"),
    [
        ([X[:1]], ValueError, "one list of contexts for each of 2 arms"),
        (X[:2], ValueError, "one list of contexts for each of 2 arms"),
        ([None, {"f0": 1.0}], TypeError, "the examples of new arm 1 must be a list of contexts"),
        ([None, X[:1, :3]], ValueError, "the examples of new arm 1: contexts have 3 features; the model has 40"),
        ([None, [{"f0": np.nan}]], ValueError, "the examples of new arm 1: .*nan"),
        ([None, [{"f0": 1.0}, [1.0, 0.0]]], ValueError, "the examples of new arm 1: .* 2 features"),
        ([None, [as_rows(np.ones((1, 3)))]], ValueError, "the examples of new arm 1: contexts have 3 features"),
        ([[["a", "b"]], None], TypeError, "the examples of new arm 0: "),
    ],
)
def test_what_cannot_be_meant_is_refused_and_changes_nothing(
    folder: Path, examples: Any, error: type[Exception], why: str
) -> None:
    with Bandit.open(folder) as bandit:
        before = (folder / "current").read_bytes()
        with pytest.raises(error, match=why):
            bandit.add_arms(["x", "y"], examples=examples)
        assert (folder / "current").read_bytes() == before


Create = Callable[[Path], Bandit]


@pytest.mark.parametrize(
    "create",
    [
        lambda place: Bandit.create(place, Catalogue(vectors=np.eye(3))),
        lambda place: Bandit.create(place, ["a", "b"], features=["f", "g", "h"]),
        lambda place: Bandit.create(place, X=np.eye(3), Y=np.eye(3), config=Config.of("paper")),
        lambda place: Bandit.create(
            place, X=np.eye(3), Y=np.eye(3), config=Config(learner=LearnerConfig(label_samples=False))
        ),
    ],
)
def test_a_bandit_that_learns_no_labels_says_so(tmp_path: Path, create: Create) -> None:
    with create(tmp_path / "shop") as bandit, pytest.raises(ValueError, match="this bandit learns none"):
        bandit.add_arms(["x"], examples=[np.ones((1, 3))])


def test_over_http(folder: Path) -> None:
    with running(folder) as service, service.client() as client:
        client.change_arms(add=["x", "y"], examples=[X[RIGHT], [named(X, int(i)) for i in LATER]])
        client.change_arms(add=["z"])
        none = {"add": ["p", "r"], "examples": [None, []]}
        assert service.ask("POST", "/v1/arms", none).status == 200
        answer = service.ask("POST", "/v1/arms", {"add": ["q"], "examples": []})
        assert (answer.status, "0 values for 1 new arms" in answer.content.decode()) == (422, True)
    with Bandit.open(folder) as bandit:
        known = labels(bandit)
        assert known.row[known.arm == 59].tolist() == RIGHT.tolist()
        assert (known.arm == 60).sum() == len(LATER)
