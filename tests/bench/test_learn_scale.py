"""`bench learn-scale` on a few rounds, in this process: what it seals is learned, and what it says of that."""

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from treetop.bandit.bandit import Bandit
from treetop.bandit.sealing import segment_folder
from treetop.bench import learn_scale, learn_steps
from treetop.bench.shape import Shape
from treetop.model.model import Model

SHAPE = Shape(arms=300, features=60, nonzeros=6, labels=2, init=40, rounds=120)


def test_rounds_are_sealed_and_learned_step_by_step(tmp_path: Path) -> None:
    shape, place = asdict(SHAPE), str(tmp_path)
    learn_steps.begin(shape, place)
    rows = []
    for rounds in (50, 120, 120):
        sealed = learn_steps.seal(shape, place, rounds)
        facts = learn_steps.refit(place, rounds)
        model = Model.load(tmp_path / learn_steps.MODEL)
        assert (model.n_seen, int(model.pooled.sample_count.sum()) > 0) == (rounds, True)  # type: ignore[union-attr]
        rows.append(learn_scale._row(replace(SHAPE, rounds=rounds), rounds, rounds // 2, sealed, facts))
    assert all(row["peak_gb"] > 0 and row["work_bytes_a_round"] > 0 for row in rows)
    assert learn_scale.ratios(rows)["largest_peak_to_smallest"] >= 1
    with Bandit.open(tmp_path / learn_steps.BANDIT) as bandit:
        manifest = segment_folder(bandit.folder).manifest()
        assert manifest is not None
        assert [segment.rounds for segment in manifest.segments] == [50, 70]
        assert not manifest.deltas
    assert np.isfinite([row["cpu_us_a_new_round"] for row in rows]).all()


def test_late_rewards_change_where_they_are_and_not_what_is_learned(tmp_path: Path) -> None:
    shape, models = asdict(SHAPE), []
    for name, late in (("on time", 0.0), ("late", 0.3)):
        place = tmp_path / name
        place.mkdir()
        learn_steps.begin(shape, str(place))
        learn_steps.seal(shape, str(place), 120, late)
        learn_steps.refit(str(place), 120)
        with Bandit.open(place / learn_steps.BANDIT) as bandit:
            manifest = segment_folder(bandit.folder).manifest()
        assert manifest is not None
        assert 100 < sum(delta.rewards for delta in manifest.deltas) < 260 if late else not manifest.deltas
        models.append({path.name: path.read_bytes() for path in (place / learn_steps.MODEL).iterdir()})
    assert models[0] == models[1]
