"""What a run looks like to a person: a table, a picture, decisions in words. Knows nothing of how runs are made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from treetop.datasets import Stream
from treetop.experiment import Record
from treetop.simulate import Run

if TYPE_CHECKING:
    from rich.table import Table

COLOURS = {"greedy": "#7f7f7f", "epsilon": "#e69f00", "boltzmann": "#009e73", "igw": "#0072b2"}


def table(runs: Sequence[Run | Record], k: int) -> Table:
    """One line per strategy, best first: mean reward over the whole stream and over its last fifth."""
    from rich.table import Table

    out = Table(title=f"Mean reward a round (at most {k} hits)", title_justify="left")
    for head in ("strategy", "whole stream", "last fifth", "against greedy", "rounds/s", "seconds"):
        out.add_column(head, justify="left" if head == "strategy" else "right")
    base = next((run.mean_reward for run in runs if run.strategy == "greedy"), None)
    for run in sorted(runs, key=lambda run: -run.mean_reward):
        speed = run.rounds / max(run.seconds, 1e-3)
        ratio = "" if not base else f"{run.mean_reward / base:.2f}x"
        name = f"{run.strategy}" + (f" (seed {run.seed})" if run.seed else "")
        out.add_row(
            name, f"{run.mean_reward:.3f}", f"{run.late_reward:.3f}", ratio, f"{speed:,.0f}", f"{run.seconds:.1f}"
        )
    return out


def plot(runs: Sequence[Run | Record], path: Path, title: str) -> None:
    """The progressive mean reward of every run, as in the paper's Figure 3."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4.8), dpi=150)
    for run in sorted(runs, key=lambda run: -run.mean_reward):
        rounds, means = zip(*run.checkpoints, strict=True)
        name = run.strategy + (f", seed {run.seed}" if run.seed else "")
        axes.plot(rounds, means, label=f"{name}: {means[-1]:.2f}", color=COLOURS.get(run.strategy), linewidth=2)
    for refit in runs[0].settings["refits"]:
        axes.axvline(refit, color="#dddddd", linewidth=0.8, zorder=0)
    axes.set_xlabel("rounds (grey lines: refits)")
    axes.set_ylabel("mean reward a round so far")
    axes.set_title(title, loc="left", fontsize=11)
    axes.set_xlim(0, runs[0].checkpoints[-1][0])
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def in_words(run: Run, stream: Stream, n: int = 5) -> list[dict[str, object]]:
    """n decisions from the last tenth of a run: what came, what was shown and why, and what was right."""
    data, rounds = stream.dataset, len(stream.rows)
    picked = np.random.default_rng(run.seed).choice(np.arange(rounds - max(n, rounds // 10), rounds), n, replace=False)
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
