"""Others' software, side by side: started as a process in an environment of its own, spoken to in lines of JSON.

Knows how a model is written down for them, not what they do with it (`benchmarks/peer.py` does).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from treetop.arrays import Int64s, Rows
from treetop.bench.timing import Taken
from treetop.errors import PeerError
from treetop.model.model import Model

SETUP = "in a checkout of treetop, `make bench-peers` sets it up"
CHECKOUT = Path(__file__).resolve().parents[3]


def runner(python: Path | None = None) -> tuple[Path, Path] | None:
    """The peers' Python and the script it runs; None where they are not set up."""
    script = CHECKOUT / "benchmarks" / "peer.py"
    found = python or CHECKOUT / ".venv-peers" / "bin" / "python"
    return (found, script) if found.is_file() and script.is_file() else None


class Peer:
    """A running peer. `ask` sends one request and waits for its answer; leaving the block ends the process."""

    def __init__(self, where: tuple[Path, Path], name: str) -> None:
        python, script = where
        self.name = name
        self._process = subprocess.Popen(
            [str(python), str(script), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._asking: Any = self._process.stdin
        self._answers: Any = self._process.stdout

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._asking.close()
        if error:
            self._process.kill()
        self._process.wait()
        self._answers.close()

    def ask(self, do: str, **arguments: Any) -> Any:
        try:
            self._asking.write(json.dumps({"do": do, **arguments}) + "\n")
            self._asking.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerError(f"{self.name} ended with code {self._process.wait()} while asked to {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{self.name}: {answer['error']}")
        return answer["result"]

    def timer(self, do: str, **arguments: Any) -> Callable[[int, int], list[Taken]]:
        """For `turns`: what n calls took, from context `first` on."""
        return lambda first, n: [(wall, cpu) for wall, cpu in self.ask(do, first=first, n=n, **arguments)]


def save_rows(rows: Rows, path: Path) -> None:
    np.savez(path, start=rows.start, index=rows.index, value=rows.value, columns=rows.columns)


def to_pecos(model: Model, folder: Path) -> bool:
    """The model as PECOS reads it: a layer per level, then the arms. False if PECOS cannot hold such a tree.

    Layer h: W (features + 1, nodes of level h) and C (nodes of level h, nodes of level h - 1), both by column; labels
    of the last layer are positions in tree order. Routing layers multiply exp(-max(0, 1 - wx)^3), the last gives wx.
    """
    tree = model.tree
    levels = _levels(model)
    if levels is None or model.geometric:
        return False
    d = model.route_rows.columns
    for depth, nodes in enumerate(levels[1:]):
        parent = np.searchsorted(levels[depth], tree.parents[nodes])
        _layer(folder / f"{depth}.model", take(model.route_rows, nodes), d, parent, len(levels[depth]), "l3-hinge")
    leaf = np.repeat(np.arange(len(levels[-1])), tree.sizes[levels[-1]])
    arms = take(model.reward_rows, tree.n_nodes + tree.arm_at.astype(np.int64))
    _layer(folder / f"{len(levels) - 1}.model", arms, d, leaf, len(levels[-1]), "noop")
    about = {
        "model": "HierarchicalMLModel",
        "depth": len(levels),
        "nr_features": d - 1,
        "nr_codes": len(levels[-1]),
        "nr_labels": tree.n_arms,
    }
    (folder / "param.json").write_text(json.dumps(about))
    return True


def _levels(model: Model) -> list[Int64s] | None:
    """The nodes of each level in order of their arms; None unless all leaves are on the last one."""
    level, nodes = model.tree.levels(), np.arange(model.tree.n_nodes)
    leaf = np.ones(len(nodes), bool)
    leaf[model.tree.parents[1:]] = False
    if (level[leaf] != level.max()).any() or level.max() == 0:
        return None
    return [
        found[np.argsort(model.tree.begin[found], kind="stable")]
        for h in range(level.max() + 1)
        for found in [nodes[level == h]]
    ]


def take(rows: Rows, ids: Int64s) -> Rows:
    """rows[ids], copied."""
    sizes = np.diff(rows.start)[ids]
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    index, value = np.empty(start[-1], np.int32), np.empty(start[-1], np.float32)
    step = 1 << 16  # rows at a time: the list of places is as long as what is copied
    for first in range(0, len(ids), step):
        some = slice(first, min(first + step, len(ids)))
        a, b = int(start[some.start]), int(start[some.stop])
        shift = np.repeat(rows.start[ids[some]] - start[some.start : some.stop], sizes[some])
        place = np.arange(a, b) + shift
        index[a:b], value[a:b] = rows.index[place], rows.value[place]
    return Rows(start, index, value, rows.columns)


def _layer(folder: Path, weights: Rows, d: int, parent: Int64s, parents: int, processor: str) -> None:
    folder.mkdir(parents=True)
    n = len(weights)
    _csc(folder / "W.npz", weights.index, weights.start, weights.value, (d, n))
    start = np.searchsorted(parent, np.arange(parents + 1)).astype(np.int64)
    _csc(folder / "C.npz", np.arange(n, dtype=np.int32), start, np.ones(n, np.float32), (n, parents))
    about = {
        "model": "MLModel",
        "nr_labels": n,
        "nr_features": d - 1,
        "nr_codes": parents,
        "bias": 1.0,
        "pred_kwargs": {"only_topk": 10, "post_processor": processor},
    }
    (folder / "param.json").write_text(json.dumps(about))


def _csc(path: Path, index: Any, start: Any, value: Any, shape: tuple[int, int]) -> None:
    """scipy's own .npz form."""
    np.savez(path, indices=index, indptr=start, format=np.array(b"csc"), shape=np.array(shape), data=value)
