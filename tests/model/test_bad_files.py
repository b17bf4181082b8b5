"""Bad files: models and datasets on disk that are damaged, foreign or lie, and places that cannot be written to."""

import io
import json
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.bad_input import POLICY, TYPE, VALUE, Call, Table, refused, same, table
from helpers.problems import Problem

import treetop
from treetop import Dataset, Model, ModelFileError, Stream
from treetop.arrays import as_rows

ARRAYS = (
    "parents",
    "leaf_of",
    "routing_start",
    "routing_index",
    "routing_value",
    "rewards_start",
    "rewards_index",
    "rewards_value",
)


@pytest.fixture
def saved(learned: Model, tmp_path: Path) -> Path:
    learned.save(tmp_path / "m")
    return tmp_path / "m"


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def lie(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes what the manifest says and signs it anew, as a careful forger would."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["crc32"]
    change(manifest)
    manifest["crc32"] = zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
    path.write_text(json.dumps(manifest))


def forge(folder: Path, name: str, data: bytes, **facts: Any) -> None:
    """Other bytes under the name of an array, with size and checksum to match."""
    (folder / f"{name}.npy").write_bytes(data)
    facts |= {"bytes": len(data), "crc32": zlib.crc32(data)}
    lie(folder, lambda m: m["files"][name].update(facts))


def fact(folder: Path, **facts: Any) -> None:
    """Another fact about the parents, whose file is as it was."""
    lie(folder, lambda m: m["files"]["parents"].update(facts))


def npy(array: Any, **settings: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **settings)
    return file.getvalue()


def swap(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Another array, with everything about it in order but its contents."""
    array = change(np.load(folder / f"{name}.npy"))
    forge(folder, name, npy(array), shape=[*array.shape], dtype=str(array.dtype))


# ------------------------------------------------------------------------------------------------- models


@pytest.mark.parametrize("name", ARRAYS)
def test_a_file_cut_anywhere_or_changed_anywhere_is_refused(name: str, saved: Path) -> None:
    path = saved / f"{name}.npy"
    whole = path.read_bytes()
    for end in (0, 5, 60, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:end])
        with refused(ModelFileError, f"{name}.npy: {end} bytes; {len(whole)} were written"):
            Model.load(saved)
    path.write_bytes(whole + b"\0")
    with refused(ModelFileError, f"{name}.npy: {len(whole) + 1} bytes; {len(whole)} were written"):
        Model.load(saved)
    for at in range(0, len(whole), max(1, len(whole) // 20)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with refused(ModelFileError, f"{name}.npy: checksum differs"):
            Model.load(saved)


def test_a_manifest_changed_anywhere_is_refused_or_says_the_same(saved: Path, learned: Model) -> None:
    path = saved / "manifest.json"
    whole, refusals = path.read_bytes(), 0
    for at in range(0, len(whole), 5):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            model = Model.load(saved)
        except ModelFileError as error:
            refusals += str(saved) in str(error)
        else:  # white space for white space
            assert (model.epoch, model.n_seen, model.n_features) == (learned.epoch, learned.n_seen, learned.n_features)
    assert refusals >= 0.8 * len(whole) / 5


MANIFESTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "manifest.json cannot be read"),
    "cut": (b'{"format": "treetop-model", ', "manifest.json cannot be read"),
    "binary": (bytes(range(256)), "manifest.json cannot be read"),
    "nested": (b"[" * 200_000, "manifest.json cannot be read"),
    "a list": (b"[1, 2]", "manifest.json is not of the format 'treetop-model'"),
    "foreign": (b'{"name": "My web app", "icons": []}', "manifest.json is not of the format 'treetop-model'"),
    "newer": (b'{"format": "treetop-model", "version": 7}', "format version 7; this software reads 6"),
    "older": (b'{"format": "treetop-model"}', "format version None; this software reads 6"),
    "unsigned": (b'{"format": "treetop-model", "version": 6}', "does not have its own checksum; it is corrupt"),
}


@pytest.mark.parametrize(("data", "message"), MANIFESTS.values(), ids=MANIFESTS)
def test_other_manifests_are_refused(data: bytes, message: str, saved: Path) -> None:
    (saved / "manifest.json").write_bytes(data)
    with refused(ModelFileError, str(saved), message):
        Model.load(saved)


LIES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file less": (lambda m: lie(m, lambda f: f["files"].pop("parents")), "must list the files parents, leaf_of"),
    "a file more": (lambda m: lie(m, lambda f: f["files"].update(x={})), "must list the files parents, leaf_of"),
    "no files": (lambda m: lie(m, lambda f: f.pop("files")), "must list the files"),
    "no facts": (lambda m: lie(m, lambda f: f["files"].update(parents=[])), "not a valid model"),
    "shape": (lambda m: fact(m, shape=[7]), "parents.npy: holds int32 (31,), the manifest says"),
    "type": (lambda m: fact(m, dtype="int64"), "parents.npy: holds int32 (31,), the manifest says"),
    "columns 0": (lambda m: lie(m, lambda f: f.update(columns=0)), "columns is 0; it must lie in [1, "),
    "columns 40.0": (lambda m: lie(m, lambda f: f.update(columns=40.0)), "columns must be a whole number, not 40.0"),
    "columns 5": (lambda m: lie(m, lambda f: f.update(columns=5)), "is outside [0, 5)"),
    "no columns": (lambda m: lie(m, lambda f: f.pop("columns")), "not a valid model: 'columns'"),
    "epoch -1": (lambda m: lie(m, lambda f: f.update(epoch=-1)), "epoch is -1; it must lie in [0, "),
    "n_seen inf": (lambda m: lie(m, lambda f: f.update(n_seen=np.inf)), "n_seen must be a whole number, not inf"),
    "geometric no": (lambda m: lie(m, lambda f: f.update(geometric="no")), "geometric must be True or False, not 'no'"),
    "float64": (lambda m: swap(m, "routing_value", np.float64), "holds float64 (1139,); a list of float32 is needed"),
    "big endian": (lambda m: swap(m, "parents", lambda a: a.astype(">i4")), "; a list of int32 is needed"),
    "two dimensions": (lambda m: swap(m, "leaf_of", lambda a: a[None]), "holds int32 (1, 60); a list of int32"),
    "nan weight": (lambda m: swap(m, "rewards_value", lambda a: a * np.float32(np.nan)), "nan"),
    "index 41": (lambda m: swap(m, "routing_index", lambda a: a + np.int32(41)), "is outside [0, 41)"),
    "unsorted": (lambda m: swap(m, "routing_index", lambda a: a[::-1].copy()), "indices must rise strictly"),
    "pointers": (lambda m: swap(m, "rewards_start", lambda a: a[::-1].copy()), "row pointers must begin with 0"),
    "pointers too far": (lambda m: swap(m, "rewards_start", lambda a: a * 2), "row pointers end at"),
    "fewer weights": (lambda m: swap(m, "routing_value", lambda a: a[1:]), "1138 values"),
    "parent of itself": (lambda m: swap(m, "parents", lambda a: np.arange(31, dtype=np.int32)), "must be -1, not 0"),
    "leaf 31": (lambda m: swap(m, "leaf_of", lambda a: a * 0 + np.int32(31)), "leaf 31 is outside [0, 31)"),
    "fewer arms": (lambda m: swap(m, "leaf_of", lambda a: a[1:]), "31 nodes and 59 arms"),
    "a pickle": (lambda m: forge(m, "parents", npy(np.array([{}]), allow_pickle=True)), "Python objects in dtype"),
    "only a pickle": (lambda m: forge(m, "parents", b"\x80\x04K\x01."), "EOF: reading magic string"),
    "an npz": (lambda m: forge(m, "parents", b"PK\3\4" + bytes(99)), "the magic string is not correct"),
    "an empty file": (lambda m: forge(m, "parents", b""), "EOF: reading magic string"),
    "huge": (lambda m: forge(m, "parents", npy(np.arange(5)).replace(b"5,), }    ", b"50000,), }")), "npy: mmap"),
}


@pytest.mark.parametrize(("spoil", "message"), LIES.values(), ids=LIES)
def test_a_manifest_or_array_that_lies_is_refused(spoil: Any, message: str, saved: Path) -> None:
    spoil(saved)
    with refused(ModelFileError, str(saved), message):
        Model.load(saved)


def test_folders_that_are_no_model_are_refused(saved: Path, tmp_path: Path) -> None:
    for missing in (tmp_path / "nowhere", tmp_path):
        with refused(ModelFileError, f"{missing}: no manifest.json"):
            Model.load(missing)
    with refused(ModelFileError, "manifest.json cannot be read"):
        Model.load(saved / "parents.npy")
    (saved / "leaf_of.npy").unlink()
    (saved / "leaf_of.npy").mkdir()
    with refused(ModelFileError, "leaf_of.npy: missing"):
        Model.load(saved)


def test_other_files_beside_a_model_are_left_alone(saved: Path, learned: Model, problem: Problem) -> None:
    (saved / "notes.txt").write_text("dear")
    before = everything(saved)
    same(POLICY.decide(Model.load(saved), problem.X[0], 1), POLICY.decide(learned, problem.X[0], 1))
    with refused(FileExistsError, f"{saved} holds 'notes.txt' beside a saved model; nothing was written"):
        problem.model.save(saved)
    assert everything(saved) == before


@pytest.mark.parametrize("foreign", ["file", "folder", "web app", "broken manifest"])
def test_what_is_not_a_model_is_not_replaced(foreign: str, tmp_path: Path, learned: Model) -> None:
    target = tmp_path / "mine"
    if foreign == "file":
        target.write_text("dear")
    else:
        target.mkdir()
        (target / "thesis.txt").write_text("dear")
    if foreign == "web app":
        (target / "manifest.json").write_text('{"name": "My web app"}')
    if foreign == "broken manifest":
        (target / "manifest.json").write_text("{")
    before = everything(tmp_path)
    with refused(FileExistsError, f"{target} exists and is not a saved model; nothing was written"):
        learned.save(target)
    assert everything(tmp_path) == before


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path, learned: Model) -> None:
    (tmp_path / "file").write_text("dear")
    with pytest.raises(OSError, match=f"{tmp_path}/file"):
        learned.save(tmp_path / "file" / "model")
    with pytest.raises(OSError, match="/proc"):  # a read-only folder, even for root
        learned.save("/proc/model")
    assert everything(tmp_path) == {"file": b"dear"}


@pytest.mark.parametrize("broken", ["fsync", "rename"])
def test_a_save_that_fails_leaves_the_old_model(
    broken: str, saved: Path, problem: Problem, learned: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, works = everything(saved.parent), getattr(os, broken)
    for good in range(3 if broken == "fsync" else 2):  # calls that work before the one that does not
        left = [True] * good

        def fail(*words: Any, left: list[bool] = left) -> Any:
            if broken == "rename" and str(words[0]).endswith("old"):  # putting the old one back
                return works(*words)
            if not left:
                raise OSError(28, "No space left on device")
            left.pop()
            return works(*words)

        monkeypatch.setattr(os, broken, fail)
        monkeypatch.setattr("treetop.model.storage._exchanged", lambda a, b: False)  # a system without that call
        with pytest.raises(OSError, match="No space left on device"):
            problem.model.save(saved)
        monkeypatch.setattr(os, broken, works)
        assert everything(saved.parent) == before
    assert Model.load(saved).epoch == learned.epoch


# ------------------------------------------------------------------------------------------------- datasets

FILES = ("X.trn", "Y.trn", "X.tst", "Y.tst")
BROKEN: dict[str, tuple[Callable[[Path], object], type[Exception], str]] = {
    "empty": (lambda path: path.write_bytes(b""), VALUE, "is not a scipy sparse matrix"),
    "text": (lambda path: path.write_text("6 5 4"), VALUE, "is not a scipy sparse matrix"),
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-30]), VALUE, "is not a scipy sparse matrix"),
    "damaged": (lambda path: path.write_bytes(path.read_bytes().replace(b"PK\1\2", b"PKPK")), VALUE, "is not a scipy"),
    "compressed badly": (lambda path: squeezed(path), VALUE, "is not a scipy sparse matrix"),
    "npy": (lambda path: path.write_bytes(npy(np.eye(3))), VALUE, "is not a scipy sparse matrix"),
    "pickle": (lambda path: path.write_bytes(npy(np.array([{}]), allow_pickle=True)), VALUE, "Object arrays cannot be"),
    "other arrays": (lambda path: np.savez(path, a=np.eye(3)), VALUE, "does not contain a sparse array or matrix"),
    "other format": (lambda path: np.savez(path, format=b"xyz", shape=(6, 5), data=[1.0]), VALUE, "Unknown format"),
    "index 99": (lambda path: raw(path, "csr", [99], [0, 1, 1, 1, 1, 1, 1]), VALUE, "row 0: index 99 is outside [0, "),
    "csc": (lambda path: raw(path, "csc", [10**8], [0, 1, 1, 1, 1]), VALUE, f"index {10**8} is outside [0, 6)"),
    "pointers": (lambda path: raw(path, "csr", [0], [0, 9, 1, 1, 1, 1, 1]), VALUE, "row pointers"),
    "nan": (lambda path: raw(path, "csr", [0], [0, 1, 1, 1, 1, 1, 1], np.nan), VALUE, "value nan at index 0 is not"),
    "text inside": (lambda path: raw(path, "csr", [0], [0, 1, 1, 1, 1, 1, 1], "a"), TYPE, "hold <U1 values"),
}


def raw(path: Path, kind: str, indices: Any, indptr: Any, value: Any = 1.0) -> None:
    np.savez(path, format=kind.encode(), shape=(6, 4), data=[value], indices=indices, indptr=indptr)


def squeezed(path: Path) -> None:
    """A valid zip directory over a stream that cannot be unpacked."""
    sp.save_npz(path, sp.random(50, 40, 0.5), compressed=True)
    data = bytearray(path.read_bytes())
    begin = data.index(b"data.npy") + 30
    data[begin : begin + 200] = b"\xff" * 200
    path.write_bytes(data)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    for name in FILES:
        sp.save_npz(tmp_path / f"{name}.npz", sp.csr_matrix(np.eye(6, 5 if name[0] == "X" else 4)))
    return tmp_path


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("spoil", "error", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named(spoil: Any, error: Any, message: str, name: str, dataset: Path) -> None:
    spoil(dataset / f"{name}.npz")
    with refused(error, f"{name}.npz", message):
        treetop.load(dataset)


def test_folders_that_are_no_dataset_are_refused(dataset: Path) -> None:
    with refused(FileNotFoundError, "nowhere' is neither 'debian' nor a folder"):
        treetop.load(dataset / "nowhere")
    with refused(ValueError, "X.trn.npz is one matrix; load the folder that holds X.trn.npz, Y.trn.npz"):
        treetop.load(dataset / "X.trn.npz")
    (dataset / "X.tst.npz").unlink()
    with refused(FileNotFoundError, f"{dataset} lacks X.tst.npz; a dataset is X.trn.npz, Y.trn.npz,"):
        treetop.load(dataset)


@pytest.mark.parametrize("kind", ["csc", "coo", "bsr", "dia"])
def test_folders_of_other_matrices_load_the_same(kind: str, dataset: Path) -> None:
    clean = treetop.load(dataset)
    for name in FILES:
        matrix: Any = sp.load_npz(dataset / f"{name}.npz")
        sp.save_npz(dataset / f"{name}.npz", matrix.asformat(kind).astype(np.int8))
    for name in ("X", "Y", "X_init", "Y_init"):
        same(getattr(treetop.load(dataset), name), getattr(clean, name))


def data(n: int = 6, **changes: Any) -> Dataset:
    return Dataset(**{"name": "mine", "X": as_rows(np.eye(n, 5)), "Y": as_rows(np.eye(n, 4)), **changes})


def parts(X: Any, Y: Any) -> Dataset:
    return data(X_init=as_rows(X), Y_init=as_rows(Y))


X0, Y0, X3, Y3 = np.eye(0, 5), np.eye(0, 4), np.eye(3, 5), np.eye(3, 4)
BAD_DATA: Table = {
    "rows": (lambda: data(Y=as_rows(np.eye(5, 4))), VALUE, "mine: the stream has 6 contexts, but 5 rows of labels"),
    "init rows": (lambda: parts(np.eye(3, 5), np.eye(2, 4)), VALUE, "initialisation set has 3 contexts, but 2 rows"),
    "init features": (lambda: parts(np.eye(3, 6), np.eye(3, 4)), VALUE, "has 6 features and 4 arms; 5 and 4 are"),
    "init arms": (lambda: parts(np.eye(3, 5), np.eye(3, 3)), VALUE, "has 5 features and 3 arms; 5 and 4 are needed"),
    "half a set": (lambda: data(X_init=as_rows(np.eye(2, 5))), VALUE, "one is given without the other"),
    "reward 2": (lambda: data(Y=as_rows(2 * np.eye(6, 4))), VALUE, "rewards from 2 to 2; they must lie in [0, 1]"),
    "reward -1": (lambda: parts(np.eye(3, 5), -np.eye(3, 4)), VALUE, "rewards from -1 to -1; they must lie in [0, 1]"),
    "names": (lambda: data(arm_names=("a",)), VALUE, "mine: 1 names of arms where 4 are needed"),
    "init 0": (lambda: Stream.draw(data(), 0, 3, 0), VALUE, "init is 0; it must lie in [1, 5]"),
    "init 6": (lambda: Stream.draw(data(), 6, 3, 0), VALUE, "init is 6; it must lie in [1, 5]"),
    "init 1.5": (lambda: Stream.draw(data(), 1.5, 3, 0), TYPE, "init must be a whole number, not 1.5"),  # type: ignore[arg-type]
    "init 4 of 3": (lambda: Stream.draw(parts(X3, Y3), 4, 3, 0), VALUE, "init is 4; it must lie in [1, 3]"),
    "init 1 of 0": (lambda: Stream.draw(parts(X0, Y0), 1, 3, 0), VALUE, "init is 1; it must lie in [1, 0]"),
    "horizon 0": (lambda: Stream.draw(data(), 2, 0, 0), VALUE, "horizon is 0; it must lie in [1, 2147483647]"),
    "horizon 2**40": (lambda: Stream.draw(data(), 2, 2**40, 0), VALUE, f"horizon is {2**40}; it must lie"),
    "seed -1": (lambda: Stream.draw(data(), 2, 3, -1), VALUE, f"seed is -1; it must lie in [0, {2**64 - 1}]"),
    "seed None": (lambda: Stream.draw(data(), 2, 3, None), TYPE, "seed must be a whole number, not None"),  # type: ignore[arg-type]
    "no stream": (lambda: Stream.draw(data(0, X_init=as_rows(X3), Y_init=as_rows(Y3)), 1, 1, 0), VALUE, "has 0 rows"),
}


@table(BAD_DATA)
def test_bad_datasets_and_streams_are_refused(call: Call, error: Any, message: str) -> None:
    with refused(error, message):
        call()
