"""A process that writes to a log until it is killed, and says on stdout what was acknowledged, after it was.

python log_worker.py ADDRESS NAME THREADS
"""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.logs import event
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Reward

say = threading.Lock()


def tell(line: str) -> None:
    with say:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def work(log: Log, name: str) -> None:
    i = 0
    while True:
        made = event(f"{name}-{i}", time=1e9 + i)
        log.append([made])
        tell(f"d {made.event_id}")
        if i % 2:
            arm, value = int(made.arms[i % 3]), (i % 5) / 4
            log.reward([Reward(made.event_id, arm, value, 1e9)])
            tell(f"r {made.event_id} {arm} {value}")
        i += 1


if __name__ == "__main__":
    address, name, threads = sys.argv[1:]
    opened = open_log(address)
    tell("ready")
    for t in range(int(threads)):
        threading.Thread(target=work, args=(opened, f"{name}-{t}"), daemon=True).start()
    threading.Event().wait()
