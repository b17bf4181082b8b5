"""An object with a key twice is refused, wherever it is in a body: decoders keep the last value and say nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.running import Running
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.service.body import BodyDecoder


def repeats(text: bytes) -> bool:
    """The slow twin: whether any object has a key twice."""
    found = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        found.append(len(pairs) > len({key for key, _ in pairs}))

    json.loads(text, object_pairs_hook=look)
    return any(found)


KEYS = st.sampled_from(["a", "b", "a:b", '"', "\\", "ä", "{", "}", "", "0"])
SCALARS = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.text('{}":\\ab,', max_size=4)
PAIRS = st.deferred(lambda: st.lists(st.tuples(KEYS, VALUES), max_size=5).map(Pairs))
VALUES: Any = st.deferred(lambda: SCALARS | st.lists(VALUES, max_size=3) | PAIRS)


class Pairs(list[tuple[str, Any]]):
    """An object as its pairs, which may have a key twice."""


def written(value: Any, gap: str, ascii_only: bool) -> str:
    if isinstance(value, Pairs):
        inside = (f"{json.dumps(k, ensure_ascii=ascii_only)}{gap}:{gap}{written(v, gap, ascii_only)}" for k, v in value)
        return "{" + f"{gap},{gap}".join(inside) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(v, gap, ascii_only) for v in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


@given(VALUES, st.sampled_from(["", " ", "\n\t"]), st.booleans())
def test_the_core_misses_no_repeated_key(value: Any, gap: str, ascii_only: bool) -> None:
    text = written(value, gap, ascii_only).encode()
    if repeats(text):
        assert _core.may_repeat_keys(text)
        with pytest.raises(ValueError, match="twice"):
            BodyDecoder(object).decode(text)
    else:
        BodyDecoder(object).decode(text)
        if b"\\" not in text:  # which it leaves to the slow way
            assert not _core.may_repeat_keys(text)


@pytest.mark.parametrize("text", [b'"', b'{"', b'{"a', b'{"a"', b'{"a":1', b"}", b'"\\', b'{"a"  '])
def test_text_that_ends_early_is_survived(text: bytes) -> None:
    assert _core.may_repeat_keys(text) in (False, True)


def refusal(shop: Running, path: str, body: bytes) -> tuple[int, str, str]:
    answer = shop.post(path, body)
    return answer.status, answer.code, answer.json["error"]["message"]


def test_a_reward_given_twice_is_refused_and_stores_nothing(shop: Running) -> None:
    decided = shop.post("/v1/decide", {"event_id": "twice", "features": {"f1": 1.0}}).json
    one, two = (slot["arm"] for slot in decided["slots"][:2])
    rewards = f'{{"event_id": "twice", "rewards": {{"{one}": 1, "{two}": 1, "{one}": 0}}}}'
    for path, body in (("/v1/reward", rewards), ("/v1/reward/batch", f'{{"requests": [{rewards}]}}')):
        said = refusal(shop, path, body.encode())
        assert said == (422, "invalid", f"the key {one!r} is twice in one object")
    spelled = rewards.replace(f'"{one}": 0', f'"\\u{ord(one[0]):04x}{one[1:]}": 0')
    assert refusal(shop, "/v1/reward", spelled.encode())[0] == 422
    fields = f'{{"event_id": "twice", "rewards": {{"{one}": 1}}, "rewards": {{"{two}": 1}}}}'
    assert refusal(shop, "/v1/reward", fields.encode())[2] == "the key 'rewards' is twice in one object"
    assert all(slot["reward"] is None for slot in shop.get("/v1/events/twice").json["slots"])
    assert shop.post("/v1/reward", {"event_id": "twice", "rewards": {one: 1}}).json["stored"] == 1


def test_a_feature_given_twice_is_refused(shop: Running) -> None:
    said = refusal(shop, "/v1/decide", b'{"features": {"f1": 1, "f2": 1, "f1": 2}}')
    assert said == (422, "invalid", "the key 'f1' is twice in one object")


def test_two_spellings_of_one_arm_are_refused(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "shop", Catalogue([1, 2], vectors=np.eye(2))) as bandit:
        bandit.decide(np.ones(2), "visit-1")
        with pytest.raises(ValueError, match="arm 1 is in it twice"):
            bandit.reward("visit-1", {1: 1.0, "1": 0.0})
