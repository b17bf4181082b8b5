"""What a model brings on rows that come after its stream."""

import pytest
from helpers.scripts import script

from treetop.data.datasets import load

fresh = script("fresh")


def test_models_are_judged_on_rows_behind_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "SIZES", {**fresh.SIZES, "init": 200})
    monkeypatch.setattr(fresh, "FRESH", 150)
    data = load("synthetic:arms=60,features=40,rows=900,init=200")
    default, greedy = fresh.measure(data, rounds=700, seed=0)
    assert (default["strategy"], greedy["strategy"]) == ("budgeted", "greedy")
    for record in (default, greedy):
        assert 0 < record["fresh"] <= 5
        assert 0 < record["arms_rewarded"] <= 60
        assert record["rewards"] > 0
