"""Clocks, memory and machine: what a measurement is made of. Knows nothing of what is measured."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, Any]
Taken = tuple[float, float]  # seconds by the clock, seconds of all cores together in this process
TURNS = 3  # contestants take turns, so that a disturbance of seconds does not hit one of them alone


def machine() -> str:
    cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30 if hasattr(os, "sysconf") else 0
    return (
        f"{_processor()}, {cores} cores, {memory:.0f} GB, {platform.system()}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str:
    """The commit of the checkout that this package runs from, `+` behind it if its source differs; empty elsewhere."""
    here = Path(__file__).parents[2]
    try:
        answers = [
            subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True).stdout.strip()
            for words in (["rev-parse", "--short=7", "HEAD"], ["status", "--porcelain", "--", "."])
        ]
    except (OSError, subprocess.CalledProcessError):
        return ""
    return answers[0] + ("+" if answers[1] else "")


def load_average() -> float:
    """Processes that wanted a core in the last minute, this one included: what a timing was disturbed by."""
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else 0.0


def seconds(call: Callable[[int], object], n: int, first: int = 0) -> list[Taken]:
    """How long call(first), call(first + 1), ... took."""
    found = []
    for i in range(first, first + n):
        worked, began = time.process_time(), time.perf_counter()
        call(i)
        ended = time.perf_counter()
        found.append((ended - began, time.process_time() - worked))
    return found


def turns(contestants: dict[str, Callable[[int, int], list[Taken]]], sizes: dict[str, int]) -> dict[str, list[Taken]]:
    """The times of each contestant, called as contestant(first, n) in `TURNS` turns over its `sizes` contexts.

    A turn begins with half as many calls that are not timed, on contexts of another turn: memory that nobody touched
    while the others had theirs may be slow to reach at first (`benchmarks/causes.py`).
    """
    found: dict[str, list[Taken]] = {name: [] for name in contestants}
    for turn in range(TURNS):
        for name, call in contestants.items():
            begin, end = (sizes[name] * t // TURNS for t in (turn, turn + 1))
            if end > begin:
                call(sizes[name] * ((turn + 1) % TURNS) // TURNS, (end - begin + 1) // 2)
                found[name] += call(begin, end - begin)
    return found


def spread(times: Sequence[Taken]) -> Row:
    """Median, 99th percentile and rate of calls by the clock, and the median of the time that cores worked.

    The latter is nearly the same on a quiet machine, and suffers less where others want the cores too.
    """
    t, cpu = np.asarray(times).T
    return {
        "median_ms": round(float(np.median(t)) * 1e3, 4),
        "p99_ms": round(float(np.percentile(t, 99)) * 1e3, 4),
        "per_second": round(len(t) / float(t.sum()), 1),
        "cpu_ms": round(float(np.median(cpu)) * 1e3, 4),
    }


def peak_gb() -> float:
    """The most memory this process has had, in GB of 10^9 bytes."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9, 3)


def mapped_mb(name: str) -> tuple[int, int]:
    """Megabytes of a mapped file in memory, and of these in huge pages; zeros where the system does not tell."""
    found = {"Rss": 0, "FilePmdMapped": 0}
    here = False
    maps = Path("/proc/self/smaps")
    for line in maps.read_text().splitlines() if maps.exists() else []:
        if re.match(r"[0-9a-f]+-", line):
            here = line.endswith(name)
        elif here and (key := line.partition(":")[0]) in found:
            found[key] += int(line.split()[1]) >> 10
    return found["Rss"], found["FilePmdMapped"]


def anonymous() -> int:
    """Bytes of memory that belong to this process alone."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon; serving memory can be measured on Linux only")
