"""What candidate policies would have earned, by a log or sealed segments: one pass, bounded memory. Changes nothing.

A visit says something about a candidate only with the model that the candidate decides with: the one that served the
visit, if it is still kept, or the one it names, if that had not learned from the visit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from treetop.arrays import Bools, Ints, check_float
from treetop.bandit.bandit import Bandit
from treetop.bandit.candidate_chances import HEIGHTS, Answering, Question
from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.config import PolicyConfig
from treetop.bandit.logged_batches import LoggedBatch, ahead, batches
from treetop.bandit.spread_tallies import Known, SpreadTallies
from treetop.bandit.visits import Source, Visits, logged_visits, opened
from treetop.display import Columns, as_json, counted, html_table
from treetop.effort import Effort
from treetop.evaluation.estimators import Estimator
from treetop.evaluation.tallies import Tallies
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import CandidateResult, Estimate, judge
from treetop.log.rounds import score_line
from treetop.model.model import Model
from treetop.parallel import Machines, all_cores
from treetop.policy.policy import Policy, expect

UNREWARDED, GONE, TAUGHT = "without a reward yet", "decided by a model that is not kept", "taught the model"
SILENT = (
    "{} no reward though reward_wait is over: estimates hold only if whether a reward comes does not "
    "depend on what was shown; if none means 0, set default_reward = 0 in config.toml"
)
NO_VISITS = "there are no visits with rewards to judge by"
ELSEWHERE = "decided by another system"
UNLISTED, UNFIT = "their list of arms is not in the log", "its settings do not fit the visit"


@dataclass(frozen=True)
class Evaluation:
    """What a log says about candidates: `served` is the reward of a visit as it was, over all `rounds`. Rewards are in
    their own units, those of `[rewards] low` and `high`.

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
        found: dict[str, Any] = as_json(asdict(self))
        return found

    def _repr_html_(self) -> str:
        """The candidates as a table of a notebook."""
        title = f"{self.rounds:,} visits brought {self.served} each as served ({self.confidence:.0%} intervals)"
        columns: Columns = {
            "policy": [each.name for each in self.candidates],
            "a visit": [each.described(each.per_visit) for each in self.candidates],
            "against served": [each.described(each.difference) for each in self.candidates],
            "effective rounds": [round(each.effective) for each in self.candidates],
            "largest weight": [each.largest_weight for each in self.candidates],
            "verdict": [each.verdict for each in self.candidates],
            "notes": ["; ".join(each.notes) for each in self.candidates],
        }
        return html_table(title, columns)


