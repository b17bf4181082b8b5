"""The rounds that a learner learns from, on disk: what is read again and again of them, in the order of the rounds.

Memory is that of one part, however many there are. The contexts are those of the log's segments, not copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from treetop.arrays import Float32s, Floats, Int64s, Ints, Rows, as_rows
from treetop.learning.arm_routing import fold_of
from treetop.learning.arm_totals import ArmTotals
from treetop.learning.array_folder import ArrayFolder
from treetop.learning.pooled_means import first_fitted
from treetop.learning.samples import context_norms
from treetop.learning.summed_rounds import SummedRounds
from treetop.model.storage import link
from treetop.records import Feedback

T = TypeVar("T")
SLICE = 1 << 20  # numbers that are looked at together


@dataclass(frozen=True)
class Part:
    """Rounds `first` to `first + rounds`, with `slots` slots each.

    Its folder has the contexts; `fold` and `norm` of each; `arm`, `place` and `reward` of every observed reward, sorted
    by arm and then by place, which is round * slots + slot; for a learner of nodes the same of those that came through
    a node, sorted by `node`. Of rounds that are `summed` up only the samples that are still read are here: they are
    numbered as if they were all, which keeps them before the others.
    """

    path: str
    first: int
    rounds: int
    slots: int
    columns: int
    summed: bool = False

    @property
    def arrays(self) -> ArrayFolder:
        return ArrayFolder(Path(self.path))

    @property
    def contexts(self) -> Rows:
        return self.arrays.rows("context", self.columns)

    def samples(self, low: int, high: int) -> PartSamples:
        """Those of arms from low to high."""
        return self._grouped("", "arm", low, high)

    def through(self, low: int, high: int) -> PartSamples:
        """Those that came through nodes from low to high; `arm` is the node."""
        return self._grouped("node_", "node", low, high)

    def _grouped(self, kind: str, group: str, low: int, high: int) -> PartSamples:
        arrays = self.arrays
        of = arrays[group]
        first, end = np.searchsorted(of, [low, high]).tolist()
        place, reward = (arrays[kind + name][first:end] for name in ("place", "reward"))
        return PartSamples(first, of[first:end], place // np.int32(self.slots), reward)


@dataclass(frozen=True, eq=False)
class PartSamples:
    """Observed rewards of a part, by arm, each arm's in the order of the rounds; `first` is the place of the first."""

    first: int
    arm: Ints
    row: Ints
    reward: Float32s

    def __len__(self) -> int:
        return len(self.arm)


@dataclass(frozen=True)
class Each(Generic[T]):
    """What is read of every part, one at a time, as often as asked."""

    parts: tuple[Part, ...]
    read: Callable[[Part], T]
    before: tuple[T, ...] = ()

    def __iter__(self) -> Iterator[T]:
        yield from self.before
        for part in self.parts:
            yield self.read(part)


@dataclass(frozen=True, eq=False)
class History:
    """`totals` is what the rounds add up to, `recent` the last of them, without contexts. Rewards are divided by how
    often positions are `examined`, where positions are known, and how much arms of one group take from each other.
    `past` is what the first rounds add up to, of which `parts` have only what is still read; `totals` has them too."""

    parts: tuple[Part, ...]
    columns: int
    totals: ArmTotals
    recent: Feedback
    examined: tuple[float, ...] = ()
    saturation: float = 0.0
    past: SummedRounds | None = None

    def __len__(self) -> int:
        return self.totals.rounds

    @property
    def new_parts(self) -> tuple[Part, ...]:
        """Those of rounds that are not summed up."""
        return tuple(part for part in self.parts if not part.summed)

    @property
    def first_fitted(self) -> int:
        """The first round that means, curves, scales and maps are fitted to."""
        return first_fitted(len(self))

    @property
    def fitted(self) -> tuple[Part, ...]:
        """The parts with rounds that means, curves, scales and maps are fitted to."""
        return tuple(part for part in self.parts if part.first + part.rounds > self.first_fitted)

    def fitted_from(self, part: Part) -> int:
        """The first of a part's rounds that these are fitted to."""
        return max(0, self.first_fitted - part.first)

    @property
    def new_contexts(self) -> Each[Rows]:
        return Each(self.new_parts, lambda part: part.contexts)

    @property
    def context_bytes(self) -> float:
        """Of a round, on average."""
        entries = sum(int(part.arrays["context_start"][-1]) for part in self.parts)
        return 8 + 8 * entries / max(1, sum(part.rounds for part in self.parts))

    def rows(self, rounds: Int64s) -> Rows:
        """The contexts of some rounds, which rise; of those that are still there."""
        return stacked(
            [gathered(p.contexts, mine - p.first) for p, mine in self._of(rounds) if len(mine)], self.columns
        )

    def _of(self, rounds: Int64s) -> Iterator[tuple[Part, Int64s]]:
        for part in self.parts:
            low, high = np.searchsorted(rounds, [part.first, part.first + part.rounds])
            yield part, rounds[low:high]


