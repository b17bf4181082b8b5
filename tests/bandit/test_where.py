"""Filters by attributes: against a filter in plain Python, and their propensities, replay and evaluation."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.attributes import N, made_up, shop_of
from helpers.strategies import few
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from numpy.typing import NDArray

import treetop
from treetop.bandit.attributes import CATEGORY, AttributeTable, Column, attribute_records
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue
from treetop.bandit.results import same_decision
from treetop.bandit.where import Filters, canonical_where, matching
from treetop.errors import EventConflict, NoEligibleArm
from treetop.tree.tree import Tree

OPERATORS: dict[str, Any] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


def meets(value: Any, condition: Any, is_category: bool = False) -> bool:
    """Whether a value meets a condition: the meaning of `where`, one arm at a time."""
    if value is None:
        return False
    if isinstance(condition, dict):
        sound = []
        for operator, limit in condition.items():
            if operator in ("==", "!="):
                sound.append(meets(value, limit, is_category) == (operator == "=="))
            else:
                sound.append(OPERATORS[operator](value, limit))
        return all(sound)
    if isinstance(condition, list):
        return any(meets(value, one, is_category) for one in condition)
    if is_category:
        return bool(value == condition or value.startswith(condition + " > "))
    return bool(value == condition)


def table_of(values: dict[str, list[Any]]) -> AttributeTable:
    nothing = AttributeTable()
    return nothing.with_records(attribute_records(np.arange(N, dtype=np.int32), None, values, nothing))


def flat() -> Tree:
    return Tree(np.array([-1], np.int32), np.zeros(N, np.int32))


VALUES = {
    "price": st.one_of(
        st.integers(0, 80),
        st.dictionaries(st.sampled_from(list(OPERATORS)), st.integers(0, 60), min_size=1, max_size=3),
        st.lists(st.integers(0, 60), max_size=5),
    ),
    "in_stock": st.one_of(st.booleans(), st.just({"!=": True}), st.just([True, False])),
    "brand": st.one_of(
        st.sampled_from(["b1", "b2", "nobody"]),
        st.lists(st.integers(0, 99).map(lambda i: f"b{i}"), max_size=90),
        st.just({"!=": ["b1", "b2"]}),
    ),
    "category": st.sampled_from(["d1", "d1 > c4", "d1 > c", ["d0", "d2 > c5"], {"!=": "d1"}]),
}
WHERE = st.fixed_dictionaries({}, optional=VALUES)


@examples(deadline=None, max_examples=150)
@given(WHERE, st.integers(0, 5), st.integers(0, 2))
def test_a_filter_is_what_its_words_say(where: dict[str, Any], seed: int, changes: int) -> None:
    """Also after changes, which keep the order of a column instead of sorting it again."""
    values, rng = made_up(seed), np.random.default_rng(seed)
    table = table_of(values)
    for change in range(changes):
        Filters(table, flat()).prepare()
        arms = rng.choice(N, 40, replace=False).astype(np.int32)
        new = {name: listed[:40] for name, listed in made_up(100 + change).items()}
        for name, listed in new.items():
            for arm, value in zip(arms.tolist(), listed, strict=True):
                values[name][arm] = value
        table = table.with_records(attribute_records(arms, None, new, table))
    leaf = rng.integers(1, 20, N)
    leaf[:20] = np.arange(20)  # every node but the root is a leaf that holds some
    tree = Tree(np.array([-1] + [0] * 19, np.int32), np.maximum(leaf, 1).astype(np.int32))
    expected = [
        arm
        for arm in range(N)
        if all(meets(values[name][arm], condition, name == "category") for name, condition in where.items())
    ]
    filters = Filters(table, tree)
    found = filters.eligible(where)
    assert found.mask is not None
    assert sorted(tree.arm_at[found.mask.positions()].tolist()) == expected
    assert found.mask.total == found.count(N) == len(expected)
    for node in range(tree.n_nodes):
        assert found.count_below(tree, node) == len(set(tree.arms_below(node).tolist()) & set(expected))
    assert matching(table, where, N).tolist() == expected
    only, banned = np.sort(rng.choice(N, 100, replace=False)).astype(np.int32), np.array([3, 5, 9], np.int32)
    base = filters.eligible({"in_stock": True}).mask
    both = filters.eligible(where, base, np.sort(tree.position_of[only]), np.sort(tree.position_of[banned])).mask
    wanted = [arm for arm in expected if values["in_stock"][arm] and arm in only and arm not in banned]
    assert both is not None
    assert sorted(tree.arm_at[both.positions()].tolist()) == wanted


@few
@given(st.integers(0, 2**32), st.integers(1, 3000), st.booleans(), st.booleans())
def test_attributes_that_follow_the_tree(seed: int, width: int, missing: bool, with_base: bool) -> None:
    """Counts, draws and emptiness of ranges, large ones too, where most words and blocks of words are all in or out."""
    rng, n = np.random.default_rng(seed), 20_000
    aisle = np.arange(n) // 300 + rng.random(n)
    rank, has = rng.random(n), rng.random(n) < (0.99 if missing else 1.0)
    names = [f"dept {a // 1000}" for a in range(n)]
    columns = {
        "aisle": Column.of([float(a) if h else None for a, h in zip(aisle, has, strict=True)]),
        "rank": Column.of(rank.tolist()),
        "dept": Column.of(names),
    }
    filters = Filters(AttributeTable(columns), Tree(np.array([-1], np.int32), np.zeros(n, np.int32)))
    low = rng.uniform(0, 70)
    base = filters.eligible({"rank": {">": 0.1}}).mask if with_base else None
    depts = [f"dept {d}" for d in rng.choice(20, 6, replace=False)]
    inside = {
        "aisle": has & (aisle > low) & (aisle <= low + width / 100),
        "dept": np.isin(names, depts),
        "rank": rank <= 0.5,
    }
    asked = {"aisle": {">": low, "<=": low + width / 100}, "dept": depts, "rank": {"<=": 0.5}}
    for some in (["aisle"], ["dept"], ["aisle", "rank"], ["aisle", "dept"]):
        expected = np.all([inside[name] for name in some], axis=0) & (rank > 0.1 if with_base else True)
        where = {name: asked[name] for name in some}
        for _ in range(4):
            mask = filters.eligible(where, base).mask
            assert mask is not None
            assert mask.empty == (not expected.any())
            for first, last in np.sort(rng.integers(0, n + 1, (5, 2)), axis=1).tolist():
                assert mask.count(first, last) == expected[first:last].sum()
            assert np.array_equal(np.flatnonzero(expected), mask.positions())
            assert mask.total == expected.sum()


def test_a_tree_may_know_fewer_arms_than_the_attributes() -> None:
    table = AttributeTable({"price": Column.of([3, 1, 2, 9, 0])})
    tree = Tree(np.array([-1, 0, 0], np.int32), np.array([1, 2, 1], np.int32))
    found = Filters(table, tree).eligible({"price": {"<=": 2}}).mask
    assert found is not None
    assert sorted(tree.arm_at[found.positions()].tolist()) == [1, 2]
    assert matching(AttributeTable({"price": Column.of([3])}), {"price": 3}, 4).tolist() == [0]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ({"colour": "red"}, "no attribute 'colour'; it has brand, category, in_stock, price"),
        ({"price": "cheap"}, "attribute 'price' is a number; 'cheap' is none"),
        ({"price": {"<": "cheap"}}, "'price' < 'cheap': it is a number, and compared with finite ones only"),
        ({"brand": {"<": 3}}, "only numbers have an order; it is a text"),
        ({"price": {"=<": 3}}, "is no comparison"),
        ({"price": {}}, "is no comparison"),
        ({"price": None}, "attribute 'price' is a number; None is none"),
        ({"price": float("nan")}, "attribute 'price' is a number; nan is none"),
        ({"price": {"<": float("inf")}}, "it is a number, and compared with finite ones only"),
        ({"in_stock": 1}, "attribute 'in_stock' is a flag; 1 is none"),
        ({"sets": "sale"}, "there is no set 'sale'; there are none at all"),
        ({"sets": 3}, "a list of names, not 3"),
    ],
)
def test_what_no_attribute_can_meet_is_refused(where: Any, why: str) -> None:
    table = table_of(made_up(0))
    with pytest.raises(ValueError, match=why):
        Filters(table, flat()).eligible(where)


def test_decisions_keep_to_their_conditions_and_are_replayed_and_judged_exactly(tmp_path: Path) -> None:
    shop, values = shop_of(tmp_path / "shop")
    rng = np.random.default_rng(1)
    cheap: dict[str, Any] = {"in_stock": True, "price": {"<=": 20}}
    with shop:
        shop.set_arms("sale", [f"s{i}" for i in range(0, N, 3)])
        for i in range(60):
            if i == 30:
                shop.set_attributes([f"s{j}" for j in range(100)], {"in_stock": [False] * 100})
                shop.set_arms("sale", ["s200", "s201", "s202", "s203", "s204", "s205"])
                shop.remove_arms(["s203"])
                values["in_stock"][:100] = [False] * 100
            where = cheap | ({"sets": "sale"} if i % 2 else {})
            lists: dict[str, Any] = {"exclude": ["s120", "s204"]} if i % 3 else {}
            if i % 3 == 2:
                lists = {"eligible": [f"s{j}" for j in range(90, N)]}
            try:
                served = shop.decide(rng.normal(size=6), f"v{i}", where=where, **lists)
            except NoEligibleArm:
                continue
            for arm in served.arms:
                at = int(str(arm)[1:])
                assert values["in_stock"][at] is True
                assert values["price"][at] <= 20
                assert arm not in lists.get("exclude", ())
                assert arm in lists.get("eligible", served.arms)
                if i % 2:
                    assert at % 3 == 0 if i < 30 else arm in ("s200", "s201", "s202", "s204", "s205")
            shop.reward(f"v{i}", {served.arms[0]: float(i % 4 == 0)})
        events = [event for event in (f"v{i}" for i in range(60)) if shop.log.event(event) is not None]
        assert len(events) > 50
        for event in events:
            assert same_decision(*shop.replay(event)), event
            logged = shop.event(event).event
            assert logged.eligible.startswith("?{")
            filtered = shop.logged_sets()(logged.eligible)
            assert filtered is not None
            eligible = filtered[~shop.snapshot.arms.removed_after(logged.removals)[filtered]]
            given = logged_context(shop, logged)
            again = shop.snapshot.policy()[0].probability(shop.snapshot.model, given, logged.arms, eligible=eligible)
            np.testing.assert_array_equal(again.slots[: len(logged.arms)], logged.propensities)
        judged = treetop.evaluate(shop.folder.path, ["strategy=greedy"])
        assert judged.rounds == len(events)
        assert not judged.differing


def logged_context(shop: Bandit, event: treetop.Event) -> NDArray[np.float32]:
    x = np.zeros((1, shop.snapshot.model.n_features), np.float32)
    x[0, event.index] = event.value
    return x


def test_the_same_request_again_gets_the_logged_answer_whatever_has_changed(tmp_path: Path) -> None:
    shop, _ = shop_of(tmp_path / "shop")
    with shop:
        x = np.ones(6)
        first = shop.decide(x, "v1", where={"price": {"<=": 20}, "in_stock": True})
        shop.set_attributes(first.arms, {"in_stock": [False] * len(first.arms)})
        assert shop.decide(x, "v1", where={"in_stock": True, "price": {"<=": 20}}) == first
        with pytest.raises(EventConflict):
            shop.decide(x, "v1", where={"in_stock": True})
        with pytest.raises(EventConflict):
            shop.decide(x, "v1")


def test_conditions_are_written_in_one_way() -> None:
    assert canonical_where({"b": {"x", "y"}, "a": np.float64(2)}) == '{"a":2.0,"b":["x","y"]}'
    assert json.loads(canonical_where({"price": {"<": 3}})) == {"price": {"<": 3}}
    for wrong in ({"price": object()}, 3):
        with pytest.raises((ValueError, TypeError), match="where"):
            canonical_where(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at most 1024"):
        Column.of(["x" * 1025])
    assert Column.of(["a > b", None], CATEGORY).words == ("a > b",)


def test_numbers_of_any_kind_and_size() -> None:
    columns = {"price": Column.of([1.0, 2.0, 3.0], "number")}
    assert matching(AttributeTable(columns), {"price": {"<=": np.int64(2)}}, 3).tolist() == [0, 1]
    for huge in ({"<=": 10**400}, 10**400):
        with pytest.raises(ValueError, match="price"):
            matching(AttributeTable(columns), {"price": huge}, 3)


def test_what_leaves_nothing_is_named(tmp_path: Path) -> None:
    teas = Catalogue(["mint", "rose", "jam"], attributes={"price": [4.5, 6, 9], "in_stock": [True, True, False]})
    with Bandit.create(tmp_path / "tea", teas) as tea:
        where = {"price": {">": 8}, "in_stock": True}
        with pytest.raises(NoEligibleArm) as nothing:
            tea.decide({}, where=where, exclude=["mint"])
        assert str(nothing.value) == (
            "none of the arms that the request allows can be shown; of 3 arms, in_stock true leaves 2, "
            'price {">": 8} leaves 1, the request\'s list leaves 2'
        )
        tea.remove_arms(["mint", "rose", "jam"])
        with pytest.raises(NoEligibleArm, match=r"of 3 arms, without those that were removed$"):
            tea.decide({})
