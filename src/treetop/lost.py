"""What contexts miss since an arm that they wanted fell, and which arms may bring it now.

A fall says that something changed: what the arm brought may be had of another one, its heir. It is worth looking for
where the fallen arm was wanted, among all arms that have not earned since.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.learn import Linear
from treetop.settle import Standing
from treetop.types import Bools, Feedback, Floats, Ints, Longs, Singles

FALLEN, BEFORE = 16, 4096  # arms whose heirs are looked for; rounds before a fall that tell where one was wanted
SURE = 3  # rewards where a fallen arm was wanted that it takes to be its heir, and half of what there was to have
HEIRS = 1  # that a fallen arm has an heir counts as if so many had been looked for and found


@dataclass(frozen=True, eq=False)
class Lost:
    """What drawing arms promises where fallen ones were wanted.

    `missed`, a linear function of [x; 1] and last the most that it says of any context, is that of an arm on average.
    `heirs` says how many times as much each arm promises, `of_arm` how much that is in a usual context.
    """

    missed: Singles
    heirs: Singles
    of_arm: Floats

    @classmethod
    def of(cls, feedback: Feedback, standing: Standing, solver: Linear) -> tuple[Lost | None, Standing]:
        """None if nothing is missed; and the standing of arms: those drawn as heirs are not told of any more.

        >>> X, shown = np.ones((90, 1), np.float32), np.zeros((90, 1), np.int32)
        >>> feedback = Feedback(X, shown, None, np.repeat([1.0, 0.0], [60, 30])[:, None])  # arm 0 earns, then no more
        >>> lost, _ = Lost.of(feedback, Standing.of(feedback, np.ones(3, bool)), Linear())
        >>> lost.heirs.round(2).tolist()  # arm 0 was seen to fail, the others never tried
        [0.0, 1.5, 1.5]
        """
        arms, rate = _fallen(feedback, standing.since)
        if not len(arms):
            return None, standing
        wanted = _Wanted.of(feedback, arms, standing.since[arms], solver)
        standing = wanted.disowned(feedback, standing)
        seen = wanted.seen(feedback, standing)
        n = len(standing.told)
        many = np.maximum(1, n - seen.earned)  # arms that may be the heir
        left = seen.unnoticed.sum(axis=1) + n - len(seen.arms)  # so many of them as good as untried
        looked = (1 - left / many)[~seen.found].sum()
        share = (seen.found.sum() + HEIRS) / (looked + seen.found.sum() + HEIRS)  # of fallen arms that have one
        worth = np.where(seen.found, 0, rate * wanted.since / 2 * share / many)  # of a draw, if none was tried yet
        mean = worth * left / n
        if not mean.any():
            return None, standing
        heirs = np.full(n, worth.sum())
        heirs[seen.arms] = worth @ seen.unnoticed
        heirs *= n / heirs.sum()
        missed = np.append(mean @ wanted.weights, mean.sum())
        return cls(missed.astype(np.float32), heirs.astype(np.float32), mean @ seen.wanted * heirs), standing


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
class _Seen:
    """`arms` that were shown since arms fell, and of each fallen one: how often it was `wanted` since; the chance that
    these would have gone `unnoticed` as its heir, (fallen, arms), 0 for one that earned; how many `earned`; whether the
    heir was `found`."""

    arms: Ints
    wanted: Floats
    unnoticed: Floats
    earned: Longs
    found: Bools


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

    def disowned(self, feedback: Feedback, standing: Standing) -> Standing:
        """Arms that labels tell of, but that paid when drawn unseen where a fallen arm was wanted: labels are over.

        Not if they were shown by their score and earned since that fell: then they are what they were.
        """
        paid = feedback.observed & (np.nan_to_num(feedback.rewards) > 0)
        t, slot = np.nonzero(paid & (feedback.nodes >= 0) & standing.told[np.maximum(feedback.arms, 0)])
        wanted = self.by(feedback, t) / self.usual
        sure = np.flatnonzero(wanted.max(axis=1, initial=0) > 0.5)
        arm, first = np.unique(feedback.arms[t, slot][sure], return_index=True)
        t, since = t[sure][first], self.since[wanted[sure][first].argmax(axis=1)]
        shown = paid & (feedback.nodes < 0)
        same = [
            not (shown[begun:now] & (feedback.arms[begun:now] == a)).any()
            for a, begun, now in zip(arm, since, t, strict=True)
        ]
        return standing.anew(feedback, arm[same], since[same])

    def seen(self, feedback: Feedback, standing: Standing) -> _Seen:
        """What the rounds since say of arms, as far as these count."""
        first = int(self.since.min())
        t, slot = np.nonzero(standing.counted[first:])
        arms, arm = np.unique(feedback.arms[first:][t, slot], return_inverse=True)
        reward = np.clip(feedback.rewards[first:][t, slot], 0, 1)
        wanted = self.by(feedback, np.arange(first, len(feedback)))
        coming = wanted[::-1].cumsum(axis=0)[::-1]  # (rounds, fallen): how often each was wanted from there on
        begun = np.full(len(arms), len(wanted) - 1)  # the round of the first reward
        np.minimum.at(begun, arm[reward > 0], t[reward > 0])
        unnoticed, earned, found = np.ones((len(self.arms), len(arms))), [], []
        for i, since in enumerate(self.since - first):
            bad, good = (np.bincount(arm, wanted[t, i] * part, len(arms)) for part in (1 - reward, reward))
            late = t >= since
            pays = np.bincount(arm[late], reward[late], len(arms)) > 0
            unnoticed[i] = np.where(pays, 0, np.exp(-bad))
            earned.append(pays.sum())
            enough = (good >= SURE) & (good >= coming[begun, i] / 2)
            found.append((enough & ~standing.told[arms]).any())
        mean = wanted.sum(axis=0) / np.maximum(1, len(feedback) - self.since)
        return _Seen(arms.astype(np.int32), mean, unnoticed, np.array(earned), np.array(found))


def _before(feedback: Feedback, arm: int, until: int) -> tuple[Ints, Singles]:
    """The rounds before an arm fell that tell where it was wanted, and its rewards in these."""
    rounds = np.arange(max(0, until - BEFORE), until, dtype=np.int32)
    here = feedback.arms[rounds] == arm
    known = ~(here & ~feedback.observed[rounds]).any(axis=1)
    paid = np.where(here, np.clip(np.nan_to_num(feedback.rewards[rounds]), 0, 1), 0).sum(axis=1)
    return rounds[known], paid[known].astype(np.float32)
