"""How often one visitor may see an arm: the settings, and which arms a request may not show. Decides nothing.

What was shown is counted in the log, so that every worker and every restart counts the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from treetop.arrays import Ints, check_float, check_int
from treetop.log.base import Log
from treetop.log.keys import NAME_BYTES, Keys

YEAR = 366 * 86400.0  # seconds
NO_ARMS: Ints = np.zeros(0, np.int32)


@dataclass(frozen=True)
class CapConfig:
    """A visitor sees an arm at most `impressions` times in `window` seconds; 0: as often as it comes.

    The request's key of the name `key` says who it is; a request without it is not limited.

    >>> CapConfig(impressions=3).visitor((("visitor", "123"),))
    ('visitor', '123')
    """

    impressions: int = 0
    window: float = 86400.0
    key: str = "visitor"

    def __post_init__(self) -> None:
        check_int("impressions", self.impressions, 0, 2**31 - 1)
        check_float("window", self.window, 1, YEAR)
        if not isinstance(self.key, str) or not 1 <= len(self.key.encode()) <= NAME_BYTES or "\0" in self.key:
            raise ValueError(f"key is {self.key!r}; the name of a key has 1 to {NAME_BYTES} bytes, none of them zero")

    def visitor(self, keys: Keys) -> tuple[str, str] | None:
        """The key of the visitor that a request is limited for; None if it is not limited."""
        if not self.impressions:
            return None
        return next((key for key in keys if key[0] == self.key), None)


def capped_arms(
    log: Log, caps: CapConfig, visitor: tuple[str, str], now: float, but: str, also: Ints = NO_ARMS
) -> Ints:
    """The arms that a visitor has seen as often as the settings allow, ascending.

    `but` is the event that is being decided, which does not count if it is in the log; `also` are arms that are being
    shown to the visitor and are not in the log yet.

    >>> import tempfile, time
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as tea:
    ...     _ = tea.decide({}, "visit-1", eligible=["rose"], keys={"visitor": 7})
    ...     once = CapConfig(impressions=1)
    ...     [capped_arms(tea.log, once, ("visitor", who), time.time(), "visit-2").tolist() for who in ("7", "8")]
    [[1], []]
    """
    arms, counts = np.unique(np.concatenate([log.shown_to(visitor, now - caps.window, but), also]), return_counts=True)
    found: Ints = arms[counts >= caps.impressions].astype(np.int32)
    return found
