"""The JSON of Azure Personalizer, v1.0 and multi-slot of v1.1, as types. Fields that are not known are ignored."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=256)]
Features: TypeAlias = list[dict[str, Any]]


class RankableAction(Struct, rename="camel"):
    """An action is an arm; its features are attributes of an arm that joins."""

    id: Name
    features: Features | None = None


class RankRequest(Struct, rename="camel"):
    """One of the actions for a context."""

    actions: Annotated[list[RankableAction], Meta(min_length=1)]
    context_features: Features | None = None
    excluded_actions: list[Name] | None = None
    event_id: Name | None = None
    defer_activation: bool = False


class RankedAction(Struct, rename="camel"):
    id: str
    probability: float


class RankAnswer(Struct, rename="camel"):
    """The action to show, and the chance that each had of being it."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(Struct, rename="camel"):
    value: float


class SlotRequest(Struct, rename="camel"):
    id: Name
    baseline_action: str | None = None
    features: Features | None = None
    excluded_actions: list[Name] | None = None


class MultiSlotRankRequest(Struct, rename="camel"):
    """One of the actions for each slot; none is shown twice."""

    actions: Annotated[list[RankableAction], Meta(min_length=1)]
    slots: Annotated[list[SlotRequest], Meta(min_length=1)]
    context_features: Features | None = None
    event_id: Name | None = None
    defer_activation: bool = False


class SlotAnswer(Struct, rename="camel"):
    id: str
    reward_action_id: str


class MultiSlotRankAnswer(Struct, rename="camel"):
    slots: list[SlotAnswer]
    event_id: str


class SlotReward(Struct, rename="camel"):
    slot_id: Name
    value: float


class MultiSlotRewardRequest(Struct, rename="camel"):
    reward: Annotated[list[SlotReward], Meta(min_length=1)]
