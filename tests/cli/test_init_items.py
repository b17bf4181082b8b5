"""treetop init from the owner's items: CSV, JSON lines and Parquet, any combination of what they may have."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import call, shell

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.creation import create_folder
from treetop.bandit.item_files import ItemColumns, read_items

N = 40
ROWS: list[dict[str, Any]] = [
    {
        "sku": f"s{i}",
        "shelf": f"dept {i % 2} > shelf {i % 4}" if i else None,
        "in_stock": i % 3 > 0,
        "price": i / 2 if i != 7 else None,
        "brand": f"b{i % 5}",
        "v": [float(i % 4 == j) for j in range(4)],
    }
    for i in range(N)
]


def write(folder: Path, form: str) -> Path:
    path = folder / f"items.{form}"
    if form == "parquet":
        arrow = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(arrow.Table.from_pylist(ROWS), path)
        return path
    if form.startswith("jsonl"):
        text = "".join(json.dumps(row) + "\n" for row in ROWS)
    else:
        lines = [",".join("" if v is None else f'"{v}"' for v in row.values()) for row in ROWS]
        text = "\n".join([",".join(ROWS[0]), *lines]) + "\n"
    path.write_bytes(gzip.compress(text.encode()) if form.endswith("gz") else text.encode())
    return path


@pytest.mark.parametrize("form", ["csv", "csv.gz", "jsonl", "jsonl.gz", "parquet"])
def test_every_form_says_the_same(tmp_path: Path, form: str) -> None:
    path = write(tmp_path, form)
    words = ["--id", "sku", "--vector-column", "v", "--category", "shelf", "--attributes", "in_stock, price,brand"]
    found = json.loads(call("init", str(tmp_path / "shop"), "--items", str(path), *words, "--json").stdout)
    assert (found["arms"], found["features"]) == (N, 4)
    assert found["attributes"] == {"in_stock": "flag", "price": "number", "brand": "text", "category": "category"}
    with Bandit.open(tmp_path / "shop") as shop:
        for i, row in enumerate(ROWS):
            expected = {name: row[name] for name in ("in_stock", "price", "brand")}
            assert shop.attributes(f"s{i}") == {**expected, "category": row["shelf"]}
        served = shop.decide(np.eye(4)[1], where={"in_stock": True, "price": {"<=": 12}})
        shown = [ROWS[int(str(arm)[1:])] for arm in served.arms]
        assert all(row["in_stock"] and row["price"] <= 12 for row in shown)
        view = shop.snapshot
        assert view.attributes.categories is not None
        assert view.attributes.categories.path(5) == ("dept 1", "shelf 1")


@pytest.mark.parametrize(
    ("words", "knows"),
    [
        ([], "nothing is known of any item"),
        (["--category", "shelf"], "by 4 categories (1 items have none)"),
        (["--vectors", "v.npy"], "near the context's 3 numbers"),
        (["--vectors", "v.npy", "--category", "shelf"], "near the context's 3 numbers"),
        (["--attributes", "price:text"], "price (text, 39)"),
        (["--features", "names.txt"], "contexts have 2 named features"),
        (["--vectors", "v.npy", "--features", "parts.json"], "Contexts have vector (3 numbers) and 3 features more."),
        (["--vectors", "v.npy", "--other-space"], "a map at random, until one is learned"),
        (["--vectors", "v.npy", "--metric", "inner_product"], "the context's 3 numbers, by their inner product."),
        (["--vectors", "v.npy", "--metric", "euclidean"], "the context's 3 numbers, by their distance."),
        (["--vectors", "v.npy", "--grow-features", "5"], "Contexts have vector (3 numbers)."),
        (["--vectors", "v.npy", "--learner", "paper"], "near the context's 3 numbers, by their distance."),
    ],
)
def test_any_combination_works_and_says_what_is_known(tmp_path: Path, words: list[str], knows: str) -> None:
    path = write(tmp_path, "csv")
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(N, 3)))
    (tmp_path / "names.txt").write_text("device\nage\n")
    (tmp_path / "parts.json").write_text('{"device": ["mobile", "desktop"], "age": null}')
    given = [str(tmp_path / word) if word.endswith((".npy", ".txt", ".json")) else word for word in words]
    said = call("init", str(tmp_path / "shop"), "--items", str(path), "--id", "sku", *given).output
    assert knows in " ".join(said.split())
    with Bandit.open(tmp_path / "shop") as shop:
        x = np.ones(shop.vocabulary.given)
        for i in range(30):
            served = shop.decide(x, f"v{i}")
            shop.reward(f"v{i}", {served.arms[0]: float(served.arms[0] == "s3")})
        assert shop.refit().rounds == 30
        assert len(shop.decide(x).arms) == 5


BAD = {
    "two ids": ("id\na\nb\na\n", [], "items.csv, line 4: the id 'a' is also that of line 2"),
    "no id": ("id,x\na,1\n,2\n", [], "items.csv, line 3: there is no 'id'"),
    "no such column": ("sku\na\n", [], "items.csv has no column 'id'; it has sku"),
    "cells": ("id,x\na,1\nb\n", [], "items.csv, line 3: 1 cells; there are 2 columns"),
    "empty": ("", [], "items.csv is empty"),
    "no items": ("id\n", [], "items.csv has no items"),
    "a vector": ("id,v\na,1 2\nb,1 x\n", ["--vector-column", "v"], "line 3: '1 x' is not a list of finite numbers"),
    "its size": ("id,v\na,1 2\nb,1\n", ["--vector-column", "v"], "line 3: a vector of 1 numbers; the first has 2"),
    "a category": ("id,c\na,x > y\nb,x > > y\n", ["--category", "c"], "items.csv, line 3: the category 'x > > y'"),
    "an odd flag": (
        "id,p\n" + "".join(f"a{i},true\n" for i in range(30)) + "b,maybe\n",
        ["--attributes", "p"],
        "line 32: 'maybe' in the column 'p' is neither true nor false, as other values are; p:text takes all",
    ),
    "an odd number": (
        "id,p\n" + "".join(f"a{i},{i}\n" for i in range(30)) + "b,n.a.\n",
        ["--attributes", "p"],
        "line 32: 'n.a.' in the column 'p' is not a finite number, as other values are; p:text takes all",
    ),
    "a number": ("id,p\na,1\nb,x\n", ["--attributes", "p:number"], "'x' in the column 'p' is not a finite number"),
    "quotes": ('id,p\na,"1\n', [], "items.csv, line 2: unexpected end of data"),
}


@pytest.mark.parametrize("wrong", BAD)
def test_bad_items_leave_nothing_behind(tmp_path: Path, wrong: str) -> None:
    text, words, message = BAD[wrong]
    (tmp_path / "items.csv").write_text(text)
    result = shell("init", str(tmp_path / "shop"), "--items", str(tmp_path / "items.csv"), *words)
    assert result.returncode == 2
    assert message in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items.csv"]


TYPED: dict[str, tuple[list[Any], str, str]] = {
    "of two kinds": ([5, "x"], "p", "line 2: 'x' in the column 'p' is a text; it should be a number"),
    "no number": ([5, "6"], "p:number", "line 2: '6' in the column 'p' is a text; it should be a number"),
    "no flag": ([None, 1], "p:flag", "line 2: 1 in the column 'p' is a number; it should be a flag"),
    "a list": ([[1], [2]], "p", r"line 1: \[1\] in the column 'p' is neither true or false, nor a number or text"),
}


@pytest.mark.parametrize("wrong", TYPED)
def test_values_with_types_are_of_one_kind_and_of_the_one_that_was_asked_for(tmp_path: Path, wrong: str) -> None:
    values, asked, message = TYPED[wrong]
    path = tmp_path / "items.jsonl"
    path.write_text("".join(json.dumps({"id": f"a{i}", "p": value}) + "\n" for i, value in enumerate(values)))
    with pytest.raises(ValueError, match=r"items.jsonl, " + message):
        read_items(path, ItemColumns(attributes=(asked,)))


def test_values_with_types_become_text_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a", "p": 7}\n{"id": "b", "p": "007"}\n{"id": "c", "p": true}\n{"id": "d", "p": null}\n')
    assert read_items(path, ItemColumns(attributes=("p:text",))).attributes == {"p": ["7", "007", "true", None]}
    with pytest.raises(ValueError, match="has no column 'p:category'"):
        read_items(path, ItemColumns(attributes=("p:category",)))


def test_vectors_that_float32_cannot_hold_are_named(tmp_path: Path) -> None:
    (tmp_path / "items.csv").write_text("id\na\nb\n")
    np.save(tmp_path / "v.npy", np.array([[1.0, 2.0], [3.0, -1e40]]))
    with pytest.raises(ValueError, match=r"the vectors of .*v.npy: value -1e\+40 is beyond the limit"):
        read_items(tmp_path / "items.csv", vectors=tmp_path / "v.npy")


def test_bad_options(tmp_path: Path) -> None:
    path = write(tmp_path, "csv")
    np.save(tmp_path / "few.npy", np.ones((3, 2)))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    for words, message in (
        ([], "give labelled DATA such as debian, or --items"),
        (["--category", "shelf"], "--category says something about --items, which are not given"),
        (["--items", str(tmp_path / "items.xls")], "items.xls must end with .csv, .jsonl or .parquet"),
        (["--items", str(path), "--id", "sku", "--vectors", str(tmp_path / "few.npy")], "3 vectors for the 40 items"),
        (["--items", str(path), "--id", "sku", "--vectors", str(tmp_path / "words.npy")], "a row of numbers for each"),
        (["--items", str(path), "--id", "sku", "--vectors", str(path)], "items.csv is not a .npy file of numbers"),
        (["--items", str(path), "--id", "sku", "--max-leaf", "0"], "max_leaf is 0; it must lie in [1, "),
        (["--items", str(path), "--id", "sku", "--seed", "-1"], "seed is -1; it must lie in [0, "),
        (["--items", str(path), "--id", "sku", "--init", "3"], "--init says something about labelled DATA"),
        (["--items", str(path), "--id", "sku", "--cold"], "--cold says something about labelled DATA"),
        (["--items", str(path), "--id", "sku", "--metric", "cosine"], "--metric says something about vectors"),
        (["--items", str(path), "--id", "sku", "--reward-range", "3"], "--reward-range is '3'; it must be two numbers"),
    ):
        result = shell("init", str(tmp_path / "shop"), *words)
        assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    (tmp_path / "items.jsonl").write_text('{"id": "a"}\n[3]\n')
    with pytest.raises(ValueError, match=r"items.jsonl, line 2: an object with a value for each column is needed"):
        read_items(tmp_path / "items.jsonl")
    (tmp_path / "items.jsonl").write_text('{"id": "a"}\n{"id": }\n')
    with pytest.raises(ValueError, match=r"items.jsonl, line 2: "):
        read_items(tmp_path / "items.jsonl")
    (tmp_path / "items.jsonl").write_text('{"id": "a", "c": 5}\n')
    with pytest.raises(ValueError, match=r"items.jsonl, line 1: a category is text or a list of texts, not 5"):
        read_items(tmp_path / "items.jsonl", ItemColumns(category="c"))
    (tmp_path / "items.parquet").write_bytes(b"tea")
    with pytest.raises(ValueError, match=r"items.parquet, after row 0"):
        read_items(tmp_path / "items.parquet", ItemColumns())


def test_items_beside_labelled_data(tmp_path: Path) -> None:
    """In the order of the data's arms, whatever their order in the file."""
    path = tmp_path / "data.txt"
    path.write_text("6 3 4\n" + "".join(f"{i % 4} {i % 3}:1\n" for i in range(6)))
    (tmp_path / "arms.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "items.csv").write_text("id,price\nd,4\nc,3\nb,2\na,1\n")
    words = ["--items", str(tmp_path / "items.csv"), "--attributes", "price", "--arms", str(tmp_path / "arms.txt")]
    call("init", str(tmp_path / "shop"), str(path), "--init", "5", *words)
    with Bandit.open(tmp_path / "shop") as shop:
        assert shop.snapshot.arms.ids == ("a", "b", "c", "d")
        assert [shop.attributes(arm)["price"] for arm in "abcd"] == [1, 2, 3, 4]
    (tmp_path / "items.csv").write_text("id,price\nd,4\nc,3\nb,2\n")
    result = shell("init", str(tmp_path / "other"), str(path), "--init", "5", *words)
    assert "the data has an arm 'a', which is not among the 3 items" in result.stderr


LABELLED = "40 3 40\n" + "".join(f"{i} {i % 3}:1\n" for i in range(N))


@pytest.mark.parametrize("words", [[], ["--category", "shelf"], ["--vectors", "v.npy", "--metric", "euclidean"]])
def test_the_command_makes_what_python_makes_of_the_same_things(tmp_path: Path, words: list[str]) -> None:
    path, vectors = write(tmp_path, "csv"), np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
    np.save(tmp_path / "v.npy", vectors)
    given = [str(tmp_path / word) if word.endswith(".npy") else word for word in words]
    call("init", str(tmp_path / "shell"), "--items", str(path), "--id", "sku", *given)
    by_vector = "--vectors" in words
    items = Catalogue(
        [row["sku"] for row in ROWS],
        vectors=vectors if by_vector else None,
        categories=[row["shelf"] for row in ROWS] if "--category" in words else None,
        metric="euclidean" if by_vector else "cosine",
    )
    Bandit.create(tmp_path / "python", items).close()
    with Bandit.open(tmp_path / "shell") as one, Bandit.open(tmp_path / "python") as other:
        assert one.config == other.config
        assert one.config.tree.max_leaf == 100
        assert np.array_equal(one.snapshot.model.tree.leaf_of, other.snapshot.model.tree.leaf_of)
        assert one.snapshot.model.measure == other.snapshot.model.measure
        x = np.ones(one.snapshot.model.n_features)
        assert one.decide(x, "v").arms == other.decide(x, "v").arms


def test_labels_alone_have_small_leaves_wherever_they_come_from(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text(LABELLED)
    call("init", str(tmp_path / "shell"), str(tmp_path / "data.txt"), "--init", "30")
    X, Y = np.eye(3)[np.arange(N) % 3], np.eye(N)
    Bandit.create(tmp_path / "python", None, X, Y).close()
    Bandit.create(tmp_path / "both", Catalogue(vectors=np.eye(N, 3)), X, Y).close()
    for folder, leaf in (("shell", 10), ("python", 10), ("both", 100)):
        with Bandit.open(tmp_path / folder) as made:
            assert made.config.tree.max_leaf == leaf


def test_labelled_rows_vectors_and_a_log_go_together(tmp_path: Path) -> None:
    """The measure is a part of the score, the log is learned, and the summary says it all."""
    path = write(tmp_path, "csv")
    (tmp_path / "data.txt").write_text(LABELLED)
    (tmp_path / "arms.txt").write_text("".join(f"s{i}\n" for i in range(N)))
    np.save(tmp_path / "v.npy", np.eye(3)[np.arange(N) % 3])
    np.save(tmp_path / "visitors.npy", np.eye(3, dtype=np.float32))
    lines = [f"s{i * 7 % N},{i % 3},{250 * (i * 7 % N == 4 and i % 3 == 1)}" for i in range(240)]
    (tmp_path / "past.csv").write_text("\n".join(["item,visitor,revenue", *lines]) + "\n")
    data = [str(tmp_path / "data.txt"), "--init", "30", "--arms", str(tmp_path / "arms.txt")]
    items = ["--items", str(path), "--id", "sku", "--vectors", str(tmp_path / "v.npy")]
    log = ["--log", str(tmp_path / "past.csv"), "--columns", "reward=revenue", "--contexts"]
    log += [str(tmp_path / "visitors.npy"), "--context-key", "visitor"]
    refused = shell("init", str(tmp_path / "shop"), *data, *items, *log)
    assert "line 54: the column 'revenue' is 250" in refused.stderr
    assert "--reward-range LOW,HIGH" in refused.stderr
    said = " ".join(call("init", str(tmp_path / "shop"), *data, *items, *log, "--reward-range", "0,250").output.split())
    assert "by the items' vectors." in said
    assert "learned from 30 labelled rows and 240 decisions of the log with 240 rewards" in said
    assert "else items whose vectors are near the context's 3 numbers, by their cosine." in said
    assert "Rewards lie in [0, 250]." in said
    with Bandit.open(tmp_path / "shop") as shop:
        model = shop.snapshot.model
        assert model.measure is not None
        assert (model.measure.routes, model.n_seen) == (False, 240)
        assert "s4" in shop.decide(np.array([0.0, 1.0, 0.0]), "v", explore=0).arms
        assert shop.replay("v")[1].arms.tolist() == shop.replay("v")[0].arms.tolist()
        shop.add_arms(["new"], vectors=[[0.0, 1.0, 0.0]])
        assert shop.refit().rounds == 241


def test_labels_and_vectors_that_no_context_has_are_refused(tmp_path: Path) -> None:
    X, Y = np.eye(4), np.eye(4)
    with pytest.raises(ValueError, match="vectors of 3 numbers, and contexts 4 features without a vector to compare"):
        Bandit.create(tmp_path / "shop", Catalogue(vectors=np.eye(4, 3)), X, Y)
    parts = {"vector": 3, "hot": None}
    with Bandit.create(tmp_path / "parts", Catalogue(vectors=np.eye(4, 3)), X, Y, features=parts) as shop:
        assert shop.snapshot.model.measure is not None
        assert len(shop.decide({"vector": [0.0, 1.0, 0.0], "hot": 1.0}, k=2).arms) == 2


def test_the_summary_is_printed_for_labelled_data(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text(LABELLED)
    said = " ".join(call("init", str(tmp_path / "shop"), str(tmp_path / "data.txt"), "--init", "30").output.split())
    assert "leaves of at most 10 items, by the labels of 30 rows." in said
    assert "First decision: learned from 30 labelled rows; contexts have 3 features." in said
    said = " ".join(
        call("init", str(tmp_path / "c"), str(tmp_path / "data.txt"), "--init", "30", "--cold").output.split()
    )
    assert "the search goes where 30 labelled rows led, and nothing is known of rewards" in said


def test_steps_are_told_while_a_bandit_is_made(tmp_path: Path) -> None:
    told: list[str] = []
    create_folder(tmp_path / "tea", Catalogue(vectors=np.eye(4)), progress=told.append)
    assert told == ["the tree", "routing", "the first model", "the folder"]
