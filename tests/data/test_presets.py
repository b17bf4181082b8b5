"""The paper's sets: Table 1, where their files are looked for, and how `simulate` plays them."""

import json
import re
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest
from helpers.archives import NEWER, OLDER, parts
from helpers.commands import call, shell
from helpers.problems import topics
from helpers.writers import FOLDERS, npz_folder, pair_folder, same_rows, sparse_folder

import treetop
from treetop.data.presets import PRESETS

# Dataset: initialisation size, time horizon, arms, leaf size, as the paper prints them.
TABLE_1 = """
eurlex-4k 5000 154490 4271 10
amazoncat-13k 5000 1186239 13330 10
wiki10-31k 5000 141460 30938 10
wiki-500k 20000 1779881 501070 100
amazon-670k 20000 490449 670091 100
amazon-3m 50000 1717899 2812281 100
"""


def made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


LAYOUTS: dict[str, Callable[[str, Path], None]] = {
    "older archive": lambda name, d: pair_folder(made(d / OLDER[name][0]), parts(), OLDER[name][1]),
    "newer archive": lambda name, d: pair_folder(made(d / NEWER[name]), parts()),
    "sparse text": lambda name, d: sparse_folder(made(d / name), parts()),
    "npz": lambda name, d: npz_folder(made(d / name), parts()),
    "PECOS": lambda name, d: npz_folder(made(d / "xmc-base" / name), parts(), "tfidf-attnxml"),
    "archive in a folder": lambda name, d: pair_folder(made(d / name / OLDER[name][0]), parts(), OLDER[name][1]),
    "no folder": lambda name, d: pair_folder(d, parts(), OLDER[name][1]),
    "no folder, no name": lambda name, d: pair_folder(d, parts()),
}


def test_table_1() -> None:
    rows = [f"{p.name} {p.init} {p.horizon} {p.arms} {p.max_leaf}" for p in PRESETS.values()]
    assert rows == TABLE_1.split("\n")[1:-1]
    assert [p.name for p in PRESETS.values() if p.bootstrap] == ["eurlex-4k", "wiki10-31k"]
    assert all(name == preset.name for name, preset in PRESETS.items())
    with pytest.raises(FrozenInstanceError):
        PRESETS["eurlex-4k"].init = 1  # type: ignore[misc]


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_set_is_found_in_every_layout(layout: str, name: str, tmp_path: Path) -> None:
    for other in set(PRESETS) - {name} if layout != "no folder, no name" else []:  # neighbours that must not be taken
        pair_folder(tmp_path, parts(n=30, seed=1), OLDER[other][1])
        pair_folder(made(tmp_path / OLDER[other][0]), parts(n=30, seed=1), OLDER[other][1])
    LAYOUTS[layout](name, tmp_path)
    data = treetop.load(name, data_dir=tmp_path)
    assert (data.name, data.preset) == (name, PRESETS[name])
    for rows, M in zip((data.X, data.Y, data.X_init, data.Y_init), parts(), strict=True):
        same_rows(rows, M)


@pytest.mark.parametrize("form", FOLDERS)
def test_a_folder_of_its_name_may_have_any_form(form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FOLDERS[form](made(tmp_path / "EURLEX-4K"), parts())
    assert len(treetop.load("eurlex-4k", data_dir=str(tmp_path)).X) == 60
    assert len(treetop.load("eurlex-4k", data_dir=tmp_path / "EURLEX-4K").X) == 60
    monkeypatch.chdir(tmp_path)
    assert len(treetop.load("eurlex-4k").X) == 60


@pytest.mark.parametrize("name", PRESETS)
def test_missing_files_are_named_with_their_place(name: str, tmp_path: Path) -> None:
    preset = PRESETS[name]
    with pytest.raises(FileNotFoundError) as refused:
        treetop.load(preset.name, data_dir=tmp_path / "nowhere")
    message = str(refused.value)
    for part in (*preset.files, *preset.folders, str(tmp_path / "nowhere" / preset.name), "X.trn.npz", "XMLRepository"):
        assert part in message
    assert "\n" not in message
    pair_folder(made(tmp_path / preset.folders[-1]), parts())
    (tmp_path / preset.folders[-1] / "test.txt").unlink()
    with pytest.raises(FileNotFoundError, match=f"{re.escape(preset.folders[-1])} lacks test.txt or"):
        treetop.load(preset.name, data_dir=tmp_path)


def test_data_dir_is_for_presets(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data_dir is for eurlex-4k, .*, not for 'debian'"):
        treetop.load("debian", data_dir=tmp_path)


def test_other_arms_than_the_papers_are_said(tmp_path: Path) -> None:
    pair_folder(tmp_path, parts())
    facts = treetop.load("eurlex-4k", data_dir=tmp_path).facts()
    assert (facts["arms"], facts["paper_arms"]) == (60, 4271)
    assert "paper_arms" not in treetop.load(tmp_path).facts()
    same_arms = topics(n=90, arms=4271)
    npz_folder(tmp_path, (same_arms[0][:60], same_arms[1][:60], same_arms[0][60:], same_arms[1][60:]))
    assert "paper_arms" not in treetop.load("eurlex-4k", data_dir=tmp_path).facts()


def test_sizes_are_the_papers_as_far_as_the_rows_go(tmp_path: Path) -> None:
    pair_folder(tmp_path, parts())
    eurlex, cat = (treetop.load(name, data_dir=tmp_path) for name in ("eurlex-4k", "amazoncat-13k"))
    assert eurlex.sizes(None, None, None) == (30, 154_490, 10)  # the horizon is drawn with replacement
    assert cat.sizes(None, None, None) == (30, 60, 10)
    assert cat.sizes(7, 200, 3) == (7, 200, 3)
    assert treetop.load("amazon-3m", data_dir=tmp_path).sizes(None, 5, None) == (30, 5, 100)
    plain = treetop.load(tmp_path)
    assert plain.sizes(None, None, None) == (5000, 60, 10)
    alone = treetop.load(tmp_path / "train.txt")
    assert alone.sizes(20, None, None) == (20, 40, 10)
    single = treetop.Dataset("eurlex-4k", alone.X, alone.Y, preset=PRESETS["eurlex-4k"])
    assert single.sizes(None, 9, None) == (59, 9, 10)


def test_simulate_plays_a_preset(tmp_path: Path) -> None:
    pair_folder(made(tmp_path / "AmazonCat"), parts(n=300), "amazonCat_")
    words = ["simulate", "amazoncat-13k", "--data-dir", str(tmp_path), "--json"]
    given = ["--init", "50", "--horizon", "90", "--max-leaf", "5"]
    for more, sizes in (([], (100, 200, 10)), (given, (50, 90, 5))):
        result = json.loads(call(*words, *more).stdout)
        assert result["dataset"]["paper_arms"] == 13330
        settings = result["runs"][0]["settings"]
        assert (settings["init"], settings["horizon"], settings["max_leaf"]) == sizes


def test_simulate_says_what_is_missing_in_one_line(tmp_path: Path) -> None:
    cases = {("eurlex-4k", "--data-dir", str(tmp_path)): "eurlex-4k is not in", (str(tmp_path),): "holds no dataset"}
    for words, message in cases.items():
        result = shell("simulate", *words)
        assert (result.returncode, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert message in result.stderr
