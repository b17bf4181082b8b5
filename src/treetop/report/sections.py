"""What a page of results is made of: tables of text, panels to draw, sections that hold both. Knows no experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from treetop.experiments.comparison import Band

BAND = "A band (from three seeds on) is the 95 % interval of the mean over seeds."


@dataclass(frozen=True)
class Table:
    """A table of text. Columns after the first `left` are numbers and align right.

    >>> print(Table("", ("dataset", "arms"), (("debian", "34,773"),)).markdown())
    | dataset | arms |
    |:---|---:|
    | debian | 34,773 |
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: int = 1

    def __post_init__(self) -> None:
        if wrong := [row for row in self.rows if len(row) != len(self.columns)]:
            raise ValueError(f"{self.title}: {len(wrong[0])} cells for {len(self.columns)} columns in {wrong[0]}")

    def records(self) -> list[dict[str, str]]:
        """One dict a row, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def markdown(self) -> str:
        ends = [":---" if i < self.left else "---:" for i in range(len(self.columns))]
        lines = [_line(self.columns), "|" + "|".join(ends) + "|", *map(_line, self.rows)]
        head = [f"**{self.title}**", ""] if self.title else []
        return "\n".join(head + lines + (["", self.note] if self.note else []))


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


@dataclass(frozen=True)
class Line:
    """One curve, row of bars or row of a grid. `style` is the strategy, which has its own colour in every picture."""

    name: str
    style: str
    y: tuple[float, ...]
    x: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    texts: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, style: str, band: Band) -> Line:
        """The mean with its band; two seeds tell too little for one (the interval is 12.7 standard errors wide)."""
        rounded = [tuple(round(v, 6) for v in values) for values in (band.mean, band.low, band.high)]
        shown = rounded if band.seeds > 2 else [rounded[0], (), ()]
        return cls(name, style, shown[0], tuple(float(t) for t in band.rounds), shown[1], shown[2])


@dataclass(frozen=True)
class Panel:
    """One part of a picture: curves over rounds, bars by label (logarithmic), a grid of labelled shares, or intervals:
    stretches from `low` to `high` of [0, 1] in rows `y`."""

    title: str
    lines: tuple[Line, ...]
    ylabel: str
    kind: str = "curves"
    labels: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()  # rounds of refits; of intervals, places


@dataclass(frozen=True)
class Section:
    """One result of the paper beside ours: a few words, tables, panels, and the numbers for machines."""

    name: str
    title: str
    text: str
    tables: tuple[Table, ...] = ()
    panels: tuple[Panel, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        parts = [f"## {self.title}", self.text, *(table.markdown() for table in self.tables)]
        return "\n\n".join(parts) + "\n"

    def save(self, folder: Path) -> list[Path]:
        """name.json and name.md in the folder; a reader sees the old or the new file, never half of one."""
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(asdict(self)), indent=1)
        return [
            write_file(folder / f"{self.name}.json", text + b"\n"),
            write_file(folder / f"{self.name}.md", self.markdown().encode()),
        ]

    @classmethod
    def load(cls, path: Path) -> Section:
        import msgspec

        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"{path} is not a section of results: {error}") from None


def write_file(path: Path, content: bytes) -> Path:
    """Writes a file beside its place and renames it; folders above it are made.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_file(Path(folder, "deep", "page.html"), b"<p>").read_bytes()
    b'<p>'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".new")
    beside.write_bytes(content)
    beside.replace(path)
    return path


def number(value: float, digits: int = 3) -> str:
    """A number as a table shows it: thousands with commas, small ones with `digits` significant digits.

    >>> number(34773), number(0.8124), number(0.00012345), number(math.nan)
    ('34,773', '0.812', '0.000123', '-')
    """
    if not math.isfinite(value):
        return "-"
    if value == int(value) or abs(value) >= 10_000:
        return f"{value:,.0f}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 12)}f}"


def plus_minus(mean: float, half: float) -> str:
    """A mean with half its confidence interval, where there is one.

    >>> plus_minus(0.8124, 0.0131), plus_minus(0.8124, 0.0)
    ('0.812 ± 0.013', '0.812')
    """
    return f"{mean:.3f} ± {half:.3f}" if half > 0 else f"{mean:.3f}"
