"""The made-up shop: every way to choose plays the same visitors."""

from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import script

shop = script("shop")
WORLD = Path(__file__).resolve().parents[3] / "shared" / "worlds" / "shop.py"


@pytest.mark.skipif(not WORLD.is_file(), reason="the shop is not beside this checkout (../shared/worlds/shop.py)")
def test_a_bandit_of_vectors_earns_what_the_owner_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "PEERS", Path("not-there"))
    world = shop.load_world(WORLD).Shop(items=3000)
    records = {record["way"]: record for record in shop.measure(world, 1300, seed=3, say=lambda line: None)}
    assert list(records) == ["exact dot product", "truth", "treetop", "shortlist", "squarecb"]
    assert records["shortlist"]["last_fifth_over_dot"] == pytest.approx(1.0)  # by looking at all, without faiss
    assert records["treetop"]["cold_over_dot"] >= 0.95
    assert records["treetop"]["last_fifth_over_dot"] >= 0.9
    assert records["truth"]["cold_over_dot"] > 1.05
    assert all(0 < record["top5_found"] <= 1 for record in records.values())


def test_the_schedule_is_the_bandits() -> None:
    assert shop.epochs(1000) == []
    assert shop.epochs(1500) == [1024, 1229, 1475]


def test_squarecb_draws_three_of_five_slots() -> None:
    score = np.linspace(1, 0, 20)
    drawn = [shop._squarecb(score, 10, np.random.default_rng(i)) for i in range(200)]
    assert all(slots[:2] == [0, 1] and len(set(slots)) == 5 for slots in drawn)
    assert np.mean([slots[2] == 2 for slots in drawn]) > 0.3
    assert len({slots[2] for slots in drawn}) > 5
    greedy = [shop._squarecb(score, 10**12, np.random.default_rng(i)) for i in range(20)]
    assert all(slots == [0, 1, 2, 3, 4] for slots in greedy)


def test_without_the_world_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--world names the file that makes shops"):
        shop.load_world(tmp_path / "nothing.py")
