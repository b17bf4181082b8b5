"""Keys that a request may carry, such as a visitor's number: what they may be. Knows no log.

They are never learned from, never answered with a decision, and stored beside it to find the events of somebody: who
wants them erased, or who is not to see an arm too often.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

Keys: TypeAlias = tuple[tuple[str, str], ...]
NO_KEYS: Keys = ()
MAX_KEYS, NAME_BYTES, VALUE_BYTES = 8, 64, 256


def as_keys(given: Mapping[str, str | int] | None) -> Keys:
    """Keys as the log stores them: by name, values as text; or an error that names what is wrong.

    >>> as_keys({"visitor": 123, "device": "a7"})
    (('device', 'a7'), ('visitor', '123'))
    >>> as_keys({1: "a7"})
    Traceback (most recent call last):
    TypeError: the name of a key must be text, not 1
    >>> as_keys({"visitor": ""})
    Traceback (most recent call last):
    ValueError: the value of key 'visitor' has 0 bytes; 1 to 256 are needed, none of them zero
    """
    if not given:
        return NO_KEYS
    if not isinstance(given, Mapping):
        raise TypeError(f"keys must be names with values, not {given!r}")
    if len(given) > MAX_KEYS:
        raise ValueError(f"a decision has {len(given)} keys; at most {MAX_KEYS} are possible")
    for name, value in given.items():
        if not isinstance(name, str):
            raise TypeError(f"the name of a key must be text, not {name!r}")
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise TypeError(f"the value of key {name!r} must be text or a whole number, not {value!r}")
    return check_keys(tuple(sorted((name, str(value)) for name, value in given.items())))


def check_keys(keys: Keys) -> Keys:
    """The same keys; raises for those that the log could not store.

    >>> check_keys((("", "1"),))
    Traceback (most recent call last):
    ValueError: the name of a key '' has 0 bytes; 1 to 64 are needed, none of them zero
    """
    for name, value in keys:
        for what, text, most in (("the name of a key", name, NAME_BYTES), ("the value of key", value, VALUE_BYTES)):
            shown = f"{what} {str(name)[:40]!r}"
            try:
                size = len(text.encode())
            except (UnicodeEncodeError, AttributeError):
                raise ValueError(f"{shown} is not valid text") from None
            if not 1 <= size <= most or "\0" in text:
                raise ValueError(f"{shown} has {size} bytes; 1 to {most} are needed, none of them zero")
    if len({name for name, _ in keys}) < len(keys) or len(keys) > MAX_KEYS:
        raise ValueError(f"keys are {', '.join(name for name, _ in keys)}; at most {MAX_KEYS}, each once, are accepted")
    return keys
