"""The segments of a bandit's folder: which arms share a shard, when rounds are sealed. `log.segments` does the work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import numpy as np

from treetop.arrays import Ints
from treetop.bandit.config import SegmentConfig
from treetop.bandit.folder import BanditFolder
from treetop.bandit.shared_sums import same_sums
from treetop.errors import FolderInUse, LogError, SegmentError
from treetop.log.base import Log
from treetop.log.segments.adopting import adopt
from treetop.log.segments.binding import belongs
from treetop.log.segments.compaction import follow
from treetop.log.segments.manifest import SegmentFolder, Sums
from treetop.log.segments.schema import MAX_SHARDS
from treetop.log.segments.seal import Assign, Sealed, Sealing, seal_rounds
from treetop.log.segments.storage import read_norms, read_sums
from treetop.log.segments.summing import Share, keep_to_itself
from treetop.tree.tree import Tree

SEGMENTS = "segments"
UNUSABLE = (SegmentError, FolderInUse, OSError)  # LogError, which is an OSError too, is for the caller


def segment_folder(folder: BanditFolder) -> SegmentFolder:
    """Where a bandit's segments are; nothing is there before the first is sealed.

    >>> from pathlib import Path
    >>> segment_folder(BanditFolder(Path("shop"))).path.as_posix()
    'shop/segments'
    """
    return SegmentFolder(folder.path / SEGMENTS)


def shards_by_tree(tree: Tree, arms_per_shard: int) -> Assign:
    """Shards that are neighbouring leaves of a tree, about so many arms each.

    An arm that has a shard keeps it, wherever the tree moves it. A new arm gets that of the first arm in its leaf.

    >>> assign = shards_by_tree(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1, 2]), arms_per_shard=2)
    >>> assign(np.zeros(0, np.int32), 4).tolist()
    [0, 1, 0, 1]
    >>> grown = shards_by_tree(Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1, 2, 2]), arms_per_shard=2)
    >>> grown(np.array([0, 1, 0, 1], np.int32), 5).tolist()
    [0, 1, 0, 1, 1]
    """

    def assign(known: Ints, needed: int) -> Ints:
        size = max(arms_per_shard, -(-tree.n_arms // MAX_SHARDS))
        by_place = (tree.begin[tree.leaf_of] // size).astype(np.int32)
        if len(known):
            inside = known[: tree.n_arms]
            of_leaf = np.full(tree.n_nodes, -1, np.int32)
            of_leaf[tree.leaf_of[: len(inside)][::-1]] = inside[::-1]  # the first arm of a leaf comes last, and wins
            mine = of_leaf[tree.leaf_of]
            by_place = np.where(mine >= 0, mine, np.arange(tree.n_arms, dtype=np.int32) % (int(known.max()) + 1))
        beyond = np.arange(tree.n_arms, needed, dtype=np.int32) % (int(by_place.max(initial=0)) + 1)
        every = np.concatenate([by_place, beyond]).astype(np.int32)
        every[: len(known)] = known
        return every

    return assign


def seal_folder(
    folder: BanditFolder,
    log: Log,
    config: SegmentConfig,
    tree: Tree,
    rest: bool = False,
    progress: Callable[[int], None] = lambda rounds: None,
) -> Sealed:
    """Seals the complete rounds of a bandit's log; with `rest` also those that do not fill a segment.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     _ = tea.decide(np.ones(4))
    ...     at_once = SegmentConfig(wait_seconds=0)
    ...     seal_folder(tea.folder, tea.log, at_once, tea.snapshot.model.tree, rest=True).sealed_rounds
    1
    """
    take_over_sums(folder, log, config, tree)
    how = Sealing(config.wait_seconds, config.rounds, rest)
    return seal_rounds(segment_folder(folder), log, how, shards_by_tree(tree, config.shard_arms), progress)


def seal_old(folder: BanditFolder, log: Log, config: SegmentConfig, tree: Tree, before: float) -> None:
    """Seals the complete rounds that are older than a time, be they too few for a segment; then all that are complete.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     _ = tea.decide(np.ones(4))
    ...     seal_old(tea.folder, tea.log, SegmentConfig(wait_seconds=0), tea.snapshot.model.tree, before=4e9)
    ...     segment_folder(tea.folder).manifest().rounds
    1
    """
    take_over_sums(folder, log, config, tree)
    found = segment_folder(folder).manifest()
    oldest = log.time_of_next(0 if found is None else found.decisions, 1)
    if oldest is not None and oldest < before:
        seal_folder(folder, log, config, tree, rest=True)


def seal_anew(folder: BanditFolder, log: Log, config: SegmentConfig, tree: Tree) -> None:
    """Deletes segments, and sums of what the log has no more unless other replicas have them; for who seals next.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     seal_anew(tea.folder, tea.log, SegmentConfig(), tea.snapshot.model.tree)
    ...     segment_folder(tea.folder).path.exists()
    False
    """
    segments = segment_folder(folder)
    if segments.path.is_dir():
        segments.delete()
    try:
        take_over_sums(folder, log, config, tree)
    except SegmentError:  # the store has lost them
        assert folder.shared is not None
        folder.shared.sums.drop()


def take_over_sums(folder: BanditFolder, log: Log, config: SegmentConfig, tree: Tree) -> None:
    """Before rounds are sealed or summed up on one of several replicas: makes the sums that count for all its own, and
    shares those that it has if there are none yet.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     take_over_sums(tea.folder, tea.log, SegmentConfig(), tea.snapshot.model.tree)  # a single host
    """
    if folder.shared is None:
        return
    segments, shared = segment_folder(folder), folder.shared.sums
    entry, mine = shared.entry(), _own_sums(segments, log)
    if entry is None and mine is not None:
        with segments.changing():
            shared.publish(segments.path, None, mine)
        return
    if entry is None or same_sums(entry.sums, mine):
        return
    if entry.sums is None:
        segments.delete()
        return
    assign = shards_by_tree(tree, config.shard_arms)
    adopt(segments, log, entry.sums, partial(shared.fetch, entry), config.rounds, assign)


def share_of(folder: BanditFolder) -> Share:
    """What is done with new sums before they count.

    >>> from pathlib import Path
    >>> share_of(BanditFolder(Path("shop"))) is keep_to_itself
    True
    """
    return keep_to_itself if folder.shared is None else folder.shared.sums.publish


def _own_sums(segments: SegmentFolder, log: Log) -> Sums | None:
    """The sums of a replica's folder, if they are of this log; what is damaged is deleted: others have it."""
    segments.delete_other_version()
    if not segments.path.is_dir():
        return None
    try:
        with segments.reading() as found:
            if found is None or found.sums is None or not belongs(log, found, log.counts()):
                return None
            read_sums(segments.path, found.sums)
            read_norms(segments.path, found.sums.norms)
            return found.sums
    except SegmentError:
        segments.delete()
        return None


