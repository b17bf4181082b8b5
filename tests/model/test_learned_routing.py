"""Learned routing on disk: the same when it is loaded, and whatever is wrong with it a clear error."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

from treetop import LabelSamples, Model, ModelFileError, Policy, Pooled
from treetop.arrays import Rows, as_rows
from treetop.model.learned_routing import PARTS, LearnedRouting
from treetop.model.storage import CSR, MANIFEST, manifest_checksum, write_array

FILES = [f"{name}_{part}" for name in ("base_routing", "held_out_0", "held_out_1") for part in CSR]


@pytest.fixture(scope="module")
def model(problem: Problem) -> Model:
    labels = LabelSamples.of(problem.tree, problem.X[:300], problem.Y[:300])
    return Pooled(label_samples=labels).learn(problem.model, problem.feedback(200))


@pytest.fixture
def saved(model: Model, tmp_path: Path) -> Path:
    model.save(tmp_path / "m")
    return tmp_path / "m"


def lie(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes what the manifest says and signs it anew, as a careful forger would."""
    manifest = json.loads((folder / MANIFEST).read_bytes())
    del manifest["crc32"]
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps({**manifest, "crc32": manifest_checksum(manifest)}))


def forge(folder: Path, name: str, change: Callable[[Any], Any]) -> None:
    """Another array with everything about it in order but its contents."""
    facts = write_array(folder / f"{name}.npy", change(np.load(folder / f"{name}.npy")))
    lie(folder, lambda manifest: manifest["files"].update({name: facts}))


def routings(learned: LearnedRouting | None) -> tuple[Rows, ...]:
    assert learned is not None
    return (learned.base, *learned.held_out)


def test_it_is_the_same_when_it_is_loaded(model: Model, saved: Path, problem: Problem) -> None:
    again = Model.load(saved)
    assert again.learned_routing is not None
    assert model.learned_routing is not None
    assert again.learned_routing.numbers() == model.learned_routing.numbers()
    for mine, wanted in zip(routings(again.learned_routing), routings(model.learned_routing), strict=True):
        assert all(np.array_equal(getattr(mine, part), getattr(wanted, part)) for part in PARTS)
        assert mine.columns == wanted.columns
    one, two = (Policy().decide_batch(m, problem.X[:50], seed=3) for m in (again, model))
    assert np.array_equal(one.scores, two.scores)


def test_models_without_it_are_loaded(problem: Problem, model: Model, tmp_path: Path) -> None:
    for other in (problem.model, replace(model, learned_routing=None)):
        other.save(tmp_path / "m")
        again = Model.load(tmp_path / "m")
        assert again.learned_routing is None
        assert again.has_arm_routes == other.has_arm_routes
        assert not {path.stem for path in (tmp_path / "m").iterdir()} & set(FILES)


@pytest.mark.parametrize("name", FILES)
def test_missing_short_and_damaged_files(saved: Path, name: str) -> None:
    path = saved / f"{name}.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(
        ModelFileError, match=rf"{name}\.npy: checksum differs from the manifest's; the file is corrupt"
    ):
        Model.load(saved)
    os.truncate(path, len(data) - 4)
    with pytest.raises(ModelFileError, match=rf"{name}\.npy: {len(data) - 4} bytes; {len(data)} were written"):
        Model.load(saved)
    path.unlink()
    with pytest.raises(ModelFileError, match=rf"{name}\.npy: missing"):
        Model.load(saved)
    lie(saved, lambda manifest: manifest["files"].pop(name))
    with pytest.raises(ModelFileError, match=f"not a valid model: '{name}'"):
        Model.load(saved, layout=False)


def beyond(index: Any) -> Any:
    return np.concatenate([index[:-1], [41]]).astype(np.int32)  # 40 features, and the bias


@pytest.mark.parametrize("which", ["base_routing", "held_out_0", "held_out_1"])
@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("index", beyond, r"index 41 .* outside \[0, 41\)"),
        ("index", lambda index: index[::-1].copy(), "indices must rise strictly in every row"),
        ("index", lambda index: index[:-1], "routing"),
        ("index", lambda index: index.astype(np.int64), "a list of int32 is needed"),
        ("value", lambda value: np.append(value[:-1], np.float32(np.nan)), "nan"),
        ("value", lambda value: value[:-1], "routing"),
        ("start", lambda start: start[:-1], "routing"),
        ("start", lambda start: np.append(start[:-1], start[-1] + 9), "routing"),
        ("start", lambda start: np.append(start[0] - 5, start[1:]), "routing"),
        ("start", lambda start: start[::-1].copy(), "routing"),
    ],
)
def test_files_with_the_right_checksum_and_the_wrong_contents(
    saved: Path, which: str, part: str, change: Callable[[Any], Any], message: str
) -> None:
    forge(saved, f"{which}_{part}", change)
    with pytest.raises(ModelFileError, match=message):
        Model.load(saved, layout=False)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        (None, "there are files of routing before any reward, but no numbers that go with them"),
        ({"rounds": 8}, "'digest'"),
        ({"digest": 8}, "'rounds'"),
        ({"digest": -1, "rounds": 0}, "digest is -1; it must lie in"),
        ({"digest": 1, "rounds": -1}, "rounds is -1; it must lie in"),
        ({"digest": "1", "rounds": 1}, "digest must be a whole number"),
        ({"digest": 1, "rounds": 0.5}, "rounds must be a whole number"),
        ({"digest": 1, "rounds": 1, "path_weight": 1.5}, "path_weight is 1.5"),
        (7, "must be a mapping"),
    ],
)
def test_numbers_that_cannot_be(saved: Path, numbers: Any, message: str) -> None:
    lie(saved, lambda manifest: manifest.update(learned_routing=numbers))
    with pytest.raises(ModelFileError, match=message):
        Model.load(saved, layout=False)


def test_numbers_without_files(problem: Problem, tmp_path: Path) -> None:
    problem.model.save(tmp_path / "m")
    lie(tmp_path / "m", lambda manifest: manifest.update(learned_routing={"digest": 1, "rounds": 0}))
    with pytest.raises(ModelFileError, match="base_routing_start"):
        Model.load(tmp_path / "m")


def test_routing_of_another_model_is_refused(model: Model) -> None:
    learned = model.learned_routing
    assert learned is not None
    nodes, arms = model.tree.n_nodes, model.n_arms
    short, narrow = learned.base.head(nodes - 1), as_rows(np.zeros((nodes, 4)))
    for change, message in (
        ({"base": short}, f"routing before any reward has {nodes - 1} rows; there are {nodes} nodes"),
        ({"base": narrow}, "routing before any reward has 4 columns; the model has 41"),
        ({"held_out": learned.held_out[:1]}, "there is routing of 1 folds; there must be 2"),
        ({"held_out": (short, short)}, f"{nodes} nodes and {arms} arms need {nodes + arms}"),
        (
            {"held_out": (as_rows(np.zeros((nodes + arms, 4))),) * 2},
            "routing of a fold has 4 columns; the model has 41",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            replace(model, learned_routing=replace(learned, **change))
