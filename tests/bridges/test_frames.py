"""Frames of pandas in the owner's ids, and what a notebook shows."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

import treetop
from treetop.bridges.frames import log_frame

pandas = pytest.importorskip("pandas", reason="pandas is not installed (pip install 'treetop-bandits[pandas]')")
TEAS: list[str | int] = ["<b>mint</b>", "rose", 7]


@pytest.fixture
def tea(tmp_path: Path) -> treetop.Bandit:
    bandit = treetop.Bandit.create(tmp_path / "tea", TEAS, np.eye(3), np.eye(3), features=["fresh", "floral", "dark"])
    for visit in range(6):
        served = bandit.decide(np.eye(3)[visit % 3], f"visit-{visit}", k=2)
        if visit:
            bandit.reward(f"visit-{visit}", {served.arms[1]: visit / 8})
    return bandit


def test_decisions_as_a_frame(problem: Problem) -> None:
    shown = treetop.Policy(k=3, explore=2).decide_batch(problem.model, problem.X[:5], event_ids=list("abcde"))
    frame = shown.to_frame()
    assert len(frame) == 15
    assert frame["event_id"].tolist()[::3] == list("abcde")
    np.testing.assert_array_equal(frame["arm"].to_numpy().reshape(5, 3), shown.arms)
    np.testing.assert_array_equal(frame["propensity"].to_numpy().reshape(5, 3), shown.propensities)
    np.testing.assert_array_equal(frame["node"].to_numpy().reshape(5, 3), shown.nodes)
    ids = [f"arm-{i}" for i in range(problem.model.n_arms)]
    assert shown.to_frame(ids)["arm"].tolist() == [ids[arm] for arm in shown.arms.ravel()]
    nameless = treetop.Policy(k=3, explore=2).decide_batch(problem.model, problem.X[:5], seed=0)
    assert nameless.to_frame()["event_id"].tolist() == [i // 3 for i in range(15)]


def test_slots_that_could_not_be_filled_have_no_row(problem: Problem) -> None:
    shown = treetop.Policy(k=5, explore=2).decide_batch(problem.model, problem.X[:2], seed=0, eligible=[1, 2])
    assert len(shown.to_frame()) == 4


def test_a_log_as_a_frame(tea: treetop.Bandit) -> None:
    with tea:
        frame = log_frame(tea)
        assert len(frame) == 12
        assert set(frame["arm"]) <= set(TEAS)
        for (event_id, slot), row in frame.set_index(["event_id", "slot"]).iterrows():
            stored = tea.event(event_id)
            assert tea.served(stored.event).arms[slot] == row["arm"]
            assert stored.event.propensities[slot] == row["propensity"]
            np.testing.assert_equal(row["reward"], stored.rewards[slot])
            assert row["time"].timestamp() == pytest.approx(stored.event.time, abs=1e-5)
            assert np.isnan(stored.rewards[slot]) == pandas.isna(row["reward_time"])
        assert frame.groupby("event_id")["reward"].sum()["visit-4"] == 0.5
        middle = tea.event("visit-3").event.time
        assert log_frame(tea, since=middle)["event_id"].nunique() == 3
        assert log_frame(tea, until=middle)["event_id"].nunique() == 3
        wide = log_frame(tea, features=True)
        assert (
            wide.loc[wide["event_id"] == "visit-2", ["fresh", "floral", "dark"]].to_numpy().tolist() == [[0, 0, 1]] * 2
        )


def test_an_empty_log_has_the_same_columns(tmp_path: Path) -> None:
    with treetop.Bandit.create(tmp_path / "tea", X=np.eye(3), Y=np.eye(3)) as bandit:
        frame = log_frame(bandit, features=True)
        assert len(frame) == 0
        assert list(frame.columns)[-3:] == ["0", "1", "2"]
        assert str(frame["time"].dtype).startswith("datetime64")


def test_without_pandas_the_error_says_what_to_install(problem: Problem) -> None:
    shown = treetop.Policy(k=3, explore=2).decide_batch(problem.model, problem.X[:5], seed=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", None)
        with pytest.raises(ValueError, match=r"pip install 'treetop-bandits\[pandas\]'"):
            shown.to_frame()
    code = "import sys, treetop.bridges.frames; print('pandas' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "False"


class Tags(HTMLParser):
    """Counts what is open and what is read."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += f"{data} "


def test_what_a_notebook_shows(problem: Problem, tea: treetop.Bandit) -> None:
    policy = treetop.Policy(k=3, explore=2)
    with tea:
        served = tea.event("visit-0").event
        shown: list[Any] = [
            policy.decide(problem.model, problem.X[0], "visit-1"),
            policy.decide_batch(problem.model, problem.X[:50], seed=0),
            policy.explain(problem.model, problem.X[0]),
            problem.model,
            tea.served(served),
        ]
    pages = [Tags(record._repr_html_()) for record in shown]
    for page in pages:
        assert page.open == []
        assert page.seen.count("table") == 1
    rows = [page.seen.count("tr") - 1 for page in pages]
    assert rows[:2] == [3, 20]
    assert "decision visit-1 (epoch 0)" in pages[0].text
    assert "... and 30 more" in pages[1].text
    assert f"{len(shown[2])} effective arms" in pages[2].text
    assert f"{problem.model.n_arms}" in pages[3].text
    assert "b" not in pages[4].seen[2:], "an id is text, not markup"
