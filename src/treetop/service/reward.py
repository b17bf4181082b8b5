"""Rewards: understood, committed, answered. All rewards of a request are stored, or none."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treetop.bandit.results import raise_for
from treetop.errors import Problem, UnknownArm, UnknownEvent
from treetop.log.records import Outcome, Reward, Status
from treetop.service import schema
from treetop.service.decide import check_batch, current, name_of
from treetop.service.problems import error_of, problem_of
from treetop.service.service import Service


async def reward(service: Service, ask: schema.RewardRequest) -> schema.RewardAnswer:
    name, given = await _given(service, ask)
    return _answer(service, name, given, await service.reward(given))


async def _given(service: Service, ask: schema.RewardRequest) -> tuple[str, list[Reward]]:
    name = name_of(ask.event_id)
    rewards: dict[str | int, float] = dict(ask.rewards.items())
    try:
        return name, await current(service, lambda: service.bandit.rewards(name, rewards))
    except UnknownArm:
        if await asyncio.to_thread(service.bandit.log.event, name) is None:  # the first thing to say
            raise UnknownEvent(f"there is no event {name!r} in the log") from None
        raise


def _answer(service: Service, name: str, given: list[Reward], outcomes: list[Outcome]) -> schema.RewardAnswer:
    raise_for(name, given, outcomes, service.bandit.live.catalogue)
    stored = sum(outcome.status is Status.STORED for outcome in outcomes)
    return schema.RewardAnswer(name, stored, len(given) - stored)


async def reward_batch(service: Service, batch: schema.RewardBatchRequest) -> schema.RewardBatchAnswer:
    """Rewards of many events in one commit. Each request has its own result."""
    check_batch(service, batch.requests)
    names = [str(ask.event_id) for ask in batch.requests]
    if len(set(names)) < len(names):
        raise ValueError("an event is in the batch twice; put its rewards together")
    made = [await _attempt(service, ask) for ask in batch.requests]
    given = [reward for entry in made if isinstance(entry, tuple) for reward in entry[1]]
    outcomes = iter(await service.reward(given) if given else [])
    return schema.RewardBatchAnswer([_result(service, entry, outcomes) for entry in made])


async def _attempt(service: Service, ask: schema.RewardRequest) -> tuple[str, list[Reward]] | Problem:
    try:
        return await _given(service, ask)
    except Exception as error:
        return problem_of(error)


def _result(
    service: Service, entry: tuple[str, list[Reward]] | Problem, outcomes: Iterator[Outcome]
) -> schema.RewardResult:
    try:
        if isinstance(entry, Problem):
            raise entry
        name, given = entry
        return schema.RewardResult(200, _answer(service, name, given, [next(outcomes) for _ in given]))
    except Exception as error:
        problem = problem_of(error)
        return schema.RewardResult(problem.status, error=error_of(problem))
