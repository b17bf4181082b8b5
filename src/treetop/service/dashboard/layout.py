"""The frame of every page, and the pages that need no data. Every text from outside is escaped where it enters."""

from __future__ import annotations

import json
from html import escape

from treetop.service.dashboard.assets import ICON, SCRIPTS, STYLES, address

HTMX = json.dumps({"includeIndicatorStyles": False, "allowEval": False, "historyEnabled": False})


def document(title: str, body: str, scripts: bool = False) -> str:
    head = [f"<link rel='stylesheet' href='{address(name)}'>" for name in STYLES]
    head += [f"<link rel='icon' type='image/svg+xml' href='{address(ICON)}'>"]
    if scripts:
        head += [f"<meta name='htmx-config' content='{escape(HTMX)}'>"]
        head += [f"<script src='{address(name)}' defer></script>" for name in SCRIPTS]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{escape(title)}</title>{''.join(head)}</head>\n<body>{body}</body></html>\n"
    )


def login(why: str = "") -> str:
    said = f"<p class='bad' role='alert'>{escape(why)}</p>" if why else ""
    return document(
        "treetop: log in",
        "<main class='narrow'><h1>treetop</h1><p class='soft'>This service asks for a token that may read.</p>"
        f"{said}<form method='post' action='/dashboard/login' class='card'>"
        "<label for='token'>Token</label>"
        "<input id='token' name='token' type='password' autocomplete='current-password' required autofocus>"
        "<button>Log in</button></form></main>",
    )


def problem(status: int, message: str) -> str:
    return document(
        f"treetop: {status}",
        f"<main class='narrow'><h1>{status}</h1><p>{escape(message[:1].upper() + message[1:])}.</p>"
        "<p><a href='/'>To the dashboard</a></p></main>",
    )


def sentence(text: str) -> str:
    return f"<p>{escape(text)}</p>"
