"""The files of a saved model: arrays, the serving layout, a manifest. Knows bytes and checksums, no weights.

A folder holds one `.npy` file per array (the exchange format) and, beside them, the layout that decisions read. The
manifest has the size and checksum of every file and a checksum of itself; the layout is bound to the arrays it was made
from, so that a folder with other arrays in it never serves an old layout.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import warnings
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treetop import _core
from treetop.arrays import check_int, map_array
from treetop.errors import ModelFileError
from treetop.files import sync_folder

FORMAT, VERSION, MANIFEST, SERVING = "treetop-model", 6, "manifest.json", "serving.bin"
PIECE = 1 << 23  # large aligned writes: where the system can, the file is then cached, and mapped, in huge pages
CSR = {"start": "int64", "index": "int32", "value": "float32"}
SPARSE = "base_routing", "held_out_0", "held_out_1", "prior"
FILES = {
    "parents": "int32",
    "leaf_of": "int32",
    "routing_start": "int64",
    "routing_index": "int32",
    "routing_value": "float32",
    "rewards_start": "int64",
    "rewards_index": "int32",
    "rewards_value": "float32",
}
# What routing and rewards were fitted from, how large features are, what arms cover, the items' vectors one behind the
# other, what the owner knew, and what treetop's own learner adds (`PooledState`).
OPTIONAL = {
    "routing_fingerprints": "int64",
    "rewards_fingerprints": "int64",
    "held_out_0_fingerprints": "int64",
    "held_out_1_fingerprints": "int64",
    "feature_scale": "float32",
    "coverage_start": "int64",
    "coverage_group": "int32",
    "coverage_share": "float32",
    "item_vectors": "float32",
    "context_map": "float32",
    "pooled_means": "float32",
    "pooled_sample_count": "int32",
    "pooled_trial_value": "float32",
    "pooled_initial_leaf": "int32",
    "pooled_new_trials": "int32",
    "pooled_measure_means": "float32",
    "prior_means": "float32",
    **{f"{name}_{part}": kind for name in SPARSE for part, kind in CSR.items()},
}


def write_synced(path: Path, data: bytes) -> None:
    """A file of these bytes, on the disk when this returns.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_synced(Path(folder, "a"), b"hello")
    ...     Path(folder, "a").read_bytes()
    b'hello'
    """
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def write_array(path: Path, array: NDArray[Any], own: Path | None = None) -> dict[str, Any]:
    """An array as a `.npy` file; gives what the manifest says of it. One that is mapped from a file of its own in the
    folder `own` is not copied: the file gets one more name.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_array(Path(folder, "parents.npy"), np.array([-1, 0, 0], np.int32))["shape"]
    [3]
    """
    source = None if own is None else mapped_from(array)
    if own is not None and source is not None and own in source.parents and link(source, path):
        with path.open("rb") as file:
            os.fsync(file.fileno())
    else:
        with path.open("wb") as file:
            np.save(file, array, allow_pickle=False)
            file.flush()
            os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "crc32": checksum(path), "dtype": str(array.dtype), "shape": [*array.shape]}


def mapped_from(array: NDArray[Any]) -> Path | None:
    """The `.npy` file that holds this array and nothing else, if it was mapped from one.

    >>> mapped_from(np.zeros(3)) is None
    True
    """
    base: Any = array
    while base is not None and not isinstance(base, np.memmap):
        base = getattr(base, "base", None)
    name = getattr(base, "filename", None)
    if name is None or Path(name).suffix != ".npy":
        return None
    try:
        whole = map_array(Path(name))
    except OSError:  # it is gone: what was mapped of it stays
        return None
    same = (whole.shape, whole.dtype) == (array.shape, array.dtype) and _sum(whole) == _sum(array)
    return Path(name) if same else None


def _sum(array: NDArray[Any]) -> int:
    return _core.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8), 0)


def link(source: Path, target: Path) -> bool:
    """Gives a file one more name; False where the system cannot, as across disks.

    >>> link(Path("no/such"), Path("no/such/either"))
    False
    """
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def why_not_replaceable(folder: Path) -> str:
    """Why `save` must not replace this folder; empty if it may.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     why_not_replaceable(Path(folder))
    'exists and is not a saved model'
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (ValueError, OSError, RecursionError):
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        return "exists and is not a saved model"
    ours = {MANIFEST, SERVING, *(f"{name}.npy" for name in FILES | OPTIONAL)}
    others = {path.name for path in folder.iterdir()} - ours
    return f"holds {min(others)!r} beside a saved model" if others else ""


