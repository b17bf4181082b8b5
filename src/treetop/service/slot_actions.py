"""Which actions slots that exclude some of them may show, one after the other, so that every slot gets one."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def can_fill(slots: Sequence[Collection[str]], taken: Collection[str] = ()) -> bool:
    """Whether every slot can show an action of its own that is not taken: a matching, by augmenting paths.

    >>> can_fill([["a", "b"], ["a"]]), can_fill([["a"], ["a"]]), can_fill([["a", "b"], ["a"]], taken=["a"])
    (True, False, False)
    """
    tight = _tight(slots, len(taken))
    slot_of: dict[str, int] = {}

    def place(slot: int, tried: set[str]) -> bool:
        for action in tight[slot]:
            if action in taken or action in tried:
                continue
            tried.add(action)
            if action not in slot_of or place(slot_of[action], tried):
                slot_of[action] = slot
                return True
        return False

    return all(place(slot, set()) for slot in range(len(tight)))


def open_actions(actions: Sequence[str], later: Sequence[Collection[str]], taken: Collection[str]) -> list[str]:
    """The actions that a slot may show and leave one for each later slot, in their order.

    >>> open_actions(["a", "b", "c"], later=[["a", "d"], ["d"]], taken=["c"])
    ['b']
    """
    wanted = {action for slot in _tight(later, len(taken) + 1) for action in slot}
    left = [action for action in actions if action not in taken]
    return [action for action in left if action not in wanted or can_fill(later, {*taken, action})]


def _tight(slots: Sequence[Collection[str]], taken: int) -> list[Collection[str]]:
    """Without slots that have so many actions that one is always left."""
    return [slot for slot in slots if len(slot) < len(slots) + taken]
