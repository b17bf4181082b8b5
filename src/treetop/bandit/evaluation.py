"""What candidate policies would have earned, by a bandit's log: one pass, bounded memory. Changes nothing.

A visit says something about a candidate only with the model that the candidate decides with: the one that served the
visit, if it is still kept, or the one it names, if that had not learned from the visit.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from treetop.arrays import Bools, Floats, Ints, check_float
from treetop.bandit.bandit import Bandit
from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.config import PolicyConfig
from treetop.bandit.logged_batches import CHUNK, ArmSets, LoggedBatch, batches
from treetop.bandit.snapshot import tree_id
from treetop.effort import Effort
from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import CandidateResult, Estimate, judge
from treetop.model.model import Model
from treetop.policy.policy import Policy
from treetop.policy.probability import NO_GROUPS, SlotChances, shared_chances
from treetop.tree.tree import Tree

MODELS = 8  # that are in memory at a time; their files are mapped
HEIGHTS = 2  # cuts of the tree that are weighed by: leaves, and the nodes above them
UNREWARDED, GONE, TAUGHT = "without a reward yet", "decided by a model that is not kept", "taught the model"
SILENT = (
    "{:,} visits have no reward though reward_wait is over: estimates hold only if whether a reward comes does not "
    "depend on what was shown; if none means 0, set default_reward = 0 in config.toml"
)
ELSEWHERE = "decided by another system"
UNLISTED, UNFIT = "their list of arms is not in the log any more", "its settings do not fit the visit"


@dataclass(frozen=True)
class Evaluation:
    """What a log says about candidates: `served` is the reward of a visit as it was, over all `rounds`.

    >>> Evaluation(0, 0.95, Estimate(1.0, 0.9, 1.1), ()).to_dict()["served"]["value"]
    1.0
    """

    rounds: int
    confidence: float
    served: Estimate
    candidates: tuple[CandidateResult, ...]
    differing: int = 0  # rounds whose recorded propensities are not those that their model and settings give

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it; what is not known is None."""
        found: dict[str, Any] = _plain(asdict(self))
        return found


def evaluate(
    log: Bandit | str | os.PathLike[str],
    candidates: Sequence[CandidatePolicy | str | Mapping[str, Any]],
    *,
    since: float | None = None,
    until: float | None = None,
    confidence: float = 0.95,
    weight_bound: float | None = None,
    effort: Effort = Effort(),  # noqa: B008
) -> Evaluation:
    """What other policies would have earned on the visits in the log of a bandit, or of its folder.

    A candidate is the settings of each visit with some of them replaced: "strategy=greedy", "beam=30",
    "explore=1,model=000012" or the same as a mapping. Visits before `since` and from `until` on (seconds since 1970)
    are left out, and those without an observed reward; a slot without one counts as 0. `weight_bound` is for logs whose
    propensities have a floor, see docs/evaluation.md. Intervals hold at all times at once. Visits whose settings a
    candidate cannot replace, such as a parameter that their strategy has not, are left out; if nothing else is there
    for any candidate, that is an error.

    >>> import tempfile
    >>> rng = np.random.default_rng(0)
    >>> folder = tempfile.TemporaryDirectory()
    >>> tea = Bandit.create(f"{folder.name}/tea", ["mint", "rose", "oolong", "sencha"], np.eye(4), np.eye(4))
    >>> for visit in range(100):
    ...     served = tea.decide(np.eye(4)[visit % 4], f"visit-{visit}", k=1)
    ...     tea.reward(f"visit-{visit}", {served.arms[0]: float(rng.random() < 0.5)})
    >>> found = evaluate(tea, ["strategy=greedy"])
    >>> found.rounds, found.candidates[0].name, found.candidates[0].verdict.split(":")[0]
    (100, 'strategy=greedy', 'cannot tell yet')
    >>> tea.close()
    >>> folder.cleanup()
    """
    if not isinstance(log, Bandit):
        with Bandit.open(log) as bandit:
            options = {"since": since, "until": until, "weight_bound": weight_bound}
            return evaluate(bandit, candidates, confidence=confidence, effort=effort, **options)
    found, unfit = judge_log(log, candidates, (since, until), confidence, weight_bound, effort)
    if unfit is not None and not any(result.rounds for result in found.candidates):
        raise ValueError(unfit)
    return found


