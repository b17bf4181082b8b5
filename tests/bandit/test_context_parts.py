"""Contexts with several parts: vectors, numbers and text by name, in the library, over HTTP and in past logs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treetop import Bandit, Catalogue, Config, PolicyConfig, TreeConfig, UnknownFeature
from treetop.bandit.config import FeatureConfig
from treetop.bandit.past_log import import_past
from treetop.bandit.past_values import PastColumns
from treetop.bandit.results import same_decision
from treetop.bandit.vocabulary import Vocabulary, part_names

PARTS: dict[str, Any] = {"vector": 4, "device": ["mobile", "desktop"], "age": None}
V = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
SETTINGS = Config(policy=PolicyConfig(k=3, explore=1), tree=TreeConfig(max_leaf=10))
CONTEXT: dict[str, Any] = {"age": 35, "device": "desktop", "vector": [0.5, 0, -1, 2.0]}
ROW = [0.5, 0, -1, 2.0, 0, 1, 35]


@pytest.fixture
def shop(tmp_path: Path) -> Any:
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features=PARTS, config=SETTINGS) as made:
        yield made


def test_what_is_misspelled_is_listed_and_has_no_say(shop: Bandit) -> None:
    wrong = {**CONTEXT, "device": "tablet", "agee": 35, "country": "DE"}
    served = shop.decide(wrong, "misspelled")
    assert served.unknown_features == ("device=tablet", "agee", "country=DE")
    assert shop.decide({"age": 35, "vector": CONTEXT["vector"]}, "misspelled").slots == served.slots  # the same request
    assert shop.decide(CONTEXT).unknown_features == shop.decide(ROW).unknown_features == ()
    assert same_decision(*shop.replay("misspelled"))
    with pytest.raises(ValueError, match="there is no vector 'vektor'"):
        shop.decide({"vektor": CONTEXT["vector"]})


def test_a_context_by_parts_is_the_row_of_its_columns(shop: Bandit) -> None:
    by_parts = shop.row(CONTEXT)
    assert by_parts.csr().toarray().tolist() == [ROW]
    as_array = {**CONTEXT, "vector": np.array(CONTEXT["vector"], np.float32)}
    slow = {**CONTEXT, "vector": tuple(CONTEXT["vector"]), "age": np.float64(35)}  # which the core leaves to Python
    for same in (shop.row(as_array), shop.row(slow), shop.row(ROW), shop.row(np.array([ROW]))):
        for name in ("start", "index", "value"):
            np.testing.assert_array_equal(getattr(same, name), getattr(by_parts, name))
    assert shop.decide(CONTEXT, "visit").arms == shop.decide(ROW, "visit").arms  # the same request
    assert same_decision(*shop.replay("visit"))
    assert len(shop.explain(CONTEXT).id) == len(shop.explain(ROW).id)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"vector": [1.0, 2.0]}, "vector 'vector' has 2 numbers; it must be a list of 4 numbers"),
        ({"vector": [[1.0, 2.0, 3.0, 4.0]]}, r"has shape \(1, 4\); it must be a list of 4 numbers"),
        ({"vector": 3.0}, "vector 'vector' is 3.0; it must be a list of 4"),
        ({"vector": "mobile"}, "vector 'vector' is 'mobile'; it must be a list of 4"),
        ({"vector": [1.0, float("nan"), 0.0, 0.0]}, "number 1 of vector 'vector' is nan; it must be finite"),
        ({"vector": [1.0, 1e39, 0.0, 0.0]}, r"value 1e\+39 is beyond the limit"),
        ({"taste": [1.0, 2.0]}, r"no vector 'taste' in a context; vectors, with their dimensions: vector \(4\)"),
        ({"age": "old"}, "feature 'age' must be a number, not 'old'"),
        ({"age": float("nan")}, "feature 'age' is nan; it must be finite"),
        ({"age": None}, "feature 'age' must be a number, not None"),
        ({"device": "mobile", "device=mobile": 1.0}, "feature 'device=mobile' is given twice"),
    ],
)
def test_bad_parts_are_refused_with_their_limits(shop: Bandit, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        shop.decide(wrong)
    assert shop.log.counts().decisions == 0


def test_an_unknown_text_is_ignored_and_counted_or_refused() -> None:
    names = part_names(PARTS)
    row, unknown = Vocabulary(7, names).named({"device": "watch", "age": 3})
    assert (row.index.tolist(), unknown) == ([6], 1)
    with pytest.raises(UnknownFeature, match=r"no feature 'device=watch'.*'device' is one of mobile, desktop"):
        Vocabulary(7, names, strict=True).named({"device": "watch"})


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"vector": 0}, "the number of dimensions of 'vector' is 0"),
        ({"vector": 2.5}, "part 'vector' is 2.5"),
        ({"device": "mobile"}, "part 'device' is 'mobile'"),
        ({"device": ["a", "a"]}, "two features are called 'device=a'"),
        ({"taste": 4, "style": 4}, "which of the vectors taste, style is compared with the items'"),
    ],
)
def test_parts_that_cannot_be(parts: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features=parts)
    assert not (tmp_path / "shop").exists()


def test_where_the_vector_is(tmp_path: Path) -> None:
    """Said by its name, the only one, or not at all; rows of numbers have it by name, too."""
    cases: list[tuple[Any, tuple[int, int]]] = [
        ({"age": None, "taste": 4}, (1, 4)),
        ({"style": 2, "vector": 4}, (2, 4)),
        ({"device": ["mobile"]}, (0, 4)),
        (None, (0, 4)),
    ]
    for i, (parts, place) in enumerate(cases):
        with Bandit.create(tmp_path / str(i), Catalogue(vectors=V), features=parts, config=SETTINGS) as made:
            assert made.snapshot.model.measure is not None
            assert made.snapshot.model.measure.place == place
            name = "taste" if i == 0 else "vector"
            assert made.row({name: [0.0, 1.0, 0.0, 0.0]}).index.tolist() == [place[0] + 1]


def test_nothing_beside_the_vector_changes_the_order_of_a_cold_bandit(shop: Bandit) -> None:
    for x in V[:20].tolist():
        plain = shop.explain({"vector": x})
        beside = shop.explain({"vector": x, "device": "mobile", "age": 1e6})
        np.testing.assert_array_equal(plain.id, beside.id)
        np.testing.assert_array_equal(plain.score, beside.score)


def test_a_past_log_has_parts(shop: Bandit, tmp_path: Path) -> None:
    np.save(tmp_path / "visitors.npy", V[:3])
    (tmp_path / "past.csv").write_text("item,clicked,who,device,age\n5,1,2,mobile,30\n6,0,0,watch,\n")
    columns = PastColumns.of("item=item,reward=clicked,context=who", features="device,age")
    found, _ = import_past(shop, tmp_path / "past.csv", columns, contexts=tmp_path / "visitors.npy")
    assert (found.decisions, found.unknown_features) == (2, 1)
    lines = [{"item": 7, "clicked": 1, "who": {"vector": V[4].tolist(), "device": "mobile"}}]
    (tmp_path / "past.jsonl").write_text("\n".join(map(json.dumps, lines)))
    import_past(shop, tmp_path / "past.jsonl", PastColumns.of("reward=clicked,context=who"))
    shop.refit()
    assert shop.snapshot.model.n_seen == 3
    (tmp_path / "bad.jsonl").write_text(json.dumps({"item": 7, "clicked": 1, "who": {"vector": [1, 2]}}))
    with pytest.raises(ValueError, match=r"bad.jsonl.*line 1.*has 2 numbers; it must be a list of 4"):
        import_past(shop, tmp_path / "bad.jsonl", PastColumns.of("reward=clicked,context=who"))


def test_strict_settings_hold_for_parts(tmp_path: Path) -> None:
    config = Config(features=FeatureConfig(strict_features=True), tree=SETTINGS.tree)
    with Bandit.create(tmp_path / "shop", Catalogue(vectors=V), features=PARTS, config=config) as made:
        with pytest.raises(UnknownFeature, match="device=watch"):
            made.decide({"device": "watch"})
        assert len(made.decide(CONTEXT).arms) == 5
