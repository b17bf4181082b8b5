"""Made-up sets of any size, shaped like the six of the paper if asked. Knows the spec, not the model behind it.

The rows come from `src/core/synthesize.hpp`: arms at the leaves of a hidden hierarchy of topics, Zipf popularity, words
from the topics of a row's labels and from a background, tf-idf values. A set "like" Amazon-3M has its numbers of arms,
features, rows and labels, and nothing else of it: what is measured on it is a synthetic result. It says how fast a
method is, how much memory it takes and whether it learns, not what it would earn on Amazon-3M.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from treetop import _core
from treetop.arrays import Rows, check_float, check_int

PREFIX = "synthetic:"
MAX_ENTRIES = 2**33  # of 8 bytes
ARMS_A_TOPIC = 20

# Arms, rows and init: Table 1 of the paper, but the rows of the two sets that it bootstraps are those of their training
# part. Features, nonzeros and labels: the Extreme Classification Repository. Popularity is not theirs: zipf is 1.
COLUMNS = ("arms", "features", "rows", "init", "nonzeros", "labels")
SHAPES: dict[str, tuple[float, ...]] = {
    "eurlex-4k": (4_271, 5_000, 15_449, 5_000, 237, 5.3),
    "amazoncat-13k": (13_330, 203_882, 1_186_239, 5_000, 71, 5.04),
    "wiki10-31k": (30_938, 101_938, 14_146, 5_000, 673, 18.64),
    "wiki-500k": (501_070, 2_381_304, 1_779_881, 20_000, 385, 4.77),
    "amazon-670k": (670_091, 135_909, 490_449, 20_000, 75, 5.45),
    "amazon-3m": (2_812_281, 337_067, 1_717_899, 50_000, 49, 36.17),
}


@dataclass(frozen=True)
class Spec:
    """What to make: sizes, averages a row, and how hard."""

    arms: int = 10_000
    features: int = 20_000
    rows: int = 50_000
    init: int = 5_000  # rows set apart for initialisation, beside the others
    nonzeros: float = 70.0  # features of a row, on average
    labels: float = 5.0  # labels of a row, on average
    zipf: float = 1.0  # the arm of rank r has popularity r^-zipf
    topics: int = 500  # at the bottom of the hidden hierarchy; by default 20 arms in each, or three times the labels
    noise: float = 0.5  # share of a row's features that say nothing about its labels
    seed: int = 0

    def __post_init__(self) -> None:
        for name, (kind, low, high) in self._limits().items():
            check: Callable[..., float] = check_int if kind is int else check_float
            try:
                check(name, getattr(self, name), low, high)
            except (TypeError, ValueError) as error:
                raise type(error)(f"synthetic: {error}") from None
        entries = (self.rows + self.init) * (self.nonzeros + self.labels)
        if entries > MAX_ENTRIES:
            raise ValueError(
                f"synthetic: {self.rows + self.init:,} rows of {self.nonzeros:g} features and {self.labels:g} labels "
                f"are {entries:.3g} entries; at most {MAX_ENTRIES:.3g} are possible"
            )

    def _limits(self) -> dict[str, tuple[type, float, float]]:
        return {
            "arms": (int, 1, 2**30),
            "features": (int, 1, 2**30),
            "rows": (int, 1, 2**30),
            "init": (int, 1, 2**30),
            "nonzeros": (float, 1, self.features),
            "labels": (float, 1, self.arms),
            "zipf": (float, 0, 10),
            "topics": (int, 1, self.arms),
            "noise": (float, 0, 1),
            "seed": (int, 0, 2**63 - 1),
        }


def parse_spec(text: str) -> Spec:
    """`synthetic:arms=500,rows=2000`, `synthetic:like=amazon-3m,noise=0.7`: what is not said has a default that fits.

    >>> parse_spec("synthetic:like=amazon-670k,rows=200000").arms
    670091
    >>> parse_spec("synthetic:arms=10,features=3").nonzeros
    3
    """
    said = _split(text.removeprefix(PREFIX))
    like = said.pop("like", None)
    if like is not None and like not in SHAPES:
        raise ValueError(f"synthetic: like is {like!r}; it must be one of {', '.join(SHAPES)}")
    types = {field.name: int if field.type == "int" else float for field in fields(Spec)}
    if wrong := [key for key in said if key not in types]:
        raise ValueError(f"synthetic: unknown {wrong[0]!r}; it must be one of like, {', '.join(types)}")
    given = {key: _number(key, value, types[key]) for key, value in said.items()}
    return Spec(**{**_defaults(dict(zip(COLUMNS, SHAPES[like], strict=True)) if like else {}, given), **given})


def _split(text: str) -> dict[str, str]:
    said: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key in said:
            raise ValueError(f"synthetic: {part!r} is {'said twice' if equals else 'not of the form key=value'}")
        said[key] = value
    return said


def _number(key: str, value: str, kind: type) -> Any:
    try:
        return kind(value)
    except ValueError:
        what = "whole number" if kind is int else "number"
        raise ValueError(f"synthetic: {key} is {value!r}; it must be a {what}") from None


def _defaults(shape: dict[str, float], given: dict[str, Any]) -> dict[str, Any]:
    """What was not said: from the shape, cut down to the arms and features that there are."""
    base: dict[str, Any] = {field.name: field.default for field in fields(Spec)} | shape
    arms, features = (max(1, given.get(key, base[key])) for key in ("arms", "features"))
    labels = base["labels"] = min(base["labels"], arms)
    base["nonzeros"] = min(base["nonzeros"], features)
    base["topics"] = max(1, round(arms / max(ARMS_A_TOPIC, 3 * given.get("labels", labels))))
    return base


def generate(spec: Spec, threads: int = 0) -> tuple[Rows, Rows, Rows, Rows]:
    """X, Y, X_init, Y_init. The same spec gives the same bytes on any number of threads.

    Row i of either part depends on the spec without `rows` and `init`: a longer set begins with the shorter one.

    >>> X, Y, X_init, Y_init = generate(parse_spec("synthetic:arms=50,features=30,rows=200,init=100"))
    >>> len(X), len(Y_init), Y.columns
    (200, 100, 50)
    """
    start, index, value, y_start, y_index = _core.synthesize(
        spec.arms,
        spec.features,
        spec.topics,
        spec.nonzeros,
        spec.labels,
        spec.zipf,
        spec.noise,
        spec.seed,
        spec.init,
        spec.rows,
        threads,
    )
    X = Rows(start, index, value, spec.features)
    Y = Rows(y_start, y_index, np.ones(len(y_index), np.float32), spec.arms)
    end = spec.init + spec.rows
    return X.slice(spec.init, end), Y.slice(spec.init, end), X.head(spec.init), Y.head(spec.init)
