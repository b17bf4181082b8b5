"""How do people see the service? The dashboard's pages; `Dashboard` has their routes."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute

from treetop.errors import Problem
from treetop.service import admin, schema
from treetop.service.dashboard import assets, views
from treetop.service.dashboard.board import Watch
from treetop.service.dashboard.web import Pages
from treetop.service.service import Service

EXPLAINED = 8  # effective arms in an explanation


class Dashboard:
    """The pages of one worker, and the data that they show."""

    def __init__(self, service: Service) -> None:
        self.service, self.watch, self.pages = service, Watch(service), Pages(service)

    def routes(self) -> list[BaseRoute]:
        route = self.pages.route
        return [
            route("/", self.page),
            route("/dashboard/updates", self.updates),
            route("/dashboard/why/{event_id:path}", self.why),
            route("/dashboard/rollback", self.roll_back, "admin", "POST"),
            route("/dashboard/login", self.pages.log_in, "", "POST"),
            route("/dashboard/logout", self.pages.log_out, "", "POST"),
            route("/dashboard/static/{name}", assets.file, ""),
        ]

    async def page(self, request: Request, scopes: frozenset[str]) -> Response:
        board = await self.watch.board()
        done = "done" in request.query_params
        tokens = bool(self.service.tokens)
        return HTMLResponse(await asyncio.to_thread(views.page, board, "admin" in scopes, tokens, done))

    async def updates(self, request: Request, scopes: frozenset[str]) -> Response:
        board = await self.watch.board()
        return HTMLResponse(await asyncio.to_thread(views.updates, board, "admin" in scopes))

    async def why(self, request: Request, scopes: frozenset[str]) -> Response:
        """The explanation of a logged decision by the model that made it."""
        ask = schema.ExplainRequest(event_id=request.path_params["event_id"], top=EXPLAINED)
        try:
            return HTMLResponse(views.explanation(await admin.explain(self.service, ask)))
        except Problem as problem:
            if problem.code != "model_not_kept":
                raise
            return HTMLResponse(views.sentence(f"{problem.message[:1].upper()}{problem.message[1:]}."))

    async def roll_back(self, request: Request, scopes: frozenset[str]) -> Response:
        model = (await self.pages.form(request)).get("model", "")
        if not re.fullmatch(r"\d{6,18}", model):
            raise Problem(422, "invalid", "the form names no model")
        await admin.rollback(self.service, schema.RollbackRequest(model))
        return RedirectResponse("/?done", 303)
