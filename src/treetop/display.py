"""How records look: in a notebook, as JSON, as frames of pandas, which is loaded when one is asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from numpy.typing import NDArray

SHOWN = 20  # rows of a table in a notebook

Columns = Mapping[str, Sequence[Any] | NDArray[Any]]


def counted(count: int, thing: str) -> str:
    """A number of things, of which one has no plural.

    >>> counted(1, "visit"), counted(1200, "visit")
    ('1 visit', '1,200 visits')
    """
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


def as_json(value: Any) -> Any:
    """Lists, dicts and numbers as JSON takes them; what is not finite is None.

    >>> as_json({"value": math.nan, "range": (0.0, 1.0)})
    {'value': None, 'range': [0.0, 1.0]}
    """
    if isinstance(value, dict):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def html_table(title: str, columns: Columns, total: int | None = None) -> str:
    """A table for a notebook: numbers to the right with four digits, text as it is; of `total` rows some may be given.

    >>> html_table("tea", {"arm": ["mint & rose"], "score": [0.123456]}, total=3)[-63:]
    '<td align="right">0.1235</td></tr></table><p>... and 2 more</p>'
    """
    rows = list(zip(*columns.values(), strict=True))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    more = "" if total is None or total <= len(rows) else f"<p>... and {total - len(rows):,} more</p>"
    return f"<p><b>{escape(title)}</b></p><table><tr>{head}</tr>{body}</table>{more}"


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return f"<td>{'yes' if value else ''}</td>"
    if isinstance(value, int | float):
        text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
        return f'<td align="right">{text}</td>'
    return f"<td>{'' if value is None else escape(str(value))}</td>"


def make_frame(columns: Columns) -> Any:
    """A pandas.DataFrame. Raises ValueError with what to install if pandas is not there.

    >>> make_frame({"arm": ["mint"], "score": [0.5]}).to_dict("list")
    {'arm': ['mint'], 'score': [0.5]}
    """
    return load_pandas().DataFrame(dict(columns))


def load_pandas() -> Any:
    """The module pandas; raises ValueError with what to install if it is not there.

    >>> load_pandas().__name__
    'pandas'
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise ValueError("frames need pandas: pip install 'treetop-bandits[pandas]'") from None
    return pandas
