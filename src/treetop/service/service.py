"""The bandit of one worker: what all its requests share, and the watch over new models, slow bodies and refits."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from treetop import _core
from treetop.arrays import Ints
from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Limits
from treetop.bandit.snapshot import Live
from treetop.errors import EventConflict
from treetop.log.records import Counts, Event, Outcome, Reward
from treetop.service import logs
from treetop.service.metrics import Metrics
from treetop.service.refit_scheduler import Refits
from treetop.service.tokens import Tokens
from treetop.service.write_batcher import Together

LOOK = 0.2  # seconds between two looks at the folder
RETRY = 5.0  # seconds between two tries to load a model that cannot be read


class Service:
    """Made when a worker starts, closed when it ends."""

    def __init__(
        self, bandit: Bandit, tokens: Tokens, log: str | None = None, ahead: _core.Ahead | None = None
    ) -> None:
        self.bandit, self.tokens, self.ahead = bandit, tokens, ahead
        self.limits: Limits = bandit.config.limits
        self.refits = Refits(bandit, log)
        self.metrics = Metrics(self._looked_up)
        self.in_flight = 0
        self.waiting: dict[asyncio.Task[Any], float] = {}  # tasks that read a body, and until when they may
        self.started = time.time()
        self._appends: Together[Event, Event | EventConflict] = Together(self._submit_append)
        self._rewards: Together[Reward, Outcome] = Together(lambda rewards, _: bandit.log.submit_reward(rewards))
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._watch()), asyncio.create_task(self.refits.run())]
        live = self.bandit.live
        logs.say("ready", model=live.name, epoch=live.model.epoch, arms=live.model.n_arms)
        if live.trouble:
            logs.say("an older model serves", 40, model=live.name, why=live.trouble)

    async def stop(self) -> None:
        """What was accepted is answered by now; lets go of the rest."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.refits.stop()
        await asyncio.to_thread(self.bandit.close)
        logs.say("stopped")

    async def append(self, events: list[Event], sets: Mapping[str, Ints]) -> list[Event | EventConflict]:
        """Commits."""
        return await self._appends.add(events, sets)

    async def append_coming(
        self, make: Callable[[], list[Event]], sets: Mapping[str, Ints]
    ) -> list[Event | EventConflict]:
        """Commits what `make` gives when the other requests of this turn of the event loop are understood."""
        return await self._appends.add_coming(make, sets)

    def _submit_append(self, events: list[Event], sets: Mapping[str, Ints]) -> Future[list[Event | EventConflict]]:
        """The events are our own: one that the log does not take is our error, not that of who asked."""
        try:
            return self.bandit.log.submit_append(events, sets)
        except ValueError as error:
            raise RuntimeError("the log refused an event") from error

    async def reward(self, rewards: list[Reward]) -> list[Outcome]:
        """Commits. All rewards of an event in one call or none, so requests about one event are not put together."""
        return await self._rewards.add(rewards, apart={reward.event_id for reward in rewards})

    async def refresh(self) -> bool:
        """Takes up the current model; loading it happens beside the requests."""
        before = self.bandit.live
        changed = await asyncio.to_thread(self.bandit.refresh)
        live = self.bandit.live
        if changed:
            logs.say("swapped", model=live.name, epoch=live.model.epoch, arms=live.model.n_arms, before=before.name)
        if live.trouble and live.trouble != before.trouble:
            logs.say("an older model serves", 40, model=live.name, why=live.trouble)
        return changed

    async def newer(self, than: Live) -> bool:
        """Whether another model or catalogue serves by now, taken up here or by another task meanwhile."""
        await self.refresh()
        return self.bandit.live is not than

    async def _watch(self) -> None:
        """Every worker takes up new models by itself. A look that fails changes nothing, and the next one comes."""
        failed = ""
        while True:
            pause = LOOK
            try:
                if self.bandit.stale():
                    await self.refresh()
                pause, failed = (RETRY if self.bandit.live.trouble else LOOK), ""
            except Exception as error:
                pause = RETRY
                if str(error) != failed:
                    logs.say_error("the current model cannot be taken up; the old one serves on")
                failed = str(error)
            self._end_slow_bodies()
            await asyncio.sleep(pause)

    def _end_slow_bodies(self) -> None:
        now = time.monotonic()
        for task, until in list(self.waiting.items()):
            if 0.0 < until < now:
                self.waiting[task] = 0.0  # tells the task why it is cancelled
                task.cancel()

    def counts(self) -> Counts:
        return self.bandit.log.counts()

    def _looked_up(self) -> Iterable[tuple[str, str, float]]:
        live, state = self.bandit.live, self.refits.state()
        yield "treetop_model_epoch", "Epoch of the model that serves.", live.model.epoch
        yield "treetop_model_rounds", "Rounds that the model that serves has learned from.", live.model.n_seen
        yield (
            "treetop_model_trouble",
            "1 if an older model serves because the current one cannot be read.",
            bool(live.trouble),
        )
        yield "treetop_arms", "Arms that can be shown.", live.model.n_arms - len(live.catalogue.removed)
        yield "treetop_requests_in_flight", "Requests being answered by this worker.", self.in_flight
        yield "treetop_refits_total", "Refits that succeeded.", state.done
        yield "treetop_refit_failures_total", "Refits that failed.", state.failed
        yield "treetop_refit_failures_in_a_row", "Refits that failed since the last success.", state.in_a_row
        yield "treetop_refit_running", "1 while a refit runs.", state.running
        yield "treetop_refit_last_seconds", "How long the last refit took.", state.seconds
        with contextlib.suppress(OSError):  # the log may be away; the rest is still worth having
            counts = self.counts()
            yield "treetop_decisions_total", "Decisions in the log, ever.", counts.decisions
            yield "treetop_rewards_total", "Rewards in the log, ever.", counts.rewards
            yield "treetop_observed_total", "Decisions with an observed reward, ever.", counts.observed
            yield "treetop_late_rewards_total", "Rewards that came after a refit had read their decision.", counts.late
            yield "treetop_pending_slots", "Slots without a reward.", counts.pending
