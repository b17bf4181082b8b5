"""What the service refuses, and how: a status, a code, a sentence, and never a stack trace."""

import http.client
import json
import select
import socket
from pathlib import Path
from typing import Any

import pytest
from helpers.commands import shell
from helpers.problems import topics
from helpers.running import Answer, Running, running, small_bandit
from helpers.running import settings as bandit_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from treetop.bandit import config

X, Y = topics()

BAD_DECISIONS: list[tuple[Any, int, str, str]] = [
    (b"{", 400, "malformed", "not JSON"),
    (b"", 400, "malformed", "not JSON"),
    (b"\xff\xfe", 400, "malformed", "not JSON"),
    (b'{"features": {"f1": NaN}}', 400, "malformed", "not JSON"),
    ([], 422, "invalid", "Expected `object`"),
    ({}, 422, "invalid", "missing required field `features`"),
    ({"features": {}, "colour": 1}, 422, "invalid", "unknown field `colour`"),
    ({"features": {"f1": "x"}}, 422, "invalid", "feature 'f1' must be a number, not 'x'"),
    ({"features": {"f1": None}}, 422, "invalid", "features"),
    ({"features": {"f1": 1e39}}, 422, "invalid", "feature 'f1' is 1e+39; it must be finite and lie in"),
    (b'{"features": {"f1": 1e400}}', 422, "invalid", "out of range"),
    ({"features": {"indices": [0, 1], "values": [1]}}, 422, "invalid", "2 indices, but 1 values"),
    ({"features": {"indices": [40], "values": [1]}}, 422, "invalid", "index 40 is not a whole number in [0, 40)"),
    ({"features": {"indices": [-1], "values": [1]}}, 422, "invalid", "index -1"),
    ({"features": {"indices": [0.5], "values": [1]}}, 422, "invalid", "index 0.5"),
    ({"features": {"indices": [1], "values": [1], "f1": 2}}, 422, "invalid", "not a mixture"),
    ({"features": {"dense": [1, 2]}}, 422, "invalid", "2 dense values; there are 40 features"),
    ({"features": {"f1": [1]}}, 422, "invalid", "no vector 'f1' in a context; vectors, with their dimensions: none"),
    ({"features": {}, "k": 0}, 422, "invalid", ">= 1"),
    ({"features": {}, "k": 101}, 422, "too_many_slots", "at most 100"),
    ({"features": {}, "k": 2.5}, 422, "invalid", "k: expected"),
    ({"features": {}, "k": 2, "explore": 3}, 422, "invalid", "explore is 3; it must lie in [0, 2]"),
    ({"features": {}, "explore": -1}, 422, "invalid", ">= 0"),
    ({"features": {}, "eligible": []}, 422, "no_arms", "none of the arms"),
    ({"features": {}, "eligible": ["a1"], "exclude": ["a1"]}, 422, "no_arms", "none of the arms"),
    ({"features": {}, "eligible": ["who"]}, 422, "unknown_arm", "no arm 'who'"),
    ({"features": {}, "exclude": [1]}, 422, "unknown_arm", "no arm '1'"),
    ({"features": {}, "eligible": "a1"}, 422, "invalid", "eligible"),
    ({"features": {}, "eligible": [None]}, 422, "invalid", "eligible"),
    ({"features": {}, "event_id": ""}, 422, "invalid", "event_id: expected"),
    ({"features": {}, "event_id": "x" * 513}, 422, "invalid", "event_id: expected"),
    ({"features": {}, "event_id": "ß" * 512}, 422, "invalid", "1 to 512 are needed"),
    ({"features": {}, "event_id": "a\x00b"}, 422, "invalid", "none of them zero"),
    ({"features": {}, "event_id": ["x"]}, 422, "invalid", "event_id: expected"),
]


@pytest.mark.parametrize(("body", "status", "code", "message"), BAD_DECISIONS)
def test_a_bad_decision_is_refused_in_a_sentence(
    shop: Running, body: Any, status: int, code: str, message: str
) -> None:
    answer = shop.post("/v1/decide", body)
    assert (answer.status, answer.code) == (status, code), answer.content
    assert message in answer.json["error"]["message"]
    assert "Traceback" not in answer.content.decode()


