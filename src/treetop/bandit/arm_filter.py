"""Which arms a decision may show: the request's lists and conditions without the removed arms, and how the log keeps
them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from treetop.arrays import Bools, Ints
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.attributes import AttributeTable
from treetop.bandit.where import Filters, Where, canonical_where, matching
from treetop.errors import NoEligibleArm
from treetop.log.records import Event
from treetop.policy.eligibility import ALL, EVERY_ARM, EXCEPT, ONLY, Eligible
from treetop.tree.tree import Tree

DIGEST_BYTES = 16
LONGEST_SHOWN = 80  # characters of a condition in an error
NO_ARMS: Ints = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class ArmFilter:
    """The arms that a request may see, and how the log keeps them.

    `name` is empty if the request listed none. Otherwise it is + (only the `listed` arms) or - (all but those) and a
    digest of them: whatever is removed later, a list is stored once. With conditions it is ? and then, as JSON, these,
    how many bytes of attributes.bin say which arms meet them, their checksum, and the name of the list. `conditions`
    are those of the request as text, behind the + or - of its list. `removals` is how many arms had been removed or had
    returned. `before_caps` is what the request asked for, and its arms, if caps took some of these away.
    """

    eligible: Eligible = EVERY_ARM
    name: str = ""
    listed: Ints = field(default_factory=lambda: NO_ARMS)
    removals: int = 0
    conditions: str = ""
    before_caps: tuple[str, Ints] | None = None

    @property
    def asked(self) -> tuple[str, Ints]:
        """What the request asked for: + or - or nothing, and its conditions; and the arms that it listed."""
        return self.before_caps or (self.conditions or self.name[:1], self.listed)

    def sets(self) -> dict[str, Ints]:
        """The listed arms by their name, which the log stores with an event of this filter."""
        return {self.name: self.listed} if self.name else {}

    def check_any(self, n_arms: int, filters: Filters | None = None) -> None:
        """Raises NoEligibleArm if none of `n_arms` arms passes; by `filters` it says what each condition leaves."""
        if self.eligible.is_empty(n_arms):
            why = "" if filters is None else f"; of {n_arms:,} arms, {self._left(n_arms, filters)}"
            raise NoEligibleArm(f"none of the arms that the request allows can be shown{why}")

    def _left(self, n_arms: int, filters: Filters) -> str:
        """How many arms each part of the request leaves without the others."""
        asked, listed = self.asked
        kind, conditions = (asked[:1], asked[1:]) if asked[:1] in ("+", "-") else ("", asked)
        left = {}
        for name, condition in json.loads(conditions or "{}").items():
            text = json.dumps(condition)
            shown = f"{name} {text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + '...'}"
            left[shown] = filters.eligible({name: condition}).count(n_arms)
        if kind:
            left["the request's list"] = len(listed) if kind == "+" else n_arms - len(listed)
        if self.before_caps is not None:
            left["the list with [caps]"] = len(self.listed) if kind == "+" else n_arms - len(self.listed)
        said = [f"{what} leaves {count:,}" for what, count in left.items()]
        return ", ".join([*said, "without those that were removed"] if self.removals else said)


NO_FILTER = ArmFilter()


def make_filter(
    tree: Tree, arms: ArmIndex, kind: int = ALL, listed: Ints = NO_ARMS, removals: int | None = None
) -> ArmFilter:
    """The filter for `listed` arms only (kind ONLY) or for all but those (EXCEPT), always without removed arms.

    `removals` takes only so many removals and returns into account, as at the time of a logged decision.

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
    count = len(arms.changes) if removals is None else removals
    is_removed = arms.is_removed if removals is None else arms.removed_after(removals)
    name = digest_name(kind, listed)
    if not name and count == 0:
        return NO_FILTER
    return ArmFilter(_eligible(tree, kind, listed, is_removed), name, listed, count)


def digest_name(kind: int, listed: Ints) -> str:
    """The name of a list of arms; empty if there is none.

    >>> digest_name(ALL, NO_ARMS), digest_name(ONLY, NO_ARMS)[:3]
    ('', '+ca')
    """
    if not len(listed) and kind != ONLY:
        return ""
    digest = hashlib.blake2b(listed.tobytes(), digest_size=DIGEST_BYTES).hexdigest()
    return f"{'+' if kind == ONLY else '-'}{digest}"


