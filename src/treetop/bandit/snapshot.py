"""What a process decides with at one moment: a model, the arm ids and the policy settings. Frozen; reads no file.

A request becomes an Event, which holds all that is needed to compute the decision again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from treetop import _core
from treetop.arrays import Ints, Rows
from treetop.bandit.arm_filter import (
    DIGEST_BYTES,
    NO_ARMS,
    ArmFilter,
    FindSet,
    conditional_filter,
    logged_filter,
    make_filter,
)
from treetop.bandit.arm_index import ArmId, ArmIndex
from treetop.bandit.attributes import AttributeTable
from treetop.bandit.config import PolicyConfig
from treetop.bandit.experiment_config import Experiment
from treetop.bandit.live_trials import LiveTrials
from treetop.bandit.outliers import ClippedRow, OutlierLimits
from treetop.bandit.where import Filters, Where
from treetop.log.keys import NO_KEYS, Keys
from treetop.log.records import Event
from treetop.model.model import Model
from treetop.policy.draws import new_event_id
from treetop.policy.eligibility import ALL, EXCEPT, ONLY, Eligible
from treetop.policy.policy import Policy
from treetop.records import Decision, Explanation
from treetop.tree.tree import Tree

COMPUTED = ("tree", "default_filter", "filters")  # what a snapshot makes of its model, arms and attributes
MAX_POLICIES = 10_000  # combinations of k and explore that are kept


def tree_id(tree: Tree) -> str:
    """A digest of a tree's structure. Node numbers of two models mean the same only if their tree ids are equal.

    >>> X = np.eye(4, dtype=np.float32)
    >>> trees = [Tree.from_labels(X, X, max_leaf=leaf) for leaf in (2, 4, 4)]
    >>> len(tree_id(trees[0])), tree_id(trees[0]) == tree_id(trees[1]), tree_id(trees[1]) == tree_id(trees[2])
    (16, False, True)
    """
    digest = hashlib.blake2b(tree.parents.tobytes(), digest_size=8)
    digest.update(tree.leaf_of.tobytes())
    return digest.hexdigest()


@dataclass(frozen=True, eq=False)
class Snapshot:
    """One loaded model and what it decides with.

    `name` is the model's. `trouble` is empty, or says why this is not the model that the folder calls current.
    `attributes` are those of the arms.
    """

    name: str
    model: Model
    arms: ArmIndex
    policy_config: PolicyConfig
    trouble: str = ""
    limits: OutlierLimits | None = None
    policies: dict[tuple[int | None, int | None], tuple[Policy, str]] = field(default_factory=dict)
    attributes: AttributeTable = field(default_factory=AttributeTable)
    labels: Mapping[str, str] = field(default_factory=dict)  # experiment and variant, as the log keeps them
    trials: LiveTrials = field(default_factory=LiveTrials)  # of new arms, since the model's counts
    experiment: Experiment | None = None  # that runs, with what its variants decide with
    variants: Mapping[str, Snapshot] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.arms) < self.model.n_arms:
            raise ValueError(f"model {self.name} has {self.model.n_arms} arms, the catalogue {len(self.arms)}")

    def prepare(self) -> Snapshot:
        """Computes now what the first decision would have to compute; returns itself."""
        self.model.engine, self.tree, self.default_filter, self.arms.index  # noqa: B018
        self.filters.prepare()
        return self

    @cached_property
    def filters(self) -> Filters:
        """The attributes over the model's tree."""
        return Filters(self.attributes, self.model.tree)

    def with_attributes(self, attributes: AttributeTable) -> Snapshot:
        """The same with other attributes; what was made of those that stay is kept.

        >>> model = Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4))
        >>> snapshot = Snapshot("000000", model, ArmIndex.of(range(4)), PolicyConfig(k=2, explore=1))
        >>> snapshot.with_attributes(AttributeTable()).attributes
        AttributeTable(no attributes)
        """
        variants = {name: variant.with_attributes(attributes) for name, variant in self.variants.items()}
        new = replace(self, attributes=attributes, variants=variants)
        new.__dict__["filters"] = Filters(attributes, self.model.tree, self.__dict__.get("filters"))
        new.filters.prepare()
        return new.sharing(self, "tree", "default_filter")

    def with_trials(self, trials: LiveTrials) -> Snapshot:
        """The same with newer counts of trials.

        >>> model = Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4))
        >>> snapshot = Snapshot("000000", model, ArmIndex.of(range(4)), PolicyConfig(k=2, explore=1))
        >>> snapshot.with_trials(LiveTrials()).policy()[1] == snapshot.policy()[1]
        True
        """
        variants = {name: variant.with_trials(trials) for name, variant in self.variants.items()}
        return replace(self, trials=trials, policies={}, variants=variants).sharing(self, *COMPUTED)

    def sharing(self, other: Snapshot, *made: str) -> Snapshot:
        """With what another snapshot of the same model and arms has computed.

        >>> model = Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4))
        >>> one = Snapshot("000000", model, ArmIndex.of(range(4)), PolicyConfig(k=2, explore=1)).prepare()
        >>> replace(one, trouble="none").sharing(one, "tree").tree is one.tree
        True
        """
        self.__dict__.update({name: other.__dict__[name] for name in made if name in other.__dict__})
        return self

    def as_variant(self, experiment: str, name: str, policy: PolicyConfig) -> Snapshot:
        """What a variant with this model and other settings decides with; the log has the variant's name.

        >>> model = Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4))
        >>> snapshot = Snapshot("000000", model, ArmIndex.of(range(4)), PolicyConfig(k=2, explore=1))
        >>> wide = snapshot.as_variant("beams", "wide", PolicyConfig(k=2, explore=1, beam=30))
        >>> wide.policy()[0].beam, logged_variant(wide.policy()[1])
        (30, ('beams', 'wide'))
        """
        labels = {"experiment": experiment, "variant": name}
        new = replace(self, policy_config=policy, policies={}, labels=labels, experiment=None, variants={})
        return new.sharing(self, *COMPUTED)

    def for_visit(
        self,
        event_id: str | None,
        keys: Keys,
        eligible: Iterable[ArmId] | None,
        exclude: Iterable[ArmId] | None,
        where: Where | None,
        capped: Ints = NO_ARMS,
    ) -> tuple[Snapshot, ArmFilter]:
        """What a visit is decided with, and the filter of its request: its variant, if an experiment runs and it is in
        one, unless the variant's model is older than all arms that the request allows."""
        if self.experiment is not None:
            unit = self.experiment.unit_of(event_id or new_event_id(), keys)
            chosen = self.variants.get(self.experiment.variant_of(unit) or "", self)
            eligible, exclude = (None if arms is None else list(arms) for arms in (eligible, exclude))
            found = chosen.arm_filter(eligible, exclude, where, capped)
            if chosen is self or not found.eligible.is_empty(chosen.model.n_arms):
                return chosen, found
        return self, self.arm_filter(eligible, exclude, where, capped)

    @cached_property
    def tree(self) -> str:
        """The id of the model's tree."""
        return tree_id(self.model.tree)

    @cached_property
    def default_filter(self) -> ArmFilter:
        """The filter of a request without lists of its own: all arms but the removed ones."""
        found = make_filter(self.model.tree, self.arms)
        return replace(found, eligible=Eligible.of(self.model.tree, found.eligible))

    def policy(self, k: int | None = None, explore: int | None = None) -> tuple[Policy, str]:
        """The policy of a request, and the JSON under which the log keeps it."""
        found = self.policies.get((k, explore))
        if found is None:
            config = self.trials.applied(self.policy_config)
            policy = config.make_policy(k, explore)
            settings = asdict(replace(config, k=policy.k, explore=policy.explore))
            found = policy, json.dumps({**settings, **self.labels})
            if len(self.policies) < MAX_POLICIES:
                self.policies[k, explore] = found
        return found

    def arm_filter(
        self,
        eligible: Iterable[ArmId] | None,
        exclude: Iterable[ArmId] | None,
        where: Where | None = None,
        capped: Ints = NO_ARMS,
    ) -> ArmFilter:
        """The filter of a request, from its lists of ids and its conditions, without the `capped` arms. Removed arms
        may be listed; they are not shown."""
        kind, listed = ALL, NO_ARMS
        if exclude is not None:
            kind, listed = EXCEPT, np.unique(self.arms.find(exclude))
        if eligible is not None:
            kind, listed = ONLY, np.setdiff1d(self.arms.find(eligible), listed)
        made = self._filter(where, kind, listed)
        if not len(capped):
            return made
        if kind == ONLY:
            less = self._filter(where, ONLY, np.setdiff1d(listed, capped))
        else:
            less = self._filter(where, EXCEPT, np.union1d(listed, capped))
        return replace(less, before_caps=made.asked)

    def _filter(self, where: Where | None, kind: int, listed: Ints) -> ArmFilter:
        if where:
            return conditional_filter(self.filters, where, self.default_filter, kind, listed)
        return self.default_filter if kind == ALL else make_filter(self.model.tree, self.arms, kind, listed)

    def bounded(self, row: Rows) -> Rows:
        """The row that a decision is made of: without values far outside what their features have shown."""
        return row if self.limits is None else self.limits.bound(row)

    def decide(
        self,
        row: Rows,
        event_id: str | None,
        k: int | None,
        explore: int | None,
        arm_filter: ArmFilter,
        keys: Keys = NO_KEYS,
    ) -> Event:
        """Decides. The event is not in any log yet."""
        return self.begin(row, event_id, k, explore, arm_filter, keys=keys)()

    def begin(
        self,
        row: Rows,
        event_id: str | None,
        k: int | None,
        explore: int | None,
        arm_filter: ArmFilter,
        ahead: _core.Ahead | None = None,
        keys: Keys = NO_KEYS,
    ) -> Callable[[], Event]:
        """A function that returns the event of `decide`. With `ahead`, the core's second thread starts on it now."""
        policy, policy_json = self.policy(k, explore)
        name = new_event_id() if event_id is None else event_id
        arm_filter.check_any(self.model.n_arms, self.filters)
        decision = policy.begin(self.model, row, name, arm_filter.eligible, ahead)
        request = request_digest(row, k, explore, arm_filter, keys)

        def event() -> Event:
            d = decision()
            return Event(
                name,
                d.model_epoch,
                d.arms,
                d.propensities,
                d.scores,
                d.explored,
                d.nodes,
                components=d.components,
                time=time.time(),
                request=request,
                index=row.index,
                value=row.value,
                model=self.name,
                tree=self.tree,
                policy=policy_json,
                eligible=arm_filter.name,
                removals=arm_filter.removals,
                keys=keys,
            )

        return event

    def explain(self, row: Rows, arm_filter: ArmFilter) -> Explanation:
        """Every effective arm of a context."""
        policy, _ = self.policy()
        arm_filter.check_any(self.model.n_arms, self.filters)
        return policy.explain(self.model, row, arm_filter.eligible)

    def explain_logged(self, event: Event, arm_filter: ArmFilter) -> Explanation:
        """Every effective arm that a logged decision could choose from, by its `logged_filter`; the snapshot must have
        its model."""
        policy = logged_policy(event.policy).make_policy()
        return policy.explain(self.model, logged_row(event, self.model), arm_filter.eligible)


