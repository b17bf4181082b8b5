"""The scripts that switch ideas off and play unseen shapes, in small: switches do what they say, runs are kept."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.scripts import script

import treetop
from treetop.bench.timing import commit as treetop_commit
from treetop.data.synthetic import parse_spec
from treetop.experiments.execute import execute
from treetop.experiments.settings import EPOCHS, Plan, Settings
from treetop.learning.pooled import KNOTS, STEPS, Labelled, Pooled, leaves
from treetop.learning.refit import initial_fit
from treetop.policy.search import Eligible, search
from treetop.records import Feedback

cells = script("cells")
ablate = script("ablate")
shapes = script("shapes")

SMALL = "synthetic:arms=400,features=300,rows=1300,init=300,nonzeros=20,labels=3"
ROWS = {row.name: row for row in ablate.ROWS}


@pytest.fixture(scope="module")
def ground() -> Any:
    return ablate.Ground(treetop.load(SMALL))


@pytest.fixture(scope="module")
def known(ground: Any) -> Labelled:
    found: Labelled = ablate.samples(ground, True, 0, False)
    return found


@pytest.fixture(scope="module")
def model(ground: Any) -> treetop.Model:
    found: treetop.Model = ablate.initial(ground, True, 0)[1]
    return found


def shown(ground: Any, arm: int, rewards: list[float]) -> Feedback:
    """The first contexts of the stream, one slot each, always the same arm."""
    contexts = ablate.initial(ground, True, 0)[0].X.head(len(rewards))
    return Feedback(contexts, np.full((len(rewards), 1), arm), None, np.array(rewards)[:, None])


def untold(known: Labelled, model: treetop.Model) -> int:
    return int(np.flatnonzero(~known.told(model.n_arms))[0])


@pytest.mark.parametrize("scenario", ["stationary", "drift"])
def test_with_everything_on_a_run_is_that_of_simulate(ground: Any, scenario: str) -> None:
    settings = Settings("thrifty", learner="treetop", scenario=scenario)
    record = execute(None, Plan(SMALL, (settings,)), dataset=ground.dataset)[0]
    same = ablate.Ground(ground.dataset, scenario=scenario).play(ROWS["none"], "thrifty", 0)
    assert same.history.checksum() == record.checksum
    assert same.settings["refits"] == record.settings["refits"] != []


def test_refits_often_are_the_default(ground: Any) -> None:
    assert EPOCHS["treetop"] == (256, 1.05)
    coarse = ablate.Ground(ground.dataset, None, "stationary", 1024, 1.2)
    runs = [coarse.play(ROWS[name], "greedy", 0).settings["refits"] for name in ("none", "seldom", "paper")]
    assert runs == [[1024, 1229], ground.play(ROWS["seldom"], "greedy", 0).settings["refits"], []]
    assert len(ground.play(ROWS["none"], "greedy", 0).settings["refits"]) > 20


def test_the_last_row_is_the_papers(ground: Any) -> None:
    record = execute(None, Plan.of(SMALL, ["igw"]), dataset=ground.dataset)[0]
    assert ground.play(ROWS["paper"], "igw", 0).history.checksum() == record.checksum


def test_each_arm_starts_from_zero(model: treetop.Model, known: Labelled) -> None:
    with ROWS["start"].switched():
        off = initial_fit(model, Pooled(known=known))
    on = initial_fit(model, Pooled(known=known))
    assert off.prior is not None
    assert on.prior is not None
    assert not off.prior[:KNOTS].any()
    assert on.prior[0] > 0


def test_rounds_count_for_the_pooled_means(ground: Any, model: treetop.Model, known: Labelled) -> None:
    told = int(known.arm[known.reward > 0][0])
    made = {}
    for name in ("none", "means"):
        with ROWS[name].switched():
            refits = [Pooled(known=known).learn(model, shown(ground, told, [reward] * 200)) for reward in (0.0, 1.0)]
        made[name] = [refit.prior[:KNOTS] for refit in refits if refit.prior is not None]
    np.testing.assert_array_equal(made["none"][0], made["none"][1])
    assert (made["means"][1] >= made["means"][0]).all()
    assert made["means"][1].sum() > made["none"][0].sum() > made["means"][0].sum()


def test_found_arms_stay_apart(ground: Any, model: treetop.Model, known: Labelled) -> None:
    arm = untold(known, model)
    feedback = shown(ground, arm, [1.0] * 3)
    with ROWS["moves"].switched():
        stays = Pooled(known=known).learn(model, feedback).tree
    moves = Pooled(known=known).learn(model, feedback).tree
    told = np.isin(np.arange(model.n_arms), np.flatnonzero(known.told(model.n_arms)))
    assert not told[stays.arms_below(int(stays.leaf_of[arm]))].any()
    assert told[moves.arms_below(int(moves.leaf_of[arm]))].any()


@pytest.mark.parametrize(("name", "kept"), [("none", True), ("hall", False), ("moves", False)])
def test_nobody_is_in_the_hall(ground: Any, model: treetop.Model, known: Labelled, name: str, kept: bool) -> None:
    arm = untold(known, model)
    with ROWS[name].switched():
        made = Pooled(known=known).learn(model, shown(ground, arm, [1.0] * 20))
    assert (made.hall is not None) == kept
    if made.hall is not None:
        assert made.tree.leaf_of[arm] == made.hall[0]
    else:
        told = known.told(model.n_arms)[made.tree.arms_below(int(made.tree.leaf_of[arm]))]
        assert told.any() == (name == "hall")


def test_a_new_arm_is_as_one_without_labels(ground: Any, model: treetop.Model, known: Labelled) -> None:
    arm = untold(known, model)
    feedback = shown(ground, int(np.flatnonzero(known.told(model.n_arms))[0]), [1.0] * 20)
    late = replace(feedback, appeared=(np.arange(model.n_arms) == arm).astype(np.int32))

    def hoped() -> list[float]:
        made = [Pooled(known=known).learn(model, said).hope for said in (feedback, late)]
        return [float(hope[arm]) for hope in made if hope is not None]

    with ROWS["new"].switched():
        plain, new = hoped()
    assert plain == new
    assert hoped()[0] == plain < hoped()[1]


def test_every_sample_counts(ground: Any, model: treetop.Model) -> None:
    """One sample beyond a step changes nothing before the next one, unless every sample counts."""
    step = int(STEPS[:-1][np.diff(STEPS) > 1][0])
    made = {}
    for name in ("none", "steps"):
        with ROWS[name].switched():
            some = [shown(ground, 0, ([0.0, 1.0] * step)[:n]) for n in (step, step + 1)]
            made[name] = [Pooled().learn(model, feedback).rewards for feedback in some]
    assert abs(made["none"][0] - made["none"][1]).sum() == 0
    assert abs(made["steps"][0] - made["steps"][1]).sum() > 0


def test_as_many_leaves_as_the_beam_has_places(ground: Any, model: treetop.Model, known: Labelled) -> None:
    few = ablate.narrow(model)
    assert few.tree.n_arms == model.tree.n_arms
    wide, slim = (initial_fit(tree, Pooled(known=known)) for tree in (model, few))
    contexts = ablate.initial(ground, True, 0)[0].X
    for i in range(20):
        x, found = contexts.row(i), {}
        for name, made in (("slim", slim), ("wide", wide), ("faithful", model)):
            candidates = search(made, x, 5, None, 1, Eligible.of(made.tree))
            found[name] = set(candidates.id[~candidates.is_node].tolist()), candidates.route[~candidates.is_node]
        assert found["slim"][0] == found["faithful"][0] < found["wide"][0]
        np.testing.assert_array_equal(found["slim"][1], found["faithful"][1])


def test_labelled_samples_see_as_many_leaves_as_decisions(ground: Any) -> None:
    slim, wide = (ablate.samples(ground, True, 0, narrow).weight.sum() for narrow in (True, False))
    assert slim / wide == pytest.approx(10 / leaves(10), rel=0.05)  # arms of the beams that they stand for


def test_a_row_changes_what_is_played(ground: Any) -> None:
    names = ("none", "start", "labels", "both", "apart", "means", "leaves", "steps", "doubling", "paper")
    played = {name: ground.play(ROWS[name], "greedy", 0).history.checksum() for name in names}
    assert len(set(played.values())) == len(names)


def call(module: Any, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> str:
    monkeypatch.setattr(sys, "argv", [module.__file__, *words])
    module.main()
    return str(capsys.readouterr().out)


def test_ablation_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    out = tmp_path / "made" / "cells.json"
    words = [SMALL, "--seeds", "2", "--only", "doubling", "--out", str(out)]
    text = call(ablate, words, monkeypatch, capsys)
    document = json.loads(out.read_text())
    assert [(cell["seed"], cell["off"], cell["strategy"]) for cell in document["cells"]] == [
        (seed, off, strategy) for seed in (0, 1) for off in ("none", "doubling") for strategy in ("thrifty", "greedy")
    ]
    assert document["commands"] == [f"python benchmarks/ablate.py {' '.join(words)}"]
    assert document["machine"]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    means = [np.mean([cell["mean_reward"] for cell in document["cells"] if cell["off"] == "doubling"
                      and cell["strategy"] == strategy]) for strategy in ("thrifty", "greedy")]  # fmt: skip
    assert f"| {means[0]:.3f} / {means[1]:.3f} |" in lines[-1]

    out.write_text(
        out.read_text().replace(f'"mean_reward": {document["cells"][0]["mean_reward"]}', '"mean_reward": 9.5')
    )
    monkeypatch.setattr(ablate, "run", None)  # nothing is played again
    assert "9.5" in out.read_text()
    call(ablate, words, monkeypatch, capsys)
    assert json.loads(out.read_text())["cells"][0]["mean_reward"] == 9.5


def test_a_mean_over_fewer_seeds_says_so() -> None:
    stream = {"data": "mine", "scenario": "stationary", "rounds": 1000}
    played = [("none", "thrifty", 0, 2.0), ("none", "thrifty", 1, 4.0), ("none", "greedy", 0, 2.0),
              ("none", "greedy", 1, 4.0), ("hall", "thrifty", 1, 3.0)]  # fmt: skip
    names = ("off", "strategy", "seed", "mean_reward")
    made = [stream | dict(zip(names, cell, strict=True)) for cell in played]
    lines = ablate.report(cells.Cells(Path("none"), [], made)).splitlines()
    assert lines[2].endswith("| 3.000 / 3.000 |  |")
    assert lines[3].endswith("| 3.000 (seeds 1) / not played | -25.00 % (-25.00 to -25.00) |")


def test_a_cell_says_what_commit_it_was_played_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = cells.Cells.opened(tmp_path / "cells.json", ["x/shapes.py", str(tmp_path), "--seeds", "1"])
    monkeypatch.setattr(cells, "commit", lambda: "later")
    kept.play({"seed": 0}, lambda: {"mean_reward": 1.0})
    kept.play({"seed": 0}, lambda: pytest.fail("played again"))
    assert [cell["commit"] for cell in kept.cells] == [treetop_commit()]
    assert f"python benchmarks/shapes.py {tmp_path.name} --seeds 1" in kept.about()


def test_another_file_is_not_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for text in ('{"rows": []}', "not JSON", "[]"):
        (tmp_path / "mine").write_text(text)
        for module, words in ((ablate, [SMALL]), (shapes, [])):
            with pytest.raises(SystemExit, match=r"mine does not hold cells .* nothing was played"):
                call(module, [*words, "--out", str(tmp_path / "mine")], monkeypatch, capsys)
        assert (tmp_path / "mine").read_text() == text


@pytest.mark.parametrize("name", ["SEEN", "UNSEEN"])
def test_shapes_are_of_all_kinds(name: str) -> None:
    specs = [parse_spec(text) for text in getattr(shapes, name).values()]
    assert min(spec.arms for spec in specs) == 6_000
    assert max(spec.arms for spec in specs) == 120_000
    assert {(spec.nonzeros, spec.zipf) for spec in specs} == {(n, z) for n in (8, 200) for z in (0.3, 1.3)}


def test_no_shape_is_seen_and_unseen() -> None:
    assert not set(shapes.SEEN) & set(shapes.UNSEEN)
    assert not set(shapes.SEEN.values()) & set(shapes.UNSEEN.values())
    assert set(shapes.CHANGING) <= set(shapes.SHAPES)


def test_shapes_are_played_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in ("SHAPES", "UNSEEN"):
        monkeypatch.setattr(shapes, name, {"small": SMALL, "other": SMALL + ",seed=1"})
    monkeypatch.setattr(shapes, "CHANGING", ("small",))
    out = tmp_path / "cells.json"
    text = call(shapes, ["--out", str(out)], monkeypatch, capsys)
    found = json.loads(out.read_text())["cells"]
    assert len(found) == 4 + 3 * 2 + 4
    assert all(sum(cell["blocks"]) == pytest.approx(cell["mean_reward"] * 1300, abs=1e-3) for cell in found)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == [
        "small", "small, new-arms", "small, drift", "small, half-init", "other"
    ]  # fmt: skip
    again = call(shapes, ["other", "--out", str(out)], monkeypatch, capsys)
    assert lines[-1] in again
    assert json.loads(out.read_text())["cells"] == found
    with pytest.raises(SystemExit):
        call(shapes, ["none", "--out", str(out)], monkeypatch, capsys)


def test_the_standard_error_is_of_paired_blocks() -> None:
    """Differences 1, -1, 3, 1 in four blocks: 4 in all, with a standard deviation of sqrt(8 / 3)."""
    blocks = {"thrifty": [11, 9, 13, 11], "greedy": [10, 10, 10, 10]}
    made = [
        {"shape": "a", "data": "b", "scenario": "drift", "player": name, "seed": 0, "rounds": 100, "blocks": found,
         "mean_reward": sum(found) / 100}
        for name, found in blocks.items()
    ]  # fmt: skip
    line = shapes.report(cells.Cells(Path("none"), [], made), {"a": "b"}).splitlines()[-1]
    error = 100 * np.sqrt(8 / 3) * 2 / 40
    assert line == f"| a, drift |  |  | 0.440 | 0.400 |  | +10.00 % | {error:.2f} % |"
