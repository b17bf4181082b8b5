"""A folder of results read back as the story that a page tells. Runs nothing."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from treetop.experiments.comparison import Series, tally, votes
from treetop.experiments.records import distinguishing_settings
from treetop.paper.claims import by_dataset, labelled, paper_name
from treetop.paper.claims import sheet as claims_sheet
from treetop.report.html import Story
from treetop.report.tables import Chapter, curves, grid, means

MANIFEST = "reproduce.json"


def read(folder: Path) -> Story:
    """The story of a folder that `reproduce`, `simulate` or `demo` left behind.

    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> played = {"strategy": "igw", "seed": 0, "mean_reward": 0.9, "settings": {"k": 5}, "checkpoints": [[10, 0.9]]}
    >>> with TemporaryDirectory() as folder:
    ...     result = {"dataset": {"name": "debian", "arms": 34773}, "runs": [played]}
    ...     _ = Path(folder, "result.json").write_text(json.dumps(result))
    ...     read(Path(folder)).title
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
    return {
        **{name: version(name) for name in ("treetop", "numpy", "scipy")},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {platform.system()}",
    }


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
        " ".join(filter(None, (paper_name(strategy, prefix), own, setting))),
        strategy,
        int(runs[0]["settings"]["k"]),
        int(runs[0]["checkpoints"][-1][0]),
        tuple(int(run["seed"]) for run in runs),
        tuple(float(run["mean_reward"]) for run in runs),
        tuple(tuple((int(t), float(m)) for t, m in run["checkpoints"]) for run in runs),
        tuple(tuple(map(float, run["blocks"])) for run in runs if run.get("blocks")),
        setting,
    )


def _reproduced(folder: Path) -> Story:
    manifest = _load(folder / MANIFEST)
    chapters = tuple(Chapter.load(folder / f"{name}.json") for name in manifest["chapters"])
    files = [folder / f"{name}.json" for name in manifest["chapters"]] + sorted(folder.rglob("runs.jsonl"))
    lead = f"{len(chapters)} results of the paper beside ours, by treetop {manifest['versions']['treetop']}."
    if any(chapter.settings.get("quick") for chapter in chapters):
        lead += " Some come from short runs (--quick), which show that it works, not who is right."
    return Story(
        "Top-k eXtreme contextual bandits with arm hierarchy: the experiments again",
        lead,
        tuple(manifest["datasets"].values()),
        claims_sheet(chapters),
        chapters,
        (),
        manifest["chapters"],
        manifest["versions"],
        {str(path.relative_to(folder)): checksum(path) for path in files},
        by_dataset(chapters),
    )


def _simulated(folder: Path) -> Story:
    result = _load(folder / "result.json")
    facts, runs = result["dataset"], result["runs"]
    played = series(runs)
    rounds, k = played[0].rounds, " or ".join(str(k) for k in sorted({s.k for s in played}))
    panels = [curves(f"{labelled(facts)}, k = {k}", played)]
    if len(played) > 1:
        matrix = tally([votes(played)])
        panels.append(grid("Win/draw/loss", [(s.name, s.style) for s in played], matrix))
    best = max(played, key=lambda s: s.mean)
    text = (
        f"{rounds:,} rounds, {k} arms shown in each; only their rewards are revealed. A band is the 95 % interval of "
        f"the mean over seeds. Wins are those of the bake-off rule at 5 %."
    )
    chapter = Chapter(
        "curves",
        "Progressive mean reward",
        text,
        (means("Mean reward a round", played),),
        tuple(panels),
        {},
        _settings(runs),
    )
    lead = f"{facts['arms']:,} arms, {rounds:,} rounds: {best.name} collected most, {best.mean:.3f} a round."
    return Story(
        f"{labelled(facts)}: {_compared(played)}",
        lead,
        (facts,),
        None,
        (chapter,),
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


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
