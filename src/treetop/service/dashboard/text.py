"""Numbers, times and names as the pages show them."""

from __future__ import annotations

import time

from treetop.service.dashboard.board import Board

OOB = "hx-swap-oob='true'"


def arm_name(board: Board, arm: int) -> str:
    """An arm's id. Another worker may have shown an arm that this worker does not know yet."""
    ids = board.snapshot.arms.ids
    return str(ids[arm]) if arm < len(ids) else f"new arm {arm}"


def mean(total: float, count: int) -> str:
    return f"{total / count:.3f}" if count else "–"


def share(part: int, whole: int) -> str:
    """
    >>> share(1, 8), share(1, 80000), share(0, 0)
    ('12.5 %', '0.0013 %', '–')
    """
    if not whole:
        return "–"
    percent = 100 * part / whole
    return f"{percent:.1f} %" if percent >= 0.1 or percent == 0 else f"{percent:.2g} %"


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def moment(when: float) -> str:
    """A time in UTC; the page's script shows it in the reader's time zone."""
    return f"<time datetime='{when:.3f}'>{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(when))} UTC</time>"
