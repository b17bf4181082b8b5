"""Readers: the same data through every form, and what is written is read. `test_bad_text.py` has the rest."""

import itertools
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.strategies import many
from helpers.writers import (
    FOLDERS,
    SPARSE,
    SVMLIGHT,
    XMC,
    Parts,
    cut,
    npz_folder,
    pair_folder,
    run,
    same_rows,
    split_folder,
    svmlight,
    whole_text,
    xmc,
)
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

import treetop
from treetop.data import layouts, readers


def parts() -> Parts:
    """Rows without labels among them, the first and the last feature and label in each part."""
    X, Y = (M.tolil() for M in topics(n=90))
    for row in (0, 60):
        X[row, 0], X[row, -1], Y[row, 0], Y[row, -1] = 0.5, 1e-7, 1, 1
    Y[3] = Y[62] = 0
    X, Y = X.tocsr(), Y.tocsr()
    return X[:60], Y[:60], X[60:], Y[60:]


# ------------------------------------------------------------------------------------------------- every form


@pytest.mark.parametrize("form", FOLDERS)
@pytest.mark.parametrize("block", [7, 1 << 20])
def test_every_form_gives_the_same_set(form: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BLOCK", block)
    FOLDERS[form](tmp_path, parts())
    data = treetop.load(tmp_path)
    assert data.name == tmp_path.name
    for rows, M in zip((data.X, data.Y, data.X_init, data.Y_init), parts(), strict=True):
        same_rows(rows, M)


@pytest.mark.parametrize("write", [xmc, svmlight], ids=["xmc", "svmlight"])
def test_a_file_is_a_set_without_initialisation_part(write: Any, tmp_path: Path) -> None:
    X, Y, *_ = parts()
    write(tmp_path / "toy.txt", X, Y)
    data = treetop.load(tmp_path / "toy.txt")
    assert (data.name, data.X_init) == ("toy", None)
    same_rows(data.X, X)
    same_rows(data.Y, Y)


def test_the_first_form_of_several_is_taken_and_two_sets_in_a_folder_are_refused(tmp_path: Path) -> None:
    pair_folder(tmp_path, parts(), "a_")
    npz_folder(tmp_path, parts())
    found = layouts.find_files(tmp_path)
    assert found is not None
    assert found.form == "npz"
    (tmp_path / "X.trn.npz").unlink()
    pair_folder(tmp_path, parts(), "b_")
    with pytest.raises(ValueError, match=r"has a_train\.txt, b_train\.txt where one of them is meant"):
        treetop.load(tmp_path)


def test_a_split_is_chosen(tmp_path: Path) -> None:
    split_folder(tmp_path, parts())
    data = treetop.load(tmp_path, split=1)  # the same row again and again
    np.testing.assert_array_equal(data.X.csr().toarray(), np.repeat(parts()[0][0].toarray(), 60, axis=0))
    with pytest.raises(ValueError, match=r"split is 2; it must lie in \[0, 1\]"):
        treetop.load(tmp_path, split=2)


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ("1\n91\n", "lists row 91; the data has rows 1 to 90"),
        ("0\n", "lists row 0; the data has rows 1 to 90"),
        ("1 2\n3\n", "is not a table of row numbers: the number of columns changed"),
        ("1\nx\n", "is not a table of row numbers: could not convert string 'x'"),
        (" \n", "is empty; it must list row numbers"),
    ],
)
def test_broken_splits_are_named(splits: str, message: str, tmp_path: Path) -> None:
    split_folder(tmp_path, parts())
    (tmp_path / "toy_trSplit.txt").write_text(splits)
    with pytest.raises(ValueError, match="toy_trSplit.txt " + re.escape(message)):
        treetop.load(tmp_path)


def test_svmlight_counts_from_0_or_1(tmp_path: Path) -> None:
    (tmp_path / "train.svm").write_text("1 1:0.5\n")
    (tmp_path / "test.svm").write_text("0 3:2 # no feature 0 in either\n")
    data = treetop.load(tmp_path)
    assert (data.X.columns, data.X.index.tolist(), data.n_arms) == (3, [0], 2)
    assert treetop.load(tmp_path, zero_based=True).X.index.tolist() == [1]
    (tmp_path / "test.svm").write_text("0 0:2 3:2\n")
    data = treetop.load(tmp_path)
    assert (data.X.columns, data.X.index.tolist()) == (4, [1])
    with pytest.raises(ValueError, match="zero_based is False, but there is a feature 0"):
        treetop.load(tmp_path, zero_based=False)
    with pytest.raises(ValueError, match="zero_based is 'maybe'; it must be True, False or 'auto'"):
        treetop.load(tmp_path, zero_based="maybe")
    (tmp_path / "labels.svm").write_text("1,5\n")
    assert treetop.load(tmp_path / "labels.svm", zero_based=False).X.columns == 0


@pytest.mark.parametrize("first", [0, 1])
def test_svmlight_agrees_with_sklearn(first: int, tmp_path: Path) -> None:
    X, Y, *_ = parts()
    svmlight(tmp_path / "toy.svm", X, Y, first)
    theirs, labels = load_svmlight_file(str(tmp_path / "toy.svm"), dtype=np.float32, multilabel=True)
    data = treetop.load(tmp_path / "toy.svm")
    same_rows(data.X, theirs)
    assert [data.Y.csr()[i].indices.tolist() for i in range(len(labels))] == [list(map(int, row)) for row in labels]


# ------------------------------------------------------------------------------------------------- round trips


