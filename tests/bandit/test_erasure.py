"""Somebody's events are erased: no file of the folder has a byte of them, and the next model never met them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.logs import check_whole
from helpers.postgres import Server
from helpers.problems import topics
from helpers.sealing import check_feedback

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, SegmentConfig
from treetop.bandit.erasure import erase_events, follow_erasure
from treetop.bandit.sealing import follow_deletions, segment_folder
from treetop.bandit.spread_tallies import PREFIX, Known, SpreadTallies
from treetop.errors import EventConflict
from treetop.log import sqlite
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.pack import pack_context
from treetop.log.rounds import gather
from treetop.log.segments import binding
from treetop.log.segments.reading import sealed_samples
from treetop.log.transfer import export_log, import_log
from treetop.parallel import Machines

X, Y = topics()
AT_ONCE = SegmentConfig(wait_seconds=0.0, rounds=16)
PERSON = "person-7c41"  # of the key, and of the ids of its events
# An evaluation by tasks, as on a cluster, that is killed while the first of them would run.
KILLED = """
import os, sys
from treetop.bandit import evaluation, spread_tallies
from treetop.bandit.bandit import Bandit
from treetop.effort import Effort
from treetop.parallel import Machines

evaluation.Machines = lambda ray: Machines()
spread_tallies.SpreadTallies._finish_wave = lambda tallies: os.kill(os.getpid(), 9)
with Bandit.open(*sys.argv[1:]) as bandit:
    evaluation.evaluate(bandit, ["beam=2"], effort=Effort(ray="auto"))
"""


@pytest.fixture(autouse=True)
def careless_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite as most builds have it: what is deleted stays in free pages. Debian's overwrites it."""
    set_up = sqlite._Connection._set_up

    def careless(self: sqlite._Connection) -> None:
        set_up(self)
        self.rows("PRAGMA secure_delete = OFF")

    monkeypatch.setattr(sqlite._Connection, "_set_up", careless)


@pytest.fixture
def bandit(tmp_path: Path, place: str) -> Iterator[Bandit]:
    Bandit.create(tmp_path / "shop", X=X[:300], Y=Y[:300], config=Config(segments=AT_ONCE)).close()
    with Bandit.open(tmp_path / "shop", place) as opened:
        yield opened


def visit(bandit: Bandit, n: int, who: str) -> None:
    x = X[n % 500].toarray()[0] * np.float32(0.5 + n / 4096)  # no two contexts share a value
    served = bandit.decide(x, event_id=f"{who}-{os.urandom(4).hex()}-{n}", keys={"visitor": who, "page": n})
    bandit.reward(served.event_id, {served.arms[0]: 1.0})


def visits(bandit: Bandit, count: int, first: int = 0) -> None:
    """Every seventh is that person's."""
    for n in range(first, first + count):
        visit(bandit, n, PERSON if n % 7 == 3 else f"other-{n % 5}")


def traces(bandit: Bandit) -> list[bytes]:
    """What would give the person away: names, and contexts as log and segments store them."""
    found = [PERSON.encode()]
    for chunk in bandit.log.entries(bandit.log.summary()):
        mine = [entry.stored.event for entry in chunk if ("visitor", PERSON) in entry.stored.event.keys]
        found += [pack_context(event)[:32] for event in mine] + [event.value[:4].tobytes() for event in mine]
        found += [event.request for event in mine]
    return found


