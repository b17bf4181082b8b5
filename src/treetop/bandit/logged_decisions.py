"""Decisions that are in the log, whichever process made them: looked up, rewarded, and computed again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from treetop.arrays import check_float
from treetop.bandit.arm_filter import FindSet, LoggedSets
from treetop.bandit.arm_index import ArmId
from treetop.bandit.attributes import AttributeTable
from treetop.bandit.config import Config
from treetop.bandit.folder import BanditFolder
from treetop.bandit.results import ServedDecision, check_stored
from treetop.bandit.snapshot import Snapshot, logged_variant, replayed_decision
from treetop.bandit.state import FolderState
from treetop.errors import FolderInUse, UnknownEvent
from treetop.log.base import Log
from treetop.log.records import Event, Reward, StoredEvent
from treetop.model.model import Model
from treetop.policy.draws import event_name
from treetop.records import Decision

TABLES_KEPT = 8  # attributes of past moments, for logged decisions


class LoggedDecisions:
    """The part of `Bandit` that knows past decisions."""

    if TYPE_CHECKING:  # what `Bandit` has
        folder: BanditFolder
        config: Config
        log: Log
        snapshot: Snapshot
        refresh: Callable[..., bool]
        _state: FolderState
        _tables: dict[int, AttributeTable]

    def knows(self, event: Event) -> bool:
        """Whether the catalogue that is loaded here has all that a logged decision was made with: the arms of its
        model, and what was removed by then.

        A folder that has given out the number of a model has its arms, whether the model is still kept or not.
        """
        state, arms = self._state, self.snapshot.arms  # in this order: the snapshot is replaced first
        if event.model.isdecimal() and int(event.model) >= state.next_epoch:
            return False
        return event.removals <= len(arms.changes) and int(event.arms.max(initial=-1)) < len(arms)

    def catch_up(self, event: Event) -> None:
        """Loads what another process made a decision with, here or at another replica, if that is not loaded yet.

        >>> import tempfile
        >>> from treetop.bandit.bandit import Bandit
        >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as here:
        ...     with Bandit.open(f"{place}/tea") as there:
        ...         there.add_arms(["jam"])
        ...         _ = there.decide({}, "visit-1", eligible=["jam"])
        ...     event = here.log.event("visit-1").event
        ...     before = here.knows(event)
        ...     here.catch_up(event)
        ...     before, here.knows(event), here.served(event).arms
        (False, True, ['jam'])
        """
        if not self.knows(event):
            with suppress(OSError, FolderInUse):  # what is here can be loaded without the other replicas
                self.folder.follow()
            self.refresh()

    def event(self, event_id: str | int) -> StoredEvent:
        """An event as it is in the log, with its rewards so far. Raises UnknownEvent."""
        found = self.log.event(event_name(event_id))
        if found is None:
            raise UnknownEvent(f"there is no event {event_id!r} in the log")
        self.catch_up(found.event)
        return found

    def served(self, decision: Decision, unknown_features: tuple[str, ...] = ()) -> ServedDecision:
        """A decision, such as one in the log, in the user's ids; with what its request said that nobody knows."""
        found = logged_variant(decision.policy) if isinstance(decision, Event) else None
        variant = None if found is None else found[1]
        return ServedDecision.of(decision, self.snapshot.arms, variant, unknown_features)

    def reward(self, event_id: str | int, rewards: Mapping[ArmId, float]) -> None:
        """Stores rewards for arms of an event: all of them or none. Sending the same again changes nothing.

        They lie in [0, 1], or in [low, high] of the settings. Raises UnknownEvent, UnknownArm, ArmNotShown, or
        RewardConflict if another reward is stored and the settings do not say `corrections = true`; then it replaces
        that one, and the log keeps both. A value that was told before changes nothing.
        """
        name = event_name(event_id)
        records = self.reward_records(name, rewards)
        check_stored(name, records, self.log.reward(records), self.snapshot.arms)

    def reward_records(self, event_id: str, rewards: Mapping[ArmId, float]) -> list[Reward]:
        """Rewards as the log takes them, checked, with the time of now.

        >>> import tempfile
        >>> import numpy as np
        >>> from treetop.bandit.bandit import Bandit
        >>> from treetop.bandit.catalogue import Catalogue
        >>> arms = Catalogue(["mint", "rose"], vectors=np.eye(2))
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", arms) as tea:
        ...     [(record.arm, record.value) for record in tea.reward_records("visit-1", {"rose": 1})]
        [(1, 1.0)]
        """
        if not rewards:
            raise ValueError("there are no rewards in it")
        now = time.time()
        arms = self.snapshot.arms.find(rewards).tolist()
        limits = self.config.rewards.limits
        values = [check_float(f"reward of arm {arm!r}", value, *limits) for arm, value in rewards.items()]
        if len(set(arms)) < len(arms):
            twice = next(arm for i, arm in enumerate(arms) if arm in arms[:i])
            raise ValueError(f"arm {self.snapshot.arms.ids[twice]!r} is in it twice")
        corrects = self.config.rewards.corrections
        return [Reward(event_id, arm, value, now, corrects) for arm, value in zip(arms, values, strict=True)]

    def replay(self, event_id: str | int) -> tuple[Event, Decision]:
        """A logged decision, and the same computed again from its model; `same_decision` compares them.

        Raises ValueError if the model is not kept any more.
        """
        event = self.event(event_id).event
        if not event.model:
            raise ValueError(f"event {event.event_id!r} was imported: another system decided it")
        if event.model not in self.folder.models():
            kept = ", ".join(self.folder.models())
            raise ValueError(f"event {event.event_id!r} was decided by model {event.model}; kept are {kept}")
        model = Model.load(self.folder.model_path(event.model))
        return event, replayed_decision(event, model, self.snapshot.arms, self.logged_sets())

    def logged_sets(self) -> FindSet:
        """The arms of logged filters by name: of lists, and of conditions by the attributes of their time.

        >>> import tempfile
        >>> from treetop.bandit.bandit import Bandit
        >>> from treetop.bandit.catalogue import Catalogue
        >>> arms = Catalogue(["mint", "rose"], attributes={"price": [4.5, 6]})
        >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", arms) as tea:
        ...     _ = tea.decide({}, "visit-1", where={"price": {">": 5}})
        ...     tea.set_attributes(["rose"], {"price": [1]})
        ...     tea.logged_sets()(tea.event("visit-1").event.eligible)
        array([1], dtype=int32)
        """
        return LoggedSets(self.log.eligible_set, self._attributes_at, len(self.snapshot.arms))

    def _attributes_at(self, size: int) -> AttributeTable:
        tables = self._tables
        if size not in tables:
            before = tables.get(max((known for known in tables if known < size), default=-1))
            found = self.folder.attributes(size, before)
            self._tables = {**dict(sorted(tables.items())[-TABLES_KEPT:]), size: found}
            return found
        return tables[size]
