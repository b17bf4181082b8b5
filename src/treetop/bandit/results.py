"""What a bandit returns, in the user's own ids: decisions, refits, and errors that say what was wrong.

`ServedDecision` and `ServedSlot` are also what the service sends and what `Client` returns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import numpy as np

from treetop.bandit.arm_index import ArmId, ArmIndex
from treetop.display import html_table
from treetop.errors import ArmNotShown, RewardConflict, UnknownEvent
from treetop.log.records import Outcome, Reward, Status
from treetop.records import Decision


@dataclass(frozen=True)
class ServedSlot:
    """One arm of a decision.

    `propensity` is exact, given the slots before it; `explored` says whether the strategy drew it; `via` is the node
    that it was drawn through, None (null) for an arm chosen by itself.

    >>> ServedSlot("mint", propensity=0.5, score=0.2, explored=True, via=None).arm
    'mint'
    """

    arm: ArmId
    propensity: float
    score: float
    explored: bool
    via: int | None


@dataclass(frozen=True)
class ServedDecision:
    """A decision in the user's own ids; `epoch` is that of the model that decided, `variant` that of an experiment.

    `unknown_features` are those of the request that the vocabulary does not know, which had no say: a misspelled name,
    perhaps. The log does not keep them, and decisions that differ in nothing else are equal.

    >>> ServedDecision("visit-1", 0, (ServedSlot("mint", 1.0, 0.2, False, None),)).arms
    ['mint']
    """

    event_id: str
    epoch: int
    slots: tuple[ServedSlot, ...]
    variant: str | None = None
    unknown_features: tuple[str, ...] = field(default=(), compare=False)

    @property
    def arms(self) -> list[ArmId]:
        """The arms to show, in the order of the slots."""
        return [slot.arm for slot in self.slots]

    def _repr_html_(self) -> str:
        columns = {f.name: [getattr(slot, f.name) for slot in self.slots] for f in fields(ServedSlot)}
        return html_table(f"decision {self.event_id} (epoch {self.epoch})", columns)

    @classmethod
    def of(
        cls, decision: Decision, arms: ArmIndex, variant: str | None = None, unknown_features: tuple[str, ...] = ()
    ) -> ServedDecision:
        """A decision in dense indices, by the ids of its arms.

        >>> indexed = Decision("visit-1", 0, *(np.array([i]) for i in (1, 0.5, 0.2, True, -1)))
        >>> ServedDecision.of(indexed, ArmIndex.of(["mint", "rose"])).arms
        ['rose']
        """
        ids, d = arms.ids, decision
        columns = (d.arms.tolist(), d.propensities.tolist(), d.scores.tolist(), d.explored.tolist(), d.nodes.tolist())
        slots = [
            ServedSlot(ids[arm], propensity, score, explored, None if node < 0 else node)
            for arm, propensity, score, explored, node in zip(*columns, strict=True)
        ]
        return cls(d.event_id, d.model_epoch, tuple(slots), variant, unknown_features)


@dataclass(frozen=True)
class RefitResult:
    """What a refit did: the new model's name, what it was fitted on, and the seconds that took.

    >>> RefitResult("000001", rounds=100, rewards=250, seconds=0.5).model
    '000001'
    """

    model: str
    rounds: int
    rewards: int
    seconds: float
    warnings: tuple[str, ...] = ()
    aside: str = ""  # why the gate did not let it serve: it is kept beside the model that serves on


def same_decision(one: Decision, other: Decision) -> bool:
    """Whether two decisions have the same slots, to the last bit; checks a replay against the log.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> X = np.eye(4, dtype=np.float32)
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=X, Y=X) as bandit:
    ...     _ = bandit.decide(X[0], event_id="visit-1")
    ...     same_decision(*bandit.replay("visit-1"))
    True
    """
    fields = ("arms", "nodes", "propensities", "scores", "explored", "components")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in fields)


def check_stored(event_id: str, rewards: Iterable[Reward], outcomes: Iterable[Outcome], arms: ArmIndex) -> None:
    """Raises for rewards of one event that the log did not store; returns if all of them are in it.

    >>> given, arms = [Reward("visit-1", 0, 1.0, 0.0)], ArmIndex.of(["mint", "rose"])
    >>> check_stored("visit-1", given, [Outcome(Status.STORED)], arms)
    >>> check_stored("visit-1", given, [Outcome(Status.NOT_SHOWN)], arms)
    Traceback (most recent call last):
    treetop.errors.ArmNotShown: event 'visit-1' did not show arm 'mint'
    """
    named = [(str(arms.ids[r.arm]), r, o) for r, o in zip(rewards, outcomes, strict=True)]
    if any(o.status is Status.UNKNOWN for _, _, o in named):
        raise UnknownEvent(f"there is no event {event_id!r} in the log")
    if wrong := next((arm for arm, _, o in named if o.status is Status.NOT_SHOWN), None):
        raise ArmNotShown(f"event {event_id!r} did not show arm {wrong!r}")
    if stored := {arm: o.stored for arm, _, o in named if o.status is Status.CONFLICT and o.stored is not None}:
        arm, reward, _ = next(entry for entry in named if entry[0] in stored)
        raise RewardConflict(
            f"arm {arm!r} of event {event_id!r} has the reward {stored[arm]:g}, not {reward.value:g}", stored
        )
