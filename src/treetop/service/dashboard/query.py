"""What a page shows, as its address says: the range of time, and the order, search and page of the table of arms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from urllib.parse import urlencode

from treetop.tree.categories import category_path, category_text

RANGES = {"hour": ("Last hour", 3600.0), "day": ("Last day", 86_400.0), "week": ("Last week", 604_800.0)}
ALL, CUSTOM = "all", "custom"
SORTS = ("arm", "impressions", "unlikely", "reward", "rate")
LONGEST_SEARCH = 512  # characters, as long as an id may be
LATEST = 4_102_444_800.0  # the year 2100


@dataclass(frozen=True)
class Query:
    """`begin` and `end` are seconds since 1970 and belong to the range "custom"; `arm` is an arm's index;
    `category` is the one that rewards are shown below of, all if it is empty."""

    range: str = "day"
    begin: float | None = None
    end: float | None = None
    sort: str = "impressions"
    order: str = "down"
    search: str = ""
    page: int = 1
    arm: int | None = None
    category: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Query:
        """From the parameters of an address. Raises ValueError; parameters of other names are left alone.

        >>> Query.parse({"range": "week", "page": "2"}).page
        2
        """
        begin, end = _moment("from", given.get("from", "")), _moment("to", given.get("to", ""))
        if begin is not None and end is not None and begin >= end:
            raise ValueError("the range ends before it begins: `from` must be earlier than `to`")
        return cls(
            _choice("range", given, (*RANGES, ALL, CUSTOM), "day"),
            begin,
            end,
            _choice("sort", given, SORTS, "impressions"),
            _choice("order", given, ("down", "up"), "down"),
            _short("search", given.get("search", "")),
            _number("page", given.get("page", "1"), 1),
            _number("arm", given["arm"], 0) if "arm" in given else None,
            category_text(category_path(_short("category", given.get("category", "")))),
        )

    def bounds(self, now: float) -> tuple[float, float]:
        """Begin and end of the range, in seconds since 1970."""
        if self.range == CUSTOM:
            return -math.inf if self.begin is None else self.begin, math.inf if self.end is None else self.end
        return (-math.inf if self.range == ALL else now - RANGES[self.range][1]), math.inf

    def parameters(self) -> dict[str, str]:
        """As the parameters of an address; what is as usual is left out.

        >>> Query(range="week", sort="rate").parameters()
        {'range': 'week', 'sort': 'rate'}
        """
        names = {"begin": "from", "end": "to"}
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {
            names.get(k, k): f"{v:.12g}" if isinstance(v, float) else str(v) for k, v in given.items() if v != _USUAL[k]
        }

    def link(self, path: str = "/", /, **changes: object) -> str:
        """The address of a page like this one but for some changes.

        >>> Query(range="week", page=3).link(sort="reward", page=1)
        '/?range=week&sort=reward'
        """
        given = urlencode(replace(self, **changes).parameters())  # type: ignore[arg-type]
        return f"{path}?{given}" if given else path


_USUAL = {field.name: field.default for field in fields(Query)}


def _choice(name: str, given: Mapping[str, str], known: tuple[str, ...], usual: str) -> str:
    chosen = given.get(name, usual)
    if chosen not in known:
        raise ValueError(f"`{name}` is {chosen[:40]!r}; it must be one of {', '.join(known)}")
    return chosen


def _short(name: str, text: str) -> str:
    if len(text) > LONGEST_SEARCH:
        raise ValueError(f"`{name}` has {len(text)} characters; at most {LONGEST_SEARCH} are possible")
    return text.strip()


def _number(name: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 12) or int(text) < least:
        raise ValueError(f"`{name}` is {text[:40]!r}; a whole number of {least} or more is needed")
    return int(text)


def _moment(name: str, text: str) -> float | None:
    """Seconds since 1970, or a date and time (in UTC if it does not say otherwise)."""
    if not text:
        return None
    try:
        found = float(text)
    except ValueError:
        try:
            when = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(f"`{name}` is {text[:40]!r}; a date and time is needed, as 2025-01-31T09:00") from None
        found = (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp()
    if not 0 <= found <= LATEST:
        raise ValueError(f"`{name}` is {text[:40]!r}; a time between 1970 and 2100 is needed")
    return found
