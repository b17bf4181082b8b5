"""The learners by name, as settings, config.toml and the command line know them."""

from __future__ import annotations

from treetop.learning.label_samples import LabelSamples
from treetop.learning.linear import Linear
from treetop.learning.pooled import Mechanisms, Pooled
from treetop.learning.refit import Learner
from treetop.learning.routes import RouteCache

LEARNERS = ("paper", "treetop")
DEFAULT_STRATEGY = {"paper": "igw", "treetop": "budgeted"}  # what goes with each learner unless somebody asks


def make_learner(
    name: str,
    *,
    loss: str = "squared",
    cost: float | None = None,
    label_samples: LabelSamples | None = None,
    mechanisms: Mechanisms = Mechanisms(),  # noqa: B008
    route_cache: RouteCache | None = None,
    vectors: tuple[tuple[int, int], ...] = (),
    window: int = 0,
) -> Learner:
    """A learner by its name; `window` is for the paper's, the four settings before it are for treetop's. Without `cost`
    it has its own default.

    >>> make_learner("paper", cost=2.0).cost
    2.0
    >>> make_learner("treetop", loss="absolute")
    Traceback (most recent call last):
    ValueError: loss='absolute' is for the learner paper, not for treetop
    """
    if name not in LEARNERS:
        raise ValueError(f"learner is {name!r}; it must be one of {', '.join(LEARNERS)}")
    if name == "paper":
        return Linear(loss, 1.0 if cost is None else cost, window=window)
    if loss != "squared":
        raise ValueError(f"loss={loss!r} is for the learner paper, not for {name}")
    how = {"label_samples": label_samples, "mechanisms": mechanisms, "route_cache": route_cache, "vectors": vectors}
    return Pooled(cost, **how)  # type: ignore[arg-type]
