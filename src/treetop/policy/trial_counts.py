"""How often arms that were added have been shown by now, as text: a decision's settings say what it was drawn by."""

from __future__ import annotations

import base64
import binascii
import zlib
from functools import lru_cache

import numpy as np

from treetop import _core
from treetop.arrays import Ints


def packed_counts(arms: Ints, counts: Ints) -> str:
    """Counts of arms, which rise strictly, as text; empty if there are none.

    >>> text = packed_counts(np.array([3, 7], np.int32), np.array([1, 20], np.int32))
    >>> unpacked_counts(text), packed_counts(np.zeros(0, np.int32), np.zeros(0, np.int32))
    ((array([3, 7], dtype=int32), array([ 1, 20], dtype=int32)), '')
    """
    if not len(arms):
        return ""
    steps = np.diff(arms, prepend=0).astype("<i4")
    return base64.b85encode(zlib.compress(steps.tobytes() + counts.astype("<i4").tobytes())).decode()


def unpacked_counts(text: str) -> tuple[Ints, Ints]:
    """The arms and counts of `packed_counts`. Raises ValueError for any other text.

    >>> unpacked_counts("")[0].tolist()
    []
    """
    try:
        numbers = np.frombuffer(zlib.decompress(base64.b85decode(text)), "<i4") if text else np.zeros(0, "<i4")
    except (ValueError, zlib.error, binascii.Error) as error:
        raise ValueError(f"trial_counts are not counts of trials: {error}") from error
    if len(numbers) % 2:
        raise ValueError(f"trial_counts have {len(numbers)} numbers; there is a count for each arm")
    steps, counts = numbers.reshape(2, -1).astype(np.int32)
    return np.cumsum(steps, dtype=np.int32), counts


@lru_cache(64)
def trial_counts(text: str) -> _core.TrialCounts | None:
    """The counts of a text as the core takes them; None for the empty one.

    >>> trial_counts(""), len(trial_counts(packed_counts(np.array([3], np.int32), np.array([1], np.int32))))
    (None, 1)
    """
    return _core.TrialCounts(*unpacked_counts(text)) if text else None
