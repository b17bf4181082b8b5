"""What a line of dsjson says: which actions there were, which were chosen with which chances, and what came of them.

In cb, `_label_Action` and `a` count from 1 and `_labelIndex` from 0; in ccb and slates, `_a` counts from 0, in slates
among the actions of its slot. Knows no bandit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from treetop.arrays import check_float, check_int
from treetop.bandit.arm_index import ArmId
from treetop.bridges.dsjson import OWN, VERSION, arm_of, from_time
from treetop.log.records import check_id

CHANGED = "take the record (treetop) out of a line that was changed"


@dataclass(frozen=True)
class Choice:
    """One slot: the arm, its chance given the slots before it, and its reward, NaN if there is none."""

    arm: ArmId
    probability: float
    reward: float


@dataclass(frozen=True)
class DsjsonLine:
    """One decision; `listed` are all arms that it could choose from, `own` is what treetop wrote for itself."""

    event_id: str
    time: float
    context: Mapping[str, Any]
    listed: tuple[ArmId, ...]
    slots: tuple[Choice, ...]
    pdrop: float
    own: Mapping[str, Any] | None

    @property
    def weight(self) -> float:
        """How many decisions it stands for.

        >>> DsjsonLine("visit-1", 0.0, {}, (), (), 0.75, None).weight
        4.0
        """
        return 1 / (1 - self.pdrop)


def read_lines(
    path: Path,
    arm_id: str | None,
    reward_range: tuple[float, float],
    check: Callable[[DsjsonLine | None], None] = lambda line: None,
) -> Iterator[DsjsonLine | None]:
    """The decisions of a file; None for one that nobody saw. What `check` raises is an error of its line too.

    >>> import tempfile
    >>> line = {"EventId": "e", "_label_Action": 2, "_label_cost": -1, "_label_probability": 0.5}
    >>> line |= {"c": {"_multi": [{"id": "mint"}, {"id": "rose"}]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "log.dsjson")
    ...     _ = path.write_bytes(msgspec.json.encode(line))
    ...     next(read_lines(path, None, (0.0, 1.0))).slots
    (Choice(arm='rose', probability=0.5, reward=1.0),)
    """
    low, high = (
        check_float("the lowest reward", reward_range[0], -1e30),
        check_float("the highest", reward_range[1], -1e30),
    )
    if not low < high:
        raise ValueError(f"the range of rewards is from {low:g} to {high:g}; the second must be larger")
    with path.open("rb") as file:
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                line = msgspec.json.decode(text)
                if not isinstance(line, dict):
                    raise ValueError("a line of dsjson is an object")
                if "of" in (line.get(OWN) or ()):  # a further slot of a decision that came before
                    continue
                found = _decision(line, arm_id, (low, high))
                check(found)
            except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
                what = f"it has no {error}" if isinstance(error, KeyError) else str(error)
                raise ValueError(f"{path}, line {number}: {what}") from None
            yield found


def _decision(line: Mapping[str, Any], arm_id: str | None, limits: tuple[float, float]) -> DsjsonLine | None:
    own = line.get(OWN)
    limits = limits if own is None else (0.0, 1.0)
    if line.get("_skipLearn"):
        return None
    context = line["c"]
    actions = context["_multi"]
    arms = [arm_of(action, arm_id) for action in actions]
    slots: tuple[Choice, ...]
    if "_slots" not in context:
        slots, listed = (_single(line, arms, limits),), arms
    elif any("_slot_id" in action for action in actions):
        slots, listed = _slate(line, actions, arms, limits), list(dict.fromkeys(arms))
    else:
        slots, listed = _conditional(line, arms, limits), arms
    if own is not None:
        slots = _own_slots(own, slots, is_slate="_slots" in context and "_label_cost" in line)
    if len({str(arm) for arm in listed}) < len(listed):
        twice = next(arm for i, arm in enumerate(listed) if arm in listed[:i])
        raise ValueError(f"two actions have the id {twice!r}")
    if len({str(slot.arm) for slot in slots}) < len(slots):
        raise ValueError(f"an arm is shown twice: {[slot.arm for slot in slots]}")
    pdrop = check_float("pdrop", line.get("pdrop", 0.0), 0.0, 1.0)
    if pdrop == 1:
        raise ValueError("pdrop is 1; a line that is always dropped says nothing")
    when = from_time(line["Timestamp"]) if "Timestamp" in line else time.time()
    name = str(line["EventId"] if own is None else own["record"]["event_id"])
    check_id(name)
    return DsjsonLine(name, when, context, tuple(listed), slots, pdrop, own)


def _own_slots(own: Mapping[str, Any], labelled: Sequence[Choice], is_slate: bool) -> tuple[Choice, ...]:
    """All slots of a decision that treetop wrote, those without a label too. Labels must be what they were."""
    if own.get("version") != VERSION:
        raise ValueError(f"it was written by version {own.get('version')}; {VERSION} is needed")
    record = own["record"]
    rewards = [math.nan if reward is None else reward for reward in record["rewards"]]
    slots = tuple(map(Choice, own["arms"], record["propensities"], rewards))
    found = {str(slot.arm): slot for slot in slots}
    for label in labelled:
        if str(label.arm) not in found:
            raise ValueError(f"its label is of arm {label.arm!r}, its record of {', '.join(found)}; {CHANGED}")
        given = found[str(label.arm)].reward
        if not is_slate and abs(given - label.reward) > 1e-9:  # false where there was none: an overdue one has a label
            raise ValueError(f"its label says reward {label.reward:g}, its record {given:g}; {CHANGED}")
    return slots


def _single(line: Mapping[str, Any], arms: Sequence[ArmId], limits: tuple[float, float]) -> Choice:
    """A contextual bandit's line: actions count from 1, `_labelIndex` from 0."""
    ranked, chances = line.get("a", ()), line.get("p", ())
    counted = {line["_label_Action"]} if "_label_Action" in line else {ranked[0]} if ranked else set()
    counted |= {line["_labelIndex"] + 1} if "_labelIndex" in line else set()
    if not counted:
        raise ValueError("it does not say which action was chosen: no _label_Action, _labelIndex or a")
    if len(counted) > 1:
        raise ValueError(f"_label_Action and _labelIndex + 1 differ: {sorted(counted)}")
    action = check_int("the chosen action", counted.pop(), 1, len(arms))
    if "_label_probability" in line:
        chance = line["_label_probability"]
    else:
        chance = chances[list(ranked).index(action)]
    return Choice(arms[action - 1], _chance(chance), _reward(line.get("_label_cost"), limits))


def _conditional(line: Mapping[str, Any], arms: Sequence[ArmId], limits: tuple[float, float]) -> tuple[Choice, ...]:
    """Slots with an outcome each; `_a` and `_p` begin with what was chosen, `_a` counts from 0."""
    found = []
    for outcome in _outcomes(line):
        action, chance = _first(outcome, len(arms))
        found.append(Choice(arms[action], chance, _reward(outcome.get("_label_cost"), limits)))
    return tuple(found)


def _slate(
    line: Mapping[str, Any], actions: Sequence[Mapping[str, Any]], arms: Sequence[ArmId], limits: tuple[float, float]
) -> tuple[Choice, ...]:
    """Slots with actions of their own and one reward, which every slot gets."""
    reward, found = _reward(line.get("_label_cost"), limits), []
    for slot, outcome in enumerate(_outcomes(line)):
        mine = [arm for arm, action in zip(arms, actions, strict=True) if action["_slot_id"] == slot]
        action, chance = _first(outcome, len(mine))
        found.append(Choice(mine[action], chance, reward))
    return tuple(found)


def _outcomes(line: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """One a slot; a line that treetop wrote without any has its record."""
    outcomes: Sequence[Mapping[str, Any]] = line.get("_outcomes", ())
    slots = len(line["c"]["_slots"])
    if len(outcomes) != slots and (outcomes or OWN not in line):
        raise ValueError(f"it has {slots} _slots and {len(outcomes)} _outcomes; what was chosen must stand there")
    return outcomes


def _first(outcome: Mapping[str, Any], count: int) -> tuple[int, float]:
    action, chance = outcome["_a"], outcome["_p"]
    action = action[0] if isinstance(action, list) else action
    return check_int("the chosen action", action, 0, count - 1), _chance(
        chance[0] if isinstance(chance, list) else chance
    )


def _chance(value: object) -> float:
    chance = check_float("a probability", value, 0.0, 1.0)
    if chance == 0:
        raise ValueError("the probability of what was chosen is 0; it must lie in (0, 1]")
    return chance


def _reward(cost: object, limits: tuple[float, float]) -> float:
    """The reward of a cost, with the range of rewards put on [0, 1]."""
    if cost is None:
        return math.nan
    reward, (low, high) = -check_float("_label_cost", cost, -1e30), limits
    if not low <= reward <= high:
        raise ValueError(f"the reward {reward:g}, the negated cost, is outside [{low:g}, {high:g}] (--reward-range)")
    return (reward - low) / (high - low) + 0.0
