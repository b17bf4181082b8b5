"""A client of the service that needs no HTTP library. Sending a request again is safe, because every one has an id.

Connections stay open, one for each thread. A request that got no answer, or that the service could not take at the
moment, is sent again after a growing pause; one that the service refused raises ServiceError at once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from treetop.arrays import Matrix, check_float, check_int
from treetop.bandit.arm_index import ArmId
from treetop.bandit.results import ServedDecision
from treetop.client.messages import (
    arms_body,
    attributes_body,
    content_of,
    decide_body,
    decision_of,
    error_of,
    event_path,
    explain_body,
    reward_body,
    set_path,
)
from treetop.errors import ServiceError, ServiceUnreachable

RETRY_STATUSES = (429, 502, 503, 504)
MAX_PAUSE = 10.0  # seconds between two attempts
REFIT_TIMEOUT = 90.0  # seconds; the service answers after 60 at the latest


class BaseClient:
    """What every client knows: where the service is, how long it waits, and what an answer means. Opens nothing."""

    def __init__(self, url: str, token: str | None, timeout: float, retries: int, pause: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {url!r}; it must be http://host:port")
        self.url = url.rstrip("/")
        self._parts, self._token = parts, token
        self._timeout = check_float("timeout", timeout, 0.001, 86400)
        self._retries = check_int("retries", retries, 0, 1000)
        self._pause = check_float("pause", pause, 0, 60)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url})"

    def _wait(self, attempt: int, failure: Exception) -> float:
        """Seconds before the next attempt: longer each time, with jitter, and at least what the service asked for."""
        requested = failure.wait if isinstance(failure, ServiceError) else 0.0
        grown = self._pause * 2.0 ** (attempt - 1)
        return max(requested, min(MAX_PAUSE, grown * random.uniform(0.5, 1.5)))

    def _unreachable(self, error: object = None) -> ServiceUnreachable:
        why = "" if error is None else f": {str(error) or type(error).__name__}"
        return ServiceUnreachable(f"{self.url} does not answer{why}")

    def _target(self, path: str) -> str:
        return self._parts.path.rstrip("/") + path

    def _head(self, content: bytes | None) -> dict[str, str]:
        head = {"content-type": "application/json"} if content is not None else {}
        return {**head, "authorization": f"Bearer {self._token}"} if self._token else head

    def _read(self, status: int, answer: bytes, retry_after: str | None) -> dict[str, Any]:
        """An answer as JSON; raises ServiceError for a refusal."""
        try:
            found = json.loads(answer)
        except ValueError:
            raise ServiceError(status, "not_json", f"{self.url} answered {answer[:100]!r}") from None
        if status >= 400:
            raise error_of({"status": status, **found}, float(retry_after or 0))
        return dict(found)


class Client(BaseClient):
    """A client of `treetop serve` at `url`. Thread-safe; `AsyncClient` is its twin for asyncio.

    `token` is sent with every request; `timeout` is in seconds; a request is sent again up to `retries` times, first
    after `pause` seconds.

    >>> with Client(url) as client:
    ...     served = client.decide({"floral": 1.0}, event_id="visit-1", k=2)
    ...     client.reward("visit-1", {served.arms[0]: 1.0})
    ...     client.decide({"floral": 1.0}, event_id="visit-1", k=2) == served  # sent again: the same
    {'event_id': 'visit-1', 'stored': 1, 'repeated': 0}
    True
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8700",
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
        pause: float = 0.1,
    ) -> None:
        super().__init__(url, token, timeout, retries, pause)
        self._local = threading.local()  # each thread has a connection of its own
        self._open: list[http.client.HTTPConnection] = []

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections; those that are needed again are opened again.

        >>> client = Client(url)
        >>> client.ready()
        True
        >>> client.close()
        """
        for connection in self._open:
            connection.close()
        self._open.clear()

    def decide(
        self,
        x: Mapping[str, Any] | Matrix,
        event_id: str | int | None = None,
        k: int | None = None,
        explore: int | None = None,
        eligible: Iterable[ArmId] | None = None,
        exclude: Iterable[ArmId] | None = None,
        keys: Mapping[str, str | int] | None = None,
        where: Mapping[str, Any] | None = None,
    ) -> ServedDecision:
        """One decision, as `Bandit.decide`. Without an event id the client makes one, so that it can send it again."""
        body = decide_body(x, event_id, k, explore, eligible, exclude, keys, where)
        return decision_of(self._call("POST", "/v1/decide", body))

    def decide_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[ServedDecision | ServiceError]:
        """Many decisions; each request has the arguments of `decide` by name. Returns a decision or an error for each.

        >>> with Client(url) as client:
        ...     found = client.decide_batch([{"x": {"dark": 1.0}, "k": 2}, {"x": {"dark": 1.0}, "eligible": ["beer"]}])
        ...     len(found[0].arms), found[1].code
        (2, 'unknown_arm')
        """
        bodies = [decide_body(**request) for request in requests]
        results = self._call("POST", "/v1/decide/batch", {"requests": bodies})["results"]
        return [decision_of(result["decision"]) if result["status"] == 200 else error_of(result) for result in results]

    def reward(self, event_id: str | int, rewards: Mapping[ArmId, float]) -> dict[str, Any]:
        """Stores rewards in [0, 1] for arms of an event, as `Bandit.reward`."""
        return self._call("POST", "/v1/reward", reward_body(event_id, rewards))

    def reward_batch(self, rewards: Mapping[str, Mapping[ArmId, float]]) -> list[dict[str, Any] | ServiceError]:
        """Stores rewards of many events. Returns an answer or an error for each.

        >>> with Client(url) as client:
        ...     served = client.decide({"dark": 1.0}, event_id="visit-2", k=1)
        ...     client.reward_batch({"visit-2": {served.arms[0]: 1.0}, "nobody": {"mint": 1.0}})
        [{'event_id': 'visit-2', 'stored': 1, 'repeated': 0}, ServiceError("there is no event 'nobody' in the log...")]
        """
        bodies = [reward_body(event, mine) for event, mine in rewards.items()]
        results = self._call("POST", "/v1/reward/batch", {"requests": bodies})["results"]
        return [result["reward"] if result["status"] == 200 else error_of(result) for result in results]

    def event(self, event_id: str | int) -> dict[str, Any]:
        """An event as logged: when and from what it was decided, its slots and their rewards.

        >>> with Client(url) as client:
        ...     served = client.decide({"dark": 1.0}, event_id="visit-3")
        ...     client.event("visit-3")["features"]
        {'indices': [2], 'values': [1.0]}
        """
        return self._call("GET", event_path(event_id))

    def explain(self, x: Mapping[str, Any] | Matrix | None = None, **options: Any) -> dict[str, Any]:
        """The effective arms of a context, or of `event_id=...`; `top=` says how many.

        >>> with Client(url) as client:
        ...     len(client.explain({"floral": 1.0}, top=2)["effective"])
        2
        """
        return self._call("POST", "/v1/explain", explain_body(x, options))

    def model(self) -> dict[str, Any]:
        """The model that serves, and the state of refits.

        >>> with Client(url) as client:
        ...     client.model()["features"]
        4
        """
        return self._call("GET", "/v1/model")

    def ready(self) -> bool:
        """Whether a service accepts requests; tries once.

        >>> with Client(url) as client, Client("http://127.0.0.1:9") as nobody:
        ...     client.ready(), nobody.ready()
        (True, False)
        """
        try:
            return bool(self._call("GET", "/readyz", retry=False))
        except (ServiceError, ServiceUnreachable):
            return False

    def refit(self, wait: bool = False) -> dict[str, Any]:
        """Starts a refit. With `wait`, returns when the new model serves; the status is still "started" if that takes
        more than a minute.

        >>> with Client(url) as client:
        ...     _ = client.decide({"fresh": 1.0})
        ...     client.refit(wait=True)["status"]
        'done'
        """
        timeout = max(self._timeout, REFIT_TIMEOUT) if wait else self._timeout
        with contextlib.closing(Client(self.url, self._token, timeout)) as patient:
            return patient._call("POST", "/v1/refit", {"wait": wait}, retry=False)

    def roll_back(self, model: str | None = None, pin: bool = False) -> dict[str, Any]:
        """Makes another kept model current: the one before, or the one named. With `pin`, refits leave it there.

        >>> with Client(url) as client:
        ...     before = client.model()["model"]
        ...     _ = client.change_arms(add=["hibiscus"])  # makes a new model
        ...     client.roll_back(before)["model"] == before
        True
        """
        wanted = {} if model is None else {"model": model}
        return self._call("POST", "/v1/rollback", {**wanted, "pin": pin}, retry=False)

    def unpin(self) -> dict[str, Any]:
        """Lets refits replace the current model again.

        >>> with Client(url) as client:
        ...     client.roll_back(client.model()["model"], pin=True)["pinned"], client.unpin()["pinned"]
        (True, False)
        """
        return self._call("POST", "/v1/unpin", {}, retry=False)

    def set_attributes(
        self, arms: Sequence[ArmId], attributes: Mapping[str, Sequence[Any]], new: bool = False
    ) -> dict[str, Any]:
        """Sets attributes of arms, as `Bandit.set_attributes`; returns what requests may filter by.

        >>> with Client(url) as client:
        ...     _ = client.set_attributes(["mint", "rose"], {"price": [4.5, 6]}, new=True)
        ...     client.decide({"dark": 1.0}, where={"price": {">": 5}}).arms
        ['rose']
        """
        return self._call("POST", "/v1/attributes", attributes_body(arms, attributes, new))

    def set_arms(self, name: str, arms: Sequence[ArmId] | None) -> dict[str, Any]:
        """Names a set of arms, as `Bandit.set_arms`; None deletes it.

        >>> with Client(url) as client:
        ...     _ = client.set_arms("summer-sale", ["rose"])
        ...     client.decide({"dark": 1.0}, where={"sets": "summer-sale"}).arms
        ['rose']
        """
        return self._call("PUT", set_path(name), {"arms": None if arms is None else list(arms)})

    def change_arms(
        self, add: Sequence[ArmId] = (), remove: Sequence[ArmId] = (), vectors: Any = None, **more: Any
    ) -> dict[str, Any]:
        """Adds and removes arms; `vectors` has a context for each new arm, like those it should be shown for.
        `categories`, `attributes`, `like`, `examples` and `new` are as for `Bandit.add_arms`.

        >>> with Client(url) as client:
        ...     before = client.model()["arms"]
        ...     client.change_arms(add=["matcha"], remove=["mint"], vectors=[{"grassy": 1.0}])["arms"] - before
        1
        """
        return self._call("POST", "/v1/arms", arms_body(add, remove, vectors, more), retry=False)

    def _call(self, method: str, path: str, body: Any = None, retry: bool = True) -> dict[str, Any]:
        content = content_of(body)
        failure: Exception = self._unreachable()
        for attempt in range(1 + (self._retries if retry else 0)):
            if attempt:
                time.sleep(self._wait(attempt, failure))
            try:
                return self._once(method, path, content)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                failure = self._unreachable(error)
            except ServiceError as error:
                if error.status not in RETRY_STATUSES:
                    raise
                failure = error
        raise failure

    def _once(self, method: str, path: str, content: bytes | None) -> dict[str, Any]:
        connection = self._connection()
        connection.request(method, self._target(path), content, self._head(content))
        response = connection.getresponse()
        return self._read(response.status, response.read(), response.getheader("retry-after"))

    def _connection(self) -> http.client.HTTPConnection:
        found: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if found is None:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            found = self._local.connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
            self._open.append(found)
        return found

    def _drop(self) -> None:
        connection = self._connection()
        connection.close()
        self._local.connection = None
        with contextlib.suppress(ValueError):  # another thread has closed it meanwhile
            self._open.remove(connection)
