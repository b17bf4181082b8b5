"""Results as a picture: an interval a candidate, beside what was served. Loads matplotlib when it draws.

A candidate that the log hardly shows has no point in its interval: it may lie anywhere there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treetop.evaluation.verdict import CandidateResult, Estimate, short_verdict

COLOURS = {"better": "#1a7f37", "worse": "#c0392b"}
OTHERWISE = "#59636e"


def draw_results(results: Sequence[CandidateResult], served: Estimate, path: Path) -> None:
    """Writes a picture, whose kind follows from its name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw_results([], Estimate(1.0, 0.9, 1.1), Path(folder) / "results.png")
    ...     (Path(folder) / "results.png").exists()
    True
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 1.6 + 0.45 * len(results)), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(served.low, served.high, color="#0072b2", alpha=0.15, linewidth=0)
    axes.axvline(served.value, color="#0072b2", label="as served")
    names = []
    for place, result in enumerate(result for result in results if result.rounds):
        e, colour = result.per_visit, COLOURS.get(result.verdict, OTHERWISE)
        point = "o" if result.answered else "none"
        axes.errorbar(e.value, place, xerr=[[e.value - e.low], [e.high - e.value]], fmt=point, color=colour, capsize=4)
        names.append(f"{result.name}\n{short_verdict(result.verdict)}")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.set_xlabel("reward a visit")
    axes.legend(loc="best", frameon=False)
    figure.savefig(path, dpi=140)
