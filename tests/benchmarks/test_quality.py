"""The script that asks how many labelled rows a stream was worth, in small and with a stand-in for PECOS."""

import json
import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scripts import script

import treetop
from treetop.arrays import as_rows
from treetop.bench.peers import runner
from treetop.data.datasets import Stream
from treetop.experiments.execute import execute
from treetop.experiments.settings import Plan, Settings

cells = script("cells")
labelled = script("labelled")
quality = script("quality")

SMALL = "synthetic:arms=400,features=300,rows=1300,init=300,nonzeros=20,labels=3"
CURVE = {5_000: 1.0, 10_000: 2.0, 20_000: 2.5, 40_000: 2.6}


class Popular:
    """Stands in for PECOS: the arms with most labels, whatever the context. Remembers what it was given."""

    def __init__(self) -> None:
        self.trained: list[Any] = []
        self.asked: list[Any] = []

    def train(self, X: Any, Y: Any) -> None:
        self.trained.append((X, Y))

    def top(self, X: Any, k: int) -> Any:
        self.asked.append(X)
        counts = np.bincount(self.trained[-1][1].index, minlength=400)
        return np.tile(np.argsort(-counts, kind="stable")[:k].astype(np.int32), (len(X), 1))


class Stands:
    """Where quality starts PECOS."""

    @staticmethod
    def started(where: Any, threads: int) -> Any:
        return nullcontext(Popular())


@pytest.fixture(scope="module")
def experiment() -> Any:
    return quality.Experiment.of(treetop.load(SMALL), 300, None, "default")


@pytest.fixture
def short_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quality, "START", 500)


def blank() -> Any:
    return cells.Cells(None, [], [], "abc1234")


def same(a: Any, b: Any) -> bool:
    return bool(a.csr().shape == b.csr().shape and (a.csr() != b.csr()).nnz == 0)


# -------------------- what treetop plays


def test_the_stream_is_that_of_simulate(experiment: Any) -> None:
    settings = Settings("budgeted", learner="treetop", init=300, max_leaf=10)
    record = execute(None, Plan(SMALL, (settings,), (3,)), dataset=experiment.dataset)[0]
    played = experiment.play("stream", 3)
    assert played.checksum == record.checksum
    assert (played.rounds, len(played.settings["refits"]) > 20) == (1300, True)


@pytest.mark.usefixtures("short_start")
def test_the_start_is_the_beginning_of_the_stream_without_a_refit(experiment: Any) -> None:
    played = experiment.play("start", 3)
    assert (played.rounds, played.settings["refits"]) == (500, [])
    assert (experiment.stream(3, 500).rows == experiment.stream(3, 1300).rows[:500]).all()


@pytest.mark.parametrize("rounds", [7, 199, 1000, 1300])
def test_the_last_fifth_is_that_of_a_record(experiment: Any, rounds: int) -> None:
    """Greedy and without a refit every round can be asked again: the mean over these rounds is the record's."""
    short = quality.Experiment.of(experiment.dataset, 300, rounds, "greedy")
    settings = Settings("greedy", learner="treetop", init=300, max_leaf=10, horizon=rounds, first_epoch=rounds + 1)
    record = execute(None, Plan(SMALL, (settings,)), dataset=short.dataset)[0]
    part = labelled.last_fifth(rounds)
    before = quality.Experiment.of(experiment.dataset, 300, part.start, "greedy")
    assert rounds - part.start == pytest.approx(max(1, rounds / 5), abs=1)
    settings = Settings("greedy", learner="treetop", init=300, max_leaf=10, horizon=part.start, first_epoch=rounds + 1)
    first = execute(None, Plan(SMALL, (settings,)), dataset=before.dataset)[0]
    late = record.mean_reward * rounds - first.mean_reward * part.start
    assert record.late_reward == pytest.approx(late / (rounds - part.start), abs=1e-6)


# -------------------- the rows that PECOS may learn from


def test_labelled_rows_are_the_initialisation_set_and_then_the_stream(experiment: Any) -> None:
    stream = experiment.stream(1, 1300)
    X, Y = labelled.labelled_rows(stream, 300)
    assert same(X, stream.X_init)
    assert same(Y, stream.Y_init)
    X, Y = labelled.labelled_rows(stream, 420)
    assert (X.csr()[:300] != stream.X_init.csr()).nnz == 0
    assert (X.csr()[300:] != stream.X.csr()[:120]).nnz == 0
    assert (Y.csr()[300:] != experiment.dataset.Y.csr()[stream.rows[:120]]).nnz == 0
    assert same(labelled.labelled_rows(stream, 50)[0], stream.X_init.slice(0, 50))


def test_rows_of_the_last_fifth_are_not_learned(experiment: Any) -> None:
    stream = experiment.stream(1, 1300)
    assert len(labelled.labelled_rows(stream, 300 + 1040)[0]) == 1340
    assert labelled.labelled_rows(stream, 300 + 1041) is None