def _exchanged(a: Path, b: Path) -> bool:
    """Whether the system could give each folder the other's name in one step (Linux can)."""
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def swap(fresh: Path, target: Path, old: Path) -> None:
    """Renames into place, in one step where the system can; if it fails, what was there is there again.

    The old folder has the name `fresh` or `old` afterwards.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     paths = [Path(folder, name) for name in ("fresh", "model", "old")]
    ...     for path in paths[:2]:
    ...         path.mkdir()
    ...         _ = Path(path, "what").write_text(path.name)
    ...     swap(*paths)
    ...     Path(folder, "model", "what").read_text()
    'fresh'
    """
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


def manifest_checksum(manifest: dict[str, Any]) -> int:
    """A checksum of what the manifest says, however it is laid out.

    >>> manifest_checksum({"a": 1, "b": 2}) == manifest_checksum({"b": 2, "a": 1}) != manifest_checksum({"a": 1})
    True
    """
    return zlib.crc32(json.dumps(manifest, sort_keys=True).encode())


def checksum(path: Path) -> int:
    """zlib's CRC-32 of a file, on all cores.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a").write_bytes(b"123456789")
    ...     hex(checksum(Path(folder, "a")))
    '0xcbf43926'
    """
    if path.stat().st_size == 0:
        return 0
    return _core.crc32(_mapped(path), 0)


