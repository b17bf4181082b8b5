"""What results look like to a person: tables, chapters, decisions in words. Knows nothing of how runs are made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from treetop.data.datasets import Stream
from treetop.experiments.comparison import Band, Matrix, Series, band, half_width, ranks
from treetop.experiments.records import RunRecord, distinguishing_settings
from treetop.simulation.play import Run

if TYPE_CHECKING:
    from rich.table import Table

BAND = "A band (from three seeds on) is the 95 % interval of the mean over seeds."


@dataclass(frozen=True)
class Sheet:
    """A table of text. Columns after the first `left` are numbers and align right.

    >>> print(Sheet("", ("dataset", "arms"), (("debian", "34,773"),)).markdown())
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
    """One part of a picture: curves over rounds, bars by label (logarithmic), or a grid of labelled shares."""

    title: str
    lines: tuple[Line, ...]
    ylabel: str
    kind: str = "curves"
    labels: tuple[str, ...] = ()
    marks: tuple[float, ...] = ()  # rounds of refits


@dataclass(frozen=True)
class Chapter:
    """One result of the paper beside ours: a few words, tables, panels, and the numbers for machines."""

    name: str
    title: str
    text: str
    sheets: tuple[Sheet, ...] = ()
    panels: tuple[Panel, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def markdown(self) -> str:
        parts = [f"## {self.title}", self.text, *(sheet.markdown() for sheet in self.sheets)]
        return "\n\n".join(parts) + "\n"

    def save(self, folder: Path) -> list[Path]:
        """name.json and name.md in the folder; a reader sees the old or the new file, never half of one."""
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(asdict(self)), indent=1)
        return [
            write(folder / f"{self.name}.json", text + b"\n"),
            write(folder / f"{self.name}.md", self.markdown().encode()),
        ]

    @classmethod
    def load(cls, path: Path) -> Chapter:
        import msgspec

        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise ValueError(f"{path} is not a chapter of results: {error}") from None


