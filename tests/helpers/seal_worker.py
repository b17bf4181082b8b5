"""A process that decides, rewards, deletes and seals until it is killed. Says `ready` when it has sealed once.

python seal_worker.py ADDRESS FOLDER FIRST
"""

import sys
from itertools import count
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from helpers.sealing import START, fill, late, seal
from treetop.log.open import open_log
from treetop.log.segments.manifest import SegmentFolder

if __name__ == "__main__":
    address, path, begin = sys.argv[1:]
    folder, first = SegmentFolder(Path(path)), int(begin)
    with open_log(address) as log:
        for step in count():
            at = first + step * 12
            fill(log, range(at, at + 12), keep=0.4)
            seal(folder, log, rounds=8, rest=step % 2 == 1)
            late(log, range(at, at + 6))
            if step % 4 == 3:
                log.forget(START + at - 100)
            if step == 0:
                print("ready", flush=True)
