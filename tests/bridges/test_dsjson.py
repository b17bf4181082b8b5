"""A log as dsjson and back: to the last bit for its bandit, by ids for another, and as Vowpal Wabbit reads it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.commands import shell
from helpers.peers import ROOT, needs_peer, run_peer

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, LearnerConfig, PolicyConfig, RewardConfig, TreeConfig
from treetop.bandit.evaluation import evaluate
from treetop.bridges.dsjson import PROBLEMS
from treetop.bridges.dsjson_export import export_dsjson
from treetop.bridges.dsjson_import import import_dsjson
from treetop.bridges.imported import MODEL
from treetop.errors import UnknownArm

ARMS: list[str | int] = ["mint", "rose", "oolong", "sencha", "assam", 7]
EYE = np.eye(6, dtype=np.float32)
NAMES = ["fresh", "floral", "_dark", "grassy", "malty", "x.odd"]
PEER = ROOT / "tests" / "helpers" / "peer_vw.py"


def new(folder: Path, **rewards: Any) -> Bandit:
    """A bandit that draws every slot uniformly."""
    policy = PolicyConfig(k=2, explore=2, strategy="epsilon", parameters={"epsilon": 1.0})
    config = Config(
        policy=policy, tree=TreeConfig(max_leaf=6), learner=LearnerConfig("paper"), rewards=RewardConfig(**rewards)
    )
    return Bandit.create(folder, ARMS, EYE, EYE, features=NAMES, config=config)


def play(bandit: Bandit, visits: int, k: int = 2, unseen: int = 0, **request: Any) -> None:
    """Context i wants arm i; every third visit has no reward for its first `unseen` slots."""
    ids = bandit.snapshot.arms.ids
    for visit in range(visits):
        context = visit % 6
        served = bandit.decide(EYE[context] * (1 + visit / 8), f"visit-{visit}", k=k, **request)
        shown = served.arms[unseen if visit % 3 == 0 else 0 :]
        if shown:
            bandit.reward(f"visit-{visit}", {arm: float(arm == ids[context]) for arm in shown})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def contents(bandit: Bandit) -> list[Any]:
    """All that a log has, but for its positions."""
    found = []
    for chunk in bandit.log.entries(bandit.log.summary()):
        for entry in chunk:
            stored, e = entry.stored, entry.stored.event
            arrays = (
                e.arms,
                e.propensities,
                e.scores,
                e.explored,
                e.nodes,
                e.index,
                e.value,
                stored.rewards,
                stored.times,
            )
            texts = (
                e.event_id,
                e.time,
                e.request,
                e.model_epoch,
                e.model,
                e.tree,
                e.policy,
                e.eligible,
                e.removals,
                e.keys,
            )
            found.append((*texts, *(array.tobytes() for array in arrays)))
    return found


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_bandits_own_log_comes_back_to_the_last_bit(problem: str, tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        play(tea, 20, unseen=1)
        tea.remove_arms(["assam"])
        tea.decide(EYE[0], "few", eligible=["mint", 7, "rose"], keys={"visitor": "1"})
        tea.decide(EYE[0], "not-mint", exclude=["mint"])
        before, counts = contents(tea), tea.log.counts()
        assert export_dsjson(tea, tmp_path / "log", problem) == 22
    (tmp_path / "tea" / "log.sqlite").unlink()
    for extra in ("-wal", "-shm"):
        (tmp_path / "tea" / f"log.sqlite{extra}").unlink(missing_ok=True)
    with Bandit.open(tmp_path / "tea") as tea:
        done = import_dsjson(tea, tmp_path / "log")
        assert (done.decisions, done.rewards, done.known, done.thinned, done.not_shown) == (22, counts.rewards, 0, 0, 0)
        assert contents(tea) == before
        again = tea.log.counts()
        assert (again.decisions, again.rewards, again.observed, again.pending) == (
            counts.decisions, counts.rewards, counts.observed, counts.pending,
        )  # fmt: skip
        assert import_dsjson(tea, tmp_path / "log").known == 22
        assert len(contents(tea)) == 22
        assert tea.refit().rounds == 22


@pytest.mark.parametrize("problem", PROBLEMS)
def test_another_bandit_takes_it_by_ids(problem: str, tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        play(tea, 12, unseen=1)
        tea.decide(EYE[0], "few", eligible=["mint", 7, "rose"])
        export_dsjson(tea, tmp_path / "log", problem)
    with Bandit.create(
        tmp_path / "other", [*reversed(ARMS), "new"], X=EYE, Y=np.eye(6, 7), features=NAMES[::-1]
    ) as other:
        assert import_dsjson(other, tmp_path / "log").decisions == 13
        with Bandit.open(tmp_path / "tea") as tea:
            for name in ("visit-0", "visit-7", "few"):
                one, two = tea.event(name), other.event(name)
                assert tea.served(one.event).arms == other.served(two.event).arms
                np.testing.assert_array_equal(one.rewards, two.rewards)
                np.testing.assert_array_equal(one.event.propensities, two.event.propensities)
                assert two.event.model == MODEL
                given = {tea.vocabulary.name(i): v for i, v in zip(one.event.index, one.event.value, strict=True)}
                taken = {other.vocabulary.name(i): v for i, v in zip(two.event.index, two.event.value, strict=True)}
                assert given == taken
        listed = other.log.eligible_set(other.event("few").event.eligible)
        assert listed is not None
        assert sorted(str(other.snapshot.arms.ids[arm]) for arm in listed) == ["7", "mint", "rose"]
        assert other.event("visit-0").event.eligible == ""
        judged = evaluate(other, ["model=000000,strategy=greedy"])
        assert judged.candidates[0].rounds == 12
        assert other.refit().rounds == 13


FOREIGN = {
    "EventId": "e1",
    "Timestamp": "2021-02-04T16:31:29.2460000Z",
    "_label_cost": -0.5,
    "_label_probability": 0.25,
    "_label_Action": 2,
    "_labelIndex": 1,
    "a": [2, 1],
    "p": [0.25, 0.75],
    "c": {"User": {"fresh": 2.0, "floral": True, "unheard": 1}, "_multi": [{"i": {"id": "mint"}}, {"_tag": "rose"}]},
}
SLOTS = {
    "EventId": "e2",
    "c": {"x": {"floral": 1}, "_multi": [{"id": a} for a in ("mint", "rose", "oolong")], "_slots": [{"_id": "a"}, {}]},
    "_outcomes": [{"_label_cost": 0, "_a": [2, 0, 1], "_p": [0.5, 0.3, 0.2]}, {"_label_cost": -1, "_a": 0, "_p": 1.0}],
}
SLATE = {
    "EventId": "e3",
    "_label_cost": -1,
    "c": {
        "_multi": [{"_slot_id": s, "id": a} for s, a in ((0, "mint"), (1, "rose"), (0, "sencha"), (1, "oolong"))],
        "_slots": [{}, {}],
    },
    "_outcomes": [{"_a": [1], "_p": [0.5]}, {"_a": [0], "_p": [0.125]}],
}


def written(path: Path, *found: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in found))
    return path


def test_lines_of_others_count_actions_as_they_do(tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        skipped = FOREIGN | {"EventId": "e4", "_skipLearn": True}
        done = import_dsjson(tea, written(tmp_path / "log", FOREIGN, SLOTS, SLATE, skipped))
        assert (done.decisions, done.rewards, done.unknown_features, done.not_shown) == (3, 5, 1, 1)
        one, two, three = (tea.event(name) for name in ("e1", "e2", "e3"))
        assert tea.served(one.event).arms == ["rose"]
        assert (one.event.propensities.tolist(), one.rewards.tolist(), one.event.time) == (
            [0.25],
            [0.5],
            1612456289.246,
        )
        assert (one.event.index.tolist(), one.event.value.tolist()) == ([0, 1], [2.0, 1.0])
        assert abs(two.event.time - time.time()) < 600, "without a Timestamp it is now"
        assert tea.served(two.event).arms == ["oolong", "mint"]
        assert (two.event.propensities.tolist(), two.rewards.tolist()) == ([0.5, 1.0], [0.0, 1.0])
        assert two.event.explored.tolist() == [True, False]
        assert tea.served(three.event).arms == ["sencha", "rose"]
        assert (three.event.propensities.tolist(), three.rewards.tolist()) == ([0.5, 0.125], [1.0, 1.0])


def test_costs_in_another_range_and_arms_that_are_new(tmp_path: Path) -> None:
    actions = [{"u": {"sku": "mint"}}, {"u": {"sku": "chai"}}]
    line = FOREIGN | {"_label_cost": 3.0, "c": FOREIGN["c"] | {"_multi": actions}}  # type: ignore[operator]
    file = written(tmp_path / "log", line)
    with new(tmp_path / "tea") as tea:
        with pytest.raises(ValueError, match=r"log, line 1: an action has no id at _tag or id"):
            import_dsjson(tea, file)
        with pytest.raises(ValueError, match=r"line 1: the reward -3, the negated cost, is outside \[0, 1\]"):
            import_dsjson(tea, file, arm_id="u.sku")
        with pytest.raises(UnknownArm, match="1 arms that are not in the catalogue, such as 'chai'"):
            import_dsjson(tea, file, arm_id="u.sku", reward_range=(-4, 0))
        assert tea.log.counts().decisions == 0
        done = import_dsjson(tea, file, arm_id="u.sku", reward_range=(-4, 0), add_arms=True)
        assert (done.decisions, done.arms_added) == (1, 1)
        assert tea.served(tea.event("e1").event).arms == ["chai"]
        assert tea.event("e1").rewards.tolist() == [0.25]


WRONG = {
    "differ": FOREIGN | {"_labelIndex": 0},
    r"the chosen action is 3; it must lie in \[1, 2\]": {k: v for k, v in FOREIGN.items() if k != "_labelIndex"}
    | {"_label_Action": 3},
    "probability of what was chosen is 0": FOREIGN | {"_label_probability": 0},
    "pdrop is 1": FOREIGN | {"pdrop": 1.0},
    "pdrop is 1.5": FOREIGN | {"pdrop": 1.5},
    "it has no 'EventId'": {k: v for k, v in FOREIGN.items() if k != "EventId"},
    "it has no 'c'": {k: v for k, v in FOREIGN.items() if k != "c"},
    "the time 'noon'": FOREIGN | {"Timestamp": "noon"},
    "2 _slots and 1 _outcomes": SLOTS | {"_outcomes": SLOTS["_outcomes"][:1]},  # type: ignore[index]
    "the arm id 'a\\\\n' has characters that cannot be printed": FOREIGN
    | {"c": {"_multi": [{"id": "a\n"}, {"id": "b"}]}},
    "feature 'fresh' is 1e\\+39; it must be finite": FOREIGN | {"c": FOREIGN["c"] | {"User": {"fresh": 1e39}}},  # type: ignore[operator]
    "event id 'eeee": FOREIGN | {"EventId": "e" * 513},
    "an arm is shown twice": SLOTS | {"_outcomes": [SLOTS["_outcomes"][0]] * 2},  # type: ignore[index]
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_meant_is_refused_with_its_line(message: str, tmp_path: Path) -> None:
    file = written(tmp_path / "log", FOREIGN | {"EventId": "good"}, WRONG[message])
    with new(tmp_path / "tea") as tea:
        with pytest.raises(ValueError, match=f"log, line 2: .*{message}"):
            import_dsjson(tea, file)
        assert tea.log.counts().decisions == 0


def test_a_changed_label_beside_its_record_is_noticed(tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        play(tea, 1)
        export_dsjson(tea, tmp_path / "log", "ccb")
    line = lines(tmp_path / "log")[0]
    line["_outcomes"][0]["_label_cost"] = -0.125
    with new(tmp_path / "other") as other:
        with pytest.raises(ValueError, match=r"line 1: its label says reward 0.125, its record [01]; take the record"):
            import_dsjson(other, written(tmp_path / "log", line))
        del line["treetop"]
        import_dsjson(other, written(tmp_path / "log", line))
        assert other.event("visit-0").rewards[0] == 0.125


def test_lines_that_were_dropped_unequally_are_evened_out(tmp_path: Path) -> None:
    """3,000 lines of which nothing was dropped beside 3,000 that stand for four each: a quarter of the first stays."""
    rows = [FOREIGN | {"EventId": f"all-{i}"} for i in range(3000)]
    rows += [FOREIGN | {"EventId": f"some-{i}", "pdrop": 0.75} for i in range(3000)]
    with new(tmp_path / "tea") as tea:
        done = import_dsjson(tea, written(tmp_path / "log", *rows))
        names = [e.stored.event.event_id for chunk in tea.log.entries(tea.log.summary()) for e in chunk]
        assert sum(name.startswith("some") for name in names) == 3000
        assert abs(sum(name.startswith("all") for name in names) - 750) < 4 * 24
        assert done.thinned == 6000 - len(names) == 6000 - tea.log.counts().decisions


def test_an_export_of_a_share_says_what_was_dropped(tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        play(tea, 400, k=1)
        n = export_dsjson(tea, tmp_path / "log", "cb", share=0.25)
        assert abs(n - 100) < 4 * 9
        assert {line["pdrop"] for line in lines(tmp_path / "log")} == {0.75}
    with new(tmp_path / "other") as other:
        done = import_dsjson(other, tmp_path / "log")
        assert (done.decisions, done.thinned) == (n, 0)


def test_long_lists_of_arms_are_cut_but_keep_what_was_shown(tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        play(tea, 30)
        export_dsjson(tea, tmp_path / "log", "ccb", actions=3)
        for line in lines(tmp_path / "log"):
            listed = [action["arm"]["id"] for action in line["c"]["_multi"]]
            assert len(listed) in (2, 3)
            shown = [str(arm) for arm in tea.served(tea.event(line["EventId"]).event).arms]
            assert [listed[outcome["_a"][0]] for outcome in line["_outcomes"]] == shown
    with new(tmp_path / "other") as other:
        import_dsjson(other, tmp_path / "log")
        assert other.event("visit-3").event.eligible == "", "the list that was cut is not a list of the request"


def test_overdue_rewards_are_what_a_refit_takes_them_for(tmp_path: Path) -> None:
    with new(tmp_path / "tea", default_reward=0.0) as tea:
        tea.decide(EYE[0], "visit-0")
        export_dsjson(tea, tmp_path / "log", "slates")
        export_dsjson(tea, tmp_path / "ccb", "ccb")
    assert lines(tmp_path / "log")[0]["_label_cost"] == 0
    assert [outcome["_label_cost"] for outcome in lines(tmp_path / "ccb")[0]["_outcomes"]] == [0, 0]
    with new(tmp_path / "other") as other:
        assert import_dsjson(other, tmp_path / "ccb").rewards == 0, "nobody gave one"


def test_the_commands(tmp_path: Path) -> None:
    with new(tmp_path / "tea") as tea:
        play(tea, 5)
    new(tmp_path / "other").close()
    log, folders = str(tmp_path / "log.dsjson"), [str(tmp_path / name) for name in ("tea", "other")]
    ended = shell("export", folders[0], log, "--format", "dsjson", "--problem", "cb", "--json")
    assert json.loads(ended.stdout) == {"file": log, "decisions": 5}
    ended = shell("import", folders[1], log, "--format", "dsjson", "--json")
    assert json.loads(ended.stdout)["decisions"] == 5
    assert "5 known" in shell("import", folders[1], log, "--format", "dsjson").stdout
    assert "--format is 'vw'" in shell("export", folders[0], log, "--format", "vw").stderr
    assert (
        "the problem is 'bandit'"
        in shell("export", folders[0], log, "--format", "dsjson", "--problem", "bandit", "--force").stderr
    )
    assert "--log is for --format dsjson" in shell("export", folders[0], "a.jsonl", "--log", "b").stderr


@pytest.mark.parametrize("problem", PROBLEMS)
def test_vowpal_wabbit_reads_what_was_logged(problem: str, tmp_path: Path) -> None:
    needs_peer("vowpalwabbit")
    with new(tmp_path / "tea") as tea:
        play(tea, 60, k=3, unseen=2)
        export_dsjson(tea, tmp_path / "log", problem, share=0.5)
        found = json.loads(run_peer(PEER, "labels", problem, tmp_path / "log"))
        written_lines = lines(tmp_path / "log")
        assert len(found) == len(written_lines) > 20
        for line, read in zip(written_lines, found, strict=True):
            event_id, _, slot = line["EventId"].partition("/")
            stored = tea.event(event_id)
            observed = ~np.isnan(stored.rewards)
            slots = [int(slot)] if slot else np.flatnonzero(observed).tolist()
            if problem == "slates":
                slots = [0, 1, 2] if observed.all() else []
                assert read["labelled"] == observed.all()
            listed = [action["arm"]["id"] for action in line["c"]["_multi"]]
            if slot and not observed[int(slot)]:
                slots = []
            assert len(read["slots"]) == len(slots)
            if slots:
                assert read["weight"] == 2
                assert read["actions"] == len(listed)
            for place, (action, chance, cost) in zip(slots, read["slots"], strict=False):
                mine = [a["arm"]["id"] for a in line["c"]["_multi"] if a.get("_slot_id", place) == place]
                assert mine[action] == str(tea.snapshot.arms.ids[stored.event.arms[place]])
                assert chance == pytest.approx(stored.event.propensities[place])
                assert -cost == pytest.approx(stored.rewards.mean() if problem == "slates" else stored.rewards[place])
            for place, included in zip(slots, read.get("included", ()), strict=False):
                before = {str(tea.snapshot.arms.ids[arm]) for arm in stored.event.arms[:place]}
                assert not included or {listed[i] for i in included} == set(listed) - before


@pytest.mark.parametrize("problem", PROBLEMS)
def test_vowpal_wabbit_trains_on_the_export(problem: str, tmp_path: Path) -> None:
    """After 600 visits with arms at random it knows which arm each context wants."""
    needs_peer("vowpalwabbit")
    with new(tmp_path / "tea") as tea:
        play(tea, 600, unseen=1 if problem == "ccb" else 0)
        export_dsjson(tea, tmp_path / "train", problem)
    with new(tmp_path / "test") as test:
        for context in range(6):
            served = test.decide(EYE[context] * 2, f"visit-{context}", k=1)
            test.reward(f"visit-{context}", {served.arms[0]: 0.0})
        export_dsjson(test, tmp_path / "test.dsjson", problem)
    chosen = json.loads(run_peer(PEER, "train", problem, tmp_path / "train", tmp_path / "test.dsjson"))
    assert chosen == list(range(6))
