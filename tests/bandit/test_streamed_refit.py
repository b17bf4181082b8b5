"""Refits of a bandit from its segments and the rest of its log, shard by shard; and killed at any moment."""

import os
import random
import shutil
import signal
import time
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.in_memory import logged_feedback, next_fit

from treetop.bandit import folder as folder_module
from treetop.bandit import logged_history
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, PolicyConfig, RefitConfig, RewardConfig, SegmentConfig, TreeConfig
from treetop.bandit.config_file import config_text
from treetop.bandit.folder import BanditFolder
from treetop.bandit.live_trials import trials_until
from treetop.bandit.logged_history import WORK, work_folder
from treetop.bandit.model_changes import ModelChanges
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.errors import ShardError
from treetop.learning import streamed
from treetop.learning.examination import if_examined
from treetop.learning.history import HistoryWriter
from treetop.learning.shards import Shard
from treetop.log.rounds import gather
from treetop.model import model as model_module
from treetop.model.model import Model
from treetop.records import Feedback

FEATURES, ARMS = 8, 30
V = np.random.default_rng(1).normal(size=(ARMS, FEATURES)).astype(np.float32)
X = np.abs(np.random.default_rng(0).normal(size=(40, FEATURES))).astype(np.float32)
Y = np.eye(ARMS, dtype=np.float32)[np.arange(40) % 24]  # nobody knows the last 6 arms
CONFIG = Config(
    policy=PolicyConfig(k=3, explore=2),
    refit=RefitConfig(memory=0.01),
    segments=SegmentConfig(wait_seconds=0.0, rounds=50, shard_arms=8),
)


