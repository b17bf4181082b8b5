"""Keys that cannot be stored are refused with what is wrong with them."""

from typing import Any

import pytest

from treetop.log.keys import as_keys, check_keys


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({1: "a"}, TypeError, "the name of a key must be text, not 1"),
        ({"a": "x", 2: "y"}, TypeError, "the name of a key must be text, not 2"),
        ({None: "a"}, TypeError, "the name of a key must be text, not None"),
        ({"a": 1.5}, TypeError, "the value of key 'a' must be text or a whole number, not 1.5"),
        ({"a": True}, TypeError, "the value of key 'a' must be text or a whole number, not True"),
        (["a"], TypeError, "keys must be names with values"),
    ],
)
def test_keys_of_the_wrong_kind_are_named(given: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        as_keys(given)


def test_a_name_that_is_not_text_is_named_wherever_it_comes_from() -> None:
    wrong: Any = ((1, "a"),)
    with pytest.raises(ValueError, match="the name of a key '1' is not valid text"):
        check_keys(wrong)
