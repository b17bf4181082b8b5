"""Looks at a service from outside: memory, open files and threads of its processes, and whether it answers /healthz."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helpers.soak.load import Tally
from helpers.soak.service import Caller, NoAnswer, Service

SAMPLE_INTERVAL, PROBE_INTERVAL = 1.0, 0.25  # seconds
OLD_ENOUGH = 30.0  # seconds that a worker must have lived for its memory to be judged
MAY_GROW = 16.0, 0.1  # megabytes, or a share, by which memory may grow from the second to the last quarter
MAY_ADD = 32  # open files, or threads, in the same way


@dataclass
class Life:
    """One worker process: when it was looked at, and its memory of its own (MB), open files and threads then."""

    times: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    files: list[float] = field(default_factory=list)
    threads: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.times[-1] - self.times[0]


def quarters(values: list[float]) -> list[float]:
    """The median of each quarter."""
    parts = [values[i * len(values) // 4 : (i + 1) * len(values) // 4] for i in range(4)]
    return [round(statistics.median(part), 1) for part in parts] if all(parts) else []


class Watch:
    """Two threads, from `start` to `stop`."""

    def __init__(self, service: Service, tally: Tally) -> None:
        self.service, self.tally = service, tally
        self.lives: dict[int, Life] = {}
        self.totals: list[float] = []  # resident MB of all workers together
        self.health: list[tuple[float, float]] = []  # when /healthz was asked, and how long the answer took
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=f, daemon=True) for f in (self._sample, self._probe)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _sample(self) -> None:
        while not self._stop.wait(SAMPLE_INTERVAL):
            if not self.service.meant_to_run:
                continue
            found = {pid: facts for pid in self.service.worker_pids() if (facts := process_facts(pid))}
            for pid, facts in found.items():
                life = self.lives.setdefault(pid, Life())
                life.times.append(time.monotonic())
                for name, value in facts.items():
                    getattr(life, name).append(value)
            if len(found) == self.service.workers:
                self.totals.append(sum(facts["resident"] for facts in found.values()))

    def _probe(self) -> None:
        """A connection for each question, as balancers do it."""
        while not self._stop.wait(PROBE_INTERVAL):
            began = time.monotonic()
            caller = Caller(self.service.port)
            try:
                if caller.ask("/healthz").status == 200:
                    self.health.append((began, time.monotonic() - began))
            except NoAnswer as error:
                if str(error) == "hung" or self.service.meant_to_run:
                    self.tally.failed("/healthz", f"/healthz {error}" if str(error) != "hung" else "hung")
            finally:
                caller.close()

    def slowest_health(self, since: float) -> float:
        return max((took for began, took in self.health if began + took >= since), default=0.0)

    def longest_gap(self, since: float) -> float:
        """Seconds between two answers of /healthz, from the last one before `since` on, or until now."""
        ends = [began + took for began, took in self.health]
        ends = [*[end for end in ends if end < since][-1:], *[end for end in ends if end >= since], time.monotonic()]
        return max((b - a for a, b in itertools.pairwise(ends)), default=0.0)

    def healthy_after(self, since: float) -> float | None:
        """Seconds until an answer of /healthz came."""
        return min((began + took - since for began, took in self.health if began >= since), default=None)

    def last_lives(self) -> list[Life]:
        """The workers that lived until now, and long enough."""
        now = time.monotonic()
        lives = [life for life in self.lives.values() if life.times[-1] > now - 10 * SAMPLE_INTERVAL]
        return [life for life in lives if life.seconds > OLD_ENOUGH]

    def memory(self) -> dict[str, Any]:
        """Megabytes by quarter: of all workers over the whole time, and of each of the last ones over its life."""
        each = [
            {"seconds": round(life.seconds), **{name: quarters(getattr(life, name)) for name in MEASURES}}
            for life in self.last_lives()
        ]
        return {"resident_mb": quarters(self.totals), "workers": each}

    def findings(self) -> list[str]:
        """In words, whatever is not flat."""
        found = []
        for worker in self.memory()["workers"]:
            _, second, _, last = worker["own"]
            if last - second > max(MAY_GROW[0], MAY_GROW[1] * second):
                found.append(f"grew: memory of a worker by quarter of {worker['seconds']} s: {worker['own']} MB")
            more = [name for name in ("files", "threads") if worker[name][3] - worker[name][1] > MAY_ADD]
            found += [f"grew: {name} of a worker by quarter: {worker[name]}" for name in more]
        return found


MEASURES = ("own", "resident", "files", "threads")


def process_facts(pid: int) -> dict[str, float]:
    """Empty if the process is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return {}
    sizes = {name: words.split() for name, _, words in (line.partition(":") for line in status.splitlines())}
    if "RssAnon" not in sizes:  # it has just ended
        return {}
    return {
        "own": int(sizes["RssAnon"][0]) / 1024,
        "resident": int(sizes["VmRSS"][0]) / 1024,
        "threads": float(sizes["Threads"][0]),
        "files": float(files),
    }
