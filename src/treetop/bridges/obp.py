"""`bandit_feedback`, the dict that the Open Bandit Pipeline's estimators take: from records or a log, and back.

A row is one observed slot: `action`, `position` (the slot), `reward`, `pscore` (its propensity given the slots before
it), `context` (dense) and, beside obp's own keys, `slate_id`, which decision it belongs to. obp's arrays are dense.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from treetop.arrays import Int64s, Ints, as_indices, as_numbers, as_rows
from treetop.bandit.bandit import Bandit
from treetop.bridges.imported import Imported, Importer, total_counts
from treetop.log.records import Restored
from treetop.records import Decisions, Feedback

MAX_VALUES = 10**9  # of a dense context: 8 GB
NEEDED = ("n_rounds", "n_actions", "context", "action", "reward", "pscore")


def to_bandit_feedback(
    shown: Decisions, feedback: Feedback, n_actions: int, action_context: Any = None, positions: Ints | None = None
) -> dict[str, Any]:
    """The dict of decisions and what came of them. Slots without an observed reward are left out.

    `positions` are those of the slots where a decision has one slot of a screen, as in the Open Bandit Dataset.

    >>> two, half = np.array([[3, 4]]), np.full((1, 2), 0.5)
    >>> shown = Decisions(None, 0, two, half, half, two > 0, -two)
    >>> made = to_bandit_feedback(shown, Feedback([[1.0, 0.0]], two, None, [[1.0, np.nan]]), n_actions=5)
    >>> made["action"], made["reward"], made["pscore"]
    (array([3]), array([1.]), array([0.5]))
    """
    row, slot = np.nonzero((feedback.arms >= 0) & feedback.observed)
    return _dict(
        as_rows(feedback.contexts).csr()[row],
        feedback.arms[row, slot].astype(np.int64),
        slot if positions is None else np.asarray(positions)[row],
        feedback.rewards[row, slot].astype(np.float64),
        shown.propensities[row, slot],
        row,
        (n_actions, action_context),
    )


def log_to_bandit_feedback(bandit: Bandit, action_context: Any = None) -> dict[str, Any]:
    """The dict of a bandit's log; actions are indices of `bandit.snapshot.arms.ids`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(3), Y=np.eye(3)) as tea:
    ...     tea.reward("visit-1", {tea.decide([1, 0, 0], "visit-1", k=2).arms[0]: 1.0})
    ...     made = log_to_bandit_feedback(tea)
    >>> made["n_rounds"], made["n_actions"], made["context"].tolist()
    (1, 3, [[1.0, 0.0, 0.0]])
    """
    import scipy.sparse as sp

    arms, slots, rewards, chances, slates, values, indices, lengths = ([] for _ in range(8))
    number = 0
    summary = bandit.log.summary()
    bandit.refresh()  # so that all arms of the rounds up to now are known
    for chunk in bandit.log.entries(summary):
        for stored in (entry.stored for entry in chunk):
            for slot in np.flatnonzero(~np.isnan(stored.rewards)).tolist():
                arms.append(int(stored.event.arms[slot]))
                slots.append(slot)
                rewards.append(float(stored.rewards[slot]))
                chances.append(float(stored.event.propensities[slot]))
                slates.append(number)
                indices.append(stored.event.index)
                values.append(stored.event.value)
                lengths.append(len(stored.event.index))
            number += 1
    start = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    parts = (np.concatenate([np.zeros(0, kind), *found]) for kind, found in ((np.float32, values), (np.int32, indices)))
    contexts = sp.csr_matrix((*parts, start), shape=(len(arms), bandit.vocabulary.columns))
    columns = (np.array(arms, np.int64), np.array(slots, np.int64), np.array(rewards), np.array(chances))
    about = (len(bandit.snapshot.arms), action_context)
    return _dict(contexts, *columns, np.array(slates, np.int64), about)


def _dict(
    contexts: Any, action: Int64s, position: Any, reward: Any, pscore: Any, slate: Int64s, about: tuple[int, Any]
) -> dict[str, Any]:
    rows, columns = contexts.shape
    if rows * columns > MAX_VALUES:
        raise ValueError(
            f"{rows:,} rows of {columns:,} features are {rows * columns:,} values; obp takes dense arrays only, and at "
            f"most {MAX_VALUES:,} are made"
        )
    found = {
        "n_rounds": rows,
        "n_actions": about[0],
        "context": contexts.toarray().astype(np.float64),
        "action": action,
        "position": np.asarray(position, np.int64),
        "reward": reward,
        "pscore": pscore,
        "slate_id": slate,
    }
    return found if about[1] is None else {**found, "action_context": np.asarray(about[1])}


def from_bandit_feedback(given: Mapping[str, Any]) -> tuple[Decisions, Feedback]:
    """Decisions and their feedback. With `slate_id`, the rows of one are slots in the order of `position`.

    Without it every row is a decision of one slot: there is no saying which belong together.

    >>> rows = {"context": np.eye(2), "action": np.array([1, 0]), "reward": np.ones(2), "pscore": np.array([0.5, 1.0])}
    >>> shown, feedback = from_bandit_feedback({"n_rounds": 2, "n_actions": 2, **rows})
    >>> shown.arms.tolist(), feedback
    ([[1], [0]], Feedback(2 rounds, 1 slots, 2 rewards observed))
    """
    action, reward, pscore, context = _checked(given)
    n = len(action)
    slate = np.asarray(given.get("slate_id", np.arange(n)))
    position = given.get("position")
    order = np.lexsort((np.zeros(n) if position is None else np.asarray(position), slate))
    found, first, row = np.unique(slate[order], return_index=True, return_inverse=True)
    slot = np.arange(n) - first[row]
    shape = (len(found), int(slot.max(initial=-1)) + 1)
    arms, chances, rewards = np.full(shape, -1, np.int32), np.ones(shape), np.full(shape, np.nan)
    arms[row, slot], chances[row, slot], rewards[row, slot] = action[order], pscore[order], reward[order]
    nothing = np.zeros(shape, np.float32)
    shown = Decisions(None, 0, arms, chances, nothing, chances < 1, np.full(shape, -1, np.int32))
    return shown, Feedback(context[order[first]], arms, None, rewards)


def _checked(given: Mapping[str, Any]) -> tuple[Ints, Any, Any, Any]:
    if missing := [key for key in NEEDED if given.get(key) is None]:
        raise ValueError(f"bandit_feedback has no {', '.join(missing)}")
    n = int(given["n_rounds"])
    action = as_indices(given["action"], int(given["n_actions"]), "action")
    reward, pscore = (as_numbers(given[key], key).astype(np.float64) for key in ("reward", "pscore"))
    context = as_rows(given["context"], what="context").csr()
    for key, length in (
        ("action", len(action)),
        ("reward", len(reward)),
        ("pscore", len(pscore)),
        ("context", context.shape[0]),
    ):
        if length != n:
            raise ValueError(f"bandit_feedback has {length} of {key}; n_rounds is {n}")
    if not ((pscore > 0) & (pscore <= 1)).all():
        raise ValueError(f"pscore {pscore[~((pscore > 0) & (pscore <= 1))][0]:g} is outside (0, 1]")
    return action, reward, pscore, context


def import_bandit_feedback(bandit: Bandit, given: Mapping[str, Any], name: str = "obp") -> Restored:
    """Writes a dict into a bandit's log, all or nothing; its actions are the indices of the bandit's arms.

    Events are called `name-0`, `name-1`, ... Rewards must lie in [0, 1].

    >>> import tempfile
    >>> rows = {"context": np.eye(2), "action": np.array([1, 0]), "reward": np.ones(2), "pscore": np.array([0.5, 1.0])}
    >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", X=np.eye(2), Y=np.eye(2)) as tea:
    ...     import_bandit_feedback(tea, {"n_rounds": 2, "n_actions": 2, **rows})
    Restored(decisions=2, rewards=2, known=0)
    """
    shown, feedback = from_bandit_feedback(given)
    arms, columns, now = bandit.snapshot.arms, bandit.vocabulary.columns, time.time()
    if (int(given["n_actions"]), feedback.contexts.columns) != (len(arms), columns):
        raise ValueError(
            f"bandit_feedback has {given['n_actions']} actions and {feedback.contexts.columns} features; the bandit "
            f"has {len(arms)} and {columns}"
        )
    filled = (shown.arms >= 0).sum(axis=1).tolist()
    importer = Importer(bandit)
    decisions = (
        Imported(
            f"{name}-{i}",
            now,
            feedback.contexts.row(i),
            shown.arms[i, :k],
            shown.propensities[i, :k],
            feedback.rewards[i, :k].astype(np.float64),
        )
        for i, k in enumerate(filled)
    )
    observed = feedback.observed.sum(axis=1).tolist()
    return importer.write(map(importer.entry, decisions), total_counts(filled, observed))
