"""coba experiments with treetop in them. Run by treetop's Python; the last argument is where coba's package lies.

python tests/helpers/peer_coba.py labelled|synthetic|log FOLDER PACKAGES     # mean reward by learner, as JSON
"""

import json
import os
import sys
import warnings

import numpy as np

import treetop
from treetop.bridges.coba import CobaEnvironment, CobaLearner, CobaLog

sys.path.append(sys.argv[3])  # behind treetop's own, whose NumPy is another
warnings.simplefilter("ignore")
import coba as cb  # noqa: E402


def labelled() -> cb.Experiment:
    """Rows of the bundled set, 20 arms."""
    environment = CobaEnvironment(treetop.load("debian"), arms=20, rounds=1500, seed=1)
    return cb.Experiment([environment], [CobaLearner(), cb.RandomLearner(), cb.BanditEpsilonLearner(0.1)])


def synthetic() -> cb.Experiment:
    """coba's own rounds: dense contexts, five actions that are the same in all of them."""
    wanted = np.random.default_rng(0).normal(size=(5, 4))

    def context(i: int) -> list[float]:
        return [float(v) for v in np.random.default_rng(i).normal(size=4)]

    def reward(_: int, x: list[float], action: str) -> float:
        return float(np.argmax(wanted @ np.array(x)) == "abcde".index(action))

    environments = cb.Environments.from_lambda(1500, context, lambda i, x: list("abcde"), reward)
    return cb.Experiment(environments, [CobaLearner(), cb.RandomLearner(), cb.BanditEpsilonLearner(0.1)])


def logged(folder: str) -> cb.Experiment:
    """A log of treetop's, from which coba's learner and treetop's learn off-policy."""
    bandit = treetop.Bandit.open(folder)
    learn = cb.SequentialCB(learn="off", eval="ips")
    return cb.Experiment([CobaLog(bandit)], [CobaLearner(), cb.RandomLearner()], learn)


experiment = (
    labelled() if sys.argv[1] == "labelled" else synthetic() if sys.argv[1] == "synthetic" else logged(sys.argv[2])
)
cb.CobaContext.logger = cb.context.NullLogger()
result = experiment.run(quiet=True)
names = {row[0]: row[1] for row in zip(*[result.learners[name] for name in ("learner_id", "family")], strict=True)}
rewards: dict[str, list[float]] = {}
for learner, reward in zip(result.interactions["learner_id"], result.interactions["reward"], strict=True):
    rewards.setdefault(names[learner], []).append(float(reward))
print(json.dumps({name: [len(found), float(np.mean(found[-500:]))] for name, found in rewards.items()}))
sys.stdout.flush()
os._exit(0)
