"""Whether a log, or a file exported from one, belongs to a bandit's folder. Changes the log, never the folder.

A folder's catalogue only grows, and what it grew to is recorded in the log after `current` was replaced. So a log never
knows more of the catalogue than its folder, unless the folder is older than the log or a copy that went its own way.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress

from treetop.bandit.folder import BanditFolder
from treetop.errors import ForeignLog, LogError
from treetop.log.base import Log
from treetop.log.records import Owner, Stage

DIGEST_BYTES = 16
OWN_LOG = "or give it an empty log of its own"


def claim_log(folder: BanditFolder, log: Log) -> None:
    """Makes an empty log the folder's own, and records in the folder's log what the catalogue has grown to.

    Raises ForeignLog if the log belongs to another bandit, to a newer state of this folder or to another copy of it.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.bandit.catalogue import Catalogue
    >>> from treetop.log.open import open_log
    >>> with tempfile.TemporaryDirectory() as place, open_log(f"{place}/log.sqlite") as log:
    ...     for name in ("tea", "coffee"):
    ...         with Bandit.create(f"{place}/{name}", Catalogue(vectors=np.eye(4))) as made:
    ...             claim_log(made.folder, log)
    Traceback (most recent call last):
    treetop.errors.ForeignLog: ...
    """
    while True:
        owner = log.owner()  # before the catalogue is read: another process may change both now, in the other order
        stage = check_owner(folder, owner, f"the log {log.where}")
        known = owner.lineage if owner else ()
        if stage in known or log.claim(Owner(folder.state().bandit, (*known, stage)), owner):
            return


def claim_log_if_there(folder: BanditFolder, log: Log) -> None:
    """The same where nothing is lost without the log: then it is claimed by the next who opens it.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.bandit.catalogue import Catalogue
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", Catalogue(vectors=np.eye(4))) as tea:
    ...     tea.log.close()
    ...     claim_log_if_there(tea.folder, tea.log)
    """
    with suppress(LogError):
        claim_log(folder, log)


def check_owner(folder: BanditFolder, owner: Owner | None, what: str) -> Stage:
    """The stage of a folder's catalogue. Raises ForeignLog unless it goes on from the owner's newest one.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> from treetop.bandit.catalogue import Catalogue
    >>> with tempfile.TemporaryDirectory() as place:
    ...     with Bandit.create(f"{place}/tea", Catalogue(vectors=np.eye(4))) as tea:
    ...         tea.remove_arms([3])
    ...         owner = tea.log.owner()
    ...         [stage.size for stage in owner.lineage], check_owner(tea.folder, owner, "the log").size
    ([22, 38], 38)
    """
    state = folder.state()
    if owner is None:
        return _stages(folder.catalogue(state), 0)[1]
    if owner.bandit != state.bandit:
        raise ForeignLog(
            f"{what} belongs to bandit {owner.bandit}, {folder.path} is bandit {state.bandit}: open the folder that it "
            f"belongs to, {OWN_LOG}"
        )
    lines, newest = folder.catalogue(state), owner.newest
    before, stage = _stages(lines, newest.size)
    if before == newest:
        return stage
    if folder.shared is not None and stage in owner.lineage:
        return stage  # a replica that will follow
    both = f"{what} knows a catalogue of {newest.size} bytes, {folder.path} has one of {len(lines)}"
    if stage in owner.lineage:
        raise ForeignLog(
            f"{both}: the folder is older than that, as a restored backup is. Restore a newer copy of it, {OWN_LOG}"
        )
    raise ForeignLog(
        f"{both} that does not go on from it: the folder is a copy of bandit {state.bandit} whose arms changed "
        f"separately. Open the folder that it belongs to, {OWN_LOG}"
    )


def _stages(lines: bytes, size: int) -> tuple[Stage, Stage]:
    """The stage of the first `size` bytes of a catalogue, or of all if there are fewer, and of all."""
    first, rest = lines[:size], memoryview(lines)[size:]
    digest = hashlib.blake2b(first, digest_size=DIGEST_BYTES)
    before = Stage(len(first), digest.hexdigest())
    digest.update(rest)
    return before, Stage(len(lines), digest.hexdigest())
