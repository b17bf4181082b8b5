"""The routes of the service, and the ASGI application of a worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from treetop.bandit.results import ServedDecision
from treetop.errors import Problem
from treetop.service import admin, decide, experiments, openapi, reward, schema
from treetop.service import personalizer_schema as shapes
from treetop.service.dashboard.pages import Dashboard
from treetop.service.http import JSON, Endpoint
from treetop.service.personalizer import Personalizer
from treetop.service.problems import body_of
from treetop.service.service import Service

PERSONALIZER_VERSIONS = ("v1.0", "v1.1-preview.1", "v1.1-preview.2", "v1.1-preview.3")


def endpoints(service: Service) -> list[Endpoint]:
    """All routes except the dashboard's, the busiest first."""
    small, large = service.limits.body, service.limits.batch_body
    make = partial(Endpoint, service)
    return [
        make(
            "/v1/decide",
            "POST",
            decide.decide,
            "write",
            schema.DecideRequest,
            ServedDecision,
            (409,),
            small,
            "Decides and logs. The same event id again gives the same decision.",
        ),
        make(
            "/v1/reward",
            "POST",
            reward.reward,
            "write",
            schema.RewardRequest,
            schema.RewardAnswer,
            (404, 409),
            small,
            "Stores rewards of an event. Sending the same again changes nothing.",
        ),
        make(
            "/v1/decide/batch",
            "POST",
            decide.decide_batch,
            "write",
            schema.DecideBatchRequest,
            schema.DecideBatchAnswer,
            (),
            large,
            "Many decisions in one commit, each with its own result.",
        ),
        make(
            "/v1/reward/batch",
            "POST",
            reward.reward_batch,
            "write",
            schema.RewardBatchRequest,
            schema.RewardBatchAnswer,
            (),
            large,
            "Rewards of many events in one commit, each with its own result.",
        ),
        make(
            "/v1/events/{event_id:path}",
            "GET",
            admin.event,
            "read",
            None,
            schema.EventAnswer,
            (404, 422),
            0,
            "A decision as logged, with its rewards so far.",
        ),
        make(
            "/v1/explain",
            "POST",
            admin.explain,
            "read",
            schema.ExplainRequest,
            schema.ExplainAnswer,
            (404, 409),
            small,
            "The effective arms of a context or an event, with route, score and chance.",
        ),
        make(
            "/v1/experiments",
            "GET",
            experiments.experiments,
            "read",
            None,
            schema.ExperimentAnswer,
            (),
            0,
            "The experiment that runs, or the last, with intervals that hold at all times.",
        ),
        make(
            "/v1/experiments/change",
            "POST",
            experiments.change,
            "admin",
            schema.ExperimentRequest,
            schema.ExperimentAnswer,
            (409,),
            small,
            "Starts or stops an experiment, or promotes one of its variants.",
        ),
        make("/v1/model", "GET", admin.model, "read", None, schema.ModelAnswer, (), 0, "The model that serves."),
        make(
            "/v1/refit",
            "POST",
            admin.refit,
            "admin",
            schema.RefitRequest,
            schema.RefitAnswer,
            (200, 202, 409),
            small,
            "Starts a refit and answers 202, or waits until the new model serves.",
        ),
        make(
            "/v1/rollback",
            "POST",
            admin.rollback,
            "admin",
            schema.RollbackRequest,
            schema.RollbackAnswer,
            (409,),
            small,
            "Makes another kept model current; with `pin`, until it is unpinned.",
        ),
        make(
            "/v1/unpin",
            "POST",
            admin.unpin,
            "admin",
            schema.UnpinRequest,
            schema.RollbackAnswer,
            (),
            small,
            "Lets refits replace the current model again.",
        ),
        make(
            "/v1/arms",
            "POST",
            admin.arms,
            "admin",
            schema.ArmsRequest,
            schema.ArmsAnswer,
            (409,),
            large,
            "Adds and removes arms.",
        ),
        make(
            "/v1/arms/new",
            "GET",
            admin.new_arms,
            "read",
            None,
            schema.NewArmsAnswer,
            (),
            0,
            "How often arms that were added have been shown, and how long that took.",
        ),
        make(
            "/v1/attributes",
            "POST",
            admin.attributes,
            "admin",
            schema.AttributesRequest,
            schema.CatalogueAnswer,
            (),
            large,
            "Sets attributes of arms.",
        ),
        make(
            "/v1/sets/{name}",
            "PUT",
            admin.put_set,
            "admin",
            schema.SetRequest,
            schema.CatalogueAnswer,
            (),
            large,
            "Names a set of arms, or deletes it.",
        ),
        make(
            "/v1/catalogue",
            "GET",
            admin.catalogue,
            "read",
            None,
            schema.CatalogueAnswer,
            (),
            0,
            "The attributes and sets that requests may filter by.",
        ),
        make(
            "/healthz",
            "GET",
            admin.healthz,
            "",
            None,
            schema.Health,
            (),
            0,
            "Whether the process is alive.",
            counted=False,
        ),
        make(
            "/readyz",
            "GET",
            admin.readyz,
            "",
            None,
            schema.Health,
            (503,),
            0,
            "Whether it can decide and log.",
            counted=False,
        ),
        make("/metrics", "GET", admin.metrics, "read", None, None, (), 0, "Metrics for Prometheus.", counted=False),
    ]


