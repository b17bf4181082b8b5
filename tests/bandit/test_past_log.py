"""Logs of another system: read from files, checked line by line, learned from; and rewards beyond [0, 1]."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import call, shell
from helpers.running import settings

import treetop
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, RewardConfig
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.service.dashboard import words

N = 30
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "obd-men"


def shop(folder: Path, features: Any = ("age", "device=mobile", "device=desktop"), **tables: Any) -> Bandit:
    return Bandit.create(folder, [f"s{i}" for i in range(N)], features=features, config=settings(**tables))


def rows(count: int = 50) -> list[dict[str, Any]]:
    """Two slots a visit, in an order that is not that of their positions."""
    return [
        {
            "visit": f"v{visit}",
            "sku": f"s{(visit * 7 + position) % N}",
            "clicked": int(visit % 3 == 0) if visit != 4 else None,
            "p": 0.25 * position,
            "place": position,
            "when": 1_700_000_000 + visit,
            "device": "mobile" if visit % 2 else "desktop",
            "age": visit,
        }
        for visit in range(count)
        for position in (3, 1)
    ]


def write(path: Path, found: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(found), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
    else:
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, list(found[0]))
            table.writeheader()
            table.writerows(found)
    return path


ALL = "item=sku,reward=clicked,propensity=p,position=place,event=visit,time=when"


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_every_form_says_the_same_and_is_learned(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / f"past.{form}", rows())
    with shop(tmp_path / "shop") as bandit:
        found, restored = import_past(bandit, path, PastColumns.of(ALL, "device, age"))
        assert (found.decisions, found.slots, found.rewards, found.observed) == (50, 100, 98, 49)
        assert (restored.decisions, restored.rewards, restored.known) == (50, 98, 0)
        counts = bandit.log.counts()
        assert (counts.decisions, counts.slots, counts.rewards, counts.observed, counts.pending) == (50, 100, 98, 49, 2)
        stored = bandit.event("v3")
        event = stored.event
        assert [bandit.snapshot.arms.ids[arm] for arm in event.arms] == ["s22", "s24"]
        assert json.loads(event.policy) == {"imported": True, "positions": [1, 3]}
        assert event.propensities.tolist() == [0.25, 0.75]
        assert (event.time, stored.rewards.tolist()) == (1_700_000_003, [1, 1])
        assert dict(zip(event.index.tolist(), event.value.tolist(), strict=True)) == {0: 3.0, 1: 1.0}
        assert "another system" in words.decision(stored, str)
        with pytest.raises(ValueError, match="event 'v3' was imported: another system decided it"):
            bandit.replay("v3")
        again = import_past(bandit, path, PastColumns.of(ALL, "device, age"))[1]
        assert (again.decisions, again.known) == (0, 50)
        assert bandit.refit().rewards == 98
        for i in range(5):
            bandit.reward(f"new{i}", {bandit.decide({"age": i}, f"new{i}").arms[0]: 1.0})
        judged = treetop.evaluate(bandit, ["strategy=greedy", "model=000000"])
        assert [found.rounds for found in judged.candidates] == [5, 5]
        assert judged.rounds == 5
        assert judged.candidates[1].left_out["decided by another system"] == 49  # and one without a reward


def test_a_row_is_a_decision_without_events_and_propensities_may_be_unknown(tmp_path: Path) -> None:
    """Contexts in a file of their own, a log that is not empty, and an export that holds all of it."""
    visitors = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.save(tmp_path / "visitors.npy", visitors)
    found = [{"item": f"s{i % N}", "reward": i % 2, "who": i} for i in range(40)]
    path = write(tmp_path / "past.csv", [*found, {"item": "gone", "reward": 1, "who": 0}])
    arms = Catalogue([f"s{i}" for i in range(N)], vectors=np.random.default_rng(1).normal(size=(N, 4)))
    with Bandit.create(tmp_path / "shop", arms, config=settings()) as bandit:
        bandit.reward("x", {bandit.decide(np.ones(4), "x").arms[0]: 1})
    words = [
        "--columns",
        "item=item,reward=reward",
        "--contexts",
        str(tmp_path / "visitors.npy"),
        "--context-key",
        "who",
    ]
    said = call("import", str(tmp_path / "shop"), str(path), *words, "--skip-unknown").output
    assert "40 decisions and 40 rewards; 0 decisions were known; 1 row of unknown items left out" in said
    with Bandit.open(tmp_path / "shop") as bandit:
        events = [stored.event for stored in bandit.log.recent(99) if not stored.event.model]
        assert len(events) == 40
        assert {tuple(event.propensities) for event in events} == {(0.0,)}
        assert {event.policy for event in events} == {'{"imported": true, "positions": [null]}'}
        seen = sorted(tuple(event.value.tolist()) for event in events)
        assert seen == sorted(tuple(row) for row in visitors.tolist())
        assert bandit.refit().rounds == 41
    call("export", str(tmp_path / "shop"), str(tmp_path / "all.jsonl"))
    call("import", str(tmp_path / "copy.sqlite"), str(tmp_path / "all.jsonl"), "--new")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown item": ({"sku": "who"}, "line 6: there is no arm 'who' in the catalogue; --skip-unknown"),
    "no item": ({"sku": None}, "line 6: there is no 'sku'"),
    "a reward": ({"clicked": 2}, "line 6: the column 'clicked' is 2.0; it must be finite and lie in [0, 1]"),
    "no number": ({"clicked": "yes"}, "line 6: 'yes' in the column 'clicked' is not a number"),
    "a propensity": ({"p": 1.5}, "line 6: the column 'p' is 1.5; it must be finite and lie in [0, 1]"),
    "no chance": ({"p": 0}, "line 6: the propensity is 0; what was shown had a chance"),
    "a position": ({"place": 1.5}, "line 6: the position 1.5 is not a whole number"),
    "a time": ({"when": "soon"}, "line 6: 'soon' is no time: seconds since 1970"),
    "an item twice": ({"sku": "s15"}, "line 6: a decision shows each item once"),
    "rows apart": ({"visit": "v0"}, "the rows of event 'v0' are not together"),
    "no event": ({"visit": None}, "line 6: there is no 'visit'"),
}


@pytest.mark.parametrize("wrong", BAD)
def test_nothing_is_half_imported(tmp_path: Path, wrong: str) -> None:
    change, message = BAD[wrong]
    found = rows()
    found[4] |= change
    path = write(tmp_path / "past.csv", found)
    with shop(tmp_path / "shop") as bandit:
        with pytest.raises(ValueError, match=r"past\.csv") as caught:
            import_past(bandit, path, PastColumns.of(ALL))
        assert message in str(caught.value)
        assert bandit.log.counts().decisions == 0


def test_bad_options(tmp_path: Path) -> None:
    path = write(tmp_path / "past.csv", rows())
    shop(tmp_path / "shop").close()
    np.save(tmp_path / "few.npy", np.ones((3, 2)))
    columns = ["--columns", ALL]
    for given, message in (
        (["--columns", "items=sku"], "'items=sku' is not role=column, each once; the roles are item, reward"),
        (["--columns", "item=sku,reward=x"], "past.csv has no column 'x'; it has visit, sku"),
        (["--features", "age"], "past.csv has no column 'item'"),
        ([*columns, "--contexts", str(tmp_path / "few.npy")], "contexts in a file need context=COLUMN"),
        ([*columns, "--contexts", str(tmp_path / "few.npy"), "--context-key", "age"], "contexts of shape (3, 2)"),
        ([*columns, "--contexts", str(path), "--context-key", "age"], "is not a .npy file of numbers"),
    ):
        result = shell("import", str(tmp_path / "shop"), str(path), *given)
        assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    result = shell("import", str(tmp_path / "shop"), str(tmp_path / "past.jsonl"), "--features", "age")
    assert "go with --columns" in result.stderr
    result = shell("import", str(tmp_path / "nowhere"), str(path), *columns)
    assert "is not a bandit's folder, which the log of another system needs" in result.stderr
    (tmp_path / "past.csv").write_text("item,reward\n")
    result = shell("import", str(tmp_path / "shop"), str(path), "--columns", "item=item")
    assert "shows nothing: there are no rows" in result.stderr


def test_a_log_without_contexts_is_refused_where_items_are_compared_with_them(tmp_path: Path) -> None:
    path = tmp_path / "past.csv"
    path.write_text("item,reward\n0,1\n1,0\n")
    with Bandit.create(tmp_path / "shop", Catalogue(["0", "1"], vectors=np.eye(2))) as bandit:
        with pytest.raises(ValueError, match="nothing says where the log's are"):
            import_past(bandit, path, PastColumns.of("item=item"))
        assert bandit.log.counts().decisions == 0


@pytest.mark.skipif(not SHARED.is_dir(), reason="the Open Bandit sample is not beside this checkout (../shared/data)")
def test_a_real_log(tmp_path: Path) -> None:
    """Two policies' logs of the Open Bandit Dataset: 10,000 rows each, positions 1 to 3, true propensities."""
    with Bandit.create(tmp_path / "shop", [str(i) for i in range(34)]) as bandit:
        columns = PastColumns.of(
            "item=item_id,reward=click,propensity=propensity_score,position=position,time=timestamp"
        )
        for name, clicks in (("random", 46), ("bts", 69)):
            before = bandit.log.counts().rewards
            found, _ = import_past(bandit, SHARED / f"{name}.csv.gz", columns)
            assert (found.decisions, bandit.log.counts().rewards - before) == (10_000, 10_000)
            told = [stored.rewards.sum() for stored in bandit.log.recent(10_000)]
            assert sum(told) == clicks
        positions = {json.loads(stored.event.policy)["positions"][0] for stored in bandit.log.recent(10_000)}
        assert positions == {1, 2, 3}
        assert bandit.refit().rounds == 20_000


