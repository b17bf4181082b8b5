"""The dashboard in a browser: a page that keeps every complaint, and a service with something to show."""

from __future__ import annotations

import shutil
from typing import Any

from helpers.problems import topics
from helpers.running import Running, named

CHROMIUM = shutil.which("chromium")
X, Y = topics()
REWARDS = Y.toarray()


def play(service: Running, begin: int, end: int) -> None:
    """Decisions, three of four with all their rewards."""
    with service.client() as client:
        for i in range(begin, end):
            shown = client.decide(named(X, i % 600), event_id=f"visit {i}/<b>&'\"")
            if i % 4:
                client.reward(shown.event_id, {arm: label(i, str(arm)) for arm in shown.arms})


def label(i: int, arm: str) -> float:
    return float(REWARDS[i % 600, int(arm[1:])]) if arm.startswith("a") else 0.0


def refit(service: Running, model: str) -> None:
    service.wait_for(lambda: service.post("/v1/refit", {}).status == 202)
    service.wait_for(lambda: service.model_is(model))


class Tab:
    """A page of the browser that keeps every complaint."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda said: self.complaints.append(f"{said.type}: {said.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def text(self, selector: str) -> str:
        return str(self.page.locator(selector).first.inner_text())

    def becomes(self, selector: str, text: str) -> None:
        from playwright.sync_api import expect  # not everywhere

        expect(self.page.locator(selector)).to_have_text(text, timeout=20_000)

    def drawn(self) -> None:
        for name in ("reward", "variants", "propensity"):
            self.page.locator(f"#chart-{name} canvas").wait_for()

    def number(self, selector: str) -> float:
        return float(self.text(selector).replace(",", "").rstrip(" %"))
