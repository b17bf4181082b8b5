"""Clients that must not lose anything: they send a request, under the same id, until it is answered for good."""

from __future__ import annotations

import heapq
import random
import re
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from helpers.soak.ledger import Ledger
from helpers.soak.service import Answer, Caller, NoAnswer

PAUSE = 0.005, 0.04  # seconds between two requests of a client: hundreds of requests a second, and a refit gets a core
LATER = (429, 502, 503, 504)  # answers after which a request is sent again
SETTLE = 60.0  # seconds in which requests that are under way must get through once the last fault is over
REMEMBERED = 500  # requests of a client that may be sent once more
NOT_KEPT = (200, 404, 409)  # an old event may be forgotten, or its model not kept any more


@dataclass(frozen=True)
class Visit:
    """A context by the names of its features, and the arms that get the reward 1."""

    features: dict[str, float]
    liked: frozenset[str]


@dataclass
class Tally:
    """What happened to requests, by what was done to the service at that time (`phase`)."""

    phase: str = "no fault"
    answers: Counter[str] = field(default_factory=Counter)
    trouble: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def answered(self, path: str, answer: Answer, seconds: float) -> None:
        route = route_of(path)
        self.answers[f"{route} {answer.status}"] += 1
        if seconds > self.slowest.get(route, (0.0, ""))[0]:
            self.slowest[route] = seconds, self.phase

    def failed(self, path: str, kind: str) -> None:
        self.trouble[self.phase][kind] += 1
        if kind == "hung":
            self.findings.append(f"hung: no answer of {route_of(path)} during {self.phase!r}")

    def unexpected(self, path: str, answer: Answer) -> None:
        words = f"{answer.status} {answer.content[:200]!r}"
        self.findings.append(f"failed: {route_of(path)} answered {words} during {self.phase!r}")


def route_of(path: str) -> str:
    return re.sub(r"^(/v1/events|/dashboard/\w+)/.*", r"\1/...", path.partition("?")[0])


