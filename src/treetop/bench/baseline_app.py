"""The app beside which the service is timed: it reads a request's body and commits a row that is always the same.

It is the service itself, its processes, HTTP, checks, JSON, log and all, but for what `/v1/decide` does between the
body and the commit, and but for the answer, which is written once. `python -m treetop.bench.baseline_app DIR SOCKET
PARENT WORKERS` is a worker, started as the service's own are.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
from starlette.applications import Starlette

from treetop.arrays import Rows
from treetop.policy.draws import new_event_id
from treetop.service import schema
from treetop.service.app import App
from treetop.service.http import ENCODE, Endpoint, Raw
from treetop.service.service import Service
from treetop.service.worker import main

FEATURES = 40  # of the context in the row, evenly over all columns


def create(service: Service) -> App:
    snapshot, columns = service.bandit.snapshot, service.bandit.vocabulary.columns
    at = np.unique(np.linspace(0, columns - 1, min(FEATURES, columns)).astype(np.int32))
    row = Rows(np.array([0, len(at)], np.int64), at, np.ones(len(at), np.float32), columns)
    event = snapshot.decide(row, "0" * 32, None, None, snapshot.default_filter)
    answer = Raw(ENCODE(service.bandit.served(event)))

    async def fixed(service: Service, request: schema.DecideRequest) -> Raw:
        await service.append([replace(event, event_id=new_event_id())], {})
        return answer

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    only = Endpoint(service, "/v1/decide", "POST", fixed, "write", schema.DecideRequest, largest=service.limits.body)
    return App({only.route: only}, Starlette(lifespan=lifespan))


if __name__ == "__main__":
    main(*sys.argv[1:], app=create)
