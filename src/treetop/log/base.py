"""The log's interface: what the bandit, the service and the commands may ask of any log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType

from treetop.arrays import Ints
from treetop.errors import EventConflict
from treetop.log.records import (  # fmt: skip
    Counts,
    Entry,
    Event,
    LogSummary,
    Mark,
    Outcome,
    Restored,
    Reward,
    Samples,
    Stored,
)

NO_SETS: Mapping[str, Ints] = {}


class Log(ABC):
    """Decisions and rewards that outlive crashes. Every method may be called from any thread.

    What a write returns, or its future resolves to, is durable. A write that raises `LogError` may or may not be in
    the log: send it again, the ids make that safe.
    """

    @abstractmethod
    def submit_append(
        self, events: Sequence[Event], sets: Mapping[str, Ints] = NO_SETS
    ) -> Future[list[Event | EventConflict]]:
        """Writes decisions, and the eligible sets that they name by fingerprint.

        An answer for each: the event itself (`is`) if it was written now; the one in the log if its id was known with
        the same request; a Conflict if with another. A bad argument raises before anything is written.
        """

    @abstractmethod
    def submit_reward(self, rewards: Sequence[Reward]) -> Future[list[Outcome]]:
        """Writes rewards: all of an event's in one call, or none of them. A differing second reward is a conflict."""

    @abstractmethod
    def seal(self, name: str) -> Mark:
        """A boundary after all that is committed now; a name that was sealed before gives its mark again."""

    @abstractmethod
    def mark(self, name: str) -> Mark | None: ...

    @abstractmethod
    def marks(self) -> list[Mark]:
        """All marks, oldest first."""

    @abstractmethod
    def samples(
        self, until: Mark, since: Mark | None = None, *, wait: float = 0.0, default: float | None = None,
        tree: str | None = None, size: int = 4096,
    ) -> Iterator[Samples]:  # fmt: skip
        """Each decision up to a mark once, with the rewards known there, in chunks of at most `size`.

        `default` is what a slot without a reward counts as when its decision is `wait` seconds older than the mark.
        With `tree`, nodes of other trees become -1. With `since`, only what is new after that mark: newer decisions,
        and older ones with newer rewards, these rewards only; so readings from mark to mark have each reward once
        (and cannot be combined with `default`, which later rewards replace).
        """

    @abstractmethod
    def event(self, event_id: str) -> Stored | None: ...

    @abstractmethod
    def recent(self, n: int) -> list[Stored]:
        """The newest decisions, newest first."""

    @abstractmethod
    def eligible_set(self, fingerprint: str) -> Ints | None: ...

    @abstractmethod
    def counts(self) -> Counts:
        """Kept up to date by the writers, so that asking is cheap."""

    @abstractmethod
    def forget(self, before: float) -> int:
        """Deletes decisions older than a time, with their rewards and the eligible sets that nothing names any more.

        Returns how many. Marks stay, and from then on give less; the ids of what is gone can be used anew.
        """

    @abstractmethod
    def keep(self, name: str, data: bytes) -> None:
        """Stores bytes under a name, in the place of what was there."""

    @abstractmethod
    def kept(self, name: str) -> bytes | None: ...

    @abstractmethod
    def summary(self) -> LogSummary: ...

    @abstractmethod
    def entries(self, summary: LogSummary, size: int = 1024) -> Iterator[list[Entry]]:
        """All that was in the log at a summary, in order; an eligible set comes with the first that names it."""

    @abstractmethod
    def restore(self, summary: LogSummary, chunks: Iterable[list[Entry]]) -> Restored:
        """Writes all entries of another log, or none, as if their calls were repeated here.

        An empty log becomes the same as the other, marks and counts included. Otherwise marks stay behind: they are
        boundaries of the other log. A decision or a reward that contradicts this log is a ValueError.
        """

    @abstractmethod
    def close(self) -> None:
        """Finishes what was submitted, and lets go of files and connections."""

    def append(self, events: Sequence[Event], sets: Mapping[str, Ints] = NO_SETS) -> list[Event | EventConflict]:
        """`submit_append`, waited for."""
        return self.submit_append(events, sets).result()

    def reward(self, rewards: Sequence[Reward]) -> list[Outcome]:
        """`submit_reward`, waited for."""
        return self.submit_reward(rewards).result()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
