"""What changes the model of an open bandit: refits, rollbacks, pins. Decisions go on with the old one meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from treetop.bandit.arm_changes import with_all_arms
from treetop.bandit.arm_filter import FindSet
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder, model_name
from treetop.bandit.forgetting import forget_old_samples
from treetop.bandit.gate import judge_refit, newest_stretch
from treetop.bandit.growth import grow
from treetop.bandit.live_trials import trials_until
from treetop.bandit.logged_history import logged_history, work_folder
from treetop.bandit.ownership import claim_log
from treetop.bandit.promotion import streamed_fit, validate
from treetop.bandit.rebuilding import check_rebuildable, rebuilt
from treetop.bandit.refit_config import more_than_memory, refit_resources
from treetop.bandit.results import RefitResult
from treetop.bandit.sealing import seal_before_refit
from treetop.bandit.snapshot import Snapshot
from treetop.bandit.state import FolderState, ScheduleStart
from treetop.bandit.unknown_features import UnknownFeatures, take_most_frequent
from treetop.bandit.vocabulary import Vocabulary
from treetop.effort import Effort
from treetop.errors import ModelSuperseded, NothingToLearn, ReplicaConflict
from treetop.learning.history import History
from treetop.learning.new_arm_routes import with_new_arm_routes
from treetop.learning.saturation import with_saturation
from treetop.learning.streamed import held_bytes
from treetop.log.base import Log
from treetop.log.records import Mark
from treetop.model.model import Model

REFIT_LOCK_TIMEOUT = 1.0  # seconds that a refit waits for another one, which may only be looking whether it is locked
PUBLISH_ATTEMPTS = 5  # while other replicas change the bandit at the same moments
PUBLISH_TIMEOUT = 300.0  # seconds that a refit waits with its model for arms that are just being added
BESIDE = 16  # arms of its leaf that an arm added meanwhile is put beside
Fit = tuple[Model, tuple[str, ...], History]  # the next model, the learner's warnings, what it was fitted on


class ModelChanges:
    """The part of `Bandit` that changes its model."""

    if TYPE_CHECKING:  # what `Bandit` has
        folder: BanditFolder
        config: Config
        log: Log
        snapshot: Snapshot
        vocabulary: Vocabulary
        unknown: UnknownFeatures
        refresh: Callable[[], bool]
        _loaded: Callable[[], tuple[FolderState, Snapshot]]
        logged_sets: Callable[[], FindSet]
        _vocabulary: Callable[[Model], Vocabulary]

    def rebuild(self) -> RefitResult:
        """Refits with a tree and routing made anew from labels and rewards; arms keep their ids and indices.

        It serves unless the newest rounds, which it is first fitted without, say that it is worse than the model that
        serves: then it is kept aside, and `aside` says why. Raises ValueError for a tree that follows the owner's
        vectors or categories, NothingToLearn if fewer than two rounds came since the last refit to judge it by.
        """
        return self.refit(rebuild=True)

    def refit(self, counted_from: float | None = None, rebuild: bool = False) -> RefitResult:
        """Fits a new model on all feedback in the log and makes it current. Decisions go on with the old one meanwhile.

        Arms that are added or removed while it runs are in the new model too. With a gate in the settings, a refit that
        is clearly worse than the model that serves is kept aside: `aside` of the result says why. `counted_from` is for
        a refit that is due by the schedule: the time that this counted from, so that the refit does not undo a rollback
        that came since. `rebuild` is for `rebuild`.
        Raises FolderInUse if another refit runs, NothingToLearn, InvalidModel, ModelPinned, or ModelSuperseded if a
        rollback came in between; then nothing has changed.
        """
        with self.folder.refit_lock(REFIT_LOCK_TIMEOUT):
            self.folder.follow()
            self.refresh()
            claim_log(self.folder, self.log)
            start, (state, snapshot) = time.perf_counter(), self._loaded()
            state.check_not_pinned()
            if counted_from is not None and state.schedule.time != counted_from:
                raise ModelSuperseded(f"model {state.model} became current since the refit was due")
            arms, config = snapshot.arms, self.config
            base = with_all_arms(self.folder, snapshot, config.tree.leaf_limit)
            if rebuild:
                check_rebuildable(base, config)
            seal_before_refit(self.folder, self.log, config.segments, base.tree)
            counts = self.log.counts()
            mark = self.log.seal(f"refit {model_name(state.next_epoch)} {time.time():.6f}")
            with work_folder(self.folder) as work:
                due = not rebuild and self._rebuild_is_due(base, arms, state, mark, work / "rebuild")
                fit, aside = None, ""
                if rebuild or (config.refit.gate and not due):
                    fit, aside = self._gated(base, arms, state, mark, work / "gate", rebuild)
                rebuild = rebuild or due
                fit = fit or self._fitted(base, arms, state.next_epoch, mark, work / "refit", rebuild)
                model, caught, learned = fit
                validate(model, base, learned, config.policy.make_policy())
                self._grow_vocabulary()
                model = self._publish(model, state, ScheduleStart.of(counts, mark.time), aside)
                if not aside:
                    forget_old_samples(self.folder, self.log, config, fit[0], arms, learned, mark)
            rewards, seconds = int(learned.totals.shown.sum()), time.perf_counter() - start
            result = RefitResult(model_name(model.epoch), len(learned), rewards, seconds, caught, aside)
            kind = "refit kept aside" if aside else "refit"
            self.folder.note(kind, base=state.model, **asdict(result), **({"rebuilt": True} if rebuild else {}))
        self.refresh()
        return result

    def _publish(self, model: Model, state: FolderState, fitted: ScheduleStart, aside: str) -> Model:
        """Makes a model current that was made from a state, with the arms that were added since; returns it with them.

        If another replica adds arms while this one writes its model, it begins anew. With a reason to keep it `aside`,
        it is kept and does not become current.
        """
        with ExitStack() as alone:
            for attempt in range(PUBLISH_ATTEMPTS):
                if attempt and self.folder.shared is not None:  # large models take long: others would win again
                    alone.pop_all().close()
                    alone.enter_context(self.folder.shared.reserved())
                try:
                    return self._publish_once(model, state, fitted, aside)
                except ReplicaConflict:
                    if attempt == PUBLISH_ATTEMPTS - 1:
                        raise
        raise AssertionError("the last attempt returns or raises")

    def _publish_once(self, model: Model, state: FolderState, fitted: ScheduleStart, aside: str) -> Model:
        with self.folder.model_lock(PUBLISH_TIMEOUT):
            now = self.folder.state()
            now.check_not_pinned()
            if (now.fitted, now.schedule) != (state.fitted, state.schedule):
                raise ModelSuperseded(f"model {now.model} became current while one was made from {state.model}")
            if now.model != state.model:
                self.refresh()
                grown, served = _with_added(model, self.snapshot, self.config.tree.leaf_limit), self.snapshot
                if served.attributes.examples and self.config.learner.uses_label_samples:
                    labels = self.folder.label_samples(grown, served.arms.is_removed, served.attributes)
                    grown = with_new_arm_routes(grown, labels, model.n_arms)
                model = replace(grown, epoch=now.next_epoch)
            self.folder.publish(model, now, self.config.refit, fitted, aside=aside, logged=self.log.models())
            return model

    def _fitted(self, base: Model, arms: ArmIndex, epoch: int, mark: Mark, work: Path, rebuild: bool = False) -> Fit:
        """From all feedback up to a mark, by shards from disk."""
        config = self.config
        samples, table = None, self.snapshot.attributes
        if config.learner.uses_label_samples:
            samples = self.folder.label_samples(base, arms.is_removed, table)
        learner = config.learner.make_learner(samples, tuple(self.vocabulary.vectors.values()))
        trials = trials_until(self.log, base, arms, self.folder.state().counted_until, mark.time)
        work.mkdir(mode=0o700)
        history = logged_history(self.log, mark, base, arms, config, self.folder, work)
        base = with_saturation(base, history.saturation)
        if rebuild:
            base = rebuilt(base, history, samples, config, Effort(ray=config.refit.ray, folder=work))
        resources = refit_resources(config.refit)
        model, caught = streamed_fit(base, history, learner, epoch, work, resources, trials)
        return model, (*caught, *more_than_memory(config.refit, held_bytes(history, samples, base))), history

    def _gated(
        self, base: Model, arms: ArmIndex, state: FolderState, mark: Mark, work: Path, rebuild: bool
    ) -> tuple[Fit | None, str]:
        """A refit without the newest rounds and why it must not serve, if these say so; otherwise None and nothing."""
        stretch = newest_stretch(self.log, state.refit_time, mark)
        if stretch.after == stretch.until or stretch.after == 0:
            if rebuild:
                raise NothingToLearn(
                    "fewer than two rounds came since the last refit, so that nothing can judge a rebuilt tree: wait "
                    "for visits with rewards, some hundreds of them, and rebuild before the next refit"
                )
            return None, ""
        try:
            fit = self._fitted(base, arms, state.next_epoch, replace(mark, position=stretch.after), work, rebuild)
        except NothingToLearn:
            return None, ""
        overdue, models = mark.time - self.config.rewards.reward_wait, (base, fit[0])
        found = judge_refit(self.log, stretch, models, arms, self.logged_sets(), self.config, overdue)
        return (fit, found.loses) if found.loses else (None, "")

    def _rebuild_is_due(self, base: Model, arms: ArmIndex, state: FolderState, mark: Mark, work: Path) -> bool:
        """Whether the settings ask for a new tree now, and the newest rounds do not speak against it."""
        every = self.config.refit.rebuild
        if every == 0 or state.next_epoch % every:
            return False
        try:
            why = self._gated(base, arms, state, mark, work, rebuild=True)[1]
        except NothingToLearn as error:
            why = str(error)
        if why:
            self.folder.note("tree not rebuilt", model=state.model, error=why)
        return not why

    def _grow_vocabulary(self) -> None:
        """Lets the features join the vocabulary that requests have named most often, as many as there is room for."""
        if not self.vocabulary.room:
            return
        self.vocabulary = self._vocabulary(self.snapshot.model)  # another process may have added to it
        self.unknown.store(self.log)
        names = self.vocabulary.unknown(take_most_frequent(self.log, self.vocabulary.room))
        if joined := self.folder.add_features(names, self.vocabulary.columns):
            self.vocabulary = self._vocabulary(self.snapshot.model)
            self.folder.note("features joined", count=len(joined), first=joined[:10])

    def roll_back(self, model: str | None = None, pin: bool = False) -> str:
        """Makes another kept model current: the one named, or the one that the current one was made from.

        Returns its name. A running refit is dropped; the next one starts from there, with `pin` not before `unpin`.
        """
        before = self.snapshot.name
        state = self.folder.roll_back(model, ScheduleStart.of(self.log.counts(), time.time()), pin)
        self.folder.note("rollback", model=state.model, base=before, pinned=pin)
        self.refresh()
        return state.model

    def unpin(self) -> str:
        """Lets refits replace the current model again; returns its name.

        >>> import tempfile
        >>> import numpy as np
        >>> from treetop.bandit.bandit import Bandit
        >>> X = Y = np.eye(4)
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=X, Y=Y) as tea:
        ...     _ = tea.decide(np.ones(4)), tea.roll_back("000000", pin=True)
        ...     tea.folder.state().pinned, tea.unpin(), tea.refit().model
        (True, '000000', '000001')
        """
        state = self.folder.unpin()
        self.folder.note("unpinned", model=state.model)
        self.refresh()
        return state.model


def _with_added(model: Model, now: Snapshot, max_leaf: int) -> Model:
    """A model with the arms that the current one has beyond it, each beside old arms of the leaf that it has there."""
    first, grown = model.n_arms, now.model
    if grown.n_arms == first:
        return model
    beside = []
    for leaf in grown.tree.leaf_of[first:].tolist():
        others = grown.tree.arms_below(leaf)
        beside.append(others[others < first][:BESIDE].tolist())
    vectors = None if grown.item_vectors is None else grown.item_vectors[first:]
    return grow(model, grown.n_arms - first, max_leaf, vectors, beside, now.arms.is_removed)
