"""Bandit: policy, model and log in a folder, in the user's own ids. The service is this behind HTTP.

Any number of processes may have one folder open. Each decides with the model it has loaded; `refresh` takes up what
another one made current.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from treetop.arrays import Matrix, Rows, real
from treetop.bandit import config as settings
from treetop.bandit.catalogue import ArmId, Catalogue, Vocabulary, line_added, line_removed
from treetop.bandit.config import Config
from treetop.bandit.creation import VOCABULARY, make_folder
from treetop.bandit.folder import LOG, Home, State, name_of
from treetop.bandit.growth import grow
from treetop.bandit.promotion import checked, learned
from treetop.bandit.results import Refit, Shown, Slot, raise_for, slots
from treetop.bandit.snapshot import Live, decided_again, tree_id
from treetop.errors import EventConflict, UnknownEvent
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.log.records import Event, Reward, Stored, gather
from treetop.model.model import Model
from treetop.policy.draws import event_name
from treetop.policy.policy import one_row
from treetop.records import Decision, Explanation

MOMENT = 1.0  # seconds for somebody who only looks whether the lock is held
PATIENCE = 5.0  # seconds that new arms wait for a refit


class Bandit:
    """Decide, reward, refit, in a folder that outlives the process. Methods may be called from any thread.

    >>> import tempfile
    >>> X = Y = np.eye(4, dtype=np.float32)  # contexts, and which tea was right for each
    >>> folder = tempfile.TemporaryDirectory()
    >>> bandit = Bandit.create(f"{folder.name}/tea", X, Y, arms=["mint", "rose", "oolong", "sencha"], max_leaf=2)
    >>> shown = bandit.decide(X[0], event_id="visit-1", k=2)
    >>> bandit.reward("visit-1", {shown.arms[0]: 1.0})
    >>> bandit.refit().rounds, bandit.live.name
    (1, '000001')

    The catalogue may change, and every decision can be looked at and computed again:

    >>> bandit.add_arms(["matcha"], vectors=X[3])
    >>> bandit.remove_arms(["rose"])
    >>> bandit.decide(X[1], eligible=["rose", "matcha"]).arms
    ['matcha']
    >>> bandit.event("visit-1").rewards
    array([ 1., nan])
    >>> event, again = bandit.replay("visit-1")
    >>> bandit.shown(event).arms == [bandit.live.catalogue.ids[i] for i in again.arms] == shown.arms
    True
    >>> bandit.roll_back()
    '000001'
    >>> bandit.close()
    >>> folder.cleanup()
    """

    def __init__(self, home: Home, config: Config, log: Log) -> None:
        self.home, self.config, self.log = home, config, log
        self._loading = threading.Lock()
        self._seen, self._state = home.signature(), home.state()
        name, model, trouble = home.load(self._state)
        self.live = Live(name, model, home.catalogue(self._state), config.policy, trouble).warm()
        self.vocabulary = Vocabulary(model.n_features, _names(home), config.features.strict_features)

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        X: Matrix | None = None,
        Y: Matrix | None = None,
        *,
        arms: Iterable[ArmId] | None = None,
        features: Iterable[str] | None = None,
        vectors: Matrix | None = None,
        model: Model | None = None,
        config: Config | None = None,
        max_leaf: int | None = None,
        branching: int = 2,
        seed: int = 0,
        log: str | os.PathLike[str] | None = None,
    ) -> Bandit:
        """A new folder, from labelled contexts X and Y, from one vector an arm, or from a model.

        `arms` are the ids, 0, 1, 2, ... if not given; `features` the names of the columns. Labels are kept as samples
        for every refit, and the first model has learned them, unless the settings' learner says otherwise; a model may
        come with the X and Y that its tree was made from.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Bandit.create(f"{folder}/tea", vectors=np.eye(3), arms=["mint", "rose", "oolong"]) as tea:
        ...         len(tea.decide(np.ones(3), k=2).arms)
        2
        """
        config = config or Config(tree=settings.Leaves() if max_leaf is None else settings.Leaves(max_leaf))
        make_folder(Path(folder), config, X, Y, vectors, model, arms, features, branching, seed)
        return cls.open(folder, log)

    @classmethod
    def open(cls, folder: str | os.PathLike[str], log: str | os.PathLike[str] | None = None) -> Bandit:
        """A folder that `create` or `treetop init` made; `log` is a path or postgresql://..., the folder's own if not
        given.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     Bandit.create(f"{folder}/tea", vectors=np.eye(4)).close()
        ...     with Bandit.open(f"{folder}/tea") as tea:
        ...         len(tea.live.catalogue)
        4
        """
        home = Home(Path(folder))
        home.state()
        config = settings.read(home.path / settings.CONFIG)
        opened = open_log(home.path / LOG if log is None else os.fspath(log))
        try:
            return cls(home, config, opened)
        except BaseException:
            opened.close()
            raise

    def __enter__(self) -> Bandit:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Finishes what was begun. The folder can be opened again."""
        self.log.close()

    def __repr__(self) -> str:
        return f"Bandit({self.home.path}, model {self.live.name}, {self.live.catalogue})"

    def stale(self) -> bool:
        """Whether `refresh` would have something to do; costs one call of the system.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", vectors=np.eye(4)) as here:
        ...     with Bandit.open(f"{folder}/tea") as there:
        ...         there.remove_arms([3])
        ...     here.stale(), here.refresh(), here.stale()
        (True, True, False)
        """
        return bool(self.live.trouble) or self.home.signature() != self._seen

    def refresh(self) -> bool:
        """Takes up what another process made current; says whether there was anything. Decisions go on meanwhile."""
        with self._loading:
            signature = self.home.signature()
            if signature == self._seen and not self.live.trouble:
                return False
            state, old = self.home.state(), self.live
            live = self._loaded(state)
            self.live = live  # one assignment: a decision has the old one or the new one
            self._seen, self._state = signature, state
            return live.name != old.name or live.catalogue is not old.catalogue

    def _loaded(self, state: State) -> Live:
        """What a state names, without reading again what is here already."""
        old = self.live
        same = state.catalogue == self._state.catalogue
        catalogue = old.catalogue if same else self.home.catalogue(state)
        if old.name == state.model and not old.trouble:
            return Live(old.name, old.model, catalogue, old.deciding, policies=old.policies).warm()
        name, model, trouble = self.home.load(state)
        if trouble and name == old.name:
            model = old.model
        return Live(name, model, catalogue, self.config.policy, trouble).warm()

    def row(self, x: Mapping[str, float] | Matrix) -> Rows:
        """A context by feature names, or as a row of numbers.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Bandit.create(f"{folder}/tea", vectors=np.eye(2), features=["fresh", "floral"]) as tea:
        ...         tea.row({"floral": 2.0}).csr().toarray().tolist()
        [[0.0, 2.0]]
        """
        if isinstance(x, Mapping):
            return self.vocabulary.named({name: real(f"feature {name!r}", v, -np.inf) for name, v in x.items()})[0]
        return one_row(x, self.vocabulary.columns)

    def decide(
        self,
        x: Mapping[str, float] | Matrix,
        event_id: str | int | None = None,
        k: int | None = None,
        explore: int | None = None,
        eligible: Iterable[ArmId] | None = None,
        exclude: Iterable[ArmId] | None = None,
    ) -> Shown:
        """Decides and logs. The same event id again gives the logged decision, or an error if the request differs."""
        live, row = self.live, self.row(x)
        name = None if event_id is None else event_name(event_id)
        limits = live.restricted(eligible, exclude)
        event = live.event(row, name, k, explore, limits)
        answer = self.log.append([event], limits.sets())[0]
        if isinstance(answer, EventConflict):
            raise answer
        return self.shown(answer)

    def shown(self, event: Event) -> Shown:
        """A logged decision in the user's ids."""
        return Shown(event.event_id, event.epoch, tuple(Slot(*slot) for slot in slots(event, self.live.catalogue)))

    def explain(
        self,
        x: Mapping[str, float] | Matrix,
        eligible: Iterable[ArmId] | None = None,
        exclude: Iterable[ArmId] | None = None,
    ) -> Explanation:
        """Every effective arm of a context, in dense indices: `bandit.live.catalogue.ids[i]` is arm i.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Bandit.create(f"{folder}/tea", vectors=np.eye(4)) as tea:
        ...     round(float(tea.explain(np.ones(4)).probability.sum()), 9)
        1.0
        """
        live = self.live
        return live.explain(self.row(x), live.restricted(eligible, exclude))

    def reward(self, event_id: str | int, rewards: Mapping[ArmId, float]) -> None:
        """What came of arms of an event, in [0, 1]: all of it is stored, or none. The same again changes nothing."""
        name = event_name(event_id)
        given = self.rewards(name, rewards)
        raise_for(name, given, self.log.reward(given), self.live.catalogue)

    def rewards(self, event_id: str, rewards: Mapping[ArmId, float]) -> list[Reward]:
        """As the log takes them.

        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Bandit.create(f"{folder}/tea", vectors=np.eye(2), arms=["mint", "rose"]) as tea:
        ...         [(reward.arm, reward.value) for reward in tea.rewards("visit-1", {"rose": 1})]
        [(1, 1.0)]
        """
        if not rewards:
            raise ValueError("there are no rewards in it")
        now = time.time()
        arms = self.live.catalogue.find(rewards).tolist()
        values = [real(f"reward of arm {arm!r}", value, 0, 1) for arm, value in rewards.items()]
        if len(set(arms)) < len(arms):
            raise ValueError("an arm is in it twice")
        return [Reward(event_id, arm, value, now) for arm, value in zip(arms, values, strict=True)]

    def event(self, event_id: str | int) -> Stored:
        """What the log holds of an event: the decision, and the rewards so far."""
        found = self.log.event(event_name(event_id))
        if found is None:
            raise UnknownEvent(f"there is no event {event_id!r} in the log")
        return found

    def replay(self, event_id: str | int) -> tuple[Event, Decision]:
        """A logged decision, and the same computed anew from its model; `same` compares them."""
        event = self.event(event_id).event
        if event.model not in self.home.models():
            kept = ", ".join(self.home.models())
            raise ValueError(f"event {event.event_id!r} was decided by model {event.model}; kept are {kept}")
        model = Model.load(self.home.model_path(event.model))
        return event, decided_again(event, model, self.live.catalogue, self.log.eligible_set)

    def refit(self) -> Refit:
        """A new model from all feedback in the log, made current. Decisions go on meanwhile with the old one."""
        with self.home.making_a_model(MOMENT):
            self.refresh()
            began, live, state = time.perf_counter(), self.live, self.home.state()
            base = live.model
            if (missing := len(live.catalogue) - base.n_arms) > 0:  # after a rollback to before they were added
                base = grow(base, missing, self.config.tree.max_leaf)
            observed = self.log.counts().observed
            mark = self.log.seal(f"refit {name_of(state.following)} {time.time():.6f}")
            wait, default = self.config.rewards.reward_wait, self.config.rewards.default_reward
            tree = tree_id(base.tree) if self.config.learner.name == "paper" else None  # where arms move, any tree's
            chunks = self.log.samples(mark, wait=wait, default=default, tree=tree)
            feedback = gather(chunks, base.n_features, live.catalogue.epochs())
            known = self.home.labelled(base, live.catalogue.gone) if self.config.learner.takes_labels else None
            model, heard = learned(base, feedback, self.config.learner.regressor(known), state.following)
            checked(model, base, feedback, self.config.policy.policy())
            keep = self.config.refit.keep
            self.home.publish(model, state.model, keep, refit_observed=observed, refit_time=mark.time)
            done = Refit(
                name_of(model.epoch), len(feedback), int(feedback.observed.sum()), time.perf_counter() - began, heard
            )
            self.home.note("refit", base=state.model, **asdict(done))
        self.refresh()
        return done

    def roll_back(self, model: str | None = None) -> str:
        """Makes an older model current again: the one before, or the one named. The next refit goes on from there."""
        before = self.live.name
        state = self.home.roll_back(model)
        self.home.note("rollback", model=state.model, base=before)
        self.refresh()
        return state.model

    def add_arms(self, arms: Iterable[ArmId], vectors: Matrix | None = None) -> None:
        """New arms, each with a positive chance at once. A vector in the space of the contexts puts an arm among its
        like; the others go where there is most room. Waits a little for a refit to end, which makes a model too."""
        with self.home.making_a_model(PATIENCE):
            self.refresh()
            live, state = self.live, self.home.state()
            catalogue = live.catalogue.add(arms)
            fresh = catalogue.ids[len(live.catalogue) :]
            if not fresh:
                return
            base = live.model
            if (missing := len(live.catalogue) - base.n_arms) > 0:
                base = grow(base, missing, self.config.tree.max_leaf)
            model = grow(base, len(fresh), self.config.tree.max_leaf, vectors)
            model = replace(model, epoch=state.following)
            self.home.publish(model, state.model, self.config.refit.keep, line_added(fresh, model.epoch))
            self.home.note("arms added", model=name_of(model.epoch), base=state.model, count=len(fresh))
        self.refresh()

    def remove_arms(self, arms: Iterable[ArmId]) -> None:
        """Arms that are never shown again. Their ids stay taken, and rewards for what was shown are still accepted."""
        listed, removed = list(arms), list[int]()

        def lines(now: Catalogue) -> bytes:
            removed.extend(now.remove(listed).removed[len(now.removed) :])
            return line_removed(removed) if removed else b""

        self.home.extend(lines)
        if removed:
            self.home.note("arms removed", model=self.live.name, count=len(removed))
        self.refresh()


def _names(home: Home) -> tuple[str, ...] | None:
    path = home.path / VOCABULARY
    return tuple(json.loads(path.read_bytes())) if path.exists() else None