class Load:
    """Threads that decide, send rewards late and in parts, repeat themselves, explain old events, look at pages."""

    def __init__(self, port: int, visits: Sequence[Visit], ledger: Ledger, tally: Tally, clients: int, seed: int):
        self.port, self.visits, self.ledger, self.tally = port, visits, ledger, tally
        self.removed: dict[str, float] = {}  # arms that must not be shown any more, and since when
        self.stopping = threading.Event()
        self.give_up_at = float("inf")
        self.threads: list[threading.Thread] = [Client(self, f"c{i}", seed * 1000 + i) for i in range(clients)]
        self.threads.append(Visitor(self))

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Lets every client finish what it has begun."""
        self.give_up_at = time.monotonic() + SETTLE
        self.stopping.set()
        for thread in self.threads:
            thread.join()

    def check_removed(self, arms: Sequence[Any], asked_at: float, event: str) -> None:
        for arm in arms:
            if self.removed.get(str(arm), float("inf")) < asked_at:
                self.tally.findings.append(f"failed: arm {arm} was shown in {event} after it was removed")


class Client(threading.Thread):
    """One client with a connection of its own."""

    def __init__(self, load: Load, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.load, self.ledger, self.tally = load, load.ledger, load.tally
        self.random, self.caller, self.count = random.Random(seed), Caller(load.port), 0
        self.due: list[tuple[float, str, dict[str, float]]] = []  # rewards to send, the earliest first
        self.past: deque[tuple[dict[str, Any], Visit]] = deque(maxlen=REMEMBERED)

    def run(self) -> None:
        while not self.load.stopping.is_set():
            try:
                self._step()
            except Exception as error:  # a client that dies would look like a quiet service
                self.tally.findings.append(f"failed: a client could not go on: {error!r}")
            self.load.stopping.wait(self.random.uniform(*PAUSE))
        self.caller.close()

    def _step(self) -> None:
        chance = self.random.random()
        if self.due and self.due[0][0] < time.monotonic():
            self._reward(min(len(self.due), self.random.choice((1, 1, 1, 4))))
        elif chance < 0.85 or not self.past:
            self._decide(1)
        elif chance < 0.92:
            self._decide(self.random.randint(2, 12))
        elif chance < 0.96:
            request, _ = self.random.choice(self.past)  # a client that does not know that it was answered
            self._take(self._insist("/v1/decide", request), request["event_id"])
        elif chance < 0.98:
            event = self.random.choice(self.past)[0]["event_id"]
            self._once("/v1/explain", {"event_id": event, "top": 5}, *NOT_KEPT)
        else:
            self._once(f"/v1/events/{self.random.choice(self.past)[0]['event_id']}", None, *NOT_KEPT)

    def _decide(self, count: int) -> None:
        visits = [self.random.choice(self.load.visits) for _ in range(count)]
        requests = [self._request(visit) for visit in visits]
        asked_at = time.time()
        for request in requests:
            self.ledger.sending(request["event_id"])
        if count == 1:
            answers = [self._take(self._insist("/v1/decide", requests[0]), requests[0]["event_id"])]
        else:
            answers = self._results(self._insist("/v1/decide/batch", {"requests": requests}), "decision", requests)
        for request, visit, found in zip(requests, visits, answers, strict=True):
            if found is None:
                continue
            self.ledger.decided(request["event_id"], found)
            self.past.append((request, visit))
            arms = [slot["arm"] for slot in found["slots"]]
            self.load.check_removed(arms, asked_at, request["event_id"])
            self._plan_rewards(request["event_id"], visit, arms)

    def _request(self, visit: Visit) -> dict[str, Any]:
        self.count += 1
        request: dict[str, Any] = {"event_id": f"{self.name}-{self.count}", "features": visit.features}
        if self.random.random() < 0.1:
            request["k"] = self.random.randint(1, 8)
        return request

    def _plan_rewards(self, event: str, visit: Visit, arms: list[Any]) -> None:
        """Most rewards come at once, some seconds later; some in two parts; some never."""
        if self.random.random() < 0.1:
            return
        values = {str(arm): float(str(arm) in visit.liked) for arm in arms}
        delay = self.random.choice((0.0, 0.0, 0.0, 1.0, 5.0, 20.0)) * self.random.random()
        if self.random.random() < 0.1 and len(values) > 1:
            first = dict(list(values.items())[:1])
            heapq.heappush(self.due, (time.monotonic() + delay, event, first))
            values = {arm: value for arm, value in values.items() if arm not in first}
            delay += self.random.random() * 5
        heapq.heappush(self.due, (time.monotonic() + delay, event, values))

    def _reward(self, count: int) -> None:
        due: dict[str, dict[str, float]] = {}
        for _ in range(count):
            if self.due[0][1] in due:  # an event may be in a batch once
                break
            _, event, values = heapq.heappop(self.due)
            due[event] = values
            self.ledger.rewarding(event, values)
        bodies = [{"event_id": event, "rewards": values} for event, values in due.items()]
        old = any(self.ledger.sent[event] < self.ledger.forgotten_before for event in due)
        if count == 1:
            answer = self._insist("/v1/reward", bodies[0], *((404,) if old else ()))
            found = [answer.json if answer is not None and answer.status == 200 else None]
        else:
            found = self._results(self._insist("/v1/reward/batch", {"requests": bodies}), "reward", bodies)
        for (event, values), one in zip(due.items(), found, strict=True):
            if one is not None:
                self.ledger.rewarded(event, values)
                if one["stored"] + one["repeated"] != len(values):
                    self.tally.findings.append(f"failed: {len(values)} rewards of {event} were answered with {one}")

    def _take(self, answer: Answer | None, event: str) -> dict[str, Any] | None:
        """The decision of an answer. It stands in the ledger from now on."""
        if answer is None:
            return None
        found: dict[str, Any] = answer.json
        self.ledger.decided(event, found)
        return found

    def _results(self, answer: Answer | None, what: str, requests: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
        """What a batch was answered, request by request."""
        if answer is None:
            return [None] * len(requests)
        results = answer.json["results"]
        for request, result in zip(requests, results, strict=True):
            forgotten = self.ledger.sent[request["event_id"]] < self.ledger.forgotten_before
            if result["status"] != 200 and not (result["status"] == 404 and forgotten):
                self.tally.findings.append(f"failed: a batch answered {result} during {self.tally.phase!r}")
        return [result.get(what) if result["status"] == 200 else None for result in results]

    def _insist(self, path: str, body: Any, *fine: int) -> Answer | None:
        """Sends a request until it is answered for good; None if the answer is one that should not be."""
        pause = 0.05
        while True:
            answer, kind = self._ask(path, body)
            if answer is not None and answer.status in (200, *fine):
                return answer
            if answer is not None and answer.status not in LATER:
                self.tally.unexpected(path, answer)
                return None
            self.tally.failed(path, kind)
            if time.monotonic() > self.load.give_up_at:
                self.tally.findings.append(f"failed: {route_of(path)} did not get through in {SETTLE:g} s: {kind}")
                return None
            wait = answer.wait if answer is not None else 0.0
            time.sleep(max(wait, pause * self.random.uniform(0.5, 1.5)))
            pause = min(1.0, pause * 2)

    def _once(self, path: str, body: Any, *fine: int) -> Answer | None:
        answer, kind = self._ask(path, body)
        if answer is None or answer.status in LATER:
            self.tally.failed(path, kind)
        elif answer.status not in fine:
            self.tally.unexpected(path, answer)
        return answer

    def _ask(self, path: str, body: Any) -> tuple[Answer | None, str]:
        """The answer, and in a few words what was wrong with it."""
        began = time.monotonic()
        try:
            answer = self.caller.ask(path, body)
        except NoAnswer as error:
            return None, str(error)
        self.tally.answered(path, answer, time.monotonic() - began)
        return answer, f"{answer.status} {answer.code}" if answer.status != 200 else ""


class Visitor(Client):
    """Somebody who looks at the dashboard, and a scraper of metrics."""

    def __init__(self, load: Load) -> None:
        super().__init__(load, "visitor", 0)

    def _step(self) -> None:
        page = self._once("/", None, 200)
        parts = re.findall(rb'hx-get="(/[^"?]*)', page.content) if page is not None else []
        for path in ["/metrics", "/v1/model", *{part.decode() for part in parts}]:
            self._once(path, None, 200, 404, 409)
        self.load.stopping.wait(2.0)
