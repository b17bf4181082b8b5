"""Experiments on live traffic as config.toml has them, and the one that runs as `current` has it. Reads no file.

[experiments.beams]
unit = "visitor"
[experiments.beams.variants]
now = {share = 0.5}
wide = {share = 0.5, beam = 30}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from treetop.arrays import check_float
from treetop.log.keys import Keys

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
ROUNDING = 1e-9  # how far beyond 1 the sum of shares may come
SHARE = "share"


@dataclass(frozen=True)
class ExperimentConfig:
    """Named variants, each with its `share` of the traffic and what differs in it: settings of the policy, or a model.

    `unit` is the name of the key, among those that a request carries, that says who is asking: the same unit always
    gets the same variant. A request without it is a unit of its own. The others are compared with the variant
    `baseline`, the first if none is named. What the shares leave over is in no variant.

    >>> ExperimentConfig({"now": {"share": 0.5}, "wide": {"share": 0.5, "beam": 30}}).compared_with
    'now'
    >>> ExperimentConfig({"now": {"share": 0.7}, "wide": {"share": 0.5, "beam": 30}})
    Traceback (most recent call last):
    ValueError: the shares of the variants add up to 1.2; they must not exceed 1
    """

    variants: Mapping[str, Mapping[str, Any]]
    unit: str = "visitor"
    baseline: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.variants, Mapping) or len(self.variants) < 2:
            raise ValueError(f"variants are {self.variants!r}; two or more are needed, each with its share")
        for name, settings in self.variants.items():
            _check_name("variant", name)
            if not isinstance(settings, Mapping) or SHARE not in settings:
                raise ValueError(f"variant {name!r} is {settings!r}; it needs a share, such as {{share = 0.5}}")
            check_float(f"the share of variant {name!r}", settings[SHARE], 1e-6, 1)
        total = sum(float(settings[SHARE]) for settings in self.variants.values())
        if total > 1 + ROUNDING:
            raise ValueError(f"the shares of the variants add up to {total:g}; they must not exceed 1")
        _check_name("unit", self.unit)
        if self.baseline and self.baseline not in self.variants:
            raise ValueError(f"baseline is {self.baseline!r}; the variants are {', '.join(self.variants)}")

    @property
    def compared_with(self) -> str:
        """The variant that the others are compared with."""
        return self.baseline or next(iter(self.variants))

    def settings(self, variant: str) -> dict[str, Any]:
        """What differs in a variant, its share left out.

        >>> ExperimentConfig({"now": {"share": 0.5}, "wide": {"share": 0.5, "beam": 30}}).settings("wide")
        {'beam': 30}
        """
        if variant not in self.variants:
            raise ValueError(f"there is no variant {variant!r}; there are {', '.join(self.variants)}")
        return {key: value for key, value in self.variants[variant].items() if key != SHARE}


@dataclass(frozen=True)
class Experiment(ExperimentConfig):
    """An experiment as it was started: its name, and when. What config.toml says later does not change it."""

    name: str = ""
    started: float = 0.0

    @classmethod
    def read(cls, found: Mapping[str, Any] | None) -> Experiment | None:
        """From what `current` says."""
        return None if found is None else cls(**found)

    def variant_of(self, unit: str) -> str | None:
        """The variant of a unit, by a hash of it and of the experiment's name; None for one that is in no variant.

        >>> beams = Experiment({"now": {"share": 0.5}, "wide": {"share": 0.25, "beam": 30}}, name="beams")
        >>> [beams.variant_of(f"visitor-{i}") for i in range(5)] == [beams.variant_of(f"visitor-{i}") for i in range(5)]
        True
        >>> {beams.variant_of(str(i)) for i in range(99)} == {"now", "wide", None}
        True
        """
        place = _place(f"{self.name} {unit}")
        for name, settings in self.variants.items():
            place -= float(settings[SHARE])
            if place < 0:
                return name
        return None

    def unit_of(self, event_id: str, keys: Keys) -> str:
        """Who is asking: the value of the unit's key, or the event itself if it carries none.

        >>> Experiment({"a": {"share": 0.5}, "b": {"share": 0.5}}, name="ab").unit_of("visit-1", (("visitor", "7"),))
        '7'
        """
        return next((value for name, value in keys if name == self.unit), event_id)

    def models(self) -> set[str]:
        """The models that variants name."""
        return {str(settings["model"]) for settings in self.variants.values() if "model" in settings}

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)


def _place(text: str) -> float:
    """A number in [0, 1) that anybody can compute again."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") / 2.0**64


def _check_name(what: str, name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"the name of a {what} is {name!r}; it must be 1 to 64 letters, digits, - or _")


def parse_experiments(tables: object) -> tuple[dict[str, ExperimentConfig], dict[str, str]]:
    """The table [experiments] of config.toml: those that can be started, and what is wrong with each of the others.

    >>> parse_experiments({"beams": {"variants": {"a": {"share": 0.5}}}})[1]["beams"]
    "[experiments.beams] variants are {'a': {'share': 0.5}}; two or more are needed, each with its share"
    """
    if not isinstance(tables, Mapping):
        raise ValueError(f"experiments is {tables!r}; it must hold tables such as [experiments.beams]")
    found = {name: _parse_experiment(name, table) for name, table in tables.items()}
    good = {name: one for name, one in found.items() if isinstance(one, ExperimentConfig)}
    return good, {name: why for name, why in found.items() if isinstance(why, str)}


def _parse_experiment(name: str, table: object) -> ExperimentConfig | str:
    """An experiment, or what is wrong with it."""
    try:
        _check_name("experiment", name)
        if not isinstance(table, Mapping) or "variants" not in table:
            raise ValueError("has no variants")
        if wrong := next((key for key in table if key not in ("variants", "unit", "baseline")), None):
            raise ValueError(f"has no {wrong!r}; it has variants, unit, baseline")
        return ExperimentConfig(**table)
    except (ValueError, TypeError) as error:
        return f"[experiments.{name}] {error}"


def experiments_text(experiments: Mapping[str, ExperimentConfig]) -> list[str]:
    """The same as text of config.toml; `parse_experiments` reads it back.

    >>> print(experiments_text({"ab": ExperimentConfig({"a": {"share": 0.5}, "b": {"share": 0.5, "beam": 30}})})[0])
    [experiments.ab]
    unit = "visitor"
    baseline = "a"
    [experiments.ab.variants]
    a = {share = 0.5}
    b = {share = 0.5, beam = 30}
    <BLANKLINE>
    """
    out = []
    for name, experiment in experiments.items():
        lines = [f"[experiments.{name}]", f'unit = "{experiment.unit}"', f'baseline = "{experiment.compared_with}"']
        lines.append(f"[experiments.{name}.variants]")
        for variant, settings in experiment.variants.items():
            pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in settings.items())
            lines.append(f"{variant} = {{{pairs}}}")
        out.append("\n".join(lines) + "\n")
    return out
