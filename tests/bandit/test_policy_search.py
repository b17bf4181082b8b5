"""A search for policies: chosen by one stretch of the log, confirmed by another."""

from pathlib import Path

import pytest
from helpers.judged import X, judged_bandit

import treetop
from treetop import Bandit, PolicyConfig
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.bandit.policy_search import neighbours, search_policies


def test_a_search_splits_the_visits_that_it_judges_and_not_those_of_another_system(tmp_path: Path) -> None:
    past = tmp_path / "past.csv"
    past.write_text("item,reward,time\n" + "".join(f"a{i % 60},1,{i + 1}\n" for i in range(400)))
    with judged_bandit(tmp_path) as bandit:
        import_past(bandit, past, PastColumns.of("item=item,reward=reward,time=time"))
        with pytest.raises(ValueError, match="no visits with rewards"):
            search_policies(bandit)
        for i in range(100):
            bandit.reward(f"visit-{i}", {bandit.decide(X[i], f"visit-{i}").arms[0]: 1.0})
        found = search_policies(bandit)
        assert (found.searched.rounds, found.held_out.rounds) == (70, 30)


def test_a_search_chooses_by_one_stretch_and_confirms_by_the_other(judged: Bandit) -> None:
    found = treetop.search_policies(judged)
    assert (found.searched.rounds, found.held_out.rounds) == (2800, 1200)
    names = [candidate.name for candidate in found.searched.candidates]
    assert names == ["strategy=greedy", "explore=1", "beam=2", "beam=8", "beam=12", "epsilon=0.25", "epsilon=1.0"]
    lows = {candidate.name: candidate.difference.low for candidate in found.searched.candidates}
    assert found.chosen == max(lows, key=lambda name: lows[name])
    assert found.held_out.candidates[0].name == found.chosen
    assert found.held_out.candidates[0].verdict == "better"
    late = treetop.search_policies(judged.folder.path, since=judged.event("visit-2000").event.time, held_out=0.5)
    assert (late.searched.rounds, late.held_out.rounds) == (1000, 1000)


@pytest.mark.parametrize(
    ("served", "names"),
    [
        (PolicyConfig(k=2, explore=1, beam=10, strategy="greedy"), []),
        (PolicyConfig(k=2, explore=0, beam=10, strategy="igw"), ["explore=1"]),
        (PolicyConfig(k=2, explore=1, beam=10, strategy="igw"), ["strategy=greedy", "explore=2", "C=0.5", "C=2.0"]),
    ],
)
def test_neighbours_that_decide_alike_are_listed_once(served: PolicyConfig, names: list[str]) -> None:
    found = [candidate.name for candidate in neighbours(served)]
    assert [name for name in found if not name.startswith("beam")] == names


def test_a_search_needs_visits(tmp_path: Path) -> None:
    with judged_bandit(tmp_path) as bandit:
        with pytest.raises(ValueError, match="there are no visits with rewards to judge by"):
            treetop.search_policies(bandit)
        with pytest.raises(ValueError, match="held_out is 1"):
            treetop.search_policies(bandit, held_out=1.0)
