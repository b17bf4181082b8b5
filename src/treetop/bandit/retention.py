"""Whether old decisions are deleted from a bandit's log, or why not: kept in the log, where every process sees it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from treetop.log.base import Log

NAME = "retention"
DAY = 86400.0  # seconds


@dataclass(frozen=True)
class RetentionState:
    """`refused` says why nothing is deleted, empty if nothing speaks against it; `confirmed` is when somebody last
    confirmed that clock and log are right.

    >>> import tempfile
    >>> from treetop.log.open import open_log
    >>> with tempfile.TemporaryDirectory() as folder, open_log(f"{folder}/log.sqlite") as log:
    ...     RetentionState("the clock jumped").store(log)
    ...     RetentionState.read(log).refused
    'the clock jumped'
    """

    refused: str = ""
    confirmed: float = 0.0

    @classmethod
    def read(cls, log: Log) -> RetentionState:
        found = log.kept(NAME)
        return cls() if found is None else cls(**json.loads(found))

    def store(self, log: Log) -> None:
        log.keep(NAME, json.dumps(asdict(self)).encode())
