"""The settings of a folder: written, read, and mistakes named."""

from pathlib import Path

import pytest
from helpers.running import settings

from treetop.bandit import config, config_file
from treetop.learning.learners import make_learner


def test_settings_are_read_as_they_are_written_and_mistakes_named(tmp_path: Path) -> None:
    chosen = settings(
        policy=config.PolicyConfig(3, 1, 7, 0.25, "epsilon", {"epsilon": 0.5}), rewards=config.RewardConfig(5, 0.5, 30)
    )
    assert config_file.parse_config(config_file.config_text(chosen)) == chosen
    assert config_file.parse_config("") == config.Config()
    for text, message in (
        ("[polic]", r"no table \[polic\]"),
        ("[policy]\nkay = 3", r"\[policy\] has no 'kay'"),
        ("[policy]\nk = 0", r"\[policy\] k is 0"),
        ("[policy]\nk = 2", "explore is 3"),
        ('[policy]\nstrategy = "magic"', "must be one of igw"),
        ("[policy.parameters]\nnew_arms_factor = 2.0", "'new_arms_factor', which the running bandit sets by itself"),
        ("[policy]\nparameters = {Q = 1}", "budgeted has no 'Q'"),
        ("policy = 3", "must be a table"),
        ("[refit]\nkeep = 1", "keep is 1"),
        ("[rewards]\ndefault_reward = 2.0", "default_reward is 2.0"),
        ("[limits]\nk = 2", r"limits.k is 2, below policy.k, 5"),
        ("[refit]\nfactor = 1.0", "factor is 1.0"),
        ("[features]\nstrict_features = 1", "strict_features must be true"),
        ("[policy", "Expected"),
        ("[tree]\nmax_leaf = 0", "max_leaf is 0"),
        ('[learner]\nname = "paper"\nloss = "x"', "loss is 'x'"),
        ("[learner]\nlabel_samples = 1", r"\[learner\] label_samples must be true or false, not 1"),
        ('[learner]\nname = "magic"', "learner is 'magic'; it must be one of paper, treetop"),
    ):
        (tmp_path / "config.toml").write_text(text)
        with pytest.raises(ValueError, match=message):
            config_file.read_config(tmp_path / "config.toml")


@pytest.mark.parametrize(("name", "own"), [("paper", 1.0), ("treetop", None)])
def test_a_learner_without_a_cost_has_its_own(name: str, own: float | None) -> None:
    for asked, cost in ((0, own), (0.0, own), (2.5, 2.5)):
        made = config_file.parse_config(f'[learner]\nname = "{name}"\ncost = {asked}').learner.make_learner()
        assert made.cost == cost  # type: ignore[attr-defined]
    assert make_learner(name).cost == own  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="cost is -1"):
        config.LearnerConfig(name, cost=-1)
