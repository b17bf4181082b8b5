"""What a bandit answers, in the user's own ids: decisions, refits, and errors that say what was wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from treetop.bandit.catalogue import ArmId, Catalogue
from treetop.errors import ArmNotShown, RewardConflict, UnknownEvent
from treetop.log.records import Event, Outcome, Reward, Status
from treetop.records import Decision


@dataclass(frozen=True)
class Slot:
    """One arm shown: its exact propensity given the slots before it, its score, whether it was drawn, and the node it
    was drawn through (None for an arm chosen by itself)."""

    arm: ArmId
    propensity: float
    score: float
    explored: bool
    via: int | None


@dataclass(frozen=True)
class Shown:
    """A decision in the user's own ids."""

    event_id: str
    epoch: int
    slots: tuple[Slot, ...]

    @property
    def arms(self) -> list[ArmId]:
        return [slot.arm for slot in self.slots]


@dataclass(frozen=True)
class Refit:
    """What a refit did: the new model's name, what it learned from, and how long that took."""

    model: str
    rounds: int
    rewards: int
    seconds: float
    warnings: tuple[str, ...] = ()


def slots(event: Event, catalogue: Catalogue) -> Iterable[tuple[ArmId, float, float, bool, int | None]]:
    """(arm, propensity, score, explored, via) of every slot, in the user's ids.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> X = np.eye(4, dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X, X, max_leaf=2) as bandit:
    ...     shown = bandit.decide(X[0], event_id="visit-1", k=2)
    ...     [arm for arm, *_ in slots(bandit.event("visit-1").event, bandit.live.catalogue)] == shown.arms
    True
    """
    ids = catalogue.ids
    columns = (event.arms, event.propensities, event.scores, event.explored, event.nodes)
    for arm, propensity, score, explored, node in zip(*(column.tolist() for column in columns), strict=True):
        yield ids[arm], propensity, score, explored, (None if node < 0 else node)


def same(event: Event, decision: Decision) -> bool:
    """Whether a decision computed anew is the logged one, to the last bit.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> X = np.eye(4, dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X, X, max_leaf=2) as bandit:
    ...     _ = bandit.decide(X[0], event_id="visit-1")
    ...     same(*bandit.replay("visit-1"))
    True
    """
    fields = ("arms", "nodes", "propensities", "scores", "explored")
    return all(np.array_equal(getattr(event, name), getattr(decision, name)) for name in fields)


def raise_for(event_id: str, rewards: list[Reward], outcomes: list[Outcome], catalogue: Catalogue) -> None:
    """An error for rewards that were not stored; nothing if all of them are in the log now.

    >>> given, shop = [Reward("visit-1", 0, 1.0, 0.0)], Catalogue.of(["mint", "rose"])
    >>> raise_for("visit-1", given, [Outcome(Status.STORED)], shop)
    >>> raise_for("visit-1", given, [Outcome(Status.NOT_SHOWN)], shop)
    Traceback (most recent call last):
    treetop.errors.ArmNotShown: event 'visit-1' did not show arm 'mint'
    """
    named = [(str(catalogue.ids[r.arm]), r, o) for r, o in zip(rewards, outcomes, strict=True)]
    if any(o.status is Status.UNKNOWN for _, _, o in named):
        raise UnknownEvent(f"there is no event {event_id!r} in the log")
    if wrong := next((arm for arm, _, o in named if o.status is Status.NOT_SHOWN), None):
        raise ArmNotShown(f"event {event_id!r} did not show arm {wrong!r}")
    if stored := {arm: o.stored for arm, _, o in named if o.status is Status.CONFLICT and o.stored is not None}:
        arm, reward, _ = next(entry for entry in named if entry[0] in stored)
        raise RewardConflict(
            f"arm {arm!r} of event {event_id!r} has the reward {stored[arm]:g}, not {reward.value:g}", stored
        )
