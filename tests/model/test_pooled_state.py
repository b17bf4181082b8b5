"""What treetop's learner adds to a model: checked when it is made and when it is loaded."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.problems import Problem

from treetop import Model, ModelFileError, Policy, Pooled
from treetop.model.pooled_state import PooledState
from treetop.model.storage import MANIFEST, manifest_checksum, write_array

GOOD: dict[str, Any] = {"means": [0.5, 0.1], "sample_count": [3, 0, 1], "trial_value": [0.0, 0.2, 0.0]}


@pytest.fixture(scope="module")
def model(problem: Problem) -> Model:
    return Pooled().learn(problem.model, problem.feedback(200))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": [0.5, np.nan]}, "means of place 1 is nan; it must be finite"),
        ({"means": [0.5]}, r"means have shape \(1,\); a list of at least 2 is needed"),
        ({"trial_value": [0.0, np.inf, 0.0]}, "trial_value of arm 1 is inf; it must be finite"),
        ({"sample_count": [3, -1, 0]}, r"sample_count -1 is outside \[0, 2147483647\)"),
        ({"node_mean": np.nan}, "node_mean is nan; it must be finite"),
        ({"new_arm_value": np.inf}, "new_arm_value is inf; it must be finite"),
        ({"initial_leaf": [0, -1, 2]}, r"initial_leaf -1 is outside"),
        ({"weights": [1.0]}, "there are 1 weights; a score has 2 components"),
        ({"weights": [1.0, np.nan]}, "a component's weight is nan; it must be finite"),
        ({"weights": [1.0, 2e6]}, r"a component's weight is 2000000.0; it must be finite and lie in"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    PooledState(**GOOD)
    with pytest.raises(ValueError, match=message):
        PooledState(**{**GOOD, **change})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample_count": [1]}, "sample_count of 1 arms do not fit a model of 60 arms"),
        ({"trial_value": [0.0] * 61}, "trial_value of 61 arms do not fit a model of 60 arms"),
        ({"initial_leaf": [99] * 60}, r"initial_leaf 99 is outside \[0, 31\)"),
    ],
)
def test_a_state_of_another_model_is_refused(model: Model, change: dict[str, Any], message: str) -> None:
    assert model.pooled is not None
    with pytest.raises(ValueError, match=message):
        replace(model, pooled=replace(model.pooled, **change))


@pytest.mark.parametrize("name", ["pooled_trial_value", "pooled_means"])
def test_a_saved_model_with_nan_is_refused(model: Model, tmp_path: Path, name: str) -> None:
    """Even with the right checksums: no decision ever has a propensity that is not a number."""
    model.save(tmp_path / "m")
    path = tmp_path / "m" / f"{name}.npy"
    values = np.load(path)
    values[0] = np.nan
    manifest = json.loads((tmp_path / "m" / MANIFEST).read_bytes())
    del manifest["crc32"]
    manifest["files"][name] = write_array(path, values)
    (tmp_path / "m" / MANIFEST).write_text(json.dumps({**manifest, "crc32": manifest_checksum(manifest)}))
    with pytest.raises(ModelFileError, match="0 is nan; it must be finite"):
        Model.load(tmp_path / "m")


def test_a_saved_model_decides_the_same(problem: Problem, model: Model, tmp_path: Path) -> None:
    model.save(tmp_path / "m")
    one, two = (Policy().decide_batch(m, problem.X[:50], seed=3) for m in (model, Model.load(tmp_path / "m")))
    for name in ("arms", "propensities", "scores", "explored", "nodes"):
        assert np.array_equal(getattr(one, name), getattr(two, name))


def test_models_are_made_by_name(model: Model) -> None:
    with pytest.raises(TypeError, match="positional"):
        Model(model.tree, model.route_rows, model.reward_rows)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"means": np.zeros(1, np.float32)}, "1 pooled means"),
        ({"means": np.array([0.1, np.nan], np.float32)}, "a pooled mean is nan"),
        ({"sample_count": np.zeros(59, np.int32)}, "59 counts of samples"),
        ({"sample_count": np.full(60, -1, np.int32)}, "an arm has -1 samples"),
        ({"trial_value": np.full(60, np.inf, np.float32)}, "a trial value is inf"),
        ({"node_mean": np.nan}, "the mean of nodes is nan"),
        ({"new_trials": np.zeros(61, np.int32)}, "61 counts of trials do not fit 60 arms"),
        ({"weights": (1.0, np.nan)}, "weight of component 1 is nan"),
    ],
)
def test_the_core_refuses_what_cannot_be(problem: Problem, change: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {
        "means": np.array([0.5, 0.1], np.float32),
        "node_mean": 0.0,
        "sample_count": np.zeros(60, np.int32),
        "trial_value": np.zeros(60, np.float32),
        "new_trials": np.full(60, -1, np.int32),
        "exploration_net": 0.0,
        "weights": (1.0, 0.75),
    }
    engine = Model.initial(problem.tree, problem.X[:300], problem.Y[:300]).engine
    engine.set_pooled(**good)
    with pytest.raises(ValueError, match=message):
        engine.set_pooled(**{**good, **change})
