"""A process that writes to a log until it is killed, and says on stdout what was acknowledged, after it was.

python log_worker.py ADDRESS NAME THREADS
"""

import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from logs import event

from treetop.log import Reward, open_log

address, name, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
log = open_log(address)
say = threading.Lock()


def tell(line: str) -> None:
    with say:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def work(thread: int) -> None:
    i = 0
    while True:
        made = event(f"{name}-{thread}-{i}", time=1e9 + i)
        log.append([made])
        tell(f"d {made.event_id}")
        if i % 2:
            arm, value = int(made.arms[i % 3]), (i % 5) / 4
            log.reward([Reward(made.event_id, arm, value, 1e9)])
            tell(f"r {made.event_id} {arm} {value}")
        i += 1


tell("ready")
for t in range(threads):
    threading.Thread(target=work, args=(t,), daemon=True).start()
threading.Event().wait()
