"""Lines of dsjson become decisions in a bandit's log: all of a file, or nothing of it.

A line of this bandit's own export becomes the decision that it was, to the last bit; any other one of `imported.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from treetop.arrays import check_int
from treetop.bandit.arm_index import ArmId, arm_text
from treetop.bandit.bandit import Bandit
from treetop.bridges.dsjson import context_row, lot
from treetop.bridges.dsjson_lines import DsjsonLine, read_lines
from treetop.bridges.imported import CHUNK, Imported, Importer, total_counts
from treetop.errors import ForeignLog, UnknownArm
from treetop.log.records import Counts, Entry
from treetop.log.transfer import Record, entry_of
from treetop.policy.policy import MAX_SLOTS


@dataclass(frozen=True)
class DsjsonImport:
    """What an import did. `known` decisions were in the log before; `not_shown` lines had never been seen by anybody;
    `thinned` were left out because fewer lines like the others had been written (`pdrop`); `unknown_features` values
    have no name in the vocabulary; `arms_added` arms are new.

    >>> DsjsonImport(decisions=2, rewards=3).known
    0
    """

    decisions: int
    rewards: int
    known: int = 0
    not_shown: int = 0
    thinned: int = 0
    unknown_features: int = 0
    arms_added: int = 0


def import_dsjson(
    bandit: Bandit,
    path: str | os.PathLike[str],
    *,
    arm_id: str | None = None,
    add_arms: bool = False,
    reward_range: tuple[float, float] = (0.0, 1.0),
    progress: Callable[[int], None] = lambda done: None,
) -> DsjsonImport:
    """Adds the decisions of a file to a bandit's log. Lines are of cb, ccb or slates, as they come.

    `arm_id` says where an action has the id of its arm; without it, at `_tag` or in a feature `id`. Arms that the
    catalogue has not raise UnknownArm, or with `add_arms` are added first. Rewards, which are negated costs, lie in
    `reward_range`, which becomes [0, 1]; the reward of a slate becomes that of each slot. Lines with different `pdrop`
    are thinned, at random by their ids, to the share of those of which most were dropped: a log has no weights.

    >>> import tempfile
    >>> from treetop.bridges.dsjson_export import export_dsjson
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...         served = tea.decide(np.ones(4), "visit-1", k=2)
    ...         tea.reward("visit-1", {served.arms[0]: 1.0})
    ...         _ = export_dsjson(tea, f"{folder}/log.dsjson")
    ...     with Bandit.create(f"{folder}/other", X=np.eye(4), Y=np.eye(4)) as other:
    ...         found = import_dsjson(other, f"{folder}/log.dsjson")
    ...         found.decisions, found.rewards, other.served(other.event("visit-1").event).arms == served.arms
    (1, 1, True)
    """
    source = Path(path)
    survey = _Survey(bandit)
    for _ in read_lines(source, arm_id, reward_range, survey.add):
        pass  # whatever is wrong with a line is found now, before anything is written
    if survey.unknown and not add_arms:
        some = ", ".join(map(repr, list(survey.unknown)[:3]))
        raise UnknownArm(
            f"{source} has {len(survey.unknown):,} arms that are not in the catalogue, such as {some}; "
            "add_arms (--add-arms) adds them"
        )
    if survey.unknown:
        bandit.add_arms(survey.unknown)
    counts, kept = survey.counts(), survey.kept
    lines = (line for line in read_lines(source, arm_id, reward_range) if line is not None and kept(line))
    maker = _Maker(bandit, progress)
    restored = maker.importer.write(maker.entries(lines), counts)
    return DsjsonImport(
        restored.decisions,
        restored.rewards,
        restored.known,
        survey.not_shown,
        survey.thinned,
        maker.unknown,
        len(survey.unknown),
    )


class _Survey:
    """The first reading of a file: what it has, and what the bandit has not."""

    def __init__(self, bandit: Bandit) -> None:
        self.bandit, self.arms = bandit, bandit.snapshot.arms
        self.unknown: dict[ArmId, None] = {}
        self.not_shown = self.thinned = 0
        self.lines: list[tuple[float, float, int, int]] = []  # weight, lot, slots, rewards
        self.heaviest = 1.0

    def add(self, line: DsjsonLine | None) -> None:
        if line is None:
            self.not_shown += 1
            return
        slots, rewards = len(line.slots), sum(slot.reward == slot.reward for slot in line.slots)
        check_int(f"the slots of event {line.event_id!r}", slots, 1, MAX_SLOTS)
        self.unknown |= {arm: None for arm in line.listed if self.arms.position(arm) is None and arm_text(arm)}
        self.bandit.snapshot.bounded(context_row(line.context, self.bandit.vocabulary, line.own is not None)[0])
        self.heaviest = max(self.heaviest, line.weight)
        self.lines.append((line.weight, lot(line.event_id), slots, rewards))

    def kept(self, line: DsjsonLine) -> bool:
        return lot(line.event_id) < line.weight / self.heaviest

    def counts(self) -> Counts:
        """Of the lines that are kept."""
        kept = [(slots, rewards) for weight, drawn, slots, rewards in self.lines if drawn < weight / self.heaviest]
        self.thinned = len(self.lines) - len(kept)
        return total_counts([slots for slots, _ in kept], [rewards for _, rewards in kept])


def _own_record(line: DsjsonLine, owner: str) -> Record | None:
    """What treetop wrote of a decision, if it was this bandit's."""
    if line.own is None or line.own.get("bandit") != owner:
        return None
    return msgspec.convert(line.own["record"], Record)


class _Maker:
    """Entries of a bandit's log from lines."""

    def __init__(self, bandit: Bandit, progress: Callable[[int], None]) -> None:
        self.bandit, self.importer, self.progress = bandit, Importer(bandit), progress
        self.owner = bandit.folder.state().bandit
        self.unknown = 0

    def entries(self, lines: Iterable[DsjsonLine]) -> Iterator[Entry]:
        for done, line in enumerate(lines):
            own = _own_record(line, self.owner)
            if own is None:
                yield self.importer.entry(self._foreign(line))
            else:
                self._check_catalogue(line, own)
                made = entry_of(own)
                yield self.importer.numbered(made.stored, made.arms)
            if done % CHUNK == 0:
                self.progress(done)

    def _check_catalogue(self, line: DsjsonLine, own: Record) -> None:
        """A copy of the bandit whose arms changed separately means others by the same numbers."""
        ids = self.bandit.snapshot.arms.ids
        for arm, slot in zip(own.arms, line.slots, strict=True):
            if arm >= len(ids) or str(ids[arm]) != str(slot.arm):
                raise ForeignLog(
                    f"event {line.event_id!r} has arm {slot.arm!r} at {arm}, where this catalogue has another: the "
                    f"file is of a copy of bandit {self.owner} whose arms changed separately; nothing was imported"
                )

    def _foreign(self, line: DsjsonLine) -> Imported:
        row, unknown = context_row(line.context, self.bandit.vocabulary, line.own is not None)
        self.unknown += unknown
        free = line.own is not None and not line.own["record"]["eligible"]  # the list may have been cut
        slots = self.bandit.snapshot.arms.find(slot.arm for slot in line.slots)
        chances, rewards = (
            np.array([getattr(slot, name) for slot in line.slots]) for name in ("probability", "reward")
        )
        return Imported(line.event_id, line.time, row, slots, chances, rewards, None if free else line.listed)
