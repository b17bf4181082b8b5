"""The service as Azure Personalizer answers: rank, reward, activate, and the same for several slots.

An action is an arm, an event a decision of one slot whose eligible arms are the actions sent. Each slot of a multi-slot
event is a decision of its own among the actions that are left, with the slot's features in its context, so that every
chance is exact whatever a slot excludes. Left are those that leave an action for each later slot. The first reward of a
slot counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from starlette.types import Scope

from treetop.arrays import Int64s, Ints, Rows
from treetop.bandit.arm_filter import ArmFilter, logged_filter
from treetop.bandit.snapshot import Snapshot, logged_policy, logged_row
from treetop.bridges.personalizer import attributes_of, context_of, hash_columns
from treetop.errors import EventConflict, NoEligibleArm, Problem, UnknownEvent
from treetop.log.records import Event, Reward, Status
from treetop.policy.draws import new_event_id
from treetop.policy.probability import slot_chances
from treetop.service import personalizer_schema as shapes
from treetop.service import schema
from treetop.service.decide import (
    INLINE_ARMS,
    PreparedRequest,
    check_arm_count,
    context_row,
    event_text,
    load_arms_of,
    prepare,
)
from treetop.service.deferred import Deferred
from treetop.service.http import Raw
from treetop.service.service import Service
from treetop.service.slot_actions import can_fill, open_actions

CREATED, NO_CONTENT = 201, 204
ATTEMPTS = 5  # to add arms that other workers add too
CELLS = 1 << 20  # of contexts, one for each action, in memory at a time
PAGE = "page"  # the key that joins the slots of a multi-slot event
AnyRank: TypeAlias = shapes.RankRequest | shapes.MultiSlotRankRequest


@dataclass(frozen=True)
class Slot:
    """One decision to make: its event id, context, and the actions that it may show."""

    event_id: str
    context: dict[str, float]
    actions: list[str]
    keys: dict[str, str | int] | None = None


@dataclass(frozen=True, eq=False)
class Made:
    """A decision, the request that it answers, and whether it was made for an earlier one, perhaps by another model."""

    event: Event
    prepared: PreparedRequest
    is_earlier: bool = False


class Personalizer:
    """The handlers of one worker."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.columns = hash_columns(service.bandit.vocabulary)
        self.deferred = Deferred(service.bandit.log)
        self._adding = asyncio.Lock()

    async def personalizer_rank(self, service: Service, request: shapes.RankRequest) -> Raw:
        excluded = set(request.excluded_actions or ())
        ids = self._action_ids(request.actions)
        name = request.event_id or new_event_id()
        left = [each for each in ids if each not in excluded]
        slot = Slot(name, self._context(request.context_features), left)
        made = (await self._decided(request, name, [slot]))[0]
        shown = self._ids(made.event)[0]
        if len(left) > INLINE_ARMS or made.is_earlier:
            chances = await service.explanations.run(lambda: self._chances(made, left))
        else:
            chances = self._chances(made, left)
        ranked = sorted(zip(left, chances, strict=True), key=lambda pair: -pair[1])
        order = iter([shapes.RankedAction(*pair) for pair in ranked])
        ranking = [shapes.RankedAction(each, 0.0) if each in excluded else next(order) for each in ids]
        return Raw(shapes.RankAnswer(ranking, name, shown), CREATED)

    async def personalizer_reward(self, service: Service, request: shapes.RewardRequest, event_id: str) -> Raw:
        await self._reward(event_id, {event_id: request.value})
        return Raw(b"", NO_CONTENT)

    async def personalizer_activate(self, service: Service, scope: Scope) -> Raw:
        await self._activate(scope["path_params"]["event_id"])
        return Raw(b"", NO_CONTENT)

    async def multislot_rank(self, service: Service, request: shapes.MultiSlotRankRequest) -> Raw:
        slots = [slot.id for slot in request.slots]
        if len(set(slots)) < len(slots):
            raise ValueError(f"two slots have the id {next(each for each in slots if slots.count(each) > 1)!r}")
        if len(slots) > service.limits.k:
            raise Problem(422, "too_many_slots", f"{len(slots)} slots; at most {service.limits.k} are accepted")
        ids = self._action_ids(request.actions)
        if len(ids) < len(slots):
            raise ValueError(f"{len(ids)} actions for {len(slots)} slots; there must be one for each")
        name = request.event_id or new_event_id()
        asked = []
        for slot in request.slots:
            excluded = set(slot.excluded_actions or ())
            sent = [*(request.context_features or ()), *({"slot": part} for part in slot.features or ())]
            left = [each for each in ids if each not in excluded]
            asked.append(Slot(slot_name(name, slot.id), self._context(sent), left, {PAGE: name}))
        made = await self._decided(request, name, asked)
        shown = [self._ids(each.event)[0] for each in made]
        answers = [shapes.SlotAnswer(*pair) for pair in zip(slots, shown, strict=True)]
        return Raw(shapes.MultiSlotRankAnswer(answers, name), CREATED)

    async def multislot_reward(self, service: Service, request: shapes.MultiSlotRewardRequest, event_id: str) -> Raw:
        await self._reward(event_id, {slot_name(event_id, each.slot_id): each.value for each in request.reward})
        return Raw(b"", NO_CONTENT)

    async def multislot_activate(self, service: Service, scope: Scope) -> Raw:
        await self._activate(scope["path_params"]["event_id"])
        return Raw(b"", NO_CONTENT)

    def _context(self, features: Sequence[dict[str, object]] | None) -> dict[str, float]:
        found, unknown = context_of(features or (), self.service.bandit.vocabulary, self.columns)
        if unknown:
            self.service.metrics.unknown.inc(unknown)
        return found

    def _ids(self, event: Event) -> list[str]:
        return [str(arm) for arm in self.service.bandit.served(event).arms]

    def _action_ids(self, actions: Sequence[shapes.RankableAction]) -> list[str]:
        check_arm_count(self.service, actions)
        ids = [action.id for action in actions]
        if len(set(ids)) < len(ids):
            raise ValueError(f"two actions have the id {next(each for each in ids if ids.count(each) > 1)!r}")
        return ids

    async def _join(
        self, actions: Sequence[shapes.RankableAction], slots: Sequence[Slot], known: Mapping[str, Event]
    ) -> None:
        """Makes arms of the actions that are none yet, unless their request cannot be decided.

        `known` are decisions of the same event: they have no such actions, unless another worker has added them.
        """
        if not self._unknown(actions):
            return
        if known:
            await self.service.refresh()
            if self._unknown(actions):
                raise EventConflict(next(iter(known.values())))
        for slot in slots:
            event_text(slot.event_id)
            self.service.bandit.snapshot.bounded(context_row(self.service, slot.context))
        async with self._adding:
            await asyncio.to_thread(self._add, actions)

    def _unknown(self, actions: Sequence[shapes.RankableAction]) -> list[shapes.RankableAction]:
        arms = self.service.bandit.snapshot.arms
        return [action for action in actions if arms.position(action.id) is None]

    def _add(self, actions: Sequence[shapes.RankableAction]) -> None:
        bandit = self.service.bandit
        for attempt in range(ATTEMPTS):
            bandit.refresh()
            new = self._unknown(actions)
            if not new:
                return
            attributes, left_out = attributes_of([action.features or () for action in new], bandit.snapshot.attributes)
            try:
                bandit.add_arms([action.id for action in new], attributes=attributes, new=True)
                self.service.metrics.unknown.inc(left_out)
                return
            except ValueError:  # another worker was faster, with arms or with an attribute
                if attempt + 1 == ATTEMPTS:
                    raise

    async def _decided(self, request: AnyRank, name: str, slots: Sequence[Slot]) -> list[Made]:
        """The decisions of an event: those that are known under its name, or new ones, durable."""
        choices = [slot.actions for slot in slots]
        if not can_fill(choices):
            raise NoEligibleArm(no_action(choices, len(request.actions)))
        known = await asyncio.to_thread(self._known, name, slots) if request.event_id else {}
        await self._join(request.actions, slots, known)
        taken: list[str] = []
        made: list[Made] = []
        sets: dict[str, Ints] = {}
        for place, slot in enumerate(slots):
            left = open_actions(slot.actions, choices[place + 1 :], taken)
            asked = schema.DecideRequest(dict(slot.context), slot.event_id, 1, eligible=list(left), keys=slot.keys)
            prepared = prepare(self.service, asked)
            if known:
                made.append(Made(known[slot.event_id], prepared, True))
                if made[-1].event.request != prepared.digest:
                    raise EventConflict(made[-1].event)
                await load_arms_of(self.service, made[-1].event)
            else:
                made.append(Made(prepared.begin(self.service)(), prepared))
                sets.update(prepared.arm_filter.sets())
            taken += self._ids(made[-1].event)
        if known:
            if not request.defer_activation:
                await self._activate(name)  # it may have waited until now
            return made
        events = [each.event for each in made]
        if request.defer_activation:
            if await asyncio.to_thread(self.deferred.keep, name, events, sets):
                return made
            return await self._decided(request, name, slots)  # another request was faster
        return [
            Made(stored, each.prepared, stored is not each.event)
            for each, stored in zip(made, await self._appended(events, sets), strict=True)
        ]

    async def _appended(self, events: list[Event], sets: dict[str, Ints]) -> list[Event]:
        stored = []
        for found in await self.service.append(events, sets):
            if isinstance(found, EventConflict):
                raise found
            await load_arms_of(self.service, found)
            stored.append(found)
        return stored

    def _known(self, name: str, slots: Sequence[Slot]) -> dict[str, Event]:
        """The decisions that an event has already, in the log or waiting for its activation, by event id."""
        waiting = self.deferred.find(name)
        found = {} if waiting is None else {event.event_id: event for event in waiting.events}
        log = self.service.bandit.log
        for slot in slots:
            stored = log.event(slot.event_id)
            if stored is not None:
                found[slot.event_id] = stored.event
        if found.keys() == {slot.event_id for slot in slots}:
            return found
        if found or (slots[0].keys is not None and log.has_key((PAGE, name))):
            raise Problem(409, "event_conflict", f"event {name!r} was decided for other slots")
        return {}

    def _chances(self, made: Made, ids: Sequence[str]) -> list[float]:
        """The chance of each action to be the one that is shown. Of a model that is not kept: that of the one shown."""
        event = made.event
        if not made.is_earlier:
            return first_chances(event, made.prepared.snapshot, made.prepared.arm_filter, ids)
        try:
            snapshot = self.service.explanations.snapshot_of(event)
        except Problem:
            shown = self._ids(event)[0]
            rest = (1 - float(event.propensities[0])) / max(1, len(ids) - 1)
            return [float(event.propensities[0]) if each == shown else rest for each in ids]
        logged = self.service.bandit.logged_sets()
        sets = made.prepared.arm_filter.sets()  # those of a waiting event are not in the log
        arm_filter = logged_filter(
            event, snapshot.model.tree, snapshot.arms, lambda name: sets[name] if name in sets else logged(name)
        )
        return first_chances(event, snapshot, arm_filter, ids)

    async def _reward(self, name: str, values: dict[str, float]) -> None:
        low, high = self.service.bandit.config.rewards.limits
        for value in values.values():
            if not low <= value <= high:
                raise ValueError(f"the reward is {value:g}; rewards lie in [{low:g}, {high:g}]")
        if await asyncio.to_thread(self.deferred.reward, name, values):
            if await asyncio.to_thread(self._is_logged, name):  # its activation has begun, and was perhaps cut short
                await self._activate(name)
            return
        found = [await asyncio.to_thread(self.service.bandit.event, event_id) for event_id in values]
        for stored, value in zip(found, values.values(), strict=True):
            await self._store(stored.event, value)

    async def _store(self, event: Event, value: float) -> None:
        """Stores the reward of the arm that an event showed; another one that came before stays."""
        record = Reward(event.event_id, int(event.arms[0]), value, time.time())
        outcome = (await self.service.reward([record]))[0]
        if outcome.status is Status.UNKNOWN:
            raise UnknownEvent(f"there is no event {event.event_id!r} in the log")

    async def _activate(self, name: str) -> None:
        """Moves an event that waits into the log; one that is there already stays as it is."""
        waiting = await asyncio.to_thread(self.deferred.find, name)
        if waiting is None:
            if not await asyncio.to_thread(self._is_logged, name):
                raise UnknownEvent(f"there is no event {name!r} in the log")
            return
        while waiting is not None:
            for event in await self._appended(waiting.events, waiting.sets):
                if event.event_id in waiting.rewards:
                    await self._store(event, waiting.rewards[event.event_id])
            if await asyncio.to_thread(self.deferred.drop, name, waiting):
                return
            waiting = await asyncio.to_thread(self.deferred.find, name)  # rewards came meanwhile

    def _is_logged(self, name: str) -> bool:
        log = self.service.bandit.log
        return log.event(name) is not None or log.has_key((PAGE, name))


