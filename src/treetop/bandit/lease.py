"""Which of several replicas does what only one may do: a lease in their log, taken over when its holder is silent.

No clocks are compared: whoever sees the same lease unchanged for its whole time, by a clock of its own, may take it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from treetop.log.base import Log

NAME = "lease of refits"


class Lease:
    """`take` takes or renews it, several times within `seconds`; `held` says whether it still counts.

    >>> from tempfile import TemporaryDirectory
    >>> from treetop.log.open import open_log
    >>> with TemporaryDirectory() as place, open_log(f"{place}/log.sqlite") as log:
    ...     now = [0.0]
    ...     here, there = (Lease(log, holder, clock=lambda: now[0]) for holder in ("here", "there"))
    ...     print(here.take(), there.take())
    ...     now[0] += 11  # nothing is heard of the first one
    ...     print(here.held, there.take(), here.take())
    True False
    False True False
    """

    def __init__(
        self, log: Log, holder: str, seconds: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log, self.holder, self.seconds, self.clock = log, holder, seconds, clock
        self._until = -1.0  # when what this one holds ends
        self._seen: bytes | None = None  # another's lease, and since when it has been the same
        self._since = 0.0

    @property
    def held(self) -> bool:
        return self.clock() < self._until

    def take(self) -> bool:
        """Takes the lease if nobody has it, or renews it; returns whether it is held now."""
        now = self.clock()
        found = self.log.kept(NAME)
        if self._free(found, now):
            kept = self.log.keep_changed(NAME, lambda kept: _next(kept, self.holder) if kept == found else kept or b"")
            if _holder(kept) == self.holder:
                self._until = now + self.seconds
        return self.held

    def release(self) -> None:
        """Lets the next one have it at once."""
        self._until = -1.0
        self.log.keep_changed(NAME, lambda kept: _next(kept, "") if _holder(kept) == self.holder else kept or b"")

    def _free(self, found: bytes | None, now: float) -> bool:
        if _holder(found) in ("", self.holder):
            return True
        if found != self._seen:
            self._seen, self._since = found, now
        return now - self._since >= self.seconds


def _next(found: bytes | None, holder: str) -> bytes:
    """No two leases are the same: the count never falls."""
    return json.dumps({"holder": holder, "count": int(json.loads(found)["count"]) + 1 if found else 0}).encode()


def _holder(found: bytes | None) -> str:
    return str(json.loads(found)["holder"]) if found else ""
