"""The JSON of the service, as types: they decode and check requests, encode answers and make /openapi.json.

A decision on the wire is the library's own `ServedDecision`. Arms are called by the user's ids; where JSON needs text
(the keys of `rewards`), ids are text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta, Struct

from treetop.bandit.new_arms import Cohort
from treetop.bandit.results import ServedDecision, ServedSlot
from treetop.log.keys import MAX_KEYS, VALUE_BYTES

ArmId: TypeAlias = Annotated[str, Meta(min_length=1, max_length=512)] | int
EventId: TypeAlias = Annotated[
    Annotated[str, Meta(min_length=1, max_length=512)] | int, Meta(description="Your own id of the event.")
]
KeyValue: TypeAlias = Annotated[str, Meta(min_length=1, max_length=VALUE_BYTES)] | int
KEYS_HELP = (
    'Such as {"visitor": "123"}: what finds the event if it has to be erased (`treetop erase`), and whom [caps] limit.'
)
MODEL_NAME, ACTION = r"^\d{6,18}$", "^(start|stop|promote)$"
IN_WORDS = {MODEL_NAME: "the name of a model, such as '000012'", ACTION: "'start', 'stop' or 'promote'"}
Count: TypeAlias = Annotated[int, Meta(ge=1, le=65_536)]

_TEXT = {"type": "string", "maxLength": 1024}
_NUMBERS = {"type": "array", "items": {"type": "number"}}
_FEATURES = {
    "description": 'By name {"age": 3, "device": "mobile", "vector": [...]}, by column {"indices": [...], '
    '"values": [...]}, or {"dense": [...]}.',
    "anyOf": [
        {"type": "object", "additionalProperties": {"anyOf": [{"type": "number"}, _TEXT, _NUMBERS]}},
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
Value: TypeAlias = bool | int | float | Annotated[str, Meta(max_length=1024)]
Condition: TypeAlias = Value | list[Value] | dict[str, Value | list[Value]]
WHERE_HELP = (
    'Conditions on attributes, all of which must hold: {"in_stock": true, "price": {"<=": 20}, "brand": ["a", "b"], '
    '"category": "dept 3 > cat 7", "sets": ["summer-sale"]}.'
)
Where: TypeAlias = Annotated[dict[str, Condition], Meta(max_length=100, description=WHERE_HELP)]
Features: TypeAlias = Annotated[
    dict[str, float | list[float] | Annotated[str, Meta(max_length=1024)]], Meta(extra_json_schema=_FEATURES)
]


class Strict(Struct, forbid_unknown_fields=True):
    """A request. Unknown fields are refused, so that a misspelled option is not ignored."""


class DecideRequest(Strict):
    """One decision: k slots for a context, the last `explore` of them drawn."""

    features: Features
    event_id: EventId | None = None
    k: Count | None = None
    explore: Annotated[int, Meta(ge=0, le=65_536)] | None = None
    eligible: list[ArmId] | None = None
    exclude: list[ArmId] | None = None
    keys: Annotated[dict[str, KeyValue], Meta(max_length=MAX_KEYS, description=KEYS_HELP)] | None = None
    where: Where | None = None


class RewardRequest(Strict):
    """Rewards by arm, in [0, 1] or in [low, high] of the settings: all of them are stored, or none."""

    event_id: EventId
    rewards: Annotated[dict[str, float], Meta(min_length=1)]


class RewardAnswer(Struct):
    """How many rewards were stored now (corrections too), and how many had been told before."""

    event_id: str
    stored: int
    repeated: int


class Error(Struct):
    """`code` for programs, `message` for people; `stored` is what the log holds, in case of a conflict."""

    code: str
    message: str
    stored: Any = msgspec.UNSET


class Failure(Struct):
    error: Error


class DecideBatchRequest(Strict):
    requests: Annotated[list[DecideRequest], Meta(min_length=1)]


class DecideResult(Struct, omit_defaults=True):
    """The status that the request would have had alone, and its answer or its error."""

    status: int
    decision: ServedDecision | None = None
    error: Error | None = None


class DecideBatchAnswer(Struct):
    """One result for each request, in their order."""

    results: list[DecideResult]


class RewardBatchRequest(Strict):
    requests: Annotated[list[RewardRequest], Meta(min_length=1)]


class RewardResult(Struct, omit_defaults=True):
    """The status that the request would have had alone, and its answer or its error."""

    status: int
    reward: RewardAnswer | None = None
    error: Error | None = None


class RewardBatchAnswer(Struct):
    """One result for each request, in their order."""

    results: list[RewardResult]


class Sparse(Struct):
    indices: list[int]
    values: list[float]


@dataclass(frozen=True)
class EventSlot(ServedSlot):
    """A slot as logged, with its reward and when that arrived; null if there is none yet."""

    reward: float | None
    reward_time: float | None


class ReplacedReward(Struct):
    """A reward that was corrected later."""

    arm: str | int
    reward: float
    reward_time: float


class EventAnswer(Struct):
    """A decision as logged. `eligible` is the name of the set of arms it could choose from; empty for all arms.
    `replaced` are rewards that were corrected, in the order in which they were told."""

    event_id: str
    time: float
    epoch: int
    model: str
    tree: str
    policy: dict[str, Any]
    eligible: str
    features: Sparse
    slots: list[EventSlot]
    keys: dict[str, str]
    replaced: list[ReplacedReward] = []


class ExplainRequest(Strict):
    """Explains a context, or an event in the log (with the model that decided it)."""

    features: Features | None = None
    event_id: EventId | None = None
    eligible: list[ArmId] | None = None
    exclude: list[ArmId] | None = None
    where: Where | None = None
    top: Annotated[int, Meta(ge=1, le=1000)] = 20


class Effective(Struct):
    """An effective arm: a single arm, or a node that stands for all `arms_below` it; `category` is that of the arm, or
    the deepest that all arms of the node are in, and null if nobody named any."""

    arm: str | int | None
    node: int | None
    arms_below: int
    route: float
    score: float
    probability: float
    category: str | None = None


class ExplainAnswer(Struct):
    """The effective arms with the highest chances in the first slot if every slot were drawn; how many there are."""

    epoch: int
    model: str
    single: int
    nodes: int
    words: str
    effective: list[Effective]


class RefitStatus(Struct):
    """`observed` rounds in the log have a reward; the last refit, at the time `last`, saw `seen` of them.

    `new` were observed since the last refit or rollback; at `due` the next refit begins. `aside` says why the gate did
    not let the last refit serve, if so.
    """

    running: bool
    observed: int
    seen: int
    new: int
    due: int
    last: float | None
    failures: int
    error: str | None
    aside: str | None = None


class ModelAnswer(Struct):
    """The model that serves. `pinned` models are not replaced by refits; `trouble` says why, if this is not the current
    one; `retention` why old decisions are not deleted."""

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
    pinned: bool
    refit: RefitStatus
    trouble: str | None
    retention: str | None


class RefitRequest(Strict):
    """With `wait`, the answer comes when the new model serves, or after a minute if it does not yet."""

    wait: bool = False


class RefitAnswer(Struct, omit_defaults=True):
    """`started`; `done` with the name of the model that the refit made; `aside` if the gate did not let it serve."""

    status: str
    model: str | None = None


class RollbackRequest(Strict):
    """The model to make current; without one, the model before the current one. With `pin`, refits do not replace it
    until /v1/unpin."""

    model: Annotated[str, Meta(pattern=MODEL_NAME)] | None = None
    pin: bool = False


class UnpinRequest(Strict):
    pass


class RollbackAnswer(Struct):
    """The model that serves now, and whether it is pinned."""

    model: str
    epoch: int
    pinned: bool


class ArmsRequest(Strict):
    """Arms to add and to remove; a removed one that is added returns. `vectors` has one for each of them: an item's
    vector, or a context like those it should be shown for; `categories` and `attributes` have a value, `like` an arm
    that it is put beside, with the same vector and category where none are given, `examples` a list of contexts that it
    was right for. An attribute that is not known is refused unless `new` is true."""

    add: list[ArmId] = []
    vectors: list[Features | list[float]] | None = None
    remove: list[ArmId] = []
    categories: list[str | None] | None = None
    attributes: dict[str, list[Value | None]] | None = None
    like: list[ArmId] | None = None
    examples: list[list[Features] | None] | None = None
    new: bool = False


class ArmsAnswer(Struct):
    model: str
    arms: int
    removed: int


class NewArmsAnswer(Struct):
    """The arms that were added, by the call that added them, newest first; `trials` is how often one is shown until it
    is not new any more."""

    trials: int
    cohorts: list[Cohort]


class AttributesRequest(Strict):
    """Values of attributes for some arms: a list for each name, null where an arm has no value. A name that the
    catalogue does not have is refused, unless `new` says that it is to be made."""

    arms: Annotated[list[ArmId], Meta(min_length=1)]
    attributes: Annotated[dict[str, list[Value | None]], Meta(min_length=1)]
    new: bool = False


class SetRequest(Strict):
    """The arms of a named set, which replace those that it had; null deletes the set."""

    arms: list[ArmId] | None


class AttributeAnswer(Struct):
    """What the values of an attribute are (flag, number, text or category), and how many arms have one."""

    kind: str
    arms: int


class CatalogueAnswer(Struct):
    """Attributes and named sets that requests may filter by, with the number of arms in each set."""

    attributes: dict[str, AttributeAnswer]
    sets: dict[str, int]


class ExperimentEstimate(Struct):
    """A number with its interval, which holds at all times at once; null where too little is known."""

    value: float | None
    low: float | None
    high: float | None


class VariantAnswer(Struct):
    """A variant: what is different in it, its share of the traffic, its visits, and what these brought."""

    name: str
    share: float
    settings: dict[str, Any]
    visits: int
    reward: ExperimentEstimate
    difference: ExperimentEstimate | None
    verdict: str


class ExperimentMoment(Struct):
    """Rewards a visit, by the names of the variants, of all visits up to a time."""

    time: float
    rewards: dict[str, ExperimentEstimate | None]


class ExperimentAnswer(Struct):
    """An experiment: the one that runs, or the last. The first variant is the baseline; `defined` are the names in
    config.toml when the worker started. Without any, `name` is null."""

    name: str | None
    running: bool
    started: float | None
    unit: str | None
    variants: list[VariantAnswer]
    history: list[ExperimentMoment]
    defined: list[str]


class ExperimentRequest(Strict):
    """`start` with the name of an experiment in config.toml, `stop`, or `promote` with the name of a variant."""

    action: Annotated[str, Meta(pattern=ACTION)]
    name: Annotated[str, Meta(max_length=64)] | None = None


class Health(Struct):
    status: str
