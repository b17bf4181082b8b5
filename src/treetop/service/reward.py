"""Handlers of rewards: check the request, commit, answer. All rewards of a request are stored, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treetop.bandit.results import check_stored
from treetop.errors import Problem, UnknownArm, UnknownEvent
from treetop.log.records import Outcome, Reward, Status
from treetop.service import schema
from treetop.service.decide import check_batch_size, event_text, with_new_arms
from treetop.service.problems import error_of, problem_of
from treetop.service.service import Service


async def reward(service: Service, request: schema.RewardRequest) -> schema.RewardAnswer:
    event_id, records = await _prepare(service, request)
    return _answer(service, event_id, records, await service.reward(records))


async def _prepare(service: Service, request: schema.RewardRequest) -> tuple[str, list[Reward]]:
    event_id = event_text(request.event_id)
    rewards: dict[str | int, float] = dict(request.rewards.items())
    try:
        return event_id, await with_new_arms(service, lambda: service.bandit.reward_records(event_id, rewards))
    except UnknownArm:
        if await asyncio.to_thread(service.bandit.log.event, event_id) is None:  # an unknown event is reported first
            raise UnknownEvent(f"there is no event {event_id!r} in the log") from None
        raise


def _answer(service: Service, event_id: str, records: list[Reward], outcomes: list[Outcome]) -> schema.RewardAnswer:
    check_stored(event_id, records, outcomes, service.bandit.snapshot.arms)
    stored = sum(outcome.status in (Status.STORED, Status.CORRECTED) for outcome in outcomes)
    return schema.RewardAnswer(event_id, stored, len(records) - stored)


async def reward_batch(service: Service, batch: schema.RewardBatchRequest) -> schema.RewardBatchAnswer:
    """Rewards of many events in one commit. Each request has its own result."""
    check_batch_size(service, batch.requests)
    event_ids = [str(request.event_id) for request in batch.requests]
    if len(set(event_ids)) < len(event_ids):
        raise ValueError("an event is in the batch twice; put its rewards together")
    attempts = [await _attempt(service, request) for request in batch.requests]
    records = [record for attempt in attempts if isinstance(attempt, tuple) for record in attempt[1]]
    outcomes = iter(await service.reward(records) if records else [])
    return schema.RewardBatchAnswer([_result(service, attempt, outcomes) for attempt in attempts])


async def _attempt(service: Service, request: schema.RewardRequest) -> tuple[str, list[Reward]] | Problem:
    try:
        return await _prepare(service, request)
    except Exception as error:
        return problem_of(error)


def _result(
    service: Service, attempt: tuple[str, list[Reward]] | Problem, outcomes: Iterator[Outcome]
) -> schema.RewardResult:
    try:
        if isinstance(attempt, Problem):
            raise attempt
        event_id, records = attempt
        return schema.RewardResult(200, _answer(service, event_id, records, [next(outcomes) for _ in records]))
    except Exception as error:
        problem = problem_of(error)
        return schema.RewardResult(problem.status, error=error_of(problem))
