"""Experiments on live traffic: sticky variants, exact replay, and what starts, stops and promotes them."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import topics
from helpers.running import settings, small_bandit

from treetop.bandit.bandit import Bandit
from treetop.bandit.config import Config, ReplicaConfig
from treetop.bandit.config_file import parse_config, read_config
from treetop.bandit.experiment_config import Experiment, ExperimentConfig
from treetop.bandit.live_experiment import LiveExperiment, find_experiment
from treetop.bandit.replica import Replica, join
from treetop.bandit.results import same_decision
from treetop.errors import ModelFileError, ReplicaConflict

X, Y = topics()
BEAMS: dict[str, Any] = {
    "now": {"share": 0.4},
    "wide": {"share": 0.3, "beam": 30, "explore": 0},
    "old": {"share": 0.2, "model": "000000"},
}


def shop(folder: Path, **variants: Any) -> Bandit:
    chosen = settings(experiments={"beams": ExperimentConfig(variants or BEAMS)})
    return Bandit.open(small_bandit(folder, X, Y, config=chosen))


def test_units_stay_in_their_variant_and_every_decision_replays(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit, Bandit.open(tmp_path / "shop") as other:
        bandit.decide(X[0], "before")
        bandit.refit()
        bandit.start_experiment("beams")
        assert other.refresh()
        seen: dict[str, set[str | None]] = {}
        for i in range(200):
            process = (bandit, other)[i % 2]
            served = process.decide(X[i], f"visit-{i}", keys={"visitor": i // 4})
            seen.setdefault(str(i // 4), set()).add(served.variant)
            assert process.decide(X[i], f"visit-{i}", keys={"visitor": i // 4}) == served  # sent again
        assert all(len(variants) == 1 for variants in seen.values())
        shares = [next(iter(variants)) for variants in seen.values()]
        assert {*shares} == {"now", "wide", "old", None}
        for i in range(200):
            event, again = bandit.replay(f"visit-{i}")
            assert same_decision(event, again)
            said = json.loads(event.policy)
            variant = said.get("variant")
            assert variant == bandit.served(event).variant
            assert event.model == ("000000" if variant == "old" else "000001")
            assert said["beam"] == (30 if variant == "wide" else 5)
            assert event.explored.sum() <= (0 if variant == "wide" else 2)
        stopped = bandit.stop_experiment()
        assert stopped.name == "beams"
        other.refresh()
        assert other.decide(X[0], keys={"visitor": 1}).variant is None
        assert bandit.folder.state().models["000000"].until > 0


def test_shares_are_what_was_asked_for_and_names_shuffle_anew() -> None:
    one, other = (Experiment(BEAMS, name=name) for name in ("one", "other"))
    units = [str(i) for i in range(20_000)]
    found = [one.variant_of(unit) for unit in units]
    for name, share in (("now", 0.4), ("wide", 0.3), ("old", 0.2), (None, 0.1)):
        assert found.count(name) / len(units) == pytest.approx(share, abs=0.015)
    again = [other.variant_of(unit) for unit in units]
    both = np.mean([a == b for a, b in zip(found, again, strict=True)])
    assert both == pytest.approx(0.16 + 0.09 + 0.04 + 0.01, abs=0.02)


def test_promoting_a_variant_writes_the_settings_and_every_process_goes_by_them(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit, Bandit.open(tmp_path / "shop") as other:
        path = tmp_path / "shop" / "config.toml"
        path.write_text(path.read_text().replace("[tree]", "# leaves stay small\n[tree]"))
        bandit.start_experiment("beams")
        policy = bandit.promote_variant("wide")
        assert (policy.beam, policy.explore) == (30, 0)
        assert read_config(path).policy == policy
        assert "# leaves stay small" in path.read_text()
        assert "[experiments.beams]" in path.read_text()
        other.refresh()
        for process in (bandit, other):
            served = process.decide(X[0], keys={"visitor": 1})
            assert served.variant is None
            assert not any(slot.explored for slot in served.slots)
        kinds = [entry["kind"] for entry in bandit.folder.history()]
        assert kinds[-2:] == ["experiment started", "experiment promoted"]
    with Bandit.open(tmp_path / "shop") as again:
        assert again.snapshot.policy_config == policy


def test_promoting_a_model_makes_it_current_and_until_then_it_is_kept(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit:
        bandit.decide(X[0], "x")
        bandit.refit()
        bandit.start_experiment("beams")
        for _ in range(7):  # more than are kept otherwise
            bandit.refit()
        assert "000000" in bandit.folder.models()
        bandit.promote_variant("old")
        assert bandit.snapshot.name == "000000"
        assert bandit.folder.state().schedule.time > 0
        assert bandit.refit().model == "000009"


def test_a_variant_whose_model_knows_none_of_the_arms_asked_for_does_not_decide(tmp_path: Path) -> None:
    variants: dict[str, Any] = {"now": {"share": 1e-6}, "old": {"share": 0.99, "model": "000000"}}
    with shop(tmp_path / "shop", **variants) as bandit:
        bandit.add_arms(["new"])
        bandit.start_experiment("beams")
        units = [str(i) for i in range(9) if bandit.snapshot.experiment.variant_of(str(i)) == "old"]  # type: ignore[union-attr]
        for unit in units:
            served = bandit.decide(X[0], f"only-{unit}", eligible=["new"], keys={"visitor": unit})
            assert (served.arms, served.variant) == (["new"], None)
            assert bandit.decide(X[0], keys={"visitor": unit}).variant == "old"
            assert same_decision(*bandit.replay(f"only-{unit}"))


def test_mistakes_are_named_and_change_nothing(tmp_path: Path) -> None:
    with shop(tmp_path / "shop", now={"share": 0.5}, bad={"share": 0.5, "bean": 3}) as bandit:
        before = (tmp_path / "shop" / "current").read_bytes()
        with pytest.raises(ValueError, match=r"variant 'bad' of experiment 'beams': .*bean"):
            bandit.start_experiment("beams")
        with pytest.raises(ValueError, match=r"there is no experiment 'other' in config.toml; there are: beams"):
            bandit.start_experiment("other")
        with pytest.raises(ValueError, match="no experiment runs"):
            bandit.stop_experiment()
        with pytest.raises(ValueError, match="no experiment runs"):
            bandit.promote_variant("now")
        assert (tmp_path / "shop" / "current").read_bytes() == before
    gone: dict[str, Any] = {"now": {"share": 0.5}, "gone": {"share": 0.5, "model": "000007"}}
    with (
        shop(tmp_path / "other", **gone) as bandit,
        pytest.raises(ValueError, match="variant 'gone' names model '000007'; kept are 000000"),
    ):
        bandit.start_experiment("beams")
    with shop(tmp_path / "third") as bandit:
        bandit.start_experiment("beams")
        with pytest.raises(ValueError, match="experiment 'beams' runs; stop it"):
            bandit.start_experiment("beams")
        with pytest.raises(ValueError, match="there is no variant 'wider'; there are now, wide, old"):
            bandit.promote_variant("wider")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[experiments]\nbeams = 3", r"\[experiments.beams\] has no variants"),
        ("[experiments.beams]\nvariants = {a = {share = 1}}", "two or more are needed"),
        ("[experiments.beams]\nvariants = {a = {share = 0.5}, b = {beam = 3}}", "variant 'b' is .* it needs a share"),
        ("[experiments.beams]\nvariants = {a = {share = 0.5}, b = {share = 0}}", "share of variant 'b' is 0"),
        ("[experiments.beams]\nvariants = {a = {share = 0.5}, b = {share = 0.6}}", "add up to 1.1"),
        ("[experiments.beams]\nbase = 1\nvariants = {a = {share = 0.5}, b = {share = 0.5}}", "has no 'base'"),
        ("[experiments.'b c']\nvariants = {a = {share = 0.5}, b = {share = 0.5}}", "the name of a experiment is 'b c'"),
        (
            "[experiments.beams]\nbaseline = 'c'\nvariants = {a = {share = 0.5}, b = {share = 0.5}}",
            "baseline is 'c'; the variants are a, b",
        ),
    ],
)
def test_what_is_no_experiment_is_said_and_hinders_no_other(text: str, message: str) -> None:
    fine = "[experiments.fine]\nvariants = {a = {share = 0.5}, b = {share = 0.5}}"
    for config in (parse_config(f"{text}\n{fine}"), parse_config(f"[policy]\nk = 3\n{text}\n{fine}")):
        assert list(config.experiments) == ["fine"]
        (why,) = config.bad_experiments.values()
        assert re.search(message, why)
    with pytest.raises(ValueError, match="experiments is 3; it must hold tables"):
        parse_config("experiments = 3")


def test_a_bad_experiment_and_more_exploration_than_slots_do_not_start(tmp_path: Path) -> None:
    with shop(tmp_path / "shop", now={"share": 0.5}, more={"share": 0.5, "explore": 9}) as bandit:
        with pytest.raises(ValueError, match=r"variant 'more' .*explore is 9; it must lie in \[0, "):
            bandit.start_experiment("beams")
        path = tmp_path / "shop" / "config.toml"
        path.write_text(path.read_text().replace("share = 0.5", "share = 0.6"))
        with pytest.raises(ValueError, match=r"config.toml: \[experiments.beams\] the shares .* add up to 1.2"):
            bandit.start_experiment("beams")


def test_the_log_says_how_it_goes_and_late_rewards_count_for_their_visit(tmp_path: Path) -> None:
    variants: dict[str, Any] = {"now": {"share": 0.5}, "wide": {"share": 0.5, "explore": 0}}
    with shop(tmp_path / "shop", **variants) as bandit:
        assert find_experiment(bandit.folder) is None
        bandit.start_experiment("beams")
        rng, expected = np.random.default_rng(0), {"now": [0, 0.0], "wide": [0, 0.0]}
        found = find_experiment(bandit.folder)
        assert found is not None
        live = LiveExperiment(bandit.log, found[0])
        waiting = []
        for i in range(400):
            served = bandit.decide(X[i], f"visit-{i}", k=2, keys={"visitor": i // 2})
            assert served.variant is not None
            good = rng.random() < (0.9 if served.variant == "wide" else 0.3)
            expected[served.variant][0] += 1
            expected[served.variant][1] += float(good)
            waiting.append((f"visit-{i}", {served.arms[0]: float(good)}))
            if i == 250:
                live.update(100)  # a part, then the rest: nothing is counted twice
        for event, rewards in waiting:
            bandit.reward(event, rewards)
        while not live.update(100):
            pass
        result = live.result(found[1], reward_wait=0.0)
        assert [v.name for v in result.variants] == ["now", "wide"]
        for variant in result.variants:
            assert variant.visits == expected[variant.name][0]
            assert variant.reward.value == pytest.approx(expected[variant.name][1] / variant.visits)
        assert result.variants[1].verdict == "better"
        assert result.history[-1].rewards[1] == result.variants[1].reward
        assert live.result(True, reward_wait=3600.0).variants[0].visits == 0  # all of them may still get rewards
        bandit.stop_experiment()
        again = find_experiment(bandit.folder, "beams")
        assert again == (found[0], False)
        assert find_experiment(bandit.folder, "none") is None
        json.dumps(result.to_dict())


def test_settings_travel_through_config_toml() -> None:
    config = Config(experiments={"beams": ExperimentConfig(BEAMS, "household", "now")})
    from treetop.bandit.config_file import config_text

    assert parse_config(config_text(config)) == config


def test_promoting_a_model_needs_one_that_can_be_read_and_takes_it_from_aside(tmp_path: Path) -> None:
    with shop(tmp_path / "shop") as bandit:
        bandit.decide(X[0], "x")
        bandit.refit()
        state = bandit.folder.state()
        aside = {**state.models, "000000": replace(state.models["000000"], aside="worse")}
        bandit.folder.change(lambda state: replace(state, models=aside))
        bandit.start_experiment("beams")
        files, before = tmp_path / "shop" / "models" / "000000", bandit.folder.state()
        files.rename(tmp_path / "away")
        with pytest.raises((ModelFileError, OSError)):
            bandit.promote_variant("old")
        assert bandit.folder.state() == before
        (tmp_path / "away").rename(files)
        bandit.promote_variant("old")
        assert bandit.folder.state().models["000000"].aside == ""


def test_a_variant_is_promoted_on_all_replicas(tmp_path: Path) -> None:
    """On those that are open, that were closed meanwhile, and that join later; what else config.toml has is a host's
    own. A promotion that loses to another change changes nothing here."""
    store, log = str(tmp_path / "store"), str(tmp_path / "log")
    config = settings(experiments={"beams": ExperimentConfig(BEAMS)}, replicas=ReplicaConfig(store))
    with Bandit.create(tmp_path / "a", ["a", "b", "c"], config=config, log=log) as here:
        for name in ("b", "away"):
            join(tmp_path / name, store, log)
        own = tmp_path / "b" / "config.toml"
        own.write_text(own.read_text().replace("lease = 10.0", "lease = 7.0"))
        with Bandit.open(tmp_path / "b", log) as there:
            here.start_experiment("beams")
            there.folder.follow()
            before = [(tmp_path / "b" / name).read_bytes() for name in ("current", "config.toml")]
            push = Replica.push

            def late(self: Replica, *arguments: Any) -> None:
                monkeypatch.undo()
                here.remove_arms(["c"])
                push(self, *arguments)

            with pytest.MonkeyPatch.context() as monkeypatch:
                monkeypatch.setattr(Replica, "push", late)
                with pytest.raises(ReplicaConflict):
                    there.promote_variant("wide")
            assert [(tmp_path / "b" / name).read_bytes() for name in ("current", "config.toml")] == before
            promoted = there.promote_variant("wide")
            here.folder.follow()
            here.refresh()
            assert promoted == here.snapshot.policy_config == there.snapshot.policy_config
            assert here.decide({}, "visit-1").variant is None
            assert same_decision(*there.replay("visit-1"))
    join(tmp_path / "new", store, log)
    for name in ("a", "b", "away", "new"):
        with Bandit.open(tmp_path / name, log) as bandit:
            assert (bandit.config.policy, bandit.folder.state().experiment) == (promoted, None)
            assert bandit.config.replicas.lease == (7.0 if name == "b" else 10.0)
