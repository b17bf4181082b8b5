"""`bench serve`: decisions a second and their times over HTTP, durable, beside the same app without the decision.

The service and `baseline_app` (`bare` in the results) run side by side with the same number of workers, each with a
folder and a log of its own on the same disk. A process of its own (`http_load`) loads them in turns, with contexts by
the names of their features. Every answer has to be 200, and what was answered is looked for in the log.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from treetop.arrays import Rows
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.bandit.results import same_decision
from treetop.bench import http_load
from treetop.bench.setting import Result, Setting, model_of_dataset
from treetop.bench.shape import SHAPES, BenchModel
from treetop.bench.timing import Row
from treetop.data.datasets import load
from treetop.errors import Disagreement

ARMS = 1_000_000  # of the made-up model, unless the shape is another than the smallest
CONNECTIONS = (1, 16, 64)
WORKERS = (1, 2)
TURNS, SECONDS = 6, 1.0  # short ones, in which both find the same machine; with fewer contexts shorter still
APPS = {"treetop": "treetop.service.worker", "bare": "treetop.bench.baseline_app"}
START_TIMEOUT = 120.0  # seconds that a service may take to answer
STOP_TIMEOUT = 60.0  # seconds that it may take to end
REPLAYED = 5  # answers of each run that are looked up and decided again


def serve(setting: Setting) -> Result:
    """The bundled model and a made-up one, or a dataset's."""
    try:
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"serving needs {error.name}: pip install 'treetop-bandits[serve]'") from None
    result = Result()
    for name, subject, names in _models(setting):
        for workers in WORKERS:
            setting.say(f"{name}: {workers} workers" if workers > 1 else f"{name}: 1 worker")
            with ExitStack() as stack:
                apps = [stack.enter_context(_started(setting, app, subject, names, workers)) for app in APPS]
                for app in apps:
                    app.load(CONNECTIONS[1], SECONDS / 4)  # the first answers find nothing in any cache
                for connections in CONNECTIONS:
                    _measure(setting, result, {"what": name, "arms": subject.model.n_arms}, workers, connections, apps)
                for app in apps:
                    app.end()
                result.checks[f"{name}, workers {workers}"] = {app.name: check_log(app) for app in apps}
    return result


def _models(setting: Setting) -> Iterator[tuple[str, BenchModel, tuple[str, ...] | None]]:
    """A name, a model with contexts, and what its features are called."""
    if setting.dataset is not None:
        yield setting.dataset.name, setting.model(), setting.dataset.feature_names
        return
    bundled = load("debian")
    yield bundled.name, model_of_dataset(bundled, setting.shape), bundled.feature_names
    shape = replace(setting.shape, arms=ARMS) if setting.shape == SHAPES["small"] else setting.shape
    yield "synthetic", setting.model(shape), None


@dataclass(frozen=True, eq=False)
class App:
    """A service that runs: where it listens, its processes, and what it has answered."""

    name: str
    folder: Path
    port: int
    workers: Sequence[subprocess.Popen[bytes]]
    requests: Path
    answered: list[int]
    last: list[dict[str, Any]]

    def load(self, connections: int, seconds: float) -> dict[str, Any]:
        words = [self.port, connections, seconds, self.requests, REPLAYED]
        command = [sys.executable, http_load.__file__, *map(str, words)]  # by its path: it needs nothing of the package
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Disagreement(f"{self.name} refused a request: {(done.stderr.strip() or '?').splitlines()[-1]}")
        found: dict[str, Any] = json.loads(done.stdout)
        self.answered.append(found["answers"])
        self.last[:] = [json.loads(body) for body in found["last"]]
        return found

    def end(self) -> None:
        for worker in self.workers:
            worker.terminate()
        until = time.monotonic() + STOP_TIMEOUT
        while any(worker.poll() is None for worker in self.workers) and time.monotonic() < until:
            time.sleep(0.02)
        for worker in self.workers:
            worker.kill()  # nothing happens to those that have ended
            worker.wait()

    def cpu(self) -> float:
        """Seconds that cores have worked for it so far."""
        ticks = os.sysconf("SC_CLK_TCK")
        stats = [Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split() for worker in self.workers]
        return sum(int(words[11]) + int(words[12]) for words in stats) / ticks


