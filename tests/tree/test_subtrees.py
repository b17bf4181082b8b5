"""A tree built part by part, as on many machines: the bytes of the tree that one machine builds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from treetop import _core
from treetop.arrays import Rows, as_rows
from treetop.effort import Effort
from treetop.tree import subtrees
from treetop.tree.subtrees import TreeSettings, build_spread


def vectors(arms: int, seed: int = 0) -> Rows:
    """Sparse vectors without negative values; a fifth of the arms have none."""
    found = sp.random(arms, 40, density=0.15, format="csr", dtype=np.float32, random_state=seed).tolil()
    found[np.random.default_rng(seed).random(arms) < 0.2] = 0
    return as_rows(found.tocsr())


@pytest.mark.parametrize("arms", [1, 10, 11, 500, 1023])
@pytest.mark.parametrize("how", [(2, 10, False), (3, 9, False), (2, 7, True), (8, 10, False)], ids=str)
@pytest.mark.parametrize("tasks", [1, 5, 64, 10**6])
def test_the_tree_does_not_depend_on_where_it_is_cut(
    arms: int, how: tuple[Any, ...], tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtrees, "TASKS", tasks)
    rows, settings = vectors(arms), TreeSettings(*how, iterations=20, seed=5)
    wanted = settings.build(rows, threads=1)
    for found, expected in zip(build_spread(rows, settings, Effort(folder=tmp_path)), wanted, strict=True):
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()
    assert list(tmp_path.iterdir()) == []


def test_progress_is_in_arms_times_levels(tmp_path: Path) -> None:
    rows, settings, told = vectors(2000), TreeSettings(2, 10, False, 20, 0), []
    build_spread(rows, settings, Effort(progress=lambda done, total: told.append((done, total)), folder=tmp_path))
    assert {total for _, total in told} == {2000 * settings.depth(2000)}
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1][0] == told[-1][1]


@pytest.mark.parametrize(("name", "value"), [("level", -1), ("level", 64), ("position", -1), ("levels", 5)])
def test_an_extent_that_no_tree_has_is_refused(name: str, value: int) -> None:
    rows = vectors(100)
    with pytest.raises(ValueError, match=f"^{name} is {value}"):
        _core.build_hierarchy(rows.start, rows.index, rows.value, 40, 2, 10, False, 20, 0, 1, **{name: value})
