"""The made-up shop: every way to choose plays the same visitors."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest
from helpers.scripts import script

shop = script("shop")
WORLD = Path(__file__).resolve().parents[3] / "shared" / "worlds" / "shop.py"


def asked(visits: int, turn: bool = False, examined: float = 1.0) -> Namespace:
    return Namespace(visits=visits, seed=3, turn=turn, examined=examined, beside="parts")


@pytest.mark.skipif(not WORLD.is_file(), reason="the shop is not beside this checkout (../shared/worlds/shop.py)")
def test_a_bandit_of_vectors_earns_what_the_owner_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "PEERS", Path("not-there"))
    world = shop.load_world(WORLD).Shop(items=3000)
    records = {record["way"]: record for record in shop.measure(world, asked(1300), say=lambda line: None)}
    in_stock = ["exact dot product, in stock", "treetop, in stock"]
    assert list(records) == ["exact dot product", "truth", "treetop", *in_stock, "shortlist", "squarecb"]
    assert records["treetop, in stock"]["out_of_stock"] == 0
    assert records["treetop, in stock"]["cold_over_dot"] >= 0.95
    assert records["shortlist"]["last_fifth_over_dot"] == pytest.approx(1.0)  # by looking at all, without faiss
    assert records["treetop"]["cold_over_dot"] >= 0.95
    assert records["treetop"]["last_fifth_over_dot"] >= 0.9
    assert records["treetop"]["beam_recall"] >= 0.95
    assert records["truth"]["cold_over_dot"] > 1.05
    assert all(0 < record["top5_found"] <= 1 for record in records.values())


@pytest.mark.skipif(not WORLD.is_file(), reason="the shop is not beside this checkout (../shared/worlds/shop.py)")
def test_visitors_in_a_space_of_their_own_with_a_past_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shop, "PAST", 1500)
    world = shop.load_world(WORLD).Shop(items=1000, dimensions=16, turn=True)
    found = shop.measure(world, asked(100, turn=True, examined=0.85), say=lambda line: None, peers=False)
    records = {record["way"]: record for record in found}
    assert list(records) == ["exact dot product", "dot product without a map", "truth", "treetop"]
    assert records["treetop"]["last_fifth"] > 2 * records["dot product without a map"]["last_fifth"]
    assert len(records["treetop"]["examined"]) == 5


def test_the_schedule_is_the_bandits() -> None:
    assert shop.epochs(1000) == []
    assert shop.epochs(1500) == [1024, 1229, 1475]
    assert shop.epochs(30_000, past=50_000) == [10_000, 22_000]


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
