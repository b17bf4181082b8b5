"""A context by names becomes the same row in the core as step by step in Python."""

from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treetop import _core
from treetop.catalogue import UnknownFeature, Vocabulary

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
