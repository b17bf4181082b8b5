"""Which slots of a decision the learner observes (Assumption 3), and random numbers by key. Knows no policy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from treetop import _core
from treetop.arrays import Bools, Float32s, Floats, Int64s, check_float
from treetop.policy.draws import event_key


class Observer(Protocol):
    """Which of k slots are observed. `c(k)` is the smallest chance of a slot, for the theorems' gamma."""

    def observed(self, rewards: Float32s, draws: Floats) -> Bools:
        """(n, k): which slots are seen, given the rewards of all of them and a uniform number for each."""
        ...

    def c(self, k: int) -> float | None:
        """A lower bound on every slot's chance of being observed; None where there is none beforehand."""
        ...


@dataclass(frozen=True)
class All:
    """Every slot is observed.

    >>> All().c(5)
    1.0
    """

    def observed(self, rewards: Float32s, draws: Floats) -> Bools:
        return np.ones(rewards.shape, np.bool_)

    def c(self, k: int) -> float | None:
        return 1.0


@dataclass(frozen=True)
class Each:
    """Each slot independently with probability c.

    >>> make_observer("each:c=0.25").c(5)
    0.25
    """

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_float("c", self.probability, 1e-12, 1)

    def observed(self, rewards: Float32s, draws: Floats) -> Bools:
        return np.asarray(draws < self.probability)

    def c(self, k: int) -> float | None:
        return self.probability


@dataclass(frozen=True)
class Cascade:
    """The slots in order up to the first click (a reward above 0), that one included.

    Whether a slot is seen depends on the rewards before it, so no c is known beforehand: a record's `observed` tells.

    >>> Cascade().observed(np.array([[0, 1, 0]], np.float32), np.zeros((1, 3)))
    array([[ True,  True, False]])
    """

    def observed(self, rewards: Float32s, draws: Floats) -> Bools:
        clicks = np.cumsum(rewards > 0, axis=1)
        return np.asarray(clicks - (rewards > 0) == 0)

    def c(self, k: int) -> float | None:
        return None


@dataclass(frozen=True)
class Position:
    """Slot s = 0, 1, ... with probability decay^s: the first always, the last least.

    >>> Position(decay=0.5).c(3)
    0.25
    """

    decay: float = 0.8

    def __post_init__(self) -> None:
        check_float("decay", self.decay, 1e-12, 1)

    def observed(self, rewards: Float32s, draws: Floats) -> Bools:
        return np.asarray(draws < self.decay ** np.arange(rewards.shape[1]))

    def c(self, k: int) -> float | None:
        return float(self.decay ** (k - 1))


OBSERVERS: dict[str, type[Any]] = {"all": All, "each": Each, "cascade": Cascade, "position": Position}
SPELLED = {"probability": "c"}  # as the command line and the paper call it


def make_observer(spec: str) -> Observer:
    """`all`, `each:c=0.5`, `cascade` or `position:decay=0.8`; what is not given has its default.

    >>> make_observer("position:decay=0.9"), make_observer("each")
    (Position(decay=0.9), Each(probability=0.5))
    """
    name, _, rest = spec.partition(":")
    if name not in OBSERVERS:
        raise ValueError(f"observer is {spec!r}; it must be one of {', '.join(map(observer_text, _defaults()))}")
    known = {SPELLED.get(field.name, field.name): field.name for field in fields(OBSERVERS[name])}
    given: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise ValueError(f"observer is {spec!r}: {name} has no {key!r}; it has {', '.join(known) or 'no settings'}")
        try:
            given[known[key]] = float(value)
        except ValueError:
            raise ValueError(f"observer is {spec!r}: {key} must be a number, not {value!r}") from None
    made: Observer = OBSERVERS[name](**given)
    return made


def observer_text(observer: Any) -> str:
    """The text that `make_observer` turns into this observer.

    >>> observer_text(Position()), observer_text(All())
    ('position:decay=0.8', 'all')
    """
    name = next(name for name, kind in OBSERVERS.items() if kind is type(observer))
    settings = ",".join(f"{SPELLED.get(key, key)}={value:g}" for key, value in asdict(observer).items())
    return f"{name}:{settings}" if settings else name


def _defaults() -> list[Any]:
    return [kind() for kind in OBSERVERS.values()]


def uniforms(purpose: str, seed: int, first: int, columns: NDArray[Any]) -> Floats:
    """Numbers in (0, 1), each from its key (purpose, seed, round, column): the same in any order and in any pieces.

    `columns` is (n, m): what tells the numbers of rounds first, first + 1, ... apart, such as slots or arms.

    >>> whole = uniforms("noise", 7, 0, np.array([[3, 5], [3, 5]]))
    >>> bool((uniforms("noise", 7, 1, np.array([[5]])) == whole[1:, 1:]).all())
    True
    """
    rows: Int64s = _core.row_keys(event_key(f"{purpose} {seed}"), first, len(columns))
    key = _mix(rows.view(np.uint64) + np.uint64(0x9E3779B97F4A7C15))[:, None]
    part = columns.astype(np.int64).view(np.uint64) * np.uint64(0xD1342543DE82EF95) + np.uint64(1)
    return np.asarray((_mix(key ^ part) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, as in src/core/rng.hpp."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
