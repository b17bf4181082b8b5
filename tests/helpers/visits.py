"""Visits to a small bandit of made-up topics."""

from helpers.problems import topics
from treetop.bandit.bandit import Bandit

X, Y = topics()
REWARDS = Y.toarray()


def play(bandit: Bandit, rounds: int, tag: str = "e") -> None:
    for i in range(rounds):
        shown = bandit.decide(X[i], event_id=f"{tag}{i}")
        old = [arm for arm in shown.arms if str(arm)[0] == "a"]
        if old:
            bandit.reward(f"{tag}{i}", {arm: float(REWARDS[i, int(str(arm)[1:])]) for arm in old})