def judge_log(
    log: Bandit,
    candidates: Sequence[CandidatePolicy | str | Mapping[str, Any]],
    stretch: tuple[float | None, float | None],
    confidence: float,
    weight_bound: float | None,
    effort: Effort,
) -> tuple[Evaluation, str | None]:
    """As `evaluate`, also if no candidate fits any visit; and why the first visit that did not fit does not.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Bandit.create(f"{folder}/tea", ["mint", "rose"], np.eye(2), np.eye(2)) as tea:
    ...         served = tea.decide([1, 0], "visit-1", k=1)
    ...         stored = tea.reward("visit-1", {served.arms[0]: 1.0})
    ...         found, unfit = judge_log(tea, ["beam=1"], (None, None), 0.95, None, Effort())
    >>> found.rounds, unfit
    (1, None)
    """
    check_float("confidence", confidence, 0.5, 1 - 1e-9)
    if weight_bound is not None:
        check_float("weight_bound", weight_bound, 1)
    wanted = [CandidatePolicy.of(candidate) for candidate in candidates]
    rewards = log.config.rewards
    overdue = time.time() - rewards.reward_wait
    reading = _Reading(log, wanted, overdue, effort)
    since, until = stretch
    served, begin, end = Tally(), -math.inf if since is None else since, math.inf if until is None else until
    summary = log.log.summary()
    total, done = summary.counts.decisions - summary.counts.forgotten, 0
    for chunk in log.log.entries(summary, CHUNK):
        done += len(chunk)
        new = [entry for entry in chunk if begin <= entry.stored.event.time < end]
        for batch in batches(new, log.vocabulary.columns, overdue, rewards.default_reward, rewards.limits):
            served += reading.judge(batch)
        if effort.progress is not None:
            effort.progress(done, max(total, done))
    results = tuple(reading.result(i, confidence, weight_bound) for i in range(len(wanted)))
    interval = served.served_interval(confidence)
    as_served = Estimate(served.served.mean, interval.low, interval.high)
    found = Evaluation(served.rounds, confidence, as_served, results, reading.differing)
    return found, next(iter(reading.unfit.values()), None)


