"""/openapi.json, written from the types of the endpoints. Promises nothing that they do not."""

from __future__ import annotations

import re
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.types import Scope

from treetop.service import schema as wire
from treetop.service.http import Endpoint, Handler, Raw
from treetop.service.service import Service

MEANING = {
    200: "Done.",
    202: "Begun.",
    400: "The body is not JSON.",
    401: "A token is needed.",
    403: "The token has not this scope, or the request does not name this machine.",
    404: "There is no such event.",
    405: "Another method is needed.",
    408: "The body did not come in time.",
    409: "It conflicts with what is there.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "Something in it is not acceptable.",
    429: "Too many requests at a time.",
    500: "Something went wrong here.",
    503: "The log is away; sending it again is safe.",
}
EVERY = (401, 403, 405, 429, 500, 503)
WITH_BODY = (400, 408, 413, 415, 422)


def describe(endpoints: list[Endpoint]) -> bytes:
    types = [kind for e in endpoints for kind in (e.body, e.answer) if kind is not None] + [wire.Failure]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schema = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = endpoint.route.replace(":path", "")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schema)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "treetop", "version": version("treetop"), "description": "Top-k contextual bandits."},
            "paths": paths,
            "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        }
    )


def _operation(endpoint: Endpoint, schema: dict[type, Any]) -> dict[str, Any]:
    good = 202 if 202 in endpoint.statuses else 200
    bad = {*endpoint.statuses, *(EVERY if endpoint.scope else (405, 500)), *(WITH_BODY if endpoint.body else ())} - {
        good
    }
    kind = "application/json" if endpoint.answer else "text/plain"
    content = {kind: {"schema": schema[endpoint.answer] if endpoint.answer else {"type": "string"}}}
    failure = {"application/json": {"schema": schema[wire.Failure]}}
    operation: dict[str, Any] = {
        "summary": endpoint.about,
        "operationId": endpoint.handler.__name__,
        "responses": {
            str(good): {"description": MEANING[good], "content": content},
            **{str(status): {"description": MEANING[status], "content": failure} for status in sorted(bad)},
        },
    }
    if endpoint.scope:
        operation["security"] = [{"token": []}]
    if endpoint.body:
        body = {"application/json": {"schema": schema[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": body}
    if names := re.findall(r"{(\w+):?\w*}", endpoint.route):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    return operation


def handler(described: bytes) -> Handler:
    async def described_here(service: Service, scope: Scope) -> Raw:
        return Raw(described)

    return described_here
