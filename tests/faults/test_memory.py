"""Load of every kind, and refits: no request fails, and the memory of the workers stays what it was."""

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.playing import X, Y
from helpers.running import Running, named, running, small_bandit

THREADS, PAUSE = 4, 0.05  # seconds between a thread's turns of a dozen requests: a refit gets a core


class Mixed:
    """Threads that ask for everything there is, in turn. What is wrong on purpose has to be refused."""

    def __init__(self, service: Running) -> None:
        self.service, self.asked = service, 0
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(THREADS)]

    def _run(self, number: int) -> None:
        turn = 0
        while not self._stop.wait(PAUSE):
            self._turn(f"{number}-{turn}", turn)
            turn += 1

    def _turn(self, tag: str, turn: int) -> None:
        row = turn % 600
        x, name = X[row], named(X, row)
        columns = {"indices": x.indices.tolist(), "values": x.data.tolist()}
        batch = [{"features": name, "event_id": f"{tag}-b{i}"} for i in range(5)]
        shown = self._ask("/v1/decide", {"features": name, "event_id": tag}, 200)
        arm = shown["slots"][0]["arm"]
        self._ask("/v1/reward", {"event_id": tag, "rewards": {arm: 1.0}}, 200)
        self._ask("/v1/decide", {"features": columns, "eligible": ["a1", "a2", f"a{turn % 50 + 3}"], "k": 2}, 200)
        self._ask("/v1/decide", {"features": {"dense": x.toarray()[0].tolist()}, "exclude": ["a1"]}, 200)
        many = self._ask("/v1/decide/batch", {"requests": batch}, 200)["results"]
        rewards = [
            {"event_id": r["decision"]["event_id"], "rewards": {r["decision"]["slots"][0]["arm"]: 0.5}} for r in many
        ]
        self._ask("/v1/reward/batch", {"requests": rewards}, 200)
        self._ask(f"/v1/events/{tag}", None, 200)
        self._ask("/v1/explain", {"event_id": tag, "top": 5}, 200, 409)  # 409: its model is not kept any more
        self._ask("/v1/decide", {"features": {"unknown": 1.0}}, 200)
        self._ask("/v1/decide", {"features": name, "event_id": tag, "k": 1}, 409)
        self._ask("/v1/decide", b"{", 400)
        self._ask("/v1/reward", {"event_id": "nobody", "rewards": {"a1": 1.0}}, 404)
        for path in ("/v1/model", "/metrics", "/", "/openapi.json")[turn % 4 : turn % 4 + 1]:
            self._ask(path, None, 200)

    def _ask(self, path: str, body: Any, *expected: int) -> Any:
        answer = self.service.ask("GET" if body is None else "POST", path, body)
        self.asked += 1
        if answer.status not in expected:
            self.failures.append(f"{path}: {answer.status} {answer.content[:200]!r}")
        return answer.json if answer.content.startswith(b"{") else {}

    def __enter__(self) -> "Mixed":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def resident(pids: list[int]) -> float:
    """MB of all workers together."""
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


def stays_flat(folder: Path, requests: int, refits: int, workers: int, most: float) -> None:
    """Four quarters of so many requests and refits each, however long they take: memory in the last against that in the
    second, since the first is for caches to fill."""
    with running(folder, "--workers", str(workers)) as service:
        service.wait_for(lambda: len(service.said("ready")) == workers)
        pids = [line["pid"] for line in service.said("ready")]
        quarters: list[float] = []
        with Mixed(service) as load:
            for quarter in range(1, 5):
                sizes: list[float] = []
                for refit in range(refits * (quarter - 1) + 1, refits * quarter + 1):
                    service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
                    while len(service.said("refit done")) < refit or load.asked < requests * refit / refits:
                        sizes.append(resident(pids))
                        time.sleep(0.05)
                quarters.append(statistics.median(sizes))
        assert load.failures[:5] == []
        assert service.end() == 0
    said = f"{workers} workers, {load.asked:,} requests, {4 * refits} refits: MB by quarter "
    print(said + ", ".join(f"{size:.1f}" for size in quarters))
    assert quarters[3] - quarters[1] < most, quarters


def test_some_of_everything_leaves_memory_flat(tmp_path: Path) -> None:
    stays_flat(small_bandit(tmp_path / "shop", X, Y), 500, refits=1, workers=1, most=8)


@pytest.mark.long
def test_a_lot_of_everything_leaves_memory_flat(tmp_path: Path) -> None:
    """Ten minutes."""
    stays_flat(small_bandit(tmp_path / "shop", X, Y), 60_000, refits=30, workers=2, most=16)