def test_rewards_in_a_range_of_the_settings(tmp_path: Path) -> None:
    """Kept as they are told, scaled where they are learned, refused beyond."""
    rng = np.random.default_rng(0)
    told = rng.integers(-5, 20, size=60)
    for name, low, high in (("money", -5.0, 20.0), ("share", 0.0, 1.0)):
        with shop(tmp_path / name, rewards=RewardConfig(low=low, high=high)) as bandit:
            for i, revenue in enumerate(told.tolist()):
                served = bandit.decide({"age": i % 5}, f"e{i}")
                bandit.reward(f"e{i}", {served.arms[0]: revenue if name == "money" else (revenue + 5) / 25})
            if name == "money":
                assert bandit.event("e7").rewards[0] == told[7]
                for beyond in (-5.1, 20.5, float("nan")):
                    with pytest.raises(ValueError, match=r"finite and lie in \[-5, 20\]"):
                        bandit.reward("e8", {served.arms[0]: beyond})
            bandit.refit()
            judged = treetop.evaluate(bandit, ["strategy=greedy"])
            expected = told if name == "money" else (told + 5) / 25
            assert judged.served.value == pytest.approx(float(expected.mean()))  # in the units of the settings
    for wrong in ({"low": 1, "high": 1}, {"low": -1e12}, {"low": 0, "high": 5, "default_reward": 7}):
        with pytest.raises(ValueError, match=r"rewards need a range|low is|default_reward is 7"):
            RewardConfig(**wrong)
    path = tmp_path / "money" / "config.toml"
    path.write_text(path.read_text().replace("high = 20.0", "high = 10.0"))
    with Bandit.open(tmp_path / "money") as bandit, pytest.raises(ValueError, match="the settings say"):
        bandit.refit()
    assert Config().rewards.limits == (0.0, 1.0)


