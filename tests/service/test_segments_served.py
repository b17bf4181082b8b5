"""Segments and erasure beside a service that runs: its refits seal, and what is erased is gone while it decides."""

import json
from pathlib import Path

from helpers.commands import call
from helpers.problems import topics
from helpers.running import named, running, settings, small_bandit

from treetop.bandit.config import SegmentConfig
from treetop.bandit.folder import BanditFolder
from treetop.bandit.sealing import segment_folder

X, Y = topics()
PERSON = "person-7c41"


def holding(folder: Path, text: bytes) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]


def test_a_refit_seals_and_erasure_works_beside_a_service(tmp_path: Path) -> None:
    at_once = settings(segments=SegmentConfig(wait_seconds=0.0, rounds=16))
    folder = small_bandit(tmp_path / "shop", X, Y, config=at_once)
    with running(folder) as service, service.client() as client:
        for i in range(40):
            who = PERSON if i % 4 == 0 else f"other-{i}"
            served = client.decide(named(X, i), event_id=f"{who}-{i}", keys={"visitor": who})
            client.reward(served.event_id, {served.arms[0]: 1.0})
        assert client.refit(wait=True)["status"] == "done"
        found = segment_folder(BanditFolder(folder)).manifest()
        assert found is not None
        assert found.rounds == 32
        assert holding(folder, PERSON.encode())
        erased = json.loads(call("erase", str(folder), "--key", f"visitor={PERSON}", "--json").stdout)
        assert erased["events"] == 10
        assert not holding(folder, PERSON.encode())
        assert client.decide(named(X, 0), event_id=f"{PERSON}-0").event_id  # the id is free again
        assert client.refit(wait=True)["status"] == "done"
    history = BanditFolder(folder).history()
    assert [entry["rounds"] for entry in history if entry["kind"] == "refit"] == [40, 31]
    assert not [entry for entry in history if entry["kind"] == "segments not used"]