def evaluate(
    log: Source,
    candidates: Sequence[CandidatePolicy | str | Mapping[str, Any]],
    *,
    since: float | None = None,
    until: float | None = None,
    confidence: float = 0.95,
    weight_bound: float | None = None,
    estimator: str | None = None,
    effort: Effort = Effort(),  # noqa: B008
) -> Evaluation:
    """What other policies would have earned on the visits in the log of a bandit, in another log or in segments.

    `log` is a Bandit, or the path of its folder, of its SQLite log or of its sealed segments. Models and settings are
    in the bandit's folder alone: for a log elsewhere, which may be a postgresql:// address, `log` is a pair of both.

    A candidate is the settings of each visit with some of them replaced: "strategy=greedy", "beam=30",
    "explore=1,model=000012" or the same as a mapping. Visits before `since` and from `until` on (seconds since 1970)
    are left out, and those without an observed reward; a slot without one counts as 0. `weight_bound` is for logs whose
    propensities have a floor, see docs/evaluation.md. A rule chooses between whole slates and slots, or `estimator`
    does by name, such as "snips-slate", "snips-nodes-0" or "dr-slots": those of `others` of a result. Intervals hold at
    all times at once, but for those of "dr-..." and "offcem-...". Visits whose settings a candidate cannot replace,
    such as a parameter that their strategy has not, are left out; if nothing else is there for any candidate, that is
    an error. With `effort.ray` a cluster does the work, through files in `effort.folder` or the bandit's, with the same
    result.

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
    with opened(log) as (bandit, visits):
        how = confidence, weight_bound, effort, estimator
        found, unfit = judge_log(bandit, candidates, (since, until), *how, visits=visits)
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
    estimator: str | None = None,
    visits: Visits | None = None,
) -> tuple[Evaluation, str | None]:
    """As `evaluate` of these visits, or of all in the bandit's log, also if no candidate fits any of them; and why the
    first visit that did not fit does not.

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
    heights = _heights(log, estimator)
    wanted = [CandidatePolicy.of(candidate) for candidate in candidates]
    rewards = log.config.rewards
    overdue = time.time() - rewards.reward_wait
    since, until = stretch
    served, begin, end = Tally(), -math.inf if since is None else since, math.inf if until is None else until
    visits = visits or logged_visits(log.log)
    log.refresh()  # so that all arms of the rounds up to now are known
    done = 0
    with _tallies(log, len(wanted), weight_bound, heights, effort) as tallies:
        reading = _Reading(log, wanted, overdue, tallies, effort, heights, visits.note)
        for chunk in ahead(visits.chunks):
            done += len(chunk)
            for batch in batches(chunk, log.vocabulary.columns, overdue, rewards.default_reward, rewards.limits):
                served += reading.judge(batch.part((begin <= batch.times) & (batch.times < end)))
            if effort.progress is not None:
                effort.progress(done, max(visits.total, done))
        results = tuple(reading.result(i, confidence, weight_bound, estimator) for i in range(len(wanted)))
        differing = reading.differing + (tallies.differing if isinstance(tallies, SpreadTallies) else 0)
    interval = served.served_interval(confidence)
    as_served = Estimate(served.served.mean, interval.low, interval.high)
    as_served = as_served.within(rewards.limits, served.served_slots / max(served.rounds, 1))
    found = Evaluation(served.rounds, confidence, as_served, results, differing)
    return found, next(iter(reading.unfit.values()), None)


def _heights(log: Bandit, estimator: str | None) -> int:
    """How many cuts of the tree are weighed by. Raises ValueError for an estimator that the tree is too low for."""
    height = None if estimator is None else Estimator.of(estimator).height
    depth = log.snapshot.model.tree.depth
    if height is not None and height >= depth:
        raise ValueError(f"estimator is {estimator!r}; the tree has {depth} levels below its root, so H is below that")
    return max(1, min(HEIGHTS, depth), 0 if height is None else height + 1)


def _tallies(
    log: Bandit, candidates: int, bound: float | None, heights: int, effort: Effort
) -> Tallies | SpreadTallies:
    if not effort.ray:
        return Tallies(candidates, effort.threads or all_cores(), bound)
    paths = {name: str(log.folder.model_path(name).resolve()) for name in log.folder.models()}
    known = Known(paths, log.snapshot.arms, score_line(log.config.rewards.limits), heights)
    return SpreadTallies(candidates, bound, known, Machines(effort.ray), effort.folder or log.folder.path)


