"""Better settings from the log itself: the neighbours of those that serve, judged, and the best confirmed on the rest.

The earlier stretch of the log chooses, the later one was looked at by nobody: what it says about the chosen one is not
too good because it was chosen.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from treetop.arrays import check_float
from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.config import PolicyConfig
from treetop.bandit.evaluation import NO_VISITS, Evaluation, judge_log
from treetop.bandit.visits import Source, opened
from treetop.effort import Effort

# Parameters of strategies that are halved and doubled, with what they are if the settings do not say.
TRIED = {
    "budgeted": {"budget": 0.005, "paying_budget": 0.1, "new_arms_budget": 0.01},
    "igw": {"C": 1.0},
    "boltzmann": {"beta": 1.0},
    "epsilon": {"epsilon": 0.167},
}


@dataclass(frozen=True)
class PolicySearch:
    """What the earlier stretch says about all candidates, which of them it chose, and what the later one says of that.

    `split` is the time between the two stretches.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for visit in range(40):
    ...         tea.reward(f"visit-{visit}", {tea.decide(np.ones(4), f"visit-{visit}", k=1).arms[0]: 1.0})
    ...     found = search_policies(tea)
    >>> found.searched.rounds + found.held_out.rounds, found.to_dict()["chosen"] == found.chosen
    (40, True)
    """

    searched: Evaluation
    chosen: str
    held_out: Evaluation
    split: float

    @property
    def gain(self) -> float:
        """What the chosen one would have brought a visit more than what served, by the stretch that chose it."""
        return next(each.difference.value for each in self.searched.candidates if each.name == self.chosen)

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it; what is not known is None."""
        stretches = {"searched": self.searched.to_dict(), "held_out": self.held_out.to_dict()}
        return {**stretches, "chosen": self.chosen, "split": self.split}


def search_policies(
    log: Source,
    *,
    since: float | None = None,
    held_out: float = 0.3,
    confidence: float = 0.95,
    weight_bound: float | None = None,
    effort: Effort = Effort(),  # noqa: B008
) -> PolicySearch:
    """Judges the neighbours of the settings of a bandit, and confirms the best on the newest `held_out` of its visits.

    The best is the one whose difference to what was served has the highest lower bound. `weight_bound` is as for
    `evaluate`, and must hold for all neighbours, and so is `log`; but segments cannot be searched.

    >>> import tempfile
    >>> import numpy as np
    >>> from treetop.bandit.bandit import Bandit
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(4), Y=np.eye(4)) as tea:
    ...     for visit in range(10):
    ...         tea.reward(f"visit-{visit}", {tea.decide(np.ones(4), f"visit-{visit}", k=1).arms[0]: 1.0})
    ...     len(search_policies(tea, held_out=0.5).held_out.candidates)
    1
    """
    check_float("held_out", held_out, 0.05, 0.95)
    with opened(log) as (bandit, visits):
        if visits.sealed:
            raise ValueError(f"{log} has segments; a search needs the log, which is split by the time of visits")
        split = bandit.log.time_of_share(since or 0.0, 1 - held_out)
        if split is None:
            raise ValueError(NO_VISITS)
        candidates = neighbours(bandit.config.policy)
        searched, _ = judge_log(bandit, candidates, (since, split), confidence, weight_bound, effort)
        if not any(result.rounds for result in searched.candidates):
            raise ValueError(NO_VISITS)
        judged = [pair for pair in zip(searched.candidates, candidates, strict=True) if pair[0].rounds]
        _, best = max(judged, key=lambda pair: (pair[0].difference.low, pair[0].difference.value))
        confirmed, _ = judge_log(bandit, [best], (split, None), confidence, weight_bound, effort)
    return PolicySearch(searched, best.name, confirmed, split)


def neighbours(served: PolicyConfig) -> list[CandidatePolicy]:
    """Greedy; one slot of exploration more or less; half, double and triple the beam; parameters likewise. What
    decides as the settings or as another neighbour do, such as no exploration beside greedy, is not listed.

    >>> [c.name for c in neighbours(PolicyConfig(k=2, explore=1, beam=10, strategy="igw"))]
    ['strategy=greedy', 'explore=2', 'beam=5', 'beam=20', 'beam=30', 'C=0.5', 'C=2.0']
    """
    e, b = served.explore, served.beam
    given: list[dict[str, Any]] = [{"strategy": "greedy"}]
    given += [{"explore": each} for each in sorted({0, e - 1, e + 1}) if 0 <= each <= served.k and each != e]
    given += [{"beam": each} for each in (max(1, b // 2), 2 * b, 3 * b) if each != b]
    for name, default in TRIED.get(served.strategy, {}).items():
        now = float(served.parameters.get(name, default))
        given += [{name: value} for value in (now / 2, now * 2) if value != now]
    found, known = [], [_as_decided(served)]
    for pairs in given:
        settings = {name: value for name, value in pairs.items() if name in ("strategy", "explore", "beam")}
        candidate = CandidatePolicy(settings, {n: v for n, v in pairs.items() if n not in settings})
        with suppress(ValueError):  # beyond what the parameter can be
            if (policy := _as_decided(candidate.applied(served))) not in known:
                known.append(policy)
                found.append(candidate)
    return found


def _as_decided(config: PolicyConfig) -> PolicyConfig:
    """The settings, written in one way only if nothing is explored."""
    if config.explore == 0 or config.strategy == "greedy":
        return replace(config, explore=0, strategy="greedy", parameters={})
    return config
