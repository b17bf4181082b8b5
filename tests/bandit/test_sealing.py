"""A refit from segments and the rest of the log makes the model that a refit from the log makes, byte for byte."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics

import treetop
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, LearnerConfig, RewardConfig, SegmentConfig, TreeConfig
from treetop.bandit.sealing import seal_folder, segment_folder, shards_by_tree
from treetop.errors import LogError
from treetop.log.segments import reading, seal
from treetop.log.segments.schema import VERSION
from treetop.log.segments.storage import read_shards

X, Y = topics()
ROUNDS = 40  # between two refits
AT_ONCE = SegmentConfig(wait_seconds=0.0, rounds=16, shard_arms=4)


def made(path: Path, log: str | None, config: Config) -> Bandit:
    Bandit.create(path, X=X[:300], Y=Y[:300], config=config).close()
    return Bandit.open(path, log)


def play(bandit: Bandit, epoch: int) -> None:
    """Decisions with some rewards at once, and some for decisions that were there at the last refit."""
    for i in range(epoch * ROUNDS, (epoch + 1) * ROUNDS):
        served = bandit.decide(X[300 + i], event_id=f"e{i}")
        liked = {arm: float(Y[300 + i, arm]) for arm in served.arms[: 1 + i % 4]}
        bandit.reward(f"e{i}", liked)
    for i in range(0, epoch * ROUNDS, 3):
        event = bandit.event(f"e{i}")
        for arm in event.event.arms[np.isnan(event.rewards)].tolist()[:1]:
            bandit.reward(f"e{i}", {arm: float(Y[300 + i, arm])})


def files(bandit: Bandit, model: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in bandit.folder.model_path(model).iterdir()}


def unused(bandit: Bandit) -> list[str]:
    """Why segments were not used, as the history has it."""
    return [entry["error"] for entry in bandit.folder.history() if entry["kind"] == "segments not used"]


@pytest.mark.parametrize("learner", ["treetop", "paper"])
@pytest.mark.parametrize("default", [None, 0.0])
def test_a_model_from_segments_is_the_same_to_the_byte(
    tmp_path: Path, place: str, learner: str, default: float | None
) -> None:
    settings = Config(tree=TreeConfig(4), learner=LearnerConfig(learner), rewards=RewardConfig(0, default))
    sealing, plain = replace(settings, segments=AT_ONCE), replace(settings, segments=SegmentConfig(seal=False))
    with made(tmp_path / "one", place, sealing) as one, made(tmp_path / "two", None, plain) as two:
        for epoch in range(3):
            for bandit in (one, two):
                play(bandit, epoch)
            first, second = one.refit(), two.refit()
            assert (first.rounds, first.rewards) == (second.rounds, second.rewards)
            assert files(one, first.model) == files(two, second.model)
        found = segment_folder(one.folder).manifest()
        assert found is not None
        assert found.rounds == 112
        assert found.deltas
        assert found.shards > 1
        assert not segment_folder(two.folder).path.exists()


def test_what_is_not_complete_is_read_from_the_log(tmp_path: Path) -> None:
    with made(tmp_path / "shop", None, Config()) as bandit:
        play(bandit, 0)
        assert bandit.refit().rounds == ROUNDS
        assert segment_folder(bandit.folder).manifest() is None


def test_damaged_segments_are_noted_and_the_log_is_read(tmp_path: Path) -> None:
    with made(tmp_path / "shop", None, Config(segments=AT_ONCE)) as bandit:
        play(bandit, 0)
        bandit.refit()
        folder = segment_folder(bandit.folder)
        found = folder.manifest()
        assert found is not None
        damaged = folder.path / found.segments[0].name / "arm.npy"
        data = damaged.read_bytes()
        damaged.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        play(bandit, 1)
        assert bandit.refit().rounds == 2 * ROUNDS
        assert [str(damaged) in error for error in unused(bandit)] == [True]
        (folder.path / "manifest.json").write_bytes(b"?")
        assert bandit.refit().rounds == 2 * ROUNDS
        assert ["manifest.json cannot be read" in error for error in unused(bandit)] == [False, True]


def test_a_disk_that_fails_while_sealing_does_not_stop_learning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with made(tmp_path / "shop", None, Config(segments=AT_ONCE)) as bandit:
        play(bandit, 0)
        with monkeypatch.context() as patch:
            patch.setattr(seal, "write_segment", full)
            assert bandit.refit().rounds == ROUNDS
        assert ["No space left" in error for error in unused(bandit)] == [True]
        with monkeypatch.context() as patch:
            patch.setattr(reading, "read_segment", full)
            assert bandit.refit().rounds == ROUNDS
        assert ["No space left" in error for error in unused(bandit)] == [True, True]
        assert bandit.refit().rounds == ROUNDS
        assert len(unused(bandit)) == 2


def test_a_log_that_fails_while_sealing_is_not_the_fault_of_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise LogError("the database is gone")

    with made(tmp_path / "shop", None, Config(segments=AT_ONCE)) as bandit:
        play(bandit, 0)
        for module, name in ((seal, "next_block"), (reading, "read_segment")):
            with monkeypatch.context() as patch:
                patch.setattr(module, name, gone)
                with pytest.raises(LogError, match="the database is gone"):
                    bandit.refit()
            seal_folder(bandit.folder, bandit.log, AT_ONCE, bandit.snapshot.model.tree)
        assert not unused(bandit)


def test_segments_of_another_version_are_made_again(tmp_path: Path) -> None:
    with made(tmp_path / "shop", None, Config(segments=AT_ONCE)) as bandit:
        play(bandit, 0)
        bandit.refit()
        path = segment_folder(bandit.folder).path / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_bytes()), "version": VERSION - 1}))
        assert bandit.refit().rounds == ROUNDS
        found = segment_folder(bandit.folder).manifest()
        assert found is not None
        assert found.rounds == 32
        assert not unused(bandit)


def test_shards_are_neighbouring_leaves_and_stay(tmp_path: Path) -> None:
    with made(tmp_path / "shop", None, Config(tree=TreeConfig(4), segments=AT_ONCE)) as bandit:
        play(bandit, 0)
        tree = bandit.snapshot.model.tree
        shards = shards_by_tree(tree, 4)(np.zeros(0, np.int32), tree.n_arms)
        assert (np.diff(shards[tree.arm_at]) >= 0).all()
        assert all(len(set(shards[tree.leaf_of == leaf].tolist())) == 1 for leaf in set(tree.leaf_of.tolist()))
        bandit.refit()
        bandit.add_arms([f"new-{i}" for i in range(9)])
        for i in range(40):
            bandit.decide(X[i], eligible=[f"new-{j}" for j in range(9)])
        bandit.refit()
        found = segment_folder(bandit.folder).manifest()
        assert found is not None
        after = read_shards(segment_folder(bandit.folder).path, found.shard_pieces)
        np.testing.assert_array_equal(after[: tree.n_arms], shards)
        assert len(after) == tree.n_arms + 9


def test_the_rest_can_be_sealed_when_asked(tmp_path: Path) -> None:
    with made(tmp_path / "shop", None, Config(segments=AT_ONCE)) as bandit:
        play(bandit, 0)
        seen: list[Any] = []
        tree = bandit.snapshot.model.tree
        sealed = seal_folder(bandit.folder, bandit.log, AT_ONCE, tree, rest=True, progress=seen.append)
        assert (sealed.rounds, seen) == (ROUNDS, [16, 32, 40])
        assert bandit.refit().rounds == ROUNDS
        assert isinstance(treetop.SegmentConfig().rounds, int)
