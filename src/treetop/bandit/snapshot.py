"""What a process decides with at one moment: a model, the catalogue beside it, the settings. Frozen; reads no file.

A request becomes an Event that holds all that is needed to decide it again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

import numpy as np

from treetop import _core
from treetop.arrays import Bools, Ints, Rows
from treetop.bandit.catalogue import ArmId, Catalogue
from treetop.bandit.config import Deciding
from treetop.errors import NoEligibleArm
from treetop.log.records import Event
from treetop.model.model import Model
from treetop.policy.eligibility import ALL, EVERY_ARM, EXCEPT, ONLY, Eligible
from treetop.policy.policy import Policy
from treetop.records import Decision, Explanation
from treetop.tree.tree import Tree

FINGERPRINT = 16  # bytes
NO_ARMS: Ints = np.zeros(0, np.int32)


@dataclass(frozen=True, eq=False)
class Restriction:
    """The arms a request may see, what to call that set in the log, and the listed arms that define it there.

    A name is empty for all arms; else it begins with + (only the listed arms) or - (all but those), goes on with the
    number of removals so far, and ends with a digest of the list.
    """

    allowed: Eligible = EVERY_ARM
    name: str = ""
    listed: Ints = field(default_factory=lambda: NO_ARMS)

    def sets(self) -> dict[str, Ints]:
        """What the log is to keep beside an event of this restriction."""
        return {self.name: self.listed} if self.name else {}


NO_RESTRICTION = Restriction()


def tree_id(tree: Tree) -> str:
    """A short name for a tree: node numbers mean the same only in trees of one name.

    >>> X = np.eye(4, dtype=np.float32)
    >>> trees = [Tree.from_labels(X, X, max_leaf=leaf) for leaf in (2, 4, 4)]
    >>> len(tree_id(trees[0])), tree_id(trees[0]) == tree_id(trees[1]), tree_id(trees[1]) == tree_id(trees[2])
    (16, False, True)
    """
    digest = hashlib.blake2b(tree.parents.tobytes(), digest_size=8)
    digest.update(tree.leaf_of.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Live:
    """One model in use. `trouble` says why it is not the one that should be."""

    name: str
    model: Model
    catalogue: Catalogue
    deciding: Deciding
    trouble: str = ""
    policies: dict[tuple[int | None, int | None], tuple[Policy, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.catalogue) < self.model.n_arms:
            raise ValueError(f"model {self.name} has {self.model.n_arms} arms, the catalogue {len(self.catalogue)}")

    def warm(self) -> Live:
        """Makes now what would be made at the first decision."""
        self.model.engine, self.tree, self.gone, self.catalogue.index  # noqa: B018
        return self

    @cached_property
    def tree(self) -> str:
        return tree_id(self.model.tree)

    @cached_property
    def gone(self) -> Restriction:
        """The restriction of a request that has none of its own; prepared, since nearly every decision needs it."""
        limits = restriction(self.model.tree, self.catalogue)
        return replace(limits, allowed=Eligible.of(self.model.tree, limits.allowed))

    def policy(self, k: int | None = None, explore: int | None = None) -> tuple[Policy, str]:
        """The policy of a request, and as the log keeps it."""
        found = self.policies.get((k, explore))
        if found is None:
            policy = self.deciding.policy(k, explore)
            found = policy, json.dumps(asdict(replace(self.deciding, k=policy.k, explore=policy.explore)))
            if len(self.policies) < 10_000:
                self.policies[k, explore] = found
        return found

    def restricted(self, eligible: Iterable[ArmId] | None, exclude: Iterable[ArmId] | None) -> Restriction:
        """By the ids of a request. Removed arms may be listed; they are not shown."""
        if eligible is None and exclude is None:
            return self.gone
        banned = NO_ARMS if exclude is None else np.unique(self.catalogue.find(exclude))
        if eligible is None:
            return restriction(self.model.tree, self.catalogue, EXCEPT, banned)
        only = np.setdiff1d(self.catalogue.find(eligible), banned)
        return restriction(self.model.tree, self.catalogue, ONLY, only)

    def event(self, row: Rows, event_id: str | None, k: int | None, explore: int | None, limits: Restriction) -> Event:
        """Decides. The event is not in any log yet."""
        return self.begin(row, event_id, k, explore, limits)()

    def begin(
        self, row: Rows, event_id: str | None, k: int | None, explore: int | None, limits: Restriction,
        ahead: _core.Ahead | None = None,
    ) -> Callable[[], Event]:  # fmt: skip
        """What gives the event when it is called. With a thread that works ahead, that has begun to decide by then."""
        policy, said = self.policy(k, explore)
        name = os.urandom(16).hex() if event_id is None else event_id
        _check_any(self.model, limits)
        decision = policy.begin(self.model, row, name, limits.allowed, ahead)
        request = digest(row, k, explore, limits)

        def event() -> Event:
            d = decision()
            return Event(
                name, time.time(), request, row.index, row.value, d.arms, d.nodes, d.propensities, d.scores,
                d.explored, d.model_epoch, self.name, self.tree, said, limits.name,
            )  # fmt: skip

        return event

    def explain(self, row: Rows, limits: Restriction) -> Explanation:
        policy, _ = self.policy()
        _check_any(self.model, limits)
        return policy.explain(self.model, row, limits.allowed)


def decided(policy: Policy, model: Model, row: Rows, event_id: str, limits: Restriction) -> Decision:
    """The one `decide`, for a request that was checked.

    >>> from treetop.arrays import as_rows
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> decided(Policy(k=2, explore=1), model, as_rows(X[:1]), "visit-1", NO_RESTRICTION).event_id
    'visit-1'
    """
    _check_any(model, limits)
    return policy.decide(model, row, event_id, limits.allowed)


def _check_any(model: Model, limits: Restriction) -> None:
    allowed = limits.allowed
    if allowed.kind == ALL:
        return
    left = len(allowed.positions) if allowed.kind == ONLY else model.n_arms - len(allowed.positions)
    if left == 0:
        raise NoEligibleArm("none of the arms that the request allows can be shown")


def digest(row: Rows, k: int | None, explore: int | None, limits: Restriction) -> bytes:
    """What was asked, in 16 bytes: the same request again has the same, however its features were spelled.

    >>> row = Rows(np.array([0, 1]), np.array([3], np.int32), np.ones(1, np.float32), 4)
    >>> digest(row, 2, 1, NO_RESTRICTION) == digest(row, 2, 1, NO_RESTRICTION) != digest(row, 3, 1, NO_RESTRICTION)
    True
    """
    kind = limits.name[:1] if len(limits.listed) or limits.name[:1] == "+" else ""
    said = f"{len(row.index)} {k} {explore} {kind} ".encode()
    parts = (said, row.index.tobytes(), row.value.tobytes(), limits.listed.tobytes())
    return hashlib.blake2b(b"".join(parts), digest_size=FINGERPRINT).digest()


def restriction(
    tree: Tree, catalogue: Catalogue, kind: int = ALL, listed: Ints = NO_ARMS, removals: int | None = None
) -> Restriction:
    """`listed` arms only, or all but those, without the arms removed so far (or in the first `removals` removals).

    >>> X = np.eye(4, dtype=np.float32)
    >>> catalogue = Catalogue.of(["mint", "rose", "oolong", "sencha"])
    >>> tree = Tree.from_labels(X, X, max_leaf=2)
    >>> restriction(tree, catalogue).name, restriction(tree, catalogue.remove(["rose"])).name
    ('', '-1')
    """
    count = len(catalogue.removed) if removals is None else removals
    gone = catalogue.gone if removals is None else catalogue.gone_at(removals)
    if kind == ALL and count == 0:
        return NO_RESTRICTION
    sign = "+" if kind == ONLY else "-"
    name = f"{sign}{count}"
    if len(listed) or kind == ONLY:
        name += ":" + hashlib.blake2b(listed.tobytes(), digest_size=FINGERPRINT).hexdigest()
    return Restriction(_allowed(tree, kind, listed, gone), name, listed)


def _allowed(tree: Tree, kind: int, listed: Ints, gone: Bools) -> Eligible:
    here = listed[listed < tree.n_arms]  # the model may be older than the catalogue
    if kind == ONLY:
        shown = here[~gone[here]]
        return Eligible(ONLY, np.sort(tree.position_of[shown]), arm_at=tree.arm_at)
    banned = np.union1d(here, np.flatnonzero(gone[: tree.n_arms]).astype(np.int32)) if gone.any() else here
    return Eligible(EXCEPT, np.sort(tree.position_of[banned]), arm_at=tree.arm_at)


def decided_again(
    event: Event, model: Model, catalogue: Catalogue, listed_as: Callable[[str], Ints | None]
) -> Decision:
    """A logged decision computed anew from the model, settings and arms of its time.

    >>> from treetop.arrays import as_rows
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> live = Live("000000", model, Catalogue.of(["mint", "rose", "oolong", "sencha"]), Deciding(k=2, explore=1))
    >>> event = live.event(as_rows(X[:1]), "visit-1", None, None, live.gone)
    >>> again = decided_again(event, model, live.catalogue, lambda name: None)
    >>> bool((again.arms == event.arms).all())
    True
    """
    deciding = Deciding(**json.loads(event.policy))
    row = row_of(event, model)
    return decided(deciding.policy(), model, row, event.event_id, limits_of(event, model, catalogue, listed_as))


def row_of(event: Event, model: Model) -> Rows:
    """The context of a logged decision.

    >>> from treetop.arrays import as_rows
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> live = Live("000000", model, Catalogue.of(["mint", "rose", "oolong", "sencha"]), Deciding(k=2, explore=1))
    >>> event = live.event(as_rows(X[2:3]), "visit-1", None, None, live.gone)
    >>> row_of(event, model).csr().toarray().tolist()
    [[0.0, 0.0, 1.0, 0.0]]
    """
    return Rows(np.array([0, len(event.index)], np.int64), event.index, event.value, model.n_features)


def limits_of(event: Event, model: Model, catalogue: Catalogue, listed_as: Callable[[str], Ints | None]) -> Restriction:
    """The arms that a logged decision could choose from; `listed_as` is where the log keeps named sets.

    >>> from treetop.arrays import as_rows
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> live = Live("000000", model, Catalogue.of(["mint", "rose", "oolong", "sencha"]), Deciding(k=2, explore=1))
    >>> limits = live.restricted(eligible=["mint", "sencha"], exclude=None)
    >>> event = live.event(as_rows(X[:1]), "visit-1", None, None, limits)
    >>> limits_of(event, model, live.catalogue, limits.sets().get).listed.tolist()
    [0, 3]
    """
    if not event.eligible:
        return NO_RESTRICTION
    count, _, listed_digest = event.eligible[1:].partition(":")
    kind = ONLY if event.eligible[0] == "+" else EXCEPT if listed_digest else ALL
    listed = listed_as(event.eligible) if listed_digest else NO_ARMS
    if listed is None:
        raise ValueError(f"the set of arms of event {event.event_id!r} is not in the log any more")
    return restriction(model.tree, catalogue, kind, listed, int(count))
