"""A log moves to a file and back, between all kinds of logs, and nothing of it changes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import shell
from helpers.logs import check_whole, event, same, same_samples
from helpers.postgres import new_schema

from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Counts, LogSummary, Reward
from treetop.log.transfer import export_log, import_log

KINDS = ["sqlite", "postgres"]
FORMS = ["jsonl", "parquet"]


@pytest.fixture
def new_log(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    def place(kind: str) -> str:
        if kind == "postgres":
            return new_schema(request.getfixturevalue("server"))
        return str(tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite")

    return place


def fill(log: Log, n: int = 40, name: str = "e") -> None:
    """Decisions of several widths and sets, rewards before and after marks, and some of it forgotten."""
    events = [
        event(
            f"{name}{i}",
            k=i % 5,
            time=1000.0 + i,
            model_epoch=i // 9,
            eligible="odd" if i % 2 else "",
            tree=f"t{i // 20}",
            components=(0, 2, 3)[i % 3],
        )
        for i in range(n)
    ]
    log.append(events, {"odd": np.arange(1, 99, 2, dtype=np.int32)})
    log.reward([Reward(e.event_id, int(e.arms[0]), i / n, 5e3 + i) for i, e in enumerate(events) if len(e)])
    log.seal(f"{name} first")
    log.reward([Reward(e.event_id, int(e.arms[-1]), 1 / 3, 6e3) for e in events if len(e) > 3])
    log.reward([Reward(e.event_id, int(e.arms[-1]), 1.0, 7e3, corrects=True) for e in events[::4] if len(e) > 3])
    log.seal(f"{name} second")
    log.append([event(f"{name}-last")])
    log.forget(1005.0)


def check_same(one: Log, two: Log) -> None:
    assert one.summary() == two.summary()
    for mark in one.marks():
        assert same_samples(one.samples(mark), two.samples(mark))
    for a, b in zip(one.recent(1000), two.recent(1000), strict=True):
        assert same(a.event, b.event)
        assert a.position == b.position
        assert np.array_equal(a.times, b.times, equal_nan=True)
        assert a.replaced == b.replaced
        assert (a.event.request, a.event.policy, a.event.eligible) == (
            b.event.request,
            b.event.policy,
            b.event.eligible,
        )
    odd = [log.eligible_set("odd") for log in (one, two)]
    assert odd[0] is not None
    assert np.array_equal(*odd)  # type: ignore[arg-type]
    check_whole(two)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_a_round_trip_changes_nothing(
    new_log: Callable[[str], str], source: str, target: str, form: str, tmp_path: Path
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'treetop-bandits[parquet]')")
    with open_log(new_log(source)) as one, open_log(new_log(target)) as two:
        fill(one)
        file, again = tmp_path / f"one.{form}", tmp_path / f"two.{form}"
        assert export_log(one, file) == 36
        found = import_log(two, file)
        assert (found.decisions, found.known) == (36, 0)
        check_same(one, two)
        export_log(two, again)
        assert file.read_bytes() == again.read_bytes()
        # What is there already is left as it is, and the next decision follows the last.
        assert import_log(two, file).known == 36
        check_same(one, two)
        for log in (one, two):
            log.append([event("after")])
        assert one.counts() == two.counts()


def test_components_are_a_list_a_slot_and_left_out_where_there_are_none(
    new_log: Callable[[str], str], tmp_path: Path
) -> None:
    file, made = tmp_path / "log.jsonl", [event("a", components=0), event("b")]
    with open_log(new_log("sqlite")) as log:
        log.append(made)
        export_log(log, file)
    _, a, b, _ = map(json.loads, file.read_text().splitlines())
    assert "components" not in a
    assert np.array_equal(np.array(b["components"], np.float32), made[1].components)


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_after_the_snapshot_is_not_exported(new_log: Callable[[str], str], kind: str) -> None:
    with open_log(new_log(kind)) as log:
        made = event("a")
        log.append([made])
        log.reward([Reward("a", int(made.arms[0]), 0.5, 1.0)])
        snapshot = log.summary()
        log.reward([Reward("a", int(made.arms[1]), 0.25, 1.0)])
        log.append([event("b")])
        ((entry,),) = log.entries(snapshot)
        assert entry.stored.event.event_id == "a"
        assert np.isnan(entry.stored.rewards).tolist() == [False, True, True]
        assert (entry.reward_positions > 0).tolist() == [True, False, False]


def test_large_numbers_of_decisions_come_in_chunks(new_log: Callable[[str], str], tmp_path: Path) -> None:
    told: list[int] = []
    with open_log(new_log("sqlite")) as one, open_log(new_log("sqlite")) as two:
        one.append([event(i) for i in range(2500)])
        export_log(one, tmp_path / "log.jsonl", told.append)
        import_log(two, tmp_path / "log.jsonl", told.append)
        assert told == [1024, 2048, 2500] * 2
        assert two.counts() == one.counts()


@pytest.mark.parametrize("target", KINDS)
def test_a_file_is_added_to_a_log_that_has_something(
    new_log: Callable[[str], str], target: str, tmp_path: Path
) -> None:
    with open_log(new_log("sqlite")) as one, open_log(new_log(target)) as two:
        fill(one)
        fill(two, name="other")
        two.append([event("e-last")])
        export_log(one, tmp_path / "log.jsonl")
        late = two.counts().late
        found = import_log(two, tmp_path / "log.jsonl")
        assert (found.decisions, found.known) == (35, 1)
        assert found.rewards == sum(int((~np.isnan(s.rewards)).sum()) for s in one.recent(100))
        check_whole(two)
        assert [m.name for m in two.marks()] == ["other first", "other second"]
        assert two.counts().late == late
        for stored in one.recent(100):
            there = two.event(stored.event.event_id)
            assert there is not None
            assert np.array_equal(there.rewards, stored.rewards, equal_nan=True)
        newest = event("newest")
        two.append([newest])
        assert two.recent(1)[0].event.event_id == "newest"


def test_what_contradicts_the_log_leaves_it_as_it_was(new_log: Callable[[str], str], tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    with open_log(new_log("sqlite")) as one, open_log(new_log("sqlite")) as two:
        fill(one)
        export_log(one, file)
        other = event("e39", "other request", k=4)
        two.append([other])
        with pytest.raises(ValueError, match="'e39' is in the log already, decided for another request"):
            import_log(two, file)
        assert two.counts().decisions == 1
    with open_log(new_log("sqlite")) as two:
        made = event("e39", k=4)
        two.append([made])
        two.reward([Reward("e39", int(made.arms[0]), 0.125, 1.0)])
        with pytest.raises(ValueError, match=r"'e39' has reward 0\.125 in the log already, not 0\.975"):
            import_log(two, file)
        assert two.counts().decisions == 1


def spoiled(change: Callable[[dict[str, Any]], object]) -> Callable[[list[str]], list[str]]:
    """A change of the tenth record."""

    def spoil(lines: list[str]) -> list[str]:
        record = json.loads(lines[10])
        change(record)
        return [*lines[:10], json.dumps(record), *lines[11:]]

    return spoil


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda lines: lines[:-1], "cut off"),
        (lambda lines: lines[:20] + lines[21:], "has 39 records; its last line says 40"),
        (lambda lines: [*lines[:-1], ' { "end" : 39 } '], "has 40 records; its last line says 39"),
        (lambda lines: [*lines, lines[-1]], "goes on after the line"),
        (lambda lines: lines[1:], "not an exported log"),
        (lambda lines: [*lines[:5], lines[4], *lines[5:-1], '{"end":41}'], "position 4, outside"),
        (lambda lines: [*lines[:5], lines[5][:50], *lines[6:]], "record 5: Input data was truncated"),
        (spoiled(lambda r: r.update(arms="1")), r"record 10: Expected `array`, got `str` - at `\$.arms`"),
        (spoiled(lambda r: r.update(arms=[5, 5, 6, 7])), "shown twice"),
        (spoiled(lambda r: r.update(arms=[-5, 5, 6, 7])), "arm -5 is outside"),
        (spoiled(lambda r: r.update(index=[3, 1], value=[1, 1])), "do not rise"),
        (spoiled(lambda r: r.update(index=[2**31], value=[1])), "index 2147483648 is outside"),
        (spoiled(lambda r: r.update(value=[1.0] * 99)), "indices and 99 values"),
        (spoiled(lambda r: r.update(value=[1e300] * len(r["value"]))), "beyond the limit"),
        (spoiled(lambda r: r.update(propensities=[2.0] * 4)), "propensity is 2.0"),
        (spoiled(lambda r: r.update(rewards=[7.0] * 4, reward_times=[1.0] * 4, reward_positions=[50] * 4)), "is 7.0"),
        (spoiled(lambda r: r.update(rewards=[None] * 4)), "part of a reward"),
        (spoiled(lambda r: r.update(reward_positions=[1] * 4, rewards=[1] * 4, reward_times=[1] * 4)), "not all in"),
        (spoiled(lambda r: r.update(position=10**9)), "position 1000000000, outside"),
        (spoiled(lambda r: r.update(request="00")), "1 bytes; 16"),
        (spoiled(lambda r: r.update(eligible="new")), "'new', which has not come"),
        (spoiled(lambda r: r.update(time=1e300)), "time is 1e\\+300"),
        (spoiled(lambda r: r.pop("epoch")), "missing required field `epoch`"),
        (spoiled(lambda r: r.update(removals=-1)), "removals is -1"),
        (spoiled(lambda r: r.update(components=[[1.0]] * 3)), "4 arms and 3 components"),
        (spoiled(lambda r: r["components"][2].pop()), r"slots have \[1, 2\] components; every slot has as many"),
        (spoiled(lambda r: r.update(components=[[1e300]] * 4)), "beyond the limit"),
        (spoiled(lambda r: r.update(components=[])), r"slots have \[\] components"),
        (lambda lines: [lines[0].replace('"version":5', '"version":2'), *lines[1:]], "treetop-log 2; treetop-log 5 is"),
        (lambda lines: [lines[0].replace('"observed":40', '"observed":39'), *lines[1:]], "rewards for 40 of them came"),
    ],
)
def test_a_bad_file_is_refused_whole(
    new_log: Callable[[str], str], tmp_path: Path, spoil: Callable[[list[str]], list[str]], error: str
) -> None:
    file = tmp_path / "log.jsonl"
    with open_log(new_log("sqlite")) as one, open_log(new_log("sqlite")) as two:
        one.append([event(i, k=4) for i in range(40)])
        one.reward([Reward(f"event-{i}", int(event(i, k=4).arms[0]), 0.5, 1.0) for i in range(40)])
        export_log(one, file)
        file.write_text("\n".join(spoil(file.read_text().splitlines())) + "\n")
        with pytest.raises(ValueError, match=error):
            import_log(two, file, limits=(0.0, 1.0))
        assert two.summary() == LogSummary(Counts(), ())


@pytest.mark.parametrize("end", [b'{"end":40} \n', b'{"end": 40}', b' { "end" : 40 }\r\n', b'{"end":40}\n\n \n'])
def test_blanks_around_the_last_line_change_nothing(new_log: Callable[[str], str], tmp_path: Path, end: bytes) -> None:
    file = tmp_path / "log.jsonl"
    with open_log(new_log("sqlite")) as one, open_log(new_log("sqlite")) as two:
        one.append([event(i) for i in range(40)])
        export_log(one, file)
        whole = file.read_bytes()
        assert whole.endswith(b'{"end":40}\n')
        file.write_bytes(whole[: whole.rindex(b"{")] + end)
        assert import_log(two, file).decisions == 40


def test_the_commands(new_log: Callable[[str], str], tmp_path: Path) -> None:
    with open_log(tmp_path / "log.sqlite") as log:
        fill(log)
    out = shell("export", str(tmp_path), str(tmp_path / "log.jsonl"), "--json")
    assert json.loads(out.stdout)["decisions"] == 36, out.stderr
    new = str(tmp_path / "new.sqlite")
    out = shell("import", new, str(tmp_path / "log.jsonl"))
    assert (out.returncode, Path(new).exists()) == (2, False)
    assert "there is no log" in out.stderr
    assert "--new makes one" in out.stderr
    out = shell("import", new, str(tmp_path / "log.jsonl"), "--new", "--json")
    assert json.loads(out.stdout) == {"decisions": 36, "rewards": 35, "known": 0}, out.stderr
    assert "36 decisions were known" in shell("import", new, str(tmp_path / "log.jsonl")).stdout
    for words, error in [
        (["export", str(tmp_path / "none"), "x.jsonl"], "there is no log"),
        (["export", new, "x.csv"], "must end with .jsonl or .parquet"),
        (["import", new, str(tmp_path / "missing.jsonl")], "No such file"),
    ]:
        done = shell(*words)
        assert done.returncode == 2
        assert error in done.stderr
        assert "Traceback" not in done.stderr
