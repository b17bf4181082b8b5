"""Series and runs as tables and panels. Plays nothing, and does not draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from treetop.experiments.comparison import Matrix, Series, band, half_width, ranks
from treetop.experiments.records import RunRecord, distinguishing_settings
from treetop.report.sections import Line, Panel, Table, plus_minus
from treetop.simulation.play import Run

if TYPE_CHECKING:
    import rich.table


def curves(title: str, series: Sequence[Series]) -> Panel:
    """The progressive mean reward of every strategy with its band over seeds.

    >>> one = Series("X-IGW-topk", "igw", 5, 10, (0,), (0.9,), (((8, 0.8), (10, 0.9)),))
    >>> curves("debian", [one]).lines[0].y
    (0.8, 0.9)
    """
    lines = tuple(Line.of(s.name, s.style, band(s.curves)) for s in series)
    return Panel(title, lines, "mean reward a round so far")


def means(title: str, series: Sequence[Series], note: str = "") -> Table:
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
    return Table(title, ("strategy", "place", "mean reward", "last fifth", "against greedy", "seeds"), rows, note)


def last_fifth(series: Series) -> float:
    """The mean reward a round over the last fifth of the rounds, as the runs say it; of older runs read off the curves,
    which are points between which it is guessed.

    >>> one = Series("X-IGW-topk", "igw", 5, 10, (0,), (0.9,), (((8, 0.8), (10, 0.9)),))
    >>> round(last_fifth(one), 3)  # 10 rounds brought 9, the first 8 of them 6.4
    1.3
    """
    if series.late and len(series.late) == len(series.seeds):
        return float(np.mean(series.late))
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


def grid_table(panel: Panel, note: str = "") -> Table:
    """A grid as a table of text, for Markdown.

    >>> from treetop.experiments.comparison import Tally
    >>> matrix = {("a", "b"): Tally(2, 1, 0), ("b", "a"): Tally(0, 1, 2)}
    >>> panel = grid("Table 2", [("a", "igw"), ("b", "greedy")], matrix)
    >>> print(grid_table(panel).rows[1])
    ('b', '0W/1D/2L', '-')
    """
    rows = tuple((line.name, *line.texts) for line in panel.lines)
    return Table(panel.title, ("", *panel.labels), rows, note)


def runs_table(runs: Sequence[Run | RunRecord]) -> rich.table.Table:
    """One line per strategy, best first: mean reward over the whole stream and over its last fifth, and what greedy
    slates of the same models would have brought more, as a share of the reward.

    Greedy of the same settings and seed, a run of its own, is what a line is compared with.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.play import begin, run
    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10)
    >>> played = run(stream, model, Policy())
    >>> runs_table([played]).row_count
    1
    """
    import rich.table

    most = " or ".join(str(k) for k in sorted({int(run.settings["k"]) for run in runs}))
    title = f"Mean reward a round (at most {most} hits)"
    out = rich.table.Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    apart = distinguishing_settings([(run.strategy, run.settings) for run in runs])
    base = {
        (run.seed, setting): run.mean_reward
        for run, (_, setting) in zip(runs, apart, strict=True)
        if run.strategy == "greedy"
    }
    several, set_apart = len({run.seed for run in runs}) > 1, any(setting for _, setting in apart)
    names = ["strategy", *["settings"] * set_apart, *["seed"] * several]
    rewards = ["whole\nstream", "last\nfifth", "cost of\nexploring", *["against\ngreedy"] * bool(base)]
    for head in (*names, *rewards, "rounds/s", "seconds"):
        words = head in ("strategy", "settings")
        out.add_column(head, justify="left" if words else "right", no_wrap=words)
    for run, (own, setting) in sorted(zip(runs, apart, strict=True), key=lambda pair: -pair[0].mean_reward):
        greedy = base.get((run.seed, setting))
        ratio = f"{run.mean_reward / greedy:.2f}x" if greedy else ""
        names = [f"{run.strategy} {own}".strip(), *[setting] * set_apart, *[str(run.seed)] * several]
        cost = f"{run.exploration_cost / run.mean_reward:.2%}" if run.mean_reward else "-"
        rewards = [f"{run.mean_reward:.3f}", f"{run.late_reward:.3f}", cost, *[ratio] * bool(base)]
        speed = run.rounds / max(run.seconds, 1e-3)
        out.add_row(*names, *rewards, f"{speed:,.0f}", f"{run.seconds:.1f}")
    if any(run.found_arms for run in runs):
        found = ", ".join(
            f"{' '.join(filter(None, (run.strategy, own, setting)))}{f' seed {run.seed}' if several else ''} "
            f"{run.found_arms:,} ({run.found_reward:,.0f})"
            for run, (own, setting) in zip(runs, apart, strict=True)
            if run.found_arms
        )
        out.caption = f"Arms that exploration found, and what they have earned since: {found}"
        out.caption_justify = "left"
    return out
