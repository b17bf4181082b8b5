"""The sparse truth of the realizable experiment: against a slow dense twin, resumed, and from the command line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import reference
from helpers.commands import call
from helpers.datasets import K, easy_plan, made_up, play_realizable

import treetop
from treetop import _core
from treetop.arrays import Floats, Rows, as_rows
from treetop.experiments import execute, realizable
from treetop.experiments.realizable import DenseTruth, NoisyRewards, fit_truth, load_or_fit
from treetop.experiments.settings import Plan
from treetop.experiments.truth import SparseTruth, label_hits, transposed
from treetop.paper import run_cache
from treetop.paper.reproduce import reproduce
from treetop.paper.run_cache import RunCache
from treetop.report.sections import Section
from treetop.simulation.play import first_model

KEPT = 6


def random_dataset(rng: np.random.Generator, n: int = 90, d: int = 14, arms: int = 25) -> treetop.Dataset:
    """Rows without features and arms without labels among them; labels of any weight."""
    X = np.where(rng.random((n, d)) < 0.3, rng.normal(size=(n, d)), 0)
    Y = np.where(rng.random((n, arms)) < 0.1, rng.choice([0.5, 1.0], (n, arms)), 0)
    X[:3], Y[:, :2] = 0, 0
    return treetop.Dataset("random", as_rows(X), as_rows(Y, what="labels"))


def plain(data: treetop.Dataset) -> tuple[Floats, Floats]:
    X, Y = (rows.csr().toarray().astype(np.float64) for rows in (data.X, data.Y))
    return X, Y


def every_mean(truth: SparseTruth) -> Floats:
    """All mean rewards, the plain way."""
    X, _ = plain(truth.dataset)
    return np.asarray(np.hstack([X, np.ones((len(X), 1))]) @ truth.weights.csr().toarray().astype(np.float64).T)


@pytest.fixture(scope="module")
def truth() -> SparseTruth:
    return SparseTruth.fit(made_up(), kept=KEPT)


@pytest.mark.parametrize("ridge", [0.5, 3.0])
@pytest.mark.parametrize("kept", [1, 4, 14])
@pytest.mark.parametrize("seed", range(3))
def test_weights_are_those_of_the_slow_twin(seed: int, kept: int, ridge: float) -> None:
    data = random_dataset(np.random.default_rng(seed))
    X, Y = plain(data)
    found = SparseTruth.fit(data, ridge, kept).weights.csr().toarray()
    want = [reference.few_least_squares(X, y, ridge, kept) for y in Y.T]
    np.testing.assert_allclose(found, want, atol=1e-5)
    assert (found[:2] == 0).all(), "arms without labels have no weights"
    assert ((found[2:, :-1] != 0).sum(axis=1) <= kept).all()


def test_with_all_features_kept_it_is_the_dense_truth() -> None:
    rng = np.random.default_rng(5)
    X, Y = rng.normal(size=(60, 8)), rng.random((60, 10)) < 0.3  # no feature is 0: each is a feature of every arm
    data = treetop.Dataset("dense", as_rows(X), as_rows(Y, what="labels"))
    np.testing.assert_allclose(
        SparseTruth.fit(data, kept=8).weights.csr().toarray().T, DenseTruth.fit(data).weights, atol=1e-5
    )


def test_the_same_on_any_number_of_threads_and_with_somebody_looking_on() -> None:
    data = treetop.load("synthetic:arms=2000,features=300,rows=900,init=10")
    seen: list[tuple[int, int]] = []
    one, four = SparseTruth.fit(data, threads=1), SparseTruth.fit(data, threads=4, progress=lambda *n: seen.append(n))
    for a, b in zip(one.arrays().values(), four.arrays().values(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert seen[-1] == (2000, 2000)
    with pytest.raises(ZeroDivisionError):
        SparseTruth.fit(data, progress=lambda *n: 1 / 0)


def test_means_and_best_arms_are_those_of_the_dense_product(truth: SparseTruth) -> None:
    every = every_mean(truth)
    rows = np.random.default_rng(0).integers(0, 1200, 700)
    arms = np.random.default_rng(1).integers(-1, 60, (700, 4)).astype(np.int32)
    want = np.where(arms >= 0, every[rows[:, None], np.maximum(arms, 0)], np.nan)
    np.testing.assert_allclose(truth.means(rows, arms), want, atol=1e-12)
    ranked = np.sort(every[rows], axis=1)[:, ::-1][:, :3]  # arms may tie: their means tell
    np.testing.assert_allclose(truth.means(rows, truth.best_arms(rows, 3)), ranked, atol=1e-6)
    for k in (3, 60):
        np.testing.assert_allclose(truth.best(k), np.sort(every, axis=1)[:, -k:].sum(axis=1), atol=1e-5)
    assert truth.means(rows[:0], arms[:0]).shape == (0, 4)
    assert truth.best_arms(rows[:0], 3).shape == (0, 3)


def test_regret_is_that_of_the_dense_twin(truth: SparseTruth) -> None:
    every = every_mean(truth)
    rows = np.random.default_rng(0).integers(0, 1200, 900)
    arms = np.array([np.random.default_rng(i).permutation(60)[:K] for i in range(900)], np.int32)
    world = NoisyRewards(truth, truth.best(K))
    best = np.sort(every[rows], axis=1)[:, -K:].sum(axis=1)
    want = best - np.take_along_axis(every[rows], arms, axis=1).sum(axis=1)
    regret, oracle = world.regret(rows, arms), world.regret(rows, truth.best_arms(rows, K))
    assert regret is not None
    assert oracle is not None
    np.testing.assert_allclose(regret, want, atol=1e-5)
    assert regret.min() > -1e-5
    assert regret.max() > 0.1
    np.testing.assert_allclose(oracle, 0, atol=1e-9)
    noise = world.rewards(rows, arms, 0) - truth.means(rows, arms)
    assert 0.09 < noise.std() < 0.11


def test_hits_count_the_labels_among_the_best(truth: SparseTruth) -> None:
    _, Y = plain(truth.dataset)
    best = truth.best_arms(np.arange(1200), K)
    assert label_hits(truth, K) == pytest.approx((np.take_along_axis(Y, best, axis=1) > 0).sum() / 1200)
    assert label_hits(truth, K) > 4 * K * Y.mean(), "it knows nothing of the labels"
    assert 0 < label_hits(truth, K, most=50) <= K


def test_transposed_is_the_transposed_matrix() -> None:
    rows = made_up(80).X
    found = transposed(rows)
    np.testing.assert_array_equal(found.csr().toarray(), rows.csr().toarray().T)
    assert _core.inspect_rows(found.start, found.index, found.value, found.columns, "columns")


def test_the_dense_truth_is_taken_where_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made_up()
    assert isinstance(fit_truth(data), DenseTruth)
    np.testing.assert_array_equal(np.asarray(fit_truth(data).arrays()["weights"]), DenseTruth.fit(data).weights)
    monkeypatch.setattr(realizable, "LARGEST_FIT", realizable.dense_bytes(data) - 1)
    assert isinstance(fit_truth(data), SparseTruth)


def test_what_cannot_be_is_refused_with_numbers(truth: SparseTruth) -> None:
    one = as_rows([[1.0], [1.0]])
    many = Rows(np.zeros(3, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 20_000_000)
    with pytest.raises(ValueError, match="20000000 arms of 50 weights and a bias are 8,160,000,000 bytes; at most 4,"):
        SparseTruth.fit(treetop.Dataset("many arms", one, many))
    data = made_up(50)
    with pytest.raises(ValueError, match=r"kept is 0; it must lie in \[1, 4096\]"):
        SparseTruth.fit(data, kept=0)
    with pytest.raises(ValueError, match="ridge is -1"):
        SparseTruth.fit(data, ridge=-1)
    twice = treetop.Dataset("twice", as_rows(np.full((9, 2), 1e4)), as_rows(np.eye(9, 1), what="labels"))
    with pytest.raises(ValueError, match=r"arm 0: a ridge of .* is lost in rounding; it must be larger"):
        SparseTruth.fit(twice, ridge=1e-9)
    with pytest.raises(ValueError, match=r"k is 61; it must lie in \[1, 60\]"):
        truth.best_arms(np.arange(3), 61)
    for rows, arms, wrong in (([1200], [[0]], "row is 1200"), ([-1], [[0]], "row is -1"), ([0], [[60]], "arm is 60")):
        with pytest.raises(ValueError, match=wrong):
            truth.means(np.array(rows), np.array(arms, np.int32))


def test_where_the_dense_truth_is_too_large_regret_is_against_the_sparse_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizable, "LARGEST_FIT", 0)
    assert isinstance(fit_truth(made_up()), SparseTruth)
    (record,) = play_realizable(easy_plan(["igw"], beams=[None]), made_up())
    assert record.regret_checkpoints is not None
    assert record.regret_checkpoints[-1][1] > 0


def test_the_truth_is_kept_in_a_file_and_taken_from_it(truth: SparseTruth, tmp_path: Path) -> None:
    path, data = tmp_path / "truth.npz", made_up()
    _, best = load_or_fit(path, data, lambda: truth, K)
    with np.load(path) as kept:
        assert sorted(kept) == ["best", "index", "start", "value"]

    def refused() -> SparseTruth:
        raise AssertionError("the truth of before is used")

    again, same = load_or_fit(path, data, refused, K)
    assert isinstance(again, SparseTruth)
    np.testing.assert_array_equal(again.weights.csr().toarray(), truth.weights.csr().toarray())
    np.testing.assert_array_equal(same, best)


def test_over_all_arms_routing_weights_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made_up()
    settings: dict[str, Any] = {"horizon": 900, "init": 200, "max_leaf": 4, "first_epoch": 64, "beam": None}
    plan = Plan.of("made up", ["igw", "boltzmann", "epsilon", "greedy"], **settings)
    without = execute.execute(None, plan, dataset=data)
    monkeypatch.setattr(execute, "_without_routing", lambda model: model)
    routed = execute.execute(None, plan, dataset=data)
    assert [replace(r, seconds=0) for r in without] == [replace(r, seconds=0) for r in routed]


def test_one_tree_serves_all_runs_of_a_seed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[int] = []

    def counted(stream: treetop.Stream, max_leaf: int, seed: int, tree: Any) -> Any:
        built.append(seed)
        return first_model(stream, max_leaf, seed, tree)

    monkeypatch.setattr(execute, "first_model", counted)
    spec = "synthetic:arms=150,features=40,rows=200,init=100,nonzeros=8"
    RunCache((spec,), (0, 1), tmp_path, quick=True, horizon=100).realizable(spec)
    assert built == [0, 1, 0, 1], "over all arms, then with a beam"


def test_the_command_plays_every_dataset_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realizable, "LARGEST_FIT", 0)
    monkeypatch.setattr(run_cache, "REALIZABLE_PRODUCTS", 60_000)
    specs = {arms: f"synthetic:arms={arms},features=40,rows=200,init=100,nonzeros=8" for arms in (150, 300)}
    words = [
        "--quick",
        "--horizon",
        "100",
        "--flat-horizon",
        "40",
        "--out",
        str(tmp_path),
        "--seed",
        "0",
        "--seed",
        "1",
    ]
    words += [word for spec in specs.values() for word in ("--data", spec)]
    call("reproduce", "realizable", *words)
    found = Section.load(tmp_path / "realizable.json")
    made = {arms: treetop.load(spec).X for arms, spec in specs.items()}
    flat = [min(40, 60_000 // round(arms * round(len(X.value) / len(X), 2))) for arms, X in made.items()]
    assert [(row["arms"], row["variant"], row["rounds"]) for row in found.data["variants"]] == [
        (150, "all arms", flat[0]),
        (150, "beam 10", 100),
        (300, "all arms", flat[1]),
        (300, "beam 10", 100),
    ]
    assert flat[1] < flat[0] == 40
    assert "--horizon 100 --flat-horizon 40" in (tmp_path / "reproduce.json").read_text()
    played = found.tables[0].records()
    assert [row["weights of an arm's truth"] for row in played] == ["50 and a bias"] * 2
    assert all(0 < float(row["labels among the truth's best 5"]) <= 5 for row in played)
    assert "synthetic, 300 arms, beam 10" in [table.title for table in found.tables]
    verdicts = json.loads((tmp_path / "verdicts.json").read_text())
    (regret,) = (row for row in verdicts if "lowest regret" in row["claim"])
    assert all("all arms: " in regret[f"synthetic, {arms} arms"] for arms in (150, 300))
    assert not list(tmp_path.rglob("*-truth.npz")), "the weights are needed no more"
    kept = {path: path.read_bytes() for path in tmp_path.rglob("runs.jsonl")}
    monkeypatch.setattr(SparseTruth, "fit", None)  # what is known of the truth is in a file
    call("reproduce", "realizable", *words)
    assert {path: path.read_bytes() for path in tmp_path.rglob("runs.jsonl")} == kept


def test_unasked_only_the_easiest_set_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = tuple(f"synthetic:arms={arms},features=40,rows=200,init=100,nonzeros=8" for arms in (170, 150))
    monkeypatch.setattr(run_cache, "QUICK_DATA", specs)
    monkeypatch.setattr(run_cache, "climb", lambda strategy, score, size: {})  # no tuning
    unasked = RunCache(specs, (0,), tmp_path / "unasked", quick=True, horizon=60)
    (section,) = reproduce(unasked, ["realizable"])
    assert {row["arms"] for row in section.data["variants"]} == {150}
    both = RunCache(specs[::-1], (0,), tmp_path / "both", quick=True, horizon=60)
    assert both.easiest() == specs[1]
    (section,) = reproduce(both, ["realizable"])
    assert [row["arms"] for row in section.data["variants"]] == [150, 150, 170, 170]
