"""A real log of two policies (Open Bandit Dataset, campaign "men"): each estimated from the log of the other."""

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from treetop.arrays import Floats, Int64s
from treetop.evaluation.judged import Judged
from treetop.evaluation.tally import Tally
from treetop.evaluation.verdict import CandidateResult, judge

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "obd-men"
ITEMS = 34


def read(name: str) -> tuple[Int64s, Int64s, Floats, Floats]:
    """Item, position, click and propensity of every row; positions are judged one by one, there is no slate id."""
    with gzip.open(FOLDER / f"{name}.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    item, position = (np.array([int(row[key]) for row in rows]) for key in ("item_id", "position"))
    click, propensity = (np.array([float(row[key]) for row in rows]) for key in ("click", "propensity_score"))
    return item, position, click, propensity


def estimate(click: Floats, logged: Floats, target: Floats, bound: float | None = None) -> CandidateResult:
    c, nothing = click[:, None], np.zeros((len(click), 1))
    judged = Judged(
        logged[:, None], target[:, None], c, click, nothing, nothing, np.zeros((len(c), 1, 0)), nothing == 0
    )
    return judge("other", Tally.of(judged, bound), {}, estimator="snips-slate", weight_bound=bound)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the Open Bandit sample is not beside this checkout (../shared/data)")
def test_each_policy_from_the_log_of_the_other() -> None:
    item, position, click, propensity = read("random")
    other_item, other_position, other_click, other_propensity = read("bts")
    assert (click.sum(), other_click.sum()) == (46, 69)
    np.testing.assert_allclose(propensity, 1 / ITEMS, rtol=1e-6)

    uniform = estimate(other_click, other_propensity, np.full(len(other_item), 1 / ITEMS))
    assert uniform.per_visit.low <= click.mean() <= uniform.per_visit.high
    assert uniform.per_visit.value == pytest.approx(click.mean(), abs=0.004)

    # That policy is the same for every user and learns over time: on average it shows an item as often as it did.
    count = np.zeros((ITEMS, 4))
    np.add.at(count, (other_item, other_position), 1)
    target = (count / np.maximum(count.sum(axis=0), 1))[item, position]
    sampled = estimate(click, propensity, target, bound=ITEMS * float(target.max()))
    assert sampled.per_visit.low <= other_click.mean() <= sampled.per_visit.high
    assert sampled.per_visit.value == pytest.approx(other_click.mean(), abs=0.004)
    plain = estimate(click, propensity, target)
    assert sampled.per_visit.high < plain.per_visit.high, "a bound of the weights narrows the interval"
    print(f"\nuniform from bts {uniform.per_visit}, {uniform.effective:.0f} effective; on-policy {click.mean():.4f}")
    print(
        f"bts from uniform {sampled.per_visit}, {sampled.effective:.0f} effective; on-policy {other_click.mean():.4f}"
    )


@pytest.mark.skipif(not FOLDER.is_dir(), reason="the Open Bandit sample is not beside this checkout (../shared/data)")
def test_chances_that_do_not_fit_are_noticed() -> None:
    """The propensities of what was shown are larger than the mean of all: as chances they sum up to nearly 2."""
    item, position, click, propensity = read("random")
    other_item, other_position, _, other_propensity = read("bts")
    chance, count = np.zeros((ITEMS, 4)), np.zeros((ITEMS, 4))
    np.add.at(chance, (other_item, other_position), other_propensity)
    np.add.at(count, (other_item, other_position), 1)
    found = estimate(click, propensity, (chance / np.maximum(count, 1))[item, position])
    assert any("and should be 1" in note for note in found.notes)