class HistoryWriter:
    """Writes a history, part after part, into a new folder. `past` is what rounds before add up to; with `nodes`, for a
    learner that has functions of them, samples are there by node, too.

    >>> from tempfile import TemporaryDirectory
    >>> monday = Feedback([[1.0, 0.0]], arms=[[3, 4]], nodes=None, rewards=[[1.0, float("nan")]])
    >>> with TemporaryDirectory() as place:
    ...     writer = HistoryWriter(Path(place) / "work", columns=2, late=np.zeros(5, bool))
    ...     writer.add(monday)
    ...     history = writer.done(monday)
    ...     len(history), history.parts[0].samples(0, 5).arm.tolist()
    (1, [3])
    """

    def __init__(
        self, path: Path, columns: int, late: Any, past: SummedRounds | None = None, nodes: bool = False
    ) -> None:
        path.mkdir(mode=0o700)
        self._path, self._columns, self._past, self._nodes = path, columns, past, nodes
        self._totals = ArmTotals.none(late) if past is None else past.totals.continued(late)
        self._parts: list[Part] = []
        self._summed = 0  # rounds that are there of those that are summed up

    def add(self, rounds: Feedback, context_files: Sequence[Path] = (), summed: bool = False) -> None:
        """Later rounds; `context_files` have their contexts already: start, index, value. First come those that are
        `summed` up already."""
        arms, rewards = rounds.arms, rounds.rewards
        if arms.max(initial=-1) >= len(self._totals.late):
            raise ValueError(f"feedback on arm {arms.max()}, outside [0, {len(self._totals.late)})")
        folder = ArrayFolder.new(self._path / f"part-{len(self._parts):06d}")
        contexts = rounds.contexts
        targets = [folder.path / f"context_{name}.npy" for name in ("start", "index", "value")]
        if not (context_files and all(link(*pair) for pair in zip(context_files, targets, strict=True))):
            for target in targets:
                target.unlink(missing_ok=True)
            folder.put_rows("context", contexts)
        observed = ~np.isnan(rewards)
        folder.put(**_by_group(observed, arms, rewards, "arm", ""))
        if self._nodes:
            folder.put(**_by_group(observed & (rounds.nodes >= 0), rounds.nodes, rewards, "node", "node_"))
        folder.put(fold=fold_of(contexts).astype(np.uint8), norm=context_norms(contexts))
        first = self._summed if summed else self._totals.rounds
        self._parts.append(Part(str(folder.path), first, len(arms), max(1, arms.shape[1]), self._columns, summed))
        if summed:
            self._summed += len(arms)
        else:
            self._totals.add(rounds)

    def done(self, recent: Feedback, examined: tuple[float, ...] = (), saturation: float = 0.0) -> History:
        return History(tuple(self._parts), self._columns, self._totals, recent, examined, saturation, self._past)


def _by_group(some: Any, group: Any, rewards: Any, name: str, kind: str) -> dict[str, Any]:
    """Group, place and reward of some slots, sorted by group and then by place, as a part has them."""
    place = np.flatnonzero(some).astype(np.int32)
    of = group.reshape(-1)[place]
    order = np.argsort(of, kind="stable")
    return {name: of[order], f"{kind}place": place[order], f"{kind}reward": rewards.reshape(-1)[place][order]}


def gathered(rows: Rows, chosen: Any) -> Rows:
    """Some of the rows, copied.

    >>> gathered(as_rows([[1.0], [2.0], [3.0]]), np.array([0, 2])).value
    array([1., 3.], dtype=float32)
    """
    return as_rows(rows.csr()[chosen])


def stacked(parts: Sequence[Rows], columns: int) -> Rows:
    """Rows one behind the other.

    >>> len(stacked([as_rows([[1.0]]), as_rows([[2.0]])], columns=1))
    2
    """
    lengths = [np.zeros(1, np.int64), *(np.diff(part.start) for part in parts)]
    index = np.concatenate([np.zeros(0, np.int32), *(part.index for part in parts)])
    value = np.concatenate([np.zeros(0, np.float32), *(part.value for part in parts)])
    return Rows(np.cumsum(np.concatenate(lengths)), index, value, columns)


def median_norm(norms: Iterable[Floats]) -> float:
    """The median of the positive numbers in several arrays, exactly, 0 if there is none; reads them nine times.

    Positive floats are in the order of their bits as whole numbers: 16 bits are found at a time.

    >>> median_norm([np.array([3.0, 0.0, 1.0]), np.array([2.0, 7.0])])
    2.5
    """
    count = sum(int((part > 0).sum()) for part in _slices(norms))
    if count == 0:
        return 0.0
    low, high = (_ranked(norms, rank) for rank in ((count - 1) // 2, count // 2))
    return float(np.mean(np.array([low, high])))


def _slices(norms: Iterable[Floats]) -> Iterator[Floats]:
    """The same in arrays that are not large: what is computed of one is as large."""
    for part in norms:
        for first in range(0, len(part), SLICE):
            yield part[first : first + SLICE]


def _ranked(norms: Iterable[Floats], rank: int) -> float:
    """The positive number with this rank, counted from 0."""
    prefix, known = 0, 0  # the first bits, and how many
    for shift in (48, 32, 16, 0):
        counts = np.zeros(65536, np.int64)
        for part in _slices(norms):
            bits = part[part > 0].view(np.int64)
            inside = bits if known == 0 else bits[bits >> (64 - known) == prefix]
            counts += np.bincount(inside >> shift & 0xFFFF, minlength=65536)
        ends = np.cumsum(counts)
        digit = int(np.searchsorted(ends, rank, side="right"))
        rank -= int(ends[digit] - counts[digit])
        prefix, known = prefix << 16 | digit, known + 16
    return float(np.array([prefix], np.int64).view(np.float64)[0])
