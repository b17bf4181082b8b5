"""What is judged in tasks on many machines: the same as in one pass, and nothing of it stays."""

from pathlib import Path
from typing import Any

import pytest
from helpers.judged import judged_bandit, visit

import treetop
from treetop import Bandit, evaluate
from treetop.bandit import evaluation, spread_tallies, visits
from treetop.bandit.policy_search import search_policies
from treetop.files import locked
from treetop.parallel import Machines


def test_what_tasks_find_is_what_one_pass_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several models, lists of arms, a filter, other slots and visits that fit no candidate, in many small waves."""
    monkeypatch.setattr(evaluation, "Machines", lambda ray: Machines(workers=2, pauses=()))  # threads, no cluster
    for module, name, value in ((spread_tallies, "CHUNK", 70), (spread_tallies, "WAVE", 3), (visits, "CHUNK", 50)):
        monkeypatch.setattr(module, name, value)
    with judged_bandit(tmp_path) as bandit:
        visit(bandit, 300)
        bandit.refit()
        visit(bandit, 300, first=300)
        visit(bandit, 40, first=600, eligible=bandit.snapshot.arms.ids[:30])
        visit(bandit, 40, first=640, k=1)
        visit(bandit, 20, first=680, rewards=False)
        asked: Any = [bandit, ["strategy=greedy", "beam=2", "k=2", "model=000000", "epsilon=0.1"]]
        here = evaluate(*asked).to_dict()
        started = evaluate(*asked, effort=treetop.Effort(ray="auto")).to_dict()
        searched = search_policies(bandit).to_dict()
        assert search_policies(bandit, effort=treetop.Effort(ray="auto")).to_dict() == searched
        (tmp_path / "elsewhere").mkdir()
        evaluate(*asked, effort=treetop.Effort(ray="auto", folder=tmp_path / "elsewhere"))
    assert started == here
    assert here["rounds"] == 680
    assert not list(tmp_path.rglob(f"{spread_tallies.PREFIX}*"))


def test_folders_that_evaluations_left_are_deleted_and_one_in_use_is_not(
    judged: Bandit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "Machines", lambda ray: Machines(workers=1, pauses=()))
    left, used = (judged.folder.path / f"{spread_tallies.PREFIX}{name}" for name in ("left", "used"))
    for path in (left, used):
        path.mkdir()
        (path / "questions-0").touch()
    with locked(used / spread_tallies.LOCK):
        evaluate(judged, ["explore=0"], effort=treetop.Effort(ray="auto"))
        assert [path.name for path in judged.folder.path.glob(f"{spread_tallies.PREFIX}*")] == [used.name]
    spread_tallies.clear_evaluations(judged.folder.path)
    assert not used.exists()
