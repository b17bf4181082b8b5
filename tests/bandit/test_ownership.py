"""A log knows whose it is: another bandit, a copy that went its own way and an old backup are refused."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import shell
from helpers.logs import event
from helpers.problems import topics
from helpers.running import small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import BanditFolder
from treetop.errors import ForeignLog, LogError
from treetop.log.open import open_log
from treetop.log.records import LogSummary, Owner, Stage
from treetop.log.transfer import export_log, import_log

X, Y = topics()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def copy(folder: Path, name: str) -> Path:
    """As an operator copies a folder: with everything but its log."""
    shutil.copytree(folder, folder.parent / name, ignore=shutil.ignore_patterns("log.sqlite*"))
    return folder.parent / name


def sizes(log: Any) -> list[int]:
    return [stage.size for stage in log.owner().lineage]


def test_a_log_belongs_to_the_first_bandit_that_uses_it(folder: Path, place: str) -> None:
    other = small_bandit(folder.parent / "other", X, Y)
    with Bandit.open(folder, place) as one:
        one.decide(X[0], event_id="x")
        with pytest.raises(ForeignLog) as error:
            Bandit.open(other, place)
        mine, theirs = one.folder.state().bandit, BanditFolder(other).state().bandit
        for word in (
            mine,
            theirs,
            str(other),
            one.log.where,
            "open the folder that it belongs to, or give it an empty",
        ):
            assert word in str(error.value)
        assert one.log.counts().decisions == 1
    with Bandit.open(folder, place) as again:
        assert again.event("x").event.event_id == "x"
    for command in (["replay", str(other), "x"], ["serve", str(other), "--port", "0", "--workers", "2"]):
        ended = shell(*command, "--log", place)
        assert ended.returncode == 2
        assert "belongs to bandit" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_a_log_that_is_nobodys_is_taken_only_if_it_is_empty(folder: Path, place: str) -> None:
    with open_log(place) as log:
        assert log.owner() is None
        log.append([event("x")])
    with pytest.raises(ForeignLog, match="has 1 decisions and belongs to no bandit"):
        Bandit.open(folder, place)
    with open_log(place) as log:
        assert log.owner() is None


def test_a_copy_whose_arms_changed_separately_is_refused(folder: Path, place: str) -> None:
    twin = copy(folder, "twin")
    with Bandit.open(folder, place) as one, Bandit.open(twin, place) as two:  # nothing has happened to either
        one.add_arms(["new"])
        with pytest.raises(ForeignLog, match="the folder is older than that, as a restored backup is"):
            two.add_arms(["newer"])
        with pytest.raises(ForeignLog, match="older"):
            two.remove_arms(["a1"])
        one.decide(X[0], event_id="x", eligible=["new"])
        with pytest.raises(ForeignLog, match="older"):
            two.refit()
        assert len(two.snapshot.arms) == 60
    with Bandit.open(twin) as two:  # on a log of its own it goes on
        two.add_arms(["another", "and another"])
    with pytest.raises(ForeignLog, match="whose arms changed separately") as error:
        Bandit.open(twin, place)
    assert str(twin) in str(error.value)
    with Bandit.open(folder, place) as one:
        assert len(sizes(one.log)) == 2


def test_a_folder_older_than_its_log_is_refused(folder: Path, place: str) -> None:
    backup = copy(folder, "backup")
    with Bandit.open(folder, place) as bandit:
        bandit.remove_arms(["a1"])
        newer = copy(folder, "newer")
    with pytest.raises(
        ForeignLog, match=r"knows a catalogue of \d+ bytes, .*/backup has one of \d+: the folder is older"
    ):
        Bandit.open(backup, place)
    Bandit.open(newer, place).close()


def test_an_older_log_is_taken_by_its_folder(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
    shutil.copy(folder / "log.sqlite", folder.parent / "backup.sqlite")
    with Bandit.open(folder) as bandit:
        bandit.add_arms(["new"])
        bandit.remove_arms(["a1"])
        now = sizes(bandit.log)
    with Bandit.open(folder, folder.parent / "backup.sqlite") as bandit:
        assert bandit.event("x").event.event_id == "x"
        assert sizes(bandit.log) == [now[0], now[-1]]


ADD = """
import sys
from treetop.bandit.bandit import Bandit
with Bandit.open(sys.argv[1], sys.argv[2]) as bandit:
    for i in range(4):
        bandit.add_arms([f"{sys.argv[3]}{i}"])
        bandit.remove_arms([f"{sys.argv[3]}{i}"])
