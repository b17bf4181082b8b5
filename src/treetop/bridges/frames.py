"""A bandit's log as a frame of pandas, in the owner's ids."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treetop.arrays import check_float
from treetop.bandit.bandit import Bandit
from treetop.display import load_pandas
from treetop.records import SLOTS

COLUMNS = ("event_id", "time", "epoch", "model", "slot", *SLOTS.values(), "reward", "reward_time")


def log_frame(bandit: Bandit, since: float | None = None, until: float | None = None, features: bool = False) -> Any:
    """A pandas.DataFrame with a row a slot of the log, oldest decision first.

    Of decisions made from `since` on and before `until` (seconds since 1970). Rewards that have not come are NaN. With
    `features`, a sparse column for every feature follows, called by its name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Bandit.create(f"{folder}/tea", ["mint", "rose"], np.eye(2), np.eye(2)) as tea:
    ...         served = tea.decide([1.0, 0.0], "visit-1")
    ...         tea.reward("visit-1", {"mint": 1.0})
    ...         frame = log_frame(tea)
    >>> float(frame.set_index("arm").loc["mint", "reward"]), len(frame)
    (1.0, 2)
    """
    pandas = load_pandas()
    first = -math.inf if since is None else check_float("since", since, -1e15, 1e15)
    end = math.inf if until is None else check_float("until", until, -1e15, 1e15)
    rows: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    index: list[Any] = []
    value: list[Any] = []
    lengths: list[int] = []
    summary = bandit.log.summary()
    bandit.refresh()  # so that all arms of the rounds up to now are known
    for chunk in bandit.log.entries(summary):
        for stored in (entry.stored for entry in chunk if first <= entry.stored.event.time < end):
            event, k = stored.event, len(stored.event)
            for name, fact in (("event_id", event.event_id), ("time", event.time), ("epoch", event.model_epoch)):
                rows[name] += [fact] * k
            rows["model"] += [event.model] * k
            rows["slot"] += range(k)
            for name, column in SLOTS.items():
                rows[column] += getattr(event, name).tolist()
            rows["reward"] += stored.rewards.tolist()
            rows["reward_time"] += stored.times.tolist()
            if features:
                index += [event.index] * k
                value += [event.value] * k
                lengths += [len(event.index)] * k
    ids = bandit.snapshot.arms.ids
    rows["arm"] = [ids[arm] for arm in rows["arm"]]
    frame = pandas.DataFrame(rows, columns=COLUMNS)
    for name in ("time", "reward_time"):
        frame[name] = pandas.to_datetime(frame[name].astype("float64"), unit="s", utc=True)
    if features:
        return pandas.concat([frame, _contexts(pandas, bandit, index, value, lengths)], axis=1)
    return frame


def _contexts(pandas: Any, bandit: Bandit, index: list[Any], value: list[Any], lengths: list[int]) -> Any:
    import scipy.sparse as sp

    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    columns = bandit.vocabulary.columns
    parts = (np.concatenate([np.zeros(0, kind), *found]) for kind, found in ((np.float32, value), (np.int32, index)))
    matrix = sp.csr_matrix((*parts, start), shape=(len(lengths), columns))
    names = [bandit.vocabulary.name(column) for column in range(columns)]
    return pandas.DataFrame.sparse.from_spmatrix(matrix, columns=names)
