"""Plans and records: kill -9 at any moment changes nothing, other plans are refused, one record holds what it says."""

import json
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.datasets import folder, made_up

import treetop
from treetop.data.orders import ORDERS
from treetop.experiments import run_folder
from treetop.experiments.execute import Starter, execute
from treetop.experiments.records import RunRecord, distinguishing_settings, read_records
from treetop.experiments.settings import Plan, Settings
from treetop.simulation.history import History
from treetop.simulation.observation import Position
from treetop.simulation.play import Environment, Learning, RunProgress, Tracking, begin, first_model
from treetop.simulation.worlds import Labels

COMMON = {"init": 100, "horizon": 2000, "max_leaf": 4, "first_epoch": 64}
CHILD = """
import sys
from treetop.experiments.execute import execute
from treetop.experiments.settings import Plan

def bar(name, total, done=0):
    return lambda now, mean: print(name, now, flush=True)

plan = Plan.of(sys.argv[1], ["igw", "greedy", "epsilon"], seeds=[0, 7], observer="each:c=0.5", **eval(sys.argv[3]))
execute(sys.argv[2], plan, bar)
"""


def small(*names: str, seeds: tuple[int, ...] = (0,), **settings: object) -> Plan:
    return Plan.of("made up", names or ("igw", "greedy"), seeds, **{**COMMON, **settings})


def same(a: list[RunRecord], b: list[RunRecord]) -> bool:
    return [replace(r, seconds=0) for r in a] == [replace(r, seconds=0) for r in b]


