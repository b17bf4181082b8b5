"""The learner of a new bandit: treetop's, which has learned the labels that the bandit was created from."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit
from typer.testing import CliRunner

import treetop
from treetop.arrays import Ints
from treetop.bandit import config, config_file
from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import LABEL_SAMPLES
from treetop.bandit.results import same_decision
from treetop.cli.main import app
from treetop.data.datasets import load
from treetop.errors import ModelFileError
from treetop.experiments.execute import prepare_learner
from treetop.experiments.settings import EPOCHS, Settings
from treetop.learning.label_samples import SAMPLE_FILES, LabelSamples, load_label_samples, save_label_samples
from treetop.learning.schedule import Epochs
from treetop.log.rounds import gather
from treetop.model.storage import MANIFEST, manifest_checksum
from treetop.simulation.play import Learning, TreeBuilding, begin, run
from treetop.simulation.worlds import Labels

X, Y = topics()
REWARDS = Y.toarray()
MADE_UP = "synthetic:arms=120,features=80,rows=900,init=300"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def play(bandit: Bandit, first: int, end: int) -> None:
    for i in range(first, end):
        shown = bandit.decide(X[i % 600], event_id=f"e{i}")
        arms = [arm for arm in shown.arms if str(arm)[0] == "a"]
        bandit.reward(f"e{i}", {arm: float(REWARDS[i % 600, int(str(arm)[1:])]) for arm in arms})


def parts(model: treetop.Model) -> dict[str, bytes]:
    """All that a model decides with, to the bit."""
    arrays = {name: array for name, array in model._arrays().items() if name != "feature_scale"}
    return {name: np.ascontiguousarray(array).tobytes() for name, array in arrays.items()}


def test_a_new_bandit_has_the_better_learner(tmp_path: Path) -> None:
    small = config.Config(tree=config.TreeConfig(4))
    with Bandit.create(tmp_path / "new", X=X[:300], Y=Y[:300], config=small) as bandit:
        chosen = bandit.config
        learner = chosen.learner
        assert (learner.name, learner.label_samples, chosen.policy.strategy) == ("treetop", True, "budgeted")
        assert (chosen.refit.first, chosen.refit.factor) == (1024, 1.2)
        assert chosen == config.Config(tree=config.TreeConfig(4))
    assert (
        config_file.parse_config(config_file.config_text(config.Config()))
        == config.Config()
        == config.Config.of("treetop")
    )
    with pytest.raises(ValueError, match="learner is 'magic'"):
        config.Config.of("magic")


def test_the_paper_stays_the_paper(tmp_path: Path) -> None:
    """What has no learner named, and no folder, is the faithful algorithm."""
    assert Settings().learner == "paper"
    assert EPOCHS["paper"] == (4096, 2.0)
    assert treetop.Policy().strategy == treetop.IGW()
    first = treetop.Model.initial(treetop.Tree.from_labels(X[:300], Y[:300], max_leaf=4), X[:300], Y[:300])
    monday = treetop.Feedback(X[:2], [[1], [2]], None, [[1.0], [0.0]])
    assert parts(treetop.refit(first, monday)) == parts(treetop.refit(first, monday, treetop.Linear()))
    assert treetop.refit(first, monday).pooled is None


def test_the_first_model_of_init_is_that_of_simulate(tmp_path: Path) -> None:
    words = ["init", str(tmp_path / "b"), MADE_UP, "--seed", "3", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["label_samples"] is True
    data, asked = load(MADE_UP), Settings("budgeted", learner="treetop")
    stream, cold = begin(data, *data.sizes(None, 1, None), 3, tree=TreeBuilding(separate_unlabelled=True))
    learner, with_labels = prepare_learner(asked, stream, cold)
    with Bandit.open(tmp_path / "b") as bandit:
        assert parts(bandit.snapshot.model) == parts(with_labels)
        assert (bandit.snapshot.model.epoch, bandit.snapshot.model.n_seen) == (0, 0)
        known = bandit.folder.label_samples(cold, np.zeros(data.n_arms, np.bool_), bandit.snapshot.attributes)
        for name in SAMPLE_FILES:
            assert np.array_equal(getattr(known, name), getattr(learner.label_samples, name))  # type: ignore[attr-defined]
            assert isinstance(getattr(known, name), np.memmap)
    policy = treetop.Policy(explore=0)
    value = {}
    for name, model in (("cold", cold), ("with_labels", with_labels)):
        arms = policy.decide_batch(model, data.X, seed=0).arms
        value[name] = float(Labels(data.Y).rewards(np.arange(len(data.X)), arms).sum())
    assert value["with_labels"] > 1.3 * value["cold"]


@pytest.mark.parametrize(
    ("words", "learner", "strategy", "first", "factor", "with_labels"),
    [
        ([], "treetop", "budgeted", 1024, 1.2, True),
        (["--cold"], "treetop", "budgeted", 1024, 1.2, False),
        (["--learner", "paper"], "paper", "igw", 1000, 2.0, False),
        (["--strategy", "igw", "--first-epoch", "50"], "treetop", "igw", 50, 1.2, True),
    ],
)
def test_init_writes_what_it_was_told(
    tmp_path: Path, words: list[str], learner: str, strategy: str, first: int, factor: float, with_labels: bool
) -> None:
    folder = tmp_path / "b"
    done = CliRunner().invoke(app, ["init", str(folder), "synthetic:arms=30,features=20,rows=50,init=60", *words])
    assert done.exit_code == 0, done.output
    said = config_file.read_config(folder / config_file.CONFIG)
    assert (said.learner.name, said.policy.strategy, said.learner.label_samples) == (learner, strategy, with_labels)
    assert (said.refit.first, said.refit.factor) == (first, factor)
    assert (folder / LABEL_SAMPLES).exists() == with_labels
    with Bandit.open(folder) as bandit:
        assert (bandit.snapshot.model.pooled is not None) == with_labels


def test_a_bandits_refits_are_those_of_simulate(tmp_path: Path) -> None:
    """The same rounds give the same models to the bit: in one run of the simulator, and refit by refit in a folder."""
    data, asked = load(MADE_UP), Settings("budgeted", learner="treetop", first_epoch=300, factor=1.5)
    stream, cold = begin(data, *data.sizes(None, None, 10), 0)
    learner, with_labels = prepare_learner(asked, stream, cold)
    played = run(stream, with_labels, asked.policy(1), learning=Learning(learner, Epochs.explicit([300, 450, 675])))
    chosen = config.Config(tree=config.TreeConfig(10))
    with Bandit.create(tmp_path / "b", None, stream.X_init, stream.Y_init, model=cold, config=chosen) as bandit:
        for first, end in ((0, 300), (300, 450), (450, 675)):
            append(bandit, stream.X, played, first, end)
            assert bandit.refit().rounds == end
        assert bandit.snapshot.model.epoch == played.model.epoch == 3
        assert parts(bandit.snapshot.model) == parts(played.model)


def append(bandit: Bandit, contexts: Any, played: treetop.Run, first: int, end: int) -> None:
    """Rounds of a simulation as events of a log: decided by the bandit, but with what was shown there."""
    limits = bandit.snapshot.arm_filter(None, None)
    for t in range(first, end):
        event = bandit.snapshot.decide(contexts.row(t), f"e{t}", None, None, limits)
        bandit.log.append([replace(event, arms=played.history.arms[t], nodes=played.history.nodes[t])], {})
        rewards = zip(played.history.arms[t].tolist(), played.history.rewards[t].tolist(), strict=True)
        bandit.reward(f"e{t}", dict(rewards))


def trials_of(bandit: Bandit) -> Ints:
    pooled = bandit.snapshot.model.pooled
    assert pooled is not None
    return pooled.sample_count


def test_labels_count_at_every_refit_while_warm_says_so(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        labels_of = trials_of(bandit)
        play(bandit, 0, 80)
        bandit.refit()
        play(bandit, 80, 120)
        bandit.refit()
        assert int(trials_of(bandit).sum()) == int(labels_of.sum()) + 120 * 4
    path = folder / config_file.CONFIG
    path.write_text(path.read_text().replace("label_samples = true", "label_samples = false"))
    shutil.rmtree(folder / LABEL_SAMPLES)
    with Bandit.open(folder) as bandit:
        bandit.refit()
        assert int(trials_of(bandit).sum()) == 120 * 4


def test_arms_come_and_go_with_labels(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        labels_of = trials_of(bandit)
        assert labels_of[3] > 0
        bandit.remove_arms(["a3"])
        bandit.add_arms(["new-1", "new-2"], vectors=X[:2])
        play(bandit, 0, 60)
        bandit.refit()
        trials = trials_of(bandit)
        assert (len(trials), trials[3]) == (62, 0)
        shown = [arm for i in range(60) for arm in bandit.event(f"e{i}").event.arms.tolist()]
        kept = [int(n) for arm, n in enumerate(labels_of) if arm != 3]
        heard = sum(arm < 60 for arm in shown)
        assert int(trials.sum()) == sum(kept) + heard
        assert all(len(bandit.decide(X[i]).arms) == 4 for i in range(10))


def test_arms_that_were_added_are_hoped_of_as_new_ones(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 0, 40)
        bandit.add_arms(["new-1", "new-2"])
        bandit.add_arms(["new-3"])
        assert bandit.snapshot.arms.epochs().tolist() == [0] * 60 + [1, 1, 2]
        play(bandit, 40, 60)
        bandit.refit()
        seen = gather(bandit.log.samples(bandit.log.seal("then")), 80, bandit.snapshot.arms.epochs())
        assert seen.appeared.tolist() == [0] * 60 + [40] * 3
        pooled = bandit.snapshot.model.pooled
        assert pooled is not None
        assert pooled.trial_value[60:].min() > 0
        assert pooled.trial_value[60:].max() <= np.float32(pooled.new_arm_value)
    with Bandit.open(folder) as again:  # as it was written
        assert again.snapshot.arms.epochs().tolist() == [0] * 60 + [1, 1, 2]


def test_damaged_labels_stop_a_refit_and_nothing_else(folder: Path) -> None:
    path = folder / LABEL_SAMPLES / "arm.npy"
    whole = path.read_bytes()
    with Bandit.open(folder) as bandit:
        play(bandit, 0, 20)
        for content in (whole[:-5], bytes([*whole[:-1], whole[-1] ^ 1])):
            path.write_bytes(content)
            with pytest.raises(ModelFileError, match=r"arm\.npy"):
                bandit.refit()
        shutil.move(folder / LABEL_SAMPLES, folder / "away")
        with pytest.raises(ModelFileError, match=r"label_samples: no manifest\.json: not a saved set of label samples"):
            bandit.refit()
        assert bandit.folder.models() == ["000000"]
        assert len(bandit.decide(X[0]).arms) == 4
        shutil.move(folder / "away", folder / LABEL_SAMPLES)
        path.write_bytes(whole)
        assert bandit.refit().model == "000001"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": np.array([300], np.int32)}, r"row 300 to 300, outside \[0, 300\)"),
        ({"arm": np.array([-1], np.int32)}, r"arm -1 to -1, outside \[0, 60\)"),
        ({"reward": np.array([1.5], np.float32)}, r"a reward from 1\.5 to 1\.5, outside \[0, 1\]"),
        ({"log_route": np.array([np.nan])}, "a log_route from nan"),
        ({"weight": np.array([-1.0])}, r"a weight from -1\.0"),
        ({"arm": np.array([1, 2], np.int32)}, "not as many rows, arms"),
        ({"arm": np.array([1], np.int64)}, "a list of int32 is needed"),
        (
            {
                "contexts": treetop.LabelSamples.of(
                    treetop.Tree.from_labels(X[:9, :7], Y[:9]), X[:9, :7], Y[:9]
                ).contexts
            },
            "contexts of 7 features; the model has 40",
        ),
    ],
)
def test_labels_that_cannot_be_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """Even with the right checksums: whatever wrote them, the core never sees them."""
    one = {"row": np.int32, "arm": np.int32, "reward": np.float32, "log_route": np.float64, "weight": np.float64}
    arrays: dict[str, Any] = {name: np.zeros(1, kind) for name, kind in one.items()}
    contexts = treetop.LabelSamples.of(treetop.Tree.from_labels(X[:300], Y[:300]), X[:300], Y[:300]).contexts
    save_label_samples(LabelSamples(contexts, **arrays), tmp_path / "good")
    assert len(load_label_samples(tmp_path / "good", 60, 40).arm) == 1
    save_label_samples(LabelSamples(**{"contexts": contexts, **arrays, **change}), tmp_path / "bad")
    with pytest.raises(ModelFileError, match=message):
        load_label_samples(tmp_path / "bad", 60, 40)


def test_labels_of_a_newer_version_are_refused(folder: Path) -> None:
    path = folder / LABEL_SAMPLES / MANIFEST
    manifest = {**json.loads(path.read_bytes()), "version": 2}
    del manifest["crc32"]
    path.write_text(json.dumps({**manifest, "crc32": manifest_checksum(manifest)}))
    with pytest.raises(ModelFileError, match="format version 2; this software reads 1"):
        load_label_samples(folder / LABEL_SAMPLES, 60, 40)


def test_a_folder_of_the_paper(tmp_path: Path) -> None:
    """The paper's learner and strategy, and no labels: what refits give is what `refit` gives."""
    policy = config.PolicyConfig(4, 2, 5, strategy="igw")
    chosen = settings(policy=policy, learner=config.LearnerConfig("paper"))
    folder = small_bandit(tmp_path / "paper", X, Y, config=chosen)
    assert not (folder / LABEL_SAMPLES).exists()
    with Bandit.open(folder) as bandit:
        first = bandit.snapshot.model
        assert first.pooled is None
        assert len(first.reward_rows.value) == 0
        play(bandit, 0, 50)
        bandit.refit()
        batch = policy.make_policy().decide_batch(first, X[:50], event_ids=[f"e{i}" for i in range(50)])
        history = treetop.Feedback.of(X[:50], batch, REWARDS[np.arange(50)[:, None], batch.arms])
        assert parts(bandit.snapshot.model) == parts(treetop.refit(first, history))


