"""What timings are checked against: the slow references find mistakes, and the flat index is a product and a sort."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

import treetop
from treetop import _core
from treetop.arrays import as_rows
from treetop.bench.reference import check_decisions, check_ranking, check_ridge, check_routing, check_tree
from treetop.bench.shape import Shape
from treetop.bench.subprocesses import in_subprocess
from treetop.errors import Disagreement

TINY = Shape(arms=300, features=120, nonzeros=9, labels=3, init=200, rounds=400, max_leaf=10)


def other(model: treetop.Model, **changes: Any) -> treetop.Model:
    return replace(model, **changes)


def test_the_slow_search_agrees_and_disagrees(learned: treetop.Model, problem: Problem) -> None:
    policy = treetop.Policy(beam=3)
    some = [as_rows(problem.X[i]) for i in range(30)]
    facts = check_decisions(learned, policy, some)
    assert facts["contexts"] > 20
    assert facts["largest_difference"] < 1e-6

    class Wrong(treetop.Policy):
        def explain(self, model: treetop.Model, *a: Any, **k: Any) -> treetop.Explanation:
            return super().explain(self.instead, *a, **k)  # type: ignore[attr-defined]

    rows = learned.reward_rows
    for message, model in (
        ("a score differs", other(learned, reward_rows=replace(rows, value=rows.value * np.float32(1.01)))),
        (
            "other effective arms",
            other(learned, route_rows=replace(learned.route_rows, value=-learned.route_rows.value)),
        ),
    ):
        wrong = Wrong(beam=3)
        object.__setattr__(wrong, "instead", model)
        with pytest.raises(Disagreement, match=message):
            check_decisions(learned, wrong, some)


def test_ranking_is_checked_where_scores_differ() -> None:
    check_ranking([0.3, 0.2, 0.1], np.array([0.3, 0.2, 0.1]))
    check_ranking([0.3, 0.2, 0.2], np.array([0.3, 0.2, 0.2 + 5e-7]))
    with pytest.raises(Disagreement, match="ranking"):
        check_ranking([0.3, 0.2, 0.1], np.array([0.3, 0.1, 0.2]))


def test_ridge_tree_and_routing_checks_find_mistakes(learned: treetop.Model, problem: Problem) -> None:
    feedback = problem.feedback(600)
    assert check_ridge(treetop.refit(problem.model, feedback), feedback, range(60))["weights"] > 100
    rows = learned.reward_rows
    with pytest.raises(Disagreement, match="normal equations"):
        check_ridge(other(learned, reward_rows=replace(rows, value=rows.value * 2)), feedback, range(60))
    with pytest.raises(Disagreement, match="a leaf holds 4 arms of at most 3"):
        check_tree(learned.tree, 3)
    with pytest.raises(Disagreement, match="siblings"):
        check_tree(treetop.Tree([-1, 0, 0], [1, 1, 1, 2]), 3)  # type: ignore[arg-type]
    X, Y = as_rows(problem.X[:300]), as_rows(problem.Y[:300])
    assert check_routing(problem.model, X, Y)["nodes"] == 3
    route = problem.model.route_rows
    with pytest.raises(Disagreement, match="classifier costs"):
        check_routing(other(problem.model, route_rows=replace(route, value=route.value * np.float32(0.5))), X, Y)


def test_a_subprocess_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"bench open ended with code 1: .*No such file"):
        in_subprocess("open", folder=str(tmp_path), contexts=str(tmp_path / "none.npz"), beam=3)
    assert in_subprocess("build", shape=TINY)["checks"]["leaves"] == 32


# -------------------- the flat index


def slow_top(W: Any, x: Any, k: int) -> tuple[Any, Any]:
    """Scores in float64, the k best, of equals the lower arm."""
    scores = W @ np.append(x, 1.0)
    best = np.lexsort((np.arange(len(scores)), -scores))[:k]
    return best, scores[best]


@pytest.mark.parametrize("arms", [1, 7, 40_000, 70_000])  # one stretch holds 32,768
def test_the_flat_index_is_a_product_and_a_sort(arms: int) -> None:
    rng = np.random.default_rng(arms)
    W = np.round(16 * rng.random((arms, 31)) * (rng.random((arms, 31)) < 0.15))  # ties, and sums that are exact
    W[:, 30] = rng.random(arms) < 0.6  # the bias, in more than one of four arms: a plain row
    rows = as_rows(W.astype(np.float32))
    flat = _core.Flat(rows.start, rows.index, rows.value, rows.columns, 0)
    X = np.round(rng.random((4, 30)) * (rng.random((4, 30)) < 0.4) * 8).astype(np.float32)
    x = as_rows(X)
    k = min(5, arms)
    found, scores, work = flat.top(x.start, x.index, x.value, k)
    for i in range(4):
        best, want = slow_top(W, X[i], k)
        assert found[i].tolist() == best.tolist()
        assert np.array_equal(scores[i], want)
    assert work >= sum(np.count_nonzero(W[:, :30][:, x > 0]) for x in X)


def test_the_flat_index_refuses_what_does_not_fit() -> None:
    rows = as_rows(np.eye(3, dtype=np.float32))
    flat = _core.Flat(rows.start, rows.index, rows.value, 3, 1)
    x = as_rows([[1.0, 2.0]])
    with pytest.raises(ValueError, match=r"k is 4, outside \[1, 3\]"):
        flat.top(x.start, x.index, x.value, 4)
    with pytest.raises(ValueError, match=r"index 2 is outside \[0, 2\)"):
        flat.top(x.start, x.index + 1, x.value, 1)
    with pytest.raises(ValueError, match="needs arms and a bias"):
        _core.Flat(np.zeros(1, np.int64), x.index[:0], x.value[:0], 3, 1)
