"""What travels between clients and the service: requests as they are sent, answers as they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np

from treetop.arrays import Matrix, as_rows
from treetop.bandit.arm_index import ArmId
from treetop.bandit.results import ServedDecision, ServedSlot
from treetop.errors import ServiceError
from treetop.policy.draws import new_event_id


def content_of(body: Any) -> bytes | None:
    """A body as it travels.

    >>> content_of({"wait": True}), content_of(None)
    (b'{"wait": true}', None)
    """
    return None if body is None else json.dumps(body, allow_nan=False).encode()


def decide_body(
    x: Mapping[str, Any] | Matrix,
    event_id: str | int | None = None,
    k: int | None = None,
    explore: int | None = None,
    eligible: Iterable[ArmId] | None = None,
    exclude: Iterable[ArmId] | None = None,
    keys: Mapping[str, str | int] | None = None,
    where: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A request for a decision; without an event id it gets one, so that it can be sent again.

    >>> decide_body([0.0, 2.0], "visit-1", k=2)
    {'event_id': 'visit-1', 'features': {'indices': [1], 'values': [2.0]}, 'k': 2}
    """
    options = {
        "k": k,
        "explore": explore,
        "eligible": None if eligible is None else list(eligible),
        "exclude": None if exclude is None else list(exclude),
        "keys": None if keys is None else dict(keys),
        "where": None if where is None else dict(where),
    }
    given = {name: value for name, value in options.items() if value is not None}
    return {"event_id": new_event_id() if event_id is None else event_id, "features": features_of(x), **given}


def features_of(x: Mapping[str, Any] | Matrix) -> dict[str, Any]:
    """A context by names as it is, arrays as lists; a row of numbers by its columns.

    >>> features_of({"floral": 1.0, "vector": np.ones(2)}), features_of([0.0, 2.0])
    ({'floral': 1.0, 'vector': [1.0, 1.0]}, {'indices': [1], 'values': [2.0]})
    """
    if isinstance(x, Mapping):
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in x.items()}
    row = as_rows(x)
    if len(row) != 1:
        raise ValueError(f"a decision takes 1 context, not {len(row)}")
    return {"indices": row.index.tolist(), "values": row.value.tolist()}


def explain_body(x: Mapping[str, Any] | Matrix | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """A request for an explanation.

    >>> explain_body({"floral": 1.0}, {"top": 2})
    {'features': {'floral': 1.0}, 'top': 2}
    """
    return {**({} if x is None else {"features": features_of(x)}), **options}


def arms_body(add: Sequence[ArmId], remove: Sequence[ArmId], vectors: Any, more: Mapping[str, Any]) -> dict[str, Any]:
    """A request that adds and removes arms; `more` are categories, attributes, like, examples and new.

    >>> arms_body(["matcha"], [], None, {"examples": [[[0.0, 2.0]]]})
    {'add': ['matcha'], 'remove': [], 'examples': [[{'indices': [1], 'values': [2.0]}]]}
    """
    given = dict(more) if vectors is None else {"vectors": [features_of(x) for x in vectors], **more}
    if given.get("examples") is not None:
        given["examples"] = [[features_of(x) for x in _contexts(some)] for some in given["examples"]]
    return {"add": list(add), "remove": list(remove), **given}


def _contexts(some: Any) -> Iterable[Any]:
    """The contexts of a list, or the rows of a matrix; none of None."""
    if some is None or (isinstance(some, Sequence) and (not some or isinstance(some[0], Mapping))):
        return some or ()
    rows = as_rows(some)
    return [rows.row(i).csr() for i in range(len(rows))]


def attributes_body(
    arms: Sequence[ArmId], attributes: Mapping[str, Sequence[Any]], new: bool = False
) -> dict[str, Any]:
    """A request that changes attributes of arms.

    >>> attributes_body(["mint"], {"price": (4.5,)})
    {'arms': ['mint'], 'attributes': {'price': [4.5]}}
    """
    body = {"arms": list(arms), "attributes": {name: list(values) for name, values in attributes.items()}}
    return body | ({"new": True} if new else {})


def set_path(name: str) -> str:
    """Where a named set of arms is.

    >>> set_path("a/b")
    '/v1/sets/a%2Fb'
    """
    return f"/v1/sets/{quote(name, safe='')}"


def reward_body(event_id: str | int, rewards: Mapping[ArmId, float]) -> dict[str, Any]:
    """A request that stores rewards.

    >>> reward_body("visit-1", {7: 1.0})
    {'event_id': 'visit-1', 'rewards': {'7': 1.0}}
    """
    return {"event_id": event_id, "rewards": {str(arm): value for arm, value in rewards.items()}}


def event_path(event_id: str | int) -> str:
    """Where an event is.

    >>> event_path("a/b")
    '/v1/events/a%2Fb'
    """
    return f"/v1/events/{quote(str(event_id), safe='')}"


def decision_of(answer: dict[str, Any]) -> ServedDecision:
    """The decision of an answer.

    >>> decision_of({"event_id": "visit-1", "epoch": 3, "slots": []}).epoch
    3
    """
    slots = tuple(ServedSlot(**slot) for slot in answer["slots"])
    unknown = tuple(answer.get("unknown_features", ()))
    return ServedDecision(answer["event_id"], answer["epoch"], slots, answer.get("variant"), unknown)


def error_of(answer: dict[str, Any], wait: float = 0.0) -> ServiceError:
    """The error of an answer.

    >>> error_of({"status": 409, "error": {"code": "conflict", "message": "no"}}).status
    409
    """
    error = answer.get("error", {})
    code, message = error.get("code", "unknown"), error.get("message", "no reason given")
    return ServiceError(answer["status"], code, message, error.get("stored"), wait)
