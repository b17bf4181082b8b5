"""The runs of a plan on many machines: one run a task, kept in the plan's folder, taken up again where they stopped.

All machines see the folder and the data under the same paths. Whatever plays a run, its record is the same but for
`seconds`; `runs.jsonl` has the runs in the order of the plan, as `execute` writes them.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from treetop.data.datasets import Dataset, load
from treetop.data.presets import PRESETS
from treetop.data.synthetic import PREFIX
from treetop.effort import Progress
from treetop.experiments import run_folder
from treetop.experiments.execute import Runner, Starter, fingerprint, labels_of
from treetop.experiments.records import RunRecord, read_records
from treetop.experiments.settings import Plan, Settings
from treetop.parallel import Machines, map_shards, write_piece


@dataclass(frozen=True)
class RunShard:
    """One run of a plan, as a task gets it: where its folder and its data lie, and what to play.

    >>> RunShard("results", 3, Settings("igw"), 0, "debian", None, "").index
    3
    """

    folder: str
    index: int
    settings: Settings
    seed: int
    data: str
    data_dir: str | None
    sha256: str  # of the data


def play_shard(shard: RunShard) -> str:
    """Plays one run, or what is left of it, and writes its record into the folder; returns the record's path.

    >>> from tempfile import TemporaryDirectory
    >>> spec = "synthetic:arms=50,features=30,rows=200,init=100"
    >>> with TemporaryDirectory() as folder:
    ...     shard = RunShard(folder, 3, Settings("igw", max_leaf=10), 0, spec, None, fingerprint(load(spec)))
    ...     Path(play_shard(shard)).name
    '3.json'
    """
    kept = run_folder.Folder(Path(shard.folder))
    piece = kept.piece(shard.index)
    if not piece.exists():
        dataset, starter, sha256 = _opened(shard.data, shard.data_dir)
        if sha256 != shard.sha256:
            raise ValueError(f"{shard.data} is not the same here as where the runs were started: sha256 {sha256}")
        runner = Runner(Plan(shard.data, (shard.settings,)), dataset, starter, labels_of(dataset), None)
        record = runner.play(shard.settings, shard.seed, kept, shard.index)
        piece.parent.mkdir(exist_ok=True)
        write_piece(piece, lambda file: file.write(msgspec.json.encode(record)))
    return str(piece)


@lru_cache(maxsize=1)
def _opened(data: str, data_dir: str | None) -> tuple[Dataset, Starter, str]:
    """Runs that follow each other in a process share the data, and trees that are the same."""
    dataset = load(data, data_dir=data_dir)
    return dataset, Starter(dataset), fingerprint(dataset)


def execute_on(
    machines: Machines,
    folder: str | os.PathLike[str],
    plan: Plan,
    *,
    dataset: Dataset | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> list[RunRecord]:
    """`execute`, with the runs of the plan as tasks: plays what is not yet finished and gives all records.

    `dataset` is `load(plan.data, data_dir=data_dir)`, if it is there already. Killed and called again, it goes on:
    finished runs stay, others go on after their last epoch. `progress(done, total)` counts runs.

    >>> from tempfile import TemporaryDirectory
    >>> plan = Plan.of("synthetic:arms=50,features=30,rows=200,init=100", ["igw", "greedy"], max_leaf=10)
    >>> with TemporaryDirectory() as folder:
    ...     [record.strategy for record in execute_on(Machines(workers=2), folder, plan)]
    ['igw', 'greedy']
    """
    if plan.world != "labels":
        raise ValueError(f"the plan's world is {plan.world!r}; on many machines it must be 'labels'")
    data = dataset or load(plan.data, data_dir=data_dir)
    sha256 = fingerprint(data)
    asked = {"plan": asdict(plan), "dataset": {**data.facts(), "sha256": sha256}}
    spec, where = _everywhere(plan.data, data_dir)
    with run_folder.opened(Path(folder).resolve(), asked) as kept:
        runs = plan.runs()
        shards = [RunShard(str(kept.path), i, *run, spec, where, sha256) for i, run in enumerate(runs)]
        shards = shards[len(read_records(folder)) :]
        count = _Collected(kept, len(runs) - len(shards), len(runs), progress)
        map_shards(play_shard, shards, machines, count)
        count(len(shards), len(shards))
        kept.drop()
    return read_records(folder)


def _everywhere(data: str, data_dir: str | os.PathLike[str] | None) -> tuple[str, str | None]:
    """Dataset and folder by names that do not depend on where a process runs."""
    if data in PRESETS:
        return data, str(Path(data_dir or ".").resolve())
    is_made = data == "debian" or data.startswith(PREFIX)
    return data if is_made else str(Path(data).resolve()), None


class _Collected:
    """Puts the records of finished runs into `runs.jsonl`, each when it is its turn."""

    def __init__(self, kept: run_folder.Folder, lines: int, total: int, progress: Progress | None) -> None:
        self.kept, self.before, self.lines, self.total, self.progress = kept, lines, lines, total, progress

    def __call__(self, done: int, total: int) -> None:
        while self.lines < self.total and (piece := self.kept.piece(self.lines)).exists():
            self.kept.append(piece.read_bytes(), self.lines)
            self.lines += 1
        if self.progress:
            self.progress(self.before + done, self.total)
