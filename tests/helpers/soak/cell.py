"""One cell of a soak: a store and a number of workers, load from beginning to end, faults one after the other."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from helpers.playing import X, Y
from helpers.postgres import Server, binaries, new_schema
from helpers.running import small_bandit
from helpers.soak.disk import Disk
from helpers.soak.faults import Fault
from helpers.soak.ledger import DECODE, Audit, Ledger
from helpers.soak.load import Load, Tally
from helpers.soak.plan import LIMITS, Plan, create_bandit, visits_of
from helpers.soak.service import REFIT, TOKEN, Answer, Caller, NoAnswer, Service
from helpers.soak.watch import Watch
from treetop.bandit.bandit import Bandit
from treetop.bandit.folder import BanditFolder
from treetop.bandit.state import FolderState
from treetop.data.datasets import load

MAX_GAP = 10.0  # seconds without an answer of /healthz, if no process was ended
REPLAYS = 200  # events that are decided again in the end


class Cell:
    """Everything of one cell; the faults use its methods."""

    def __init__(self, plan: Plan, say: Callable[[str], None] = lambda words: None) -> None:
        self.plan, self.say, self.random, self.token = plan, say, random.Random(plan.seed), TOKEN
        self.limits = LIMITS
        self.base = Path(tempfile.mkdtemp(prefix="treetop-soak-"))
        self.base.chmod(0o755)  # a database server of another user has to get in
        self.disk = Disk(self.base / "disk", plan.own_disk)
        self.folder = self.disk.path / "shop"
        self.server: Server | None = None
        self.faults: list[dict[str, Any]] = []
        self.findings: list[str] = []
        self._other: Path | None = None
        self._numbers = 0
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    def run(self) -> dict[str, Any]:
        """Runs the cell and removes everything that it made."""
        try:
            self._set_up()
            began = time.monotonic()
            self.watch.start()
            self.load.start()
            self._go_through_faults(began)
            memory, grown = self.watch.memory(), self.watch.findings()
            self.load.stop()
            self.watch.stop()
            seconds = time.monotonic() - began
            return self._result(seconds, memory, grown)
        finally:
            self._clean_up()

    def _set_up(self) -> None:
        dataset = load(self.plan.data)
        self.arms = [f"a{i}" for i in range(dataset.Y.columns)]
        create_bandit(self.folder, self.arms, dataset)
        log = None
        if self.plan.store == "postgres":
            bin = binaries()
            if bin is None:
                raise OSError("PostgreSQL is not installed: no initdb")
            self.server = Server(bin, parent=self.disk.path if self.disk.own else Path("/tmp"))
            log = new_schema(self.server)
        self.ledger, self.tally = Ledger(), Tally()
        self.service = Service(self.folder, self.plan.workers, log, self.base / "lines", self.base / "tmp")
        self.load = Load(
            self.service.port, visits_of(dataset), self.ledger, self.tally, self.plan.clients, self.plan.seed
        )
        self.watch = Watch(self.service, self.tally)
        self.service.start()
        if not self.service.wait_until_ready():
            raise OSError(f"the service did not start: {self.service.say.read_text()[-2000:]}")

    def _go_through_faults(self, began: float) -> None:
        end, order = began + self.plan.seconds, self.plan.order(self.random)
        for i, fault in enumerate(order):
            left = max(0.0, end - time.monotonic())  # on a slow machine it takes longer: each fault has its turn
            time.sleep(self.random.uniform(0.1, 0.6) * left / (len(order) - i))
            if not self._do(fault):
                self.find(f"failed: the service does not come back: {self.service.say.read_text()[-2000:]}")
                return
        time.sleep(max(0.0, end - time.monotonic()))

    def _do(self, fault: Fault) -> bool:
        """A fault, and what comes after it until the service is as it was; False if it never is."""
        self.say(f"{self.plan.name}: {fault.name}")
        self.tally.phase, began = fault.name, time.monotonic()
        self.faults.append({"fault": fault.name})
        try:
            fault.act(self)
        except Exception as error:
            self.find(f"failed: {fault.name} could not be tried: {error!r}")
        over = time.monotonic()
        well = self._wait_until_well(fault.name)
        trouble = dict(self.tally.trouble[fault.name])
        healthy, gap = self.watch.healthy_after(over), self.watch.longest_gap(began)
        if gap > MAX_GAP and not fault.ends:
            self.find(f"failed: for {gap:.0f} s during {fault.name!r} /healthz was not answered")
        self.note(
            seconds=round(over - began, 2),
            ready_after=round(time.monotonic() - over, 2),
            healthy_after=None if healthy is None else round(healthy, 3),
            slowest_health=round(self.watch.slowest_health(began), 3),
            longest_gap=round(gap, 2),
            trouble=trouble,
        )
        self.tally.phase = "no fault"
        return well

    def _wait_until_well(self, name: str) -> bool:
        """Until it is ready and decides; if it is not by itself, that is a finding, and it is started again."""
        for _ in range(3):
            if not self.service.wait_until_ready():
                how = f"ended with code {self.service.process.poll()}" if self.service.process else "is gone"
                self.find(f"failed: after {name!r} the service {how if self.service.ended() else 'is not ready'}")
                self.service.kill()
                self.start_server()
                self.service.start()
                continue
            if self._decides():
                return True
            if not self.service.ended():
                self.find(f"failed: after {name!r} the service is ready and decides nothing")
        return False

    def _end_and_start_once_more(self) -> None:
        """What killed services have left behind is removed by the next start, once it is some minutes old."""
        for again in (True, False):
            if (code := self.service.terminate()) != 0:
                self.find(f"failed: the service ended with code {code} after the load")
            if left := self.service.pids():
                self.find(f"left: {len(left)} processes after the end")
            if again:
                for path in self.service.scratch.iterdir():
                    os.utime(path, (time.time() - 600,) * 2)
                self.service.start()
                if not self.service.wait_until_ready():
                    self.find("failed: the service could not be started once more")
        if files := sorted(path.name for path in self.service.scratch.iterdir()):
            self.find(f"left: {len(files)} temporary files or folders after the end, such as {files[0]}")

    def _decides(self) -> bool:
        before = len(self.ledger.answers)
        return self.wait_for(lambda: len(self.ledger.answers) > before + 20, 60.0)

    def _result(self, seconds: float, memory: dict[str, Any], grown: list[str]) -> dict[str, Any]:
        self.disk.free([])  # if a fault could not be undone
        self.start_server()
        self._end_and_start_once_more()
        audit = self.audit(REPLAYS)
        findings = [*self.findings, *self.ledger.contradictions, *self.tally.findings, *grown]
        return {
            "cell": self.plan.name,
            "seconds": round(seconds, 1),
            "requests": sum(self.tally.answers.values()),
            "answers": dict(sorted(self.tally.answers.items())),
            "decisions": audit.decisions,
            "rewards": audit.rewards,
            "forgotten": audit.forgotten,
            "replayed": audit.replayed,
            "problems": dict(audit.problems),
            "hung": sum(words.startswith("hung") for words in findings),
            "refits": len(self.service.lines("refit done")),
            "slowest": {route: [round(took, 3), when] for route, (took, when) in self.tally.slowest.items()},
            "trouble": {phase: dict(kinds) for phase, kinds in self.tally.trouble.items() if kinds},
            "faults": self.faults,
            "memory": memory,
            "log_mb": round(folder_mb(self.folder, "log.sqlite*"), 1),
            "folder_mb": round(folder_mb(self.folder, "**/*"), 1),
            "own_disk": self.disk.own,
            "findings": findings,
        }

    def _clean_up(self) -> None:
        if hasattr(self, "service"):
            self.load.stopping.set()
            self.service.kill()
        if self.server is not None:
            self.server.close()
        self.disk.close()
        shutil.rmtree(self.base, ignore_errors=True)

    # What faults use.

    def find(self, words: str) -> None:
        """Something that should not have been."""
        self.say(f"{self.plan.name}: {words}")
        self.findings.append(words)

    def note(self, **facts: Any) -> None:
        """Facts about the fault of this moment, for the report."""
        self.faults[-1].update(facts)

    def pause(self, least: float, most: float) -> None:
        time.sleep(self.random.uniform(least, most))

    def wait_for(self, condition: Callable[[], Any], seconds: float) -> bool:
        until = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > until or (self.service.meant_to_run and self.service.ended()):
                return bool(condition())
            time.sleep(0.02)
        return True

    def state(self) -> FolderState:
        return BanditFolder(self.folder).state()

    def opened(self) -> Bandit:
        return Bandit.open(self.folder, self.service.log)

    def observed(self) -> int:
        answer = self.service.asked("/v1/model")
        return int(answer.json["refit"]["observed"]) if answer is not None and answer.status == 200 else 0

    def forgotten(self) -> int:
        with self.opened() as bandit:
            return bandit.log.counts().forgotten

    def audit(self, replays: int = 0) -> Audit:
        """Compares the ledger with the log; contradictions are findings."""
        events = list(self.ledger.answers)
        recent = self.random.sample(events[-10 * replays :], min(len(events), replays)) if replays else []
        with self.opened() as bandit:
            audit = self.ledger.check(bandit, recent)
        self.findings += audit.examples
        return audit

    def events_of_old_models(self) -> list[str]:
        """Recent events that another model than the current one decided, which is still kept; any if there are none."""
        kept = {int(name) for name in BanditFolder(self.folder).models()} - {int(self.state().model)}
        recent = list(dict(self.ledger.answers).items())[-5000:]  # a copy first: others write meanwhile
        return [event for event, raw in recent if DECODE(raw).epoch in kept] or [event for event, _ in recent]

    def status_of(self, caller: Caller, path: str, body: Any = None) -> int:
        """The status of an answer; 0 if there was none."""
        try:
            return caller.ask(path, body).status
        except NoAnswer as error:
            self.tally.failed(path, str(error))
            return 0

    def begin_refit(self) -> list[int]:
        """The processes of a refit that runs; it may be over already."""
        self.service.asked("/v1/refit", {})
        self.wait_for(lambda: self.service.pids(REFIT), 5.0)
        return self.service.pids(REFIT)

    def decide_status(self) -> int:
        """The status of a decision of now; 0 if there was no answer."""
        answer = self.decide_as_client(self.random.choice(self.load.visits).features)
        return 0 if answer is None else answer.status

    def decide_as_client(self, features: dict[str, float]) -> Answer | None:
        """A decision that stands in the ledger if it is acknowledged, with a reward for its first arm."""
        self._numbers += 1
        event = f"fault-{self._numbers}"
        self.ledger.sending(event)
        answer = self.service.asked("/v1/decide", {"event_id": event, "features": features})
        if answer is not None and answer.status == 200:
            self.ledger.decided(event, answer.json)
            rewards = {str(answer.json["slots"][0]["arm"]): 1.0}
            self.ledger.rewarding(event, rewards)
            rewarded = self.service.asked("/v1/reward", {"event_id": event, "rewards": rewards})
            if rewarded is not None and rewarded.status == 200:
                self.ledger.rewarded(event, rewards)
        return answer

    def new_arms(self, count: int) -> dict[str, Any]:
        self._numbers += 1
        names = [f"new-{self._numbers}-{i}" for i in range(count)]
        return {"add": names, "vectors": [self.random.choice(self.load.visits).features for _ in names]}

    def other_folder(self) -> Path:
        """Another bandit's folder."""
        if self._other is None:
            self._other = small_bandit(self.base / "other", X, Y)
        return self._other

    def stop_server(self, how: signal.Signals) -> None:
        assert self.server is not None
        self.server.stop(how)

    def start_server(self) -> None:
        """Starts the database server if there is one and it does not run; what was killed may need a moment to go."""
        if self.server is None or (self.server.process is not None and self.server.process.poll() is None):
            return
        for _ in range(100):
            with suppress(RuntimeError):
                self.server.start()
                return
            time.sleep(0.5)
        raise OSError("PostgreSQL does not start again")


def folder_mb(folder: Path, pattern: str) -> float:
    sizes = [path.stat().st_size for path in folder.glob(pattern) if path.is_file()]
    return sum(sizes) / (1 << 20)
