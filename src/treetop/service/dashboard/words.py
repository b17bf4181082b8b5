"""A logged decision in words. Needs no model."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from treetop.log.records import StoredEvent

STRATEGY = {
    "igw": "inverse gap weighting",
    "boltzmann": "Boltzmann",
    "epsilon": "epsilon-greedy",
    "greedy": "greedy",
    "budgeted": "exploration within a budget",
}
SHOWN = 12  # slots of a decision that are listed
Name = Callable[[int], str]  # an arm's id by its index


def chance(p: float) -> str:
    """
    >>> chance(0.37), chance(0.004), chance(0.9992), chance(1.0)
    ('37 %', '1 in 250', '99.9 %', '100 %')
    """
    if 0.995 <= p < 1:
        return f"{min(100 * p, 99.9):.1f} %"
    return f"{100 * p:.0f} %" if p >= 0.095 else f"1 in {1 / p:,.0f}" if p > 0 else "0 %"


def decision(stored: StoredEvent, name: Name) -> str:
    """Which arms were taken for their scores, which were drawn and with what chance, and the rewards so far."""
    event = stored.event
    if not event.model:
        shown = listed([name(int(arm)) for arm in event.arms])
        return f"Shown by another system, from an imported log: {shown}. {_rewards(stored)}"
    drawn = [slot for slot in range(len(event)) if event.explored[slot]]
    taken = [slot for slot in range(len(event)) if not event.explored[slot]]
    parts = []
    if taken:
        scores = [f"{name(int(event.arms[s]))} ({event.scores[s]:.2f}{_through(int(event.nodes[s]))})" for s in taken]
        parts.append(f"Taken for {'its score' if len(taken) == 1 else 'their scores'}: {listed(scores)}.")
    if drawn:
        how = STRATEGY.get(json.loads(event.policy)["strategy"], "the strategy")
        chances = [
            f"{name(int(event.arms[s]))} ({chance(event.propensities[s])}{_through(int(event.nodes[s]))})"
            for s in drawn
        ]
        parts.append(f"Drawn by {how}: {listed(chances)}.")
    return " ".join([*parts, _rewards(stored)])


def _through(node: int) -> str:
    return "" if node < 0 else ", out of a group"


def slot(stored: StoredEvent, place: int) -> str:
    """Why one slot shows its arm."""
    event = stored.event
    where = f"Place {place + 1} of {len(event)}"
    if not event.model:
        return f"{where}: shown by another system, from an imported log."
    through = _through(int(event.nodes[place]))
    if not event.explored[place]:
        return f"{where}: taken for its score of {event.scores[place]:.3g}{through}."
    how, p = STRATEGY.get(json.loads(event.policy)["strategy"], "the strategy"), float(event.propensities[place])
    return f"{where}: drawn by {how}, with a chance of {chance(p)}{through} (score {event.scores[place]:.3g})."


def _rewards(stored: StoredEvent) -> str:
    known = [float(value) for value in stored.rewards if value == value]
    slots = len(stored.event)
    if not known:
        return "No reward yet."
    missing = f", {slots - len(known)} still open" if len(known) < slots else ""
    return f"Reward {sum(known):g} from {len(known)} slot{'s' if len(known) > 1 else ''}{missing}."


def listed(parts: Sequence[str]) -> str:
    """
    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    if len(parts) > SHOWN:
        parts = [*parts[:SHOWN], f"{len(parts) - SHOWN:,} more"]
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
