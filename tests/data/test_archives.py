"""The repository's archives as a stranger has them: packed, unpacked as they come, and played by name.

Small stand-ins with the folders, file names and line format of the real ones; what else may lie in those (id maps,
names of features and labels, filters) lies here too, so that it cannot be taken for data.
"""

import json
import zipfile
from pathlib import Path

import pytest
from helpers.archives import NEWER, OLDER, parts
from helpers.commands import call, shell
from helpers.writers import Parts, row_text

from treetop.data.presets import PRESETS

# What the archives are called, and what they hold beside the two parts.
DOWNLOADS = {
    "eurlex-4k": ("Eurlex.zip", "Eurlex-4K.bow.zip"),
    "amazoncat-13k": ("AmazonCat.zip", "AmazonCat-13K.bow.zip"),
    "wiki10-31k": ("Wiki10.zip", "Wiki10-31K.bow.zip"),
    "wiki-500k": ("WikipediaLarge-500K.zip", "Wikipedia-500K.bow.zip"),
    "amazon-670k": ("Amazon.zip", "Amazon-670K.bow.zip"),
    "amazon-3m": ("Amazon-3M.zip", "Amazon-3M.bow.zip"),
}
BESIDE = {
    "Xf.txt": "word a\nword b\n",
    "Y.txt": "Label one\nLabel two\n",
    "README.txt": "1 2 3\n",
    "mappings/id_map.txt": "0 B000\n1 B001\n",
    "filter_labels_test.txt": "1 1\n",
}
AGES = ["older", "newer"]


def part(X: object, Y: object) -> str:
    """A part in the repository's format; rows without labels begin with a space, and lines end as on Windows."""
    rows = [row_text(x, y) for x, y in zip(X, Y, strict=True)]  # type: ignore[call-overload]
    return "\r\n".join([f"{len(rows)} {X.shape[1]} {Y.shape[1]}", *rows])  # type: ignore[attr-defined]


def archive(name: str, age: str, where: Path, data: Parts) -> Path:
    """One download: a folder with the two parts and what lies beside them."""
    folder, stem = OLDER[name] if age == "older" else (NEWER[name], "")
    path = where / DOWNLOADS[name][AGES.index(age)]
    with zipfile.ZipFile(path, "w") as packed:
        for what, halves in (("train", data[:2]), ("test", data[2:])):
            packed.writestr(f"{folder}/{stem}{what}.txt", part(*halves))
        for other, text in BESIDE.items():
            packed.writestr(f"{folder}/{other}", text)
    return path


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", PRESETS)
def test_an_unpacked_archive_is_played_by_name(name: str, age: str, tmp_path: Path) -> None:
    data = parts(n=300)
    with zipfile.ZipFile(archive(name, age, tmp_path, data)) as packed:
        packed.extractall(tmp_path)
    words = ["--strategy", "igw", "--strategy", "greedy", "--horizon", "150", "--first-epoch", "64", "--json"]
    result = json.loads(call("simulate", name, "--data-dir", str(tmp_path), *words).stdout)
    facts = result["dataset"]
    assert (facts["name"], facts["rows"], facts["arms"], facts["features"]) == (name, 200, 60, 40)
    assert facts["paper_arms"] == PRESETS[name].arms
    assert facts["labels_per_row"] == round(data[1].nnz / 200, 2)
    assert [run["strategy"] for run in result["runs"]] == ["igw", "greedy"]
    for run in result["runs"]:
        settings = run["settings"]
        assert (settings["init"], settings["max_leaf"]) == (100, PRESETS[name].max_leaf)
        assert run["checkpoints"][-1][0] == 150


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("name", PRESETS)
def test_an_archive_that_is_still_packed_is_named(name: str, age: str, tmp_path: Path) -> None:
    path = archive(name, age, tmp_path, parts())
    if name == "eurlex-4k":
        result = shell("simulate", name, "--data-dir", str(tmp_path))
        assert (result.returncode, result.stderr.count("\n")) == (2, 1)
        assert f"{path} is still packed: unpack it there" in result.stderr
        return
    with pytest.raises(FileNotFoundError, match=rf"{path.name} is still packed: unpack it there; put "):
        PRESETS[name].find(tmp_path)


def test_reproduce_plays_an_archive_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(archive("eurlex-4k", "older", tmp_path, parts(n=300))) as packed:
        packed.extractall(tmp_path)
    words = ["--data", "eurlex-4k", "--data-dir", str(tmp_path), "--quick", "--horizon", "120"]
    found = json.loads(call("reproduce", "tables", "curves", *words, "--out", str(tmp_path / "out"), "--json").stdout)
    assert found["curves"]["datasets"][0]["name"] == "eurlex-4k"
    assert found["tables"]["datasets"][0]["horizon"] == 120
