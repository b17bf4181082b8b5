"""The dashboard's routes in a worker: pages are made by the dashboard's process, forms are carried out here."""

from __future__ import annotations

import asyncio
import re
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

from treetop.errors import Problem
from treetop.service import admin, experiments, schema
from treetop.service.dashboard import assets, decisions, layout
from treetop.service.dashboard.messages import ServiceState
from treetop.service.dashboard.query import Query
from treetop.service.dashboard.relay import Relay
from treetop.service.dashboard.requests import Recorder
from treetop.service.dashboard.web import Handler, Pages
from treetop.service.service import Service

EXPLAINED = 8  # effective arms in an explanation


class Dashboard:
    """The pages of one worker. While nobody looks, all it does is to write a line of requests.jsonl now and then."""

    def __init__(self, service: Service) -> None:
        self.service, self.pages = service, Pages(service)
        folder = service.bandit.folder.path
        self.relay, self.recorder = Relay(folder, service.log_address), Recorder(folder, service.metrics)
        self._recording: asyncio.Task[None] | None = None

    def routes(self) -> list[BaseRoute]:
        route = self.pages.route
        return [
            route("/", self._made("page")),
            route("/dashboard/updates", self._made("updates")),
            route("/dashboard/arms", self._made("arms")),
            route("/dashboard/arm", self._made("arm")),
            route("/dashboard/categories", self._made("categories")),
            route("/dashboard/why/{event_id:path}", self.why),
            route("/dashboard/rollback", self.roll_back, "admin", "POST"),
            route("/dashboard/unpin", self.unpin, "admin", "POST"),
            route("/dashboard/experiment", self.experiment, "admin", "POST"),
            route("/dashboard/login", self.pages.log_in, "", "POST"),
            route("/dashboard/logout", self.pages.log_out, "", "POST"),
            route("/dashboard/static/{name}", assets.file, ""),
        ]

    async def start(self) -> None:
        self._recording = asyncio.create_task(self.recorder.run())

    async def stop(self) -> None:
        if self._recording is not None:
            self._recording.cancel()
            await asyncio.gather(self._recording, return_exceptions=True)
        await asyncio.to_thread(self.recorder.record)
        await self.relay.stop()

    def _made(self, part: str) -> Handler:
        """A handler that answers with what the dashboard's process makes."""

        async def handler(request: Request, scopes: frozenset[str]) -> Response:
            query = Query.parse(request.query_params).parameters()  # raises for what is not understood
            if "done" in request.query_params:
                query["done"] = ""
            state = await asyncio.to_thread(self._state)
            answer = await self.relay.ask(part, query, "admin" in scopes, state)
            return HTMLResponse(answer.html, answer.status)

        return handler

    def _state(self) -> ServiceState:
        self.recorder.visited()
        bandit, refits = self.service.bandit, self.service.refits.state()
        snapshot, folder = bandit.snapshot, bandit.folder.state()
        return ServiceState(
            folder=bandit.folder.path.resolve().name,
            model=snapshot.name,
            n_seen=snapshot.model.n_seen,
            trouble=snapshot.trouble,
            pinned=folder.pinned,
            refit_from=folder.schedule.ever,
            refit_due=bandit.config.refit.next_at(folder.schedule.observed) - folder.schedule.observed,
            refit_running=refits.running,
            refit_failures=refits.in_a_row,
            refit_error=refits.error or "",
            tokens=bool(self.service.tokens),
            refit_aside=refits.aside or "",
            defined=list(bandit.config.experiments),
            reward_wait=bandit.config.rewards.reward_wait,
        )

    async def why(self, request: Request, scopes: frozenset[str]) -> Response:
        """The explanation of a logged decision by the model that made it."""
        ask = schema.ExplainRequest(event_id=request.path_params["event_id"], top=EXPLAINED)
        try:
            return HTMLResponse(decisions.explanation(await admin.explain(self.service, ask)))
        except Problem as problem:
            if problem.status not in (409, 429, 503):
                raise
            return HTMLResponse(layout.sentence(f"{problem.message[:1].upper()}{problem.message[1:]}."))

    async def roll_back(self, request: Request, scopes: frozenset[str]) -> Response:
        form = await self.pages.form(request)
        model = form.get("model", "")
        if not re.fullmatch(r"\d{6,18}", model):
            raise Problem(422, "invalid", "the form names no model")
        await admin.rollback(self.service, schema.RollbackRequest(model, form.get("pin") == "1"))
        return _back(form)

    async def unpin(self, request: Request, scopes: frozenset[str]) -> Response:
        form = await self.pages.form(request)
        await admin.unpin(self.service, schema.UnpinRequest())
        return _back(form)

    async def experiment(self, request: Request, scopes: frozenset[str]) -> Response:
        form = await self.pages.form(request)
        action, name = form.get("action", ""), form.get("name") or None
        if action not in ("start", "stop", "promote"):
            raise Problem(422, "invalid", "the form says not what to do with an experiment")
        await experiments.change(self.service, schema.ExperimentRequest(action, name))
        return _back(form)


def _back(form: dict[str, str]) -> Response:
    """To the page that the form was on, by its parameters alone."""
    query = Query.parse(dict(parse_qsl(form.get("back", ""))))
    there = query.link()
    return RedirectResponse(f"{there}{'&' if '?' in there else '?'}done", 303)