class _Reading:
    """Adds up what batches say about candidates."""

    def __init__(self, bandit: Bandit, candidates: Sequence[CandidatePolicy], overdue: float, effort: Effort) -> None:
        self.bandit, self.candidates, self.overdue, self.effort = bandit, candidates, overdue, effort
        self.silent = 0  # visits from before `overdue` that have no reward
        self.kept = bandit.folder.models()
        self.tallies = [Tally() for _ in candidates]
        self.differing = 0  # rounds whose propensities are not those that their model and settings give
        self.left_out: list[Counter[str]] = [Counter() for _ in candidates]
        self.unfit: dict[int, str] = {}  # why the first visit that does not fit a candidate does not
        self.model = lru_cache(MODELS)(self._load)
        self.lists: dict[str, Ints | None] = {}  # of the batch at hand: arms by the name of their list
        self.sets = lru_cache(MODELS)(self._sets)
        self.cuts = lru_cache(MODELS)(lambda name: cuts(self.model(name).tree))
        self.tree = lru_cache(MODELS)(lambda name: tree_id(self.model(name).tree))
        for candidate in candidates:
            if candidate.model is not None and candidate.model not in self.kept:
                raise ValueError(f"there is no model {candidate.model!r}; kept are {', '.join(self.kept)}")

    def _load(self, name: str) -> Model:
        return Model.load(self.bandit.folder.model_path(name))

    def _sets(self, name: str) -> ArmSets:
        return ArmSets(lambda named: self.lists.get(named), self.bandit.snapshot.arms, self.model(name).tree)

    def _part(self, batch: LoggedBatch, rows: Bools, why: str) -> LoggedBatch:
        """Some of a batch; the others are left out for all candidates."""
        if rows.all():
            return batch
        for left in self.left_out:
            left[why] += int((~rows).sum())
        return batch.part(rows)

    def _listed(self, batch: LoggedBatch) -> LoggedBatch:
        """Without visits whose list of arms was deleted after they were read. The lists of the others are held."""
        names = {event.eligible for event in batch.events if event.eligible}
        held = {name: arms for name, arms in self.lists.items() if name in names and arms is not None}
        sets = self.bandit.logged_sets()
        self.lists = {name: held[name] if name in held else sets(name) for name in names}
        there = [not event.eligible or self.lists[event.eligible] is not None for event in batch.events]
        return self._part(batch, np.array(there, np.bool_), UNLISTED)

    def judge(self, batch: LoggedBatch) -> Tally:
        """Adds a batch to the tallies of all candidates; returns what it says about what was served."""
        seen: Bools = np.asarray(~np.isnan(batch.rewards).all(axis=1))
        self.silent += sum(e.time <= self.overdue for e, has in zip(batch.events, seen, strict=True) if not has)
        batch = self._part(batch, seen, UNREWARDED)
        batch = self._listed(batch)
        if len(batch) == 0:
            return Tally()
        if not batch.model:
            for left in self.left_out:
                left[ELSEWHERE] += len(batch)
            return Tally()
        kept = batch.model in self.kept
        asked: dict[str, list[int]] = {}  # candidates by the model that they decide with
        policy_of: dict[int, Policy] = {}
        for i, candidate in enumerate(self.candidates):
            name = candidate.model or batch.model
            if name not in self.kept:
                self.left_out[i][GONE] += len(batch)
            elif candidate.model is not None and self.model(name).epoch > batch.epoch:
                self.left_out[i][TAUGHT] += len(batch)
            elif (policy := self._fitted(i, batch.policy)) is None:
                self.left_out[i][UNFIT] += len(batch)
            else:
                policy_of[i] = policy
                asked.setdefault(name, []).append(i)
        served = None
        for name in sorted(asked.keys() | ({batch.model} if kept else set()), key=lambda name: name != batch.model):
            mine = asked.get(name, [])
            policies = [policy_of[i] for i in mine]
            same = kept and self.tree(name) == self.tree(batch.model)
            own = [self._policy(batch.policy)] if name == batch.model else []
            found = self._chances(batch, [*own, *policies], name, self.cuts(name) if same else NO_GROUPS)
            if own:
                served = found.pop(0)
                self._compare(batch, served)
            for i, chances in zip(mine, found, strict=True):
                judged = judged_rounds(batch, chances, served if same else None)
                self.tallies[i] += Tally.of(judged, self.tallies[i].baseline())
        nothing = np.zeros_like(batch.rewards)
        as_logged = SlotChances(batch.propensities, batch.arms, nothing, nothing, _nothing(batch))
        return Tally.of(judged_rounds(batch, as_logged, None))

    def _fitted(self, i: int, served: PolicyConfig) -> Policy | None:
        """The policy of a candidate on visits of these settings, which may have no such parameter or too few slots."""
        try:
            policy = self._policy(self.candidates[i].applied(served))
            if policy.k > served.k:
                slots = f"decisions of {served.k} slots, which say nothing about more"
                raise ValueError(f"k is {policy.k}; the log has {slots}")
        except ValueError as error:
            self.unfit.setdefault(i, str(error))
            return None
        return policy

    def result(self, i: int, confidence: float, weight_bound: float | None) -> CandidateResult:
        """What all batches said about a candidate."""
        left = dict(self.left_out[i])
        found = judge(self.candidates[i].name, self.tallies[i], left, confidence, None, weight_bound)
        notes = [] if i not in self.unfit else [f"does not fit some visits: {self.unfit[i]}"]
        if self.silent and found.rounds:
            notes.append(SILENT.format(self.silent))
        return replace(found, notes=(*found.notes, *notes))

    def _policy(self, config: PolicyConfig) -> Policy:
        return replace(config.make_policy(), threads=self.effort.threads)

    def _compare(self, batch: LoggedBatch, served: SlotChances) -> None:
        exact = np.isclose(served.probability, batch.propensities, rtol=1e-6, atol=0) | (batch.arms < 0)
        self.differing += int((~exact).any(axis=1).sum())

    def _chances(self, batch: LoggedBatch, policies: list[Policy], name: str, groups: Ints) -> list[SlotChances]:
        """Of each policy, for as many of the slots as it has."""
        model, allowed = self.model(name), self.sets(name).of(batch.events)
        known = np.minimum(batch.arms, model.n_arms - 1).astype(np.int32)  # the model may be older than an arm
        shown = np.cumsum(batch.arms != known, axis=1) == 0
        found: dict[int, SlotChances] = {}
        for slots in {min(policy.k, known.shape[1]) for policy in policies}:
            mine = [i for i, policy in enumerate(policies) if min(policy.k, known.shape[1]) == slots]
            arms = np.ascontiguousarray(known[:, :slots])
            chances = shared_chances([policies[i] for i in mine], model, batch.x, arms, allowed, groups)
            for i, c in zip(mine, chances, strict=True):
                found[i] = replace(c, probability=c.probability * shown[:, :slots])
        return [found[i] for i in range(len(policies))]