def test_a_row_that_comes_again_is_learned_once_and_not_if_it_is_judged() -> None:
    """Row r has the one feature r, so that it can be told from the others."""
    X, Y = np.eye(40, dtype=np.float32), np.ones((40, 6), np.float32)
    dataset = treetop.Dataset("told apart", as_rows(X), as_rows(Y, what="labels"))
    stream = Stream.draw(dataset, 10, 60, 0)
    judged = set(stream.rows[48:].tolist())
    free = list(dict.fromkeys(row for row in stream.rows.tolist() if row not in judged))
    found = labelled.labelled_rows(stream, 10 + len(free))
    assert len(free) < 48
    assert found[0].index[10:].tolist() == free
    assert labelled.labelled_rows(stream, 11 + len(free)) is None


# -------------------- the curve


def test_worth_is_linear_in_the_logarithm_of_rows() -> None:
    assert labelled.worth(1.5, CURVE) == pytest.approx(math.sqrt(5_000 * 10_000))
    assert labelled.worth(2.25, CURVE) == pytest.approx(10_000 * math.sqrt(2))
    assert labelled.worth(2.575, CURVE) == pytest.approx(20_000 * 2**0.75)
    assert [labelled.worth(reward, CURVE) for reward in CURVE.values()] == pytest.approx(list(CURVE))


def test_worth_has_ends() -> None:
    assert labelled.worth(0.99, CURVE) == -math.inf
    assert labelled.worth(2.61, CURVE) == math.inf
    assert labelled.worth_in_words(0.99, CURVE) == "below 5,000"
    assert labelled.worth_in_words(2.61, CURVE) == "beyond 40,000"
    assert labelled.worth_in_words(2.25, CURVE) == "14,142"
    assert labelled.worth_in_words(3.0, {5_000: 1.0, 10_000: 2.0}) == "beyond 10,000"


def test_a_curve_that_falls_counts_where_it_first_comes_up_to_the_reward() -> None:
    falls = {100: 1.0, 200: 2.0, 400: 1.5, 800: 2.5}
    assert labelled.worth(1.75, falls) == pytest.approx(100 * 2**0.75)
    assert labelled.worth(2.25, falls) == pytest.approx(400 * 2**0.75)


def test_a_fake_curve_in_the_table(experiment: Any) -> None:
    """Two seeds: means of 2.25 in a curve of 1, 2, 2.5, 2.6. A third was not asked for."""
    made = blank()
    for seed, shift in ((1, -0.25), (2, 0.25), (9, 7.0)):
        late = {"mean_reward": 1.0, "late_reward": 2.25 + shift, "seed": seed}
        made.cells.append(quality.treetop_facts(made, experiment, "stream") | late)
        for n, reward in CURVE.items():
            facts = quality.pecos_facts(experiment, n, "last fifth")
            made.cells.append(facts | {"mean_reward": reward - shift, "seed": seed})
    found = quality.summary(made, experiment, [1, 2], tuple(CURVE))
    assert found["worth"] == "14,142"
    assert found["last_fifth"] == {1: 2.0, 2: 2.5}
    assert quality.summary(made, experiment, [1, 2], (*CURVE, 80_000))["worth"] == "14,142"
    assert quality.summary(made, experiment, [1, 2], (5_000, 10_000))["worth"] == "beyond 10,000"
    assert quality.summary(made, experiment, [3], tuple(CURVE))["worth"] == "-"


def test_only_seeds_that_both_have_are_compared(experiment: Any) -> None:
    made = blank()
    late = {"mean_reward": 1.0, "late_reward": 2.25, "seed": 1}
    made.cells.append(quality.treetop_facts(made, experiment, "stream") | late)
    for n, reward in CURVE.items():
        for seed, more in ((1, 0.0), (2, 100.0)):
            facts = quality.pecos_facts(experiment, n, "last fifth")
            made.cells.append(facts | {"mean_reward": reward + more, "seed": seed})
    found = quality.summary(made, experiment, [1, 2], tuple(CURVE))
    assert found["worth"] == "14,142"
    assert quality._mean(found["last_fifth"], [1, 2]) == "2.250 (seeds 1)"


# -------------------- PECOS


@pytest.mark.usefixtures("short_start")
def test_pecos_learns_and_is_judged_on_the_rows_it_should(experiment: Any, capsys: Any) -> None:
    made, model, stream = blank(), Popular(), experiment.stream(4, 1300)
    quality.play_pecos(made, experiment, 4, (300, 600, 5_000), model)
    assert [len(X) for X, _ in model.trained] == [300, 600]
    assert same(model.trained[0][0], stream.X_init)
    start, late, later = model.asked
    assert same(start, stream.X.slice(0, 500))
    assert same(late, stream.X.slice(1040, 1300))
    assert same(later, late)
    assert [(cell["part"], cell["rows"]) for cell in made.cells] == [
        ("pecos, start", 300),
        ("pecos, last fifth", 300),
        ("pecos, last fifth", 600),
    ]
    counts = np.bincount(stream.Y_init.index, minlength=400)
    best = np.argsort(-counts, kind="stable")[:5]
    hits = experiment.dataset.Y.csr()[stream.rows[:500]][:, best].sum() / 500
    assert hits > 0
    assert made.cells[0]["mean_reward"] == pytest.approx(hits, abs=1e-6)
    quality.play_pecos(made, experiment, 4, (300, 600, 5_000), model)
    assert (len(model.trained), len(made.cells)) == (2, 3)


