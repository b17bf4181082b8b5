"""Numbers and times as the pages show them."""

from __future__ import annotations

import time
from html import escape

OOB = "hx-swap-oob='true'"
NONE = "–"


def number(value: float | None) -> str:
    """A mean, with three places; a dash if there is none.

    >>> number(1.23456), number(None)
    ('1.235', '–')
    """
    return NONE if value is None else f"{value:.3f}"


def mean(total: float, count: float) -> str:
    return number(total / count if count else None)


def amount(value: float) -> str:
    """A sum of rewards: whole if it is.

    >>> amount(12345.0), amount(0.5)
    ('12,345', '0.50')
    """
    return f"{value:,.0f}" if value == int(value) or value >= 1000 else f"{value:,.2f}"


def share(part: float, whole: float) -> str:
    """
    >>> share(1, 8), share(1, 80000), share(0, 0)
    ('12.5 %', '0.0013 %', '–')
    """
    if not whole:
        return NONE
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 0.1 or percent == 0 else f"{percent:.2g} %"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def moment(when: float) -> str:
    """A time in UTC; the page's script shows it in the reader's time zone."""
    return f"<time datetime='{when:.3f}'>{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(when))} UTC</time>"


def hidden(fields: dict[str, str]) -> str:
    """Fields of a form that nobody sees."""
    return "".join(f"<input type='hidden' name='{escape(k)}' value='{escape(v)}'>" for k, v in fields.items())
