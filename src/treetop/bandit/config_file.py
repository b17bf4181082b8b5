"""config.toml as a text: read, checked and written."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from treetop.bandit.caps import CapConfig
from treetop.bandit.experiment_config import experiments_text, parse_experiments
from treetop.bandit.refit_config import RefitConfig as RefitConfig

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib
from treetop.bandit.config import (
    Config,
    FeatureConfig,
    LearnerConfig,
    LimitConfig,
    PersonalizerConfig,
    PolicyConfig,
    ReplicaConfig,
    RewardConfig,
    SegmentConfig,
    TreeConfig,
)
from treetop.files import put
from treetop.policy.budgeted import RUNTIME_PARAMETERS

CONFIG = "config.toml"


T = TypeVar("T")


TABLES: dict[str, type[Any]] = {
    "policy": PolicyConfig,
    "tree": TreeConfig,
    "features": FeatureConfig,
    "learner": LearnerConfig,
    "refit": RefitConfig,
    "rewards": RewardConfig,
    "segments": SegmentConfig,
    "caps": CapConfig,
    "limits": LimitConfig,
    "replicas": ReplicaConfig,
    "personalizer": PersonalizerConfig,
}


def read_config(path: Path) -> Config:
    """The settings in a file. A missing setting has its default; an unknown one is a ValueError.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, CONFIG).write_text("[policy]\\nbeam = 30")
    ...     read_config(Path(folder, CONFIG)).policy.beam
    30
    """
    try:
        return parse_config(path.read_text(encoding="utf-8"))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def parse_config(text: str) -> Config:
    """The settings in a text. An experiment that is wrong hinders nothing else, see `Config.bad_experiments`.

    >>> parse_config("[policy]\\nk = 3").policy.k
    3
    """
    tables = tomllib.loads(text)
    experiments, bad = parse_experiments(tables.pop("experiments", {}))
    if wrong := next((name for name in tables if name not in TABLES), None):
        raise ValueError(f"there is no table [{wrong}]; the tables are {', '.join(TABLES)}, experiments")
    parsed = {name: _parse_table(kind, tables.get(name, {}), name) for name, kind in TABLES.items()}
    if live := next((name for name in RUNTIME_PARAMETERS if name in parsed["policy"].parameters), None):
        raise ValueError(f"[policy] parameters has {live!r}, which the running bandit sets by itself; leave it out")
    return Config(**parsed, experiments=experiments, bad_experiments=bad)


def _parse_table(kind: type[T], table: object, name: str) -> T:
    if not isinstance(table, dict):
        raise ValueError(f"{name} is {table!r}; it must be a table, [{name}]")
    known = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if wrong := next((key for key in table if key not in known), None):
        raise ValueError(f"[{name}] has no {wrong!r}; it has {', '.join(known)}")
    try:
        return kind(**table)
    except (ValueError, TypeError) as error:
        raise ValueError(f"[{name}] {error}") from None


def config_text(config: Config) -> str:
    """The settings as the text of config.toml, with a comment on each table.

    >>> print(config_text(Config()).splitlines()[2])
    [policy]  # slots of a decision, how many of them explore, nodes that survive each level of the search
    >>> parse_config(config_text(Config())) == Config()
    True
    """
    out = ["# The settings of this bandit. The service reads them when it starts; docs/service.md explains them.\n"]
    about = {
        "policy": "slots of a decision, how many of them explore, nodes that survive each level of the search",
        "tree": "arms in a leaf at most; branching and seed are only used when the tree is built",
        "features": 'strict_features refuses unknown names; outliers = "clip", "refuse" or "accept" absurd values',
        "learner": 'name = "treetop" shares strength between arms, "paper" does not; label_samples: learn labels',
        "refit": 'after `first` observed rounds, then at `factor` times as many; gate = "not-worse" judges it first',
        "rewards": "in [low, high]; default_reward = 0.0 counts a slot without one as 0 after `reward_wait` seconds",
        "segments": "rounds older than `wait_seconds` are sealed, `rounds` at a time; arms in a shard",
        "caps": "a visitor, by the request's key, sees an arm at most `impressions` times in `window` seconds; 0: any",
        "limits": "the largest requests that are accepted",
        "replicas": "store: where several hosts share the bandit; seconds until another does the refits",
        "personalizer": "enabled = true answers as Azure Personalizer does too; unknown actions become arms",
    }
    for name in TABLES:
        table = getattr(config, name)
        values = ((f.name, getattr(table, f.name)) for f in fields(table))
        lines = [f"{key} = {_toml(value)}" for key, value in values if value is not None]
        out.append(f"[{name}]  # {about[name]}\n" + "\n".join(lines) + "\n")
    return "\n".join([*out, *experiments_text(config.experiments)])


def with_policy(text: str, policy: PolicyConfig) -> str:
    """The text of config.toml with another [policy]; the rest stays as it was written.

    >>> before = "# mine\\n[policy]\\nbeam = 10\\n[tree]\\nmax_leaf = 7"
    >>> with_policy(before, PolicyConfig(k=2, explore=1)).splitlines()[:3]
    ['# mine', '[policy]', 'k = 2']
    >>> "parameters]" in with_policy("[policy]\\n[policy.parameters]\\nbudget = 0.1", PolicyConfig())
    False
    """
    lines = text.splitlines()
    heads = [i for i, line in enumerate(lines) if re.match(r"\s*\[", line)]
    first = next((i for i in heads if re.match(r"\s*\[\s*policy\s*\]", lines[i])), len(lines))
    others = (i for i in heads if i > first and not re.match(r"\s*\[\s*policy\s*\.", lines[i]))  # than its own parts
    last = next(others, len(lines))
    while last > first + 1 and (not lines[last - 1].strip() or lines[last - 1].lstrip().startswith("#")):
        last -= 1  # what stands before the next table belongs to it
    values = ((f.name, getattr(policy, f.name)) for f in fields(policy))
    table = [f"{key} = {_toml(value)}" for key, value in values if value is not None]
    new = "\n".join([*lines[:first], *(lines[first : first + 1] or ["[policy]"]), *table, *lines[last:]]) + "\n"
    if parse_config(new).policy != policy:
        raise ValueError("[policy] of config.toml cannot be written: it must stand there as a table of its own")
    return new


def put_policy(path: Path, settings: Mapping[str, Any]) -> None:
    """Makes these settings [policy] of a config.toml, in one step; one that has them stays as it was written.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, CONFIG).write_text("[policy]\\nbeam = 10")
    ...     put_policy(Path(folder, CONFIG), {"beam": 30})
    ...     read_config(Path(folder, CONFIG)).policy.beam
    30
    """
    policy = PolicyConfig(**settings)
    if read_config(path).policy != policy:
        new = with_policy(path.read_text(encoding="utf-8"), policy).encode()
        put(path, lambda file: file.write(new))


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items() if item is not None) + "}"
    return repr(value)