singles = st.floats(width=32, allow_nan=False, allow_infinity=False).map(np.float32)
spaces = st.sampled_from([" ", "  ", "\t", " \t "])
one_row = st.tuples(st.lists(st.integers(0, 9)), st.dictionaries(st.integers(0, 19), singles))


def by_row(start: Any, *arrays: Any) -> list[Any]:
    """The entries of each row: numbers, or pairs of them."""
    rows = [[array[a:b].tolist() for array in arrays] for a, b in itertools.pairwise(start)]
    return [row[0] if len(row) == 1 else list(zip(*row, strict=True)) for row in rows]


@many
@given(
    st.data(), st.lists(one_row, max_size=6), st.sampled_from([XMC, SVMLIGHT, SPARSE]), st.sampled_from(["\n", "\r\n"])
)
def test_what_is_written_is_read(draw: st.DataObject, rows: Any, form: int, newline: str) -> None:
    """Features and labels in any order, labels repeated, spaces at will, blocks that end anywhere."""
    if form == SPARSE:
        rows = [([], features) for _, features in rows]
    if form == SVMLIGHT:
        rows = [row for row in rows if row[0] or row[1]]  # an empty line is no row
    lines = {XMC: [f"{len(rows)} 20 10"], SVMLIGHT: ["# made up"], SPARSE: [f"{len(rows)} 20"]}[form]
    for labels, features in rows:
        order = draw.draw(st.permutations(sorted(features)))
        words = [",".join(map(str, labels)), *(f"{i}:{features[i]}" for i in order)]
        lines.append(draw.draw(spaces).join(words) + draw.draw(st.sampled_from(["", " "])))
    last = newline if draw.draw(st.booleans()) or lines[-1] == "" else ""
    text = (newline.join(lines) + last).encode()
    blocks = cut(text, draw.draw(st.lists(st.integers(0, 99))))
    start, index, value, label_start, label, columns, n_labels = run(form, blocks)
    assert by_row(start, index, value) == [sorted(features.items()) for _, features in rows]
    assert by_row(label_start, label) == [sorted(set(labels)) for labels, _ in rows]
    if form != SVMLIGHT:
        assert (columns, n_labels) == (20, 10 if form == XMC else 0)
    else:
        assert columns == max((i + 1 for _, features in rows for i in features), default=0)


@many
@given(st.from_regex(r"[+-]?([0-9]{1,25}(\.[0-9]{0,25})?|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?", fullmatch=True))
def test_a_value_is_the_nearest_float32(word: str) -> None:
    exact = Fraction(word)
    limit = Fraction(float(np.finfo(np.float32).max))
    if abs(exact) > limit * (1 + Fraction(1, 2**26)):
        with pytest.raises(ValueError, match="beyond the range of float32"):
            whole_text(SPARSE, f"1 1\n0:{word}")
        return
    (found,) = whole_text(SPARSE, f"1 1\n0:{word}")[2]
    error = abs(Fraction(float(found)) - exact)
    for towards in (-np.inf, np.inf):
        neighbour = np.nextafter(found, np.float32(towards))
        assert not np.isfinite(neighbour) or error <= abs(Fraction(float(neighbour)) - exact)


@pytest.mark.parametrize("word", ["1e-46", "1e-400", "-1e-400", "0.1e-99999999999999"])
def test_a_value_smaller_than_the_smallest_is_zero(word: str) -> None:
    (found,) = whole_text(SPARSE, f"1 1\n0:{word}")[2]
    assert found == 0


def test_a_value_is_rounded_once() -> None:
    """As a double this lies halfway between two floats, and the even one is not the nearest."""
    halfway = Fraction(1) + Fraction(1, 2**24)
    above = halfway + Fraction(1, 2**70)
    word = f"1.{(above.numerator - above.denominator) * 10**70 // above.denominator:070d}"
    assert np.float32(float(word)) == 1
    assert whole_text(SPARSE, f"1 1\n0:{word}")[2][0] == np.nextafter(np.float32(1), np.float32(2))


def test_values_too_small_are_zero_and_repeated_features_add_up() -> None:
    start, index, value, *_ = whole_text(XMC, "3 5 5\n 3:1e-60 1:0\n 4:1 0:2 4:0.5\n1 2:-1.5e2\n")
    assert (start.tolist(), index.tolist()) == ([0, 2, 4, 5], [1, 3, 0, 4, 2])
    assert value.tolist() == [0.0, 0.0, 2.0, 1.5, -150.0]


def test_labels_with_spaces_and_none_at_all() -> None:
    *_, start, label, _, _ = whole_text(XMC, "5 2 9\n3 , 1,3\n\n \n  0:1\n1:1")
    assert (start.tolist(), label.tolist()) == ([0, 2, 2, 2, 2, 2], [1, 3])


def test_blank_lines_after_the_last_row_are_nothing() -> None:
    assert len(whole_text(XMC, "1 2 3\n1 0:1\n\n \n\n")[0]) == 2


@pytest.mark.skipif("ASAN_OPTIONS" in os.environ, reason="AddressSanitizer keeps freed memory for a while")
def test_memory_does_not_grow_with_the_text(tmp_path: Path) -> None:
    with (tmp_path / "long.svm").open("wb") as file:
        file.write(b"1 0:1\n")
        for _ in range(64):
            file.write((b"#" + b"x" * 1022 + b"\n") * 1024)
    code = """if True:
        import resource, sys, treetop
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert len(treetop.load(sys.argv[1]).X) == 1
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    grown = subprocess.check_output([sys.executable, "-c", code, str(tmp_path / "long.svm")], text=True)
    assert int(grown) < 16 * 1024, f"{grown.strip()} KiB for a file of 64 MiB that holds one row"