def request_digest(row: Rows, k: int | None, explore: int | None, arm_filter: ArmFilter, keys: Keys = NO_KEYS) -> bytes:
    """A request in 16 bytes. Equal requests have equal digests, however their features were spelled or clipped.

    >>> from treetop.bandit.arm_filter import NO_FILTER
    >>> row = Rows(np.array([0, 1]), np.array([3], np.int32), np.ones(1, np.float32), 4)
    >>> two, again, three = (request_digest(row, k, 1, NO_FILTER) for k in (2, 2, 3))
    >>> two == again, two == three
    (True, False)
    """
    row = row.given if isinstance(row, ClippedRow) else row
    asked, listed = arm_filter.asked
    head = f"{len(row.index)} {k} {explore} {asked} ".encode()
    head += f"{json.dumps(keys)} ".encode() if keys else b""
    parts = (head, row.index.tobytes(), row.value.tobytes(), listed.tobytes())
    return hashlib.blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def logged_policy(text: str) -> PolicyConfig:
    """The settings under which the log keeps a decision; of one that another system made, as many slots as it had.

    >>> logged_policy('{"k": 3, "explore": 1}').k, logged_policy('{"imported": true, "positions": [1, 3]}').k
    (3, 2)
    """
    said = json.loads(text)
    settings = {key: value for key, value in said.items() if key not in ("experiment", "variant")}
    return PolicyConfig(len(said["positions"]), 0) if "imported" in said else PolicyConfig(**settings)


