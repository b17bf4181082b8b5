"""The interface of a log, which the bandit, the service and the commands use."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType

from treetop.arrays import Floats, Int64s, Ints
from treetop.errors import EventConflict
from treetop.log.blocks import Block, RewardRows
from treetop.log.decided import DecidedRounds
from treetop.log.records import Counts, Entry, Event, LogSummary, Mark, Outcome, Owner, Restored, Reward, StoredEvent
from treetop.log.rounds import LoggedRounds
from treetop.log.variant_rows import VariantRows

NO_SETS: Mapping[str, Ints] = {}
FORGET_STEP = 200  # decisions deleted in one transaction, which other writers wait for


class Log(ABC):
    """Decisions and rewards that survive crashes. Thread-safe.

    A write is durable when it returns or when its future is done. A write that raises `LogError` may or may not be in
    the log: write it again, the ids make that safe.
    """

    where: str  # the path or address, without a password

    @abstractmethod
    def owner(self) -> Owner | None:
        """The bandit that the log belongs to; None before its first use by one."""

    @abstractmethod
    def claim(self, new: Owner, checked: Owner | None) -> bool:
        """Makes `new` the owner if the owner is still the one that was `checked`; returns whether it was.

        Raises ForeignLog if there are decisions in the log and it belongs to nobody.
        """

    @abstractmethod
    def submit_append(
        self, events: Sequence[Event], sets: Mapping[str, Ints] = NO_SETS
    ) -> Future[list[Event | EventConflict]]:
        """Writes decisions, and the eligible sets that they name.

        The future has an answer for each event: the event itself (the same object) if it was written now, the logged
        one if its id is in the log with the same request, or an EventConflict if with another request. A bad argument
        raises before anything is written.
        """

    @abstractmethod
    def submit_reward(self, rewards: Sequence[Reward]) -> Future[list[Outcome]]:
        """Writes rewards; those of one event in one call all or not at all. The future has their outcomes."""

    @abstractmethod
    def seal(self, name: str) -> Mark:
        """Sets a mark after everything committed so far; a name that is in use returns its mark."""

    @abstractmethod
    def mark(self, name: str) -> Mark | None:
        """The mark of a name."""

    @abstractmethod
    def marks(self) -> list[Mark]:
        """All marks, oldest first."""

    @abstractmethod
    def samples(
        self,
        until: Mark,
        since: Mark | None = None,
        *,
        wait: float = 0.0,
        default: float | None = None,
        tree: str | None = None,
        size: int = 4096,
        after: int = 0,
    ) -> Iterator[LoggedRounds]:
        """Every decision up to a mark, with the rewards known at it, in chunks of at most `size`.

        `default` is the reward of a slot without one, if its decision is at least `wait` seconds older than the mark.
        With `tree`, nodes of other trees become -1. With `since`, only what is new after that mark: newer decisions,
        and older ones that got rewards since, with these rewards only. Reading from mark to mark thus gives each reward
        once; it cannot be combined with `default`, which a later reward would replace. With `after`, only decisions
        behind that position.
        """

    @abstractmethod
    def blocks(self, after: int, until: int, size: int) -> Iterator[Block]:
        """The decisions at positions in (after, until], in blocks of at most `size`, with their rewards up to `until`.

        Each block is read in a transaction of its own.
        """

    @abstractmethod
    def decided(self, until: int, size: int, after: int = 0) -> Iterator[DecidedRounds]:
        """Every decision up to a position with how it was made, in chunks of at most `size`, with its rewards so far;
        only those behind the position `after`.

        Each chunk is read in a transaction of its own.
        """

    @abstractmethod
    def time_of_next(self, after: int, n: int) -> float | None:
        """The time of the n-th decision behind a position; None if there are fewer."""

    @abstractmethod
    def late_rewards(self, low: int, high: int, last: int) -> RewardRows:
        """The rewards at positions in (low, high] of decisions up to the position `last`."""

    @abstractmethod
    def variant_rows(self, experiment: str, unit: str, low: int, high: int) -> tuple[VariantRows, VariantRows]:
        """Visits and rewards of an experiment at positions in (low, high]; `unit` is the key that says who asked."""

    @abstractmethod
    def count_between(self, first: int, last: int) -> int:
        """How many decisions lie at positions in [first, last]."""

    @abstractmethod
    def positions_between(self, first: int, last: int) -> Int64s:
        """The positions of the decisions that lie in [first, last]."""

    @abstractmethod
    def event(self, event_id: str) -> StoredEvent | None:
        """A logged decision with its rewards."""

    @abstractmethod
    def recent(self, n: int, before: float = math.inf) -> list[StoredEvent]:
        """The newest decisions, newest first; those made before a time."""

    @abstractmethod
    def events_at(self, positions: Sequence[int]) -> list[StoredEvent]:
        """The decisions at these positions, newest first; positions of anything else are left out."""

    @abstractmethod
    def shown_to(self, key: tuple[str, str], since: float, but: str = "") -> Ints:
        """The arms of all slots of decisions that carry a key and were made after a time; not of the event `but`."""

    @abstractmethod
    def impressions(self, after: int, size: int) -> tuple[Int64s, Floats, Int64s]:
        """Position, time and arm of every slot of the next `size` decisions behind a position, in their order; not of
        those that another system made."""

    @abstractmethod
    def position_before(self, when: float) -> int:
        """A position behind which all decisions lie that were made since a time and not imported."""

    @abstractmethod
    def eligible_set(self, fingerprint: str) -> Ints | None:
        """The listed arms of an eligible set, by its name."""

    @abstractmethod
    def counts(self) -> Counts:
        """How much is in the log. The writers keep the counts, so this is cheap."""

    @abstractmethod
    def forget(self, before: float, limit: int = FORGET_STEP) -> int:
        """Deletes decisions older than a time, the oldest first and at most `limit`, in one transaction.

        Their rewards go with them, and the eligible sets that are not used any more. Returns how many decisions. Marks
        stay, but samples up to them then have less; the deleted ids can be used again.
        """

    @abstractmethod
    def erase(self, key: tuple[str, str], limit: int = FORGET_STEP) -> int:
        """Deletes decisions that carry a key, as `forget` does; returns how many, 0 when none is left."""

    @abstractmethod
    def has_key(self, key: tuple[str, str]) -> bool:
        """Whether a decision carries a key."""

    @abstractmethod
    def scrub(self) -> None:
        """Rewrites the database, so that no free space in it holds what was deleted. Writers wait meanwhile."""

    @abstractmethod
    def count_before(self, before: float) -> int:
        """How many decisions are older than a time."""

    @abstractmethod
    def time_of_share(self, since: float, share: float) -> float | None:
        """The time before which so large a share of the decisions since a time were, without those of other systems;
        None if there is none."""

    @abstractmethod
    def models(self) -> set[str]:
        """The names of the models that the decisions in it were made with; those of other systems have none."""

    @abstractmethod
    def newest_time(self, before: float = math.inf) -> float | None:
        """The time of the newest decision older than a time; None if there is none."""

    @abstractmethod
    def keep(self, name: str, data: bytes) -> None:
        """Stores bytes under a name; replaces what was there."""

    @abstractmethod
    def keep_changed(self, name: str, change: Callable[[bytes | None], bytes]) -> bytes:
        """Replaces the bytes under a name by what `change` makes of them, in one transaction; returns the new ones."""

    @abstractmethod
    def drop(self, name: str, data: bytes | None = None) -> bool:
        """Deletes what `keep` stored, if it is there and, with `data`, still that; returns whether nothing is left."""

    @abstractmethod
    def kept(self, name: str) -> bytes | None:
        """The bytes that `keep` stored."""

    @abstractmethod
    def kept_after(self, prefix: str, after: str, size: int) -> list[tuple[str, bytes]]:
        """The next names that begin so, in the log's order of names, with their bytes; at most `size` of them."""

    @abstractmethod
    def summary(self) -> LogSummary:
        """The counts and marks of now."""

    @abstractmethod
    def entries(self, summary: LogSummary, size: int = 1024, after: int = 0) -> Iterator[list[Entry]]:
        """Everything in the log up to a summary, in order; an eligible set comes with the first entry that names it.

        With `after`, only decisions behind that position.
        """

    @abstractmethod
    def restore(self, summary: LogSummary, chunks: Iterable[list[Entry]]) -> Restored:
        """Writes all entries of another log, or none.

        An empty log becomes equal to the other, with its marks, counts and owner. Otherwise the entries are added
        behind those of this log, and the other log's marks are left out. Raises ForeignLog if they are of another
        bandit, and ValueError for a decision or a reward that contradicts this log.
        """

    @abstractmethod
    def close(self) -> None:
        """Commits what was submitted, and closes files and connections."""

    def append(self, events: Sequence[Event], sets: Mapping[str, Ints] = NO_SETS) -> list[Event | EventConflict]:
        """`submit_append`, and waits for the answers."""
        return self.submit_append(events, sets).result()

    def reward(self, rewards: Sequence[Reward]) -> list[Outcome]:
        """`submit_reward`, and waits for the outcomes."""
        return self.submit_reward(rewards).result()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
