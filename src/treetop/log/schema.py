"""The tables, version by version. A log of an older version is brought forward when it is opened."""

from __future__ import annotations

from treetop.errors import LogError
from treetop.log.connection import Connection

# One counter gives positions to decisions, rewards and marks alike, in the order in which they are committed. The one
# row of treetop_state holds it: PostgreSQL's writers take turns by locking that row, SQLite's by its own lock.
VERSIONS = [
    """
    CREATE TABLE treetop_state (
        position {int} NOT NULL, decisions {int} NOT NULL, slots {int} NOT NULL, rewards {int} NOT NULL,
        observed {int} NOT NULL, pending {int} NOT NULL, late {int} NOT NULL, forgotten {int} NOT NULL,
        sealed {int} NOT NULL);
    INSERT INTO treetop_state VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0);
    CREATE TABLE treetop_settings (
        id {int} PRIMARY KEY, digest {bytes} NOT NULL UNIQUE, epoch {int} NOT NULL, model TEXT NOT NULL,
        tree TEXT NOT NULL, policy TEXT NOT NULL);
    CREATE TABLE treetop_eligible (fingerprint TEXT PRIMARY KEY, arms {bytes} NOT NULL);
    CREATE TABLE treetop_decisions (
        position {int} PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, time {real} NOT NULL, request {bytes} NOT NULL,
        settings {int} NOT NULL, eligible TEXT NOT NULL, context {bytes} NOT NULL, slots {bytes} NOT NULL);
    CREATE INDEX treetop_decisions_time ON treetop_decisions (time);
    CREATE INDEX treetop_decisions_eligible ON treetop_decisions (eligible) WHERE eligible <> '';
    CREATE TABLE treetop_rewards (
        decision {int} NOT NULL, slot {int} NOT NULL, value {real} NOT NULL, time {real} NOT NULL,
        position {int} NOT NULL, PRIMARY KEY (decision, slot)) {clustered};
    CREATE INDEX treetop_rewards_position ON treetop_rewards (position);
    CREATE TABLE treetop_marks (position {int} PRIMARY KEY, name TEXT NOT NULL UNIQUE, time {real} NOT NULL);
    """,
    # Version 2: totals for the dashboard, so that a restart does not read the whole log again.
    "CREATE TABLE treetop_kept (name TEXT PRIMARY KEY, data {bytes} NOT NULL)",
]


def migrate(connection: Connection) -> None:
    """Makes the tables, or brings those of an older version forward, in one transaction; newer ones are refused."""
    if _version(connection) == len(VERSIONS):
        return
    with connection.writing():
        connection.alone()
        version = _version(connection)  # another process may have done it meanwhile
        if version > len(VERSIONS):
            raise LogError(
                f"{connection.where} has tables of version {version}; this treetop knows {len(VERSIONS)}: upgrade it"
            )
        if version == 0:
            connection.run("CREATE TABLE treetop_schema (version INTEGER NOT NULL)")
            connection.run("INSERT INTO treetop_schema VALUES (0)")
        for script in VERSIONS[version:]:
            for statement in script.format_map(connection.types).split(";"):
                if statement.strip():
                    connection.run(statement)
        connection.run("UPDATE treetop_schema SET version = ?", len(VERSIONS))


def _version(connection: Connection) -> int:
    if not connection.has_table("treetop_schema"):
        return 0
    return int(connection.rows("SELECT version FROM treetop_schema")[0][0])
