"""What contexts miss since an arm that they wanted fell, and which arm may bring it now.

A fall says that something changed: what the arm brought may be had of another one, its heir. It is worth looking for
where the fallen arm was wanted, among all arms that have not earned since: each is tried there once. One that is
rewarded takes over what is known of the fallen arm, and keeps it as long as that is true of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Bools, Floats, Ints, Longs, Singles
from treetop.learning.linear import Linear, by_group
from treetop.learning.placement import Heir, Standing
from treetop.records import Feedback

FALLEN, BEFORE = 16, 4096  # arms whose heirs are looked for; rounds before a fall that tell where one was wanted
RULED = 0.5  # an arm that would have gone unnoticed as the heir by no more than this chance is not tried again
HEIRS = 4  # that a fallen arm has an heir counts as if so many had been looked for and found
FEW = 2  # an heir is sought if it would be wanted once for so many suspects
HASTE = 0.75  # the part of what the fallen arm brought that trying one suspect is worth then
MAYBE = 0.2  # the part of what a fallen arm usually brought that a context must promise for a reward there to matter
SURE = 3  # rewards after which the search is over


@dataclass(frozen=True, eq=False)
class Lost:
    """Of each fallen arm whose heir is sought `missed` has a linear function of [x; 1], what trying a suspect is worth,
    and the most that it says; `ruled` has the arms that are not suspects, and -1."""

    missed: Singles
    ruled: Ints

    @classmethod
    def of(cls, feedback: Feedback, standing: Standing, solver: Linear) -> tuple[Lost | None, list[Heir]]:
        """None if no heir is sought; and the heirs that were found.

        The search takes half as many draws as there are suspects. If it is worth it at all, haste is: a draw costs the
        same today or tomorrow, but to do without costs every day.

        >>> X, shown = np.ones((90, 1), np.float32), np.zeros((90, 1), np.int32)
        >>> feedback = Feedback(X, shown, None, np.repeat([1.0, 0.0], [60, 30])[:, None])  # arm 0 earns, then no more
        >>> Lost.of(feedback, Standing.of(feedback, np.ones(3, bool)), Linear())[0].ruled.tolist()  # it is not its heir
        [0, -1]
        """
        arms, rate = _fallen(feedback, standing.since)
        if not len(arms):
            return None, []
        wanted = _Wanted.of(feedback, arms, standing.since[arms], solver)
        heirs, sure = wanted.heirs(feedback, standing)
        out, earned = wanted.ruled(feedback, standing)
        many = np.maximum(1, len(standing.told) - earned)  # arms that could be the heir when it fell
        left = len(standing.told) - np.array([len(ruled) for ruled in out])
        looked = 1 - left / many
        share = (sure.sum() + HEIRS) / (looked[~sure].sum() + sure.sum() + HEIRS)  # of fallen arms that have one
        chance = share * (1 - looked) / np.maximum(1 - share * looked, 1e-9)  # that it is among those left
        often = rate / wanted.usual * wanted.since / 2  # it would be wanted, in half as many rounds as there were
        tries = np.maximum(1, -np.log(RULED) / wanted.usual)  # that it takes to rule one out
        sought = np.flatnonzero(~sure & (left > 0) & (FEW * often * chance > left * tries))
        if not len(sought):
            return None, heirs
        missed = HASTE * np.column_stack([wanted.weights[sought], np.ones(len(sought))])
        ruled = np.concatenate([np.append(out[i], -1) for i in sought])
        return cls(missed.astype(np.float32).ravel(), ruled.astype(np.int32)), heirs


def _fallen(feedback: Feedback, since: Longs) -> tuple[Ints, Floats]:
    """The arms that earned most before they fell, the latest first, and how much a round."""
    t, slot = np.nonzero(feedback.observed)
    arm = feedback.arms[t, slot]
    before = (t < since[arm]) & (t >= since[arm] - BEFORE)
    arm, paid = arm[before], np.clip(feedback.rewards[t, slot][before], 0, 1)
    rate = np.bincount(arm, paid, len(since)) / np.clip(since, 1, BEFORE)
    most = np.argsort(-rate * since, kind="stable")[:FALLEN]
    most = most[rate[most] > 0]
    return most.astype(np.int32), rate[most]


@dataclass(frozen=True, eq=False)
class _Wanted:
    """Fallen arms, since when, linear functions of [x; 1] that say where each was wanted, and what they say where it
    was rewarded."""

    arms: Ints
    since: Longs
    weights: Floats  # (fallen, columns)
    usual: Floats

    @classmethod
    def of(cls, feedback: Feedback, arms: Ints, since: Longs, solver: Linear) -> _Wanted:
        """Ridge regression of each arm's rewards in the rounds before it fell; 0 where it was not shown."""
        parts = [_before(feedback, int(arm), int(until)) for arm, until in zip(arms, since, strict=True)]
        start = np.concatenate([[0], np.cumsum([len(rounds) for rounds, _ in parts])]).astype(np.int64)
        rounds, paid = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        weights = solver.solve(feedback.contexts, start, rounds, paid).csr().toarray().astype(np.float64)
        usual = []
        for w, (some, reward) in zip(weights, parts, strict=True):
            x = feedback.contexts.csr()[some[reward > 0]]
            usual.append(float(np.average(x @ w[:-1] + w[-1], weights=reward[reward > 0])))
        return cls(arms, since, weights, np.maximum(usual, 0.01))

    def by(self, feedback: Feedback, rounds: Longs) -> Floats:
        """(rounds, fallen): what each fallen arm would have brought, were it as before; 0 before it fell."""
        x = feedback.contexts.csr()[rounds]
        wanted = np.clip(x @ self.weights[:, :-1].T + self.weights[:, -1], 0, 1)
        return np.asarray(wanted * (rounds[:, None] >= self.since))

    def heirs(self, feedback: Feedback, standing: Standing) -> tuple[list[Heir], Bools]:
        """Arms whose first reward since an arm fell came of a draw where that was wanted, each for one at most; and of
        which fallen arms somebody surely brings what they did. Who brings less than half of it is no heir."""
        t, slot = np.nonzero(standing.counted)
        arm, reward = feedback.arms[t, slot], np.clip(feedback.rewards[t, slot], 0, 1)
        drawn = np.flatnonzero((feedback.nodes[t, slot] >= 0) & (reward > 0) & (t >= self.since.min()))
        near = drawn[(self.by(feedback, t[drawn]) > MAYBE * self.usual).any(axis=1)]
        start, order = by_group(arm, len(standing.told))
        found, sure = [], np.zeros(len(self.arms), np.bool_)
        for a in np.unique(arm[near]).tolist():
            mine = order[start[a] : start[a + 1]]
            when, paid, wanted = t[mine], reward[mine], self.by(feedback, t[mine])
            for i, since in enumerate(self.since.tolist()):
                rewarded = np.flatnonzero((when >= since) & (paid > 0))[:1]
                if not len(rewarded) or feedback.nodes[when[rewarded[0]], slot[mine[rewarded[0]]]] < 0:
                    continue
                first, later = int(rewarded[0]), slice(int(rewarded[0]) + 1, None)
                where = float(wanted[first, i] / self.usual[i] * min(1, paid[first] / self.usual[i]))
                brought, half = float(wanted[later, i] @ paid[later]), float(wanted[later, i] @ wanted[later, i]) / 2
                if where > MAYBE and brought + 1 >= half:
                    found.append((brought - half + where, Heir(int(self.arms[i]), a)))
                    sure[i] |= brought >= SURE
        taken: dict[int, Heir] = {}
        for _, heir in sorted(found, key=lambda each: -each[0]):
            if heir.of not in taken and heir.arm not in {other.arm for other in taken.values()}:
                taken[heir.of] = heir
        return list(taken.values()), sure

    def ruled(self, feedback: Feedback, standing: Standing) -> tuple[list[Ints], Longs]:
        """Of each fallen arm, the arms that are not its heir: they earned since, or would have been noticed where it
        was wanted; and how many earned."""
        first = int(self.since.min())
        t, slot = np.nonzero(standing.counted[first:])
        arms, arm = np.unique(feedback.arms[first:][t, slot], return_inverse=True)
        reward = np.clip(feedback.rewards[first:][t, slot], 0, 1)
        wanted = self.by(feedback, np.arange(first, len(feedback)))
        out, earned = [], []
        for i, since in enumerate(self.since - first):
            pays = np.bincount(arm, reward * (t >= since), len(arms)) > 0
            missed = np.bincount(arm, wanted[t, i] * (1 - reward), len(arms)) >= -np.log(RULED)
            out.append(arms[pays | missed].astype(np.int32))
            earned.append(pays.sum())
        return out, np.array(earned)


def _before(feedback: Feedback, arm: int, until: int) -> tuple[Ints, Singles]:
    """The rounds before an arm fell that tell where it was wanted, and its rewards in these."""
    rounds = np.arange(max(0, until - BEFORE), until, dtype=np.int32)
    here = feedback.arms[rounds] == arm
    known = ~(here & ~feedback.observed[rounds]).any(axis=1)
    paid = np.where(here, np.clip(np.nan_to_num(feedback.rewards[rounds]), 0, 1), 0).sum(axis=1)
    return rounds[known], paid[known].astype(np.float32)
