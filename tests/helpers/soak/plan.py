"""What a cell of a soak is: store, workers, how long, which faults in which order, and the bandit that is served."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers.running import named
from helpers.soak.faults import FAULTS, Fault
from helpers.soak.load import Visit
from treetop.bandit import config
from treetop.bandit.bandit import Bandit
from treetop.data.datasets import Dataset

DATA = "synthetic:arms=5000,features=3000,rows=2000,init=4000,nonzeros=30"
LIMITS = config.LimitConfig(seconds=5.0)
FAULT_EVERY = 20.0  # seconds, at the most often, once each fault has had its turn
EARLY = 0.6  # of the faults: those that end processes are among these


@dataclass(frozen=True)
class Plan:
    """`faults` are names of faults; all that suit the store if it is empty. With `own_disk` root gets a small disk."""

    store: str = "sqlite"
    workers: int = 1
    seconds: float = 60.0
    seed: int = 0
    faults: tuple[str, ...] = ()
    data: str = DATA
    clients: int = 6
    own_disk: bool = True

    @property
    def name(self) -> str:
        return f"{self.store}-{self.workers}"

    def order(self, rng: random.Random) -> list[Fault]:
        """The faults in the order in which they come."""
        suited = [f for f in FAULTS if f.store in ("", self.store) and (not self.faults or f.name in self.faults)]
        if wrong := set(self.faults) - {f.name for f in FAULTS}:
            raise ValueError(f"there is no fault {min(wrong)!r}; there are {', '.join(f.name for f in FAULTS)}")
        suited *= max(1, int(self.seconds / FAULT_EVERY / len(suited)))
        rng.shuffle(suited)
        early = sorted(suited, key=lambda f: not f.ends)[: int(EARLY * len(suited))]
        early += [f for f in suited if f.ends and f not in early]
        late = list(suited)
        for f in early:
            late.remove(f)
        rng.shuffle(early)
        return sorted(early, key=lambda f: f.needs_history) + late


def create_bandit(folder: Path, arms: Sequence[str], dataset: Dataset) -> None:
    """Small leaves, early refits, quick limits: things happen in minutes that else take days."""
    refit = config.RefitConfig(first=500, factor=1.3, retry=1.0, retry_most=5.0, keep=6)
    settings = config.Config(policy=config.PolicyConfig(k=5, explore=2), refit=refit, limits=LIMITS)
    names = [f"f{i}" for i in range(dataset.X.columns)]
    assert dataset.X_init is not None
    assert dataset.Y_init is not None
    X_init, Y_init = dataset.X_init.csr(), dataset.Y_init.csr()
    Bandit.create(folder, list(arms), X_init, Y_init, features=names, config=settings).close()


def visits_of(dataset: Dataset) -> list[Visit]:
    X, Y = dataset.X.csr(), dataset.Y.csr()
    liked = [frozenset(f"a{i}" for i in Y[row].indices) for row in range(Y.shape[0])]
    return [Visit(named(X, row), arms) for row, arms in enumerate(liked)]