@pytest.mark.parametrize("wrong", ["0.9", "inf", "-1", "40"])
def test_a_context_is_a_row_that_is_there(tmp_path: Path, wrong: str) -> None:
    np.save(tmp_path / "visitors.npy", np.ones((40, 3), np.float32))
    path = write(tmp_path / "past.csv", [{"item": "s0", "reward": 1, "who": wrong}])
    with shop(tmp_path / "shop") as bandit:
        columns = PastColumns.of("item=item,reward=reward,context=who", "")
        with pytest.raises(ValueError, match=r"line 2: who is .*; it must be a whole number in \[0, 40\)"):
            import_past(bandit, path, columns, contexts=tmp_path / "visitors.npy")
        assert bandit.log.counts().decisions == 0


def test_the_same_decisions_as_of_scaled_rewards(tmp_path: Path) -> None:
    """Where nothing is negative, by the range alone; where something is, by what a reward is worth beside nothing."""
    told = np.random.default_rng(0).integers(0, 20, size=60).tolist()
    shown = []
    for name, low, high in (("money", 0.0, 20.0), ("share", 0.0, 1.0), ("signed", -5.0, 20.0)):
        with shop(tmp_path / name, rewards=RewardConfig(low=low, high=high)) as bandit:
            for i, revenue in enumerate(told):
                served = bandit.decide({"age": i % 5}, f"e{i}")
                bandit.reward(f"e{i}", {served.arms[0]: revenue / 20 * high})
            bandit.refit()
            shown.append([bandit.decide({"age": i % 5}, f"after{i}").arms for i in range(30)])
    assert shown[0] == shown[1] == shown[2]