@contextmanager
def _started(
    setting: Setting, name: str, subject: BenchModel, names: tuple[str, ...] | None, workers: int
) -> Iterator[App]:
    """An app on a folder of its own, which is removed in the end."""
    setting.cache.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=setting.cache, prefix="serve-")))
        never = config.Config(refit=config.RefitConfig(first=10**9))
        Bandit.create(folder / "bandit", model=subject.model, features=names, config=never).close()
        requests = folder / "requests"
        http_load.write_requests(requests, _bodies(subject.contexts.head(setting.contexts), names))
        listening = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=2048))
        listening.setblocking(False)
        (alive, held), (news, told) = os.pipe(), os.pipe()
        for handle in (held, alive, news, told):
            stack.callback(os.close, handle)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TREETOP_")}
        if workers > 1:
            (folder / "metrics").mkdir()
            environment["PROMETHEUS_MULTIPROC_DIR"] = str(folder / "metrics")
        handles = (listening.fileno(), alive, told)
        command = [sys.executable, "-m", APPS[name], *map(str, (folder / "bandit", *handles, workers))]
        said = stack.enter_context((folder / "said").open("wb"))
        running = [subprocess.Popen(command, env=environment, pass_fds=handles, stderr=said) for _ in range(workers)]
        app = App(name, folder / "bandit", listening.getsockname()[1], running, requests, [], [])
        stack.callback(app.end)
        _wait_until_ready(folder / "said", running)
        yield app


def _bodies(contexts: Rows, names: tuple[str, ...] | None) -> list[bytes]:
    found = []
    for i in range(len(contexts)):
        begin, end = contexts.start[i], contexts.start[i + 1]
        row = zip(contexts.index[begin:end].tolist(), contexts.value[begin:end].tolist(), strict=True)
        features = {names[at] if names else str(at): value for at, value in row}
        found.append(json.dumps({"features": features}).encode())
    return found


def _wait_until_ready(said: Path, running: Sequence[subprocess.Popen[bytes]]) -> None:
    until = time.monotonic() + START_TIMEOUT
    while said.read_text().count('"ready"') < len(running):
        if time.monotonic() > until or any(worker.poll() is not None for worker in running):
            raise Disagreement(f"the service did not start: {said.read_text()[-500:]}")
        time.sleep(0.05)


def _measure(setting: Setting, result: Result, about: Row, workers: int, connections: int, apps: Sequence[App]) -> None:
    """A row for each app, asked in turns: what disturbs the machine for seconds disturbs both."""
    seconds = SECONDS * setting.contexts / 1000
    times: dict[str, list[float]] = {app.name: [] for app in apps}
    took, worked = dict.fromkeys(times, 0.0), dict.fromkeys(times, 0.0)
    ratios = []
    for _ in range(TURNS):
        rates = {}
        for app in apps:
            before, found = app.cpu(), app.load(connections, seconds)
            worked[app.name] += app.cpu() - before
            took[app.name] += found["seconds"]
            times[app.name] += found["times"]
            rates[app.name] = found["answers"] / found["seconds"]
        ratios.append(rates["treetop"] / rates["bare"])
    for app in apps:
        all_, count = np.array(times[app.name]), len(times[app.name])
        row = {
            "name": app.name,
            **about,
            "workers": workers,
            "connections": connections,
            "per_second": round(count / took[app.name], 1),
            "p50_ms": round(float(np.percentile(all_, 50)) * 1e3, 3),
            "p99_ms": round(float(np.percentile(all_, 99)) * 1e3, 3),
            "cpu_us": round(worked[app.name] / count * 1e6, 1),
        }
        if app.name == "treetop":
            row["of_bare"] = round(float(np.median(ratios)), 3)
        result.rows.append(row)


def check_log(app: App) -> dict[str, int]:
    """All that was answered is in the log, once; the last answers are what the model decides again."""
    with Bandit.open(app.folder) as bandit:
        logged, answered = bandit.log.counts().decisions, sum(app.answered)
        if logged != answered:
            raise Disagreement(f"{app.name} answered {answered} requests, and {logged} decisions are in its log")
        again = app.last if app.name == "treetop" else []
        for answer in again:
            stored, decision = bandit.replay(answer["event_id"])
            shown = [slot["arm"] for slot in answer["slots"]]
            if not same_decision(stored, decision) or shown != bandit.served(stored).arms:
                raise Disagreement(f"event {answer['event_id']} is not what was answered")
    return {"answered": answered, "decided_again": len(again)}
