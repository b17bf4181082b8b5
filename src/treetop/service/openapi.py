"""/openapi.json, made from the endpoints and the types of their bodies and answers."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.types import Scope

from treetop._version import __version__
from treetop.service import schema
from treetop.service.http import Endpoint, Handler, Raw
from treetop.service.service import Service

MEANING = {
    200: "Done.",
    202: "Started.",
    400: "The body is not JSON.",
    401: "A token is needed.",
    403: "The token has not this scope, or the request does not name this machine.",
    404: "There is no such event.",
    405: "Another method is needed.",
    408: "The body did not come in time.",
    409: "It conflicts with what is stored.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A value in it is not accepted.",
    429: "Too many requests at a time.",
    500: "An error of the service.",
    503: "The log is not available; sending the request again is safe.",
}
EVERY = (401, 403, 405, 429, 500, 503)
WITH_BODY = (400, 408, 413, 415, 422)


def describe(endpoints: list[Endpoint]) -> bytes:
    """The OpenAPI document of all endpoints, as JSON."""
    types = [kind for e in endpoints for kind in (e.body, e.answer) if kind is not None] + [schema.Failure]
    found, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(types, found, strict=True))
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        path = endpoint.route.replace(":path", "")
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, schemas)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {"title": "treetop", "version": __version__, "description": "Top-k contextual bandits."},
            "paths": paths,
            "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        }
    )


def _operation(endpoint: Endpoint, schemas: dict[type, Any]) -> dict[str, Any]:
    good = [status for status in endpoint.statuses if status < 300] or [200]
    every, with_body = EVERY if endpoint.scope else (405, 500), WITH_BODY if endpoint.body else ()
    bad = {*endpoint.statuses, *every, *with_body} - {*good}
    kind = "application/json" if endpoint.answer else "text/plain"
    content = {kind: {"schema": schemas[endpoint.answer] if endpoint.answer else {"type": "string"}}}
    failure = {"application/json": {"schema": schemas[schema.Failure]}}
    operation: dict[str, Any] = {
        "summary": endpoint.about,
        "operationId": endpoint.handler.__name__,
        "responses": {
            **{str(status): {"description": MEANING[status], "content": content} for status in good},
            **{str(status): {"description": MEANING[status], "content": failure} for status in sorted(bad)},
        },
    }
    if endpoint.scope:
        operation["security"] = [{"token": []}]
    if endpoint.body:
        body = {"application/json": {"schema": schemas[endpoint.body]}}
        operation["requestBody"] = {"required": True, "content": body}
    if names := re.findall(r"{(\w+):?\w*}", endpoint.route):
        operation["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for name in names
        ]
    return operation


def handler(described: bytes) -> Handler:
    """A handler that answers with the document."""

    async def openapi(service: Service, scope: Scope) -> Raw:
        return Raw(described)

    return openapi
