"""Whose log it is, in the database: the bandit's id, and the stages that its catalogue has gone through.

Events name arms by their place in the catalogue, so the events of another bandit, or of a copy whose catalogue has
changed on its own, would be read under wrong names.
"""

from __future__ import annotations

from treetop.errors import ForeignLog
from treetop.log.connection import Connection
from treetop.log.records import Owner, Stage
from treetop.log.write import State


def read_owner(connection: Connection) -> Owner | None:
    """The owner of a log; None if no bandit has used it yet."""
    bandit = connection.rows("SELECT bandit FROM treetop_owner")
    if not bandit:
        return None
    rows = connection.rows("SELECT size, digest FROM treetop_lineage ORDER BY size")
    return Owner(bandit[0][0], tuple(Stage(size, bytes(digest).hex()) for size, digest in rows))


def claim(connection: Connection, state: State, new: Owner, checked: Owner | None) -> bool:
    """Makes `new` the owner, and returns True. Returns False if the owner is not the one that was `checked` any more.

    Raises ForeignLog if there are decisions in the log and it belongs to nobody.
    """
    found = read_owner(connection)
    if found != checked:
        return False
    if found is None and state.position:
        raise ForeignLog(
            f"the log {connection.where} has {state.decisions} decisions and belongs to no bandit: nobody knows whose "
            "arms they are. Use an empty log"
        )
    store_owner(connection, found, new)
    return True


def store_owner(connection: Connection, old: Owner | None, new: Owner) -> None:
    """Stores an owner, or the stages that are new of it."""
    if old is None:
        connection.insert("treetop_owner", ("bandit",), [(new.bandit,)])
    known = set(old.lineage) if old else set()
    rows = [(stage.size, bytes.fromhex(stage.digest)) for stage in new.lineage if stage not in known]
    if rows:
        connection.insert("treetop_lineage", ("size", "digest"), rows)


def joined_owner(old: Owner | None, other: Owner | None, empty: bool, where: str) -> Owner | None:
    """The owner of a log that takes in the entries of another log. Raises ForeignLog unless both are of one bandit.

    >>> one = Owner("b1", (Stage(10, "aa"),))
    >>> joined_owner(one, Owner("b1", (Stage(10, "aa"), Stage(20, "bb"))), False, "shop").newest.size
    20
    >>> joined_owner(one, Owner("b2", (Stage(10, "cc"),)), False, "shop")
    Traceback (most recent call last):
    treetop.errors.ForeignLog: the file is of bandit b2, the log shop of bandit b1; nothing was imported
    """
    if old is None and (empty or other is None):
        return other
    if old is None or other is None or old.bandit != other.bandit:
        who = [f"bandit {owner.bandit}" if owner else "no bandit" for owner in (other, old)]
        raise ForeignLog(f"the file is of {who[0]}, the log {where} of {who[1]}; nothing was imported")
    shorter, longer = sorted((old, other), key=lambda owner: owner.newest.size)
    if shorter.newest not in longer.lineage:
        raise ForeignLog(
            f"the file and the log {where} are of copies of bandit {old.bandit} whose arms changed separately "
            f"(catalogues of {other.newest.size} and {old.newest.size} bytes); nothing was imported"
        )
    return Owner(old.bandit, tuple(sorted({*old.lineage, *other.lineage})))