def visits(bandit: Bandit, first: int, n: int) -> None:
    """Decisions with rewards of some slots, one of them late."""
    for i in range(first, first + n):
        served = bandit.decide(X[i % 40] * np.float32(1 + i % 3), f"visit-{i}", k=1 + i % 3)
        bandit.reward(f"visit-{i}", {served.arms[0]: float(i % 2)})
        if i % 10 == 9 and (old := bandit.event(f"visit-{i - 8}").event).arms.size > 1:
            late = bandit.snapshot.arms.ids[int(old.arms[-1])]
            bandit.reward(old.event_id, {late: 0.25})


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bandit with rounds in segments, rounds in the log alone, late rewards and arms that were added."""
    folder = tmp_path_factory.mktemp("streamed") / "shop"
    with Bandit.create(folder, X=X, Y=Y, config=CONFIG) as bandit:
        visits(bandit, 0, 120)
        bandit.refit()
        bandit.add_arms([ARMS, "taught"], examples=[None, np.concatenate([X[3:5], X[:2] + 1])])
        visits(bandit, 120, 60)
    return folder


def files(model: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in model.glob("*.npy")}


def refitted(folder: Path) -> dict[str, bytes]:
    with Bandit.open(folder) as bandit:
        found = files(bandit.folder.model_path(bandit.refit().model))
        assert not (folder / WORK).exists()
        return found


def fitted_in_memory(bandit: Bandit, place: Path) -> dict[str, bytes]:
    """What a refit of now would give, by the learner in memory."""
    base, arms = bandit.snapshot.model, bandit.snapshot.arms
    mark, since = bandit.log.seal(f"now, for {place.name}"), bandit.folder.state().counted_until
    feedback = logged_feedback(bandit.log, mark, base, arms, bandit.config)
    settings, vectors = bandit.config.learner, tuple(bandit.vocabulary.vectors.values())
    labels = (
        bandit.folder.label_samples(base, arms.is_removed, bandit.snapshot.attributes)
        if settings.uses_label_samples
        else None
    )
    learner = settings.make_learner(labels, vectors)
    trials = trials_until(bandit.log, base, arms, since, mark.time)
    next_fit(base, feedback, learner, 7, trials).save(place)
    return files(place)


def test_a_refit_from_segments_has_the_bytes_of_one_in_memory(shop: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(shop, tmp_path / "shop"))
    with Bandit.open(folder) as bandit:
        wanted = fitted_in_memory(bandit, tmp_path / "model")
    assert "routing_fingerprints.npy" in wanted
    assert refitted(folder) == wanted


def test_refits_killed_at_twenty_random_moments_lose_and_double_nothing(shop: Path, tmp_path: Path) -> None:
    wanted = refitted(Path(shutil.copytree(shop, tmp_path / "whole")))
    folder = Path(shutil.copytree(shop, tmp_path / "shop"))
    with Bandit.open(folder) as bandit:
        counts = bandit.log.counts()
    took, killed = 0.5, 0
    for _ in range(100):
        if killed == 20:
            break
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            with Bandit.open(folder) as bandit:
                bandit.roll_back("000001")  # so that every one of them has the same to do
                bandit.refit()
            os._exit(0)
        time.sleep(random.random() * took)
        os.kill(child, signal.SIGKILL)
        if os.waitpid(child, 0)[1] == 0:
            took = time.monotonic() - began
        else:
            killed += 1
        with Bandit.open(folder) as bandit:
            for name in bandit.folder.models():
                Model.load(bandit.folder.model_path(name))
            now = bandit.log.counts()
            assert (now.decisions, now.rewards) == (counts.decisions, counts.rewards)
    assert killed == 20
    with Bandit.open(folder) as bandit:
        bandit.roll_back("000001")
    assert refitted(folder) == wanted


def test_positions_are_corrected_from_disk_as_in_memory(tmp_path: Path) -> None:
    """Those of a past log, then those of the bandit's own slots, too."""
    rng, folder = np.random.default_rng(5), tmp_path / "shop"
    lines = [f"{i % ARMS},{int(rng.random() < 0.6 / (1 + i % 3))},{1 + i % 3},f{i % 4}" for i in range(300)]
    (tmp_path / "past.csv").write_text("\n".join(["item,reward,position,taste", *lines, "0,1,,f1\n"]))
    config = replace(CONFIG, rewards=RewardConfig(positions=True))
    with Bandit.create(folder, range(ARMS), features=[f"taste=f{i}" for i in range(4)], config=CONFIG) as bandit:
        import_past(bandit, tmp_path / "past.csv", PastColumns(position="position", features=("taste",)))
    (folder / "config.toml").write_text(config_text(config))
    for refit, epoch in enumerate((1, 2)):
        with Bandit.open(folder) as bandit:
            base, arms = bandit.snapshot.model, bandit.snapshot.arms
            feedback = logged_feedback(bandit.log, bandit.log.seal(f"now-{refit}"), base, arms, bandit.config)
            learner = bandit.config.learner.make_learner(
                bandit.folder.label_samples(base, arms.is_removed, bandit.snapshot.attributes)
            )
            wanted = next_fit(base, feedback, learner, epoch)
            wanted.save(tmp_path / f"model-{refit}")
        assert refitted(folder) == files(tmp_path / f"model-{refit}")
        with Bandit.open(folder) as bandit:
            found = [model.pooled.examined for model in (wanted, bandit.snapshot.model) if model.pooled]
            assert found == [found[0]] * 2
            assert found[0][0] == 1.0 > found[0][2]
            for i in range(80):
                served = bandit.decide({"taste": f"f{i % 4}"}, f"{refit}-{i}")
                clicks = rng.random(len(served.arms)) < 0.4 / np.arange(1, 1 + len(served.arms))
                bandit.reward(f"{refit}-{i}", dict(zip(served.arms, clicks.astype(float).tolist(), strict=True)))


def test_a_task_of_a_killed_refit_cannot_write_into_the_next(tmp_path: Path) -> None:
    folder = BanditFolder(tmp_path)
    with work_folder(folder) as work:
        late = Shard(str(work), 0, 5, threads=1)
    with work_folder(folder) as work:
        with pytest.raises(FileNotFoundError):
            late.write(lambda part: part.put(old=np.zeros(1)))
        assert list(work.iterdir()) == []