def test_replay_is_the_same_with_budgeted_exploration(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        play(bandit, 0, 40)
        bandit.refit()
        play(bandit, 40, 80)
        bandit.remove_arms(["a5"])
        bandit.decide(X[3], event_id="few", k=3, exclude=["a1"])
        for event in [*(f"e{i}" for i in range(80)), "few"]:
            assert json.loads(bandit.event(event).event.policy)["strategy"] == "budgeted"
            assert same_decision(*bandit.replay(event)), event
    with Bandit.open(folder) as bandit:
        logged, again = bandit.replay("e70")
        assert same_decision(logged, again)
        assert logged.model == "000001"


def test_what_labels_cannot_be_made_of(tmp_path: Path, learned: treetop.Model) -> None:
    """A model that has seen rounds keeps what it learned; labels of other features are refused; few rows are enough."""
    with Bandit.create(tmp_path / "m", None, X[:300], Y[:300], model=learned) as bandit:
        kept, model = parts(learned), bandit.snapshot.model
        del kept["rewards_fingerprints"]  # they are the owner's now: no refit takes them for its own
        assert kept.items() <= parts(model).items()
        assert model.prior is not None
        assert bandit.config.learner.label_samples
    with pytest.raises(ValueError, match="39 features"):
        Bandit.create(tmp_path / "w", None, X[:300, :39], Y[:300], model=learned)
    assert not (tmp_path / "w").exists()
    for name, rows in (("one", 1), ("two", 2)):
        with Bandit.create(tmp_path / name, None, X[:rows], Y[:rows]) as bandit:
            bandit.decide(X[0], event_id="e")
            assert bandit.refit().rounds == 1
    cold = config.Config(learner=config.LearnerConfig(label_samples=False))
    with Bandit.create(tmp_path / "cold", None, X[:300], Y[:300], config=cold) as bandit:
        assert bandit.snapshot.model.pooled is None
        assert not (tmp_path / "cold" / LABEL_SAMPLES).exists()


def test_the_usual_cost_is_lower_with_labels() -> None:
    """0.1 where label samples have told of the arms, 1 where regressors are nearly all that is known."""
    X = Y = np.tile(np.eye(4, dtype=np.float32), (8, 1))
    tree = treetop.Tree.from_labels(X, Y, max_leaf=2)
    shown = treetop.Feedback(X[:4], np.arange(4)[:, None], None, [[1], [0], [1], [0]])
    labels = LabelSamples.of(tree, X, Y)
    for samples, cost in ((labels, 0.1), (None, 1.0)):
        usual, stated, other = (
            treetop.Pooled(c, label_samples=samples).learn(treetop.Model.initial(tree, X, Y), shown).rewards
            for c in (None, cost, 1.1 - cost)
        )
        assert np.array_equal(usual.toarray(), stated.toarray())
        assert not np.array_equal(usual.toarray(), other.toarray())


@pytest.mark.parametrize(
    ("arms", "features", "message"),
    [(7, 4, "label samples of arm 6; the model has 6 arms"), (6, 5, "label samples have 5 features; the model has 4")],
)
def test_labels_of_another_catalogue_are_refused(arms: int, features: int, message: str) -> None:
    X, Y = np.eye(4, dtype=np.float32), np.eye(4, 6, dtype=np.float32)
    model = treetop.Model.initial(treetop.Tree.from_labels(X, Y, max_leaf=2), X, Y)
    others, right = np.eye(arms, features, dtype=np.float32), np.eye(arms, dtype=np.float32)
    labels = LabelSamples.of(treetop.Tree.from_labels(others, right, max_leaf=2), others, right)
    with pytest.raises(ValueError, match=message):
        treetop.Pooled(label_samples=labels).learn(model, treetop.Feedback.none(4, 1))
