"""What the paper reports: its numbers, its names of strategies, and datasets as its tables call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treetop.experiments.comparison import Tally

K = 5  # arms shown a round; the realizable setting has its own
NAMES = {"greedy": "Greedy", "igw": "IGW-topk", "boltzmann": "Boltzmann-topk", "epsilon": "ε-greedy-topk"}
ORDER = ("greedy", "igw", "boltzmann", "epsilon")  # of Table 2

# Table 2: row against column over 6 datasets.
TABLE2 = {
    ("greedy", "igw"): Tally(0, 0, 6),
    ("greedy", "boltzmann"): Tally(1, 0, 5),
    ("greedy", "epsilon"): Tally(0, 1, 5),
    ("igw", "greedy"): Tally(6, 0, 0),
    ("igw", "boltzmann"): Tally(4, 1, 1),
    ("igw", "epsilon"): Tally(6, 0, 0),
    ("boltzmann", "greedy"): Tally(5, 0, 1),
    ("boltzmann", "igw"): Tally(1, 1, 4),
    ("boltzmann", "epsilon"): Tally(3, 0, 3),
    ("epsilon", "greedy"): Tally(5, 1, 0),
    ("epsilon", "igw"): Tally(0, 0, 6),
    ("epsilon", "boltzmann"): Tally(3, 0, 3),
}

# Figure 3(b): amazon-3m, k = 5, r = 3; its last row is a beam of all leaves.
FIGURE3B = {"10": 7.85, "30": 12.84, "100": 27.83, "all": 799.06}


def legend_name(style: str, prefix: str = "X-") -> str:
    """The name in the paper's legends: X- where sampling happens under the reduction of Algorithm 3. What is not the
    paper's keeps its own.

    >>> legend_name("igw"), legend_name("epsilon", prefix=""), legend_name("budgeted")
    ('X-IGW-topk', 'ε-greedy-topk', 'budgeted')
    """
    return prefix + NAMES[style] if style in NAMES else style


def dataset_title(facts: Mapping[str, Any]) -> str:
    """The name of a dataset, never without the word if it is synthetic.

    >>> dataset_title({"name": "synthetic:like=eurlex-4k,noise=0.7", "synthetic": True, "arms": 4271})
    'synthetic like eurlex-4k (noise=0.7)'
    >>> dataset_title({"name": "synthetic:arms=1500,rows=9", "synthetic": True, "arms": 1500})
    'synthetic, 1,500 arms'
    """
    name = str(facts["name"])
    if not name.startswith("synthetic:"):
        return f"{name} (synthetic)" if facts.get("synthetic") else name
    said = dict(part.partition("=")[::2] for part in name.removeprefix("synthetic:").split(","))
    if like := said.pop("like", ""):
        rest = ", ".join(f"{key}={value}" for key, value in said.items())
        return f"synthetic like {like}" + (f" ({rest})" if rest else "")
    return f"synthetic, {facts['arms']:,} arms"
