"""Treetop's learner beside the paper's at many arms: the made-up model is what its page says, and both decide."""

from pathlib import Path

import pytest
from helpers.scripts import script

from treetop.bench.shape import Shape

learner_decide = script("learner_decide")
SHAPE = Shape(arms=2000, features=3000, nonzeros=20, labels=5, init=300, rounds=1500)


def test_the_made_up_model_is_as_dense_as_it_says_and_decides(tmp_path: Path) -> None:
    paper, treetop, contexts = learner_decide.both_models(SHAPE, tmp_path)
    again = learner_decide.both_models(SHAPE, tmp_path)[1]
    assert again.reward_rows.value.tobytes() == treetop.reward_rows.value.tobytes()
    found = learner_decide.measure(paper, treetop, contexts, n=30, beam=10)
    mine, theirs = found["rows"][1], found["rows"][0]
    assert mine["routed"] == pytest.approx(learner_decide.ROUTED, abs=0.1)
    assert 0.05 < mine["strayed"] < learner_decide.STRAYED  # the next arm's regressor may have the feature, too
    assert mine["of_nodes"] == 0
    assert mine["of_arms"] > theirs["of_arms"]
    assert mine["candidates"] == theirs["candidates"]
    assert found["ratio_layout_bytes"] == mine["layout_bytes"] / theirs["layout_bytes"]
