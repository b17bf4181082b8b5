"""Any sequence of what a bandit can be asked, beside a twin in plain Python that keeps lists and counts.

The twin knows which arms there are, what the owner said of them, who was shown which and what they brought. At every
decision it says which arms may be shown, searches the tree and scores what it finds anew, and computes the
propensities: by IGW for the paper's learner with vectors, by the budget for treetop's with categories, over the number
of eligible arms below each node.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.bandit_twin import Twin, check_effective, effective_arms, slot_chances
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from treetop.bandit.bandit import Bandit
from treetop.bandit.caps import CapConfig
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, LearnerConfig, PolicyConfig, RefitConfig, RewardConfig, TreeConfig
from treetop.bandit.results import same_decision
from treetop.errors import NoEligibleArm

FEATURES, K, EXPLORE, BEAM, MAX_LEAF, CAP, VISITS = 3, 3, 2, 2, 4, 4, 5
BRANDS = ["a", "b", "c"]
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "price": st.one_of(st.integers(0, 9), st.fixed_dictionaries({"<=": st.integers(0, 9)}), st.just({">": 4})),
        "in_stock": st.booleans(),
        "brand": st.lists(st.sampled_from(BRANDS), max_size=3),
        "sets": st.sampled_from(["sale", "new"]),
        "category": st.sampled_from(["d0", "d1", "d1 > c1"]),
    },
)
VALUES = st.fixed_dictionaries(
    {
        "price": st.one_of(st.none(), st.integers(0, 9)),
        "in_stock": st.one_of(st.none(), st.booleans()),
        "brand": st.one_of(st.none(), st.sampled_from(BRANDS)),
    }
)
CATEGORY = st.sampled_from(["d0", "d1", "d1 > c0", "d1 > c1", "d2 > c3 > s5", None])
CONTEXT = st.lists(st.integers(-8, 8), min_size=FEATURES, max_size=FEATURES)
OFFSET = np.array([0.0137, 0.0291, 0.0073])  # so that no context lies where two nodes are equally far


class Sequences(RuleBasedStateMachine):
    """With vectors and the paper's learner, whose strategy is simple enough to compute by hand."""

    by_vector = True

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="treetop-stateful-"))
        self.twin = Twin()
        self.n = self.event = self.copies = 0
        self.bandit: Bandit | None = None

    @property
    def shop(self) -> Bandit:
        assert self.bandit is not None
        return self.bandit

    def config(self) -> Config:
        return Config(
            PolicyConfig(K, EXPLORE, BEAM, strategy="igw"),
            TreeConfig(MAX_LEAF),
            learner=LearnerConfig("paper", label_samples=False),
            refit=RefitConfig(keep=50),
            caps=CapConfig(impressions=CAP),
            rewards=RewardConfig(corrections=True),
        )

    @initialize(
        values=st.lists(VALUES, min_size=3, max_size=12), of=st.lists(CATEGORY, min_size=12), seed=st.integers(0, 9)
    )
    def create(self, values: list[dict[str, Any]], of: list[str | None], seed: int) -> None:
        ids = [self.name(value, category) for value, category in zip(values, of, strict=False)]
        columns = {name: [value[name] for value in values] for name in values[0]}
        # The first values say what each attribute is; None everywhere would be text.
        kinds = {"price": 0.5, "in_stock": True, "brand": "a"}
        for name, column in columns.items():
            if all(value is None for value in column):
                column[0] = self.twin.values[ids[0]][name] = kinds[name]
        vectors = np.random.default_rng(seed).normal(size=(len(ids), FEATURES)) if self.by_vector else None
        categories = [self.twin.values[arm]["category"] for arm in ids]
        items = Catalogue(ids, vectors, categories=categories, attributes=columns)
        names = None if self.by_vector else ["hot", "cold", "old"]
        self.bandit = Bandit.create(self.place / "shop", items, features=names, config=self.config())
        for name in self.twin.sets:
            self.bandit.set_arms(name, [])

    def name(self, value: dict[str, Any], category: str | None) -> str:
        self.n += 1
        self.twin.values[f"s{self.n}"] = {**value, "category": category}
        return f"s{self.n}"

    def some(self, data: st.DataObject, arms: Any, least: int = 1) -> list[str]:
        listed = sorted(arms)
        least = min(least, len(listed))
        found: list[str] = data.draw(st.lists(st.sampled_from(listed), min_size=least, unique=True)) if listed else []
        return found

    @rule(
        values=st.lists(VALUES, min_size=1, max_size=6),
        by=st.sampled_from(["", "vector", "category", "like"]),
        data=st.data(),
    )
    def add(self, values: list[dict[str, Any]], by: str, data: st.DataObject) -> None:
        here = sorted(set(self.twin.values) - self.twin.removed)
        given: dict[str, Any] = {}
        of: list[str | None] = [None] * len(values)
        if by == "vector" and self.by_vector:
            given["vectors"] = np.arange(len(values) * FEATURES).reshape(-1, FEATURES) % 5 - 2.0
        elif by == "category":
            of = given["categories"] = [data.draw(CATEGORY) for _ in values]
        elif by == "like" and here:
            given["like"] = [data.draw(st.sampled_from(here)) for _ in values]
            of = [self.twin.values[arm]["category"] for arm in given["like"]]
        ids = [self.name(value, category) for value, category in zip(values, of, strict=True)]
        self.shop.add_arms(ids, attributes={name: [value[name] for value in values] for name in values[0]}, **given)

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        arms = self.some(data, self.twin.values)[: max(0, len(self.twin.values) - len(self.twin.removed) - 4)]
        self.shop.remove_arms(arms)
        self.twin.removed |= set(arms)

    @precondition(lambda self: bool(self.twin.removed))
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        arms = self.some(data, self.twin.removed)
        before = self.shop.snapshot.model.n_arms
        self.shop.add_arms(arms)
        self.twin.removed -= set(arms)
        assert self.shop.snapshot.model.n_arms == before

    @rule(data=st.data(), name=st.sampled_from(["sale", "new"]))
    def put_set(self, data: st.DataObject, name: str) -> None:
        arms = self.some(data, self.twin.values, 0)
        self.shop.set_arms(name, arms)
        self.twin.sets[name] = set(arms)

    @rule(data=st.data(), values=VALUES)
    def set_attributes(self, data: st.DataObject, values: dict[str, Any]) -> None:
        arms = self.some(data, self.twin.values)
        self.shop.set_attributes(arms, {name: [value] * len(arms) for name, value in values.items()})
        for arm in arms:
            self.twin.values[arm] |= values

    @rule(data=st.data(), context=CONTEXT, where=CONDITIONS, lists=st.sampled_from(["eligible", "exclude"]))
    def decide(self, data: st.DataObject, context: list[int], where: dict[str, Any], lists: str) -> None:
        self.check_decision(np.array(context) / 4 + OFFSET, {lists: self.some(data, self.twin.values)}, where, "")

    @rule(seed=st.integers(0, 2**32 - 1))
    def visits(self, seed: int) -> None:
        """Some visitors one after the other, at most one condition each; most of them are rewarded at once."""
        rng = np.random.default_rng(seed)
        conditions: list[dict[str, Any]] = [{}, {}, {"in_stock": True}, {"price": {"<=": 6}}, {"category": "d1"}]
        for _ in range(VISITS):
            x, where = rng.normal(size=FEATURES) * 2, conditions[rng.integers(len(conditions))]
            event = self.check_decision(x, {}, where, str(rng.choice(["", "anna", "ben", "carl"])))
            if event is not None and rng.random() < 0.7:
                self.check_reward(event, rng.random(K) < 0.4)

    @rule(seed=st.integers(0, 2**32 - 1))
    def learn(self, seed: int) -> None:
        """Visits, a refit, and visits to the new model: whatever else a sequence leaves out."""
        self.visits(seed)
        if self.twin.shown:
            self.refit()
            self.visits(seed + 1)

    def check_decision(self, x: Any, lists: dict[str, Any], where: dict[str, Any], visitor: str) -> str | None:
        """A decision beside the twin's; its event, or None if nothing may be shown."""
        allowed = self.twin.eligible(where, lists.get("eligible"), lists.get("exclude", []), visitor, CAP)
        self.event += 1
        event = f"e{self.event}"
        given = lists | {"where": where} | ({"keys": {"visitor": visitor}} if visitor else {})
        if not allowed:
            with pytest.raises(NoEligibleArm):
                self.shop.decide(x, event, **given)
            return None
        served = self.shop.decide(x, event, **given)
        arms = [str(arm) for arm in served.arms]
        assert len(arms) == min(K, len(allowed)) == len(set(arms))
        assert set(arms) <= allowed
        expected = self.propensities(x, allowed, served)
        np.testing.assert_allclose([slot.propensity for slot in served.slots], expected, rtol=1e-5)
        assert self.shop.decide(x, event, **given) == served
        self.twin.shown[event], self.twin.rewards[event], self.twin.visitor[event] = arms, {}, visitor
        return event

    def propensities(self, x: Any, allowed: set[str], served: Any) -> list[float]:
        """Those of a decision; a node shows each of the arms below it that are allowed with the same chance."""
        snapshot, tree = self.shop.snapshot, self.shop.snapshot.model.tree
        ids = snapshot.arms.ids
        mine = {arm for arm in range(tree.n_arms) if ids[arm] in allowed}
        row = snapshot.bounded(self.shop.row(x))
        policy = snapshot.policy()[0]
        view = policy.explain(snapshot.model, row, eligible=np.array(sorted(mine), np.int32))
        bounded = row.csr().toarray()[0]
        check_effective(view, effective_arms(snapshot.model, bounded, mine, K, BEAM))
        chosen, below = [], []
        for slot in served.slots:
            wanted = slot.via if slot.via is not None else ids.index(slot.arm)
            same = (view.is_node == (slot.via is not None)) & (view.id == wanted)
            chosen.append(int(np.flatnonzero(same)[0]))
            group = [slot.arm] if slot.via is None else [ids[arm] for arm in tree.arms_below(slot.via)]
            assert slot.arm in group
            below.append(len(allowed & {str(arm) for arm in group}))
        chances = slot_chances(policy, snapshot.model, view, chosen)
        return [chance / count for chance, count in zip(chances, below, strict=True)]

    @precondition(lambda self: bool(self.twin.shown))
    @rule(data=st.data(), values=st.lists(st.booleans(), min_size=K, max_size=K))
    def reward(self, data: st.DataObject, values: list[bool]) -> None:
        """The first reward of a slot, or a correction."""
        event = data.draw(st.sampled_from(sorted(self.twin.shown)))
        self.check_reward(event, values)

    def check_reward(self, event: str, values: Any) -> None:
        told: dict[Any, float] = {arm: float(v) for arm, v in zip(self.twin.shown[event], values, strict=False)}
        self.shop.reward(event, told)
        for arm, value in told.items():
            self.twin.reward(event, arm, value)

    @precondition(lambda self: bool(self.twin.shown))
    @rule()
    def refit(self) -> None:
        result = self.shop.refit()
        assert result.rounds == len(self.twin.shown)
        assert result.rewards == sum(map(len, self.twin.rewards.values()))

    @rule()
    def open_again(self) -> None:
        self.shop.close()
        self.bandit = Bandit.open(self.shop.folder.path)

    @rule(torn=st.booleans())
    def crash(self, torn: bool) -> None:
        """Goes on with a copy of the files as they lie there while the bandit is open; perhaps with half of what was
        being written behind what counts."""
        self.copies += 1
        left = self.place / f"left-{self.copies}"
        shutil.copytree(self.shop.folder.path, left)
        self.shop.close()
        if torn:
            for file in ("attributes.bin", "catalogue.jsonl"):
                with (left / file).open("ab") as end:
                    end.write(b'{"add": ["half')
            (left / "current.part").write_bytes(b"{")
        self.bandit = Bandit.open(left)

    @precondition(lambda self: bool(self.twin.shown))
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(sorted(self.twin.shown)))
        stored = self.shop.event(event)
        if stored.event.model in self.shop.folder.models():
            assert same_decision(*self.shop.replay(event))
        else:  # of models that only have more arms the newest is kept
            with pytest.raises(ValueError, match="was decided by model"):
                self.shop.replay(event)
        told = dict(zip(self.twin.shown[event], stored.rewards.tolist(), strict=True))
        assert {arm: value for arm, value in told.items() if value == value} == self.twin.rewards[event]

    @invariant()
    def knows_the_same(self) -> None:
        if self.bandit is None:
            return
        arms = self.shop.snapshot.arms
        assert list(arms.ids) == list(self.twin.values)
        assert {str(arms.ids[i]) for i in arms.removed} == self.twin.removed
        assert np.bincount(self.shop.snapshot.model.tree.leaf_of).max() <= 2 * MAX_LEAF  # with those that are removed
        for arm in list(self.twin.values)[-3:]:
            assert self.shop.attributes(arm) == self.twin.values[arm]

    def teardown(self) -> None:
        if self.bandit is not None:
            self.bandit.close()
        shutil.rmtree(self.place)


class BudgetedSequences(Sequences):
    """With categories and the defaults: treetop's learner, and exploration within a budget."""

    by_vector = False

    def config(self) -> Config:
        return Config(
            PolicyConfig(K, EXPLORE, BEAM, parameters={"budget": 0.2, "new_arms_budget": 0.1}),
            TreeConfig(MAX_LEAF),
            refit=RefitConfig(keep=50),
            caps=CapConfig(impressions=CAP),
            rewards=RewardConfig(corrections=True),
        )


def sequences(machine: type[Sequences], examples: int) -> Any:
    """The test of a machine: so many sequences of 40 steps, some of them of ten and more calls; TREETOP_SEQUENCES times
    as many for a long run."""
    machine.TestCase.settings = settings(
        max_examples=examples * int(os.environ.get("TREETOP_SEQUENCES", "1")),
        stateful_step_count=40,
        deadline=None,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink one takes minutes
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
    return machine.TestCase


TestSequences = sequences(Sequences, 15)
TestBudgetedSequences = sequences(BudgetedSequences, 15)
