"""A bandit's folder: which models are kept, where a rollback goes, and what failures and kill -9 leave."""

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop import files
from treetop.bandit import config, state
from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import BanditFolder
from treetop.bandit.results import same_decision
from treetop.bandit.state import FolderState, ModelOrigin, ScheduleStart
from treetop.errors import FolderInUse, ModelSuperseded

X, Y = topics()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(
        tmp_path / "shop", X, Y, config=settings(refit=config.RefitConfig(first=10**9, keep=3, keep_gb=0))
    )


def on_disk(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "models").iterdir())


def test_adding_arms_does_not_evict_refits(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
        for _ in range(2):
            bandit.refit()
        for i in range(6):
            bandit.add_arms([f"n{i}"])
        assert on_disk(folder) == bandit.folder.models() == ["000000", "000001", "000002", "000007", "000008"]
        bandit.refit()
        bandit.add_arms(["more"])
        # The newest three refits, of each the newest model that only has more arms, and what the last was made from.
        assert on_disk(folder) == ["000001", "000002", "000008", "000009", "000010"]
        bandit.refit()
        bandit.refit()
        assert on_disk(folder) == ["000009", "000010", "000011", "000012"]


def test_small_models_that_served_lately_do_not_add_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{i:06d}" for i in range(300)]
    models = {name: ModelOrigin(until=float(i + 1)) for i, name in enumerate(names)}
    served, sizes = FolderState("b1", names[-1], 12, 300, models), dict.fromkeys(names, 1000)
    assert sorted(served.needed((), config.RefitConfig(), 1.0, sizes)) == names[-state.WAITING :]
    assert sorted(served.needed(names, config.RefitConfig(), 1e9, sizes)) == names
    monkeypatch.setattr(state, "WAITING", 3)
    monkeypatch.setattr(state, "LOGGED", 7)
    assert sorted(served.needed(names, config.RefitConfig(), 1e9, sizes)) == names[-7:]
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y)) as bandit:
        for i in range(6):
            bandit.add_arms([f"n{i}"])
        assert on_disk(tmp_path / "shop") == ["000000", "000003", "000004", "000005", "000006"]  # three, first and now


def test_a_rollback_goes_to_what_the_current_model_was_made_from(tmp_path: Path) -> None:
    with Bandit.open(small_bandit(tmp_path / "shop", X, Y)) as bandit:
        bandit.decide(X[0], event_id="x")
        for _ in range(2):
            bandit.refit()
        bandit.roll_back("000001")
        assert bandit.refit().model == "000003"
        assert bandit.roll_back() == "000001"  # not 000002, which 000003 has nothing of
        assert bandit.roll_back() == "000000"
        with pytest.raises(ValueError, match="there is no model before 000000"):
            bandit.roll_back()
        with pytest.raises(ValueError, match="there is no model '000009'; kept are 000000, 000001, 000002, 000003"):
            bandit.roll_back("000009")


def test_what_comes_from_a_deleted_model_comes_from_the_one_before_it() -> None:
    state = FolderState("b", "000000", 1, 1, {"000000": ModelOrigin()})
    for name in ("000001", "000002", "000003"):
        state = state.with_model(name, None, keep=2)
    assert state.models == {
        "000000": ModelOrigin(),
        "000002": ModelOrigin("000000", grown=True),
        "000003": ModelOrigin("000002", grown=True),
    }
    for name in ("000004", "000005"):
        state = state.with_model(name, ScheduleStart(), keep=2)
    assert state.models == {"000004": ModelOrigin(time=0.0), "000005": ModelOrigin("000004", time=0.0)}


@pytest.mark.parametrize("raised", [OSError(5, "Input/output error"), KeyboardInterrupt()])
def test_whatever_fails_after_the_new_model_is_current_it_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
        synced = files.sync_folder

        def fail(path: Path) -> None:
            if path == folder and bandit.folder.state().model == "000001":
                raise raised
            synced(path)

        with monkeypatch.context() as patch:
            patch.setattr("treetop.files.sync_folder", fail)
            patch.setattr("treetop.bandit.folder.sync_folder", fail)
            with pytest.raises(type(raised)):
                bandit.refit()
        assert bandit.folder.state().model == "000001"
        assert on_disk(folder) == ["000000", "000001"]  # the old one too: the new `current` may not be on the disk
        assert bandit.refresh()
        bandit.decide(X[0], event_id="y")
    with Bandit.open(folder) as bandit:
        assert (bandit.snapshot.name, bandit.snapshot.trouble) == ("000001", "")
        assert same_decision(*bandit.replay("y"))


