"""What a service does beside its requests if its bandit has replicas: follow the others, lead if it has the lease."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path

from treetop.bandit.bandit import Bandit
from treetop.bandit.erasure import follow_erasure
from treetop.bandit.lease import Lease
from treetop.service import logs

FOLLOW_INTERVAL = 1.0  # seconds between two looks at what the replicas serve
ERROR_PAUSE = 5.0  # seconds to wait after one that failed
ERASURE_INTERVAL, ERASURE_RETRY = 3600.0, 60.0  # seconds between two looks at what was erased; after a failure


async def follow(bandit: Bandit) -> None:
    """Takes over what other replicas make current, until it is cancelled; every worker then loads it."""
    failed = ""
    while True:
        pause = FOLLOW_INTERVAL
        try:
            await asyncio.to_thread(bandit.folder.follow)
            failed = ""
        except Exception as error:
            pause = ERROR_PAUSE
            if str(error) != failed:
                logs.log_error("what the replicas serve cannot be fetched; the old model serves on")
            failed = str(error)
        await asyncio.sleep(pause)


async def follow_erased(bandit: Bandit) -> None:
    """Takes what others erased from the log out of this replica's own segments, until it is cancelled."""
    while True:
        pause = ERASURE_INTERVAL
        try:
            await asyncio.to_thread(follow_erasure, bandit.folder, bandit.log)
        except Exception:  # the log may be gone, or a refit may be reading segments
            logs.log_error("what was erased from the log could not be taken out of segments")
            pause = ERASURE_RETRY
        await asyncio.sleep(pause)


def lease_holder(folder: Path) -> str:
    """The name under which a process holds the lease. No two have the same, be it on machines that are copies.

    >>> lease_holder(Path("/data")) == lease_holder(Path("/data"))
    False
    """
    return f"{socket.gethostname()}:{folder.resolve()}:{uuid.uuid4().hex}"


async def lead_by_lease(bandit: Bandit, lead: Callable[[], Coroutine[None, None, None]]) -> None:
    """Runs `lead` while this replica has the lease, until it is cancelled; then another may have it at once."""
    lease = Lease(bandit.log, lease_holder(bandit.folder.path), bandit.config.replicas.lease)
    leading: asyncio.Task[None] | None = None
    try:
        while True:
            with contextlib.suppress(OSError):  # without the log nothing can be renewed: the lease runs out
                await asyncio.to_thread(lease.take)
            if lease.held and leading is None:
                logs.log_event("leads", holder=lease.holder)
                leading = asyncio.create_task(lead())
            elif not lease.held and leading is not None:
                logs.log_event("leads no more", holder=lease.holder)
                await _ended(leading)
                leading = None
            await asyncio.sleep(lease.seconds / 5)
    finally:
        await _ended(leading)
        with contextlib.suppress(OSError):
            await asyncio.shield(asyncio.to_thread(lease.release))


async def _ended(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
