"""The tables of a log and their version, which is stored with them. A log of another version is refused."""

from __future__ import annotations

from treetop.errors import LogError
from treetop.log.connection import Connection

VERSION = 7  # 1 to 6 were of development versions
# One counter gives positions to decisions, rewards and marks, in the order of their commits. It is in the one row of
# treetop_state: writers of PostgreSQL take turns by locking that row, writers of SQLite by its own lock.
SETTINGS = "treetop_decisions_settings"  # the index by which settings that no decision has any more are found
TABLES = """
CREATE TABLE treetop_state (
    position {int} NOT NULL, decisions {int} NOT NULL, slots {int} NOT NULL, rewards {int} NOT NULL,
    observed {int} NOT NULL, pending {int} NOT NULL, late {int} NOT NULL, forgotten {int} NOT NULL,
    forgotten_observed {int} NOT NULL, sealed {int} NOT NULL);
INSERT INTO treetop_state VALUES (0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
CREATE TABLE treetop_owner (bandit TEXT NOT NULL);
CREATE TABLE treetop_lineage (size {int} PRIMARY KEY, digest {bytes} NOT NULL);
CREATE TABLE treetop_settings (
    id {int} PRIMARY KEY, digest {bytes} NOT NULL UNIQUE, epoch {int} NOT NULL, model TEXT NOT NULL,
    tree TEXT NOT NULL, policy TEXT NOT NULL);
CREATE TABLE treetop_eligible (fingerprint TEXT PRIMARY KEY, arms {bytes} NOT NULL);
CREATE TABLE treetop_decisions (
    position {int} PRIMARY KEY, event_id TEXT NOT NULL UNIQUE, time {real} NOT NULL, request {bytes} NOT NULL,
    settings {int} NOT NULL, eligible TEXT NOT NULL, removals {int} NOT NULL, context {bytes} NOT NULL,
    slots {bytes} NOT NULL, components {bytes} NOT NULL);
CREATE INDEX treetop_decisions_time ON treetop_decisions (time);
CREATE INDEX treetop_decisions_eligible ON treetop_decisions (eligible) WHERE eligible <> '';
CREATE INDEX treetop_decisions_settings ON treetop_decisions (settings);
CREATE TABLE treetop_rewards (
    decision {int} NOT NULL, slot {int} NOT NULL, value {real} NOT NULL, time {real} NOT NULL,
    position {int} NOT NULL, PRIMARY KEY (decision, slot, position)) {clustered};
CREATE INDEX treetop_rewards_position ON treetop_rewards (position);
CREATE TABLE treetop_keys (
    key_name TEXT NOT NULL, key_value TEXT NOT NULL, decision {int} NOT NULL,
    PRIMARY KEY (key_name, key_value, decision)) {clustered};
CREATE INDEX treetop_keys_decision ON treetop_keys (decision);
CREATE TABLE treetop_marks (position {int} PRIMARY KEY, name TEXT NOT NULL UNIQUE, time {real} NOT NULL);
CREATE TABLE treetop_kept (name TEXT PRIMARY KEY, data {bytes} NOT NULL);
"""


def make_tables(connection: Connection) -> None:
    """Creates the tables in one transaction, if there are none. Raises LogError for tables of another version."""
    if _exist(connection):
        if not connection.has_index(SETTINGS):  # of a development version
            with connection.writing():
                connection.run(f"CREATE INDEX IF NOT EXISTS {SETTINGS} ON treetop_decisions (settings)")
        return
    with connection.writing():
        connection.alone()
        if _exist(connection):  # another process has created them meanwhile
            return
        connection.run("CREATE TABLE treetop_schema (version INTEGER NOT NULL)")
        connection.run("INSERT INTO treetop_schema VALUES (?)", VERSION)
        for statement in TABLES.format_map(connection.types).split(";"):
            if statement.strip():
                connection.run(statement)


def _exist(connection: Connection) -> bool:
    if not connection.has_table("treetop_schema"):
        return False
    version = connection.rows("SELECT version FROM treetop_schema")[0][0]
    if version != VERSION:
        raise LogError(f"{connection.where} has tables of version {version}; this treetop reads version {VERSION}")
    return True
