"""What changes the model of an open bandit: refits, rollbacks, pins. Decisions go on with the old one meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder, model_name
from treetop.bandit.growth import grow, grown_to
from treetop.bandit.ownership import claim_log
from treetop.bandit.promotion import logged_feedback, next_fit, validate
from treetop.bandit.results import RefitResult
from treetop.bandit.sealing import seal_before_refit
from treetop.bandit.snapshot import Snapshot
from treetop.bandit.state import ScheduleStart
from treetop.errors import ModelSuperseded
from treetop.log.base import Log
from treetop.model.model import Model

REFIT_LOCK_TIMEOUT = 1.0  # seconds that a refit waits for another one, which may only be looking whether it is locked
PUBLISH_TIMEOUT = 300.0  # seconds that a refit waits with its model for arms that are just being added
BESIDE = 16  # arms of its leaf that an arm added meanwhile is put beside


class ModelChanges:
    """The part of `Bandit` that changes its model."""

    if TYPE_CHECKING:  # what `Bandit` has
        folder: BanditFolder
        config: Config
        log: Log
        snapshot: Snapshot
        refresh: Callable[[], bool]

    def refit(self, counted_from: float | None = None) -> RefitResult:
        """Fits a new model on all feedback in the log and makes it current. Decisions go on with the old one meanwhile.

        Arms that are added or removed while it runs are in the new model too. `counted_from` is for a refit that is due
        by the schedule: the time that this counted from, so that the refit does not undo a rollback that came since.
        Raises FolderInUse if another refit runs, NothingToLearn, InvalidModel, ModelPinned, or ModelSuperseded if a
        rollback came in between; then nothing has changed.
        """
        with self.folder.refit_lock(REFIT_LOCK_TIMEOUT):
            self.refresh()
            claim_log(self.folder, self.log)
            start, state = time.perf_counter(), self.folder.state()
            state.check_not_pinned()
            if counted_from is not None and state.schedule.time != counted_from:
                raise ModelSuperseded(f"model {state.model} became current since the refit was due")
            arms, config = self.snapshot.arms, self.config
            base = grown_to(self.snapshot.model, len(arms), config.tree.max_leaf)
            seal_before_refit(self.folder, self.log, config.segments, base.tree)
            counts = self.log.counts()
            mark = self.log.seal(f"refit {model_name(state.next_epoch)} {time.time():.6f}")
            feedback = logged_feedback(self.log, mark, base, arms, config, self.folder)
            samples = self.folder.label_samples(base, arms.is_removed) if config.learner.uses_label_samples else None
            model, caught = next_fit(base, feedback, config.learner.make_learner(samples), state.next_epoch)
            validate(model, base, feedback, config.policy.make_policy())
            with self.folder.model_lock(PUBLISH_TIMEOUT):
                now = self.folder.state()
                now.check_not_pinned()
                if (now.fitted, now.schedule) != (state.fitted, state.schedule):
                    raise ModelSuperseded(f"model {now.model} became current while one was made from {state.model}")
                if now.model != state.model:
                    self.refresh()
                    model = replace(_with_added(model, self.snapshot.model, config.tree.max_leaf), epoch=now.next_epoch)
                self.folder.publish(model, now, config.refit.keep, ScheduleStart.of(counts, mark.time))
            rewards, seconds = int(feedback.observed.sum()), time.perf_counter() - start
            result = RefitResult(model_name(model.epoch), len(feedback), rewards, seconds, caught)
            self.folder.note("refit", base=state.model, **asdict(result))
        self.refresh()
        return result

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


def _with_added(model: Model, grown: Model, max_leaf: int) -> Model:
    """A model with the arms that another has beyond it, each beside old arms of the leaf that it has there."""
    first = model.n_arms
    if grown.n_arms == first:
        return model
    beside = []
    for leaf in grown.tree.leaf_of[first:].tolist():
        others = grown.tree.arms_below(leaf)
        beside.append(others[others < first][:BESIDE].tolist())
    vectors = None if grown.item_vectors is None else grown.item_vectors[first:]  # which are kept nowhere else
    return grow(model, grown.n_arms - first, max_leaf, vectors, beside)
