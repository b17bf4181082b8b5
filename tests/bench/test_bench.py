"""The benches in small: every one runs, checks itself, and gives the JSON that others read. No timing is asserted."""

import json
import os
import re
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.commands import call, shell
from helpers.datasets import folder

import treetop
from treetop.arrays import Rows, as_rows
from treetop.bench.peers import Peer, runner, save_rows, take, to_pecos
from treetop.bench.serve import App, check_log
from treetop.bench.setting import Setting
from treetop.bench.shape import CONTEXTS, SHAPES, Shape, cached_model, fit_made_up, shape_of
from treetop.bench.subjects import SUBJECTS, compared, run
from treetop.bench.table import markdown, tables
from treetop.errors import Disagreement, PeerError

TINY = Shape(arms=300, features=120, nonzeros=9, labels=3, init=200, rounds=400, max_leaf=10)
PEERS = runner()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(cache: Path) -> Any:
    return cached_model(TINY, cache)


def setting(cache: Path, **changes: Any) -> Setting:
    return replace(Setting(TINY, (3, 8), 12, cache), **changes)


def words(cache: Path) -> list[str]:
    sizes = {"arms": 300, "features": 120, "nnz": 9, "init": 200, "rounds": 400, "max-leaf": 10, "contexts": 12}
    return [word for key, value in sizes.items() for word in (f"--{key}", str(value))] + ["--cache", str(cache)]


# -------------------- the benches


def test_decide_has_the_form_that_others_read(cache: Path) -> None:
    document = json.loads(call("bench", "decide", *words(cache), "--beam", "3", "--no-peers", "--json").stdout)
    rows = document["rows"]
    assert [row["name"] for row in rows] == ["treetop", "treetop", "flat", "scipy"]
    for row in rows:
        assert row["arms"] == 300
        assert 0 < row["median_ms"] <= row["p99_ms"]
        assert row["per_second"] > 0
    assert [row.get("beam") for row in rows] == [3, 3, None, None]
    assert rows[1]["eligible"] == "half"
    assert rows[2]["multiply_adds"] > 300
    assert rows[1]["times_treetop"] == round(rows[1]["cpu_ms"] / rows[0]["cpu_ms"], 2)
    assert rows[2]["times_treetop"] > 0
    assert document["checks"]["decide"]["beam 3"]["scores"] > 50
    assert document["left_out"][0] == "pecos: not set up; in a checkout of treetop, `make bench-peers` sets it up"
    assert document["command"].startswith("treetop")
    assert {"machine", "commit", "shape", "load_average"} <= set(document)


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("batch", {"threads", "beam", "median_ms", "per_second", "cpu_ms"}),
        ("refit", {"samples", "arms_per_second"}),
        ("build", {"seconds", "rows"}),
        ("scale", {"beam", "median_ms", "times_smallest", "arm_weights"}),
        ("seal", {"rounds_per_cpu_second", "cpu_us_a_round", "rounds"}),
        ("load", {"save_seconds", "first_decision_seconds", "bytes_per_weight", "weights"}),
    ],
)
def test_the_others_run_check_themselves_and_print(name: str, keys: set[str], cache: Path) -> None:
    document = run([name], setting(cache, beams=(3,)), "treetop bench")
    assert document["checks"][name]
    ours = [row for row in document["rows"] if row["name"] == "treetop"]
    assert keys <= set(ours[0])
    assert all(row["bench"] == name and row["arms"] > 0 for row in document["rows"])
    assert len(tables(document)) == 1
    assert markdown(document["rows"]).count("\n") == len(document["rows"]) + 1


def test_a_table_for_people(cache: Path) -> None:
    text = call("bench", "build", *words(cache), "--no-peers").output
    for part in ("bench build", "tree and routing", "Agreed with the slow reference", "Left out: pecos"):
        assert part in text


