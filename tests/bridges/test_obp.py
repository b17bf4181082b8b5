"""obp's dict from a log and back, its estimates on it, and the Open Bandit Dataset read as obp reads it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.peers import ROOT, needs_peer, run_peer

import treetop
from treetop.bridges.obp import (
    MAX_VALUES,
    from_bandit_feedback,
    import_bandit_feedback,
    log_to_bandit_feedback,
    to_bandit_feedback,
)
from treetop.bridges.open_bandit import read_open_bandit

DATA = ROOT.parent / "shared" / "data" / "obd-men"
PEER = ROOT / "tests" / "helpers" / "peer_obp.py"
KEYS = {"n_rounds", "n_actions", "context", "action", "position", "reward", "pscore", "slate_id"}
ROW = ("action", "position", "reward", "pscore")
EYE = np.eye(5, dtype=np.float32)
there = pytest.mark.skipif(
    not DATA.is_dir(), reason="the Open Bandit sample is not beside this checkout (../shared/data)"
)


def played(folder: Path, visits: int = 40) -> treetop.Bandit:
    policy = treetop.PolicyConfig(k=3, explore=3, strategy="epsilon", parameters={"epsilon": 1.0})
    config = treetop.Config(policy=policy, tree=treetop.TreeConfig(max_leaf=5))
    bandit = treetop.Bandit.create(folder, list("abcde"), EYE, EYE, config=config)
    for visit in range(visits):
        served = bandit.decide(EYE[visit % 5], f"visit-{visit}")
        bandit.reward(f"visit-{visit}", {arm: float(arm == "abcde"[visit % 5]) for arm in served.arms[visit % 3 :]})
    return bandit


def test_a_log_becomes_rows_and_decisions_again(tmp_path: Path) -> None:
    with played(tmp_path / "shop") as shop:
        made = log_to_bandit_feedback(shop, action_context=EYE)
        assert set(made) == KEYS | {"action_context"}
        rewards = shop.log.counts().rewards
        assert made["n_rounds"] == rewards == len(made["action"]) == len(made["context"])
        for i in range(made["n_rounds"]):
            stored = shop.event(f"visit-{made['slate_id'][i]}")
            slot = made["position"][i]
            assert stored.event.arms[slot] == made["action"][i]
            assert stored.event.propensities[slot] == made["pscore"][i]
            assert stored.rewards[slot] == made["reward"][i]
            assert made["context"][i].argmax() == made["slate_id"][i] % 5
    shown, feedback = from_bandit_feedback(made)
    again = to_bandit_feedback(shown, feedback, made["n_actions"], EYE)
    for key in ("n_rounds", "n_actions", "context", "action", "reward", "pscore", "slate_id", "action_context"):
        np.testing.assert_array_equal(again[key], made[key])
    with treetop.Bandit.create(tmp_path / "other", list("abcde"), EYE, EYE) as other:
        assert import_bandit_feedback(other, made).rewards == rewards
        taken = log_to_bandit_feedback(other)
        for key in ("context", "action", "reward", "pscore", "slate_id"):
            np.testing.assert_array_equal(taken[key], made[key])
        assert import_bandit_feedback(other, made).known == 40
        assert other.refit().rounds == 40


def rows(**changes: Any) -> dict[str, Any]:
    made = {"context": np.eye(2), "action": np.array([1, 0]), "reward": np.ones(2), "pscore": np.array([0.5, 1.0])}
    return {"n_rounds": 2, "n_actions": 2, **made, **changes}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (rows(pscore=None), "bandit_feedback has no pscore"),
        (rows(action=np.array([0, 2])), r"action 2 is outside \[0, 2\)"),
        (rows(pscore=np.array([0.5, 0.0])), r"pscore 0 is outside \(0, 1\]"),
        (rows(reward=np.ones(3)), "3 of reward; n_rounds is 2"),
        (rows(reward=np.array([0.0, 1.5])), r"reward 1.5 of round 1, slot 0 is outside \[0, 1\]"),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_bandit_feedback(wrong)


def test_a_dict_of_another_catalogue_is_refused(tmp_path: Path) -> None:
    with treetop.Bandit.create(tmp_path / "shop", X=EYE, Y=EYE) as shop:
        with pytest.raises(ValueError, match="2 actions and 2 features; the bandit has 5 and 5"):
            import_bandit_feedback(shop, rows())
        made = rows(context=np.eye(2, 5), n_actions=5)
        with pytest.raises(ValueError, match="has 601 bytes; 1 to 512 are needed"):
            import_bandit_feedback(shop, made, name="x" * 599)
        assert shop.log.counts().decisions == 0


def test_what_would_not_fit_into_memory_is_refused() -> None:
    n = 2
    arms, half = np.zeros((n, 1), np.int32), np.full((n, 1), 0.5)
    shown = treetop.Decisions(None, 0, arms, half, half, half < 1, arms - 1)
    feedback = treetop.Feedback(
        treetop.Rows(np.zeros(n + 1, np.int64), arms[:0, 0], half[:0, 0].astype("f4"), MAX_VALUES // n + 1),
        arms,
        None,
        half,
    )
    with pytest.raises(ValueError, match="obp takes dense arrays only"):
        to_bandit_feedback(shown, feedback, 1)


def estimate(made: dict[str, Any], chances: np.ndarray[Any, Any], file: Path) -> dict[str, float]:
    """obp's estimates of a policy with these chances, (n_rounds, n_actions, positions)."""
    np.savez(file, **made, action_dist=chances)
    found: dict[str, float] = json.loads(run_peer("-W", "ignore", PEER, "estimate", file))
    return found


