"""Any sequence of what a bandit can be asked, beside a twin in plain Python that keeps lists and counts.

The twin knows which arms there are, what the owner said of them, which were shown and what they brought. At every
decision it says which arms may be shown, and computes the propensities from the effective arms: by their scores, the
IGW rule and the number of eligible arms below each node, all counted anew from its own lists.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.config import Config, LearnerConfig, PolicyConfig, RefitConfig, TreeConfig
from treetop.bandit.results import same_decision
from treetop.errors import NoEligibleArm

FEATURES, K, EXPLORE, BEAM, MAX_LEAF = 3, 3, 2, 2, 4
BRANDS = ["a", "b", "c"]
CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "price": st.one_of(st.integers(0, 9), st.fixed_dictionaries({"<=": st.integers(0, 9)}), st.just({">": 4})),
        "in_stock": st.booleans(),
        "brand": st.lists(st.sampled_from(BRANDS), max_size=3),
        "sets": st.sampled_from(["sale", "new"]),
    },
)
VALUES = st.fixed_dictionaries(
    {
        "price": st.one_of(st.none(), st.integers(0, 9)),
        "in_stock": st.one_of(st.none(), st.booleans()),
        "brand": st.one_of(st.none(), st.sampled_from(BRANDS)),
    }
)
CONTEXT = st.lists(st.integers(-2, 2), min_size=FEATURES, max_size=FEATURES)


class Twin:
    """What a bandit should know, in dicts and lists."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, Any]] = {}  # of every arm that there ever was, in the order of its index
        self.removed: set[str] = set()
        self.sets: dict[str, set[str]] = {"sale": set(), "new": set()}
        self.rewards: dict[str, dict[str, float]] = {}  # by event
        self.shown: dict[str, list[str]] = {}

    def meets(self, arm: str, name: str, condition: Any) -> bool:
        if name == "sets":
            return arm in self.sets[condition]
        value = self.values[arm][name]
        if value is None:
            return False
        if isinstance(condition, dict):
            ((operator, limit),) = condition.items()
            return bool(value <= limit) if operator == "<=" else bool(value > limit)
        return value in condition if isinstance(condition, list) else bool(value == condition)

    def eligible(self, where: dict[str, Any], eligible: list[str] | None, exclude: list[str]) -> set[str]:
        return {
            arm
            for arm in self.values
            if arm not in self.removed
            and arm not in exclude
            and (eligible is None or arm in eligible)
            and all(self.meets(arm, name, condition) for name, condition in where.items())
        }


def propensities(bandit: Bandit, x: Any, allowed: set[str], served: Any) -> list[float]:
    """Those of a decision, slot by slot, from the effective arms: greedy slots take the best that is left, the others
    are drawn by IGW; a node shows each of the arms below it that are allowed with the same chance."""
    snapshot, tree = bandit.snapshot, bandit.snapshot.model.tree
    ids = snapshot.arms.ids
    mine = [arm for arm in range(tree.n_arms) if ids[arm] in allowed]
    policy = snapshot.policy()[0]
    view = policy.explain(snapshot.model, np.array([x], np.float32), eligible=np.array(mine, np.int32))
    left = list(range(len(view)))
    found = []
    strategy: Any = policy.strategy
    for place, slot in enumerate(served.slots):
        best = min(left, key=lambda i: (-view.score[i], bool(view.is_node[i]), int(view.id[i])))
        node = slot.via
        chosen = next(
            i for i in left if (view.id[i] == node if node is not None else ids[view.id[i]] == slot.arm)
            and bool(view.is_node[i]) == (node is not None)
        )  # fmt: skip
        if place < K - EXPLORE:
            chance = float(chosen == best)
        else:
            n = len(left)
            gamma = np.sqrt(strategy.C * snapshot.model.n_seen * n)
            chances = {i: 1 / (n + gamma * float(view.score[best] - view.score[i])) for i in left if i != best}
            chances[best] = 1 - sum(chances.values())
            chance = chances[chosen]
        below = 1
        if node is not None:
            shown = set(served.arms[:place])
            below = sum(ids[arm] in allowed for arm in tree.arms_below(node))
            assert slot.arm not in shown
        found.append(chance / below)
        left.remove(chosen)
    return found