def cuts(tree: Tree) -> Ints:
    """(HEIGHTS, n_arms): the node of each arm at each height, its leaf first.

    >>> cuts(Tree(parents=[-1, 0, 0, 1], leaf_of=[3, 2]))
    array([[3, 2],
           [1, 0]], dtype=int32)
    """
    above = [tree.leaf_of]
    while len(above) < HEIGHTS:
        above.append(np.maximum(tree.parents[above[-1]], 0))
    return np.stack(above).astype(np.int32)


def judged_rounds(batch: LoggedBatch, chances: SlotChances, served: SlotChances | None) -> Judged:
    """A batch as a candidate with these chances sees it; `served` are those under the policy that served.

    >>> import json
    >>> from treetop.bandit.config import PolicyConfig
    >>> from treetop.bandit.logged_batches import contexts
    >>> one, none = np.ones((1, 1)), np.zeros((1, 1, 0))
    >>> batch = LoggedBatch("000000", 0, PolicyConfig(), [], contexts([], 3), one.astype(np.int32), 0.5 * one, one)
    >>> judged_rounds(batch, SlotChances(one, one, one, one, none), None).prefix_weights()
    array([[2.]])
    """
    slots = chances.probability.shape[1]
    filled = batch.arms[:, :slots] >= 0
    rewards: Floats = np.nan_to_num(batch.rewards)
    ratio = _nothing(batch)[:, :slots]
    if served is not None and served.grouped.shape[2]:
        below = served.grouped[:, :slots]
        ratio = np.divide(chances.grouped, below, out=np.full_like(below, np.nan), where=below > 0)
        ratio = np.where(filled[:, :, None], ratio, 1.0)
    return Judged(
        np.where(filled, batch.propensities[:, :slots], 0.0),
        np.where(filled, chances.probability, 0.0),
        np.where(filled, rewards[:, :slots], 0.0),
        rewards.sum(axis=1),
        np.clip(chances.score, 0, 1),
        np.clip(chances.expected, 0, 1),
        ratio,
        filled,
        np.asarray((batch.arms >= 0).sum(axis=1), np.float64),
    )


def _nothing(batch: LoggedBatch) -> Floats:
    return np.zeros((*batch.arms.shape, 0))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
