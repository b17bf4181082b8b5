"""What travels over HTTP, as types: requests are decoded and checked by them, answers encoded, /openapi.json written.

Knows nothing of bandits. Arms are spelled by the user's ids; where JSON wants text (the keys of `rewards`), as text.
"""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

ArmId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)] | int
EventId: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, max_length=512)] | int, Meta(description="Your own id of the event.")
]
Count: TypeAlias = Annotated[int, Meta(ge=1, le=65_536)]

_NUMBERS = {"type": "array", "items": {"type": "number"}}
_FEATURES = {
    "description": 'By name {"age": 3, ...}, by column {"indices": [...], "values": [...]}, or {"dense": [...]}.',
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": "number"}},
        {
            "type": "object",
            "properties": {
                "indices": {"type": "array", "items": {"type": "integer", "minimum": 0}},
                "values": _NUMBERS,
            },
            "required": ["indices", "values"],
            "additionalProperties": False,
        },
        {"type": "object", "properties": {"dense": _NUMBERS}, "required": ["dense"], "additionalProperties": False},
    ],
}
Features: TypeAlias = Annotated[dict[str, float | list[float]], Meta(extra_json_schema=_FEATURES)]


class Strict(Struct, forbid_unknown_fields=True):
    """A request: what it should not have is refused, so that a misspelled option is not ignored."""


class DecideRequest(Strict):
    """One decision: k slots for a context, the last `explore` of them drawn."""

    features: Features
    event_id: EventId | None = None
    k: Count | None = None
    explore: Annotated[int, Meta(ge=0, le=65_536)] | None = None
    eligible: list[ArmId] | None = None
    exclude: list[ArmId] | None = None


class Slot(Struct):
    """`propensity` is exact, given the slots before it; `via` is the node it was drawn through, or null."""

    arm: str | int
    propensity: float
    score: float
    explored: bool
    via: int | None


class DecideAnswer(Struct):
    event_id: str
    epoch: int
    slots: list[Slot]


class RewardRequest(Strict):
    """Rewards in [0, 1] by arm: all of them are stored, or none."""

    event_id: EventId
    rewards: Annotated[dict[str, Annotated[float, Meta(ge=0, le=1)]], Meta(min_length=1)]


class RewardAnswer(Struct):
    """How many rewards were stored now, and how many were there already with the same value."""

    event_id: str
    stored: int
    repeated: int


class Error(Struct):
    """`code` for programs, `message` for people; `stored` is what the log holds where that is the point."""

    code: str
    message: str
    stored: Any = msgspec.UNSET


class Failure(Struct):
    error: Error


class DecideBatchRequest(Strict):
    requests: Annotated[list[DecideRequest], Meta(min_length=1)]


class DecideResult(Struct, omit_defaults=True):
    """The status that the request would have had by itself, and its answer or its error."""

    status: int
    decision: DecideAnswer | None = None
    error: Error | None = None


class DecideBatchAnswer(Struct):
    """One result for each request, in their order."""

    results: list[DecideResult]


class RewardBatchRequest(Strict):
    requests: Annotated[list[RewardRequest], Meta(min_length=1)]


class RewardResult(Struct, omit_defaults=True):
    """The status that the request would have had by itself, and its answer or its error."""

    status: int
    reward: RewardAnswer | None = None
    error: Error | None = None


class RewardBatchAnswer(Struct):
    """One result for each request, in their order."""

    results: list[RewardResult]


class Sparse(Struct):
    indices: list[int]
    values: list[float]


class EventSlot(Struct):
    """A slot as logged; `reward` and its time are null until it comes."""

    arm: str | int
    propensity: float
    score: float
    explored: bool
    via: int | None
    reward: float | None
    reward_time: float | None


class EventAnswer(Struct):
    """A decision as the log has it. `eligible` names the set of arms it could choose from; empty is all."""

    event_id: str
    time: float
    epoch: int
    model: str
    tree: str
    policy: dict[str, Any]
    eligible: str
    features: Sparse
    slots: list[EventSlot]


class ExplainRequest(Strict):
    """Why: for a context, or for an event in the log (then with the model that decided it)."""

    features: Features | None = None
    event_id: EventId | None = None
    eligible: list[ArmId] | None = None
    exclude: list[ArmId] | None = None
    top: Annotated[int, Meta(ge=1, le=1000)] = 20


class Effective(Struct):
    """An effective arm: a single arm, or a node that stands for all the arms below it."""

    arm: str | int | None
    node: int | None
    arms_below: int
    route: float
    score: float
    probability: float


class ExplainAnswer(Struct):
    """The effective arms most likely to be drawn first, and how many there are in all."""

    epoch: int
    model: str
    single: int
    nodes: int
    words: str
    effective: list[Effective]


class RefitState(Struct):
    """`observed` rounds have a reward now; the last refit saw `seen` of them."""

    running: bool
    observed: int
    seen: int
    last: float | None
    failures: int
    error: str | None


class ModelAnswer(Struct):
    """What serves. `trouble` says why it is not the model that should, if so."""

    model: str
    epoch: int
    n_seen: int
    arms: int
    removed: int
    features: int
    nodes: int
    tree: str
    policy: dict[str, Any]
    kept: list[str]
    refit: RefitState
    trouble: str | None


class RefitRequest(Strict):
    pass


class RefitAnswer(Struct):
    status: str


class RollbackRequest(Strict):
    """The model to go back to; the one before the current one if not given."""

    model: Annotated[str, Meta(pattern=r"^\d{6,18}$")] | None = None


class RollbackAnswer(Struct):
    model: str
    epoch: int


class ArmsRequest(Strict):
    """Arms to add and to remove. `vectors` are contexts like those that a new arm is for, one for each."""

    add: list[ArmId] = []
    vectors: list[Features] | None = None
    remove: list[ArmId] = []


class ArmsAnswer(Struct):
    model: str
    arms: int
    removed: int


class Health(Struct):
    status: str
