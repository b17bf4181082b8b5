"""Model: tree, routing and reward models of one epoch. Frozen; on disk a folder of .npy files, memory-mapped."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import tempfile
import zlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop import _core
from treetop.files import sync_folder
from treetop.routing import fit_routing, geometric_routing
from treetop.tree import Tree
from treetop.types import Matrix, Rows, as_rows, whole

FORMAT, VERSION, MANIFEST = "treetop-model", 1, "manifest.json"
FILES = {
    "parents": "int32", "leaf_of": "int32",
    "routing_start": "int64", "routing_index": "int32", "routing_value": "float32",
    "rewards_start": "int64", "rewards_index": "int32", "rewards_value": "float32",
}  # fmt: skip


class ModelFileError(ValueError):
    """A model folder that cannot be trusted: truncated, corrupt, foreign, or written by a newer version."""


@dataclass(frozen=True, eq=False)
class Model:
    """What one epoch decides with. Reward rows: nodes first, then arms; columns: features, then the bias.

    >>> X, Y = np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)
    >>> model = Model.initial(Tree.from_labels(X, Y, max_leaf=2), X, Y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/monday")
    ...     Model.load(f"{folder}/monday").tree
    Tree(4 arms, 3 nodes, depth 1)
    """

    tree: Tree
    route_rows: Rows
    reward_rows: Rows
    epoch: int = 0
    n_seen: int = 0
    geometric: bool = False

    def __post_init__(self) -> None:
        nodes, arms = self.tree.n_nodes, self.tree.n_arms
        if self.route_rows.columns < 1:
            raise ValueError("routing has 0 columns; there must be at least 1, the bias")
        for name, rows, wanted in (
            ("routing", self.route_rows, nodes),
            ("rewards", self.reward_rows, nodes + arms),
        ):
            if (len(rows), rows.columns) != (wanted, self.route_rows.columns):
                raise ValueError(
                    f"{name} have shape {(len(rows), rows.columns)}; {nodes} nodes and {arms} arms with "
                    f"{self.n_features} features need {(wanted, self.route_rows.columns)}"
                )
            if not _core.inspect_rows(rows.start, rows.index, rows.value, rows.columns, name):
                raise ValueError(f"{name}: indices must rise strictly in every row")
        whole("epoch", self.epoch, 0, 2**62)
        whole("n_seen", self.n_seen, 0, 2**62)
        if not isinstance(self.geometric, bool):
            raise TypeError(f"geometric must be True or False, not {self.geometric!r}")
        radius = self.route_rows.value[self.route_rows.index == self.n_features]
        if self.geometric and (radius < 0).any():
            raise ValueError(f"routing: the radius {radius.min():g} in the last column must be at least 0")

    @classmethod
    def initial(cls, tree: Tree, X: Matrix, Y: Matrix, **routing: Any) -> Model:
        """Epoch 0: routing fitted on a supervised set (see fit_routing for its settings), reward models still empty."""
        return cls._fresh(tree, fit_routing(tree, X, Y, **routing), geometric=False)

    @classmethod
    def from_vectors(cls, tree: Tree, vectors: Matrix) -> Model:
        """Epoch 0 with geometric routing: contexts and arms live in one space (the paper's motivating example)."""
        return cls._fresh(tree, geometric_routing(tree, vectors), geometric=True)

    @classmethod
    def from_weights(
        cls, tree: Tree, routing: Matrix, rewards: Matrix, epoch: int = 0, n_seen: int = 0, geometric: bool = False
    ) -> Model:
        """A model from matrices made elsewhere, in the shapes of `routing` and `rewards`."""
        return cls(tree, as_rows(routing, what="routing"), as_rows(rewards, what="rewards"), epoch, n_seen, geometric)

    @classmethod
    def _fresh(cls, tree: Tree, routing: Rows, geometric: bool) -> Model:
        rewards = Rows(
            np.zeros(tree.n_nodes + tree.n_arms + 1, np.int64),
            np.zeros(0, np.int32),
            np.zeros(0, np.float32),
            routing.columns,
        )
        return cls(tree, routing, rewards, geometric=geometric)

    @property
    def n_features(self) -> int:
        return self.route_rows.columns - 1

    @property
    def n_arms(self) -> int:
        return self.tree.n_arms

    @cached_property
    def routing(self) -> sp.csr_matrix:
        """(n_nodes, d + 1): a linear function of [x; 1] per node, or its centre and radius if `geometric`."""
        return self.route_rows.csr()

    @cached_property
    def rewards(self) -> sp.csr_matrix:
        """(n_nodes + n_arms, d + 1): the reward model of every node, then of every arm; no data, no weights."""
        return self.reward_rows.csr()

    @cached_property
    def engine(self) -> _core.Engine:
        """The weights in the order in which a decision reads them; made at the first decision, shared by threads."""
        r, w = self.route_rows, self.reward_rows
        return _core.Engine(
            self.tree.parents, self.tree.leaf_of, r.start, r.index, r.value, w.start, w.index, w.value,
            r.columns, self.geometric, 0,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        """To be pickled: without what is made again on first use."""
        made = ("engine", "routing", "rewards")
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        weights = len(self.route_rows.value) + len(self.reward_rows.value)
        return f"Model(epoch {self.epoch}, {self.n_seen:,} rounds seen, {self.tree}, {weights:,} weights)"

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the model beside `folder` and renames it into place; an older model there is replaced."""
        target = Path(folder)
        if target.exists() and (what := _foreign(target)):
            raise FileExistsError(f"{target} {what}; nothing was written")
        target.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            fresh = work / "new"
            fresh.mkdir()
            files = {name: _write(fresh / f"{name}.npy", array) for name, array in self._arrays().items()}
            manifest = {
                "format": FORMAT, "version": VERSION, "epoch": self.epoch, "n_seen": self.n_seen,
                "geometric": self.geometric, "columns": self.route_rows.columns, "files": files,
            }  # fmt: skip
            signed = {**manifest, "crc32": _signature(manifest)}
            _write_synced(fresh / MANIFEST, json.dumps(signed, indent=1).encode())
            sync_folder(fresh)
            _swap(fresh, target, work / "old")
            sync_folder(target.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        r, w = self.route_rows, self.reward_rows
        return {
            "parents": self.tree.parents, "leaf_of": self.tree.leaf_of,
            "routing_start": r.start, "routing_index": r.index, "routing_value": r.value,
            "rewards_start": w.start, "rewards_index": w.index, "rewards_value": w.value,
        }  # fmt: skip

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Model:
        """Opens a saved model: sizes, checksums and indices are checked, the arrays stay memory-mapped."""
        source = Path(folder)
        for _ in range(100):
            before = _identity(source)
            try:
                return cls._open(source, _read_manifest(source))
            except ModelFileError:
                if _identity(source) == before:
                    raise  # otherwise a newer model took its place while this one was being read
        raise ModelFileError(f"{source}: replaced again and again while it was being read")

    @classmethod
    def _open(cls, source: Path, manifest: dict[str, Any]) -> Model:
        try:
            arrays = {name: _read(source / f"{name}.npy", manifest["files"][name]) for name in FILES}
            columns = whole("columns", manifest["columns"], 1)
            rows = {
                kind: Rows(arrays[f"{kind}_start"], arrays[f"{kind}_index"], arrays[f"{kind}_value"], columns)
                for kind in ("routing", "rewards")
            }
            tree = Tree(arrays["parents"], arrays["leaf_of"])
            return cls(
                tree, rows["routing"], rows["rewards"], manifest["epoch"], manifest["n_seen"], manifest["geometric"]
            )
        except ModelFileError:
            raise
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise ModelFileError(f"{source}: not a valid model: {error}") from error


def _write_synced(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _write(path: Path, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    with path.open("wb") as file:
        np.save(file, array, allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "crc32": _checksum(path), "dtype": str(array.dtype), "shape": [*array.shape]}


def _foreign(folder: Path) -> str:
    """Why a folder may not be replaced: it is not a model, or holds what no model has."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (ValueError, OSError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return "exists and is not a saved model"
    others = {path.name for path in folder.iterdir()} - {MANIFEST, *(f"{name}.npy" for name in FILES)}
    return f"holds {min(others)!r} beside a saved model" if others else ""


def _exchanged(a: Path, b: Path) -> bool:
    """Whether the system could give each folder the other's name in one step (Linux can)."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def _swap(fresh: Path, target: Path, old: Path) -> None:
    """Renames into place, in one step where the system can; if it fails, what was there is there again."""
    if target.exists():
        if _exchanged(fresh, target):
            return
        os.rename(target, old)
    try:
        os.rename(fresh, target)
    except OSError:
        if old.exists():
            os.rename(old, target)
        raise


def _signature(manifest: dict[str, Any]) -> int:
    """A checksum of what the manifest says, however it is laid out."""
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def _checksum(path: Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            value = zlib.crc32(block, value)
    return value


def _identity(source: Path) -> tuple[int, ...]:
    """Tells one saved model from the next in its place, even where their contents are equal."""
    try:
        facts = (source / MANIFEST).stat()
    except OSError:
        return ()
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns


def _read_manifest(source: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((source / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise ModelFileError(f"{source}: no {MANIFEST}: not a saved model, or not all of it") from None
    except (ValueError, OSError, RecursionError) as error:
        raise ModelFileError(f"{source}: {MANIFEST} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ModelFileError(f"{source}: {MANIFEST} is not of the format {FORMAT!r}")
    if manifest.get("version") != VERSION:
        raise ModelFileError(f"{source}: format version {manifest.get('version')!r}; this software reads {VERSION}")
    if manifest.pop("crc32", None) != _signature(manifest):
        raise ModelFileError(f"{source}: {MANIFEST} does not have its own checksum; it is corrupt")
    if not isinstance(manifest.get("files"), dict) or set(manifest["files"]) != set(FILES):
        raise ModelFileError(f"{source}: {MANIFEST} must list the files {', '.join(FILES)}")
    return manifest


def _read(path: Path, facts: dict[str, Any]) -> np.ndarray[Any, Any]:
    if not path.is_file():
        raise ModelFileError(f"{path}: missing")
    if path.stat().st_size != facts["bytes"]:
        raise ModelFileError(f"{path}: {path.stat().st_size} bytes; {facts['bytes']} were written")
    if _checksum(path) != facts["crc32"]:
        raise ModelFileError(f"{path}: checksum differs from the manifest's; the file is corrupt")
    try:
        array: np.ndarray[Any, Any] = np.lib.format.open_memmap(path, mode="r")  # one array, and no pickle
    except (TypeError, ValueError, OSError, OverflowError) as error:
        raise ModelFileError(f"{path}: {error}") from error
    if [*array.shape] != facts["shape"] or str(array.dtype) != facts["dtype"]:
        raise ModelFileError(f"{path}: holds {array.dtype} {array.shape}, the manifest says {facts}")
    if array.ndim != 1 or str(array.dtype) != FILES[path.stem]:
        raise ModelFileError(f"{path}: holds {array.dtype} {array.shape}; a list of {FILES[path.stem]} is needed")
    return array
