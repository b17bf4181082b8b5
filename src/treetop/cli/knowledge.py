"""What a new bandit knows when it decides for the first time, in sentences for its owner."""

from __future__ import annotations

import numpy as np

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.past_log import PastSummary
from treetop.display import counted
from treetop.model.model import Model

MEASURES = {"cosine": "their cosine", "inner_product": "their inner product", "euclidean": "their distance"}


def first_knowledge(bandit: Bandit, catalogue: Catalogue, rows: int, past: PastSummary | None) -> list[str]:
    """Tree, first decision and contexts of a new bandit; `rows` of labels, and `past`, are what it learned.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     teas = Catalogue(["mint", "rose"], vectors=np.eye(2))
    ...     with Bandit.create(f"{place}/tea", teas) as tea:
    ...         first_knowledge(tea, teas, 0, None)[1]
    "First decision: items whose vectors are near the context's 2 numbers, by their cosine."
    """
    table = bandit.snapshot.attributes
    said = [_tree(bandit, catalogue, rows), f"First decision: {_first(bandit, catalogue, rows, past)}"]
    if past is not None:
        left = {"rows of unknown items": past.skipped, "unknown features": past.unknown_features}
        said += [f"Left out: {count:,} {what} of the log." for what, count in left.items() if count]
        if not past.rewards:
            said.append("The log has no reward: nothing was learned from it.")
    if vectors := bandit.vocabulary.vectors:
        parts = ", ".join(f"{name} ({dims:,} numbers)" for name, (_, dims) in vectors.items())
        others = _given(bandit) - sum(dims for _, dims in vectors.values())
        said.append(f"Contexts have {parts} and {others:,} features more." if others else f"Contexts have {parts}.")
    if bandit.snapshot.model.n_features == 0:
        said.append("Without features all contexts are the same: --features names those that requests will carry.")
    if bandit.config.rewards.limits != (0.0, 1.0):
        low, high = bandit.config.rewards.limits
        said.append(f"Rewards lie in [{low:g}, {high:g}].")
    kinds = [f"{name} ({column.kind}, {len(column.order):,})" for name, column in table.columns.items()]
    if kinds:
        said.append(f"Requests may filter by {', '.join(kinds)}.")
    return said


def _tree(bandit: Bandit, catalogue: Catalogue, rows: int) -> str:
    tree, categories = bandit.snapshot.model.tree, bandit.snapshot.attributes.categories
    leaves = tree.n_nodes - len(np.unique(tree.parents[1:]))
    how = "the order of the items"
    if categories is not None:
        without = int((categories.code == 0).sum())
        how = f"{len(categories.paths) - 1:,} categories"
        how += f" ({without:,} items have none)" if without else ""
    elif catalogue.vectors is not None:
        how = "the items' vectors"
    elif rows:
        how = f"the labels of {rows:,} rows"
    return f"Tree: {leaves:,} leaves of at most {bandit.config.tree.leaf_limit} items, by {how}."


def _first(bandit: Bandit, catalogue: Catalogue, rows: int, past: PastSummary | None) -> str:
    """What it goes by: labels and a log, else the owner's measure, else nothing."""
    model, learned = bandit.snapshot.model, past is not None and past.rewards > 0
    near = "" if catalogue.vectors is None else _near(model, learned)
    sources = []
    if rows and bandit.config.learner.uses_label_samples:
        sources.append(counted(rows, "labelled row"))
    if past is not None and learned:
        sources.append(
            f"{counted(past.decisions, 'decision')} of the log with {counted(past.rewards, 'reward')}, "
            f"which showed {past.items:,} of {model.n_arms:,} items"
        )
    if sources:
        rest = f"else {near}" if near else f"contexts have {_features(bandit)}"
        return f"learned from {' and '.join(sources)}; {rest}."
    if near:
        return f"{near}."
    known = "nothing is known of any item, so the first ones are shown most"
    if rows:
        known = f"the search goes where {rows:,} labelled rows led, and nothing is known of rewards"
    return (
        f"{known}; contexts have {_features(bandit)}. It learns from the first refit on, after "
        f"{bandit.config.refit.first:,} rewarded decisions, or from a log: treetop import."
    )


def _near(model: Model, learned: bool) -> str:
    """How items are found by their vectors."""
    if model.measure is None:
        return f"items whose vectors are near the context's {model.n_features:,} numbers, by their distance"
    how = "are near"
    if model.context_map is not None:
        how = "the learned map finds near" if learned else "a map at random, until one is learned, finds near"
    numbers, measure = model.measure.place[1], MEASURES[model.measure.metric]
    return f"items whose vectors {how} the context's {numbers:,} numbers, by {measure}"


def _given(bandit: Bandit) -> int:
    names = bandit.vocabulary.names
    return len(names) if names else bandit.vocabulary.given


def _features(bandit: Bandit) -> str:
    """How many features contexts have.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint"], features=["hot"]) as tea:
    ...     _features(tea)
    '1 named features'
    """
    given = _given(bandit)
    features = f"{given:,} {'named ' if bandit.vocabulary.names else ''}features" if given else "no features"
    room = bandit.vocabulary.room
    return f"{features} and room for {room:,} more" if room else features
