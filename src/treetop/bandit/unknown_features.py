"""Features that requests name and the vocabulary does not know: counted, until a refit lets the most frequent join it.

Each process counts for itself and adds its counts to those that the log keeps, so that all workers count together.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable

from treetop.log.base import Log

NAME = "unknown features"  # of the counts in the log
MOST_NAMES = 100_000  # that are counted; of more, the least frequent are forgotten
LONGEST_NAME = 512  # characters


class UnknownFeatures:
    """Counts of unknown names. Thread-safe.

    >>> import tempfile
    >>> from treetop.log.open import open_log
    >>> with tempfile.TemporaryDirectory() as folder, open_log(f"{folder}/log.sqlite") as log:
    ...     unknown = UnknownFeatures()
    ...     unknown.note(["country=DE", "country=FR"])
    ...     unknown.note(["country=DE"])
    ...     unknown.store(log)
    ...     take_most_frequent(log, 1), take_most_frequent(log, 9)
    (['country=DE'], ['country=FR'])
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, names: Iterable[str]) -> None:
        """Counts names that a request had."""
        with self._lock:
            self._counts.update(name for name in names if 0 < len(name) <= LONGEST_NAME)
            if len(self._counts) > 2 * MOST_NAMES:
                self._counts = Counter(dict(self._counts.most_common(MOST_NAMES)))

    def store(self, log: Log) -> None:
        """Adds the counts to those of the log, and begins anew."""
        with self._lock:
            mine, self._counts = self._counts, Counter()
        if mine:
            log.keep_changed(NAME, lambda kept: _text(_counts(kept) + mine))


def take_most_frequent(log: Log, most: int) -> list[str]:
    """At most so many names, those that were asked for most often first; the log's counts lose them.

    >>> import tempfile
    >>> from treetop.log.open import open_log
    >>> with tempfile.TemporaryDirectory() as folder, open_log(f"{folder}/log.sqlite") as log:
    ...     take_most_frequent(log, 1)
    []
    """
    taken: list[str] = []

    def take(kept: bytes | None) -> bytes:
        counts = _counts(kept)
        taken[:] = sorted(counts, key=lambda name: (-counts[name], name))[:most]
        for name in taken:
            del counts[name]
        return _text(counts)

    if most > 0 and log.kept(NAME) is not None:
        log.keep_changed(NAME, take)
    return taken


def _counts(kept: bytes | None) -> Counter[str]:
    return Counter({} if kept is None else json.loads(kept))


def _text(counts: Counter[str]) -> bytes:
    return json.dumps(dict(counts.most_common(MOST_NAMES))).encode()