def seal_before_refit(folder: BanditFolder, log: Log, config: SegmentConfig, tree: Tree) -> Sealed | None:
    """Seals, if the settings say so. What keeps it from that, such as damaged segments or a full disk, is noted.

    Nothing is lost by it: the log has all that segments hold.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     seal_before_refit(tea.folder, tea.log, SegmentConfig(seal=False), tea.snapshot.model.tree) is None
    True
    """
    if not config.seal:
        return None
    take_over_sums(folder, log, config, tree)
    try:
        return seal_folder(folder, log, config, tree)
    except LogError:
        raise
    except UNUSABLE as error:
        note_unused(folder, error)
        return None


def note_unused(folder: BanditFolder, error: Exception) -> None:
    """Notes in the history why segments were not used; once, if the same is met twice in a row.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for _ in range(2):
    ...         note_unused(tea.folder, OSError("the disk is full"))
    ...     [entry["error"] for entry in tea.folder.history() if entry["kind"] == "segments not used"]
    ['the disk is full']
    """
    facts = {"kind": "segments not used", "error": str(error)}
    with suppress(OSError):  # a full disk has no room for the note either
        if any(facts.items() <= entry.items() for entry in folder.recent_history(1)):
            return
        folder.note(facts["kind"], error=facts["error"])


def follow_deletions(folder: BanditFolder, log: Log) -> int:
    """Takes what was deleted from the log out of the segments; how many files of arrays were written again or deleted.

    Segments that are damaged, of another log, or with sums that count no more are deleted: the next sealing makes them
    again.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     _ = tea.decide(np.ones(4))
    ...     _ = seal_folder(tea.folder, tea.log, SegmentConfig(wait_seconds=0), tea.snapshot.model.tree, rest=True)
    ...     tea.log.forget(2e9), follow_deletions(tea.folder, tea.log), segment_folder(tea.folder).manifest().rounds
    (1, 1, 0)
    """
    segments = segment_folder(folder)
    if folder.shared is not None and (entry := folder.shared.sums.entry()) is not None:
        mine = _own_sums(segments, log)
        if mine is not None and not same_sums(entry.sums, mine):
            return segments.delete()
    return follow(segments, log)
