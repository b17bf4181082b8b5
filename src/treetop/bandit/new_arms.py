"""How often the arms that were added have been shown, by cohort, and how long that took. Reads the log alone.

A cohort is the arms of one call of `add_arms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop.arrays import Floats, Int64s
from treetop.bandit.arm_index import ArmIndex
from treetop.bandit.folder import model_name
from treetop.log.base import Log

TRIALS = 20  # impressions after which an arm is not new any more
STEP = 20_000  # decisions read in one transaction


@dataclass(frozen=True)
class Cohort:
    """The arms of one call of `add_arms`, first known by `model`, added at `time` (None: the history does not say).

    `shown` of them were shown at all, `enough` as often as it takes; half of those had that `median_seconds` after
    they were added, the last one `last_seconds` after. `removed` of them are removed.
    """

    model: str
    time: float | None
    arms: int
    removed: int
    shown: int
    enough: int
    impressions: int
    median_seconds: float | None
    last_seconds: float | None


class NewArms:
    """Running counts of the arms that were added. An update reads only what is new in the log. Not thread-safe.

    >>> import tempfile
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as tea:
    ...     tea.add_arms(["jam"])
    ...     _ = [tea.decide({}, eligible=["jam"]) for _ in range(20)]
    ...     counted = NewArms()
    ...     counted.update(tea.log, tea.snapshot.arms, tea.folder.history())
    ...     [(c.model, c.arms, c.shown, c.enough, c.impressions) for c in counted.cohorts(tea.snapshot.arms)]
    [('000001', 1, 1, 1, 20)]
    """

    def __init__(self, trials: int = TRIALS) -> None:
        self.trials = trials
        self._position: int | None = None  # of the last decision that was counted
        self._first = 0  # arms from here on were added
        self._counts: Int64s = np.zeros(0, np.int64)
        self._reached: Floats = np.zeros(0)  # when each arm had its trials
        self._times: dict[str, float] = {}  # when the arms of a model were added

    def update(self, log: Log, arms: ArmIndex, history: Iterable[Mapping[str, Any]] = ()) -> None:
        """Reads the decisions that are new; `history` is that of the folder, which says when arms were added."""
        self._times |= {entry["model"]: entry["time"] for entry in history if entry["kind"] == "arms added"}
        if not arms.added:
            return
        self._first = arms.added[0][0]
        more = len(arms) - self._first - len(self._counts)
        self._counts = np.concatenate([self._counts, np.zeros(more, np.int64)])
        self._reached = np.concatenate([self._reached, np.full(more, np.nan)])
        if self._position is None:
            begin = self._times.get(model_name(arms.added[0][1]), -np.inf)
            self._position = log.position_before(begin)
        while True:
            positions, times, shown = log.impressions(self._position, STEP)
            if not len(positions):
                return
            self._position = int(positions.max())
            self._add(times, shown - self._first)

    def _add(self, times: Floats, arms: Int64s) -> None:
        """Impressions in the order of the log: when, and which of the arms that were added; others are left out."""
        mine = (arms >= 0) & (arms < len(self._counts))
        times, arms = times[mine], arms[mine]
        order = np.argsort(arms, kind="stable")
        times, arms = times[order], arms[order]
        nth = np.arange(len(arms)) - np.searchsorted(arms, arms) + 1 + self._counts[arms]
        enough = nth == self.trials
        self._reached[arms[enough]] = times[enough]
        self._counts += np.bincount(arms, minlength=len(self._counts))

    def cohorts(self, arms: ArmIndex) -> list[Cohort]:
        """The newest first, as far as they were counted."""
        ends, found = [*(first for first, _ in arms.added), len(arms)][1:], []
        for (first, epoch), last in zip(arms.added, ends, strict=True):
            mine = slice(first - self._first, last - self._first)
            counts, reached, name = self._counts[mine], self._reached[mine], model_name(epoch)
            since = self._times.get(name)
            took = np.sort(reached[~np.isnan(reached)] - (np.nan if since is None else since))
            took = took[~np.isnan(took)]
            found.append(
                Cohort(
                    name,
                    since,
                    last - first,
                    int(arms.is_removed[first:last].sum()),
                    int((counts > 0).sum()),
                    int((counts >= self.trials).sum()),
                    int(counts.sum()),
                    float(np.median(took)) if len(took) else None,
                    float(took[-1]) if len(took) else None,
                )
            )
        return found[::-1]
