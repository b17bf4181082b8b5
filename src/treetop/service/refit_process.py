"""One refit as a process: `python -m treetop.service.refit_process DIR [TIME]`. Prints its result as JSON, or an error.

TIME is what the schedule counted from when the refit was due.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import asdict

from treetop.bandit.bandit import Bandit
from treetop.errors import FolderInUse, ModelSuperseded, NothingToLearn
from treetop.service.refit_scheduler import BUSY, FAILED, LOG_VARIABLE, NOTHING, SUPERSEDED

CODES: list[tuple[type[Exception], int]] = [
    (FolderInUse, BUSY),
    (NothingToLearn, NOTHING),
    (ModelSuperseded, SUPERSEDED),
]


def main(folder: str, counted_from: str = "") -> int:
    try:
        os.nice(5)  # decisions have priority
        with Bandit.open(folder, os.environ.get(LOG_VARIABLE) or None) as bandit:
            print(json.dumps(asdict(bandit.refit(float(counted_from) if counted_from else None))))
        return 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}".replace("\n", " "), file=sys.stderr)
        return next((code for kind, code in CODES if isinstance(error, kind)), FAILED)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the service, which ends its own refit
    sys.exit(main(*sys.argv[1:]))