class App:
    """Looks up routes without parameters in a dict, which is faster than Starlette's search; Starlette has the rest."""

    def __init__(self, by_path: Mapping[str, Endpoint], rest: Starlette) -> None:
        self.by_path, self.rest = by_path, rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        chosen = self.by_path.get(scope["path"]) if scope["type"] == "http" else None
        await (chosen or self.rest)(scope, receive, send)


def personalizer_endpoints(service: Service) -> list[Endpoint]:
    """The routes of Azure Personalizer, v1.0 and the previews of v1.1; none unless the settings ask for them."""
    if not service.bandit.config.personalizer.enabled:
        return []
    found, small, large = Personalizer(service), service.limits.body, service.limits.batch_body
    rank, multislot = shapes.RankRequest, shapes.MultiSlotRankRequest
    made = []
    for version in PERSONALIZER_VERSIONS:
        at, events = f"/personalizer/{version}", f"/personalizer/{version}/events/{{event_id:path}}"
        several = f"/personalizer/{version}/multislot/events/{{event_id:path}}"
        make = partial(Endpoint, service, method="POST", scope="write")
        made += [
            make(route=f"{at}/rank", handler=found.personalizer_rank, body=rank, largest=large),
            make(route=f"{at}/multislot/rank", handler=found.multislot_rank, body=multislot, largest=large),
            make(
                route=f"{several}/reward",
                handler=found.multislot_reward,
                body=shapes.MultiSlotRewardRequest,
                largest=small,
            ),
            make(route=f"{several}/activate", handler=found.multislot_activate),
            make(route=f"{events}/reward", handler=found.personalizer_reward, body=shapes.RewardRequest, largest=small),
            make(route=f"{events}/activate", handler=found.personalizer_activate),
        ]
    return made


def create(service: Service) -> App:
    """The application of one worker."""
    served = endpoints(service)
    described = openapi.describe(served)
    served.append(Endpoint(service, "/openapi.json", "GET", openapi.handler(described), "read"))
    served += personalizer_endpoints(service)
    by_path = {endpoint.route: endpoint for endpoint in served if "{" not in endpoint.route}
    routes: list[BaseRoute] = [Route(e.route, e) for e in served if e.route not in by_path]
    dashboard = Dashboard(service)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await service.start()
        await dashboard.start()
        yield
        await dashboard.stop()
        await service.stop()

    app = Starlette(
        routes=[*routes, *dashboard.routes()], lifespan=lifespan, exception_handlers={HTTPException: not_found}
    )
    app.router.redirect_slashes = False
    return App(by_path, app)


async def not_found(request: Request, error: Exception) -> Response:
    """The answer to a request that no route takes."""
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    problem = Problem(error.status_code, code, f"there is nothing at {request.url.path[:200]}; see /openapi.json")
    return Response(body_of(problem), error.status_code, error.headers, JSON.decode())
