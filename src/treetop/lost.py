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
    """`missed`, a linear function of [x; 1], is what drawing an arm promises in a context, on average over all arms, by
    the chance that it wanted fallen ones. `heirs` says how many times as much each arm promises."""

    missed: Singles
    heirs: Singles

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
        worth = np.where(seen.found, 0, rate * len(feedback) / 2 * share / many)  # of a draw, if none was tried yet
        if not (worth * left).any():
            return None, standing
        heirs = np.full(n, worth.sum())
        heirs[seen.arms] = worth @ seen.unnoticed
        heirs *= n / heirs.sum()
        return cls((worth * left / n @ wanted.weights).astype(np.float32), heirs.astype(np.float32)), standing


def _fallen(feedback: Feedback, since: Longs) -> tuple[Ints, Floats]:
    """The arms that earned most before they fell, and how much a round."""
    t, slot = np.nonzero(feedback.observed)
    arm = feedback.arms[t, slot]
    before = (t < since[arm]) & (t >= since[arm] - BEFORE)
    arm, paid = arm[before], np.maximum(feedback.rewards[t, slot][before], 0)
    rate = np.bincount(arm, paid, len(since)) / np.clip(since, 1, BEFORE)
    most = np.argsort(-rate, kind="stable")[:FALLEN]
    most = most[rate[most] > 0]
    return most.astype(np.int32), rate[most]


@dataclass(frozen=True, eq=False)
class _Seen:
    """`arms` that were shown since arms fell, and of each fallen one: (fallen, arms) the chance that these would have
    gone `unnoticed` as its heir, 0 for one that earned; how many `earned`; whether the heir was `found`."""

    arms: Ints
    unnoticed: Floats
    earned: Longs
    found: Bools


@dataclass(frozen=True, eq=False)
class _Wanted:
    """Fallen arms, since when, and linear functions of [x; 1] that say where each was wanted."""

    arms: Ints
    since: Longs
    weights: Floats  # (fallen, columns)

    @classmethod
    def of(cls, feedback: Feedback, arms: Ints, since: Longs, solver: Linear) -> _Wanted:
        """Ridge regression of each arm's rewards in the rounds before it fell; 0 where it was not shown."""
        rows = [np.arange(max(0, until - BEFORE), until, dtype=np.int32) for until in since.tolist()]
        target = [
            np.where(feedback.arms[some] == arm, np.nan_to_num(feedback.rewards[some]), 0).sum(axis=1)
            for some, arm in zip(rows, arms, strict=True)
        ]
        start = np.concatenate([[0], np.cumsum([len(some) for some in rows])]).astype(np.int64)
        fitted = solver.solve(feedback.contexts, start, np.concatenate(rows), np.concatenate(target).astype(np.float32))
        return cls(arms, since, fitted.csr().toarray().astype(np.float64))

    def by(self, feedback: Feedback, rounds: Longs) -> Floats:
        """(rounds, fallen): the chance that each fallen arm was wanted; 0 before it fell."""
        x = feedback.contexts.csr()[rounds]
        wanted = np.clip(x @ self.weights[:, :-1].T + self.weights[:, -1], 0, 1)
        return np.asarray(wanted * (rounds[:, None] >= self.since))

    def disowned(self, feedback: Feedback, standing: Standing) -> Standing:
        """Arms that labels tell of, but that paid when drawn unseen where a fallen arm was wanted: labels are over."""
        drawn = feedback.observed & (feedback.nodes >= 0) & (np.nan_to_num(feedback.rewards) > 0)
        t, slot = np.nonzero(drawn & standing.told[np.maximum(feedback.arms, 0)])
        wanted = self.by(feedback, t)
        best = wanted.argmax(axis=1)
        sure = wanted.max(axis=1, initial=0) > 0.5
        return standing.anew(feedback, feedback.arms[t, slot][sure], self.since[best[sure]])

    def seen(self, feedback: Feedback, standing: Standing) -> _Seen:
        first = int(self.since.min())
        t, slot = np.nonzero(feedback.observed[first:])
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
        return _Seen(arms.astype(np.int32), unnoticed, np.array(earned), np.array(found))
