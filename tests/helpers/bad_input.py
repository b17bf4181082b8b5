"""What the tests of bad input share: how a refusal is stated, and the policies that refuse."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from treetop import FlatPolicy, Policy
from treetop.arrays import Rows

D = 40  # features of the shared problem

ARMS = 60

F32 = "3.40282e+38"


def refused(error: type[Exception], *parts: str) -> Any:
    """An error of this type whose message has these parts in this order."""
    return pytest.raises(error, match=".*".join(re.escape(part) for part in parts))


def same(a: Any, b: Any) -> None:
    """Equal records, array by array; of matrices, what they mean."""
    assert type(a) is type(b)
    if isinstance(a, Rows):
        return np.testing.assert_array_equal(a.csr().toarray(), b.csr().toarray())
    assert a.__dict__.keys() == b.__dict__.keys()
    for name, value in a.__dict__.items():
        np.testing.assert_array_equal(value, b.__dict__[name], err_msg=name)


class Uniform:
    """A user's own strategy: takes the path through Python."""

    def probabilities(self, scores: Any, n_seen: int) -> Any:
        return np.full(len(scores), 1 / len(scores))


POLICY = Policy(k=4, explore=2, beam=3)

MINE = Policy(k=4, explore=2, beam=3, strategy=Uniform())

FLAT = FlatPolicy(4, 2)

Call = Callable[[], object]

Table = dict[str, tuple[Call, type[Exception], str]]

TYPE = TypeError

VALUE = ValueError


def table(cases: Table) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("call", "error", "message"), cases.values(), ids=cases)


def rows_in_order(start: list[int], index: list[int], value: list[float], columns: int) -> tuple[bool, bool]:
    """Whether compressed rows are usable, and whether their indices rise strictly besides."""
    if not start or start[0] != 0 or start[-1] != len(index) or len(index) != len(value) or start != sorted(start):
        return False, False
    usable = all(0 <= i < columns for i in index) and all(math.isfinite(v) for v in value)
    rows = [index[a:b] for a, b in itertools.pairwise(start)]
    return usable, usable and all(a < b for row in rows for a, b in itertools.pairwise(row))
