"""Models that come and go while requests are served: refits, swaps, failures, rollback, restarts, several workers."""

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import shell
from helpers.playing import Load, X, Y, goes_on_until_mended, play, processes
from helpers.postgres import free_port, new_schema
from helpers.running import named, running, settings, small_bandit
from helpers.waiting import is_alive, wait_until

import treetop
from treetop.bandit import config
from treetop.bandit.arm_filter import NO_FILTER
from treetop.bandit.bandit import Bandit
from treetop.bandit.results import same_decision
from treetop.log.records import Event, Reward
from treetop.service.refit_scheduler import CHECK_INTERVAL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bandit(tmp_path / "shop", X, Y)


def log_at_once(folder: Path, rounds: int, tag: str) -> None:
    """Decisions in one commit and a reward of each in another: a refit that begins finds all of them, or none."""
    with Bandit.open(folder) as bandit:
        rows = [bandit.row(X[i]) for i in range(rounds)]
        shown = bandit.log.append(
            [bandit.snapshot.decide(x, f"{tag}-{i}", None, None, NO_FILTER) for i, x in enumerate(rows)]
        )
        bandit.log.reward([Reward(e.event_id, int(e.arms[0]), 1.0, time.time()) for e in shown if isinstance(e, Event)])


@pytest.mark.parametrize("workers", [1, 2])
def test_refits_and_rollbacks_under_load_fail_no_request(folder: Path, workers: int) -> None:
    with running(folder, "--workers", str(workers)) as service:
        play(service, 50, "before")
        with Load(service) as load:
            for wanted in ("000001", "000002"):
                service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
                service.wait_for(lambda wanted=wanted: service.model_is(wanted))
            assert service.post("/v1/rollback", {}).json["model"] == "000001"
            service.wait_for(lambda: service.model_is("000001"))
            service.wait_for(lambda: load.decisions > 100)
        assert load.failures == []
        epochs = {service.get(f"/v1/events/before-{i}").json["epoch"] for i in range(3)}
        assert epochs == {0}
        learned = service.get("/v1/model").json
        assert learned["n_seen"] >= 50
        assert service.end() == 0
    if workers == 2:
        swapped = {line["pid"] for line in service.said("swapped")}
        assert len(swapped) == 2  # each worker took up the models by itself


def test_the_schedule_refits_by_itself(tmp_path: Path) -> None:
    chosen = settings(refit=config.RefitConfig(first=20, factor=2.0))
    folder = small_bandit(tmp_path / "shop", X, Y, config=chosen)
    with running(folder) as service:
        play(service, 20, "a")
        service.wait_for(lambda: service.model_is("000001"))
        state = service.get("/v1/model").json["refit"]
        assert (state["seen"], state["failures"], state["error"]) == (20, 0, None)
        play(service, 15, "b")
        time.sleep(2 * CHECK_INTERVAL)
        assert service.model_is("000001")  # 35 of 40
        play(service, 5, "c")
        service.wait_for(lambda: service.model_is("000002"))
        assert service.post("/v1/rollback", {}).json == {"model": "000001", "epoch": 1, "pinned": False}
        time.sleep(2 * CHECK_INTERVAL)
        assert service.model_is("000001")  # the schedule does not undo a rollback
        assert "treetop_refits_total 2.0" in service.get("/metrics").content.decode()


def test_a_rollback_while_a_refit_runs_is_not_undone(tmp_path: Path) -> None:
    """The refit is dropped, and the next one waits for new feedback."""
    chosen = settings(refit=config.RefitConfig(first=20, factor=2.0, every=0.1))
    folder = small_bandit(tmp_path / "shop", X, Y, config=chosen)
    with running(folder) as service:
        log_at_once(folder, 20, "a")  # so that there is nothing new when the refit begins
        (pid,) = service.wait_for(lambda: processes(folder, "treetop.service.refit_process"))
        os.kill(pid, signal.SIGSTOP)
        assert service.post("/v1/rollback", {"model": "000000"}).status == 200
        os.kill(pid, signal.SIGCONT)
        service.wait_for(lambda: service.said("refit given up"))
        time.sleep(3 * CHECK_INTERVAL)
        assert [line["why"] for line in service.said("refit begins")] == ["schedule"]
        state = service.get("/v1/model").json
        assert (state["model"], state["refit"]["new"], state["refit"]["due"]) == ("000000", 0, 20)
        play(service, 1, "b")  # `every` so many seconds, if there is anything new
        service.wait_for(lambda: service.model_is("000001"))
        assert [line["why"] for line in service.said("refit begins")] == ["schedule", "clock"]


def test_the_clock_refits_when_there_is_something_new(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y, config=settings(refit=config.RefitConfig(first=10**9, every=0.5)))
    with running(folder) as service:
        log_at_once(folder, 3, "a")
        service.wait_for(lambda: service.model_is("000001"))
        time.sleep(0.5 + 2 * CHECK_INTERVAL)
        assert service.model_is("000001")  # nothing new since
        log_at_once(folder, 1, "b")
        service.wait_for(lambda: service.model_is("000002"))


