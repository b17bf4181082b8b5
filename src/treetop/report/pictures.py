"""Pictures of panels, by matplotlib, which is loaded only when something is drawn. Knows shapes, not results."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from treetop.experiments.records import RunRecord, distinguishing_settings
from treetop.report.sections import Line, Panel
from treetop.simulation.play import Run

# Okabe and Ito's colours, which the colour-blind can tell apart: on white, on black, and the line.
SHADES = ("#eff3ff", "#d3e1f1", "#b3cde3", "#8cb3d6", "#6497c6", "#3f7ab3", "#20599b", "#08306b")  # light to dark
STYLES = {
    "greedy": ("#7f7f7f", "#a8a8a8", "-"),
    "epsilon": ("#d98f00", "#e69f00", "-"),
    "boltzmann": ("#009e73", "#2bc79a", "-"),
    "igw": ("#0072b2", "#56b4e9", "-"),
    "igw-all": ("#b0457f", "#e08dba", "--"),
    "paper": ("#b9b9b9", "#6d6d6d", "-"),
    "ours": ("#0072b2", "#56b4e9", "-"),
    "near: searched further": ("#f0c808", "#f0c808", "-"),
    "far: one effective arm": ("#0072b2", "#56b4e9", "-"),
    "single arm": ("#8a8a8a", "#a8a8a8", "-"),
    **{f"shade {i}": (colour, colour, "-") for i, colour in enumerate(SHADES)},
}
DASHES = ("-", "--", ":", "-.")  # of lines of one strategy, in turn
OTHERS = [("#d55e00", "#ff8c42", "-"), ("#8c6bb1", "#b79be0", "-"), ("#6b6b00", "#c9c944", "-")]
INK = {"light": ("#1f2328", "#d9dde1"), "dark": ("#e6e8ea", "#41464d")}  # text, grid
WIDTH, HEIGHT = 4.6, 3.3  # of one panel, in inches
MANY_ROWS = 20  # of intervals


def plot(runs: Sequence[Run | RunRecord], path: Path, title: str) -> None:
    """The progressive mean reward of every run, as in the paper's Figure 3.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.play import begin, run
    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10)
    >>> played = run(stream, model, Policy())
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     plot([played], Path(folder, "curve.png"), "a toy")
    ...     Path(folder, "curve.png").stat().st_size > 10_000
    True
    """
    apart = distinguishing_settings([(run.strategy, run.settings) for run in runs])
    lines = [
        Line(
            " ".join(filter(None, (run.strategy, *words)))
            + (f", seed {run.seed}" if run.seed else "")
            + f": {run.mean_reward:.2f}",
            run.strategy,
            tuple(m for _, m in run.checkpoints),
            tuple(float(t) for t, _ in run.checkpoints),
        )
        for run, words in sorted(zip(runs, apart, strict=True), key=lambda pair: -pair[0].mean_reward)
    ]
    panel = Panel(title, tuple(lines), "mean reward a round so far", marks=tuple(runs[0].settings["refits"]))
    draw([panel], path, width=8, height=4.8)


def draw(panels: Sequence[Panel], path: Path, width: float = WIDTH, height: float = HEIGHT) -> Path:
    """The panels side by side, two in a row as in the paper, under one legend; PNG or SVG by the file's ending.

    >>> panel = Panel("debian", (Line("X-IGW-topk", "igw", (0.5, 0.9), (1.0, 2.0)),), "mean reward")
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     draw([panel], Path(folder, "curve.svg")).name
    'curve.svg'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_rendered(panels, path.suffix.lstrip("."), "light", width, height, columns=2, lettered=True))
    return path


def svg(panel: Panel, theme: str) -> bytes:
    """One panel with its own legend, on a transparent ground, for a page in light or dark.

    >>> panel = Panel("debian", (Line("X-IGW-topk", "igw", (0.5, 0.9), (1.0, 2.0)),), "mean reward")
    >>> b"<svg" in svg(panel, "dark")
    True
    """
    return _rendered([panel], "svg", theme, WIDTH, HEIGHT, columns=1, lettered=False)