def write(path: Path, content: bytes) -> Path:
    """The file written beside its place and renamed.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write(Path(folder, "deep", "page.html"), b"<p>").read_bytes()
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


def curves(title: str, series: Sequence[Series]) -> Panel:
    """The progressive mean reward of every strategy with its band over seeds.

    >>> one = Series("X-IGW-topk", "igw", 5, 10, (0,), (0.9,), (((8, 0.8), (10, 0.9)),))
    >>> curves("debian", [one]).lines[0].y
    (0.8, 0.9)
    """
    lines = tuple(Line.of(s.name, s.style, band(s.curves)) for s in series)
    return Panel(title, lines, "mean reward a round so far")


def means(title: str, series: Sequence[Series], note: str = "") -> Sheet:
    """One row a strategy, best first: mean reward over the whole stream and over its last fifth, against greedy.

    >>> one = Series("X-IGW-topk", "igw", 5, 10, (0,), (0.9,), (((8, 0.8), (10, 0.9)),))
    >>> means("debian", [one]).rows
    (('X-IGW-topk', '1', '0.900', '1.300', '-', '1'),)
    """
    base = {s.setting: s.mean for s in series if s.style == "greedy"}
    places = ranks({s.name: s.mean for s in series})
    rows = tuple(
        (
            s.name,
            str(places[s.name]),
            plus_minus(s.mean, float(half_width(s.means))),
            f"{last_fifth(s):.3f}",
            f"{s.mean / base[s.setting]:.2f}x" if base.get(s.setting) else "-",
            str(len(s.seeds)),
        )
        for s in sorted(series, key=lambda s: -s.mean)
    )
    return Sheet(title, ("strategy", "place", "mean reward", "last fifth", "against greedy", "seeds"), rows, note)


def last_fifth(series: Series) -> float:
    """The mean reward a round over the last fifth of the rounds, read off the curves.

    >>> one = Series("X-IGW-topk", "igw", 5, 10, (0,), (0.9,), (((8, 0.8), (10, 0.9)),))
    >>> round(last_fifth(one), 3)  # 10 rounds brought 9, the first 8 of them 6.4
    1.3
    """
    found = []
    for curve in series.curves:
        t, mean = (np.array(column, np.float64) for column in zip(*curve, strict=True))
        before = np.interp(0.8 * t[-1], t, mean)
        found.append((mean[-1] - 0.8 * before) / 0.2)
    return float(np.mean(found))


def grid(title: str, series: Sequence[tuple[str, str]], matrix: Matrix) -> Panel:
    """A win/draw/loss matrix in the layout of Table 2; `series` are (name, style) in its order.

    >>> from treetop.experiments.comparison import Tally
    >>> matrix = {("a", "b"): Tally(2, 1, 0), ("b", "a"): Tally(0, 1, 2)}
    >>> panel = grid("Table 2", [("a", "igw"), ("b", "greedy")], matrix)
    >>> panel.lines[0].texts
    ('-', '2W/1D/0L')
    """
    lines = []
    for name, style in series:
        cells = [matrix.get((name, other)) for other, _ in series]
        shares = tuple((c.wins - c.losses) / max(1, c.wins + c.draws + c.losses) if c else 0.0 for c in cells)
        lines.append(Line(name, style, shares, texts=tuple(str(c) if c else "-" for c in cells)))
    return Panel(title, tuple(lines), "", "grid", tuple(name for name, _ in series))


def grid_sheet(panel: Panel, note: str = "") -> Sheet:
    """A grid as a table of text, for Markdown.

    >>> from treetop.experiments.comparison import Tally
    >>> matrix = {("a", "b"): Tally(2, 1, 0), ("b", "a"): Tally(0, 1, 2)}
    >>> panel = grid("Table 2", [("a", "igw"), ("b", "greedy")], matrix)
    >>> print(grid_sheet(panel).rows[1])
    ('b', '0W/1D/2L', '-')
    """
    rows = tuple((line.name, *line.texts) for line in panel.lines)
    return Sheet(panel.title, ("", *panel.labels), rows, note)


def table(runs: Sequence[Run | RunRecord]) -> Table:
    """One line per strategy, best first: mean reward over the whole stream and over its last fifth.

    Greedy of the same settings and seed is what a line is compared with.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.play import begin, run
    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10, seed=0)
    >>> played = run(stream, model, Policy(), name="igw")
    >>> table([played]).row_count
    1
    """
    from rich.table import Table

    most = " or ".join(str(k) for k in sorted({int(run.settings["k"]) for run in runs}))
    out = Table(title=f"Mean reward a round (at most {most} hits)", title_justify="left")
    apart = distinguishing_settings([(run.strategy, run.settings) for run in runs])
    base = {
        (run.seed, setting): run.mean_reward
        for run, (_, setting) in zip(runs, apart, strict=True)
        if run.strategy == "greedy"
    }
    several, set_apart = len({run.seed for run in runs}) > 1, any(setting for _, setting in apart)
    heads = ["strategy", *["settings"] * set_apart, *["seed"] * several, "whole stream", "last fifth", "against greedy"]
    for head in (*heads, "rounds/s", "seconds"):
        words = head in ("strategy", "settings")
        out.add_column(head, justify="left" if words else "right", no_wrap=words)
    for run, (own, setting) in sorted(zip(runs, apart, strict=True), key=lambda pair: -pair[0].mean_reward):
        greedy = base.get((run.seed, setting))
        ratio = f"{run.mean_reward / greedy:.2f}x" if greedy else ""
        names = [f"{run.strategy} {own}".strip(), *[setting] * set_apart, *[str(run.seed)] * several]
        rewards = (f"{run.mean_reward:.3f}", f"{run.late_reward:.3f}")
        speed = run.rounds / max(run.seconds, 1e-3)
        out.add_row(*names, *rewards, ratio, f"{speed:,.0f}", f"{run.seconds:.1f}")
    return out


def in_words(run: Run, stream: Stream, n: int = 5) -> list[dict[str, object]]:
    """n decisions from the last tenth of a run: what came, what was shown and why, and what was right.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.play import begin, run
    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10, seed=0)
    >>> played = run(stream, model, Policy(), name="igw")
    >>> sorted(in_words(played, stream, n=1)[0])
    ['context', 'description', 'missed', 'round', 'shown']
    """
    data, rounds = stream.dataset, len(stream.rows)
    late = np.arange(max(0, rounds - max(n, rounds // 10)), rounds)
    picked = np.random.default_rng(run.seed).permutation(late)[:n]
    labels = data.Y.csr()
    names = data.arm_names or tuple(f"arm {a}" for a in range(data.n_arms))
    out: list[dict[str, object]] = []
    for t in sorted(picked.tolist()):
        row = int(stream.rows[t])
        arms, rewards = run.feedback.arms[t], run.feedback.rewards[t]
        shown = [
            {"arm": names[a], "explored": bool(e), "right": bool(r > 0)}
            for a, e, r in zip(arms, run.explored[t], rewards, strict=True)
            if a >= 0
        ]
        missed = [names[a] for a in labels[row].indices if a not in arms]
        out.append(
            {
                "round": t,
                "context": data.context_names[row] if data.context_names else f"row {row}",
                "description": data.descriptions[row] if data.descriptions else "",
                "shown": shown,
                "missed": missed,
            }
        )
    return out
