"""Bandit: policy, model and log in one folder, in the user's own ids. The service puts it behind HTTP.

Any number of processes may have a folder open. Each decides with the snapshot that it has loaded; `refresh` loads what
another process made current.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from treetop.arrays import Ints, Matrix, check_int
from treetop.bandit.arm_changes import ArmChanges
from treetop.bandit.arm_index import ArmId, ArmIndex
from treetop.bandit.attributes import AttributeTable
from treetop.bandit.caps import NO_ARMS, capped_arms
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config
from treetop.bandit.config_file import CONFIG, read_config
from treetop.bandit.context_rows import ContextRows
from treetop.bandit.creation import check_coverage, create_folder
from treetop.bandit.experiment_changes import ExperimentChanges
from treetop.bandit.folder import LOG, BanditFolder, model_name
from treetop.bandit.live_trials import TrialCounter
from treetop.bandit.logged_decisions import LoggedDecisions
from treetop.bandit.model_changes import ModelChanges
from treetop.bandit.outliers import OutlierLimits
from treetop.bandit.ownership import claim_log, claim_log_if_there
from treetop.bandit.rebuilding import check_rebuild_setting
from treetop.bandit.replica import check_log, shared_folder
from treetop.bandit.results import ServedDecision
from treetop.bandit.snapshot import Snapshot
from treetop.bandit.state import FolderState
from treetop.bandit.unknown_features import UnknownFeatures
from treetop.bandit.variants import with_variants
from treetop.bandit.vocabulary import Parts, Vocabulary
from treetop.bandit.where import Where
from treetop.errors import EventConflict, LogError, ModelFileError
from treetop.log.base import Log
from treetop.log.keys import Keys, as_keys
from treetop.log.open import open_log
from treetop.model.model import Model
from treetop.policy.budgeted import Budgeted
from treetop.policy.draws import event_name
from treetop.records import Explanation


class Bandit(ArmChanges, ModelChanges, ExperimentChanges, LoggedDecisions, ContextRows):
    """Decides, stores rewards and refits, in a folder that outlives the process. All methods are thread-safe.

    >>> import tempfile
    >>> import numpy as np
    >>> X = Y = np.eye(4, dtype=np.float32)  # contexts, and which tea was right for each
    >>> folder = tempfile.TemporaryDirectory()
    >>> bandit = Bandit.create(f"{folder.name}/tea", ["mint", "rose", "oolong", "sencha"], X, Y)
    >>> served = bandit.decide(X[0], event_id="visit-1", k=2)
    >>> bandit.reward("visit-1", {served.arms[0]: 1.0})
    >>> bandit.refit().rounds, bandit.snapshot.name
    (1, '000001')

    Arms come and go, and every decision can be looked up and computed again:

    >>> bandit.add_arms(["matcha"], vectors=X[3])
    >>> bandit.remove_arms(["rose"])
    >>> bandit.decide(X[1], eligible=["rose", "matcha"]).arms
    ['matcha']
    >>> bandit.event("visit-1").rewards
    array([ 1., nan])
    >>> event, again = bandit.replay("visit-1")
    >>> bandit.served(event) == bandit.served(again) == served
    True
    >>> bandit.roll_back()
    '000001'
    >>> bandit.close()
    >>> folder.cleanup()
    """

    def __init__(self, folder: BanditFolder, config: Config, log: Log) -> None:
        self.folder, self.config, self.log = folder, config, log
        self._loading, self._trials = threading.Lock(), TrialCounter()
        self._signature, self._state = folder.signature(), folder.state()
        name, model, trouble = folder.load_model(self._state)
        check_coverage(model, config)
        self._files = folder.model_signature(name)
        self.vocabulary, self.unknown = self._vocabulary(model), UnknownFeatures()
        check_rebuild_setting(model, config)
        table = folder.attributes(self._state.attributes)
        self._looked, self._tables = self._signature, {table.size: table}
        found = self._snapshot(name, model, folder.arm_index(self._state), table, trouble)
        self.snapshot = self._with_variants(found, self._state)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        catalogue: Catalogue | Sequence[ArmId] | None = None,
        X: Matrix | None = None,
        Y: Matrix | None = None,
        *,
        features: Iterable[str] | Parts | None = None,
        model: Model | None = None,
        config: Config | None = None,
        log: str | os.PathLike[str] | None = None,
    ) -> Bandit:
        """Creates a folder and opens it. The bandit starts from labels, from vectors or from a model.

        `catalogue` are the arms, or a plain list of their ids. Labels are contexts `X` (n, n_features) and `Y` (n,
        n_arms), sparse or dense; unless the settings say otherwise the first model and every refit learn them. Vectors
        are the catalogue's. `model` may come with the X and Y that its tree was built from; refits keep what its reward
        weights say, and add to it. `features` are the names of the columns, or the parts of a context: {"vector": 64,
        "device": ["mobile", "desktop"], "age": None} for a vector of 64 numbers, two texts and a number. `log` is as
        for `open`. Raises FileExistsError if the folder is there and not empty.

        >>> import tempfile
        >>> import numpy as np
        >>> arms = Catalogue(["mint", "rose", "oolong"], vectors=np.eye(3))
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", arms) as tea:
        ...     len(tea.decide(np.ones(3), k=2).arms)
        2
        """
        if not isinstance(config, Config | None):
            raise TypeError(f"config is a {type(config).__name__}; it must be a Config")
        check_log(Path(folder), config or Config(), os.fspath(Path(folder) / LOG if log is None else log))
        create_folder(Path(folder), Catalogue.of(catalogue), X, Y, features, model, config)
        return cls.open(folder, log)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], log: str | os.PathLike[str] | None = None) -> Bandit:
        """Opens a folder that `create` or `treetop init` made.

        `log` is the path of a SQLite file or a postgresql:// address; without it, the folder's own file is the log. A
        log belongs to the first bandit that it is opened for; for any other it raises ForeignLog.

        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Bandit.create(f"{folder}/tea", Catalogue(vectors=np.eye(4))).close()
        ...     with Bandit.open(f"{folder}/tea") as tea:
        ...         len(tea.snapshot.arms)
        4
        """
        found = BanditFolder(Path(folder))
        found.state()
        config = read_config(found.path / CONFIG)
        found.clear_leftovers()
        opened = open_log(found.path / LOG if log is None else os.fspath(log))
        try:
            found = shared_folder(found, config, opened)
            if found.shared is not None:
                config = read_config(found.path / CONFIG)  # others may have promoted settings while it was closed
            claim_log(found, opened)
            return cls(found, config, opened)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Bandit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Commits what was submitted and closes the log. The folder can be opened again."""
        if len(self.unknown):
            with suppress(LogError):
                self.unknown.store(self.log)
        self.log.close()

    def __repr__(self) -> str:
        return f"Bandit({self.folder.path}, model {self.snapshot.name}, {self.snapshot.arms})"

    def stale(self) -> bool:
        """Whether `refresh` has something to do; costs a few system calls.

        >>> import tempfile
        >>> import numpy as np
        >>> with tempfile.TemporaryDirectory() as place:
        ...     here = Bandit.create(f"{place}/tea", Catalogue(vectors=np.eye(4)))
        ...     with here, Bandit.open(f"{place}/tea") as there:
        ...         there.remove_arms([3])
        ...         here.stale(), here.refresh(), here.stale()
        (True, True, False)
        """
        return bool(self.snapshot.trouble) or self.folder.signature() != self._signature or self._damaged()

    def _damaged(self) -> bool:
        """Whether a file of the model that serves was written to. Deleted files stay as they are while they are mapped,
        but reading what was cut off from one ends the process."""
        return self.folder.model_signature(self.snapshot.name) not in ((), self._files)

    def refresh(self, made: Model | None = None) -> bool:
        """Loads what another process made current; returns whether anything changed. Decisions go on meanwhile. `made`
        is a model that was just read, which is not read again if it is the current one."""
        with self._loading:
            damaged, old = self._damaged(), self.snapshot
            if self.folder.signature() == self._signature and not old.trouble and not damaged:
                return False
            signature, state, new = self._read_current(damaged, made)
            self.snapshot = new  # one assignment: a decision uses the old one or the new one
            self._signature, self._state, self._files = signature, state, self.folder.model_signature(new.name)
            self._looked = signature
            return new.name != old.name or new.arms is not old.arms

    def _read_current(self, damaged: bool, made: Model | None) -> tuple[tuple[int, ...], FolderState, Snapshot]:
        """What `current` says and the snapshot of it, with the signature of the file. Models that it lists may be
        deleted while they are read, if others become current: then it is read again."""
        while True:
            signature, state = self.folder.signature(), self.folder.state()
            if state.catalogue != self._state.catalogue:
                claim_log_if_there(self.folder, self.log)
            if state.settings != self._state.settings:
                self.config = replace(self.config, policy=read_config(self.folder.path / CONFIG).policy)
            try:
                found = self._with_variants(self._load(state, damaged, made), state)
            except ModelFileError:
                if self.folder.signature() == signature:
                    raise
                continue
            if not found.trouble or self.folder.signature() == signature:
                return signature, state, found

    def _loaded(self) -> tuple[FolderState, Snapshot]:
        """The snapshot, and what `current` said when it was loaded. Whoever makes a model takes both from here: what
        `current` says by now may have another model and more arms."""
        with self._loading:
            return self._state, self.snapshot

    def _load(self, state: FolderState, damaged: bool, made: Model | None) -> Snapshot:
        """The snapshot of a state; reads only the parts that have changed."""
        old = self.snapshot
        arms, size = old.arms, self._state.catalogue
        if state.catalogue != size:
            arms = self.folder.arm_index(state, (size, arms))
        table = self.folder.attributes(state.attributes, old.attributes)
        if old.name == state.model and not old.trouble and not damaged and old.policy_config == self.config.policy:
            same = old.with_attributes(table)
            return same if arms is old.arms else replace(same, arms=arms).sharing(same, "filters").prepare()
        if made is not None and state.model == model_name(made.epoch):
            name, model, trouble = state.model, made, ""
        else:
            name, model, trouble = self.folder.load_model(state)
        if trouble and name == old.name and not damaged:
            model = old.model
        if self.vocabulary.room:
            self.vocabulary = self._vocabulary(model)  # features may have joined it
        return self._snapshot(name, model, arms, table, trouble)

    def _snapshot(self, name: str, model: Model, arms: ArmIndex, table: AttributeTable, trouble: str) -> Snapshot:
        limits = OutlierLimits.of(model, self.config.features, self.vocabulary)
        return Snapshot(name, model, arms, self.config.policy, trouble, limits, attributes=table).prepare()

    def _with_variants(self, snapshot: Snapshot, state: FolderState) -> Snapshot:
        """With what the variants of the experiment that runs decide with."""
        before = self.__dict__.get("snapshot")
        known = {} if before is None else {v.name: v.model for v in before.variants.values()}

        def older(name: str) -> Snapshot:
            model = known.get(name) or Model.load(self.folder.model_path(name))
            return self._snapshot(name, model, snapshot.arms, snapshot.attributes, "")

        return with_variants(snapshot, state.experiment, older)

    def _vocabulary(self, model: Model) -> Vocabulary:
        features, names = self.config.features, self.folder.feature_names()
        vector = model.measure.place if model.measure else None
        return Vocabulary(model.n_features, names, features.strict_features, features.grow_features, vector)

    def decide(
        self,
        x: Mapping[str, Any] | Matrix,
        event_id: str | int | None = None,
        k: int | None = None,
        explore: int | None = None,
        eligible: Iterable[ArmId] | None = None,
        exclude: Iterable[ArmId] | None = None,
        keys: Mapping[str, str | int] | None = None,
        where: Where | None = None,
    ) -> ServedDecision:
        """Decides and logs; the decision is durable when this returns.

        `x` is a context by name, such as {"vector": [0.1, 0.7], "device": "mobile", "age": 35}, or as numbers. `k` and
        `explore` override the settings; `eligible` and `exclude` are lists of arm ids, `where` conditions on attributes
        such as {"in_stock": True, "price": {"<=": 20}, "brand": ["a", "b"], "sets": "summer-sale"}; `keys` such as
        {"visitor": 123} find the event if it has to be erased, and say whom `[caps]` of the settings limit. The same
        event id with the same request returns the logged decision again, with another it raises EventConflict. Features
        that nobody knows are left out, and listed as `unknown_features`. Raises NoEligibleArm if no arm is left,
        FeatureOutlier if the settings refuse values far outside of what was seen.
        """
        if where and self.attributes_stale():
            self.look_up_attributes()
        name, asked = None if event_id is None else event_name(event_id), as_keys(keys)
        capped = self.capped_arms(asked, name)
        snapshot, arm_filter = self.snapshot.for_visit(name, asked, eligible, exclude, where, capped)
        row, unknown = self._read(x)
        event = snapshot.decide(snapshot.bounded(row), name, k, explore, arm_filter, asked)
        answer = self.log.append([event], arm_filter.sets())[0]
        if isinstance(answer, EventConflict):
            raise answer
        if answer is not event:
            self.catch_up(answer)
        if self._trials.due():
            self.look_up_trials()
        return self.served(answer, unknown)

    def look_up_trials(self) -> None:
        """Counts in the log how often new arms have been shown; decisions go by it from now on. `decide` calls it now
        and then; does nothing while another thread loads a model, or where the log cannot be read.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place, Bandit.create(f"{place}/tea", ["mint", "rose"]) as tea:
        ...     tea.add_arms(["jam"])
        ...     _ = [tea.decide({}, eligible=["jam"]) for _ in range(15)]
        ...     tea.look_up_trials()
        """
        if not self._loading.acquire(blocking=False):
            return
        try:
            now = self.snapshot
            strategy = self.config.policy.make_policy().strategy
            if isinstance(strategy, Budgeted):
                found = self._trials.update(self.log, now.model, strategy, self._state.counted_until)
                self.snapshot = now if found is None else now.with_trials(found)
        except LogError:
            pass  # the next look may find it
        finally:
            self._loading.release()

    def capped_arms(self, keys: Keys, event_id: str | None, also: Ints = NO_ARMS) -> Ints:
        """The arms that the visitor of a request has seen as often as the settings allow (`caps.py`).

        >>> import tempfile
        >>> from treetop.bandit.caps import CapConfig
        >>> config = Config(caps=CapConfig(impressions=1))
        >>> with tempfile.TemporaryDirectory() as place:
        ...     with Bandit.create(f"{place}/tea", ["mint", "rose"], config=config) as tea:
        ...         first, second = (tea.decide({}, k=1, keys={"visitor": 7}).arms[0] for _ in range(2))
        ...         sorted([first, second]), tea.capped_arms((("visitor", "7"),), None)
        (['mint', 'rose'], array([0, 1], dtype=int32))
        """
        visitor = self.config.caps.visitor(keys)
        if visitor is None:
            return NO_ARMS
        return capped_arms(self.log, self.config.caps, visitor, time.time(), event_id or "", also)

    def explain(
        self,
        x: Mapping[str, Any] | Matrix,
        eligible: Iterable[ArmId] | None = None,
        exclude: Iterable[ArmId] | None = None,
        where: Where | None = None,
        top: int | None = None,
    ) -> Explanation:
        """Every effective arm of a context, in dense indices: arm i has the id `bandit.snapshot.arms.ids[i]`. With
        `top` only so many, those that are drawn first most likely, then by score.

        >>> import tempfile
        >>> import numpy as np
        >>> arms = Catalogue(vectors=np.eye(4))
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", arms) as tea:
        ...     round(float(tea.explain(np.ones(4)).probability.sum()), 9)
        1.0
        """
        if where and self.attributes_stale():
            self.look_up_attributes()
        snapshot = self.snapshot
        view = snapshot.explain(snapshot.bounded(self.row(x)), snapshot.arm_filter(eligible, exclude, where))
        return view if top is None else view.best(check_int("top", top, 1))
