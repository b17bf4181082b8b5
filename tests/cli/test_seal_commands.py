"""The commands seal and erase, and the export of slots, as they are typed."""

import json
from pathlib import Path

import pytest
from helpers.commands import call, shell
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import SegmentConfig

X, Y = topics()


@pytest.fixture
def shop(tmp_path: Path) -> str:
    folder = small_bandit(tmp_path / "shop", X, Y, config=settings(segments=SegmentConfig(wait_seconds=0, rounds=8)))
    with Bandit.open(folder) as bandit:
        for i in range(20):
            served = bandit.decide(X[i], event_id=f"e{i}", keys={"visitor": i % 3})
            bandit.reward(f"e{i}", {served.arms[0]: 1.0})
    return str(folder)


def test_seal(shop: str) -> None:
    found = json.loads(call("seal", shop, "--json").stdout)
    assert (found["segments"], found["rounds"], found["sealed_rounds"]) == (2, 16, 16)
    said = call("seal", shop, "--rest").stdout
    assert said.startswith("4 rounds sealed in 1 segment, and 0 late rewards; now 20 rounds in 3 segments, ")
    manifest = Path(shop, "segments", "manifest.json")
    manifest.write_text("{}")
    wrong = shell("seal", shop)
    assert wrong.returncode == 2
    assert "manifest.json cannot be read" in wrong.stderr
    assert json.loads(call("seal", shop, "--anew", "--rest", "--json").stdout)["rounds"] == 20


def test_erase(shop: str) -> None:
    call("seal", shop)
    assert json.loads(call("erase", shop, "--key", "visitor=1", "--json").stdout)["events"] == 7
    assert call("erase", shop, "--key", "visitor=1", "--key", "visitor=2").stdout.startswith("erased 6 events; ")
    assert call("erase", shop, "--key", "vistor=3").stdout.startswith("erased 0 events (none carries vistor=3); ")
    with Bandit.open(shop) as bandit:
        assert {stored.event.keys for stored in bandit.log.recent(99)} == {(("visitor", "0"),)}
        assert bandit.refit().rounds == 7
    for key, message in (("visitor", "--key is 'visitor'; NAME=VALUE is needed"), ("visitor=", "has 0 bytes")):
        wrong = shell("erase", shop, "--key", key)
        assert wrong.returncode == 2
        assert message in wrong.stderr


def test_export_of_slots(shop: str, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    call("seal", shop)
    file = tmp_path / "slots.parquet"
    assert json.loads(call("export", shop, str(file), "--rows", "slots", "--json").stdout)["slots"] == 80
    table = parquet.read_table(file).to_pydict()
    assert table["arm_id"] == [f"a{arm}" for arm in table["arm"]]
    log = str(Path(shop, "log.sqlite"))
    assert call("export", log, str(file), "--rows", "slots", "--force").stdout.endswith("slots.parquet: 80 slots\n")
    before = file.read_bytes()
    assert f"error: {file} is there already; --force replaces it" in shell("export", shop, str(file)).stderr
    assert file.read_bytes() == before
    wrong = shell("export", shop, str(file), "--rows", "rounds")
    assert "--rows is 'rounds'; it must be decisions or slots" in wrong.stderr