def test_strict_content_types_and_methods(shop: Running) -> None:
    body = json.dumps({"features": {}}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx", ""):
        answer = shop.ask("POST", "/v1/decide", body, {"content-type": kind})
        assert (answer.status, answer.code) == (415, "content_type")
    assert shop.ask("POST", "/v1/decide", body, {"content-type": "application/json; charset=utf-8"}).status == 200
    assert shop.ask("POST", "/v1/decide", body, {"content-type": "Application/JSON"}).status == 200
    for method, path in (("GET", "/v1/decide"), ("DELETE", "/v1/model"), ("PUT", "/v1/reward"), ("POST", "/healthz")):
        answer = shop.ask(method, path)
        assert (answer.status, answer.code) == (405, "method_not_allowed")
        assert answer.headers["allow"] in ("GET", "POST")
    for path in ("/nothing", "/v1", "/v1/decide/", "/v1/events", "/../../etc/passwd", "/v1/..%2f..%2fetc/passwd"):
        answer = shop.get(path)
        assert (answer.status, answer.code) == (404, "not_found"), path


def test_no_path_of_a_request_reaches_the_file_system(shop: Running) -> None:
    for path in ("/v1/events/..%2f..%2fconfig.toml", "/v1/events/../../current", "/v1/events/%2fetc%2fpasswd"):
        assert shop.get(path).code in ("unknown_event", "not_found")
    for model in ("../models/000000", "..", "000000/", "/etc", "", ".000000"):
        assert shop.post("/v1/rollback", {"model": model}).status == 422


def test_a_page_of_another_site_cannot_ask(shop: Running) -> None:
    """Without tokens only who names this machine may ask: a foreign name that resolves to it may not."""
    for host in ("evil.example", "evil.example:8700", "127.0.0.1.evil.example"):
        answer = shop.ask("GET", "/v1/model", headers={"host": host})
        assert (answer.status, answer.code) == (403, "forbidden")
    for host in ("localhost", "localhost:1234", "127.0.0.1", "[::1]:80", "[::1]"):
        assert shop.ask("GET", "/v1/model", headers={"host": host}).status == 200


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A service with narrow limits, strict features and a reward that stands for silence."""
    folder = small_bandit(
        tmp_path_factory.mktemp("tight") / "tight",
        X,
        Y,
        config=bandit_settings(
            limits=config.LimitConfig(
                body=2000, batch_body=5000, features=5, k=6, arms=10, changed_arms=12, batch=3, in_flight=2, seconds=2.0
            ),
            features=config.FeatureConfig(strict_features=True),
        ),
    )
    with running(folder) as service:
        yield service


def test_limits(tight: Running) -> None:
    def refused(path: str, body: Any) -> tuple[int, str]:
        answer = tight.post(path, body)
        return answer.status, answer.code

    few = {"f1": 1.0}
    assert refused("/v1/decide", {"features": {}, "event_id": "x" * 2000}) == (413, "too_large")
    assert refused("/v1/decide", {"features": {f"f{i}": 1 for i in range(6)}}) == (422, "too_many_features")
    sparse = {"indices": list(range(6)), "values": [1] * 6}
    assert refused("/v1/decide", {"features": sparse}) == (422, "too_many_features")
    assert refused("/v1/decide", {"features": {"dense": [1] * 40}}) == (422, "too_many_features")
    assert refused("/v1/decide", {"features": few, "k": 7}) == (422, "too_many_slots")
    arms = [f"a{i}" for i in range(11)]
    assert refused("/v1/decide", {"features": few, "eligible": arms}) == (422, "too_many_arms")
    many = [f"a{i % 11}" for i in range(13)]
    assert refused("/v1/attributes", {"arms": many, "attributes": {"new": [1] * 13}}) == (422, "too_many_arms")
    eleven = {"arms": arms, "attributes": {"price": [1] * 11}, "new": True}
    assert tight.post("/v1/attributes", eleven).status == 200  # more than may be listed as eligible
    batch = {"requests": [{"features": few}] * 4}
    assert refused("/v1/decide/batch", batch) == (422, "too_many_requests_in_batch")
    assert refused("/v1/decide/batch", {"requests": [{"features": few, "exclude": arms[:6]}] * 2}) == (
        422,
        "too_many_arms",
    )
    assert refused("/v1/decide", {"features": {"f1": 1, "who": 2}}) == (422, "unknown_feature")
    assert tight.post("/v1/decide", {"features": few, "k": 6}).status == 200


def test_a_body_without_a_length_is_limited_too(tight: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", tight.port, timeout=30)
    chunks = (b"x" * 100 for _ in range(1000))
    try:
        connection.request("POST", "/v1/decide", chunks, {"content-type": "application/json"}, encode_chunked=True)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it may hang up while we still talk
    else:
        assert connection.getresponse().status == 413
    connection.close()
    assert tight.get("/healthz").status == 200


def slow(port: int, promised: int = 100) -> socket.socket:
    """A request whose body does not come."""
    made = socket.create_connection(("127.0.0.1", port), timeout=30)
    head = "POST /v1/decide HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {promised}\r\n\r\n"
    made.sendall(head.encode() + b'{"features"')
    return made


def test_too_many_at_a_time_and_bodies_that_do_not_come(tight: Running) -> None:
    def refusal() -> Answer | None:
        answer = tight.post("/v1/decide", {"features": {"f1": 1.0}})
        return answer if answer.status != 200 else None

    waiting = [slow(tight.port) for _ in range(2)]
    full = tight.wait_for(refusal)  # once it has read both heads
    assert (full.status, full.code, full.headers["retry-after"]) == (429, "too_many", "1")
    assert tight.get("/healthz").status == 200  # who watches is always heard
    for one in waiting:
        assert b"408" in one.recv(1000).split(b"\r\n")[0]
        one.close()
    assert tight.post("/v1/decide", {"features": {"f1": 1.0}}).status == 200


def test_a_body_that_trickles_is_not_waited_for(tight: Running) -> None:
    with slow(tight.port, 1500) as one:

        def ended() -> bool:
            one.sendall(b" ")
            return bool(select.select([one], [], [], 0.05)[0])

        tight.wait_for(ended)
        assert b"408" in one.recv(1000).split(b"\r\n")[0]


def test_bodies_that_are_too_much_together_wait(tmp_path: Path) -> None:
    """What a head promises counts at once; without a promise, what has come does. One body alone is always accepted."""
    limits = config.LimitConfig(body=100_000, bodies=150_000)
    with running(small_bandit(tmp_path / "shop", X, Y, config=bandit_settings(limits=limits))) as service:
        body = json.dumps({"features": {"f1": 1.0}}).encode() + b" " * 80_000
        with slow(service.port, 90_000):
            service.wait_for(lambda: service.post("/v1/decide", body).status == 429)
            full = service.post("/v1/decide", body)
            assert (full.code, full.headers["retry-after"]) == ("too_many", "1")
            assert "90000 bytes of other requests" in full.json["error"]["message"]
            assert service.post("/v1/decide", body.strip()).status == 200
            assert service.get("/healthz").status == 200
            chunks = http.client.HTTPConnection("127.0.0.1", service.port, timeout=30)
            parts = (body[i : i + 1000] for i in range(0, len(body), 1000))
            chunks.request("POST", "/v1/decide", parts, {"content-type": "application/json"}, encode_chunked=True)
            assert chunks.getresponse().status == 429
            chunks.close()
        service.wait_for(lambda: service.post("/v1/decide", body).status == 200)
        assert service.post("/v1/decide", body).status == 200
    tiny = config.LimitConfig(bodies=10)
    with running(small_bandit(tmp_path / "tiny", X, Y, config=bandit_settings(limits=tiny))) as service:
        assert service.post("/v1/decide", body).status == 200


def test_who_hangs_up_harms_nobody(tight: Running) -> None:
    for _ in range(20):
        slow(tight.port).close()
    tight.wait_for(lambda: tight.post("/v1/decide", {"features": {"f1": 1.0}}).status == 200)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    [
        "features",
        "event_id",
        "k",
        "explore",
        "eligible",
        "exclude",
        "rewards",
        "requests",
        "model",
        "top",
        "add",
        "remove",
        "vectors",
        "indices",
        "values",
        "dense",
        "f1",
    ]
)
NEARLY = st.dictionaries(
    FIELDS, JSON | st.dictionaries(FIELDS, JSON, max_size=3) | st.lists(JSON, max_size=3), max_size=5
)
PATHS = ["/v1/decide", "/v1/reward", "/v1/decide/batch", "/v1/reward/batch", "/v1/explain", "/v1/rollback", "/v1/unpin"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), body=NEARLY | JSON)
def test_any_json_gets_an_answer(shop: Running, path: str, body: Any) -> None:
    answer = shop.post(path, body)
    assert answer.status < 500, (path, body, answer.content)
    assert isinstance(answer.json, dict)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(PATHS), body=st.binary(max_size=200))
def test_any_bytes_get_an_answer(shop: Running, path: str, body: bytes) -> None:
    answer = shop.post(path, body)
    assert 400 <= answer.status < 500, (path, body, answer.content)


def test_nothing_of_that_was_an_error_of_ours(shop: Running, tight: Running) -> None:
    for service in (shop, tight):
        assert [line for line in service.said() if line["level"] == "error"] == []


def test_listening_elsewhere_needs_a_token(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "open", X, Y)
    ended = shell("serve", str(folder), "--host", "0.0.0.0")
    assert ended.returncode == 2
    assert "listening on 0.0.0.0 needs a token" in ended.stderr


def test_a_head_without_end_is_cut_off(shop: Running) -> None:
    with socket.create_connection(("127.0.0.1", shop.port), timeout=30) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\n")
        sent = 0
        try:
            while sent < 50_000_000:
                endless.sendall(b"x-header: " + b"x" * 10_000 + b"\r\n")
                sent += 10_000
        except OSError:
            pass
    assert sent < 50_000_000
    assert shop.get("/healthz").status == 200