"""


def test_processes_of_one_folder_go_on_as_they_did(folder: Path, place: str) -> None:
    with Bandit.open(folder, place) as bandit:
        command = [sys.executable, "-c", ADD, str(folder), place]
        both = [subprocess.Popen([*command, name], stderr=subprocess.PIPE, text=True) for name in ("m", "n")]
        for i in range(20):
            bandit.decide(X[i], event_id=f"e{i}")
        for process in both:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said
        bandit.refresh()
        assert (len(bandit.snapshot.arms), len(bandit.snapshot.arms.removed)) == (68, 8)
        lineage = sizes(bandit.log)
        assert lineage[-1] == bandit.folder.state().catalogue
        assert len(lineage) == len(set(lineage)) >= 5
        assert bandit.refit().rounds == 20


def test_a_crash_between_the_folder_and_the_log_is_harmless(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that dies, and a log that cannot be written at that moment: the next open or refresh records it."""
    with Bandit.open(folder, place) as bandit, Bandit.open(folder, place) as other:
        before = sizes(bandit.log)

        def unavailable(*given: Any) -> bool:
            raise LogError("the log is gone")

        with monkeypatch.context() as patch:
            patch.setattr("treetop.log.sql.claim", unavailable)
            bandit.add_arms(["new"])
            bandit.remove_arms(["a1"])
            assert bandit.decide(X[0], eligible=["new", "a1"]).arms == ["new"]
        assert sizes(bandit.log) == before
        assert other.refresh()
        assert sizes(bandit.log) == [*before, bandit.folder.state().catalogue]
    with monkeypatch.context() as patch:
        patch.setattr("treetop.bandit.bandit.claim_log_if_there", lambda *given: None)
        with Bandit.open(folder, place) as bandit:
            bandit.remove_arms(["a2"])
            assert sizes(bandit.log)[-1] < bandit.folder.state().catalogue
    with Bandit.open(folder, place) as bandit:
        assert sizes(bandit.log)[-1] == bandit.folder.state().catalogue


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_an_export_is_taken_by_its_own_bandit_only(
    folder: Path, place: str, tmp_path: Path, request: pytest.FixtureRequest, form: str
) -> None:
    if form == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed (pip install 'treetop-bandits[parquet]')")
    file = tmp_path / f"log.{form}"
    with Bandit.open(folder, place) as bandit:
        bandit.decide(X[0], event_id="x")
        bandit.remove_arms(["a1"])
        bandit.decide(X[1], event_id="y", eligible=["a1", "a2"])
        export_log(bandit.log, file)
        summary = bandit.log.summary()
    empty = str(tmp_path / "empty.sqlite")
    with open_log(empty) as log:  # nobody's and empty: it becomes the bandit's
        assert import_log(log, file).decisions == 2
        assert log.summary() == summary
        assert import_log(log, file).known == 2
    with Bandit.open(folder, empty) as bandit:
        assert bandit.event("y").event.removals == 1
    other = small_bandit(tmp_path / "other", X, Y)
    with Bandit.open(other) as bandit:
        with pytest.raises(
            ForeignLog, match=r"the file is of bandit \w+, the log .* of bandit \w+; nothing was imported"
        ):
            import_log(bandit.log, file)
        assert bandit.log.counts().decisions == 0
    with open_log(tmp_path / "used.sqlite") as log:
        log.append([event("z")])
        with pytest.raises(ForeignLog, match="of no bandit"):
            import_log(log, file)
        assert log.counts().decisions == 1


def test_stages_of_an_import_are_joined_or_refused(folder: Path, place: str) -> None:
    with Bandit.open(folder, place) as bandit:
        bandit.remove_arms(["a1"])
        owner = bandit.log.owner()
        assert owner is not None
        first, second = owner.lineage
        counts = bandit.log.counts()
        for lineage in ((first,), (first, second), (second,), (second, Stage(second.size + 9, "00" * 16))):
            bandit.log.restore(LogSummary(counts, (), Owner(owner.bandit, lineage)), [])
        apart = Owner(owner.bandit, (first, Stage(second.size + 1, "00" * 16)))
        with pytest.raises(ForeignLog, match=r"copies of bandit .* whose arms changed separately"):
            bandit.log.restore(LogSummary(counts, (), apart), [])
        assert sizes(bandit.log) == [first.size, second.size, second.size + 9]


def test_the_import_command_knows_the_folder(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    backup = copy(folder, "backup")
    with Bandit.open(folder) as bandit:
        bandit.remove_arms(["a1"])
        bandit.decide(X[0], event_id="x")
        export_log(bandit.log, file)
    moved = copy(folder, "moved")
    done = shell("import", str(moved), str(file), "--json")
    assert done.returncode == 0, done.stderr
    with Bandit.open(moved) as bandit:
        assert bandit.event("x").event.event_id == "x"
    older = shell("import", str(backup), str(file))
    assert older.returncode == 2
    assert "the folder is older than that" in older.stderr
    with Bandit.open(backup) as bandit:
        assert bandit.log.counts().decisions == 0
    wrong = shell("import", str(tmp_path / "shpo"), str(file))
    assert (wrong.returncode, (tmp_path / "shpo").exists()) == (2, False)


@pytest.mark.parametrize(
    "owner", ['{"bandit":"","lineage":[]}', '{"bandit":"b","lineage":[{"size":1,"digest":"xyz"}]}', "7"]
)
def test_a_file_with_an_owner_that_is_none_is_refused(tmp_path: Path, owner: str) -> None:
    file = tmp_path / "log.jsonl"
    with open_log(tmp_path / "one.sqlite") as one, open_log(tmp_path / "two.sqlite") as two:
        one.append([event("x")])
        export_log(one, file)
        text = file.read_text()
        assert '"owner":null' in text
        file.write_text(text.replace('"owner":null', f'"owner":{owner}', 1))
        with pytest.raises(ValueError, match="not an exported log"):
            import_log(two, file)
        assert two.summary().owner is None
