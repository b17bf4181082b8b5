"""The backup of docs/operations.md, made by its own commands while a service is busy, serves on another host."""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.postgres import Server, new_database
from helpers.problems import topics
from helpers.running import PLAIN, Running, named, running, small_bandit
from helpers.snippets import ROOT, blocks_of

from treetop import Bandit, Config, SegmentConfig
from treetop.bandit.forgetting import sum_up_before
from treetop.bandit.results import same_decision

PAGE = (ROOT / "docs" / "operations.md").read_text()
HERE, THERE = "postgresql://shop@127.0.0.1/shop", "postgresql://shop@127.0.0.2/shop"


def documented() -> list[list[str]]:
    """The lines of the section's blocks: backup, PostgreSQL in its place, restore, PostgreSQL in its place."""
    section = PAGE.partition("## Backup and restore\n")[2].partition("\n## ")[0]
    found = [block.text.splitlines() for block in blocks_of(section)]
    assert len(found) == 4
    return found


def run(lines: list[str], place: Path, addresses: dict[str, str] | None = None) -> None:
    """Runs commands of the page in a folder, with other addresses of databases."""
    script = "\n".join(lines)
    for old, new in (addresses or {}).items():
        script = script.replace(old, new)
    command = ["bash", "-eo", "pipefail", "-c", script]
    ended = subprocess.run(command, cwd=place, env=PLAIN, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr


def skip_without(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def commands(store: str) -> tuple[list[str], list[str]]:
    """What copies a running service, and what puts the copy in place elsewhere."""
    copy, copy_postgres, put, put_postgres = documented()
    sqlite, pg_dump = (
        next(line for line in lines if name in line) for lines, name in ((copy, "sqlite3"), (copy_postgres, "pg_dump"))
    )
    put = [line for line in put if line.startswith(("mkdir", "cp"))]
    if store == "sqlite":
        return copy, put
    copy[copy.index(sqlite)] = pg_dump
    return copy, [
        *(line for line in put if "log.sqlite" not in line),
        next(x for x in put_postgres if "pg_restore" in x),
    ]


@contextmanager
def visits(service: Running, acknowledged: list[str]) -> Iterator[None]:
    """Decisions with rewards, one after the other, until the end; ids are added when both were acknowledged."""
    X, _ = topics()
    ending = threading.Event()

    def visit() -> None:
        with service.client() as client:
            while not ending.wait(0.005):
                event = f"visit-{len(acknowledged)}"
                shown = client.decide(named(X, len(acknowledged) % 300), event_id=event)
                client.reward(event, {shown.arms[0]: 1.0})
                acknowledged.append(event)

    thread = threading.Thread(target=visit)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_backup_of_a_busy_service_serves_elsewhere(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    skip_without("flock", *(("sqlite3",) if store == "sqlite" else ("pg_dump", "pg_restore")))
    addresses = {}
    if store == "postgres":
        server: Server = request.getfixturevalue("server")
        addresses = {HERE: new_database(server), THERE: new_database(server)}
    copy, put = commands(store)

    def log(where: str) -> tuple[str, ...]:
        return ("--log", addresses[where]) if addresses else ()

    acknowledged: list[str] = []
    folder = small_bandit(tmp_path / "shop", *topics())
    with running(folder, *log(HERE)) as service:
        with visits(service, acknowledged):
            service.wait_for(lambda: len(acknowledged) > 20)
            assert service.post("/v1/refit", {}).status == 202
            service.wait_for(lambda: service.model_is("000001"))
            refitted = len(acknowledged)
            service.wait_for(lambda: len(acknowledged) > refitted + 20)
            before = acknowledged[:20] + acknowledged[refitted + 1 :][-20:]
            asked = len(acknowledged)
            run(copy, tmp_path, addresses)
        models = {event: service.get(f"/v1/events/{event}").json for event in before}
        assert {event["model"] for event in models.values()} == {"000000", "000001"}
    assert len(acknowledged) > asked  # it was busy meanwhile
    shutil.rmtree(folder)
    run(put, tmp_path, addresses)
    restored = tmp_path / "other-host" / "shop"
    with running(restored, *log(THERE)) as service:
        assert all(service.get(f"/v1/events/{event}").json == models[event] for event in before)
        assert service.post("/v1/decide", {"event_id": "new", "features": {"f1": 1.0}}).status == 200
    with Bandit.open(restored, addresses.get(THERE)) as bandit:
        assert all(same_decision(*bandit.replay(event)) for event in [*before, "new"])


def test_a_backup_has_the_sums_of_rounds_that_retention_deleted(tmp_path: Path) -> None:
    skip_without("flock", "sqlite3")
    X, Y = topics()
    at_once = SegmentConfig(wait_seconds=0.0, rounds=50)
    with Bandit.create(tmp_path / "shop", X=X, Y=Y, config=Config(segments=at_once)) as shop:
        for visit in range(200):
            served = shop.decide(X[visit], f"visit-{visit}", k=2)
            shop.reward(f"visit-{visit}", {served.arms[0]: float(visit % 2)})
        shop.refit()
        before, now = shop.event("visit-120").event.time, shop.snapshot
        assert sum_up_before(shop.folder, shop.log, shop.config, now.model, now.arms, before, time.time())
        assert shop.log.forget(before) == 120
        copy, put = commands("sqlite")
        run(copy, tmp_path)
        assert shop.refit().rounds == 200
    run(put, tmp_path)
    with Bandit.open(tmp_path / "other-host" / "shop") as restored:
        result = restored.refit()
        assert (result.model, result.rounds, result.warnings) == ("000002", 200, ())
        made = restored.folder.model_path(result.model)
    for file in (tmp_path / "shop" / "models" / result.model).iterdir():
        assert (made / file.name).read_bytes() == file.read_bytes()
