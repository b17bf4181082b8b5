"""Notes when a service collects garbage, commits, counts for the dashboard or loads a model. For `latency_profile.py`.

Python imports a module of this name when it starts, so that every process of a service has it, however it is started.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import sys
import threading
import time
from typing import Any

# What is noted, by module, class and method. What a version does not have is left out.
WATCHED = {
    "commit": ("treetop.log.sqlite", "_Connection", "commit"),
    "wait for another writer": ("treetop.log.sqlite", "_Connection", "begin"),
    "insert": ("treetop.log.sqlite", "_Connection", "insert"),
    "dashboard": ("treetop.service.dashboard.board", "Watch", "_tick"),
    "new model": ("treetop.bandit.bandit", "Bandit", "refresh"),
    "schedule": ("treetop.service.refit_scheduler", "RefitScheduler", "_due"),
}
spans: list[tuple[str, float, float]] = []


def watch(kind: str, module: str, owner: str, name: str) -> None:
    holder = getattr(sys.modules[module], owner, None)
    method = getattr(holder, name, None)
    if method is None:
        return

    @functools.wraps(method)
    def timed(*words: Any, **named: Any) -> Any:
        began = time.time()
        try:
            return method(*words, **named)
        finally:
            spans.append((kind, began, time.time()))

    setattr(holder, name, timed)


def watch_all() -> None:
    """Once the modules are there, and for a while: some are imported late."""
    left, until = dict(WATCHED), time.monotonic() + 60
    while left and time.monotonic() < until:
        for kind, place in list(left.items()):
            if place[0] in sys.modules and hasattr(sys.modules[place[0]], place[1]):
                watch(kind, *del_and_return(left, kind))
        time.sleep(0.05)


def del_and_return(left: dict[str, tuple[str, str, str]], kind: str) -> tuple[str, str, str]:
    return left.pop(kind)


def collected(phase: str, facts: dict[str, int]) -> None:
    if phase == "start":
        facts_began[facts["generation"]] = time.time()
    else:
        spans.append((f"garbage {facts['generation']}", facts_began[facts["generation"]], time.time()))


def write() -> None:
    with open(f"{place}.{os.getpid()}", "w") as file:
        json.dump(spans, file)


facts_began: dict[int, float] = {}
place = os.environ.get("LATENCY_PROBE", "")
if place and ("serve" in sys.argv or "treetop.service.worker" in sys.orig_argv):
    gc.callbacks.append(collected)
    threading.Thread(target=watch_all, daemon=True).start()
    atexit.register(write)
