"""The client for asyncio does what the other one does: against a service that drops and refuses, and a real one."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers.flaky import OK, Flaky, refusal, serving
from helpers.running import Running

import treetop
from treetop.errors import ServiceUnreachable


@pytest.fixture
def flaky() -> Iterator[Flaky]:
    with serving() as server:
        yield server


def run(url: str, act: Callable[[treetop.AsyncClient], Any], **settings: Any) -> Any:
    """What a client that is closed afterwards brings."""

    async def acted() -> Any:
        async with treetop.AsyncClient(url, **{"pause": 0.001, **settings}) as client:
            return await act(client)

    return asyncio.run(acted())


def test_what_got_lost_is_sent_again_with_the_same_id(flaky: Flaky) -> None:
    flaky.plan = ["drop", refusal(503, **{"Retry-After": "0"}), refusal(429), refusal(502), OK]
    assert run(flaky.url, lambda client: client.decide({"f": 1.0}), token="secret").arms == ["a"]
    bodies = [body for _, _, body, _ in flaky.heard]
    assert len(bodies) == 5
    assert all(body == bodies[0] for body in bodies)
    assert {token for *_, token in flaky.heard} == {"Bearer secret"}


def test_what_was_refused_is_an_error_at_once(flaky: Flaky) -> None:
    async def refused(client: treetop.AsyncClient) -> None:
        for status in (400, 401, 404, 409, 422, 500):
            flaky.plan = [refusal(status, "because")]
            with pytest.raises(treetop.ServiceError, match=rf"no \({status} because\)") as caught:
                await client.reward("x", {"a": 1})
            assert (caught.value.status, caught.value.stored) == (status, {"a": 0.5})
        assert len(flaky.heard) == 6
        flaky.plan = [(200, {}, b"<html>")]
        with pytest.raises(treetop.ServiceError, match="not_json"):
            await client.model()

    run(flaky.url, refused)


def test_it_gives_up_and_sends_once_what_is_not_safe(flaky: Flaky) -> None:
    async def tried(client: treetop.AsyncClient) -> None:
        flaky.plan = ["drop"] * 10
        with pytest.raises(ServiceUnreachable, match="does not answer"):
            await client.decide({"f": 1.0})
        assert len(flaky.heard) == 3
        assert not await client.ready()
        for call in (client.refit, client.roll_back, client.unpin, lambda: client.change_arms(add=["x"])):
            flaky.plan, flaky.heard = [refusal(503)], []
            with pytest.raises(treetop.ServiceError):
                await call()
            assert len(flaky.heard) == 1

    run(flaky.url, tried, retries=2)
    with pytest.raises(ConnectionError):
        run("http://127.0.0.1:9", lambda client: client.model(), retries=1)


def test_a_slow_service_is_left_after_the_timeout() -> None:
    """A server that accepts and never answers."""

    async def silent() -> None:
        stop = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await stop.wait()
            writer.close()

        server = await asyncio.start_server(hold, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with treetop.AsyncClient(url, timeout=0.05, retries=1, pause=0.001) as client:
            with pytest.raises(ServiceUnreachable, match="does not answer: TimeoutError"):
                await client.model()
        stop.set()
        await asyncio.sleep(0.01)
        server.close()

    asyncio.run(silent())


def answering(*answers: bytes) -> tuple[list[int], Callable[..., Any]]:
    """How many connections there were, and what serves each with these answers, one a request."""
    count: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        count.append(1)
        for answer in answers:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length")), b":0")
            await reader.readexactly(int(length.partition(b":")[2]))
            writer.write(answer)
            await writer.drain()
        writer.close()

    return count, serve


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}',
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n4;x=1\r\n":1}\r\n0\r\nTrailer: x\r\n\r\n',
    ],
    ids=["length", "chunked"],
)
def test_answers_of_either_kind_on_one_connection(answer: bytes) -> None:
    async def asked() -> None:
        count, serve = answering(answer, answer, answer)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/behind/a/proxy/"
        async with treetop.AsyncClient(url, retries=0) as client:
            assert [await client.model() for _ in range(3)] == [{"a": 1}] * 3
        assert len(count) == 1
        server.close()

    asyncio.run(asked())


@pytest.mark.parametrize(
    "answer", [b"HELLO\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", b"HTTP/1.1 200 OK\r\n"]
)
def test_what_is_not_http_counts_as_no_answer(answer: bytes) -> None:
    async def asked() -> None:
        _, serve = answering(answer)
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with treetop.AsyncClient(url, retries=0) as client:
            with pytest.raises(ServiceUnreachable):
                await client.model()
        server.close()

    asyncio.run(asked())


def test_many_at_once_share_few_connections(shop: Running) -> None:
    async def together(client: treetop.AsyncClient) -> None:
        served = await asyncio.gather(*(client.decide([1.0], event_id=f"async-{i}", k=2) for i in range(100)))
        assert [one.event_id for one in served] == [f"async-{i}" for i in range(100)]
        assert 1 <= len(client._idle) <= 4
        await asyncio.gather(*(client.reward(one.event_id, {one.arms[0]: 1.0}) for one in served))
        found = await asyncio.gather(*(client.event(f"async-{i}") for i in (0, 99)))
        assert [event["slots"][0]["reward"] for event in found] == [1.0, 1.0]

    run(shop.url, together, connections=4)


def test_a_cancelled_call_leaves_no_half_read_connection(shop: Running) -> None:
    async def cancelled(client: treetop.AsyncClient) -> None:
        task = asyncio.create_task(client.decide([1.0], event_id="async-cancelled"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert client._idle == []
        assert (await client.decide([1.0], event_id="async-after")).event_id == "async-after"

    run(shop.url, cancelled)


def test_one_client_in_two_event_loops(shop: Running) -> None:
    client = treetop.AsyncClient(shop.url)

    async def ready() -> bool:
        try:
            return await client.ready()
        finally:
            await client.close()

    assert asyncio.run(ready())
    assert asyncio.run(ready()), "it was closed in between"
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    assert here.run_until_complete(client.ready())
    with pytest.raises(RuntimeError, match="connections of another event loop"):
        there.run_until_complete(client.ready())
    here.run_until_complete(client.close())
    here.close()
    there.close()


def test_both_clients_get_the_same_answers(shop: Running) -> None:
    async def mine(client: treetop.AsyncClient) -> Any:
        served = await client.decide([1.0], event_id="async-same", k=3)
        batch = await client.decide_batch([{"x": [1.0], "event_id": "async-same", "k": 3}])
        return served, batch, await client.explain([1.0], top=2), await client.event("async-same")

    with treetop.Client(shop.url) as client:
        theirs = (
            client.decide([1.0], event_id="async-same", k=3),
            client.decide_batch([{"x": [1.0], "event_id": "async-same", "k": 3}]),
            client.explain([1.0], top=2),
            client.event("async-same"),
        )
    assert run(shop.url, mine) == theirs


def test_both_clients_have_the_same_calls() -> None:
    ours, theirs = ({name for name in vars(kind) if name[0] != "_"} for kind in (treetop.AsyncClient, treetop.Client))
    assert ours == theirs


@pytest.mark.parametrize("url", ["127.0.0.1:8700", "ftp://x", "http://", ""])
def test_a_bad_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="it must be http://host:port"):
        treetop.AsyncClient(url)