def conditional_filter(
    filters: Filters, where: Where, default: ArmFilter, kind: int = ALL, listed: Ints = NO_ARMS
) -> ArmFilter:
    """The filter of a request with conditions, and perhaps with a list; `default` is that of one without either.

    >>> from treetop.bandit.attributes import AttributeTable, Column
    >>> tree = Tree(parents=[-1, 0, 0], leaf_of=[1, 2, 1])
    >>> filters = Filters(AttributeTable({"price": Column.of([9.5, 20, 30])}), tree)
    >>> made = conditional_filter(filters, {"price": {"<=": 20}}, NO_FILTER, EXCEPT, np.zeros(1, np.int32))
    >>> made.eligible.count(3), made.name
    (1, '?{"at":0,"crc":0,"listed":"-11d2df4e979aa105cf552e9544ebd2b5","where":{"price":{"<=":20}}}')
    """
    tree = filters.tree
    conditions = canonical_where(where)
    name = digest_name(kind, listed)
    named = f'{{"at":{filters.table.size},"crc":{filters.table.crc},"listed":"{name}","where":{conditions}}}'
    places = listed
    if len(listed):
        places = np.sort(tree.position_of[listed[listed < tree.n_arms]])  # the model may be older than the arm index
    only, banned = (places, NO_ARMS) if kind == ONLY else (None, places)
    eligible = filters.eligible(where, default.eligible.mask, only, banned)
    return ArmFilter(eligible, f"?{named}", listed, default.removals, name[:1] + conditions)


def _eligible(tree: Tree, kind: int, listed: Ints, is_removed: Bools) -> Eligible:
    known = listed[listed < tree.n_arms]  # the model may be older than the arm index
    if kind == ONLY:
        shown = known[~is_removed[known]]
        return Eligible(ONLY, np.sort(tree.position_of[shown]), arm_at=tree.arm_at)
    removed = np.flatnonzero(is_removed[: tree.n_arms]).astype(np.int32)
    banned = np.union1d(known, removed) if len(removed) else known
    return Eligible(EXCEPT, np.sort(tree.position_of[banned]), arm_at=tree.arm_at)


FindSet: TypeAlias = Callable[[str], Ints | None]


@dataclass(frozen=True, eq=False)
class LoggedSets:
    """The arms of logged filters by name: lists from the log, conditions by the attributes of their time."""

    listed: FindSet
    table_at: Callable[[int], AttributeTable]
    n_arms: int

    def __call__(self, name: str) -> Ints | None:
        """The arms of a list, or those that a filter with conditions left; None if the log does not have it."""
        listed = self.listed(name)
        if not name.startswith("?") or listed is None:
            return listed
        said = json.loads(name[1:])
        try:
            table = self.table_at(said["at"])
            same = table.crc == said["crc"]
        except (ValueError, KeyError, TypeError):  # a record does not end there
            same = False
        if not same:
            raise ValueError(
                f"the first {said['at']} bytes of attributes.bin are not those that a logged decision was filtered by: "
                "the folder is a copy whose attributes changed separately"
            )
        found = matching(table, said["where"], self.n_arms)
        if said["listed"].startswith("+"):
            return np.intersect1d(found, listed)
        return np.setdiff1d(found, listed)


def logged_filter(event: Event, tree: Tree, arms: ArmIndex, find_set: FindSet) -> ArmFilter:
    """The filter that a logged decision was made with; `find_set` gives the arms of a name (LoggedSets).

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
    found = named_filter(event.eligible, event.removals, tree, arms, find_set)
    if found is None:
        raise ValueError(f"the set of arms of event {event.event_id!r} is not in the log any more")
    return found


def named_filter(name: str, removals: int, tree: Tree, arms: ArmIndex, find_set: FindSet) -> ArmFilter | None:
    """The filter of a name, after so many removals; None if its arms are not known any more.

    >>> tree, arms = Tree(parents=[-1, 0, 0], leaf_of=[1, 2]), ArmIndex.of(["mint", "rose"])
    >>> named_filter("+gone", 0, tree, arms, lambda name: None) is None
    True
    """
    kind = {"": ALL, "+": ONLY, "-": EXCEPT, "?": ONLY}.get(name[:1])
    listed = find_set(name) if name else NO_ARMS
    return None if listed is None or kind is None else make_filter(tree, arms, kind, listed, removals)