def holding(folder: Path, needles: list[bytes]) -> set[str]:
    """The files of a folder that hold any of these bytes."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {str(path.relative_to(folder)) for path, data in files.items() if any(n in data for n in needles)}


def tables_holding(server: Server, needles: list[bytes]) -> set[str]:
    """The files of a server's databases that hold any of these, once it has written all and deleted what it dropped:
    without its write-ahead log."""
    import psycopg

    with psycopg.connect(server.address, autocommit=True) as db:
        db.execute("CHECKPOINT")
    return holding(server.folder / "data/base", needles)


def others(log: Log) -> list[str]:
    return [e.stored.event.event_id for chunk in log.entries(log.summary()) for e in chunk]


def test_no_file_has_a_byte_of_what_was_erased(
    bandit: Bandit, tmp_path: Path, place: str, request: pytest.FixtureRequest
) -> None:
    visits(bandit, 120)
    bandit.refit()
    visits(bandit, 60, first=120)  # some of it is not sealed
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "shop"), place]).returncode == -9
    needles, embedded = traces(bandit), (tmp_path / "log.sqlite").exists()
    server: Any = None if embedded else request.getfixturevalue("server")
    before = holding(tmp_path, needles)
    assert len({name for name in before if "segments" in name}) > 5
    assert any(name.startswith("shop/evaluate-work-") for name in before)
    assert not embedded or {"log.sqlite", "log.sqlite-wal"} & before
    assert embedded or tables_holding(server, needles)
    erased = erase_events(bandit.folder, bandit.log, [("visitor", PERSON)])
    assert erased.events == 26
    assert erased.files >= 7
    assert holding(tmp_path, needles) == set()
    assert embedded or tables_holding(server, needles) == set()
    assert not any(PERSON in name for name in others(bandit.log))
    assert len(others(bandit.log)) == 180 - 26
    check_whole(bandit.log)
    until = bandit.log.seal("now")
    folder, columns = segment_folder(bandit.folder), bandit.snapshot.model.n_features
    check_feedback(
        gather(sealed_samples(folder, bandit.log, until), columns), gather(bandit.log.samples(until), columns)
    )
    manifest = folder.manifest()
    assert manifest is not None
    assert manifest.rounds > 80
    assert bandit.refit().rounds == 180 - 26
    assert holding(tmp_path, needles) == set()
    assert erase_events(bandit.folder, bandit.log, [("visitor", PERSON)]).events == 0
    assert [entry["count"] for entry in bandit.folder.history() if entry["kind"] == "events erased"] == [26, 0]


def test_an_evaluation_that_runs_keeps_its_folder_to_the_end(bandit: Bandit, tmp_path: Path) -> None:
    def folders() -> list[Path]:
        return list((tmp_path / "shop").glob(f"{PREFIX}*"))

    known = Known({}, bandit.snapshot.arms, (0.0, 1.0))
    with SpreadTallies(1, None, known, Machines(), tmp_path / "shop") as tallies:
        follow_erasure(bandit.folder, bandit.log)
        assert folders() == [tallies.path]
        with SpreadTallies(1, None, known, Machines(), tmp_path / "shop") as others:
            assert set(folders()) == {tallies.path, others.path}
    assert folders() == []


@pytest.mark.parametrize("learned", [False, True], ids=["at once", "after a refit"])
def test_a_bandit_that_erased_somebody_learns_what_one_learns_that_never_met_them(
    tmp_path: Path, learned: bool
) -> None:
    """Whether or not a model has learned from them: nothing is carried on from it. Nobody knows the last arms."""
    labels, models = Y[:300].toarray(), []
    labels[:, 40:] = 0
    for name, met in (("one", True), ("two", False)):
        Bandit.create(tmp_path / name, X=X[:300], Y=labels, config=Config(segments=AT_ONCE)).close()
        with Bandit.open(tmp_path / name) as bandit:
            for n in range(64):
                if n % 4 == 1 and met:
                    bandit.decide(X[n], event_id=f"{PERSON}-{n}", keys={"visitor": PERSON})
                    bandit.reward(f"{PERSON}-{n}", {bandit.event(f"{PERSON}-{n}").event.arms.tolist()[0]: 1.0})
                served = bandit.decide(X[300 + n], event_id=f"e{n}", keys={"visitor": n})
                bandit.reward(f"e{n}", {served.arms[0]: float(n % 2)})
            if met and learned:
                bandit.refit()
            if met:
                erase_events(bandit.folder, bandit.log, [("visitor", PERSON)])
            path = bandit.folder.model_path(bandit.refit().model)
            found = {file.name: file.read_bytes() for file in path.iterdir()}
            if learned:
                del found["manifest.json"]  # has the epoch
            models.append(found)
    assert models[0] == models[1]


def test_while_others_read_and_write(bandit: Bandit, tmp_path: Path, place: str) -> None:
    visits(bandit, 40)
    with Bandit.open(tmp_path / "shop", place) as other:
        assert other.log.counts().decisions == 40
        needles = traces(bandit)
        erase_events(bandit.folder, bandit.log, [("visitor", PERSON)])
        other.decide(X[0], keys={"visitor": 1})
        assert holding(tmp_path, needles) == set()


def test_erasure_that_was_cut_off_is_finished_by_the_next(bandit: Bandit, tmp_path: Path) -> None:
    visits(bandit, 64)
    bandit.refit()
    needles = traces(bandit)
    while bandit.log.erase(("visitor", PERSON)):  # the process ends here
        pass
    assert holding(tmp_path / "shop/segments", needles)
    assert erase_events(bandit.folder, bandit.log, [("visitor", PERSON)]).files > 0
    assert holding(tmp_path, needles) == set()


def test_damaged_and_foreign_segments_are_deleted(bandit: Bandit) -> None:
    visits(bandit, 64)
    bandit.refit()
    folder = segment_folder(bandit.folder)
    found = folder.manifest()
    assert found is not None
    bandit.log.erase(("visitor", PERSON))
    (folder.path / found.segments[0].name / "arm.npy").write_bytes(b"?")
    assert follow_deletions(bandit.folder, bandit.log) > 0
    assert not folder.path.exists()
    bandit.refit()
    bandit.log.keep(binding.NAME, b'{"another": 9}')
    assert follow_deletions(bandit.folder, bandit.log) > 0
    found = folder.manifest()
    assert found is not None
    assert found.rounds == 0
    assert follow_deletions(bandit.folder, bandit.log) == 0


def test_keys_are_stored_exported_and_part_of_the_request(bandit: Bandit, tmp_path: Path) -> None:
    served = bandit.decide(X[0], event_id="a", keys={"visitor": 123, "device": "é"})
    assert bandit.decide(X[0], event_id="a", keys={"device": "é", "visitor": "123"}) == served
    with pytest.raises(EventConflict):
        bandit.decide(X[0], event_id="a", keys={"visitor": 124})
    with pytest.raises(EventConflict):
        bandit.decide(X[0], event_id="a")
    bandit.decide(X[0], event_id="b")
    assert bandit.event("a").event.keys == (("device", "é"), ("visitor", "123"))
    assert bandit.event("b").event.keys == ()
    for name in ("all.jsonl", "all.parquet"):
        export_log(bandit.log, tmp_path / name)
        with open_log(tmp_path / f"{name}.sqlite") as log:
            import_log(log, tmp_path / name)
            stored = log.event("a")
            assert stored is not None
            assert stored.event.keys == (("device", "é"), ("visitor", "123"))
            assert log.erase(("device", "é")) == 1
            assert others(log) == ["b"]
    assert bandit.log.forget(2e9) == 2
    assert bandit.log.erase(("visitor", "123")) == 0
    bandit.decide(X[0], event_id="a", keys={"visitor": 124})  # the id is free again


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"visitor": ""}, "the value of key 'visitor' has 0 bytes; 1 to 256"),
        ({"visitor": "x" * 257}, "has 257 bytes"),
        ({"": "x"}, "the name of a key '' has 0 bytes; 1 to 64"),
        ({"visitor": 1.5}, "must be text or a whole number, not 1.5"),
        ({"visitor": True}, "must be text or a whole number, not True"),
        ({"visitor": "a\0b"}, "none of them zero"),
        ({f"k{i}": "x" for i in range(9)}, "a decision has 9 keys; at most 8"),
        ({"visitor": "\ud800"}, "is not valid text"),
        ([("visitor", "1")], "keys must be names with values"),
    ],
)
def test_bad_keys_are_refused(tmp_path: Path, keys: Any, message: str) -> None:
    with Bandit.create(tmp_path / "shop", X=X[:300], Y=Y[:300]) as bandit:
        with pytest.raises((ValueError, TypeError), match=message):
            bandit.decide(X[0], keys=keys)
        with pytest.raises(ValueError, match="no keys to erase by"):
            erase_events(bandit.folder, bandit.log, [])
        assert bandit.log.counts().decisions == 0
