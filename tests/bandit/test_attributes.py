"""The table of attributes: what is taken into it, and what other processes and copies of a folder see of it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.attributes import shop_of

import treetop
from treetop.bandit.attributes import Column, record_of
from treetop.bandit.bandit import Bandit
from treetop.bandit.catalogue import Catalogue


def test_lists_of_numpy_values_are_like_those_of_python() -> None:
    for values in ([4.5, None, 6.0], [True, None, False], ["a", None, "b"]):
        plain = Column.of(values)
        mixed = Column.of([value if value is None else np.array([value])[0] for value in values])
        assert (mixed.kind, mixed.words) == (plain.kind, plain.words)
        assert np.array_equal(mixed.values, plain.values, equal_nan=plain.kind == "number")


def test_values_of_two_kinds_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'price': value 1 is 'x', a text; those before it are each a number"):
        Catalogue(["a", "b"], attributes={"price": [1, "x"]})
    with pytest.raises(ValueError, match="attribute 'price' has 1 values for 2 arms"):
        Catalogue(["a", "b"], attributes={"price": [1]})
    with pytest.raises(ValueError, match="no attribute can be called 'sets'"):
        Catalogue(["a"], attributes={"sets": [1]})
    with pytest.raises(ValueError, match="a category is text or a list of texts, not 5"):
        Catalogue(["a", "b"], categories=["x", 5])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="3 categories for 2 arms"):
        Catalogue(["a", "b"], categories=["x"] * 3)
    with Bandit.create(tmp_path / "shop", Catalogue(["a", "b"], attributes={"price": [1, 2]})) as shop:
        before = (tmp_path / "shop" / "attributes.bin").read_bytes()
        for arms, values, why in (
            (["a"], {"price": ["x"]}, "value 0 is 'x'; the others are numbers"),
            (["b", "a", "a"], {"price": [1, 2, 3]}, "arm 'a' is listed twice"),
            (["zz"], {"price": [1]}, "no arm 'zz'"),
        ):
            with pytest.raises((ValueError, treetop.UnknownArm), match=why):
                shop.set_attributes(arms, values)
        with pytest.raises(ValueError, match="there is no set 'sale'"):
            shop.set_arms("sale", None)
        assert (tmp_path / "shop" / "attributes.bin").read_bytes() == before


def test_another_process_sees_changes_at_its_next_decision(tmp_path: Path) -> None:
    shop, _ = shop_of(tmp_path / "shop")
    with shop, Bandit.open(tmp_path / "shop") as other:
        for arm in ("s7", "s9"):
            shop.set_attributes(["s7", "s9"], {"chosen": [arm == "s7", arm == "s9"]}, new=True)
            assert other.decide(np.ones(6), where={"chosen": True}).arms == [arm]
        shop.add_arms(["new"], np.ones((1, 6)), ["d1 > c4"], {"chosen": [True]})
        other.refresh()
        assert set(other.decide(np.ones(6), where={"chosen": True}).arms) == {"s9", "new"}
        assert other.attributes("new")["category"] == "d1 > c4"


def test_a_crash_between_attributes_and_current_leaves_the_old_ones(tmp_path: Path) -> None:
    shop, _ = shop_of(tmp_path / "shop")
    with shop:
        shop.set_attributes(["s1"], {"price": [111.0]})
    file = tmp_path / "shop" / "attributes.bin"
    whole = file.read_bytes()
    file.write_bytes(whole + record_of("price", np.array([1], np.int32), Column.of([999.0]))[:-3])
    with Bandit.open(tmp_path / "shop") as shop:
        assert shop.attributes("s1")["price"] == 111.0
        shop.set_attributes(["s1"], {"price": [222.0]})
    with Bandit.open(tmp_path / "shop") as shop:
        assert shop.attributes("s1")["price"] == 222.0
    file.write_bytes(whole[:-1] + b"?" + file.read_bytes()[len(whole) :])
    with pytest.raises(ValueError, match=r"attributes.bin: the record at byte \d+ is damaged"):
        Bandit.open(tmp_path / "shop")
    file.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match=r"bytes; \d+ were written"):
        Bandit.open(tmp_path / "shop")


def test_a_copy_whose_attributes_changed_separately_replays_nothing_wrongly(tmp_path: Path) -> None:
    with Bandit.create(tmp_path / "tea", Catalogue(["mint", "rose"], attributes={"price": [4, 6]})) as tea:
        shutil.copytree(tmp_path / "tea", tmp_path / "copy", ignore=shutil.ignore_patterns("log*"))
        tea.set_attributes(["rose"], {"price": [5]})
        tea.decide({}, "visit-1", where={"price": 5})
    with Bandit.open(tmp_path / "copy", tmp_path / "tea" / "log.sqlite") as copy:
        copy.set_attributes(["mint"], {"price": [5]})
        copy.set_attributes(["mint"], {"price": [7]})  # beyond what the decision was filtered by
        with pytest.raises(ValueError, match="the folder is a copy whose attributes changed separately"):
            copy.replay("visit-1")


def test_a_value_for_every_arm_and_for_none_else(tmp_path: Path) -> None:
    for count in (3, 10):
        arms = Catalogue(attributes={"price": list(range(count))})
        with pytest.raises(ValueError, match=f"attribute 'price': {count} values for 5 arms"):
            Bandit.create(tmp_path / "shop", arms, np.eye(5), np.eye(5))
    assert not (tmp_path / "shop").exists()


def test_an_attribute_with_a_typo_is_refused(tmp_path: Path) -> None:
    teas = Catalogue(["mint", "rose"], attributes={"price": [4.5, 6]})
    with Bandit.create(tmp_path / "tea", teas) as tea:
        with pytest.raises(ValueError, match="no attribute 'prise'; it has price; with new = true it is made"):
            tea.set_attributes(["mint"], {"prise": [5]})
        with pytest.raises(ValueError, match="no attribute 'prise'"):
            tea.add_arms(["jam"], attributes={"prise": [5]})
        assert (tea.attributes("mint"), tea.snapshot.arms.position("jam")) == ({"price": 4.5}, None)
        tea.add_arms(["jam"], attributes={"price": [5], "sweet": [True]}, new=True)
        assert tea.attributes("jam") == {"price": 5, "sweet": True}
        tea.set_attributes(["mint"], {"bio": [True]}, new=True)
        assert tea.attributes("mint") == {"price": 4.5, "sweet": None, "bio": True}