def test_a_refit_that_fails_changes_nothing_is_seen_and_tried_again(tmp_path: Path) -> None:
    chosen = settings(refit=config.RefitConfig(first=5, retry=0.5, retry_most=2.0))
    folder = small_bandit(tmp_path / "shop", X, Y, config=chosen)
    models, aside = folder / "models", folder / "elsewhere"
    with running(folder) as service:
        shutil.copytree(models, aside)
        for path in models.iterdir():
            shutil.rmtree(path)
        models.rmdir()
        models.write_text("a file where a folder should be")  # works for root too, whom no permission stops
        play(service, 5, "a")
        service.wait_for(lambda: len(service.said("refit failed")) >= 2)
        assert service.post("/v1/decide", {"features": named(X, 0)}).status == 200
        assert "treetop_refit_failures_in_a_row" in service.get("/metrics").content.decode()
        models.unlink()
        aside.rename(models)
        state = service.get("/v1/model").json["refit"]
        assert state["failures"] >= 2
        assert "models" in state["error"]
        service.wait_for(lambda: service.model_is("000001"))
        assert service.get("/v1/model").json["refit"]["failures"] == 0
        times = [line["time"] for line in service.said("refit failed")]
        assert times == sorted(times)


def test_refits_that_cannot_be(folder: Path) -> None:
    with running(folder) as service:
        nothing = service.post("/v1/refit", {})
        assert (nothing.status, nothing.code) == (409, "nothing_to_learn")
        none_before = service.post("/v1/rollback", {})
        assert (none_before.status, none_before.code) == (409, "no_such_model")
        assert service.post("/v1/rollback", {"model": "000009"}).status == 409
        play(service, 5, "a")
        with Bandit.open(folder) as bandit, bandit.folder.refit_lock():
            busy = service.post("/v1/refit", {})
            assert (busy.status, busy.code) == (409, "busy")
            assert service.get("/v1/model").json["refit"]["running"] is True


def test_only_the_last_models_are_kept_and_replay_says_so(tmp_path: Path) -> None:
    folder = small_bandit(
        tmp_path / "shop", X, Y, config=settings(refit=config.RefitConfig(first=10**9, keep=2, keep_gb=0))
    )
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="old")
        for _ in range(3):
            bandit.refit()
        assert bandit.folder.models() == ["000002", "000003"]
        bandit.decide(X[0], event_id="new")
    old, new = (replay(folder, event) for event in ("old", "new"))
    assert old.returncode == 2
    assert "was decided by model 000000; kept are 000002, 000003" in old.stderr
    assert json.loads(new.stdout)["same"] is True


def replay(folder: Path, event: str) -> subprocess.CompletedProcess[str]:
    return shell("replay", str(folder), event, "--json")


def test_killed_and_started_again_it_has_all_that_it_acknowledged(folder: Path) -> None:
    with running(folder) as service:
        shown = play(service, 40, "a")
        service.post("/v1/refit", {})
        service.wait_for(lambda: service.model_is("000001"))
        later = play(service, 10, "b")
        service.end(signal.SIGKILL)
    with running(folder) as service, service.client() as client:
        assert client.model()["epoch"] == 1
        assert client.model()["refit"]["observed"] == 50
        assert play(service, 40, "a", client) == shown  # the same ids give the same decisions, and rewards repeat
        assert play(service, 10, "b", client) == later
        assert client.model()["refit"]["observed"] == 50
    assert json.loads(replay(folder, "a-7").stdout)["same"] is True
    assert json.loads(replay(folder, "b-7").stdout)["same"] is True


def test_a_corrupt_current_model_lets_the_last_good_one_serve(folder: Path) -> None:
    with Bandit.open(folder) as bandit:
        bandit.decide(X[0], event_id="x")
        bandit.refit()
        bandit.refit()
    broken = folder / "models" / "000002" / "leaf_of.npy"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-8])
    with running(folder) as service:
        goes_on_until_mended(service, broken, whole)


def test_workers_share_everything_and_dead_ones_are_replaced(folder: Path) -> None:
    with running(folder, "--workers", "2") as service:
        service.wait_for(lambda: len(service.said("ready")) == 2)
        shown = play(service, 30, "a")
        assert play(service, 30, "a") == shown
        text = service.get("/metrics").content.decode()
        count = re.findall(r'^treetop_requests_total\{route="/v1/decide",status="200"\} (\S+)', text, re.MULTILINE)
        assert float(count[0]) == 60
        victim = service.said("ready")[0]["pid"]
        os.kill(victim, signal.SIGKILL)
        service.wait_for(lambda: len(service.said("ready")) == 3)
        with service.client() as client:
            assert play(service, 30, "a", client) == shown
        assert service.end() == 0
    assert not is_alive(service.said("ready")[-1]["pid"])