def _rendered(
    panels: Sequence[Panel], kind: str, theme: str, width: float, height: float, columns: int, lettered: bool
) -> bytes:
    if not panels:
        raise ValueError("0 panels; at least 1 is needed for a picture")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    ink, grid = INK[theme]
    settings: Any = {
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "grid.color": grid,
        "axes.facecolor": "none",
        "font.size": 10,
        "axes.titlesize": 10.5,
        "svg.hashsalt": "treetop",
    }
    columns = min(columns, len(panels))
    rows = math.ceil(len(panels) / columns)
    with plt.rc_context(settings):
        figure, axes = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
        for i, (panel, ax) in enumerate(zip(panels, axes.flat, strict=False)):
            _panel(ax, panel, theme)
            letter = f"({chr(97 + i)}) " if lettered and len(panels) > 1 else ""
            ax.set_title(letter + panel.title, loc="left")
        for ax in axes.flat[len(panels) :]:
            ax.set_axis_off()
        _legend(figure, list(axes.flat)[: len(panels)], width * columns)
        out = io.BytesIO()
        ground = "none" if kind == "svg" else "white"
        stamp: Any = {"Date": None} if kind == "svg" else None  # the same picture is the same bytes
        figure.savefig(out, format=kind, dpi=150, facecolor=ground, bbox_inches="tight", metadata=stamp)
        plt.close(figure)
    return out.getvalue()


def _panel(ax: Any, panel: Panel, theme: str) -> None:
    kinds = {"curves": _curves, "bars": _bars, "grid": _grid, "intervals": _intervals}
    if panel.kind not in kinds:
        raise ValueError(f"a panel of kind {panel.kind!r}; it must be one of {', '.join(kinds)}")
    kinds[panel.kind](ax, panel, theme)
    ax.spines[["top", "right"]].set_visible(False)


def _colours(panel: Panel, theme: str) -> list[tuple[str, str]]:
    """Colour and line of every line; strategies of the user's own take turns with the colours left over.

    A strategy has one colour, and from its second line on (another setting or seed) another dash.
    """
    others = cycle(OTHERS)
    known = {style: STYLES.get(style) or next(others) for style in dict.fromkeys(line.style for line in panel.lines)}
    before: dict[str, int] = {}
    found = []
    for style in (line.style for line in panel.lines):
        light, dark, dash = known[style]
        n = before[style] = before.get(style, -1) + 1
        found.append((light if theme == "light" else dark, DASHES[n % len(DASHES)] if n else dash))
    return found


def _curves(ax: Any, panel: Panel, theme: str) -> None:
    for line, (colour, dash) in zip(panel.lines, _colours(panel, theme), strict=True):
        ax.plot(line.x, line.y, label=line.name, color=colour, linestyle=dash, linewidth=1.8)
        if line.low and line.low != line.y:
            ax.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
    ax.set_xlim(0, max(line.x[-1] for line in panel.lines))
    ax.set_ylim(*_limits(panel.lines))
    for refit in panel.marks:
        ax.axvline(refit, color=INK[theme][1], linewidth=0.8, zorder=0)
    ax.set_xlabel("rounds (upright lines: refits)" if panel.marks else "rounds")
    ax.set_ylabel(panel.ylabel)
    ax.xaxis.set_major_locator(_ticker().MaxNLocator(5))
    ax.xaxis.set_major_formatter(_ticker().EngFormatter(sep=""))
    ax.yaxis.set_major_formatter("{x:,g}")
    ax.grid(axis="y", linewidth=0.6)
    ax.set_axisbelow(True)


