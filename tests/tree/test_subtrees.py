"""A tree built part by part, as on many machines: the bytes of the tree that one machine builds."""

from pathlib import Path

import numpy as np
import pytest

from treetop.arrays import Rows, as_rows
from treetop.effort import Effort
from treetop.tree import subtrees
from treetop.tree.subtrees import TreeSettings, build_spread


def vectors(arms: int, seed: int = 0) -> Rows:
    """Sparse vectors without negative values; a fifth of the arms have none."""
    rng = np.random.default_rng(seed)
    found = rng.random((arms, 40), np.float32) * (rng.random((arms, 40)) < 0.15) * (rng.random((arms, 1)) < 0.8)
    return as_rows(found.astype(np.float32))


@pytest.mark.parametrize("arms", [1, 10, 11, 500, 1023])
@pytest.mark.parametrize("how", [(2, 10, False), (3, 9, False), (2, 7, True), (8, 10, False)], ids=str)
@pytest.mark.parametrize("tasks", [1, 5, 64, 10**6])
def test_the_tree_does_not_depend_on_where_it_is_cut(
    arms: int, how: tuple[int, int, bool], tasks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subtrees, "TASKS", tasks)
    rows, settings = vectors(arms), TreeSettings(*how, 20, 5)
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


@pytest.mark.parametrize(
    ("extent", "words"),
    [
        ((-1, 0, 1), "level is -1"),
        ((64, 0, 1), "level is 64"),
        ((0, -1, 1), "position is -1"),
        ((0, 0, 5), "levels is 5"),
    ],
)
def test_an_extent_that_no_tree_has_is_refused(extent: tuple[int, int, int], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}, outside"):
        TreeSettings(2, 10, False, 20, 0).build(vectors(100), 1, extent=extent)
