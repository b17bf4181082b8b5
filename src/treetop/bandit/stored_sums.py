"""What a bandit's first rounds add up to, as its segments keep it: read by refits, continued when more is summed up."""

from __future__ import annotations

from typing import Any

import numpy as np

from treetop.arrays import Bools, Int64s
from treetop.bandit.config import Config
from treetop.errors import SegmentError
from treetop.learning.summed_rounds import SummedRounds
from treetop.log.segments.reading import SealedLog


def late_arms(since: Int64s, first_epoch: int, arms: int) -> Bools:
    """(arms,): which were added after the first round; `since` is the epoch of the first model that knew each.

    >>> late_arms(np.array([0, 3, 5]), first_epoch=3, arms=4).tolist()
    [False, False, True, False]
    """
    late = np.zeros(arms, np.bool_)
    late[: len(since)] = (since > 0) & (since > first_epoch)
    return late


def sum_settings(config: Config) -> dict[str, Any]:
    """The settings that sums depend on, as they are stored with them.

    >>> sum_settings(Config())["limits"]
    [0.0, 1.0]
    """
    rewards = config.rewards
    wait = None if rewards.default_reward is None else rewards.reward_wait
    settings = {"limits": [*rewards.limits], "default_reward": rewards.default_reward, "reward_wait": wait}
    return settings if config.learner.uses_label_samples else {**settings, "label_samples": False}


def can_sum(config: Config) -> bool:
    """Whether the sums of rounds stay what they are: not where rewards are corrected anew at every refit, and not for
    the paper's learner, which fits nodes, too.

    >>> can_sum(Config())
    True
    """
    rewards = config.rewards
    return config.learner.name == "treetop" and not rewards.positions and not rewards.saturates


def stored_sums(sealed: SealedLog, config: Config) -> SummedRounds | None:
    """What is summed up; None if nothing is. Raises SegmentError if the settings are not those of the sums.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from treetop.log.open import open_log
    >>> from treetop.log.segments.manifest import SegmentFolder
    >>> from treetop.log.segments.reading import sealed_log
    >>> with tempfile.TemporaryDirectory() as place, open_log(f"{place}/log.sqlite") as log:
    ...     with sealed_log(SegmentFolder(Path(place, "segments")), log, until=0) as sealed:
    ...         stored_sums(sealed, Config()) is None
    True
    """
    if (found := sealed.read_sums()) is None:
        return None
    arrays, numbers, norms = found
    if not can_sum(config) or numbers["settings"] != sum_settings(config):
        raise SegmentError(
            f"rounds were summed up with {numbers['settings']}; the settings say {sum_settings(config)}, so that what "
            "was deleted of them does not count"
        )
    return SummedRounds.read(arrays, numbers, norms)