def test_of_rounds_without_rewards_nothing_is_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How often positions are looked at needs the rounds with rewards alone, and says the same as all of them."""
    found: list[Feedback] = []

    def kept(model: Model, feedback: Feedback) -> tuple[Feedback, tuple[float, ...]]:
        found.append(feedback)
        return if_examined(model, feedback)

    config = replace(CONFIG, rewards=RewardConfig(positions=True))
    with Bandit.create(tmp_path / "shop", X=X, Y=Y, config=config) as bandit:
        for i in range(60):
            served = bandit.decide(X[i % 40], f"visit-{i}")
            if i % 20 == 5:
                bandit.reward(f"visit-{i}", dict.fromkeys(served.arms, 1.0))
        monkeypatch.setattr(logged_history, "if_examined", kept)
        base = bandit.snapshot.model
        every = gather(bandit.log.samples(bandit.log.seal("now")), FEATURES, positions=True)
        bandit.refit()
        assert [(len(rounds), len(rounds.contexts.index)) for rounds in found] == [(4, 0)]  # one is the newest
        assert bandit.snapshot.model.pooled is not None
        assert bandit.snapshot.model.pooled.examined == if_examined(base, every)[1] != ()


def test_a_full_disk_is_not_taken_for_damaged_segments(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is not read a second time, and nobody is told that segments are at fault."""
    folder, calls = Path(shutil.copytree(shop, tmp_path / "shop")), []

    def full(*_: object) -> None:
        calls.append(1)
        raise OSError(ENOSPC, "the disk is full")

    with Bandit.open(folder) as bandit:
        monkeypatch.setattr(HistoryWriter, "add", full)
        with pytest.raises(OSError, match="the disk is full"):
            bandit.refit()
        assert len(calls) == 1
        assert not [entry for entry in bandit.folder.history() if entry["kind"] == "segments not used"]


@pytest.mark.parametrize("loss", ["squared", "absolute"])
def test_the_papers_learner_refits_by_shard(loss: str, tmp_path: Path) -> None:
    """Nodes' samples included, those of decisions of this tree alone; late rewards, added items and losses. Positions
    are not corrected for."""
    usual = Config.of("paper")
    policy = replace(usual.policy, k=3, explore=3, beam=1)
    config = replace(CONFIG, learner=replace(usual.learner, loss=loss), policy=policy, tree=TreeConfig(4))
    config = replace(config, rewards=RewardConfig(low=-1.0, positions=True))
    with Bandit.create(tmp_path / "shop", X=X, Y=Y, config=config) as bandit:
        visits(bandit, 0, 120)
        bandit.refit()
        bandit.add_arms([ARMS])
        visits(bandit, 120, 80)
        for refit in range(2):
            visits(bandit, 200 + 30 * refit, 30)
            base, arms = bandit.snapshot.model, bandit.snapshot.arms
            feedback = logged_feedback(bandit.log, bandit.log.seal(f"seen-{refit}"), base, arms, config)
            assert (feedback.nodes >= 0).sum() > 20
            wanted = fitted_in_memory(bandit, tmp_path / f"model-{refit}")
            result = bandit.refit()
            assert result.warnings == ()
            assert files(bandit.folder.model_path(result.model)) == wanted