def no_action(choices: Sequence[Sequence[str]], actions: int) -> str:
    """Why some slot would stay empty.

    >>> no_action([["a"], ["a"]], actions=3)
    'the 2 slots exclude so many of the 3 actions that there is not one for each'
    """
    if not all(choices):
        return f"all {actions} actions are excluded"
    return f"the {len(choices)} slots exclude so many of the {actions} actions that there is not one for each"


def slot_name(event_id: str, slot_id: str) -> str:
    """The event id of one slot of a multi-slot event."""
    return f"{event_id}/{slot_id}"


def first_chances(event: Event, snapshot: Snapshot, arm_filter: ArmFilter, ids: Sequence[str]) -> list[float]:
    """The exact chance of each arm to fill the first slot of a decision."""
    row, policy = logged_row(event, snapshot.model), logged_policy(event.policy).make_policy()
    known = snapshot.arms.find(ids)
    inside = known < snapshot.model.n_arms
    arms: Ints = np.where(inside, known, 0).astype(np.int32)[:, None]
    chances, step = [], max(1, CELLS // max(1, len(row.index)))
    for some in (arms[at : at + step] for at in range(0, len(arms), step)):
        start: Int64s = np.arange(len(some) + 1, dtype=np.int64) * len(row.index)
        rows = Rows(start, np.tile(row.index, len(some)), np.tile(row.value, len(some)), row.columns)
        chances.append(slot_chances(policy, snapshot.model, rows, some, arm_filter.eligible).probability[:, 0])
    return [float(p) for p in np.where(inside, np.concatenate(chances), 0.0)]