class _Reading:
    """Adds up what batches say about candidates."""

    def __init__(
        self,
        bandit: Bandit,
        candidates: Sequence[CandidatePolicy],
        overdue: float,
        tallies: Tallies | SpreadTallies,
        effort: Effort,
        heights: int = HEIGHTS,
        note: str = "",
    ) -> None:
        self.note = note
        self.bandit, self.candidates, self.overdue, self.effort = bandit, candidates, overdue, effort
        self.tallies = tallies
        self.nothing = bandit.config.rewards.nothing  # what a slot without a reward counts as
        self.silent = 0  # visits from before `overdue` that have no reward
        self.kept = bandit.folder.models()
        self.differing = 0  # rounds whose propensities are not those that their model and settings give
        self.left_out: list[Counter[str]] = [Counter() for _ in candidates]
        self.unfit: dict[int, str] = {}  # why the first visit that does not fit a candidate does not
        line = score_line(bandit.config.rewards.limits)  # from scores to rewards
        self.answering = Answering(self._load, bandit.snapshot.arms, line, heights)
        self.lists: dict[str, Ints | None] = {}  # of the batch at hand: arms by the name of their list
        for candidate in candidates:
            if candidate.model is not None and candidate.model not in self.kept:
                raise ValueError(f"there is no model {candidate.model!r}; kept are {', '.join(self.kept)}")

    def _load(self, name: str) -> Model:
        return Model.load(self.bandit.folder.model_path(name))

    def _part(self, batch: LoggedBatch, rows: Bools, why: str) -> LoggedBatch:
        """Some of a batch; the others are left out for all candidates."""
        if rows.all():
            return batch
        for left in self.left_out:
            left[why] += int((~rows).sum())
        return batch.part(rows)

    def _listed(self, batch: LoggedBatch) -> LoggedBatch:
        """Without visits whose list of arms was deleted after they were read. The lists of the others are held."""
        names = {name for name, _ in set(batch.lists) if name}
        held = {name: arms for name, arms in self.lists.items() if name in names and arms is not None}
        sets = self.bandit.logged_sets()
        self.lists = {name: held[name] if name in held else sets(name) for name in names}
        there = [not name or self.lists[name] is not None for name, _ in batch.lists]
        return self._part(batch, np.array(there, np.bool_), UNLISTED)

    def judge(self, batch: LoggedBatch) -> Tally:
        """Adds a batch to the tallies of all candidates; returns what it says about what was served."""
        seen: Bools = np.asarray(~np.isnan(batch.rewards).all(axis=1))
        self.silent += int((~seen & (batch.times <= self.overdue)).sum())
        batch = self._part(batch, seen, UNREWARDED)
        silent = np.isnan(batch.rewards) & (batch.arms >= 0)
        batch = replace(batch, rewards=np.where(silent, self.nothing, batch.rewards))
        batch = self._listed(batch)
        if len(batch) == 0:
            return Tally()
        if not batch.model:
            for left in self.left_out:
                left[ELSEWHERE] += len(batch)
            return Tally()
        asked: dict[str, list[tuple[int, Policy]]] = {}  # candidates by the model that they decide with
        for i, candidate in enumerate(self.candidates):
            name = candidate.model or batch.model
            if name not in self.kept:
                self.left_out[i][GONE] += len(batch)
            elif candidate.model is not None and self.answering.model(name).epoch > batch.epoch:
                self.left_out[i][TAUGHT] += len(batch)
            elif (policy := self._fitted(i, batch.policy, name)) is None:
                self.left_out[i][UNFIT] += len(batch)
            else:
                asked.setdefault(name, []).append((i, policy))
        question = Question(batch, self.lists, asked, self._policy(batch.policy), batch.model in self.kept)
        if isinstance(self.tallies, SpreadTallies):
            self.tallies.ask(question)
        else:
            self.differing += self.answering.answer(question, self.tallies.add)
        slots = np.asarray((batch.arms >= 0).sum(axis=1), np.float64)
        return Tally.as_served(np.nan_to_num(batch.rewards).sum(axis=1), slots)

    def _fitted(self, i: int, served: PolicyConfig, model: str) -> Policy | None:
        """The policy of a candidate on visits of these settings, which may have no such parameter or too few slots,
        with a model that it may not fit."""
        self.candidates[i].check_explore(max(served.k, self.bandit.config.policy.k))
        try:
            policy = self._policy(self.candidates[i].applied(served))
            if policy.k > served.k:
                slots = f"decisions of {served.k} slots, which say nothing about more"
                raise ValueError(f"k is {policy.k}; the log has {slots}")
            expect(self.answering.model(model), Model, policy)
        except ValueError as error:
            self.unfit.setdefault(i, str(error))
            return None
        return policy

    def result(self, i: int, confidence: float, weight_bound: float | None, estimator: str | None) -> CandidateResult:
        """What all batches said about a candidate."""
        left = dict(self.left_out[i])
        limits = self.bandit.config.rewards.limits
        found = judge(self.candidates[i].name, self.tallies.of(i), left, confidence, estimator, weight_bound, limits)
        notes = [] if i not in self.unfit else [f"does not fit some visits: {self.unfit[i]}"]
        if self.silent and found.rounds:
            notes.append(SILENT.format(counted(self.silent, "visit") + (" has" if self.silent == 1 else " have")))
        if self.note:
            notes.append(self.note)
        return replace(found, notes=(*found.notes, *notes))

    def _policy(self, config: PolicyConfig) -> Policy:
        return replace(config.make_policy(), threads=self.effort.threads)
