"""Handlers of experiments on live traffic: how they go, and what starts and ends them."""

from __future__ import annotations

import asyncio

from starlette.types import Scope

from treetop.bandit.bandit import Bandit
from treetop.bandit.experiment_config import Experiment
from treetop.errors import Problem
from treetop.service import logs, schema
from treetop.service.service import Service


async def experiments(service: Service, scope: Scope) -> schema.ExperimentAnswer:
    return await asyncio.to_thread(service.experiments.answer)


async def change(service: Service, request: schema.ExperimentRequest) -> schema.ExperimentAnswer:
    if (request.name is None) != (request.action == "stop"):
        needs = "takes no name" if request.action == "stop" else "needs a name"
        raise Problem(422, "invalid", f"{request.action} {needs}")
    found = await asyncio.to_thread(_change, service.bandit, request)
    logs.log_event(f"experiment {request.action}", experiment=found.name, name=request.name)
    return await asyncio.to_thread(service.experiments.answer)


def _change(bandit: Bandit, request: schema.ExperimentRequest) -> Experiment:
    try:
        if request.action == "start":
            return bandit.start_experiment(str(request.name))
        if request.action == "stop":
            return bandit.stop_experiment()
        running = bandit.folder.state().experiment
        bandit.promote_variant(str(request.name))
        assert running is not None
        return running
    except ValueError as error:
        raise Problem(409, "experiment", str(error)) from None
