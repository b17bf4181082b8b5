"""Which arms a decision may show: the request's lists without the removed arms, and how the log keeps both."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from treetop.arrays import Bools, Ints
from treetop.bandit.arm_index import ArmIndex
from treetop.errors import NoEligibleArm
from treetop.log.records import Event
from treetop.policy.eligibility import ALL, EVERY_ARM, EXCEPT, ONLY, Eligible
from treetop.tree.tree import Tree

DIGEST_BYTES = 16
NO_ARMS: Ints = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class ArmFilter:
    """The arms that a request may see, and how the log keeps them.

    `name` is empty if the request listed none. Otherwise it is + (only the `listed` arms) or - (all but those) and a
    digest of them: whatever is removed later, a list is stored once. `removals` is how many arms had been removed.
    """

    eligible: Eligible = EVERY_ARM
    name: str = ""
    listed: Ints = field(default_factory=lambda: NO_ARMS)
    removals: int = 0

    def sets(self) -> dict[str, Ints]:
        """The listed arms by their name, which the log stores with an event of this filter."""
        return {self.name: self.listed} if self.name else {}

    def check_any(self, n_arms: int) -> None:
        """Raises NoEligibleArm if none of `n_arms` arms passes."""
        if self.eligible.kind == ALL:
            return
        count = len(self.eligible.positions)
        if count == 0 if self.eligible.kind == ONLY else count == n_arms:
            raise NoEligibleArm("none of the arms that the request allows can be shown")


NO_FILTER = ArmFilter()


def make_filter(
    tree: Tree, arms: ArmIndex, kind: int = ALL, listed: Ints = NO_ARMS, removals: int | None = None
) -> ArmFilter:
    """The filter for `listed` arms only (kind ONLY) or for all but those (EXCEPT), always without removed arms.

    `removals` takes only the first so many removals into account, as at the time of a logged decision.

    >>> X = np.eye(4, dtype=np.float32)
    >>> arms = ArmIndex.of(["mint", "rose", "oolong", "sencha"])
    >>> tree = Tree.from_labels(X, X, max_leaf=2)
    >>> less = arms.remove(["rose"])
    >>> make_filter(tree, arms).removals, make_filter(tree, less).removals
    (0, 1)
    >>> two = arms.find(["mint", "rose"])
    >>> make_filter(tree, arms, ONLY, two).name == make_filter(tree, less, ONLY, two).name
    True
    """
    count = len(arms.removed) if removals is None else removals
    is_removed = arms.is_removed if removals is None else arms.removed_after(removals)
    name = ""
    if len(listed) or kind == ONLY:
        digest = hashlib.blake2b(listed.tobytes(), digest_size=DIGEST_BYTES).hexdigest()
        name = f"{'+' if kind == ONLY else '-'}{digest}"
    elif count == 0:
        return NO_FILTER
    return ArmFilter(_eligible(tree, kind, listed, is_removed), name, listed, count)


def _eligible(tree: Tree, kind: int, listed: Ints, is_removed: Bools) -> Eligible:
    known = listed[listed < tree.n_arms]  # the model may be older than the arm index
    if kind == ONLY:
        shown = known[~is_removed[known]]
        return Eligible(ONLY, np.sort(tree.position_of[shown]), arm_at=tree.arm_at)
    removed = np.flatnonzero(is_removed[: tree.n_arms]).astype(np.int32)
    banned = np.union1d(known, removed) if len(removed) else known
    return Eligible(EXCEPT, np.sort(tree.position_of[banned]), arm_at=tree.arm_at)


def logged_filter(event: Event, tree: Tree, arms: ArmIndex, find_set: Callable[[str], Ints | None]) -> ArmFilter:
    """The filter that a logged decision was made with; `find_set` gives the listed arms of a name (Log.eligible_set).

    >>> X = np.eye(4, dtype=np.float32)
    >>> tree, arms = Tree.from_labels(X, X, max_leaf=2), ArmIndex.of(["mint", "rose", "oolong", "sencha"])
    >>> made = make_filter(tree, arms, ONLY, arms.find(["mint", "sencha"]))
    >>> one = np.zeros(1, np.int32)
    >>> slots = {name: one for name in ("arms", "propensities", "scores", "explored", "nodes", "index", "value")}
    >>> event = Event(event_id="visit-1", model_epoch=0, **slots, time=0.0, request=b"", model="000000", tree="",
    ...               policy="{}", eligible=made.name)
    >>> logged_filter(event, tree, arms, made.sets().get).listed.tolist()
    [0, 3]
    """
    kind = {"": ALL, "+": ONLY, "-": EXCEPT}.get(event.eligible[:1])
    listed = find_set(event.eligible) if event.eligible else NO_ARMS
    if listed is None or kind is None:
        raise ValueError(f"the set of arms of event {event.event_id!r} is not in the log any more")
    return make_filter(tree, arms, kind, listed, event.removals)
