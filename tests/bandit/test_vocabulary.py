"""Names: a context by them becomes the same row in the core as step by step in Python; the index of arms."""

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core
from treetop.bandit.arm_index import ArmIndex, line_added, line_changed
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.vocabulary import Vocabulary
from treetop.errors import UnknownFeature

NAMES = tuple(f"f{i}" for i in range(50))
PLACES = {name: i for i, name in enumerate(NAMES)}
NUMBERS = st.floats(-1e6, 1e6) | st.integers(-(10**6), 10**6)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), NUMBERS, max_size=30))
def test_the_quick_way_is_the_long_way(features: dict[str, Any]) -> None:
    vocabulary = Vocabulary(len(NAMES), NAMES)
    quick, unknown = vocabulary.named(features)
    long, same = vocabulary.named(OrderedDict(features))  # not a plain dict: goes the long way
    assert unknown == same
    for name in ("start", "index", "value"):
        a, b = getattr(quick, name), getattr(long, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("value", [[1.0], "1", None, True, float("nan"), float("inf"), 1e39, 10**400, -(10**400)])
def test_what_is_not_a_plain_number_is_left_to_the_long_way(value: Any) -> None:
    assert _core.named_row({"f1": 1.0, "f2": value}, PLACES, 50) is None


def test_places_that_are_none_and_names_that_are_no_text() -> None:
    assert _core.named_row({"f1": 1.0}, {"f1": 50}, 50) is None
    assert _core.named_row({"f1": 1.0}, {"f1": -1}, 50) is None
    assert _core.named_row({"f1": 1.0}, {"f1": "x"}, 50) is None  # type: ignore[dict-item]
    assert _core.named_row({1: 1.0}, PLACES, 50) is None  # type: ignore[dict-item]
    found = _core.named_row({}, PLACES, 50)
    assert found is not None
    assert [len(part) for part in found[:3]] == [2, 0, 0]


def test_a_strict_vocabulary_says_which_name_it_does_not_know() -> None:
    strict = Vocabulary(len(NAMES), NAMES, strict=True)
    assert strict.named({"f3": 1.0})[1] == 0
    with pytest.raises(UnknownFeature, match="'shoe'"):
        strict.named({"f3": 1.0, "shoe": 44})


def test_the_arm_index_reads_what_it_wrote() -> None:
    lines = line_added(["tea", 7, "ä"]) + line_changed([1]) + line_added(["x"]) + line_changed([3, 0])
    read = ArmIndex.read(lines)
    assert (read.ids, read.changes, read.removed) == (("tea", 7, "ä", "x"), (1, 3, 0), (0, 1, 3))
    assert read.is_removed.tolist() == [True, True, False, True]
    assert read.removed_after(1).tolist() == [False, True, False, False]
    wrong: list[tuple[Any, type[Exception]]] = [
        ([""], ValueError),
        (["a\n"], ValueError),
        ([True], TypeError),
        ([1.5], TypeError),
        (["7"], ValueError),
        ([2**60], ValueError),
        ("abc", TypeError),
    ]
    for arms, error in wrong:
        with pytest.raises(error):
            read.add(arms)


def test_a_catalogue_checks_what_it_is_given() -> None:
    made = Catalogue(iter(["tea", 7]), vectors=[[1.0, 0.0], [0.0, 1.0]])  # type: ignore[arg-type]
    assert made.ids == ("tea", 7)
    assert Catalogue.of(made) is made
    assert made.index(2).find(["7", "tea"]).tolist() == [1, 0]
    assert Catalogue.of(None).index(3).ids == (0, 1, 2)
    with pytest.raises(ValueError, match="2 ids for 3 arms"):
        made.index(3)
    with pytest.raises(ValueError, match="arm 7 is listed twice"):
        Catalogue([7, "7"])
    with pytest.raises(ValueError, match="1 ids for 2 vectors"):
        Catalogue(["tea"], np.eye(2))
    with pytest.raises(ValueError, match="arm vectors"):
        Catalogue(["tea"], [[float("nan")]])
    with pytest.raises(TypeError, match="arms must be a list of ids"):
        Catalogue.of("tea")
    with pytest.raises(TypeError, match="an arm's id must be text"):
        Catalogue.of(np.eye(2))  # type: ignore[arg-type]


def test_the_vocabulary() -> None:
    words = Vocabulary(3, ("a", "b", "c"))
    assert words.named({"c": 1, "a": 2})[0].index.tolist() == [0, 2]
    assert words.sparse([2, 0, 2], [1, 1, 0.5]).value.tolist() == [1, 1.5]
    assert words.dense([0, 2, 0]).index.tolist() == [1]
    assert Vocabulary(3).named({"2": 1.0, "x": 1.0})[0].index.tolist() == [2]
    assert len(words.named({})[0].index) == 0
    with pytest.raises(UnknownFeature, match="no feature 'x'"):
        Vocabulary(1, ("a",), strict=True).named({"x": 1})
    with pytest.raises(ValueError, match="2 feature names for 3 features"):
        Vocabulary(3, ("a", "b"))
    with pytest.raises(ValueError, match="two features are called 'a'"):
        Vocabulary(2, ("a", "a"))
