"""Estimators by name: how rounds are weighed, what is made of that, and what it assumes. Computes nothing.

`ips` is the mean of the plain weights, `snips` the self-normalised one, `controlled` that with control variates: all
three with the betting interval of their weights. `dr` and `offcem` have a reward model's say in them and may fall far
below 0, so their interval is the normal approximation's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SLATE, SLOTS = "slate", "slots"
NAMES = (
    "ips-, snips- or controlled- with slate or slots; dr-slate, dr-slots; and, with a height of the tree for H (0: its "
    "leaves), ips-nodes-H, snips-nodes-H, offcem-H"
)
NAME = re.compile(r"(ips|snips|controlled|dr)-(slate|slots)|(ips|snips)-(nodes-\d+)|(offcem)-(\d+)")
ASSUMES = {
    SLATE: "nothing",
    SLOTS: "a slot's reward does not depend on the slots below it",
    "nodes": "arms of one node earn alike",
    "offcem": "the reward model knows how arms of one node differ",
}
ONE_LOOK = "the interval is the normal approximation's: for one look, after many rounds"


def node_way(height: int) -> str:
    """The name of weights by nodes, `height` levels above the leaves.

    >>> node_way(0)
    'nodes-0'
    """
    return f"nodes-{height}"


@dataclass(frozen=True)
class Estimator:
    """What is computed, `kind`, from rounds weighed in a `way`.

    >>> Estimator.of("snips-nodes-1"), Estimator.of("offcem-0").way
    (Estimator(kind='snips', way='nodes-1'), 'nodes-0')
    >>> Estimator.of("dr-slots").name, Estimator.of("offcem-0").assumes
    ('dr-slots', 'the reward model knows how arms of one node differ')
    """

    kind: str
    way: str

    @classmethod
    def of(cls, name: str) -> Estimator:
        """By its name. Raises ValueError with all names for any other."""
        if (found := NAME.fullmatch(name)) is None:
            raise ValueError(f"estimator is {name!r}; there are {NAMES}")
        kind, way = (part for part in found.groups() if part is not None)
        return cls(kind, node_way(int(way)) if kind == "offcem" else way)

    @property
    def name(self) -> str:
        return f"offcem-{self.height}" if self.kind == "offcem" else f"{self.kind}-{self.way}"

    @property
    def height(self) -> int | None:
        """Of the nodes that it weighs by; None if it does not."""
        return int(self.way.removeprefix("nodes-")) if self.way.startswith("nodes-") else None

    @property
    def by_model(self) -> bool:
        """Whether a reward model has a say in it."""
        return self.kind in ("dr", "offcem")

    @property
    def supposes(self) -> str:
        """What its number makes of what the log hardly shows.

        >>> Estimator.of("snips-slots").supposes, Estimator.of("dr-slots").supposes
        ('if it earned like the rest', 'if it earned what the reward model says')
        """
        if self.by_model:
            return "if it earned what the reward model says"
        said = {"snips": "like the rest", "controlled": "a part of what the reward model says"}
        return f"if it earned {said.get(self.kind, 'nothing')}"

    @property
    def assumes(self) -> str:
        return ASSUMES["offcem" if self.kind == "offcem" else self.way.partition("-")[0]]

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be said beside its numbers.

        >>> Estimator.of("ips-slate").notes, Estimator.of("ips-nodes-0").notes
        ((), ('biased where it does not hold that arms of one node earn alike',))
        """
        biased = () if self.height is None else (f"biased where it does not hold that {self.assumes}",)
        return (*biased, *((ONE_LOOK,) if self.by_model else ()))
