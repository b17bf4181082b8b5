"""The JSON body of a request: decoded into its type, and refused if an object in it has a key twice.

Of two equal keys a decoder keeps the last one silently: a reward that the client believes stored would be lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from treetop import _core


class BodyDecoder:
    """Decodes bodies of one type.

    >>> BodyDecoder(dict[str, float]).decode(b'{"a1": 1, "a2": 0}')
    {'a1': 1.0, 'a2': 0.0}
    >>> BodyDecoder(dict[str, float]).decode(b'{"a1": 1, "a1": 0}')
    Traceback (most recent call last):
    ValueError: the key 'a1' is twice in one object
    """

    def __init__(self, kind: type) -> None:
        self._decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode

    def decode(self, body: bytes) -> Any:
        """The body as its type. Raises msgspec's errors, or ValueError for a key that is there twice."""
        found = self._decode(body)
        if _core.may_repeat_keys(body):
            json.loads(body, object_pairs_hook=_refuse_repeated)
        return found


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise ValueError(f"the key {key!r} is twice in one object")
        seen.add(key)
