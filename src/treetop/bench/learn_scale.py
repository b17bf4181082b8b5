"""`bench learn-scale`: does the cost of a refit follow new rounds, and does its memory stay as it is?

A bandit is made from labelled rows, rounds that never happened are sealed into its segments, and at a tenth, four
tenths and all of them a refit is measured that follows one at 1 / 1.2 of the rounds, each in a process of its own. The
rounds are written as segments at once; the way from a log to there is measured on some of them, as `bench seal` does.

Each step adds a line to learn-scale.jsonl in the cache when it ends: a run that is stopped leaves what it has found.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from typing import Any

from treetop.bench.seal import seal
from treetop.bench.setting import Result, Setting
from treetop.bench.shape import Shape
from treetop.bench.subprocesses import in_subprocess

SIZES, FACTOR = (0.1, 0.4, 1.0), 1.2
LOGGED = 100_000  # rounds that are sealed out of a log
STEPS = "learn-scale.jsonl"


def learn_scale(setting: Setting) -> Result:
    """Refits after more and more rounds; the last rows compare them."""
    result, shape = Result(), setting.shape
    setting.cache.mkdir(parents=True, exist_ok=True)
    spent = {"seconds": 0.0, "cpu_seconds": 0.0}
    with tempfile.TemporaryDirectory(dir=setting.cache, prefix="learn-scale-") as place:
        setting.say(f"a bandit of {shape.arms:,} arms")
        made = _step(setting, "learn_begin", shape=shape, place=place)
        for share in SIZES:
            rounds = max(2, round(shape.rounds * share))
            for n in (round(rounds / FACTOR), rounds):
                setting.say(f"{n:,} rounds in segments")
                sealed = _step(setting, "learn_seal", shape=shape, place=place, rounds=n, late=setting.late)
                setting.say(f"a refit after {n:,} rounds")
                facts = _step(setting, "learn_refit", place=place, rounds=n)
                spent = {key: spent[key] + sealed[key] + facts[key] for key in spent}
            new = rounds - round(rounds / FACTOR)
            result.rows.append(_row(shape, rounds, new, sealed, facts))
    compared = ratios(result.rows)
    every = {"name": "treetop", "what": "segments and six refits", "arms": shape.arms, "rounds": shape.rounds}
    result.rows.append(every | {key: round(value, 1) for key, value in spent.items()})
    logged = seal(replace(setting, shape=replace(shape, rounds=min(LOGGED, shape.rounds))))
    result.rows.extend(row for row in logged.rows if row["what"] == "log to segments")
    result.checks.update(model=made, ratios=compared, **logged.checks)
    return result


def _step(setting: Setting, what: str, **arguments: Any) -> dict[str, Any]:
    facts = in_subprocess(what, **arguments)
    with (setting.cache / STEPS).open("a") as file:
        file.write(json.dumps({"step": what, "rounds": arguments.get("rounds", 0), **facts}) + "\n")
    return facts


def _row(shape: Shape, rounds: int, new: int, sealed: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "treetop",
        "what": "refit",
        "arms": shape.arms,
        "rounds": rounds,
        "seconds": round(facts["seconds"], 2),
        "cpu_seconds": round(facts["cpu_seconds"], 2),
        "cpu_us_a_round": round(facts["cpu_seconds"] / rounds * 1e6, 2),
        "cpu_us_a_new_round": round(facts["cpu_seconds"] / new * 1e6, 2),
        "peak_gb": facts["peak_gb"],
        "memory_gb": facts["memory_gb"],
        "model_gb": facts["model_gb"],
        "segment_bytes_a_round": sealed["bytes_a_round"],
        "work_bytes_a_round": round(facts["work_bytes"] / rounds),
        **{f"{name}_cpu_seconds": round(value, 2) for name, value in facts["steps"].items()},
    }


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The targets: CPU of a new round at four times the rounds, and the largest peak beside the smallest and the limit.

    >>> row = {"cpu_us_a_new_round": 2.0, "peak_gb": 1.0, "memory_gb": 2.0}
    >>> ratios([row, row | {"cpu_us_a_new_round": 2.5}, row | {"peak_gb": 1.1}])
    {'a_new_round_at_4_times_the_rounds': 1.25, 'largest_peak_to_smallest': 1.1, 'largest_peak_to_memory': 0.55}
    """
    peaks = [row["peak_gb"] for row in rows]
    return {
        "a_new_round_at_4_times_the_rounds": round(rows[1]["cpu_us_a_new_round"] / rows[0]["cpu_us_a_new_round"], 3),
        "largest_peak_to_smallest": round(max(peaks) / min(peaks), 3),
        "largest_peak_to_memory": round(max(peaks) / rows[0]["memory_gb"], 3),
    }