@lru_cache(1024)
def logged_variant(text: str) -> tuple[str, str] | None:
    """Experiment and variant of a decision, by the settings under which the log keeps it; None if it was in none.

    >>> logged_variant('{"k": 3, "experiment": "beams", "variant": "wide"}'), logged_variant('{"k": 3}')
    (('beams', 'wide'), None)
    """
    said = json.loads(text) if '"variant"' in text else {}
    return (said["experiment"], said["variant"]) if "variant" in said else None


def replayed_decision(event: Event, model: Model, arms: ArmIndex, find_set: FindSet) -> Decision:
    """A logged decision computed again from its model, with the settings, context and arms of its time.

    `find_set` is as for `logged_filter`.

    >>> from treetop.arrays import as_rows
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> arms = ArmIndex.of(["mint", "rose", "oolong", "sencha"])
    >>> snapshot = Snapshot("000000", model, arms, PolicyConfig(k=2, explore=1))
    >>> event = snapshot.decide(as_rows(X[:1]), "visit-1", None, None, snapshot.default_filter)
    >>> again = replayed_decision(event, model, arms, lambda name: None)
    >>> bool((again.arms == event.arms).all())
    True
    """
    arm_filter = logged_filter(event, model.tree, arms, find_set)
    arm_filter.check_any(model.n_arms)
    policy = logged_policy(event.policy).make_policy()
    return policy.decide(model, logged_row(event, model), event.event_id, arm_filter.eligible)


def logged_row(event: Event, model: Model) -> Rows:
    """The context of a logged decision, as a row for its model.

    >>> from treetop.arrays import as_rows
    >>> X = np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, X, max_leaf=2), X, X)
    >>> arms = ArmIndex.of(["mint", "rose", "oolong", "sencha"])
    >>> snapshot = Snapshot("000000", model, arms, PolicyConfig(k=2, explore=1))
    >>> event = snapshot.decide(as_rows(X[2:3]), "visit-1", None, None, snapshot.default_filter)
    >>> logged_row(event, model).csr().toarray().tolist()
    [[0.0, 0.0, 1.0, 0.0]]
    """
    return Rows(np.array([0, len(event.index)], np.int64), event.index, event.value, model.n_features)