class Sequences(RuleBasedStateMachine):
    """Runs with the paper's learner, whose strategy is simple enough to compute by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.place = Path(tempfile.mkdtemp(prefix="treetop-stateful-"))
        self.twin = Twin()
        self.n = self.event = 0
        self.bandit: Bandit | None = None

    @property
    def shop(self) -> Bandit:
        assert self.bandit is not None
        return self.bandit

    @initialize(values=st.lists(VALUES, min_size=3, max_size=12), seed=st.integers(0, 9))
    def create(self, values: list[dict[str, Any]], seed: int) -> None:
        ids = [self.name(value) for value in values]
        columns = {name: [value[name] for value in values] for name in values[0]}
        # The first values say what each attribute is; None everywhere would be text.
        kinds = {"price": 0.5, "in_stock": True, "brand": "a"}
        for name, column in columns.items():
            if all(value is None for value in column):
                column[0] = self.twin.values[ids[0]][name] = kinds[name]
        vectors = np.random.default_rng(seed).normal(size=(len(ids), FEATURES))
        config = Config(
            PolicyConfig(K, EXPLORE, BEAM, strategy="igw"),
            TreeConfig(MAX_LEAF),
            learner=LearnerConfig("paper", label_samples=False),
            refit=RefitConfig(keep=50),
        )
        self.bandit = Bandit.create(self.place / "shop", Catalogue(ids, vectors, attributes=columns), config=config)
        for name in self.twin.sets:
            self.bandit.set_arms(name, [])

    def name(self, value: dict[str, Any]) -> str:
        self.n += 1
        self.twin.values[f"s{self.n}"] = dict(value)
        return f"s{self.n}"

    def some(self, data: st.DataObject, arms: Any, least: int = 1) -> list[str]:
        listed = sorted(arms)
        least = min(least, len(listed))
        found: list[str] = data.draw(st.lists(st.sampled_from(listed), min_size=least, unique=True)) if listed else []
        return found

    @rule(values=st.lists(VALUES, min_size=1, max_size=6), near=st.booleans())
    def add(self, values: list[dict[str, Any]], near: bool) -> None:
        ids = [self.name(value) for value in values]
        vectors = np.arange(len(ids) * FEATURES).reshape(-1, FEATURES) % 5 - 2.0 if near else None
        self.shop.add_arms(ids, vectors, None, {name: [value[name] for value in values] for name in values[0]})

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        arms = self.some(data, self.twin.values)
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

    @rule(data=st.data(), x=CONTEXT, where=CONDITIONS, lists=st.sampled_from(["", "eligible", "exclude"]))
    def decide(self, data: st.DataObject, x: list[int], where: dict[str, Any], lists: str) -> None:
        given: dict[str, Any] = {lists: self.some(data, self.twin.values)} if lists else {}
        allowed = self.twin.eligible(where, given.get("eligible"), given.get("exclude", []))
        self.event += 1
        event = f"e{self.event}"
        if not allowed:
            with pytest.raises(NoEligibleArm):
                self.shop.decide(x, event, where=where, **given)
            return
        served = self.shop.decide(x, event, where=where, **given)
        arms = [str(arm) for arm in served.arms]
        assert len(arms) == min(K, len(allowed)) == len(set(arms))
        assert set(arms) <= allowed
        expected = propensities(self.shop, x, allowed, served)
        np.testing.assert_allclose([slot.propensity for slot in served.slots], expected, rtol=1e-5)
        assert self.shop.decide(x, event, where=where, **given) == served
        self.twin.shown[event], self.twin.rewards[event] = arms, {}

    @precondition(lambda self: bool(self.twin.shown))
    @rule(data=st.data(), values=st.lists(st.booleans(), min_size=K, max_size=K))
    def reward(self, data: st.DataObject, values: list[bool]) -> None:
        event = data.draw(st.sampled_from(sorted(self.twin.shown)))
        known = self.twin.rewards[event]
        arms = self.twin.shown[event]
        told: dict[Any, float] = {arm: float(v) for arm, v in zip(arms, values, strict=False) if arm not in known}
        if told:
            self.shop.reward(event, told)
            known |= told

    @precondition(lambda self: bool(self.twin.shown))
    @rule()
    def refit(self) -> None:
        result = self.shop.refit()
        assert result.rounds == len(self.twin.shown)
        assert result.rewards == sum(map(len, self.twin.rewards.values()))

    @rule(clean=st.booleans())
    def open_again(self, clean: bool) -> None:
        """Closed and opened, or left as a crash leaves it: half a record behind what counts."""
        self.shop.close()
        if not clean:
            for file in ("attributes.bin", "catalogue.jsonl"):
                with (self.place / "shop" / file).open("ab") as end:
                    end.write(b'{"add": ["half')
            (self.place / "shop" / "current.part").write_bytes(b"{")
        self.bandit = Bandit.open(self.place / "shop")

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


Sequences.TestCase.settings = settings(
    max_examples=int(os.environ.get("TREETOP_SEQUENCES", "12")),  # more of them: thousands of steps
    stateful_step_count=40,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # to shrink one takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
TestSequences = Sequences.TestCase