def test_what_fails_before_leaves_the_old_model_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")

        def fail(*given: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("treetop.bandit.folder.put", fail)
            with pytest.raises(OSError, match="No space left"):
                bandit.refit()
        assert on_disk(folder) == ["000000"]
        assert bandit.refit().model == "000001"


def test_a_rollback_to_the_current_model_drops_a_refit_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Bandit.open(folder) as bandit, Bandit.open(folder) as other:
        bandit.decide(X[0], event_id="x")
        monkeypatch.setattr("treetop.bandit.model_changes.validate", lambda *given: other.roll_back("000000"))
        with pytest.raises(ModelSuperseded):
            bandit.refit()
        assert bandit.folder.state().model == "000000"
        counted_from = bandit.folder.state().schedule.time
        monkeypatch.undo()
        other.roll_back("000000")
        with pytest.raises(ModelSuperseded, match="became current since the refit was due"):
            bandit.refit(counted_from)
        assert bandit.refit(bandit.folder.state().schedule.time).model == "000001"


def test_a_rollback_cannot_choose_a_model_that_is_being_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`current` stops to list a model before its files go."""
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
        for _ in range(2):
            bandit.refit()
        refused: list[str] = []
        delete = shutil.rmtree

        def rolled_back_meanwhile(path: Path, **options: Any) -> None:
            if path.name == "000000":
                with pytest.raises(ValueError, match="there is no model '000000'") as error:
                    BanditFolder(folder).roll_back("000000", bandit.folder.state().schedule)
                refused.append(str(error.value))
            delete(path, **options)

        monkeypatch.setattr(shutil, "rmtree", rolled_back_meanwhile)
        bandit.refit()
        assert len(refused) == 1
        assert on_disk(folder) == ["000001", "000002", "000003"]


CREATE = """
import os, signal, sys
import treetop.bandit.creation as creation
from helpers.problems import topics
from helpers.running import small_bandit
at = sys.argv[2]
def killed(*given):
    if at == "hold":
        print("held", flush=True)
        sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)
setattr(creation, "save_label_samples" if at != "end" else "sync_folder", killed)
from pathlib import Path
small_bandit(Path(sys.argv[1]), *topics())
"""


def create(folder: Path, at: str, **options: Any) -> "subprocess.Popen[str]":
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.Popen(
        [sys.executable, "-c", CREATE, str(folder), at],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


def test_what_a_killed_creation_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".shop-mine").mkdir()
    with create(tmp_path / "shop", "middle") as process:
        assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "shop").exists()
    assert len(list(tmp_path.iterdir())) == 2  # what it left, with a name that the next one uses
    small_bandit(tmp_path / "shop", X, Y)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".shop-mine", "shop"]
    with Bandit.open(tmp_path / "shop") as bandit:
        assert len(bandit.decide(X[0]).arms) == 4


def test_a_creation_that_is_alive_is_left_alone(tmp_path: Path) -> None:
    with create(tmp_path / "shop", "hold") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(FolderInUse, match="in use by another process"):
            small_bandit(tmp_path / "shop", X, Y)
        process.kill()
        process.wait()
    small_bandit(tmp_path / "shop", X, Y)
    assert [path.name for path in tmp_path.iterdir()] == ["shop"]


PUBLISH = """
import os, signal, sys
import treetop.bandit.folder as folder
from treetop.bandit.bandit import Bandit
def killed(path, write):
    with path.with_name(path.name + ".part").open("wb") as file:
        file.write(b"half")
    os.kill(os.getpid(), signal.SIGKILL)
folder.put = killed
Bandit.open(sys.argv[1]).refit()
"""


def test_the_next_start_clears_away_what_a_killed_process_left_in_the_folder(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
    killed = subprocess.run([sys.executable, "-c", PUBLISH, str(folder)], capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (folder / "models" / ".000002-abc").mkdir()
    assert (folder / "current.part").exists()
    assert "000001" in on_disk(folder)
    with Bandit.open(folder) as one:
        assert not (folder / "current.part").exists()
        assert on_disk(folder) == ["000000"]
        with one.folder.model_lock():
            (folder / "models" / ".000001-abc").mkdir()
            Bandit.open(folder).close()
            assert on_disk(folder) == [".000001-abc", "000000"]  # somebody is writing it
        assert one.refit().model == "000001"


def test_settings_that_would_change_nothing_are_refused(tmp_path: Path, learned: Any) -> None:
    strange: Any = {"max_leaf": 7}
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_leaf'"):
        Bandit.create(tmp_path / "w", X=X, Y=Y, config=config.Config(), **strange)
    for tree in (config.TreeConfig(seed=3), config.TreeConfig(branching=4)):
        with pytest.raises(ValueError, match="but the model's tree is built already"):
            Bandit.create(tmp_path / "w", model=learned, config=config.Config(tree=tree))
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_cannot_take_a_promoted_policy_does_not_keep_a_host_from_following(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "tea", X=np.eye(4), Y=np.eye(4)) as tea:
        old = tea.folder.state()
        (tmp_path / "tea" / "config.toml").write_text("policy = {k = 2, explore = 1}\n")
        new = replace(old, settings=old.settings + 1, policy={"beam": 30})
        with pytest.warns(RuntimeWarning, match=r"keeps its \[policy\], another was promoted"):
            tea.folder._put_current(old, new.text())
        assert tea.folder.state().settings == old.settings + 1