def child(data: Path, out: Path) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", CHILD, str(data), str(out), repr(COMMON)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def test_killed_at_random_moments_the_results_are_the_same(tmp_path: Path) -> None:
    data, chance = folder(tmp_path, 600), random.Random(0)
    with child(data, tmp_path / "whole") as process:
        steps = len(process.stdout.readlines()) if process.stdout else 0
    kills = 0
    while True:
        with child(data, tmp_path / "killed") as process:
            assert process.stdout
            lines = [process.stdout.readline() for _ in range(chance.randint(1, steps // 3))]
            time.sleep(chance.random() * 0.02)
            process.send_signal(signal.SIGKILL)
            process.stdout.read()
        if lines[-1] == "" and process.returncode == 0:
            break
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 3
    whole, killed = read_records(tmp_path / "whole"), read_records(tmp_path / "killed")
    assert len(whole) == 6
    assert same(whole, killed)
    assert not (tmp_path / "killed" / run_folder.STATE).exists()


def test_killed_between_the_last_line_and_the_clean_up_leaves_nothing_behind(tmp_path: Path) -> None:
    data = folder(tmp_path, 600)
    plan = Plan.of(str(data), ["igw"], seeds=[0], **COMMON)
    execute(tmp_path / "out", plan)
    (tmp_path / "out" / run_folder.STATE).mkdir()
    (tmp_path / "out" / run_folder.STATE / "0.npz").write_bytes(b"left over")
    execute(tmp_path / "out", plan)
    assert not (tmp_path / "out" / run_folder.STATE).exists()


def test_a_run_goes_on_after_any_epoch(tmp_path: Path) -> None:
    stream, model = begin(made_up(), init=200, horizon=1000, max_leaf=4, seed=0)
    saved: list[History] = []

    def play(resume: History | None = None) -> treetop.Run:
        learning, tracking = Learning(epochs=treetop.Epochs.doubling(100)), Tracking(resume=resume, save=saved.append)
        return treetop.run(stream, model, treetop.Policy(), learning=learning, tracking=tracking)

    whole = play()
    points = [replace(h, arms=h.arms.copy()) for h in saved]
    assert [h.done for h in points] == [100, 200, 400, 800]
    for point in points:
        again = play(point)
        assert again.history.checksum() == whole.history.checksum()
        assert (again.mean_reward, again.checkpoints) == (whole.mean_reward, whole.checkpoints)
        assert again.exploration_cost == whole.exploration_cost != 0
        assert (again.model.epoch, again.model.n_seen) == (whole.model.epoch, whole.model.n_seen)
        assert again.seconds >= point.seconds
    with pytest.raises(ValueError, match="cannot go on after 99 rounds with arms of shape"):
        play(replace(points[0].head(99)))


def test_what_is_finished_is_not_played_again(tmp_path: Path) -> None:
    data = made_up(600)
    first = execute(tmp_path, small("igw", "greedy", seeds=(0, 7)), dataset=data)
    assert [(r.strategy, r.seed) for r in first] == [("igw", 0), ("greedy", 0), ("igw", 7), ("greedy", 7)]
    stamp = (tmp_path / run_folder.RUNS).stat().st_mtime_ns
    shown: list[tuple[str, int, int]] = []

    def bar(name: str, total: int, done: int = 0) -> RunProgress:
        shown.append((name, total, done))
        return lambda now, mean: None

    assert execute(tmp_path, small("igw", "greedy", seeds=(0, 7)), bar, dataset=data) == first
    assert (tmp_path / run_folder.RUNS).stat().st_mtime_ns == stamp
    assert shown[0] == ("igw, seed 0", 2000, 2000)
    assert same(first, execute(None, small("igw", "greedy", seeds=(0, 7)), dataset=data))


def test_an_unfinished_line_and_a_torn_state_are_as_if_never_written(tmp_path: Path) -> None:
    data, plan = made_up(600), small()
    whole = execute(tmp_path, plan, dataset=data)
    lines = (tmp_path / run_folder.RUNS).read_bytes().splitlines(keepends=True)
    (tmp_path / run_folder.RUNS).write_bytes(lines[0] + lines[1][:-5])
    (tmp_path / run_folder.STATE).mkdir()
    (tmp_path / run_folder.STATE / "1.npz").write_bytes(b"PK torn")
    (tmp_path / run_folder.STATE / "1.npz.part").write_bytes(b"")
    assert len(read_records(tmp_path)) == 1
    assert same(execute(tmp_path, plan, dataset=data), whole)
    assert not (tmp_path / run_folder.STATE).exists()


def test_a_state_of_other_versions_is_begun_anew(tmp_path: Path) -> None:
    path = run_folder.Folder(tmp_path)
    history = replace(History.blank(4, 2), done=4, seconds=1.5, greedy_rewards=np.arange(4.0))
    path.save(0, history, {"numpy": "1"})
    assert path.saved(0, {"numpy": "2"}) is None
    assert path.saved(1, {"numpy": "1"}) is None
    kept = path.saved(0, {"numpy": "1"})
    assert kept is not None
    assert (kept.done, kept.seconds, kept.checksum()) == (4, 1.5, history.checksum())
    assert kept.greedy_rewards.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (small(horizon=300), r"plan.settings\[0\].horizon is 2000 there, 300 here"),
        (small(order="file"), r"plan.settings\[0\].order is 'shuffled' there, 'file' here"),
        (small(seeds=(1,)), r"plan.seeds\[0\] is 0 there, 1 here"),
        (small("igw"), "plan.settings are 2 there, 1 here"),
        (small("igw", "epsilon"), r"plan.settings\[1\].strategy is 'greedy' there, 'epsilon' here"),
    ],
)
def test_another_plan_is_refused(tmp_path: Path, plan: Plan, message: str) -> None:
    store_there(tmp_path)
    with pytest.raises(ValueError, match=message):
        execute(tmp_path, plan, dataset=made_up(600))


def test_other_data_is_refused(tmp_path: Path) -> None:
    store_there(tmp_path)
    other = made_up(600)
    other.X.value[5] += 1
    with pytest.raises(ValueError, match=r"dataset\.sha256 is"):
        execute(tmp_path, small(), dataset=other)


def store_there(path: Path) -> None:
    execute(path, small(), dataset=made_up(600))


def test_two_processes_do_not_share_a_folder(tmp_path: Path) -> None:
    with run_folder.opened(tmp_path, {}), pytest.raises(ValueError, match="is in use by another process"):
        execute(tmp_path, small(), dataset=made_up(600))


def test_results_without_a_plan_are_not_taken_for_ones_own(tmp_path: Path) -> None:
    (tmp_path / run_folder.RUNS).write_text("{}\n")
    with pytest.raises(ValueError, match=r"holds runs\.jsonl without plan\.json"):
        execute(tmp_path, small(), dataset=made_up(600))


def test_a_record_says_what_was_played(tmp_path: Path) -> None:
    data = made_up(600)
    record = execute(tmp_path, small("boltzmann", observer="position:decay=0.5"), dataset=data)[0]
    stream, model = begin(data, 100, 2000, 4, 0)
    played = treetop.run(
        stream,
        model,
        treetop.Policy(strategy=treetop.Boltzmann()),
        learning=Learning(epochs=treetop.Epochs.doubling(64)),
        environment=Environment(Position(0.5)),
    )
    collected = played.history.collected()
    assert (record.mean_reward, record.checkpoints) == (played.mean_reward, played.checkpoints)
    assert record.checksum == played.history.checksum()
    assert record.blocks == pytest.approx(collected.reshape(200, 10).sum(axis=1))
    assert record.late_reward == pytest.approx(played.late_reward) == pytest.approx(collected[-400:].mean())
    assert record.observed == pytest.approx(played.history.observed.mean(), abs=1e-6)
    assert record.exploration_cost == played.exploration_cost > 0
    assert record.rounds == played.rounds == 2000
    assert record.settings["observer"] == "position:decay=0.5"
    assert record.settings["parameters"] == {"beta": 1.0}
    assert set(record.versions) == {"treetop", "numpy", "scipy", "python"}
    assert record.dataset == data.facts()
    assert record == read_records(tmp_path)[0]
    assert list(json.loads((tmp_path / run_folder.RUNS).read_text())) == list(RunRecord.__dataclass_fields__)


def test_every_order_is_played_as_it_is_drawn() -> None:
    data, plain = made_up(600), small("igw").settings[0]
    plan = Plan("made up", tuple(replace(plain, order=order) for order in ORDERS))
    records = execute(None, plan, dataset=data)
    for record, order in zip(records, ORDERS, strict=True):
        stream = treetop.Stream.draw(data, 100, 2000, 0, order)
        learning = Learning(epochs=treetop.Epochs.doubling(64))
        played = treetop.run(stream, first_model(stream, 4), treetop.Policy(), learning=learning)
        assert record.checksum == played.history.checksum()
        assert record.settings["order"] == order
    assert len({record.checksum for record in records}) == 3
    named = distinguishing_settings([(record.strategy, record.settings) for record in records])
    assert named == [("", f"order={order}") for order in ORDERS]


def test_a_starter_tells_orders_apart() -> None:
    data = made_up(600)
    starter, settings = Starter(data), small("igw").settings[0].resolved(data)
    shuffled = starter(settings, 0)[0]
    assert starter(settings, 0)[0] is shuffled
    in_order = starter(replace(settings, order="file"), 0)[0]
    assert in_order.rows[:3].tolist() == [100, 101, 102]


def test_in_the_order_of_the_file_the_horizon_is_what_is_left() -> None:
    data = made_up(600)
    record = execute(None, Plan.of("made up", ["igw"], init=100, max_leaf=4, order="file"), dataset=data)[0]
    assert (record.rounds, record.settings["horizon"]) == (500, 500)


@pytest.mark.parametrize("horizon", [1, 7, 199, 401])
def test_blocks_hold_every_round_once(horizon: int) -> None:
    data = made_up(600)
    record = execute(None, small("igw", horizon=horizon), dataset=data)[0]
    assert len(record.blocks) == min(200, horizon)
    assert sum(record.blocks) == pytest.approx(record.mean_reward * horizon)
    stream, _ = begin(data, 100, horizon, 4, 0)
    assert len(stream.rows) == record.rounds == horizon
    assert 0 <= record.late_reward <= 5


def test_no_beam_is_algorithm_1(tmp_path: Path) -> None:
    """Every arm is in play: no decision goes through a node."""
    data = made_up(600)
    flat, wide, narrow = (execute(None, small("igw", beam=b), dataset=data)[0] for b in (None, 60, 2))
    assert flat.checksum == wide.checksum != narrow.checksum
    assert flat.settings["beam"] is None
    stream, model = begin(data, 100, 2000, 4, 0)
    assert (treetop.run(stream, model, Settings(beam=None).policy(model.tree.n_nodes)).history.nodes < 0).all()


def test_the_theorems_gamma_takes_c_from_the_observer() -> None:
    theorem = {"gamma": "theorem1", "functions": 1e6, "delta": 0.1, "horizon": 1000}
    made = Settings("igw", theorem, explore=1, observer="position:decay=0.5").make_strategy()
    assert made == treetop.IGW(c=0.0625, **theorem)  # type: ignore[arg-type]
    given = Settings("igw", {**theorem, "c": 0.3}, explore=1, observer="each:c=0.5").make_strategy()
    assert isinstance(given, treetop.IGW)
    assert given.c == 0.3


def test_a_title_says_what_tells_a_run_from_the_others() -> None:
    igw = [Settings("igw", {"C": c}, beam=b) for c, b in ((1.0, 10), (2.0, None))]
    plan = Plan("debian", (*igw, Settings("greedy")), (0, 7))
    assert [plan.title(settings, seed) for settings, seed in plan.runs()[:3]] == [
        "igw C=1.0 beam=10, seed 0",
        "igw C=2.0 beam=None, seed 0",
        "greedy, seed 0",
    ]
    ordered = Plan("debian", tuple(Settings("igw", order=order) for order in ("file", "blocks")))
    assert [ordered.title(*one) for one in ordered.runs()] == ["igw order=file", "igw order=blocks"]
    assert small("igw", "greedy").title(*small("igw", "greedy").runs()[0]) == "igw"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "magic"}, "'magic'; it must be one of igw, greedy"),
        ({"parameters": {"beta": 1}}, "igw has no 'beta'; it has C, gamma"),
        ({"explore": 6}, r"explore is 6; it must lie in \[0, 5\]"),
        ({"observer": "each:c=2"}, "c is 2.0"),
        ({"learner": "magic"}, "it must be one of paper, treetop"),
        ({"loss": "magic"}, "loss is 'magic'"),
        ({"first_epoch": 0}, "first_epoch is 0"),
        ({"order": "backwards"}, "order is 'backwards'; it must be one of shuffled, file, blocks"),
    ],
)
def test_settings_are_checked_before_anything_is_loaded(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**settings)  # type: ignore[arg-type]


def test_a_plan_without_runs_is_refused() -> None:
    with pytest.raises(ValueError, match="it has 0 and 1"):
        Plan("debian", ())
    with pytest.raises(ValueError, match="seed is -1"):
        Plan.of("debian", ["igw"], seeds=[-1])


def test_rewards_of_another_world_need_its_name() -> None:
    with pytest.raises(ValueError, match="the plan's world is 'labels', but worlds is"):
        execute(None, small(), dataset=made_up(600), worlds=lambda seed: Labels(made_up(600).Y))


def test_fractional_rewards_sum_the_same_in_pieces(tmp_path: Path) -> None:
    data = made_up(600)
    data.Y.value[:] = np.random.default_rng(0).random(len(data.Y.value))
    plan = small(first_epoch=16)
    assert same(execute(tmp_path, plan, dataset=data), execute(None, plan, dataset=data))
