"""The pages for people, below `/`. `routes` is all that the app knows of them."""

from __future__ import annotations

from starlette.routing import BaseRoute

from treetop.service.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """The dashboard's routes."""
    return []
