"""obp's estimators on logs of one slot. Runs in the peers' own environment, without treetop.

    .venv-peers/bin/python benchmarks/peer_obp.py FOLDER     # of benchmarks/coverage_obp.py, which starts it

FOLDER has dense tables of the contexts, chances.npy and scores.npy (contexts, arms), and log.npz with a row a
repetition: contexts, arms, rewards and propensities of its rounds. Prints estimates and bootstrap intervals as JSON.
"""

import json
import sys
from pathlib import Path

import numpy as np
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    DoublyRobustWithShrinkage,
    InverseProbabilityWeighting,
    SelfNormalizedDoublyRobust,
    SelfNormalizedInverseProbabilityWeighting,
    SwitchDoublyRobust,
)

SAMPLES = 1_000  # of the bootstrap
ESTIMATORS = {
    "ipw": InverseProbabilityWeighting(),
    "snipw": SelfNormalizedInverseProbabilityWeighting(),
    "dm": DirectMethod(),
    "dr": DoublyRobust(),
    "sndr": SelfNormalizedDoublyRobust(),
    "switch-dr": SwitchDoublyRobust(tau=10.0),
    "dr-os": DoublyRobustWithShrinkage(lambda_=100.0),
}

folder = Path(sys.argv[1])
chances, scores = np.load(folder / "chances.npy"), np.load(folder / "scores.npy")
found = {name: [] for name in ESTIMATORS}
with np.load(folder / "log.npz") as log:
    played = zip(log["contexts"], log["arms"], log["rewards"], log["propensities"], strict=True)
    for seed, (rows, arms, rewards, propensities) in enumerate(played):
        given = {
            "reward": rewards,
            "action": arms,
            "position": np.zeros(len(rows), int),
            "pscore": propensities,
            "action_dist": chances[rows][:, :, None],
            "estimated_rewards_by_reg_model": scores[rows][:, :, None],
        }
        for name, estimator in ESTIMATORS.items():
            value = float(estimator.estimate_policy_value(**given))
            drawn = estimator.estimate_interval(**given, alpha=0.05, n_bootstrap_samples=SAMPLES, random_state=seed)
            low, high = (drawn[f"95.0% CI ({end})"] for end in ("lower", "upper"))
            found[name].append([value, float(low), float(high)])
print(json.dumps(found))