def _mapped(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file. Asked for huge pages before the first of them is read, the system caches it in such."""
    found = np.memmap(path, np.uint8, mode="r")
    mapped = getattr(found, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a system without them
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return found


def identity(source: Path) -> tuple[int, ...]:
    """Tells one saved model from the next in its place, even where their contents are equal.

    >>> identity(Path("no/such/model"))
    ()
    """
    try:
        facts = (source / MANIFEST).stat()
    except OSError:
        return ()
    return facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns


def model_manifest(source: Path) -> dict[str, Any]:
    """What a saved model says of its files, after it was compared with its own checksum.

    >>> model_manifest(Path("no/such/model"))
    Traceback (most recent call last):
    treetop.errors.ModelFileError: no/such/model: no manifest.json: not a saved model, or not all of it
    """
    manifest = load_manifest(source, FORMAT, VERSION)
    files = manifest.get("files")
    if not isinstance(files, dict) or set(files) - OPTIONAL.keys() != FILES.keys():
        raise ModelFileError(f"{source}: {MANIFEST} must list the files {', '.join(FILES)}")
    return manifest


def load_manifest(source: Path, kind: str, version: int) -> dict[str, Any]:
    """A manifest that has its own checksum and is of this kind.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_manifest(Path(folder), {"format": "mine", "version": 1, "files": {}})
    ...     load_manifest(Path(folder), "mine", version=1)
    {'format': 'mine', 'version': 1, 'files': {}}
    """
    try:
        manifest = json.loads((source / MANIFEST).read_bytes())
    except FileNotFoundError:
        what = "model" if kind == FORMAT else "set of label samples"
        raise ModelFileError(f"{source}: no {MANIFEST}: not a saved {what}, or not all of it") from None
    except (ValueError, OSError, RecursionError) as error:
        raise ModelFileError(f"{source}: {MANIFEST} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise ModelFileError(f"{source}: {MANIFEST} is not of the format {kind!r}")
    if manifest.get("version") != version:
        raise ModelFileError(f"{source}: format version {manifest.get('version')!r}; this software reads {version}")
    if manifest.pop("crc32", None) != manifest_checksum(manifest):
        raise ModelFileError(f"{source}: {MANIFEST} does not have its own checksum; it is corrupt")
    return manifest


def write_manifest(target: Path, manifest: dict[str, Any]) -> None:
    """Writes manifest.json with its own CRC-32, after all other files: a folder that has one is complete.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_manifest(Path(folder), {"format": "mine"})
    ...     sorted(json.loads(Path(folder, MANIFEST).read_bytes()))
    ['crc32', 'format']
    """
    signed = {**manifest, "crc32": manifest_checksum(manifest)}
    write_synced(target / MANIFEST, json.dumps(signed, indent=1).encode())
    sync_folder(target)


def _check(path: Path, facts: dict[str, Any]) -> NDArray[np.uint8]:
    """The bytes of a file, mapped, after its size and checksum were compared."""
    if not path.is_file():
        raise ModelFileError(f"{path}: missing")
    if path.stat().st_size != facts["bytes"]:
        raise ModelFileError(f"{path}: {path.stat().st_size} bytes; {facts['bytes']} were written")
    found = _mapped(path) if facts["bytes"] > 0 else np.zeros(0, np.uint8)
    if _core.crc32(found, 0) != facts["crc32"]:
        raise ModelFileError(f"{path}: checksum differs from the manifest's; the file is corrupt")
    return found


def read_array(path: Path, facts: dict[str, Any], wanted: str) -> NDArray[Any]:
    """An array of the type that is wanted, memory-mapped, after its size and checksum were compared.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     facts = write_array(Path(folder, "parents.npy"), np.array([-1, 0, 0], np.int32))
    ...     read_array(Path(folder, "parents.npy"), facts, "int32").tolist()
    [-1, 0, 0]
    """
    content = _check(path, facts)
    try:
        array = map_array(path)
    except (TypeError, ValueError, OSError, OverflowError) as error:
        raise ModelFileError(f"{path}: {error}") from error
    if [*array.shape] != facts["shape"] or str(array.dtype) != facts["dtype"]:
        raise ModelFileError(f"{path}: holds {array.dtype} {array.shape}, the manifest says {facts}")
    if array.ndim != 1 or str(array.dtype) != wanted:
        raise ModelFileError(f"{path}: holds {array.dtype} {array.shape}; a list of {wanted} is needed")
    return content[array.offset : array.offset + array.nbytes].view(array.dtype)  # its pages are in place already


def write_layout(
    path: Path, layout: NDArray[np.uint8], arrays: dict[str, Any], own: Path | None = None
) -> dict[str, Any]:
    """Writes the serving layout; `arrays` are the facts about the arrays that it was made from. If it lies in the file
    `own` already, that gets one more name.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_layout(Path(folder, SERVING), np.zeros(64, np.uint8), {})["bytes"]
    64
    """
    linked = own is not None and own.is_file() and link(own, path)
    with path.open("rb" if linked else "wb", buffering=0) as file:
        for first in range(0, 0 if linked else len(layout), PIECE):
            left = layout[first : first + PIECE].data
            while left:
                left = left[file.write(left) :]
        os.fsync(file.fileno())
    return {
        "version": _core.LAYOUT_VERSION,
        "bytes": len(layout),
        "crc32": _core.crc32(layout, 0),
        "of": manifest_checksum(arrays),
    }


def map_layout(source: Path, manifest: dict[str, Any]) -> NDArray[np.uint8] | None:
    """The serving layout, memory-mapped; None where it has to be made again, with a warning that says why.

    A layout that is there but damaged is an error, as it is for every other file.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     facts = write_layout(Path(folder, SERVING), np.zeros(64, np.uint8), {})
    ...     len(map_layout(Path(folder), {"serving": facts, "files": {}}))
    64
    """
    facts, path = manifest.get("serving"), source / SERVING
    if facts is None:
        return None
    if facts["of"] != manifest_checksum(manifest["files"]):
        why = "was made from other arrays"
    elif facts["version"] != _core.LAYOUT_VERSION:
        why = f"has version {facts['version']!r}; this software reads {_core.LAYOUT_VERSION}"
    elif not path.exists():
        why = "is missing"
    else:
        check_int(f"the size of {SERVING}", facts["bytes"], 1, 2**62)
        return _check(path, facts)  # read through this very mapping, so that decisions find its pages in place
    warnings.warn(f"{path} {why}; the first decision makes the layout again", stacklevel=5)
    return None


def forget_pages(array: NDArray[Any]) -> None:
    """Lets go of the pages of a memory-mapped array that were looked at; they stay in the system's cache.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(3))
    ...     array = np.load(f"{folder}/a.npy", mmap_mode="r")
    ...     forget_pages(array)
    ...     int(array.sum())
    3
    """
    mapped = getattr(array, "_mmap", None)
    if isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
