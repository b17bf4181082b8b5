"""Arms with made-up attributes."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, PolicyConfig, TreeConfig

N = 300


def made_up(seed: int, n: int = N) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    some: NDArray[np.bool_] = rng.random((4, n)) < 0.9
    return {
        "price": [float(round(v)) if s else None for v, s in zip(rng.exponential(20, n), some[0], strict=True)],
        "in_stock": [bool(v < 0.7) if s else None for v, s in zip(rng.random(n), some[1], strict=True)],
        "brand": [f"b{v}" if s else None for v, s in zip(rng.integers(0, 90, n), some[2], strict=True)],
        "category": [f"d{v % 3} > c{v}" if s else None for v, s in zip(rng.integers(0, 20, n), some[3], strict=True)],
    }


def shop_of(folder: Path, seed: int = 0) -> tuple[Bandit, dict[str, list[Any]]]:
    rng = np.random.default_rng(seed)
    values = made_up(seed)
    arms = Catalogue(
        [f"s{i}" for i in range(N)],
        rng.normal(size=(N, 6)),
        values["category"],
        {name: listed for name, listed in values.items() if name != "category"},
    )
    policy = PolicyConfig(k=4, explore=3, beam=2, strategy="igw")
    return Bandit.create(folder, arms, config=Config(policy, TreeConfig(10))), values