def test_arms_that_pecos_does_not_name_bring_nothing(tmp_path: Path, experiment: Any) -> None:
    class Answers:
        def ask(self, do: str, **arguments: Any) -> list[list[int]]:
            return [[int(labels.index[labels.start[0]])], []]

    labels = experiment.dataset.Y
    rows = np.array([0, 1])
    arms = labelled.Pecos(Answers(), tmp_path).top(experiment.dataset.X.slice(0, 2), 3)
    assert arms[:, 1:].tolist() == [[-1, -1], [-1, -1]]
    assert experiment.reward(rows, arms) == pytest.approx(labels.value[labels.start[0]] / 2)


@pytest.mark.skipif(runner() is None, reason="the peers are not set up (make bench-peers)")
def test_pecos_itself_learns(experiment: Any) -> None:
    """Trained on the rows that it is asked for, it does better than popularity does."""
    where = runner()
    assert where is not None
    X, Y, popular = experiment.dataset.X, experiment.dataset.Y, Popular()
    popular.train(X, Y)
    with labelled.Pecos.started(where, 1) as model:
        model.train(X, Y)
        arms = model.top(X, 5)
    rows = np.arange(len(X))
    assert arms.shape == (1300, 5)
    assert experiment.reward(rows, arms) > 1.5 * experiment.reward(rows, popular.top(X, 5)) > 0


# -------------------- the command


def call(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.setattr(sys, "argv", [quality.__file__, *words])
    quality.main()
    return str(capsys.readouterr().out)


@pytest.mark.usefixtures("short_start")
def test_without_pecos_its_columns_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(quality, "runner", lambda: None)
    out = tmp_path / "made" / "quality.json"
    words = [SMALL, "--init", "300", "--seed", "1", "--rows", "600,300", "--json", str(out)]
    text = call(words, monkeypatch, capsys)
    assert text.count("make bench-peers") == 1
    document = json.loads(out.read_text())
    assert [(cell["part"], cell["seed"]) for cell in document["cells"]] == [("start", 1), ("stream", 1)]
    assert document["machine"]
    assert document["commands"] == [f"python benchmarks/quality.py {' '.join(words)}"]
    start, stream = document["cells"]
    row = next(line for line in text.splitlines() if "1,300" in line)
    assert row.split()[-6:] == [f"{start['mean_reward']:.3f}", "-", f"{stream['late_reward']:.3f}", "-", "-", "-"]
    assert document["table"][0]["worth"] == "-"


@pytest.mark.usefixtures("short_start")
def test_the_whole_table_with_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(quality, "runner", lambda: (Path("python"), Path("script")))
    monkeypatch.setattr(quality, "Pecos", Stands)
    words = [SMALL, "--init", "300", "--seed", "1", "--seed", "2", "--rows", "300,600,5000"]
    text = call(words, monkeypatch, capsys)
    row = next(line for line in text.splitlines() if "1,300" in line).split()
    assert row[-2:] == ["beyond", "600"]
    assert row[-3] == "-"
    assert all(0 < float(cell) < 5 for cell in row[-8:-3])
    assert "bench-peers" not in text


@pytest.mark.usefixtures("short_start")
def test_what_a_commit_has_played_is_not_played_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(quality, "runner", lambda: (Path("python"), Path("script")))
    monkeypatch.setattr(quality, "Pecos", Stands)
    out, opened = tmp_path / "quality.json", cells.Cells.opened
    words = [SMALL, "--init", "300", "--seed", "1", "--rows", "300", "--only", "start", "--only", "pecos"]

    def parts(commit: str) -> list[tuple[str, str]]:
        monkeypatch.setattr(quality.Cells, "opened", lambda path, argv: replace(opened(path, argv), commit=commit))
        call([*words, "--json", str(out)], monkeypatch, capsys)
        return [(cell["part"], cell["commit"]) for cell in json.loads(out.read_text())["cells"]]

    pecos = [("pecos, start", "one+"), ("pecos, last fifth", "one+")]
    assert parts("one+") == [("start", "one+"), *pecos]
    assert parts("two") == [*pecos, ("start", "two")]
    assert parts("two") == [*pecos, ("start", "two")]
    assert parts("three") == [*pecos, ("start", "two"), ("start", "three")]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--rows", "5000,0"], "rows is 0"),
        (["--rows", "5000,many"], "5000,many"),
        (["--init", "301"], r"init is 301; it must lie in [1, 300]"),
        (["--horizon", "0"], "horizon is 0"),
        (["--strategy", "best"], "'best'"),
        (["--only", "all"], "all"),
    ],
)
def test_wrong_words_name_value_and_limit(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(sys, "argv", [quality.__file__, SMALL, "--init", "300", *words])
    with pytest.raises(SystemExit):
        quality.main()
    assert says in capsys.readouterr().err