def test_rows_of_one_event_share_time_and_context(tmp_path: Path) -> None:
    rows = [{"item": f"s{i}", "reward": 1, "event": "e", "when": f"2024-01-3{i}"} for i in (0, 1)]
    path = write(tmp_path / "past.csv", rows)
    with shop(tmp_path / "shop") as bandit:
        columns = PastColumns.of("item=item,reward=reward,event=event,time=when", "")
        with pytest.raises(ValueError, match="line 3: when is '2024-01-31'; rows before it of the same event say"):
            import_past(bandit, path, columns)


@pytest.mark.parametrize("wrong", ["1700000000000", "20241399", "soon"])
def test_a_time_is_seconds_or_a_date(tmp_path: Path, wrong: str) -> None:
    path = write(tmp_path / "past.csv", [{"item": "s0", "reward": 1, "when": wrong}])
    with shop(tmp_path / "shop") as bandit, pytest.raises(ValueError, match=f"line 2: '{wrong}' is no time"):
        import_past(bandit, path, PastColumns.of("item=item,reward=reward,time=when", ""))


def test_columns_that_are_not_named(tmp_path: Path) -> None:
    """A .csv file has the columns item and reward, or an error says what was looked for, and a value what is wrong."""
    shop(tmp_path / "shop").close()
    path = tmp_path / "past.csv"
    for text, message in (
        (
            "sku,clicked\ns1,1\n",
            "past.csv has no column 'item'; it has sku, clicked. Looked for was item=item, reward=",
        ),
        ("sku,clicked\ns1,1\n", "such as --columns item=sku,reward=clicked"),
        ("item,reward\ns1,1\ns2,x\n", "past.csv, line 3: 'x' in the column 'reward' is not a number"),
        ("item,reward\ns1,7\n", "past.csv, line 2: the column 'reward' is 7.0; it must be finite and lie in [0, 1]"),
    ):
        path.write_text(text)
        result = shell("import", str(tmp_path / "shop"), str(path))
        assert (result.returncode, message in " ".join(result.stderr.split())) == (2, True), result.stderr
    path.write_text("item,reward\ns1,1\ns2,0\n")
    assert "2 decisions and 2 rewards" in call("import", str(tmp_path / "shop"), str(path)).stdout
