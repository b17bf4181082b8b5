"""Datasets in memory and in folders, and settings under which they are easy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import scipy.sparse as sp

import treetop
from helpers.problems import topics
from treetop.arrays import as_rows
from treetop.experiments.execute import execute
from treetop.experiments.realizable import NoisyRewards, fit_truth
from treetop.experiments.records import RunRecord
from treetop.experiments.settings import Plan, Settings

K = 5


def made_up(n: int = 1200) -> treetop.Dataset:
    X, Y = topics(n=n)
    return treetop.Dataset("made up", as_rows(X), as_rows(Y, what="labels"))


def folder(path: Path, n: int = 200) -> Path:
    X, Y = topics(n=n)
    for part, (a, b) in {"trn": (0, n // 2), "tst": (n // 2, n)}.items():
        sp.save_npz(path / f"X.{part}.npz", X[a:b])
        sp.save_npz(path / f"Y.{part}.npz", Y[a:b])
    return path


EASY: dict[str, Any] = {"k": K, "explore": 2, "init": 200, "horizon": 3000, "max_leaf": 4, "first_epoch": 64}


def easy_plan(
    strategies: Sequence[str], seeds: tuple[int, ...] = (0,), beams: Sequence[int | None] = (None, 10), **settings: Any
) -> Plan:
    """Every strategy over all arms and with a beam of 10, under settings that are easy for `made_up`."""
    asked = [Settings(name, beam=beam, **{**EASY, **settings}) for beam in beams for name in strategies]
    return Plan("made up", tuple(asked), seeds)


def play_realizable(plan: Plan, dataset: treetop.Dataset) -> list[RunRecord]:
    """Plays a plan with rewards that are linear in contexts, plus noise."""
    truth = fit_truth(dataset)
    best = truth.best(K)
    return execute(
        None,
        replace(plan, world="realizable"),
        dataset=dataset,
        worlds=lambda seed: NoisyRewards(truth, best, seed=seed),
    )
