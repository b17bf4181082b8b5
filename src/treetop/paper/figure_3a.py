"""Figure 3(a), the realizable setting: mean reward and regret, over all arms and with a beam, dataset by dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treetop.experiments.comparison import Series, band, exponent, half_width
from treetop.paper.published import dataset_title
from treetop.paper.results_folder import series
from treetop.paper.run_cache import BEAM, RunCache, named
from treetop.report.sections import BAND, Line, Panel, Section, Table, number, plus_minus
from treetop.report.tables import curves

VARIANTS = (("all arms", None, ""), (f"beam {BEAM}", BEAM, "X-"))  # name, beam, prefix of the strategies' names


def realizable(cache: RunCache, specs: Sequence[str] | None = None) -> Section:
    """Rewards that are truly linear; every dataset of the cache, or those given.

    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     spec = "synthetic:arms=150,features=40,rows=200,init=100,nonzeros=8"
    ...     cache = RunCache((spec,), (0,), Path(folder), quick=True, horizon=100)
    ...     [row["variant"] for row in realizable(cache).data["variants"]]
    ['all arms', 'beam 10']
    """
    panels: list[Panel] = []
    tables: list[Table] = []
    rows, variants, tuned = [], [], {}
    for spec in specs or cache.data:
        facts = cache.facts(spec)
        records, tuned[dataset_title(facts)] = cache.realizable(spec)
        rounds = []
        for name, beam, prefix in VARIANTS:
            mine = [record for record in records if record["settings"]["beam"] == beam]
            rewards, regrets = series(mine, prefix), series([_as_regret(record) for record in mine], prefix)
            title = f"{dataset_title(facts)}, {name}"
            panels += [curves(f"{title}: mean reward", rewards), _regret_panel(title, regrets)]
            tables.append(_regret_table(title, rewards, regrets, tuned[dataset_title(facts)][name]))
            variants.append(_variant(facts, name, prefix, rewards, regrets))
            rounds.append(rewards[0].rounds)
        rows.append(_played(cache, spec, rounds, records[0]["settings"]))
    columns = ("dataset", "arms", *(f"rounds, {name}" for name, *_ in VARIANTS), "k", "r", *TRUTH)
    return Section(
        "realizable",
        "The realizable setting (Figure 3a)",
        f"The mean reward of every arm is a ridge regression on the dataset, and rewards have Gaussian noise of "
        f"{cache.sigma:g}. Parameters are tuned on the same data, as in the paper, over all of the rounds of the first "
        "seed. Regret is against the k arms of the highest mean rewards. " + BAND,
        (Table("How it was played", columns, tuple(rows)), *tables),
        tuple(panels),
        {"variants": variants},
        {**cache.settings(), "sigma": cache.sigma, "tuned": tuned},
    )


TRUTH = ("weights of an arm's truth", "labels a row", "labels among the truth's best 5")


def _played(cache: RunCache, spec: str, rounds: Sequence[int], settings: Mapping[str, Any]) -> tuple[str, ...]:
    facts, truth = cache.facts(spec), cache.truth(spec)
    weights = "all" if truth["kept"] is None else f"{truth['kept']} and a bias"
    sizes = (facts["arms"], *rounds, settings["k"], settings["explore"])
    return (dataset_title(facts), *map(number, sizes), weights, number(truth["labels"]), f"{truth['hits']:.2f}")


def _variant(
    facts: Mapping[str, Any], name: str, prefix: str, rewards: Sequence[Series], regrets: Sequence[Series]
) -> dict[str, Any]:
    return {
        **named(facts),
        "variant": name,
        "prefix": prefix,
        "rounds": rewards[0].rounds,
        "seeds": len(rewards[0].seeds),
        "regret": {s.style: s.mean for s in regrets},
        "reward": {s.style: s.mean for s in rewards},
        "exponent": {s.style: e if np.isfinite(e := _exponent(s)) else None for s in regrets},
    }


def _as_regret(record: dict[str, Any]) -> dict[str, Any]:
    """The same record with regret so far, a round, in the place of reward."""
    points = [(t, total / t) for t, total in record["regret_checkpoints"]]
    return {**record, "checkpoints": points, "mean_reward": points[-1][1], "blocks": [], "late_reward": None}


def _regret_panel(name: str, regrets: Sequence[Series]) -> Panel:
    """Cumulative regret: what Theorem 1 bounds."""
    drawn = [[[(t, v * t) for t, v in curve] for curve in s.curves] for s in regrets]
    lines = tuple(Line.of(s.name, s.style, band(c)) for s, c in zip(regrets, drawn, strict=True))
    return Panel(f"{name}: regret so far", lines, "regret so far")


def _regret_table(name: str, rewards: list[Series], regrets: list[Series], tuned: dict[str, Any]) -> Table:
    reward = {s.style: s for s in rewards}
    rows = tuple(
        (
            s.name,
            plus_minus(s.mean, float(half_width(s.means))),
            plus_minus(reward[s.style].mean, float(half_width(reward[s.style].means))),
            f"{_exponent(s):.2f}",
            ", ".join(f"{key} = {value:g}" for key, value in tuned.get(s.style, {}).items()) or "-",
        )
        for s in sorted(regrets, key=lambda s: s.mean)
    )
    return Table(name, ("strategy", "regret a round", "reward a round", "regret grows as t to the", "tuned"), rows)


def _exponent(regrets: Series) -> float:
    """Mean over seeds of the growth of cumulative regret; NaN if it is not above 0."""
    try:
        return float(
            np.mean([exponent(*zip(*((t, v * t) for t, v in curve), strict=True)) for curve in regrets.curves])
        )
    except ValueError:
        return float("nan")
