"""A folder of results read back for the page that shows it. Runs nothing."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from treetop.experiments.comparison import Series, tally, votes
from treetop.experiments.records import distinguishing_settings, software_versions
from treetop.paper.claims import claims_table, verdicts_table
from treetop.paper.published import dataset_title, legend_name
from treetop.report.html import Results
from treetop.report.sections import BAND, Section
from treetop.report.tables import curves, grid, means

MANIFEST = "reproduce.json"


def read_results(folder: Path) -> Results:
    """The results in a folder that `reproduce`, `simulate` or `demo` left behind.

    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> played = {"strategy": "igw", "seed": 0, "mean_reward": 0.9, "settings": {"k": 5}, "checkpoints": [[10, 0.9]]}
    >>> with TemporaryDirectory() as folder:
    ...     result = {"dataset": {"name": "debian", "arms": 34773}, "runs": [played]}
    ...     _ = Path(folder, "result.json").write_text(json.dumps(result))
    ...     read_results(Path(folder)).title
    'debian: 1 strategy'
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder of results")
    if (folder / MANIFEST).is_file():
        return _reproduced(folder)
    if (folder / "result.json").is_file():
        return _simulated(folder)
    raise FileNotFoundError(f"{folder} has neither {MANIFEST} (of reproduce) nor result.json (of simulate or demo)")


def versions() -> dict[str, str]:
    """What the numbers were made with.

    >>> sorted(versions())
    ['machine', 'numpy', 'python', 'scipy', 'treetop']
    """
    return {**software_versions(), "machine": f"{platform.machine()}, {platform.system()}"}


def checksum(path: Path) -> str:
    """sha256 of a file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a").write_bytes(b"a")
    ...     checksum(Path(folder, "a"))[:16]
    'ca978112ca1bbdca'
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()


def series(runs: Iterable[Mapping[str, Any]], prefix: str = "X-") -> list[Series]:
    """Runs as JSON has them, gathered by strategy and settings; the first run of each sets its place.

    >>> run = {"strategy": "igw", "seed": 0, "mean_reward": 0.9, "settings": {"k": 5}, "checkpoints": [[10, 0.9]]}
    >>> series([run, {**run, "seed": 1}])[0].seeds
    (0, 1)
    """
    every = list(runs)
    found: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for run, words in zip(
        every, distinguishing_settings([(str(r["strategy"]), r["settings"]) for r in every]), strict=True
    ):
        found.setdefault((str(run["strategy"]), *words), []).append(run)
    return [_series(*key, mine, prefix) for key, mine in found.items()]


def _series(strategy: str, own: str, setting: str, runs: Sequence[Mapping[str, Any]], prefix: str) -> Series:
    return Series(
        " ".join(filter(None, (legend_name(strategy, prefix), own, setting))),
        strategy,
        int(runs[0]["settings"]["k"]),
        int(runs[0]["checkpoints"][-1][0]),
        tuple(int(run["seed"]) for run in runs),
        tuple(float(run["mean_reward"]) for run in runs),
        tuple(tuple((int(t), float(m)) for t, m in run["checkpoints"]) for run in runs),
        tuple(tuple(map(float, run["blocks"])) for run in runs if run.get("blocks")),
        setting,
        tuple(float(run["late_reward"]) for run in runs if run.get("late_reward") is not None),
    )


def _reproduced(folder: Path) -> Results:
    manifest = _read_json(folder / MANIFEST)
    sections = tuple(Section.load(folder / f"{name}.json") for name in manifest["sections"])
    files = [folder / f"{name}.json" for name in manifest["sections"]] + sorted(folder.rglob("runs.jsonl"))
    lead = f"{len(sections)} results of the paper beside ours, by treetop {manifest['versions']['treetop']}."
    if any(section.settings.get("quick") for section in sections):
        lead += " Some come from short runs (--quick), which show that it works, not who is right."
    return Results(
        "Top-k eXtreme contextual bandits with arm hierarchy: the experiments again",
        lead,
        tuple(manifest["datasets"].values()),
        claims_table(sections),
        sections,
        (),
        manifest["sections"],
        manifest["versions"],
        {str(path.relative_to(folder)): checksum(path) for path in files},
        verdicts_table(sections),
    )


def _simulated(folder: Path) -> Results:
    result = _read_json(folder / "result.json")
    facts, runs = result["dataset"], result["runs"]
    played = series(runs)
    rounds, k = played[0].rounds, " or ".join(str(k) for k in sorted({s.k for s in played}))
    panels = [curves(f"{dataset_title(facts)}, k = {k}", played)]
    if len(played) > 1:
        matrix = tally([votes(played)])
        panels.append(grid("Win/draw/loss", [(s.name, s.style) for s in played], matrix))
    best = max(played, key=lambda s: s.mean)
    text = (
        f"{rounds:,} rounds, {k} arms shown in each; only their rewards are revealed. "
        f"Wins are those of the bake-off rule at 5 %."
    )
    if any(line.low for line in panels[0].lines):
        text += f" {BAND}"
    section = Section(
        "curves",
        "Progressive mean reward",
        text,
        (means("Mean reward a round", played),),
        tuple(panels),
        {},
        _settings(runs),
    )
    lead = f"{facts['arms']:,} arms, {rounds:,} rounds: {best.name} collected most, {best.mean:.3f} a round."
    outcomes = votes(played)
    if drawn := [s.name for s in played if outcomes.get((best.name, s.name)) == 0]:
        lead += f" By the bake-off rule it is a draw with {', '.join(drawn)}."
    return Results(
        f"{dataset_title(facts)}: {_compared(played)}",
        lead,
        (facts,),
        None,
        (section,),
        tuple(result.get("examples", ())),
        {},
        versions(),
        {"result.json": checksum(folder / "result.json")},
    )


def _compared(played: Sequence[Series]) -> str:
    """How many strategies, and in how many settings each."""
    strategies, settings = len({s.style for s in played}), len({s.setting for s in played})
    counted = f"{strategies} {'strategy' if strategies == 1 else 'strategies'}"
    return f"{counted} in {settings} settings" if settings > 1 else f"{counted} compared" if strategies > 1 else counted


def _settings(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the runs have in common, and the parameters of each strategy."""
    shared = {
        name: value
        for name, value in runs[0]["settings"].items()
        if name != "parameters" and all(run["settings"].get(name) == value for run in runs)
    }
    return {**shared, **{run["strategy"]: run["settings"].get("parameters") or "no parameters" for run in runs}}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
