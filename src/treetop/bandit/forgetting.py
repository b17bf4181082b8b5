"""What windows have forgotten leaves the segments, and what retention deletes is summed up before: the next model is
the same without it.

docs/segments.md says what is kept of such rounds. The log keeps its rows until retention deletes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.arrays import Bools, Float32s, Floats, Int64s
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder
from treetop.bandit.sealing import UNUSABLE, follow_deletions, note_unused, seal_old, segment_folder, share_of
from treetop.bandit.stored_sums import can_sum, late_arms, sum_settings
from treetop.bandit.vocabulary import Vocabulary
from treetop.errors import FolderInUse, LogError
from treetop.learning.component_weights import RECENT
from treetop.learning.history import History
from treetop.learning.pooled import Pooled
from treetop.learning.summed_rounds import SummedRounds
from treetop.learning.windows import Windows, samples_read
from treetop.log.base import Log
from treetop.log.blocks import Block
from treetop.log.records import PAST_COMPONENTS, Mark
from treetop.log.rounds import gather, learned_rewards
from treetop.log.segments.manifest import Manifest, Sums
from treetop.log.segments.storage import read_sums
from treetop.log.segments.summing import PAYS, sum_up
from treetop.model.model import Model


def forget_old_samples(
    folder: BanditFolder, log: Log, config: Config, model: Model, arms: ArmIndex, history: History, mark: Mark
) -> bool:
    """After a refit: takes samples out of the segments that neither it nor a later one reads, if they are many.

    Returns whether it did. Rounds that weights of components are learned from stay, those that routing has not been
    fitted from, and, where rounds teach means, curves, scales or maps, those that these are fitted to. What keeps it
    from that is noted; nothing is lost by it.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.learning.history import HistoryWriter
    >>> from treetop.records import Feedback
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     nothing = HistoryWriter(Path(place, "history"), 4, np.zeros(4, bool)).done(Feedback.none(4, 1))
    ...     now, mark = tea.snapshot, tea.log.seal("today")
    ...     forget_old_samples(tea.folder, tea.log, tea.config, now.model, now.arms, nothing, mark)
    False
    """
    learner, routing = config.learner.make_learner(), model.learned_routing
    if not (_summable(config, model) and isinstance(learner, Pooled)) or history.examined:
        return False
    shown = history.totals.shown
    there = sum(len(part.arrays["arm"]) for part in history.parts)
    read = int(np.minimum(shown, samples_read(learner, shown, history.totals)).sum())
    if there == 0 or PAYS * (there - read) < there:
        return False
    summed = 0 if history.past is None else history.past.totals.rounds
    features = config.features.strict_features, config.features.grow_features
    parts = Vocabulary(model.n_features, folder.feature_names(), *features).vectors
    limits = [len(history) - RECENT]
    if routing is not None:
        limits.append(routing.rounds)
    labelled = routing is not None and config.learner.uses_label_samples  # then labels say the means
    if not labelled or model.measure is not None or model.prior is not None or parts:
        limits.append(history.first_fitted)
    limit, segments = min(limits) - summed, segment_folder(folder)
    try:
        manifest = segments.manifest()
        until = 0 if manifest is None else _last_of(manifest, limit)
        summing = _SumUp(config, model, arms, mark.time, history)
        return until > 0 and sum_up(segments, log, until, 0.0, summing, share_of(folder))
    except UNUSABLE as error:  # the log may be gone, too; the model is there
        note_unused(folder, error)
        return False


def sum_up_before(
    folder: BanditFolder, log: Log, config: Config, model: Model, arms: ArmIndex, before: float, now: float
) -> bool:
    """Before retention deletes what is older than a time: seals it, sums it up and takes it out of the segments.
    Returns whether there was any.

    What was deleted from the log before, by erasure, leaves the segments first: it is not summed up. Raises FolderInUse
    if somebody holds the segments for too long, as a backup does, and OSError where replicas cannot share the sums:
    nothing may be deleted then.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.bandit.config import SegmentConfig
    >>> from treetop.bandit.sealing import seal_folder
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for _ in range(3):
    ...         _ = tea.decide(np.ones(4))
    ...     now, at_once = tea.snapshot, SegmentConfig(wait_seconds=0)
    ...     _ = seal_folder(tea.folder, tea.log, at_once, now.model.tree, rest=True)
    ...     sum_up_before(tea.folder, tea.log, tea.config, now.model, now.arms, before=3e9, now=4e9)
    ...     segment_folder(tea.folder).manifest().rounds
    True
    0
    """
    if not _summable(config, model):
        return False
    follow_deletions(folder, log)
    try:
        seal_old(folder, log, config.segments, model.tree, before)
        return sum_up(segment_folder(folder), log, 0, before, _SumUp(config, model, arms, now), share_of(folder))
    except (LogError, FolderInUse):
        raise
    except UNUSABLE as error:
        if folder.shared is not None:
            raise
        note_unused(folder, error)
        return False


def _summable(config: Config, model: Model) -> bool:
    return config.segments.seal and can_sum(config) and model.feature_scale is not None


def _last_of(manifest: Manifest, rounds: int) -> int:
    """The position of the last segment that ends within so many rounds that are not summed up; 0 if none does."""
    new = [segment for segment in manifest.segments if segment.first > manifest.summed]
    ends = np.cumsum([segment.rounds for segment in new])
    within = int(np.searchsorted(ends, rounds, side="right"))
    return new[within - 1].last if within else 0


class _SumUp:
    """Sums rounds up as refits see them. Without a history, nothing but what is deleted leaves the segments."""

    def __init__(
        self, config: Config, model: Model, arms: ArmIndex, now: float, history: History | None = None
    ) -> None:
        self._config, self._model, self._since, self._now = config, model, arms.epochs(), now
        self._history, self.selects = history, history is not None
        self._summed: SummedRounds | None = None
        self._samples: Int64s = np.zeros(model.n_arms, np.int64)
        self._finds: Int64s = np.zeros(model.n_arms, np.int64)
        self._windows: Windows | None = None

    def begin(self, past: Sums | None, folder: Path) -> bool:
        if past is None:
            return True
        arrays, numbers = read_sums(folder, past)
        found, arms = SummedRounds.read(arrays, numbers, ()), self._model.n_arms  # norms of before stay where they are
        if numbers["settings"] != sum_settings(self._config) or len(found.totals.late) > arms:
            return False  # of other rewards, or of more arms than the model that is current again knows
        assert self._model.feature_scale is not None
        late = late_arms(self._since, found.first_epoch, arms)
        self._summed = found.continued(late, self._model.feature_scale)
        return True

    def see(self, block: Block, new: bool) -> bool:
        rewards, arms = self._rewards(block), len(self._samples)
        past = (block.component_counts == PAST_COMPONENTS).any()  # whose rewards are corrected for positions
        unknown = block.arms.max(initial=-1) >= arms or block.index.max(initial=-1) >= self._model.n_features
        if past or unknown or (block.times > self._overdue).any():
            return False
        arm, reward = block.arms[~np.isnan(rewards)], rewards[~np.isnan(rewards)]
        self._samples += np.bincount(arm, minlength=len(self._samples))
        self._finds += np.bincount(arm[reward > 0], minlength=len(self._finds))
        if not new:
            return True
        if self._summed is None:
            first = int(block.epochs[0])
            late = late_arms(self._since, first, self._model.n_arms)
            assert self._model.feature_scale is not None
            self._summed = SummedRounds.none(first, late, self._model.feature_scale)
        config = self._config.rewards
        logged = block.logged(self._mark, self._overdue, config.default_reward, None)
        self._summed = self._summed.after(gather([logged], self._model.n_features, None, config.limits))
        return True

    def kept(self, block: Block) -> Bools:
        if self._windows is None:
            learner = self._config.learner.make_learner()
            assert isinstance(learner, Pooled)
            assert self._history is not None
            assert self._summed is not None
            read = samples_read(learner, self._summed.totals.shown, self._history.totals)
            self._windows = Windows(self._samples, self._finds, read)
        observed = self._rewards(block)
        kept = ~np.isnan(observed)
        kept[kept] = self._windows.needed(block.arms[kept], observed[kept])
        return kept

    def sums(self) -> tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]:
        assert self._summed is not None
        return self._summed.arrays(), {**self._summed.numbers(), "settings": sum_settings(self._config)}

    def norms(self) -> Floats:
        return np.concatenate([np.zeros(0), *(() if self._summed is None else self._summed.norms)])

    def _rewards(self, block: Block) -> Float32s:
        """Of every slot, as a learner takes it."""
        default = self._config.rewards.default_reward
        rewards = block.rewards if default is None else np.where(np.isnan(block.rewards), default, block.rewards)
        return learned_rewards(rewards, self._config.rewards.limits)[0].astype(np.float32)

    @property
    def _overdue(self) -> float:
        """Rounds that were decided before have the default reward, where there is one; all others may yet get one."""
        rewards = self._config.rewards
        return self._now - (rewards.reward_wait if rewards.default_reward is not None else 0.0)

    @property
    def _mark(self) -> Mark:
        return Mark("summed up", np.iinfo(np.int64).max, self._now)