@pytest.mark.parametrize("kind", ["same space", "other space", "parts of contexts"])
def test_vectors_are_learned_by_shard(kind: str, tmp_path: Path) -> None:
    """With segments, late rewards and added items: the model of the learner in memory, and `memory` is heeded."""
    folder, config = tmp_path / "shop", replace(CONFIG, segments=SegmentConfig(wait_seconds=0.0, rounds=20))
    items = Catalogue(range(ARMS), vectors=V, same_space=kind == "same space")
    parts: dict[str, Any] = {"X": X, "Y": Y, "features": {"taste": FEATURES - 1, "age": None}}
    of_items = kind != "parts of contexts"
    made: dict[str, Any] = {"catalogue": items} if of_items else parts
    with Bandit.create(folder, config=config, **made) as bandit:
        visits(bandit, 0, 60)
        bandit.refit()
        bandit.add_arms([ARMS], vectors=V[:1] + 0.1 if of_items else None)
        visits(bandit, 60, 40)
        assert bandit.refit().warnings == ()
        visits(bandit, 100, 30)
        wanted = fitted_in_memory(bandit, tmp_path / "model")
    assert ("pooled_measure_means.npy" in wanted) == of_items
    assert refitted(folder) == wanted


def test_refits_by_shard_heed_them_and_do_not_warn(shop: Path, tmp_path: Path) -> None:
    with Bandit.open(Path(shutil.copytree(shop, tmp_path / "shop"))) as bandit:
        assert bandit.config.refit.memory == 0.01
        assert bandit.refit().warnings == ()


def test_a_bandit_that_alone_is_more_than_memory_warns(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of so many arms: as if one took a megabyte."""
    monkeypatch.setattr(streamed, "ARM_BYTES", 1e6)
    with Bandit.open(Path(shutil.copytree(shop, tmp_path / "shop"))) as bandit:
        (said,) = bandit.refit().warnings
    assert said.startswith("[refit] memory = 0.01 is less than the 0.03 GB that every refit of this bandit holds")


def full(*_: object, **__: object) -> None:
    raise OSError(ENOSPC, os.strerror(ENOSPC))


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ((Shard, "write"), ShardError),  # a piece of the model, in a task
        ((model_module, "write_array"), OSError),  # the model, when it is saved
        ((folder_module, "put"), OSError),  # `current`
    ],
    ids=["piece", "model", "current"],
)
def test_a_full_disk_leaves_the_old_model_and_nothing_else(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[Any, str], error: type[Exception]
) -> None:
    wanted = refitted(Path(shutil.copytree(shop, tmp_path / "whole")))
    folder = Path(shutil.copytree(shop, tmp_path / "shop"))
    with Bandit.open(folder) as bandit:
        before, serving = (folder / "current").read_bytes(), bandit.snapshot.name
        with monkeypatch.context() as patch:
            patch.setattr(*where, full)
            with pytest.raises(error, match="No space left on device"):
                bandit.refit()
        assert (folder / "current").read_bytes() == before
        assert bandit.snapshot.name == serving
        assert len(bandit.explain(X[0]).score)  # and leaves the log as it was
        assert sorted(path.name for path in (folder / "models").iterdir()) == bandit.folder.models()
        assert not (folder / WORK).exists()
    assert refitted(folder) == wanted


# Where a refit ends itself: all pieces are there and no model; all files of the model but its manifest; the model is
# there and nobody knows of it.
MOMENTS = [(ModelChanges, "_publish"), (model_module, "write_manifest"), (BanditFolder, "_write_state")]


@pytest.mark.parametrize("moment", MOMENTS, ids=[name for _, name in MOMENTS])
def test_a_refit_killed_between_its_pieces_and_what_makes_them_count(
    shop: Path, tmp_path: Path, moment: tuple[Any, str]
) -> None:
    wanted = refitted(Path(shutil.copytree(shop, tmp_path / "whole")))
    folder = Path(shutil.copytree(shop, tmp_path / "shop"))
    before = (folder / "current").read_bytes()
    child = os.fork()
    if child == 0:
        with Bandit.open(folder) as bandit:
            setattr(*moment, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
            bandit.refit()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    assert list((folder / WORK).glob("*/*/*/shard-*"))  # it had made something
    assert (folder / "current").read_bytes() == before
    with Bandit.open(folder) as bandit:
        assert bandit.snapshot.name == BanditFolder(shop).state().model
    assert refitted(folder) == wanted