def test_real_data_instead_of_made_up_ones(tmp_path: Path) -> None:
    text = [
        "bench",
        "--data",
        str(folder(tmp_path, 2000)),
        "--rounds",
        "500",
        "--contexts",
        "20",
        "--cache",
        str(tmp_path / "cache"),
        "--no-peers",
        "--json",
    ]
    document = json.loads(call(*text).stdout)
    assert {row["bench"] for row in document["rows"]} == {"decide", "batch", "load"}
    assert document["shape"]["name"]
    refused = shell("bench", "scale", "--data", str(tmp_path), "--rounds", "500")
    assert refused.returncode == 2
    assert "with --data it must be one of decide, batch, load" in re.sub(r"\s+", " ", refused.stderr)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (["magic"], "cannot bench 'magic'; it must be one of decide, batch, refit, build, scale, load"),
        (["decide", "--shape", "magic"], "shape is 'magic'; it must be one of small, amazon-3m, 670k, 10m"),
        (["decide", "--arms", "3"], "arms is 3; it must lie in [10, 2147483647]"),
        (["decide", "--contexts", "3"], "contexts is 3; it must lie in [10, 10000]"),
        (["decide", "--beam", "0"], "beam is 0; it must lie in [1, 2147483647]"),
        (["decide", "--nnz", "0"], "nonzeros is 0.0"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(wrong: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        call("bench", *wrong, "--cache", str(tmp_path / "cache"))
    assert not (tmp_path / "cache").exists()


def test_rows_are_compared_with_the_row_they_belong_to() -> None:
    ours = [{"name": "treetop", "arms": 5, "beam": b, "cpu_ms": float(b), "median_ms": 1.0} for b in (10, 30)]
    half = {"name": "treetop", "arms": 5, "beam": 30, "cpu_ms": 45.0, "eligible": "half"}
    peers = [{"name": "pecos", "arms": 5, "beam": 30, "cpu_ms": 60.0}, {"name": "flat", "arms": 5, "cpu_ms": 70.0}]
    other = {"name": "vw", "arms": 9, "cpu_ms": 1.0}
    found = [row.get("times_treetop") for row in compared([*ours, half, *peers, other])]
    assert found == [None, None, 1.5, 2.0, 7.0, None]


def test_several_threads_are_compared_by_the_clock() -> None:
    rows = [
        {"name": name, "threads": 2, "cpu_ms": cpu, "median_ms": ms}
        for name, cpu, ms in (("treetop", 2.0, 1.0), ("pecos", 20.0, 3.0))
    ]
    assert compared(rows)[1]["times_treetop"] == 3.0


# -------------------- the model that is timed


def test_a_shape_is_made_once_and_is_the_same_again(cache: Path, tiny: Any, tmp_path: Path) -> None:
    again = cached_model(TINY, cache, lambda text: pytest.fail(f"made again: {text}"))
    fresh = cached_model(TINY, tmp_path)
    for found in (again, fresh):
        assert np.array_equal(found.model.tree.leaf_of, tiny.model.tree.leaf_of)
        assert np.array_equal(found.model.reward_rows.value, tiny.model.reward_rows.value)
        assert np.array_equal(found.contexts.value, tiny.contexts.value)
    other = fit_made_up(replace(TINY, seed=1))[0]
    assert not np.array_equal(other.reward_rows.value, tiny.model.reward_rows.value)


def test_a_made_model_has_weights_everywhere(tiny: Any) -> None:
    model = tiny.model
    assert (model.n_arms, model.n_features, len(tiny.contexts)) == (300, 120, CONTEXTS)
    per_row = np.diff(model.reward_rows.start)
    assert (per_row[model.tree.n_nodes :] > 0).mean() > 0.95
    assert (per_row[: model.tree.n_nodes] > 0).any()
    assert tiny.facts["arm_weights"] == per_row[model.tree.n_nodes :].sum()


def test_a_folder_that_is_damaged_is_made_anew(tmp_path: Path, tiny: Any) -> None:
    cached_model(TINY, tmp_path)
    file = tmp_path / TINY.name / "model" / "rewards_value.npy"
    file.write_bytes(file.read_bytes()[:-4])
    assert np.array_equal(cached_model(TINY, tmp_path).model.reward_rows.value, tiny.model.reward_rows.value)


def test_shapes() -> None:
    assert SHAPES["amazon-3m"].arms == 2_812_281
    assert shape_of("small", None, {}) == Shape()
    assert shape_of("10m", 1_000_000, {"max_leaf": 50, "init": None}).rounds == 80_000
    assert shape_of("10m", 1_000_000, {"max_leaf": 50}).max_leaf == 50
    assert Shape(arms=20, labels=500, nonzeros=99, features=7).spec(1).labels == 20


# -------------------- peers


def test_rows_are_taken() -> None:
    rows = as_rows(sp.random(50, 9, 0.3, format="csr", random_state=0, dtype=np.float32))
    ids = np.array([7, 7, 0, 49])
    assert np.array_equal(take(rows, ids).csr().toarray(), rows.csr().toarray()[ids])
    assert len(take(rows, ids[:0])) == 0


def test_a_tree_with_leaves_on_two_levels_is_not_for_pecos(tmp_path: Path) -> None:
    tree = treetop.Tree([-1, 0, 0, 1, 1], [2, 3, 4])  # type: ignore[arg-type]
    empty = Rows(np.zeros(6, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), 4)
    model = treetop.Model(tree=tree, route_rows=empty, reward_rows=replace(empty, start=np.zeros(9, np.int64)))
    assert not to_pecos(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_peer_that_dies_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "peer.py"
    script.write_text("import sys; sys.exit(3)")
    with Peer((Path(sys.executable), script), "pecos") as peer, pytest.raises(PeerError, match="ended with code 3"):
        peer.ask("load")


def test_a_tree_that_a_peer_cannot_build_leaves_it_out(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text("import sys; sys.stdin.readline(); sys.exit(6)")
    document = run(["build"], setting(cache, peers=(Path(sys.executable), tmp_path / "ends.py")), "")
    assert [row["name"] for row in document["rows"]] == ["treetop"] * 3
    assert document["left_out"] == [
        "pecos: its tree was not built within 12 GB (pecos ended with code 6 while asked to cluster)"
    ]


needs_peers = pytest.mark.skipif(PEERS is None, reason="the peers are not set up (make bench-peers)")


@needs_peers
def test_pecos_and_vw_stand_beside_treetop(cache: Path) -> None:
    document = run(["decide", "batch"], setting(cache, peers=PEERS, beams=(4,)), "")
    names = {(row["bench"], row["name"]) for row in document["rows"]}
    assert {("decide", "pecos"), ("batch", "pecos")} <= names
    assert document["checks"]["decide"]["pecos at beam 4"]["same_top_5"] >= 4
    assert document["left_out"] == []


@needs_peers
@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="a limit of memory leaves a sanitizer no room")
def test_solvers_and_trees_of_peers(cache: Path) -> None:
    document = run(["refit", "build", "load"], setting(cache, peers=PEERS, beams=(4,)), "")
    names = {(row["bench"], row["name"]) for row in document["rows"]}
    assert {("refit", "pecos"), ("refit", "sklearn"), ("build", "pecos"), ("load", "pecos")} <= names


def test_serve_beside_the_bare_app(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetop.bench.serve.WORKERS", (1,))
    monkeypatch.setattr("treetop.bench.serve.TURNS", 2)
    dataset = treetop.load(folder(tmp_path))
    document = run(["serve"], setting(cache, dataset=dataset, shape=replace(TINY, rounds=50)), "treetop bench serve")
    rows = document["rows"]
    assert [(row["name"], row["connections"]) for row in rows] == [
        (name, n) for n in (1, 16, 64) for name in ("treetop", "bare")
    ]
    for row in rows:
        assert row["per_second"] > 0
        assert 0 < row["p50_ms"] <= row["p99_ms"]
        assert ("of_bare" in row) == (row["name"] == "treetop")
    checked = next(iter(document["checks"]["serve"].values()))
    assert checked["treetop"]["answered"] > 2 * (1 + 16 + 64)
    assert checked["treetop"]["decided_again"] > 0
    assert "bench serve" in str(tables(document)[0].title)


def test_serve_says_when_the_log_is_not_what_was_answered(cache: Path, tiny: Any, tmp_path: Path) -> None:
    with treetop.Bandit.create(tmp_path / "bandit", model=tiny.model) as bandit:
        shown = bandit.decide(tiny.contexts.row(0))
        answer = {"event_id": shown.event_id, "slots": [{"arm": arm} for arm in shown.arms]}
    app = App("treetop", tmp_path / "bandit", 0, [], tmp_path, [1], [answer])
    assert check_log(app) == {"answered": 1, "decided_again": 1}
    with pytest.raises(Disagreement, match="answered 2 requests, and 1 decisions are in its log"):
        check_log(replace(app, answered=[2]))
    with pytest.raises(Disagreement, match="is not what was answered"):
        check_log(replace(app, last=[{**answer, "slots": answer["slots"][::-1]}]))


@needs_peers
def test_pecos_ends_when_it_wants_more_memory_than_it_is_given(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treetop.bench.learn.PECOS_GB", 0)
    document = run(["build"], setting(cache, peers=PEERS), "")
    assert len(document["rows"]) == 3
    assert "not built within 0 GB" in document["left_out"][0]


@needs_peers
def test_vowpal_wabbit_decides(tiny: Any, tmp_path: Path) -> None:
    assert PEERS is not None
    save_rows(tiny.contexts.head(20), tmp_path / "x.npz")
    with Peer(PEERS, "vw") as peer:
        peer.ask("load", contexts=str(tmp_path / "x.npz"), arms=50)
        assert len(peer.ask("text", first=0, n=2)) == len(peer.ask("parsed", first=0, n=2)) == 2
        with pytest.raises(PeerError, match="vw: IndexError"):
            peer.ask("text", first=100, n=1)


def test_every_subject_is_in_the_help() -> None:
    text = call("bench", "--help").output
    assert all(name in text for name in SUBJECTS)
    assert asdict(Setting())["contexts"] == 1000
