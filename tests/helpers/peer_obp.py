"""obp in the peers' environment.

.venv-peers/bin/python tests/helpers/peer_obp.py estimate FILE.npz     # a bandit_feedback and action_dist
.venv-peers/bin/python tests/helpers/peer_obp.py read FOLDER POLICY    # what it makes of the dataset, as JSON
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

warnings.simplefilter("ignore")
from obp.dataset import OpenBanditDataset  # noqa: E402
from obp.ope import InverseProbabilityWeighting, OffPolicyEvaluation, SelfNormalizedInverseProbabilityWeighting  # noqa: E402

if sys.argv[1] == "estimate":
    with np.load(sys.argv[2]) as arrays:
        feedback = {key: arrays[key] for key in arrays.files if key != "action_dist"}
        feedback |= {key: int(feedback[key]) for key in ("n_rounds", "n_actions")}
        judge = OffPolicyEvaluation(
            bandit_feedback=feedback,
            ope_estimators=[InverseProbabilityWeighting(), SelfNormalizedInverseProbabilityWeighting()],
        )
        found = judge.estimate_policy_values(action_dist=arrays["action_dist"])
        print(json.dumps({name: float(value) for name, value in found.items()}))
else:
    dataset = OpenBanditDataset(behavior_policy=sys.argv[3], campaign="men", data_path=Path(sys.argv[2]))
    made = dataset.obtain_batch_bandit_feedback()
    lists = {key: np.asarray(made[key]).tolist() for key in ("action", "position", "reward", "pscore")}
    print(json.dumps({**lists, "n_actions": int(made["n_actions"]), "columns": list(made["context"].shape)}))
