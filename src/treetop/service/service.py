"""The state that all requests of one worker share, and its background tasks: new models, slow bodies, refits."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from treetop import _core
from treetop.arrays import Ints
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import LimitConfig
from treetop.bandit.new_arms import NewArms
from treetop.bandit.retention import RetentionState
from treetop.bandit.snapshot import Snapshot
from treetop.errors import EventConflict, FolderInUse, LogError
from treetop.log.records import Counts, Event, Outcome, Reward
from treetop.service import logs
from treetop.service.experiment_reader import ExperimentReader
from treetop.service.explanations import Explanations
from treetop.service.metrics import Metrics
from treetop.service.readiness import Readiness
from treetop.service.refit_scheduler import RefitScheduler
from treetop.service.tokens import Guesses, Tokens
from treetop.service.write_batcher import WriteBatcher

POLL_INTERVAL = 0.2  # seconds between two looks at the folder
UNKNOWN_INTERVAL = 5.0  # seconds between two times that counts of unknown features are stored
RELOAD_INTERVAL = 5.0  # seconds between two attempts to load a model that cannot be read


class Service:
    """One worker's bandit, tokens, metrics and refit scheduler; `ahead` is the core's second thread, if it has one."""

    def __init__(
        self, bandit: Bandit, tokens: Tokens, log: str | None = None, ahead: _core.Ahead | None = None
    ) -> None:
        self.bandit, self.tokens, self.log_address, self.ahead = bandit, tokens, log, ahead
        self.limits: LimitConfig = bandit.config.limits
        self.refits = RefitScheduler(bandit, log)
        self.metrics = Metrics(self._current_values)
        self.guesses = Guesses()
        self.in_flight = 0
        self.body_bytes = 0  # of all requests whose body is being read or worked on
        self.waiting: dict[asyncio.Task[Any], float] = {}  # deadlines of the tasks that read a body
        self.started = time.time()
        self.readiness, self.explanations = Readiness(bandit), Explanations(bandit)
        self.new_arms, self.counting = NewArms(), threading.Lock()  # the lock is for who counts
        self._appends: WriteBatcher[Event, Event | EventConflict] = WriteBatcher(
            self._submit_append, self.readiness.noted
        )
        self._rewards: WriteBatcher[Reward, Outcome] = WriteBatcher(
            lambda rewards, _: bandit.log.submit_reward(rewards)
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.experiments = ExperimentReader(bandit)
        self._stored_unknown = 0.0

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._poll()), asyncio.create_task(self.refits.run())]
        snapshot = self.bandit.snapshot
        logs.log_event("ready", model=snapshot.name, epoch=snapshot.model.epoch, arms=snapshot.model.n_arms)
        if snapshot.trouble:
            self._log_trouble(snapshot)

    async def stop(self) -> None:
        """Ends the background tasks and closes the bandit. All accepted requests have been answered by now."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.refits.stop()
        await asyncio.to_thread(self.explanations.close)
        await asyncio.to_thread(self.bandit.close)
        logs.log_event("stopped")

    async def append(self, events: list[Event], sets: Mapping[str, Ints]) -> list[Event | EventConflict]:
        """Commits events; returns the log's answer to each."""
        return await self._appends.add(events, sets)

    async def append_deferred(
        self, make: Callable[[], list[Event]], sets: Mapping[str, Ints]
    ) -> list[Event | EventConflict]:
        """Commits the events that `make` returns at the end of this turn of the event loop."""
        return await self._appends.add_deferred(make, sets)

    def _submit_append(self, events: list[Event], sets: Mapping[str, Ints]) -> Future[list[Event | EventConflict]]:
        """The service made the events, so one that the log refuses is an internal error, not the client's."""
        try:
            return self.bandit.log.submit_append(events, sets)
        except ValueError as error:
            raise RuntimeError("the log refused an event") from error

    async def reward(self, rewards: list[Reward]) -> list[Outcome]:
        """Commits rewards. The log stores all rewards of an event in one call or none, so requests for the same event
        must not share a call."""
        return await self._rewards.add(rewards, keys={reward.event_id for reward in rewards})

    async def refresh(self) -> bool:
        """Loads the current model and arms in a thread; returns whether anything changed."""
        before = self.bandit.snapshot
        changed = await asyncio.to_thread(self._load_current)
        snapshot = self.bandit.snapshot
        if changed:
            logs.log_event(
                "swapped",
                model=snapshot.name,
                epoch=snapshot.model.epoch,
                arms=snapshot.model.n_arms,
                before=before.name,
            )
        if snapshot.trouble and snapshot.trouble != before.trouble:
            self._log_trouble(snapshot)
        return changed

    def _log_trouble(self, snapshot: Snapshot) -> None:
        if snapshot.name == self.bandit.folder.state().model:
            event = "the model serves without its layout file"
        else:
            event = "an older model serves"
        logs.log_event(event, logging.ERROR, model=snapshot.name, why=snapshot.trouble)

    def _load_current(self) -> bool:
        """`Bandit.refresh`, and lets go of models that only failed requests still refer to, by their tracebacks:
        collections are rare in a worker, and each model maps a dozen files."""
        with contextlib.suppress(OSError, FolderInUse):  # what is here can be loaded without the other replicas
            self.bandit.folder.follow()
        changed = self.bandit.refresh()
        if changed:
            gc.collect()
        return changed

    async def refreshed_since(self, before: Snapshot) -> bool:
        """Refreshes; returns whether the snapshot is another one now, loaded here or meanwhile by another task."""
        await self.refresh()
        return self.bandit.snapshot is not before

    async def _poll(self) -> None:
        """Loads new models as they become current. After a failure the old model serves on and it is tried again."""
        failed = ""
        while True:
            pause = POLL_INTERVAL
            try:
                if self.bandit.stale():
                    await self.refresh()
                pause, failed = (RELOAD_INTERVAL if self.bandit.snapshot.trouble else POLL_INTERVAL), ""
            except Exception as error:
                pause = RELOAD_INTERVAL
                if str(error) != failed:
                    logs.log_error("the current model cannot be loaded; the old one serves on")
                failed = str(error)
            self._end_slow_bodies()
            self.explanations.expire()
            await self._store_unknown()
            await self._count_trials()
            await asyncio.sleep(pause)

    async def _count_trials(self) -> None:
        """Decisions go by how often new arms were shown; without the log they go by what was counted before."""
        try:
            if self.bandit.snapshot.model.has_new_arms:
                await asyncio.to_thread(self.bandit.look_up_trials)
        except Exception:
            logs.log_error("trials of new arms cannot be counted; decisions go by what was counted before")

    async def _store_unknown(self) -> None:
        """Adds the counts of unknown features to those of all workers, now and then."""
        if len(self.bandit.unknown) and time.monotonic() - self._stored_unknown > UNKNOWN_INTERVAL:
            self._stored_unknown = time.monotonic()
            with contextlib.suppress(LogError):
                await asyncio.to_thread(self.bandit.unknown.store, self.bandit.log)

    def _end_slow_bodies(self) -> None:
        """Cancels the tasks whose body has not arrived in time; a deadline of 0 tells the task why."""
        now = time.monotonic()
        for task, until in list(self.waiting.items()):
            if 0.0 < until < now:
                self.waiting[task] = 0.0
                task.cancel()

    def counts(self) -> Counts:
        return self.bandit.log.counts()

    def _current_values(self) -> Iterable[tuple[str, str, float]]:
        snapshot, state = self.bandit.snapshot, self.refits.state()
        yield "treetop_model_epoch", "Epoch of the serving model.", snapshot.model.epoch
        yield "treetop_model_rounds", "Rounds that the serving model was fitted on.", snapshot.model.n_seen
        yield (
            "treetop_model_trouble",
            "1 if an older model serves because the current one cannot be read.",
            bool(snapshot.trouble),
        )
        with contextlib.suppress(OSError, ValueError):  # `current` cannot be read
            yield "treetop_model_pinned", "1 while the model is pinned.", self.bandit.folder.state().pinned
        yield "treetop_arms", "Arms that can be shown.", snapshot.model.n_arms - len(snapshot.arms.removed)
        yield "treetop_requests_in_flight", "Requests being answered by this worker.", self.in_flight
        yield "treetop_refits_total", "Refits that succeeded.", state.done
        yield "treetop_refit_failures_total", "Refits that failed.", state.failed
        yield "treetop_refits_aside_total", "Refits that the gate did not let serve.", state.asides
        yield "treetop_experiment_running", "1 while an experiment runs.", snapshot.experiment is not None
        yield "treetop_refit_failures_in_a_row", "Refits that failed since the last success.", state.in_a_row
        yield "treetop_refit_running", "1 while a refit runs.", state.running
        yield "treetop_refit_last_seconds", "How long the last refit took.", state.seconds
        with contextlib.suppress(OSError):  # without the log, the other values are still given
            counts = self.counts()
            yield "treetop_decisions_total", "Decisions in the log, ever.", counts.decisions
            yield "treetop_rewards_total", "Rewards in the log, ever.", counts.rewards
            yield "treetop_observed_total", "Decisions with an observed reward, ever.", counts.observed_ever
            yield "treetop_forgotten_total", "Decisions that retention deleted.", counts.forgotten
            yield (
                "treetop_late_rewards_total",
                "Rewards that arrived after a refit had read their decision.",
                counts.late,
            )
            yield "treetop_pending_slots", "Slots without a reward.", counts.pending
            refused = bool(RetentionState.read(self.bandit.log).refused)
            yield (
                "treetop_retention_refused",
                "1 while old decisions are not deleted; treetop forget says why.",
                refused,
            )
