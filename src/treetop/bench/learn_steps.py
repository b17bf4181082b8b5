"""The steps of `bench learn-scale`, each for a process of its own: a bandit, its rounds in segments, a refit."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Rows
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, LearnerConfig, SegmentConfig, TreeConfig
from treetop.bandit.creation import create_folder
from treetop.bandit.logged_history import logged_history, work_folder
from treetop.bandit.promotion import streamed_fit, validate
from treetop.bandit.refit_config import refit_resources
from treetop.bandit.sealing import segment_folder, shards_by_tree
from treetop.bench.shape import LABEL_SLOTS, K, Shape
from treetop.bench.timing import anonymous
from treetop.data.synthetic import generate
from treetop.learning.pooled import Pooled
from treetop.log.base import Log
from treetop.log.blocks import Block, RewardRows
from treetop.log.origins import Origins
from treetop.log.records import Mark
from treetop.log.segments import binding
from treetop.log.segments.compaction import merged_delta
from treetop.log.segments.manifest import Manifest, Segment, SegmentFolder
from treetop.log.segments.storage import write_segment, write_shards
from treetop.model.model import Model

POOL = 200_000  # contexts that are different
FOUND = 0.5  # chance that an arm with the label is rewarded
COMPONENTS = 2
BANDIT, MODEL = "bandit", "model"


def begin(shape: dict[str, Any], place: str) -> dict[str, Any]:
    """A bandit from the initialisation rows of a shape."""
    asked, began = Shape(**shape), time.perf_counter()
    _, _, X, Y = generate(asked.spec(1))
    tree = TreeConfig(max_leaf=asked.max_leaf)
    config = Config(tree=tree, segments=SegmentConfig(wait_seconds=0.0), learner=LearnerConfig())
    create_folder(Path(place) / BANDIT, Catalogue(range(asked.arms)), X.csr(), Y.csr(), config=config)
    with Bandit.open(Path(place) / BANDIT) as bandit:
        bandit.snapshot.model.save(Path(place) / MODEL)
    return {"seconds": round(time.perf_counter() - began, 1)}


def seal(shape: dict[str, Any], place: str, rounds: int, late: float = 0.0) -> dict[str, Any]:
    """More rounds that never happened, sealed until there are so many; a share of their rewards comes late."""
    asked = Shape(**shape)
    began, worked = time.perf_counter(), time.process_time()
    X, Y, _, _ = generate(asked.spec(min(POOL, asked.rounds)))
    with Bandit.open(Path(place) / BANDIT) as bandit:
        folder, size = segment_folder(bandit.folder), bandit.config.segments.rounds
        with folder.changing() as found:
            manifest = found or _first_manifest(bandit, folder.path)
            shard_of = np.load(folder.path / manifest.shard_pieces[0].name / "shard.npy")
            for first in range(manifest.rounds, rounds, size):
                block, rewards = _split_late(_rounds(asked, X, Y, first, min(size, rounds - first)), late)
                name, manifest = manifest.named("segment")
                written = write_segment(folder.path, name, block, (shard_of, manifest.shards))
                manifest = _stored(folder, bandit.log, manifest, written, rewards)
    size = sum(segment.bytes for segment in manifest.segments)
    spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - worked}
    return {**spent, "bytes_a_round": round(size / rounds)}


def _first_manifest(bandit: Bandit, path: Path) -> Manifest:
    tree, empty = bandit.snapshot.model.tree, Manifest(os.urandom(16).hex())
    shards = shards_by_tree(tree, bandit.config.segments.shard_arms)(np.zeros(0, np.int32), tree.n_arms)
    name, manifest = empty.named("shards")
    facts = {**vars(manifest), "shards": int(shards.max()) + 1, "shard_pieces": (write_shards(path, name, shards),)}
    return Manifest(**facts)


def _stored(folder: SegmentFolder, log: Log, manifest: Manifest, written: Segment, late: RewardRows) -> Manifest:
    manifest = replace(manifest, segments=(*manifest.segments, written), decisions=written.last)
    return binding.store(folder, log, merged_delta(folder, manifest, late) if len(late) else manifest)


def _split_late(block: Block, share: float) -> tuple[Block, RewardRows]:
    """The rounds without some of their rewards, and these."""
    gone = np.random.default_rng(int(block.positions[0])).random(len(block.arms)) < share
    late = RewardRows(block.positions[block.rows], block.columns, block.rewards, block.reward_positions).take(gone)
    rewards, positions = np.where(gone, np.nan, block.rewards), np.where(gone, 0, block.reward_positions)
    return replace(block, rewards=rewards, reward_positions=positions), late


def _rounds(shape: Shape, X: Rows, Y: Rows, first: int, n: int) -> Block:
    """Two slots show labels of the context, three show any arms; labels are rewarded half of the time."""
    rng = np.random.default_rng([shape.seed, first])
    at = rng.integers(0, len(X), n)
    arms = rng.integers(0, shape.arms, (n, K), dtype=np.int32)
    count = np.diff(Y.start)[at][:, None]
    picked = Y.start[at][:, None] + (rng.random((n, 1)) * count + np.arange(LABEL_SLOTS)) % count
    arms[:, :LABEL_SLOTS] = Y.index[picked.astype(np.int64)]
    rewards = np.zeros((n, K))
    rewards[:, :LABEL_SLOTS] = rng.random((n, LABEL_SLOTS)) < FOUND
    contexts, slots, each = X.csr()[at], n * K, np.arange(first, first + n, dtype=np.int64)
    return Block(
        positions=each + 1,
        times=1e9 + each.astype(np.float64),
        epochs=each >> 14,
        trees=np.zeros(n, np.int32),
        slots=np.full(n, K, np.int32),
        component_counts=np.full(n, COMPONENTS, np.int32),
        start=contexts.indptr.astype(np.int64),
        index=contexts.indices.astype(np.int32),
        value=contexts.data.astype(np.float32),
        arms=arms.reshape(-1),
        nodes=np.full(slots, -1, np.int32),
        propensities=np.full(slots, 0.5),
        scores=rng.random(slots).astype(np.float32),
        explored=np.zeros(slots, np.bool_),
        rewards=rewards.reshape(-1),
        reward_positions=np.repeat(each + 1, K),
        components=rng.random(slots * COMPONENTS).astype(np.float32),
        tree_ids=("made up",),
        origins=Origins.unsaid(n),
    )


def refit(place: str, rounds: int, ray: str = "") -> dict[str, Any]:
    """What `Bandit.refit` does from the segments on: read, fit, check, save; on a cluster if there is one."""
    steps: dict[str, float] = {}
    with Bandit.open(Path(place) / BANDIT) as bandit, peak_memory() as peak, work_folder(bandit.folder) as work:
        config, arms, base = bandit.config, bandit.snapshot.arms, Model.load(Path(place) / MODEL)
        learner = config.learner.make_learner(
            bandit.folder.label_samples(base, arms.is_removed, bandit.snapshot.attributes)
        )
        assert isinstance(learner, Pooled)
        began, worked = time.perf_counter(), time.process_time()
        with _step(steps, "history"):
            mark = Mark("bench", rounds, 2e9)
            history = logged_history(bandit.log, mark, base, arms, config, bandit.folder, work)
        with _step(steps, "fit"):
            resources = refit_resources(replace(config.refit, ray=ray))
            model, _ = streamed_fit(base, history, learner, base.epoch + 1, work, resources)
        work_bytes = _bytes(work)
        with _step(steps, "save"):
            validate(model, base, history, config.policy.make_policy())
            model.save(Path(place) / "next")
        spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - worked}
    shutil.rmtree(Path(place) / MODEL)
    (Path(place) / "next").rename(Path(place) / MODEL)
    memory = {"peak_gb": round(peak[0] / 1e9, 3), "memory_gb": config.refit.memory}
    sizes = {"model_gb": round(_bytes(Path(place) / MODEL) / 1e9, 3), "work_bytes": work_bytes}
    return {**spent, **sizes, **memory, "steps": steps}


@contextmanager
def _step(steps: dict[str, float], name: str) -> Iterator[None]:
    began = time.process_time()
    yield
    steps[name] = time.process_time() - began


def _bytes(folder: Path) -> int:
    """Of a folder's own files; one that has another name elsewhere takes no room."""
    found = (path.stat() for path in folder.rglob("*") if path.is_file())
    return sum(facts.st_size for facts in found if facts.st_nlink == 1)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """The most memory of its own that this process has, in bytes: without files that are mapped, which the system may
    drop at any time."""
    most, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            most[0] = max(most[0], anonymous())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        over.set()
        thread.join()
