"""Single decisions of a run in words: what came, what was shown and why, and what was right. Plays nothing."""

from __future__ import annotations

import numpy as np

from treetop.data.datasets import Stream
from treetop.simulation.play import Run


def example_decisions(run: Run, stream: Stream, n: int = 5) -> list[dict[str, object]]:
    """n decisions from the last tenth of a run: what came, what was shown and why, and what was right.

    >>> from treetop.data.datasets import load
    >>> from treetop.policy.policy import Policy
    >>> from treetop.simulation.play import begin, run
    >>> stream, model = begin(load("synthetic:arms=50,features=30,rows=200,init=100"), 100, 200, 10)
    >>> played = run(stream, model, Policy())
    >>> sorted(example_decisions(played, stream, n=1)[0])
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
