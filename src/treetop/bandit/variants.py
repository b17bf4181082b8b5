"""What the variants of an experiment decide with: the model that serves with other settings, or another kept model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from treetop.bandit.candidates import CandidatePolicy
from treetop.bandit.experiment_config import Experiment
from treetop.bandit.snapshot import COMPUTED, Snapshot
from treetop.errors import ModelFileError


def with_variants(now: Snapshot, running: Experiment | None, older: Callable[[str], Snapshot]) -> Snapshot:
    """A snapshot with the variants of the experiment that runs; `older` gives that of another kept model.

    A variant whose model cannot be read is left out: its visits are decided by the ordinary settings, and the log says
    so. A model that is older than an arm never shows it.

    >>> import numpy as np
    >>> from treetop.bandit.arm_index import ArmIndex
    >>> from treetop.bandit.config import PolicyConfig
    >>> from treetop.model.model import Model
    >>> from treetop.tree.tree import Tree
    >>> model = Model.from_vectors(Tree.from_vectors(np.eye(4)), np.eye(4))
    >>> now = Snapshot("000000", model, ArmIndex.of(range(4)), PolicyConfig(k=2, explore=1))
    >>> beams = Experiment({"now": {"share": 0.5}, "wide": {"share": 0.5, "beam": 30}}, name="beams")
    >>> [variant.policy_config.beam for variant in with_variants(now, beams, lambda name: now).variants.values()]
    [10, 30]
    """
    variants = {}
    for name in running.variants if running is not None else ():
        assert running is not None
        candidate = CandidatePolicy.of(running.settings(name))
        try:
            base = now if candidate.model in (None, now.name) else older(str(candidate.model))
        except (ModelFileError, OSError):
            continue
        variants[name] = base.as_variant(running.name, name, candidate.applied(now.policy_config))
    return replace(now, experiment=running, variants=variants).sharing(now, *COMPUTED)
