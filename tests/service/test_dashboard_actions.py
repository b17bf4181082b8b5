"""What can be done on the dashboard, in a real browser: roll back, pin, log in; and its totals outlive a restart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from helpers.browser import Tab, X, Y, play, refit
from helpers.running import running, settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.log.series_file import load_series
from treetop.service.dashboard.board import TOTALS

TOKENS = {"read": "r" * 20, "read,admin": "a" * 20, "write": "w" * 20}


def test_rollback_and_pin_ask_first_and_another_site_cannot(tmp_path: Path, tab: Tab) -> None:
    with running(small_bandit(tmp_path / "shop", X, Y)) as service:
        play(service, 0, 20)
        refit(service, "000001")
        tab.page.goto(f"{service.url}/?range=week")
        assert tab.text("tr[data-model='000001']").count("serves") == 1
        button = tab.page.locator("tr[data-model='000000'] button", has_text="Roll back")
        tab.page.once("dialog", lambda dialog: dialog.dismiss())
        button.click()
        assert service.model_is("000001")
        tab.page.on("dialog", lambda dialog: dialog.accept())
        button.click()
        tab.page.locator(".banner.good").wait_for()
        tab.page.wait_for_url("**/?range=week")  # the range stays
        assert service.model_is("000000")
        assert "Model 000000 serves now." in tab.text(".banner.good")
        assert tab.text("tr[data-model='000001'] button") == "Use again"
        assert "Rollback: model 000000 in place of 000001." in tab.text(".history")

        tab.page.locator("tr[data-model='000001'] button", has_text="Pin").click()
        tab.becomes(".banner.good", "Model 000001 serves now, pinned.")
        assert "pinned" in tab.text("tr[data-model='000001']")
        assert service.get("/v1/model").json["pinned"] is True
        refused = service.post("/v1/refit", {})
        assert (refused.status, refused.code) == (409, "pinned")
        assert "treetop_model_pinned 1.0" in service.get("/metrics").content.decode()
        tab.page.get_by_role("button", name="Unpin").click()
        tab.becomes(".banner.good", "Model 000001 serves now.")
        assert service.get("/v1/model").json["pinned"] is False
        assert "Model 000001 unpinned." in tab.text(".history")
        assert tab.complaints == []

        form = {"content-type": "application/x-www-form-urlencoded"}
        for path in ("/dashboard/rollback", "/dashboard/unpin"):
            for origin in ({}, {"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
                assert service.ask("POST", path, b"model=000000", {**form, **origin}).status == 403
        ours = {**form, "origin": service.url}
        assert service.ask("POST", "/dashboard/rollback", b"model=000009", ours).status == 409
        assert service.ask("POST", "/dashboard/rollback", b"model=../../etc", ours).status == 422
        assert service.ask("POST", "/dashboard/rollback", b"x=" + b"y" * 5000, ours).status == 413
        away = service.ask("POST", "/dashboard/unpin", b"back=//evil.example/%3Frange=week%26sort=arm", ours)
        assert (away.status, away.headers["location"]) == (303, "/?sort=arm&done")
        assert (
            service.ask("POST", "/dashboard/rollback", b"{}", {**ours, "content-type": "application/json"}).status
            == 415
        )
        assert service.ask("GET", "/", headers={"host": "evil.example"}).status == 403
        assert service.model_is("000001")


def test_tokens_log_in_and_what_they_allow(tmp_path: Path, browser: Any, tab: Tab) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y)
    (tmp_path / "tokens").write_text("".join(f"{scopes} {token}\n" for scopes, token in TOKENS.items()))
    (tmp_path / "tokens").chmod(0o600)
    with running(folder, "--tokens", str(tmp_path / "tokens"), token=TOKENS["write"]) as service:
        play(service, 0, 20)
        service.token = TOKENS["read,admin"]
        refit(service, "000001")
        service.token = None
        for path in ("/", "/dashboard/updates", "/dashboard/arms", "/dashboard/arm?arm=1", "/dashboard/why/visit"):
            closed = service.get(path)
            assert closed.status == 401
            assert b"000001" not in closed.content

        def log_in(here: Tab, token: str) -> None:
            here.page.goto(service.url)
            here.page.get_by_label("Token").fill(token)
            here.page.get_by_role("button", name="Log in").click()

        log_in(tab, "x" * 20)
        assert tab.text(".bad") == "This token is not known here."
        log_in(tab, TOKENS["write"])
        assert tab.text(".bad") == "This token does not allow reading."
        assert tab.context.cookies() == []
        log_in(tab, TOKENS["read"])
        tab.page.locator("#tiles").wait_for()
        assert tab.page.locator("#models button").count() == 0
        cookie = tab.context.cookies()[0]
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert TOKENS["read"] not in cookie["value"]
        mine = {"cookie": f"{cookie['name']}={cookie['value']}"}
        form = {**mine, "content-type": "application/x-www-form-urlencoded", "origin": service.url}
        assert service.ask("POST", "/dashboard/rollback", b"model=000000", form).status == 403
        assert service.ask("POST", "/dashboard/unpin", b"", form).status == 403
        assert service.ask("GET", "/v1/model", headers=mine).status == 401  # a session is for pages only
        until, _, signature = cookie["value"].partition(".")
        for forged in (f"{int(until) + 1}.{signature}", f"1.{signature}", f"{until}.", "x", f"{until}.ä"):
            sent = {"cookie": f"{cookie['name']}={forged}"}
            assert service.ask("GET", "/", headers=sent).status == 401
        tab.page.get_by_role("button", name="Log out").click()
        tab.page.get_by_label("Token").wait_for()
        assert tab.context.cookies() == []

        admin = Tab(browser)
        log_in(admin, TOKENS["read,admin"])
        admin.page.on("dialog", lambda dialog: dialog.accept())
        admin.page.locator("tr[data-model='000000'] button").first.click()
        admin.page.locator(".banner.good").wait_for()
        service.token = TOKENS["read"]
        assert service.model_is("000000")
        assert service.get("/").status == 200  # a header will do as well
        admin.context.close()
        lines = service.lines.read_text()
        assert not any(token in lines for token in TOKENS.values())


def test_the_totals_outlive_a_restart_and_two_workers_agree(tmp_path: Path) -> None:
    folder = small_bandit(tmp_path / "shop", X, Y, config=settings())
    with running(folder) as service:
        play(service, 0, 60)
        assert service.get("/").status == 200
        service.end()
    with Bandit.open(folder) as bandit:
        kept = load_series(bandit.log, folder / TOTALS)
        assert kept.position == bandit.log.counts().position > 0
    with running(folder, "--workers", "2") as service:
        play(service, 60, 90)
        service.wait_for(lambda: b"id='visits'>90<" in service.get("/").content)
        pages = [service.get("/").content.decode() for _ in range(12)]
        found = {
            re.search(r"id='(visits)'>([\d,]+)<.*id='(arms-shown)'>([\d,]+)<", page).group(2, 4)  # type: ignore[union-attr]
            for page in pages
        }
        assert len(found) == 1
        assert found.pop()[0] == "90"
