"""Policies that a log can judge: the settings that served a visit, some of them replaced, or another kept model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from treetop.arrays import check_int
from treetop.bandit.config import PolicyConfig
from treetop.policy.budgeted import RUNTIME_PARAMETERS
from treetop.policy.policy import MAX_SLOTS
from treetop.policy.strategies import STRATEGIES

SETTINGS = ("k", "explore", "beam", "beta", "strategy", "diversity")


@dataclass(frozen=True)
class CandidatePolicy:
    """`settings` replace those of each visit, `parameters` those of the strategy; `model` decides instead of the one
    that served.

    >>> CandidatePolicy.of("strategy=epsilon,epsilon=0.1,model=000012")
    CandidatePolicy(settings={'strategy': 'epsilon'}, parameters={'epsilon': 0.1}, model='000012')
    >>> CandidatePolicy.of({"beam": 30}).name
    'beam=30'
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    model: str | None = None

    @classmethod
    def of(cls, given: CandidatePolicy | str | Mapping[str, Any]) -> CandidatePolicy:
        """From text such as `strategy=igw,C=2`, or from a mapping of the same names."""
        if isinstance(given, CandidatePolicy):
            return given
        pairs = _pairs(given) if isinstance(given, str) else dict(given)
        model = pairs.pop("model", None)
        settings = {name: pairs.pop(name) for name in SETTINGS if name in pairs}
        parameters = dict.fromkeys(f.name for strategy in STRATEGIES.values() for f in fields(strategy))
        if wrong := next((name for name in pairs if name not in parameters), None):
            raise ValueError(
                f"policy has {wrong!r}; it may have {', '.join(SETTINGS)}, model, and parameters of its strategy: "
                f"{', '.join(name for name in parameters if name not in RUNTIME_PARAMETERS)}"
            )
        made = cls(settings, pairs, None if model is None else str(model))
        checked = made if "strategy" in settings else replace(made, parameters={})  # else it depends on the visit
        checked.applied(PolicyConfig(k=MAX_SLOTS))  # refuses what no policy has
        return made

    @property
    def name(self) -> str:
        """As it is written on the command line."""
        named = {**self.settings, **self.parameters, **({"model": self.model} if self.model else {})}
        return ",".join(f"{key}={value}" for key, value in named.items()) or "as served"

    def check_explore(self, k: int) -> None:
        """Refuses more slots of exploration than there are, unless the candidate has its own number of slots.

        >>> CandidatePolicy.of("explore=5").check_explore(2)
        Traceback (most recent call last):
        ValueError: policy 'explore=5': explore is 5; it must lie in [0, 2]
        """
        if "k" in self.settings:
            return
        try:
            check_int("explore", self.settings.get("explore", 0), 0, k)
        except ValueError as error:
            raise ValueError(f"policy {self.name!r}: {error}") from None

    def applied(self, served: PolicyConfig) -> PolicyConfig:
        """The settings of a visit as the candidate would have had them.

        >>> CandidatePolicy.of("k=2").applied(PolicyConfig(k=5, explore=3)).explore
        1
        """
        if not self.settings and not self.parameters:
            return served
        kept = served.parameters
        if (strategy := self.settings.get("strategy")) is not None:  # what a bandit knew by then it would know as well
            both = strategy == served.strategy == "budgeted"
            kept = {name: value for name, value in kept.items() if both and name in RUNTIME_PARAMETERS}
        k = self.settings.get("k", served.k)
        explore = self.settings.get("explore", served.explore)
        if isinstance(k, int) and not {"k", "explore"} <= self.settings.keys():
            explore = served.explored(k) if "explore" not in self.settings else min(explore, k)
        new = {**self.settings, "explore": explore, "parameters": {**kept, **self.parameters}}
        return replace(served, **new)


def _pairs(text: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name or not value:
            raise ValueError(f"policy {text!r} has {part!r} in it; name=value,name=value is needed")
        if name in pairs:
            raise ValueError(f"policy {text!r} has {name} twice")
        pairs[name] = value if name in ("model", "strategy", "gamma") else _number(text, name, value)
    if not pairs:
        raise ValueError(f"policy is {text!r}; name=value is needed, such as beam=30 or strategy=igw,C=2")
    return pairs


def _number(text: str, name: str, value: str) -> int | float:
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"policy {text!r}: {name} is {value!r}; a number is needed") from None
    return int(number) if number.is_integer() and "." not in value else number