def test_workers_share_the_weights(disk: Path) -> None:
    """They are mapped from one file, of which no worker has a page of its own."""
    folder = small_bandit(disk / "shop", X, Y)
    with running(folder, "--workers", "2") as service:
        service.wait_for(lambda: len(service.said("ready")) == 2)
        play(service, 40, "a")
        maps = [mapped(line["pid"], folder / "models" / "000000" / "serving.bin") for line in service.said("ready")]
    for facts in maps:
        assert facts["Size"] > 0
        assert facts["Private_Dirty"] == facts["Shared_Dirty"] == facts["Anonymous"] == 0
    assert sum(facts["Rss"] for facts in maps) > 0


def mapped(pid: int, file: Path) -> dict[str, int]:
    """KB of a file's mappings in a process, by kind."""
    found: dict[str, int] = {}
    here = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        word, _, rest = line.partition(":")
        if "-" in word.split()[0]:
            here = line.endswith(str(file))
        elif here and rest.endswith("kB"):
            found[word] = found.get(word, 0) + int(rest.split()[0])
    return found


def test_workers_end_when_their_parent_is_killed(folder: Path) -> None:
    with running(folder, "--workers", "2", "--port", str(free_port())) as service:
        service.wait_for(lambda: len(service.said("ready")) == 2)
        workers = [line["pid"] for line in service.said("ready")]
        service.process.kill()
        service.process.wait()
        wait_until(lambda: not any(is_alive(pid) for pid in workers))
    with running(folder, "--port", str(service.port)) as again:
        assert again.port == service.port


def test_it_finishes_what_it_accepted(folder: Path) -> None:
    """SIGTERM while requests are on their way: whoever got through gets a whole answer, and it is in the log."""
    with running(folder) as service:
        answered: list[str] = []
        cut: list[str] = []

        def ask(number: int) -> None:
            with service.client(retries=0, timeout=30) as client:
                try:
                    for i in range(100_000):
                        shown = client.decide(named(X, i % 600), event_id=f"{number}-{i}")
                        answered.append(shown.event_id)
                except ConnectionError:
                    pass
                except Exception as error:
                    cut.append(repr(error))

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        service.wait_for(lambda: len(answered) > 50)
        assert service.end() == 0
        for thread in threads:
            thread.join()
    assert cut == []
    with Bandit.open(folder) as bandit:
        assert all(bandit.log.event(event) is not None for event in answered)
    assert [line["event"] for line in service.said()][-4:] == ["finishing", "finishing", "stopped", "stopped"]
    assert all(line.startswith("{") for line in service.lines.read_text().splitlines())  # nothing but JSON lines


def test_arms_change_while_it_serves(folder: Path) -> None:
    with running(folder, "--workers", "2") as service, service.client() as client:
        service.wait_for(lambda: len(service.said("ready")) == 2)
        kept = client.decide(named(X, 0), event_id="kept", eligible=["a5"])
        answer = client.change_arms(add=["new", "newer"], remove=["a5"], vectors=[X[0], X[1]])
        assert (answer["arms"], answer["removed"]) == (62, 1)
        for i in range(20):  # whichever worker answers knows the new arms at once, if it is asked for them
            shown = client.decide(named(X, 0), event_id=f"only-{i}", eligible=["new", "newer", "a5"], k=3)
            if shown.epoch:
                assert set(shown.arms) == {"new", "newer"}
        service.wait_for(lambda: all(client.decide(X[0]).epoch == 1 for _ in range(20)))
        assert client.decide(named(X, 0), event_id="kept", eligible=["a5"]) == kept
        again = {"x": named(X, 0), "event_id": "kept", "eligible": ["a5"]}
        assert client.decide_batch([again, {**again, "event_id": "late"}])[0] == kept
        with pytest.raises(treetop.ServiceError, match="no_arms"):
            client.decide(named(X, 0), eligible=["a5"])
        assert all("a5" not in client.decide(X[i], k=60).arms for i in range(5))
        client.reward("only-0", {"new": 1.0})
        client.reward("kept", {"a5": 1.0})
        for wrong in (
            {"add": ["new"]},
            {"remove": ["who"]},
            {"add": ["x"], "vectors": []},
            {"add": ["y"], "remove": ["z"]},
        ):
            assert service.post("/v1/arms", wrong).status == 422
        assert client.model()["arms"] == 62


def test_a_folder_that_is_none_is_one_line(tmp_path: Path) -> None:
    ended = shell("serve", str(tmp_path), "--port", "0")
    assert ended.returncode == 2
    assert "is not a bandit's folder" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_same_application_on_postgresql(folder: Path, server: Any) -> None:
    """Only `--log` is another: decisions, rewards, refit, kill, start, and no password in the lines."""
    address = new_schema(server)
    with running(folder, "--log", address) as service:
        shown = play(service, 20, "a")
        assert service.post("/v1/refit", {}).status == 202
        service.wait_for(lambda: service.model_is("000001"))
        service.end(signal.SIGKILL)
    with running(folder, "--workers", "2", environment={"TREETOP_LOG": address}) as service:
        assert play(service, 20, "a") == shown
        assert service.get("/v1/model").json["refit"]["observed"] == 20
        assert service.end() == 0
    assert address not in service.lines.read_text()
    with Bandit.open(folder, address) as bandit:
        assert same_decision(*bandit.replay("a-3"))
        assert bandit.log.counts().decisions == 20
