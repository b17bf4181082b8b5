"""What a learner that refits routing keeps beside the routing that serves. Decisions read `path_weight` alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import Fitted, Rows, check_float, check_int

FOLDS = 2
PARTS, FINGERPRINTS = ("start", "index", "value"), "fingerprints"


@dataclass(frozen=True, eq=False, kw_only=True)
class LearnedRouting:
    """Where routing came from, and routing that has not seen half of the contexts.

    - `base`: a row a node, from before any reward: where arms belong is judged by it
    - `held_out`: for each fold of the contexts, routing of all nodes and arms that was fitted on the other folds
    - `digest`: of all that routing was fitted from; a refit from the same takes it as it is
    - `rounds`: how many rounds, the first ones, it was fitted from
    - `path_weight`: how much the log of the path to the parent of an arm's leaf counts in the arm's route
    """

    base: Rows
    held_out: tuple[Rows, ...]
    digest: int
    rounds: int
    path_weight: float = 1.0

    def __post_init__(self) -> None:
        check_int("digest", self.digest, 0, 2**63 - 1)
        check_int("rounds", self.rounds, 0, 2**62)
        check_float("path_weight", self.path_weight, 0, 1)

    def check_fits(self, nodes: int, arms: int, columns: int) -> None:
        """Refuses routing of other nodes, arms or features than a model has.

        >>> none = Rows(np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 1)
        >>> LearnedRouting(base=none, held_out=(none, none), digest=0, rounds=0).check_fits(nodes=1, arms=2, columns=1)
        Traceback (most recent call last):
        ValueError: routing of a fold has 1 rows; 1 nodes and 2 arms need 3
        """
        if len(self.base) != nodes:
            raise ValueError(f"routing before any reward has {len(self.base)} rows; there are {nodes} nodes")
        if len(self.held_out) != FOLDS:
            raise ValueError(f"there is routing of {len(self.held_out)} folds; there must be {FOLDS}")
        for rows in self.held_out:
            if isinstance(rows, Fitted) and len(rows.fingerprints) != len(rows):
                raise ValueError(f"{len(rows.fingerprints)} fingerprints of routing of a fold with {len(rows)} rows")
            if len(rows) != nodes + arms:
                raise ValueError(
                    f"routing of a fold has {len(rows)} rows; {nodes} nodes and {arms} arms need {nodes + arms}"
                )
        for rows in (self.base, *self.held_out):
            name = "routing before any reward" if rows is self.base else "routing of a fold"
            if rows.columns != columns:
                raise ValueError(f"{name} has {rows.columns} columns; the model has {columns}")
            if not _core.inspect_rows(rows.start, rows.index, rows.value, columns, name):
                raise ValueError(f"{name}: indices must rise strictly in every row")

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """What is saved as files."""
        named = {"base_routing": self.base, **{f"held_out_{f}": rows for f, rows in enumerate(self.held_out)}}
        found = {f"{name}_{part}": getattr(rows, part) for name, rows in named.items() for part in PARTS}
        fitted = {name: rows for name, rows in named.items() if isinstance(rows, Fitted)}
        return found | {f"{name}_{FINGERPRINTS}": rows.fingerprints for name, rows in fitted.items()}

    def numbers(self) -> dict[str, Any]:
        return {"digest": self.digest, "rounds": self.rounds, "path_weight": self.path_weight}


def load_learned_routing(arrays: dict[str, Any], numbers: dict[str, Any] | None, columns: int) -> LearnedRouting | None:
    """From what was saved; None if nothing was.

    >>> load_learned_routing({}, None, columns=3) is None
    True
    """
    if numbers is None:
        if "base_routing_start" in arrays:
            raise ValueError("there are files of routing before any reward, but no numbers that go with them")
        return None
    names = ("base_routing", *(f"held_out_{fold}" for fold in range(FOLDS)))
    base, *held_out = (load_rows(arrays, name, columns) for name in names)
    return LearnedRouting(base=base, held_out=tuple(held_out), **numbers)


def load_rows(arrays: dict[str, Any], name: str, columns: int) -> Rows:
    """Weights from what was saved, with their fingerprints where these are known.

    >>> saved = {"a_start": np.zeros(1, np.int64), "a_index": np.zeros(0, np.int32), "a_value": np.zeros(0, np.float32)}
    >>> len(load_rows(saved, "a", columns=3))
    0
    """
    parts = arrays[f"{name}_start"], arrays[f"{name}_index"], arrays[f"{name}_value"], columns
    fingerprints = arrays.get(f"{name}_{FINGERPRINTS}")
    return Rows(*parts) if fingerprints is None else Fitted(*parts, fingerprints)