def _limits(lines: Sequence[Line]) -> tuple[float, float]:
    """The range of the curves, from 0 if they are above it. The noise of the first rounds does not count, nor bands."""
    settled = [y for line in lines for y in line.y[len(line.y) // 50 :]]
    low, high = min(0.0, *settled), max(0.0, *settled)
    room = 0.06 * (high - low) or 1.0
    return low - room * (low < 0), high + room * (high > 0)


def _bars(ax: Any, panel: Panel, theme: str) -> None:
    """Bars by label on a logarithmic axis, one colour a line, each with its value; 0 is no bar."""
    thick = 0.8 / len(panel.lines)
    for i, (line, (colour, _)) in enumerate(zip(panel.lines, _colours(panel, theme), strict=True)):
        at = [j + i * thick for j in range(len(line.y))]
        texts = line.texts or [f"{value:g}" for value in line.y]
        drawn = [(place, value, text) for place, value, text in zip(at, line.y, texts, strict=True) if value > 0]
        ax.barh([d[0] for d in drawn], [d[1] for d in drawn], height=thick * 0.92, color=colour, label=line.name)
        for place, value, text in drawn:
            ax.annotate(text, (value, place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8.5)
    ax.set_yticks([j + 0.4 - thick / 2 for j in range(len(panel.labels))], panel.labels)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlim(right=ax.get_xlim()[1] * 6)
    ax.set_xlabel(panel.ylabel)


def _grid(ax: Any, panel: Panel, theme: str) -> None:
    """Rows against columns; y from -1 (always loses) to 1 (always wins) gives the colour."""
    win, loss = ("#0072b2", "#d55e00") if theme == "light" else ("#56b4e9", "#ff8c42")
    n = len(panel.labels)
    for i, line in enumerate(panel.lines):
        for j, (value, text) in enumerate(zip(line.y, line.texts, strict=True)):
            if text != "-":
                colour = win if value >= 0 else loss
                ax.add_patch(
                    _patches().Rectangle((j, i), 1, 1, color=colour, alpha=0.08 + 0.5 * abs(value), linewidth=0)
                )
            ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8.5)
    ax.set_xlim(0, n)
    ax.set_ylim(len(panel.lines), 0)
    ax.set_xticks(
        [j + 0.5 for j in range(n)], [label.replace("-topk", "\n-topk") for label in panel.labels], fontsize=8
    )
    ax.set_yticks([i + 0.5 for i in range(len(panel.lines))], [line.name for line in panel.lines], fontsize=8)
    ax.tick_params(length=0)
    ax.spines[["left", "bottom"]].set_visible(False)


def _intervals(ax: Any, panel: Panel, theme: str) -> None:
    """Stretches of a line in rows, from the top; one without width is a dot. Marks are upright lines."""
    last = 0.0
    for line, (colour, _) in zip(panel.lines, _colours(panel, theme), strict=True):
        drawn = list(zip(line.y, line.low, line.high, strict=True))
        wide, dots = [d for d in drawn if d[2] > d[1]], [d for d in drawn if d[2] == d[1]]
        if wide:
            at, low, high = zip(*wide, strict=True)
            width = [b - a for a, b in zip(low, high, strict=True)]
            tall = 0.9 if max(line.y) < MANY_ROWS else 1.0  # many rows are read as blocks
            ax.barh(at, width, left=low, height=tall, color=colour, linewidth=0, label=line.name)
            between = [at_y - tall / 2 for at_y in at], [at_y + tall / 2 for at_y in at]
            if not line.style.startswith("shade"):
                ax.vlines(high, *between, color="white" if theme == "light" else "black", linewidth=0.8)
        if dots:
            ax.plot([d[1] for d in dots], [d[0] for d in dots], "o", color=colour, markersize=4, label=line.name)
        last = max([last, *line.y])
    for mark in panel.marks:
        ax.axvline(mark, color=INK[theme][0], linewidth=1.0, linestyle="--")
    ax.set_xlim(0, 1)
    ax.set_ylim(last + 0.6, -0.6)
    ax.set_xlabel(panel.labels[0] if panel.labels else "")
    ax.set_ylabel(panel.ylabel)
    ax.yaxis.set_major_locator(_ticker().MaxNLocator(8, integer=True))


def _legend(figure: Any, axes: Sequence[Any], inches: float) -> None:
    """One legend for all panels, below them: every name once, in the order in which they come."""
    entries: dict[str, Any] = {}
    for ax in axes:
        handles, names = ax.get_legend_handles_labels()
        for handle, name in zip(handles, names, strict=True):
            entries.setdefault(name, handle)
    figure.tight_layout()
    if len(entries) < 2:
        return
    across = max(1, min(len(entries), int(inches * 11 / (max(map(len, entries)) + 6))))
    figure.legend(
        entries.values(), entries.keys(), loc="upper center", bbox_to_anchor=(0.5, 0), ncols=across, frameon=False
    )


def _ticker() -> Any:
    from matplotlib import ticker

    return ticker


def _patches() -> Any:
    from matplotlib import patches

    return patches
