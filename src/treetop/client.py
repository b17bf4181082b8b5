"""A client of the service, with nothing but the standard library. Sending again is safe: every request has an id.

Connections stay open, one for each thread. What failed on the way, and what the service could not take just now, is
sent again after a pause that grows; what the service refused is an error at once.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

from treetop.arrays import Matrix, as_rows, real, whole
from treetop.bandit.catalogue import ArmId
from treetop.bandit.results import Shown, Slot
from treetop.errors import ServiceError, ServiceUnreachable

AGAIN = (429, 502, 503, 504)  # statuses that may be another in a moment
LONGEST = 10.0  # seconds between two tries


class Client:
    """Talks to `treetop serve`, here at `url`, http://127.0.0.1:8700 if not given. May be used from any thread.

    >>> with Client(url) as client:
    ...     shown = client.decide({"floral": 1.0}, event_id="visit-1", k=2)
    ...     client.reward("visit-1", {shown.arms[0]: 1.0})
    ...     client.decide({"floral": 1.0}, event_id="visit-1", k=2) == shown  # sent again: the same
    {'event_id': 'visit-1', 'stored': 1, 'repeated': 0}
    True
    """

    def __init__(
        self, url: str = "http://127.0.0.1:8700", token: str | None = None, timeout: float = 10.0, retries: int = 5,
        pause: float = 0.1,
    ) -> None:  # fmt: skip
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url is {url!r}; it must be http://host:port")
        self.url = url.rstrip("/")
        self._parts, self._token = parts, token
        self._timeout = real("timeout", timeout, 0.001, 86400)
        self._retries = whole("retries", retries, 0, 1000)
        self._pause = real("pause", pause, 0, 60)
        self._own = threading.local()
        self._open: list[http.client.HTTPConnection] = []

    def __repr__(self) -> str:
        return f"Client({self.url})"

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
    ) -> Shown:
        """One decision; without an event id it gets a new one here, so that it can be sent again."""
        return _shown(self._call("POST", "/v1/decide", _ask(x, event_id, k, explore, eligible, exclude)))

    def decide_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[Shown | ServiceError]:
        """Many decisions; each request has the arguments of `decide` by name. A result or an error for each.

        >>> with Client(url) as client:
        ...     found = client.decide_batch([{"x": {"dark": 1.0}, "k": 2}, {"x": {"dark": 1.0}, "eligible": ["beer"]}])
        ...     len(found[0].arms), found[1].code
        (2, 'unknown_arm')
        """
        asked = [_ask(**request) for request in requests]
        results = self._call("POST", "/v1/decide/batch", {"requests": asked})["results"]
        return [_shown(result["decision"]) if result["status"] == 200 else _error(result) for result in results]

    def reward(self, event_id: str | int, rewards: Mapping[ArmId, float]) -> dict[str, Any]:
        """What came of arms of an event, in [0, 1]."""
        return self._call("POST", "/v1/reward", _rewards(event_id, rewards))

    def reward_batch(self, rewards: Mapping[str, Mapping[ArmId, float]]) -> list[dict[str, Any] | ServiceError]:
        """Rewards of many events. A result or an error for each.

        >>> with Client(url) as client:
        ...     shown = client.decide({"dark": 1.0}, event_id="visit-2", k=1)
        ...     client.reward_batch({"visit-2": {shown.arms[0]: 1.0}, "nobody": {"mint": 1.0}})
        [{'event_id': 'visit-2', 'stored': 1, 'repeated': 0}, ServiceError("there is no event 'nobody' in the log...")]
        """
        asked = [_rewards(event, mine) for event, mine in rewards.items()]
        results = self._call("POST", "/v1/reward/batch", {"requests": asked})["results"]
        return [result["reward"] if result["status"] == 200 else _error(result) for result in results]

    def event(self, event_id: str | int) -> dict[str, Any]:
        """What the log holds of an event: when and with what it was decided, its slots and their rewards.

        >>> with Client(url) as client:
        ...     shown = client.decide({"dark": 1.0}, event_id="visit-3")
        ...     client.event("visit-3")["features"]
        {'indices': [2], 'values': [1.0]}
        """
        return self._call("GET", f"/v1/events/{quote(str(event_id), safe='')}")

    def explain(self, x: Mapping[str, Any] | Matrix | None = None, **options: Any) -> dict[str, Any]:
        """The effective arms of a context, or of `event_id=...`; `top=` says how many.

        >>> with Client(url) as client:
        ...     len(client.explain({"floral": 1.0}, top=2)["effective"])
        2
        """
        features = {} if x is None else {"features": _features(x)}
        return self._call("POST", "/v1/explain", {**features, **options})

    def model(self) -> dict[str, Any]:
        """The model that serves, and how refits stand.

        >>> with Client(url) as client:
        ...     client.model()["features"]
        4
        """
        return self._call("GET", "/v1/model")

    def ready(self) -> bool:
        """Whether there is a service that takes requests; asks once.

        >>> with Client(url) as client, Client("http://127.0.0.1:9") as nobody:
        ...     client.ready(), nobody.ready()
        (True, False)
        """
        try:
            return bool(self._call("GET", "/readyz", again=False))
        except (ServiceError, ServiceUnreachable):
            return False

    def refit(self) -> dict[str, Any]:
        """Starts a refit; `model()` shows when the new one serves.

        >>> with Client(url) as client:
        ...     _ = client.decide({"fresh": 1.0})
        ...     client.refit()
        {'status': 'started'}
        """
        return self._call("POST", "/v1/refit", {}, again=False)

    def roll_back(self, model: str | None = None) -> dict[str, Any]:
        """Makes an older model current again: the one before, or the one named.

        >>> with Client(url) as client:
        ...     before = client.model()["model"]
        ...     _ = client.change_arms(add=["hibiscus"])  # makes a model with a place for it
        ...     client.roll_back(before)["model"] == before
        True
        """
        return self._call("POST", "/v1/rollback", {} if model is None else {"model": model}, again=False)

    def change_arms(
        self, add: Sequence[ArmId] = (), remove: Sequence[ArmId] = (), vectors: Any = None
    ) -> dict[str, Any]:
        """Adds and removes arms; `vectors` are contexts like those that the new arms are for.

        >>> with Client(url) as client:
        ...     before = client.model()["arms"]
        ...     client.change_arms(add=["matcha"], remove=["mint"], vectors=[{"grassy": 1.0}])["arms"] - before
        1
        """
        given = {} if vectors is None else {"vectors": [_features(x) for x in vectors]}
        return self._call("POST", "/v1/arms", {"add": list(add), "remove": list(remove), **given}, again=False)

    def _call(self, method: str, path: str, body: Any = None, again: bool = True) -> dict[str, Any]:
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        trouble: Exception = ServiceUnreachable(f"{self.url} does not answer")
        for attempt in range(1 + (self._retries if again else 0)):
            if attempt:
                time.sleep(self._wait(attempt, trouble))
            try:
                return self._once(method, path, content)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                trouble = ServiceUnreachable(f"{self.url} does not answer: {error or type(error).__name__}")
            except ServiceError as error:
                if error.status not in AGAIN:
                    raise
                trouble = error
        raise trouble

    def _wait(self, attempt: int, trouble: Exception) -> float:
        """Longer every time, and not the same for everyone; at least what the service asked for."""
        asked = trouble.wait if isinstance(trouble, ServiceError) else 0.0
        grown = self._pause * 2.0 ** (attempt - 1)
        return max(asked, min(LONGEST, grown * random.uniform(0.5, 1.5)))

    def _once(self, method: str, path: str, content: bytes | None) -> dict[str, Any]:
        connection = self._connection()
        head = {"content-type": "application/json"} if content is not None else {}
        if self._token:
            head["authorization"] = f"Bearer {self._token}"
        connection.request(method, self._parts.path.rstrip("/") + path, content, head)
        response = connection.getresponse()
        answer = response.read()
        try:
            said = json.loads(answer)
        except ValueError:
            raise ServiceError(response.status, "not_json", f"{self.url} answered {answer[:100]!r}") from None
        if response.status >= 400:
            raise _error({"status": response.status, **said}, float(response.getheader("retry-after") or 0))
        return dict(said)

    def _connection(self) -> http.client.HTTPConnection:
        found: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if found is None:
            kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
            found = self._own.connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout)
            self._open.append(found)
        return found

    def _drop(self) -> None:
        connection = self._connection()
        connection.close()
        self._own.connection = None
        with contextlib.suppress(ValueError):  # closed meanwhile by another thread
            self._open.remove(connection)


def _ask(
    x: Mapping[str, Any] | Matrix, event_id: str | int | None = None, k: int | None = None, explore: int | None = None,
    eligible: Iterable[ArmId] | None = None, exclude: Iterable[ArmId] | None = None,
) -> dict[str, Any]:  # fmt: skip
    options = {
        "k": k, "explore": explore, "eligible": None if eligible is None else list(eligible),
        "exclude": None if exclude is None else list(exclude),
    }  # fmt: skip
    said = {name: value for name, value in options.items() if value is not None}
    return {"event_id": uuid.uuid4().hex if event_id is None else event_id, "features": _features(x), **said}


def _features(x: Mapping[str, Any] | Matrix) -> dict[str, Any]:
    """Names as they are; a row of numbers by its columns."""
    if isinstance(x, Mapping):
        return dict(x)
    row = as_rows(x)
    if len(row) != 1:
        raise ValueError(f"a decision takes 1 context, not {len(row)}")
    return {"indices": row.index.tolist(), "values": row.value.tolist()}


def _rewards(event_id: str | int, rewards: Mapping[ArmId, float]) -> dict[str, Any]:
    return {"event_id": event_id, "rewards": {str(arm): value for arm, value in rewards.items()}}


def _shown(answer: dict[str, Any]) -> Shown:
    return Shown(answer["event_id"], answer["epoch"], tuple(Slot(**slot) for slot in answer["slots"]))


def _error(answer: dict[str, Any], wait: float = 0.0) -> ServiceError:
    error = answer.get("error", {})
    code, message = error.get("code", "unknown"), error.get("message", "no reason given")
    return ServiceError(answer["status"], code, message, error.get("stored"), wait)
