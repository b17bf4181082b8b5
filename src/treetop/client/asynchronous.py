"""The client for asyncio: the same calls as `Client`, awaited. Needs no HTTP library either.

Connections stay open and are used again, up to a limit; a call that is cancelled closes its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from treetop.arrays import Matrix, check_int
from treetop.bandit.arm_index import ArmId
from treetop.bandit.results import ServedDecision
from treetop.client.blocking import REFIT_TIMEOUT, RETRY_STATUSES, BaseClient
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

MAX_HEAD = 65536  # bytes of an answer before its body
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# What a connection that went away raises; IncompleteReadError and LimitOverrunError are not OSErrors.
LOST = (OSError, EOFError, asyncio.LimitOverrunError, asyncio.TimeoutError)


class AsyncClient(BaseClient):
    """A client of `treetop serve` at `url` for asyncio, with the arguments of `Client`.

    At most `connections` requests are under way at a time; the others wait.

    >>> async def visit():
    ...     async with AsyncClient(url) as client:
    ...         served = await client.decide({"floral": 1.0}, event_id="visit-7", k=2)
    ...         print(await client.reward("visit-7", {served.arms[0]: 1.0}))
    ...         again = client.decide({"floral": 1.0}, event_id="visit-7", k=2), client.event("visit-7")
    ...         same, event = await asyncio.gather(*again)  # together
    ...         return same == served, event["features"]
    >>> asyncio.run(visit())
    {'event_id': 'visit-7', 'stored': 1, 'repeated': 0}
    (True, {'indices': [1], 'values': [1.0]})
    """

    def __init__(
        self,
        url: str = "http://127.0.0.1:8700",
        token: str | None = None,
        timeout: float = 10.0,
        retries: int = 5,
        pause: float = 0.1,
        connections: int = 100,
    ) -> None:
        super().__init__(url, token, timeout, retries, pause)
        self._most = check_int("connections", connections, 1, 65535)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._idle: list[Connection] = []
        self._free = asyncio.Semaphore(self._most)

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections that nobody uses; those that are needed again are opened again.

        >>> asyncio.run(AsyncClient(url).close())
        """
        idle, self._idle = self._idle, []
        for _, writer in idle:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in idle), return_exceptions=True)

    async def decide(
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
        """One decision, as `Client.decide`."""
        body = decide_body(x, event_id, k, explore, eligible, exclude, keys, where)
        return decision_of(await self._call("POST", "/v1/decide", body))

    async def decide_batch(self, requests: Sequence[Mapping[str, Any]]) -> list[ServedDecision | ServiceError]:
        """Many decisions, as `Client.decide_batch`.

        >>> async def visits():
        ...     async with AsyncClient(url) as client:
        ...         dark = {"x": {"dark": 1.0}, "k": 2}
        ...         return await client.decide_batch([dark, {**dark, "eligible": ["beer"]}])
        >>> found = asyncio.run(visits())
        >>> len(found[0].arms), found[1].code
        (2, 'unknown_arm')
        """
        bodies = [decide_body(**request) for request in requests]
        results = (await self._call("POST", "/v1/decide/batch", {"requests": bodies}))["results"]
        return [decision_of(result["decision"]) if result["status"] == 200 else error_of(result) for result in results]

    async def reward(self, event_id: str | int, rewards: Mapping[ArmId, float]) -> dict[str, Any]:
        """Stores rewards in [0, 1] for arms of an event, as `Client.reward`."""
        return await self._call("POST", "/v1/reward", reward_body(event_id, rewards))

    async def reward_batch(self, rewards: Mapping[str, Mapping[ArmId, float]]) -> list[dict[str, Any] | ServiceError]:
        """Stores rewards of many events, as `Client.reward_batch`.

        >>> async def rewards():
        ...     async with AsyncClient(url) as client:
        ...         return await client.reward_batch({"nobody": {"mint": 1.0}})
        >>> asyncio.run(rewards())[0].code
        'unknown_event'
        """
        bodies = [reward_body(event, mine) for event, mine in rewards.items()]
        results = (await self._call("POST", "/v1/reward/batch", {"requests": bodies}))["results"]
        return [result["reward"] if result["status"] == 200 else error_of(result) for result in results]

    async def event(self, event_id: str | int) -> dict[str, Any]:
        """An event as logged, as `Client.event`."""
        return await self._call("GET", event_path(event_id))

    async def explain(self, x: Mapping[str, Any] | Matrix | None = None, **options: Any) -> dict[str, Any]:
        """The effective arms of a context, or of `event_id=...`, as `Client.explain`.

        >>> async def look():
        ...     async with AsyncClient(url) as client:
        ...         return await client.explain({"floral": 1.0}, top=2), await client.model(), await client.ready()
        >>> view, model, ready = asyncio.run(look())
        >>> len(view["effective"]), model["features"], ready
        (2, 4, True)
        """
        return await self._call("POST", "/v1/explain", explain_body(x, options))

    async def model(self) -> dict[str, Any]:
        """The model that serves, and the state of refits."""
        return await self._call("GET", "/v1/model")

    async def ready(self) -> bool:
        """Whether a service accepts requests; tries once."""
        try:
            return bool(await self._call("GET", "/readyz", retry=False))
        except (ServiceError, ServiceUnreachable):
            return False

    async def refit(self, wait: bool = False) -> dict[str, Any]:
        """Starts a refit, as `Client.refit`.

        >>> async def learn():
        ...     async with AsyncClient(url) as client:
        ...         before = (await client.model())["model"]
        ...         done = await client.refit(wait=True)
        ...         back = await client.roll_back(before, pin=True)
        ...         return done["status"], back["pinned"], (await client.unpin())["pinned"]
        >>> asyncio.run(learn())
        ('done', True, False)
        """
        timeout = max(self._timeout, REFIT_TIMEOUT) if wait else self._timeout
        return await self._call("POST", "/v1/refit", {"wait": wait}, retry=False, timeout=timeout)

    async def roll_back(self, model: str | None = None, pin: bool = False) -> dict[str, Any]:
        """Makes another kept model current, as `Client.roll_back`."""
        wanted = {} if model is None else {"model": model}
        return await self._call("POST", "/v1/rollback", {**wanted, "pin": pin}, retry=False)

    async def unpin(self) -> dict[str, Any]:
        """Lets refits replace the current model again."""
        return await self._call("POST", "/v1/unpin", {}, retry=False)

    async def set_attributes(
        self, arms: Sequence[ArmId], attributes: Mapping[str, Sequence[Any]], new: bool = False
    ) -> dict[str, Any]:
        """Changes attributes of arms, as `Client.set_attributes`."""
        return await self._call("POST", "/v1/attributes", attributes_body(arms, attributes, new))

    async def set_arms(self, name: str, arms: Sequence[ArmId] | None) -> dict[str, Any]:
        """Names a set of arms, as `Client.set_arms`; None deletes it.

        >>> async def dear():
        ...     async with AsyncClient(url) as client:
        ...         _ = await client.set_attributes(["mint", "rose"], {"cost": [4.5, 6]}, new=True)
        ...         _ = await client.set_arms("flowers", ["rose"])
        ...         return await client.decide({"dark": 1.0}, where={"sets": "flowers", "cost": {">": 5}})
        >>> asyncio.run(dear()).arms
        ['rose']
        """
        return await self._call("PUT", set_path(name), {"arms": None if arms is None else list(arms)})

    async def change_arms(
        self, add: Sequence[ArmId] = (), remove: Sequence[ArmId] = (), vectors: Any = None, **more: Any
    ) -> dict[str, Any]:
        """Adds and removes arms, as `Client.change_arms`.

        >>> async def new():
        ...     async with AsyncClient(url) as client:
        ...         _ = await client.change_arms(add=["kukicha"])
        ...         return await client.decide({"dark": 1.0}, eligible=["kukicha"])
        >>> asyncio.run(new()).arms
        ['kukicha']
        """
        return await self._call("POST", "/v1/arms", arms_body(add, remove, vectors, more), retry=False)

    async def _call(
        self, method: str, path: str, body: Any = None, retry: bool = True, timeout: float | None = None
    ) -> dict[str, Any]:
        content = content_of(body)
        failure: Exception = self._unreachable()
        for attempt in range(1 + (self._retries if retry else 0)):
            if attempt:
                await asyncio.sleep(self._wait(attempt, failure))
            try:
                async with self._room():
                    once = self._once(method, path, content)
                    return await asyncio.wait_for(once, self._timeout if timeout is None else timeout)
            except LOST as error:
                failure = self._unreachable(error)
            except ServiceError as error:
                if error.status not in RETRY_STATUSES:
                    raise
                failure = error
        raise failure

    def _room(self) -> asyncio.Semaphore:
        """A place among the connections, which belong to one event loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._idle:
                raise RuntimeError(
                    "the client has connections of another event loop: close it there, or make one a loop"
                )
            self._loop, self._free = loop, asyncio.Semaphore(self._most)
        return self._free

    async def _once(self, method: str, path: str, content: bytes | None) -> dict[str, Any]:
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        try:
            head = {"host": self._parts.netloc.rpartition("@")[2], **self._head(content)}
            if content is not None:
                head["content-length"] = str(len(content))
            lines = [f"{method} {self._target(path)} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
            writer.write("\r\n".join([*lines, "", ""]).encode() + (content or b""))
            await writer.drain()
            status, heads = await _read_head(reader)
            try:
                answer = await _read_body(reader, heads)
            except ValueError as error:
                raise ConnectionError(f"its answer has no proper length: {error}") from None
        except BaseException:  # also if it was cancelled: what is left in it belongs to nobody
            writer.close()
            raise
        if heads.get("connection", "").lower() == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return self._read(status, answer, heads.get("retry-after"))

    async def _connect(self) -> Connection:
        secure = self._parts.scheme == "https"
        port = self._parts.port or (443 if secure else 80)
        return await asyncio.open_connection(self._parts.hostname, port, ssl=secure or None, limit=MAX_HEAD)


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """Status and headers, by their names in lower case."""
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = text.split("\r\n")
    parts = first.split(" ")
    if len(parts) < 2 or not parts[1].isdecimal():
        raise ConnectionError(f"its answer begins with {first[:100]!r}")
    pairs = (line.partition(":") for line in lines if line)
    return int(parts[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


async def _read_body(reader: asyncio.StreamReader, heads: Mapping[str, str]) -> bytes:
    if "chunked" in heads.get("transfer-encoding", "").lower():
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while (await reader.readuntil(b"\r\n")) != b"\r\n":
            pass  # trailers
        return b"".join(parts)
    return await reader.readexactly(int(heads.get("content-length", 0)))
