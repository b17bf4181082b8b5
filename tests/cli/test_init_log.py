"""`treetop init --log`: from items and a past log to a bandit that has learned it, in one command or not at all."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import call, shell

from treetop.bandit.bandit import Bandit

COLUMNS = "item=sku,reward=clicked"
ITEMS = "id,category\n" + "".join(f"i{i},shelf {i % 3}\n" for i in range(12))


def past(place: Path, rows: int = 300) -> None:
    (place / "items.csv").write_text(ITEMS)
    lines = ["sku,clicked,device,visitor"]
    for i in range(rows):
        item, phone = i * 7 % 12, i % 2 == 0
        lines.append(f"i{item},{int(item == 4 and phone)},{'phone' if phone else 'desktop'},{i % 2}")
    (place / "past.csv").write_text("\n".join(lines) + "\n")


def init(place: Path, *more: str) -> dict[str, Any]:
    items, log = str(place / "items.csv"), str(place / "past.csv")
    made = shell("init", str(place / "shop"), "--items", items, "--log", log, "--columns", COLUMNS, *more, "--json")
    assert made.returncode == 0, made.stderr
    facts: dict[str, Any] = json.loads(made.stdout)
    return facts


def test_one_command_learns_the_log(tmp_path: Path) -> None:
    past(tmp_path)
    facts = init(tmp_path, "--category", "category", "--log-features", "device")
    log = facts["log"]
    assert (facts["model"], facts["features"], log["decisions"], log["items"]) == ("000001", 2, 300, 12)
    assert "learned from 300 decisions of the log with 300 rewards, which showed 12 of 12" in " ".join(facts["knows"])
    with Bandit.open(tmp_path / "shop") as shop:
        assert shop.vocabulary.names == ("device=phone", "device=desktop")
        assert shop.decide({"device=phone": 1.0}, k=1, explore=0).arms == ["i4"]


def test_contexts_come_from_a_file_of_visitors(tmp_path: Path) -> None:
    past(tmp_path)
    np.save(tmp_path / "visitors.npy", np.eye(2, dtype=np.float32))
    facts = init(tmp_path, "--contexts", str(tmp_path / "visitors.npy"), "--context-key", "visitor")
    assert facts["features"] == 2
    with Bandit.open(tmp_path / "shop") as shop:
        assert shop.decide(np.array([1.0, 0.0]), k=1, explore=0).arms == ["i4"]


def test_nothing_is_left_of_a_log_that_cannot_be_read(tmp_path: Path) -> None:
    past(tmp_path)
    (tmp_path / "past.csv").write_text((tmp_path / "past.csv").read_text() + "i4,maybe,phone,0\n")
    with pytest.raises(AssertionError, match="line 302"):
        init(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.csv", "past.csv"]
    for wrong in (("--columns", "item=sku"), ("--context-key", "visitor")):
        made = shell("init", str(tmp_path / "shop"), "--items", str(tmp_path / "items.csv"), *wrong)
        assert f"{wrong[0]} says something about --log" in made.stderr


def test_a_past_log_is_imported_into_the_log_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    past(tmp_path, rows=6)
    Bandit.create(tmp_path / "shop", [f"i{i}" for i in range(12)]).close()
    words = ("import", str(tmp_path / "shop"), str(tmp_path / "past.csv"), "--columns", COLUMNS, "--json")
    assert call(*words, "--log", str(tmp_path / "named")).exit_code == 0
    monkeypatch.setenv("TREETOP_LOG", str(tmp_path / "variable"))
    assert call(*words).exit_code == 0
    for log, count in (("named", 6), ("variable", 6), ("shop/log.sqlite", 0)):
        with Bandit.open(tmp_path / "shop", tmp_path / log) as shop:
            assert shop.log.counts().decisions == count