def test_obp_estimates_what_the_log_says(tmp_path: Path) -> None:
    needs_peer("obp")
    with played(tmp_path / "shop", 200) as shop:
        made = log_to_bandit_feedback(shop)
    rng = np.random.default_rng(0)
    chances = rng.dirichlet(np.ones(5), size=(made["n_rounds"], 3)).transpose(0, 2, 1)
    found = estimate(made, chances, tmp_path / "rows.npz")
    weight = chances[np.arange(made["n_rounds"]), made["action"], made["position"]] / made["pscore"]
    assert found["ipw"] == pytest.approx((weight * made["reward"]).mean())
    assert found["snipw"] == pytest.approx((weight * made["reward"]).sum() / weight.sum())


@there
def test_the_open_bandit_dataset() -> None:
    for name, clicks in (("random", 46), ("bts", 69)):
        log = read_open_bandit(DATA / f"{name}.csv.gz", DATA / "item_context.csv")
        assert (len(log.shown), log.feedback.rewards.sum(), log.n_items) == (10_000, clicks, 34)
        assert log.items is not None
        assert len(log.items) == 34
        assert set(log.positions.tolist()) == {0, 1, 2}
        assert len(log.features) == log.feedback.contexts.columns
        assert (np.diff(log.times) >= 0).mean() > 0.9
        made = log.bandit_feedback()
        assert made["context"].shape == (10_000, len(log.features))
        shown, feedback = from_bandit_feedback(made)
        np.testing.assert_array_equal(shown.arms, log.shown.arms)
        np.testing.assert_array_equal(feedback.rewards, log.feedback.rewards)
    assert log.shown.propensities.max() > 1 / 34


@there
@pytest.mark.parametrize("policy", ["random", "bts"])
def test_obp_reads_the_same_rows(policy: str, tmp_path: Path) -> None:
    needs_peer("obp")
    place = tmp_path / policy / "men"
    place.mkdir(parents=True)
    with gzip.open(DATA / f"{policy}.csv.gz") as packed:
        (place / "men.csv").write_bytes(packed.read())
    (place / "item_context.csv").write_bytes((DATA / "item_context.csv").read_bytes())
    theirs = json.loads(run_peer("-W", "ignore", PEER, "read", tmp_path, policy).partition("\n")[0])
    log = read_open_bandit(DATA / f"{policy}.csv.gz", DATA / "item_context.csv")
    mine = log.bandit_feedback()
    assert theirs["n_actions"] == log.n_items
    rows = [np.lexsort([np.asarray(made[key]) for key in ROW]) for made in (theirs, mine)]  # it sorts them by time
    for key in ROW:
        np.testing.assert_allclose(np.asarray(theirs[key])[rows[0]], mine[key][rows[1]])


@there
def test_one_policys_clicks_from_the_others_log(tmp_path: Path) -> None:
    """obp and treetop's records give the same estimate of the uniform policy from the log of the other."""
    needs_peer("obp")
    made = read_open_bandit(DATA / "bts.csv.gz", DATA / "item_context.csv").bandit_feedback()
    made["context"] = made["context"][:, :1]
    found = estimate(made, np.full((10_000, 34, 3), 1 / 34), tmp_path / "rows.npz")
    assert found["ipw"] == pytest.approx((made["reward"] / 34 / made["pscore"]).mean())
    assert found["ipw"] == pytest.approx(0.0046, abs=0.004)
