"""Names in dsjson, the JSON lines of Vowpal Wabbit's decision service: contexts, arms, times, dropped lines.

The context is the namespace `x`, an arm the feature `id` of the namespace `arm`, a cost the negated reward. What this
format cannot hold of a decision stands under `treetop`, which Vowpal Wabbit does not read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from treetop.arrays import Rows
from treetop.bandit.arm_index import ArmId
from treetop.bandit.vocabulary import Vocabulary
from treetop.log.records import Event

VERSION = 1
PROBLEMS = ("cb", "ccb", "slates")
CONTEXT, ARM, OWN = "x", "arm", "treetop"
ESCAPE = "\\"  # before a name that begins with _, which would be a command


def context_fields(event: Event, vocabulary: Vocabulary) -> dict[str, dict[str, float]]:
    """The context of a decision by feature names, in one namespace.

    >>> import numpy as np
    >>> one = {name: np.zeros(1) for name in ("arms", "propensities", "scores", "explored", "nodes")}
    >>> event = Event("visit-1", 0, **one, time=0.0, request=b"", index=np.array([1]), value=np.array([0.7], "f4"),
    ...               model="000000", tree="", policy="{}")
    >>> context_fields(event, Vocabulary(2, ("age", "height")))
    {'x': {'height': 0.7}}
    """
    values = (float(text) for text in event.value.astype(str))  # the shortest number that is the same float32
    pairs = zip(event.index.tolist(), values, strict=True)
    return {CONTEXT: {_escaped(vocabulary.name(column)): value for column, value in pairs}}


def context_row(shared: Mapping[str, Any], vocabulary: Vocabulary, own: bool) -> tuple[Rows, int]:
    """The row of a context, and how many of its features are not in the vocabulary.

    A feature is looked up as `namespace.name`, then as `name`; text as `name=text`, a list as `name[0]`, `name[1]`, ...
    In a line of treetop's `own`, names are those of the vocabulary.

    >>> shared = {"User": {"age": 3, "sex": "f", "new": True}}
    >>> row, unknown = context_row(shared, Vocabulary(2, ("age", "User.sex=f")), own=False)
    >>> row.index.tolist(), row.value.tolist(), unknown
    ([0, 1], [3.0, 1.0], 1)
    """
    found: dict[str, float] = {}
    if own:
        found = {name.removeprefix(ESCAPE): value for name, value in shared.get(CONTEXT, {}).items()}
        return vocabulary.named(found)
    for space, part in shared.items():
        if space.startswith("_"):
            continue
        for name, value in flat_features(part, space):
            bare = name.removeprefix(space).lstrip(".")
            known = name if name in vocabulary.index or not bare else bare
            found[known] = found.get(known, 0.0) + value
    return vocabulary.named(found)


def flat_features(value: Any, name: str) -> Iterator[tuple[str, float]]:
    """The numbers in a part of a context, with their names; Vowpal Wabbit takes them the same way.

    >>> dict(flat_features({"age": 3, "sex": "f", "new": True, "seen": [0.5, 2]}, "User"))
    {'User.age': 3.0, 'User.sex=f': 1.0, 'User.new': 1.0, 'User.seen[0]': 0.5, 'User.seen[1]': 2.0}
    """
    if isinstance(value, bool):
        if value:
            yield name, 1.0
    elif isinstance(value, int | float):
        yield name, float(value)
    elif isinstance(value, str):
        yield f"{name}={value}", 1.0
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not key.startswith("_"):
                yield from flat_features(inner, f"{name}.{key}")
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from flat_features(inner, name if isinstance(inner, Mapping) else f"{name}[{i}]")


def _escaped(name: str) -> str:
    return ESCAPE + name if name.startswith(("_", ESCAPE)) else name


def arm_fields(arm: ArmId) -> dict[str, dict[str, str]]:
    """An arm as an action.

    >>> arm_fields("mint"), arm_fields(7)
    ({'arm': {'id': 'mint'}}, {'arm': {'id': '7'}})
    """
    return {ARM: {"id": str(arm)}}


def arm_of(action: Mapping[str, Any], path: str | None = None) -> ArmId:
    """The id of an action: what stands at a `path` such as `i.id`; without one, its `_tag` or its first `id`.

    >>> arm_of({"arm": {"id": "mint"}}), arm_of({"_tag": "rose", "i": {"constant": 1}})
    ('mint', 'rose')
    >>> arm_of({"u": {"sku": 7}}, "u.sku")
    7
    """
    found: Any = action
    if path is not None:
        for part in path.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    else:
        places = (action, *(part for part in action.values() if isinstance(part, Mapping)))
        found = action.get("_tag") or next((part["id"] for part in places if "id" in part), None)
    if isinstance(found, str) or (isinstance(found, int) and not isinstance(found, bool)):
        return found
    place = "at _tag or id; say where it stands (--arm-id)" if path is None else f"at {path}"
    raise ValueError(f"an action has no id {place}: {json.dumps(action)[:100]}")


def to_time(seconds: float) -> str:
    """A moment as dsjson has it.

    >>> to_time(0.5)
    '1970-01-01T00:00:00.500000Z'
    """
    return datetime.fromtimestamp(seconds, timezone.utc).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def from_time(text: str) -> float:
    """Seconds since 1970; fractions of any length, UTC if it is bare.

    >>> from_time("1970-01-01T00:00:02.5000000Z"), from_time("1970-01-01T01:00:00+01:00")
    (2.5, 0.0)
    """
    day, _, clock = text.strip().partition("T")
    shift = max(clock.find("+"), clock.find("-"))
    zone = clock[shift:] if shift > 0 else "+00:00"
    clock, _, fraction = (clock[:shift] if shift > 0 else clock.removesuffix("Z")).partition(".")
    try:
        moment = datetime.fromisoformat(f"{day}T{clock}{zone}")
        return moment.timestamp() + float(f"0.{fraction or 0}")
    except ValueError:
        raise ValueError(f"the time {text!r} is not like 2026-01-31T12:00:00.0Z") from None


def lot(event_id: str) -> float:
    """A number in [0, 1) for an event, always the same: events below a share are a random sample of that share.

    >>> lot("visit-1") == lot("visit-1") != lot("visit-2")
    True
    """
    return int.from_bytes(hashlib.blake2b(event_id.encode(), digest_size=7).digest(), "big") / 2**56
