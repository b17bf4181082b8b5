"""The serving layout: every form of list and look-up, every instruction set, mapped files, damaged files, masks."""

import json
import os
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.problems import Problem
from helpers.reference import Model, Tree
from helpers.strategies import ALL, Case, balanced_model, cases, context, csr, engine, many, random_case
from hypothesis import given

import treetop
from treetop import _core
from treetop.model.pooled_state import PooledState

NOBODY, ONE_LIST = np.empty(0, np.int32), np.empty(0, np.int64)
HEADER, DIRECTORY = 128, 32  # bytes of the header and of an entry
DECIDED = 991066  # CRC-32 of decided(3), on every machine
POOLED = 167705252  # and of pooled_decided(3)
SHAPES = [  # arms, columns, branching
    *((3, 40, 2), (18, 40, 2), (44, 300, 2), (60, 300, 2), (100, 60, 2), (130, 300, 2), (200, 70_000, 2)),
    *((600, 500, 2), (900, 40, 400), (140_000, 6, 2), (5, 200_000, 3)),
]
CHECKSUM, DIRECTORY_CHECKSUM = 124, 68  # where they are in the header


def wide_case(arms: int, columns: int, density: float, branching: int = 2, seed: int = 0) -> tuple[Any, ...]:
    """A tree of one level with leaves of many arms; sparse dyadic weights, so that all sums are exact."""
    rng = np.random.default_rng(seed)
    parents = np.array([-1] + [0] * branching, np.int32)
    leaf_of = np.sort(rng.integers(1, branching + 1, arms)).astype(np.int32)
    routing, rewards = (_sparse(n, columns, density, rng) for n in (branching + 1, branching + 1 + arms))
    return parents, leaf_of, *routing, *rewards, columns, False, 2


def _sparse(n: int, columns: int, density: float, rng: np.random.Generator) -> tuple[Any, ...]:
    matrix: Any = sp.random(n, columns, density, "csr", random_state=rng)
    matrix.sort_indices()
    value = (rng.integers(-16, 17, matrix.nnz) / 8).astype(np.float32)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), value


@pytest.mark.parametrize("density", [0.002, 0.05, 0.4, 1.0])
@pytest.mark.parametrize(("arms", "columns", "branching"), SHAPES)
def test_scores_are_dot_products_in_every_form(arms: int, columns: int, branching: int, density: float) -> None:
    """Lists with bits and without, slots of 8, 16 and 32 bits, narrow and wide lines, rows without lines."""
    if density * columns * arms > 2e6:
        pytest.skip("the same forms come with fewer weights")
    made = wide_case(arms, columns, density, branching)
    serving, rng = _core.Engine(*made), np.random.default_rng(1)
    routing, rewards = (
        sp.csr_array((made[i + 2], made[i + 1], made[i]), shape=(len(made[i]) - 1, columns)) for i in (2, 5)
    )
    for _ in range(3):
        chosen = np.sort(rng.choice(columns - 1, min(columns - 1, 60), replace=False)).astype(np.int32)
        value = (rng.integers(-8, 9, len(chosen)) / 8).astype(np.float32)
        x = np.append(np.zeros(columns - 1), 1.0)
        x[chosen] = value
        start = np.array([0, len(chosen)], np.int64)
        _, is_node, ids, route, score, *_ = serving.search(start, chosen, value, 1, branching, -1.0, ALL, NOBODY)
        assert not is_node.any()
        assert sorted(ids.tolist()) == list(range(arms))
        np.testing.assert_array_equal(score, (rewards @ x)[branching + 1 + ids].astype(np.float32))
        logs = -(np.maximum(0, 1 - routing @ x) ** 3)
        np.testing.assert_allclose(route, logs[made[1][ids]], rtol=1e-12)


@pytest.mark.parametrize("density", [0.05, 1.0])
@pytest.mark.parametrize("beam", [1, 3, 40])
def test_reward_models_of_nodes_that_nobody_has_take_no_room(density: float, beam: int) -> None:
    """Rows of zeros that are there, in some blocks or in all, and rows that are not: the same candidates."""
    rng, columns = np.random.default_rng(5), 50
    parents = np.concatenate([[-1], np.repeat(np.arange(63), 2), np.repeat(np.arange(63, 127), 5)]).astype(np.int32)
    leaf_of = (127 + np.arange(900) % 320).astype(np.int32)
    nodes = len(parents)
    routing, rewards = (_sparse(n, columns, density, rng) for n in (nodes, nodes + 900))
    x = np.sort(rng.choice(columns - 1, 30, replace=False)).astype(np.int32)
    asked = np.array([0, 30], np.int64), x, rng.random(30, np.float32), 5, beam, -1.0, ALL, NOBODY
    found: list[tuple[Any, ...]] = []
    sizes = []
    for zeros in (range(nodes), range(nodes - 20, nodes), range(0)):
        kept = [rewards[1][rewards[0][nodes + arm] : rewards[0][nodes + arm + 1]] for arm in range(900)]
        index = [np.arange(columns, dtype=np.int32) if node in zeros else NOBODY for node in range(nodes)] + kept
        start = np.concatenate([[0], np.cumsum([len(row) for row in index])]).astype(np.int64)
        own = rewards[2][rewards[0][nodes] :]
        value = np.concatenate([np.zeros(columns * len(zeros), np.float32), own])
        made: tuple[Any, ...] = parents, leaf_of, *routing, start, np.concatenate(index), value, columns, False, 1
        serving = _core.Engine(*made)
        found.append(serving.search(*asked))
        sizes.append(serving.layout().nbytes)
    assert sizes[0] > sizes[1] > sizes[2]
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("arms", [40, 200, 600])
def test_features_that_spill_into_the_next_line_are_found(arms: int) -> None:
    columns, n = 70_000, 3_000
    made = wide_case(arms, columns, 0.2 / arms)
    serving = _core.Engine(*made)
    data = serving.layout().tobytes()
    last = np.frombuffer(data, [("at", "<u8"), ("size", "<u8"), ("lines", "<u4", 4)], chunks_in(data), HEADER)[-1]
    bases = np.frombuffer(data, "<u4", 16 * last["lines"][0], last["at"])[::16]
    assert last["lines"][2] == 2  # narrow
    assert (bases >> 31).any()
    rewards = sp.csr_array((made[7], made[6], made[5]), shape=(len(made[5]) - 1, columns))
    for first in range(0, columns - 1, n):
        chosen = np.arange(first, min(first + n, columns - 1), dtype=np.int32)
        x = np.zeros(columns)
        x[chosen], x[-1] = 1.0, 1.0
        start, value = np.array([0, len(chosen)], np.int64), np.ones(len(chosen), np.float32)
        _, _, ids, _, score, *_ = serving.search(start, chosen, value, 1, 2, -1.0, ALL, NOBODY)
        np.testing.assert_array_equal(score, (rewards @ x)[3 + ids].astype(np.float32))


def decided(seed: int) -> bytes:
    """Decisions and scores of some models, as bytes."""
    parts: list[Any] = []
    for made in (wide_case(130, 3000, 0.02), wide_case(700, 400, 0.1), wide_case(90, 90_000, 0.001)):
        serving, rng = _core.Engine(*made), np.random.default_rng(seed)
        X: Any = sp.random(50, made[8] - 1, 0.05, "csr", dtype=np.float32, random_state=rng)
        X.sort_indices()
        rows = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data
        keys = np.arange(50, dtype=np.int64)
        parts += serving.decide(*rows, keys, 5, 3, 1, -1.0, 1, 100.0, ALL, NOBODY, ONE_LIST, 1)
    return b"".join(array.tobytes() for array in parts)


def pooled_decided(seed: int) -> bytes:
    """The same of models of treetop's learner: arms with routing functions, nodes without reward models."""
    parts: list[Any] = []
    for arms, columns, density in ((130, 300, 1.0), (40, 200, 0.9), (700, 3000, 0.02), (90, 90_000, 0.001)):
        rng = np.random.default_rng(seed)
        leaf_of = np.sort(rng.integers(1, 9, arms)).astype(np.int32)
        routing, own = _sparse(9 + arms, columns, density, rng), _sparse(arms, columns, density, rng)
        rewards = np.concatenate([np.zeros(9, np.int64), own[0]]), *own[1:]
        parents = np.array([-1] + [0] * 8, np.int32)
        made: tuple[Any, ...] = parents, leaf_of, *routing, *rewards, columns, False, 2
        serving = _core.Engine(*made)
        counts, value = rng.integers(0, 9, arms).astype(np.int32), rng.random(arms, np.float32)
        means = -np.sort(-rng.random(65, np.float32))
        serving.set_pooled(means, 0.01, counts, value, np.full(arms, -1, np.int32), 0.0, [0.9, 0.5])
        X: Any = sp.random(50, columns - 1, min(0.05, 60 / columns), "csr", dtype=np.float32, random_state=rng)
        X.sort_indices()
        rows = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data / 16
        keys = np.arange(50, dtype=np.int64)
        budgeted = treetop.Budgeted().native(9)
        parts += serving.decide(*rows, keys, 5, 3, 3, -1.0, *budgeted, ALL, NOBODY, ONE_LIST, 1)
    return b"".join(array.tobytes() for array in parts)


def run_with(name: str) -> subprocess.CompletedProcess[str]:
    code = (
        "from test_layout import decided, pooled_decided; import zlib; "
        "print(zlib.crc32(decided(3)), zlib.crc32(pooled_decided(3)))"
    )
    variables = {
        **os.environ,
        "TREETOP_SIMD": name,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)]),
    }
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=False)


def test_every_instruction_set_gives_the_same_bytes() -> None:
    """Whatever the machine: x86-64 with AVX or without, arm64."""
    names = _core.instruction_sets()
    assert names[0] == "baseline"
    found = {name: run_with(name).stdout for name in names}
    assert set(found.values()) == {f"{DECIDED} {POOLED}\n"}


def test_an_unknown_instruction_set_is_named() -> None:
    assert "TREETOP_SIMD is 'mmx'; this machine has baseline" in run_with("mmx").stderr


@pytest.mark.parametrize("size", [0, 1, 7, 63, 64, 65, 200, 4095, (1 << 22) - 1, 1 << 22, (1 << 22) + 1, 9_000_017])
def test_checksums_are_those_of_zlib(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    for threads in (1, 3):
        assert _core.crc32(data, threads) == zlib.crc32(data.tobytes())


# -------------------- masks


@pytest.mark.parametrize("threads", [1, 3])
def test_reading_order_is_invisible(threads: int) -> None:
    """A large batch on a large model is decided in another order than it came in."""
    made = wide_case(3000, 3000, 1.0)
    serving, rng = _core.Engine(*made), np.random.default_rng(0)
    assert len(serving.layout()) > 32 << 20
    X: Any = sp.random(2100, made[8] - 1, 0.002, "csr", dtype=np.float32, random_state=rng)
    X.sort_indices()
    rows = treetop.arrays.as_rows(X)
    keys = np.arange(2100, dtype=np.int64)
    ask: Any = 5, 3, 1, -1.0, 1, 100.0, ALL, NOBODY, ONE_LIST, threads
    together: Any = serving.decide(rows.start, rows.index, rows.value, keys, *ask)
    assert len(np.unique(together[0])) > 10
    for i in range(0, 2100, 17):
        x = rows.row(i)
        alone: Any = serving.decide(x.start, x.index, x.value, keys[i : i + 1], *ask)
        assert all(one[i].tobytes() == other[0].tobytes() for one, other in zip(together, alone, strict=True))


# -------------------- files and damage


def aligned(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A copy that begins at a cache line, at the end of an allocation: a sanitizer sees a step beyond."""
    room = np.empty(len(data) + 64, np.uint8)
    first = -room.ctypes.data % 64
    room[first : first + len(data)] = np.frombuffer(data, np.uint8)
    return room[first : first + len(data)]


def opened(model: Model, data: bytes) -> _core.Engine:
    tree = model.tree
    return _core.Engine(
        tree.parents, tree.leaf_of, *csr(model.routing), model.routing.shape[1], model.geometric, aligned(data)
    )


def signed(data: bytearray, chunks: int) -> bytes:
    """With the checksums of directory and header made anew, as a careful forger would."""
    directory = zlib.crc32(data[HEADER : HEADER + chunks * DIRECTORY])
    data[DIRECTORY_CHECKSUM : DIRECTORY_CHECKSUM + 4] = directory.to_bytes(4, "little")
    data[CHECKSUM : CHECKSUM + 4] = zlib.crc32(data[:CHECKSUM]).to_bytes(4, "little")
    return bytes(data)


def chunks_in(data: bytes) -> int:
    return int.from_bytes(data[48:56], "little")


@many
@given(cases)
def test_a_written_layout_is_the_layout(case: Case) -> None:
    fresh = engine(case.model)
    again = opened(case.model, fresh.layout().tobytes())
    found: list[Any] = [e.search(*csr(case.x), 3, 2, -1.0, ALL, NOBODY) for e in (fresh, again)]
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))
    assert engine(case.model, threads=3).layout().tobytes() == fresh.layout().tobytes()


def sparse_model(seed: int) -> Model:
    """Leaves of 90 arms over 300 features: lines, lists with bits, lists without."""
    rng = np.random.default_rng(seed)
    tree = Tree(np.array([-1, 0, 0, 1, 1, 2, 2], np.int32), np.repeat([3, 4, 5, 6], 90).astype(np.int32))
    keep = rng.random((7 + 360, 300)) < rng.choice([0.02, 0.2], 300)
    rewards = np.where(keep, rng.integers(-8, 9, keep.shape) / 8.0, 0.0)
    return Model(tree, np.where(keep[:7], 0.5, 0.0), rewards)


def test_damage_is_refused_or_harmless() -> None:
    """Any byte may change, its checksums with it: an error, or a decision of some kind, but no step outside."""
    refused = served = 0
    for model in (sparse_model(0), balanced_model(1, depth=3), random_case(5, True).model):
        data = engine(model).layout().tobytes()
        chunks, rng = chunks_in(data), np.random.default_rng(0)
        X = rng.integers(-8, 9, (3, model.routing.shape[1] - 1)) / 8.0
        directory = HEADER + chunks * DIRECTORY
        places = [*range(HEADER), *range(HEADER, min(directory, HEADER + 20 * DIRECTORY))]
        places += rng.integers(directory, len(data), 400).tolist()
        for place in places:
            damaged = bytearray(data)
            damaged[place] ^= int(rng.choice([1, 0x80, 0xFF]))
            try:
                serving = opened(model, signed(damaged, chunks))
                for x in X:
                    serving.search(*csr(x), 3, 2, -1.0, ALL, NOBODY)
                served += 1
            except ValueError:
                refused += 1
    assert refused > 100
    assert served > 100


def test_damaged_headers_and_lengths_are_named() -> None:
    model = balanced_model(1)
    data = engine(model).layout().tobytes()
    wrong = bytearray(data)
    wrong[200] ^= 1
    for bad, why in (
        (data[:100], "100 bytes are less than a header"),
        (data[:-64], f"{len(data) - 64} bytes; {len(data)} were written"),
        (b"x" + data[1:], "not a serving layout"),
        (data[:20] + b"x" + data[21:], "the header does not have its own checksum"),
        (bytes(wrong), "the directory is corrupt"),
        (signed(wrong, chunks_in(data)), r"entry \d+ of the directory is out of bounds"),
        (engine(balanced_model(1, depth=3)).layout().tobytes(), "made for another model: 40 nodes, 81 arms, 7 columns"),
    ):
        with pytest.raises(ValueError, match=why):
            opened(model, bad)
    room = aligned(data + b"x" * 64)
    room[1 : len(data) + 1] = np.frombuffer(data, np.uint8)
    tree = model.tree
    with pytest.raises(ValueError, match="multiple of 64 bytes"):
        _core.Engine(tree.parents, tree.leaf_of, *csr(model.routing), 7, False, room[1 : len(data) + 1])


@pytest.fixture
def saved(learned: treetop.Model, tmp_path: Path) -> Path:
    learned.save(tmp_path / "m")
    return tmp_path / "m"


def same(a: treetop.Model, b: treetop.Model, X: Any) -> bool:
    one, other = (treetop.Policy().decide_batch(m, X, seed=2) for m in (a, b))
    return one.arms.tobytes() == other.arms.tobytes() and one.scores.tobytes() == other.scores.tobytes()


def test_a_loaded_model_serves_from_the_file(saved: Path, learned: treetop.Model, problem: Problem) -> None:
    again = treetop.Model.load(saved)
    assert again.engine.layout().tobytes() == (saved / "serving.bin").read_bytes()
    assert same(again, learned, problem.X)
    again.save(saved)  # over the very file that it serves from
    assert same(again, treetop.Model.load(saved), problem.X)


@pytest.mark.parametrize("damage", ["flip", "cut", "grow"])
def test_damaged_layout_files_are_named(saved: Path, damage: str) -> None:
    path = saved / "serving.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes({"flip": data, "cut": data[:-64], "grow": data + b"12345678"}[damage])
    with pytest.raises(treetop.ModelFileError, match=r"serving\.bin"):
        treetop.Model.load(saved)


def lie(folder: Path, **facts: Any) -> None:
    """Other facts about the layout, and a signature to match."""
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["crc32"]
    manifest["serving"].update(facts)
    manifest["crc32"] = zlib.crc32(json.dumps(manifest, sort_keys=True).encode())
    (folder / "manifest.json").write_text(json.dumps(manifest))


def test_a_layout_that_cannot_be_used_is_made_again(saved: Path, learned: treetop.Model, problem: Problem) -> None:
    original = (saved / "manifest.json").read_bytes()
    for facts, why in (({"version": 99}, "has version 99; this software reads"), ({"of": 1}, "made from other arrays")):
        lie(saved, **facts)
        with pytest.warns(UserWarning, match=why):
            assert same(treetop.Model.load(saved), learned, problem.X)
        (saved / "manifest.json").write_bytes(original)
    (saved / "serving.bin").unlink()
    with pytest.warns(UserWarning, match="is missing; the first decision makes the layout again"):
        assert same(treetop.Model.load(saved), learned, problem.X)


def test_a_forged_layout_of_another_model_is_refused(saved: Path) -> None:
    data = engine(balanced_model(1)).layout().tobytes()
    (saved / "serving.bin").write_bytes(data)
    lie(saved, bytes=len(data), crc32=zlib.crc32(data))
    with pytest.raises(treetop.ModelFileError, match="serving layout: made for another model"):
        treetop.Model.load(saved)


def test_lines_are_those_of_the_layout(problem: Problem, learned: treetop.Model) -> None:
    x = treetop.arrays.as_rows(problem.X[0])
    lines = learned.engine.lines(x.start, x.index, x.value, 5, 3)
    assert len(set(lines.tolist())) == len(lines) > 0
    data = learned.engine.layout().view(np.uint64)
    seconds, total = learned.engine.touch(lines)
    assert seconds >= 0
    assert total == int(data[lines * 8].astype(object).sum()) % 2**64
    with pytest.raises(ValueError, match="line is -1, outside"):
        learned.engine.touch(np.array([-1], np.int64))


def test_the_stages_of_a_decision_are_timed(problem: Problem, learned: treetop.Model) -> None:
    x, igw = treetop.arrays.as_rows(problem.X[0]), treetop.IGW().native(10)
    assert all(seconds >= 0 for seconds in learned.engine.stages(x.start, x.index, x.value, 7, 5, 3, 3, *igw))
    with pytest.raises(ValueError, match="explore is 6, outside"):
        learned.engine.stages(x.start, x.index, x.value, 7, 5, 6, 3, *igw)


def test_so_are_those_of_treetop_s_learner(problem: Problem, learned: treetop.Model) -> None:
    x, nothing = treetop.arrays.as_rows(problem.X[0]), np.zeros(learned.n_arms, np.float32)
    means = np.array([0.5, 0.1], np.float32)
    state = PooledState(means=means, sample_count=nothing.astype(np.int32), trial_value=nothing)
    model, budgeted = replace(learned, pooled=state), treetop.Budgeted().native(10)
    assert all(seconds >= 0 for seconds in model.engine.stages(x.start, x.index, x.value, 7, 5, 3, 3, *budgeted))


def test_contexts_of_the_twin_reach_every_arm() -> None:
    """What the damage test relies on: undamaged, the sparse model scores as its matrix says."""
    model, x = sparse_model(0), context(0, 299)
    _, is_node, ids, _, score, *_ = engine(model).search(*csr(x), 1, 4, -1.0, ALL, NOBODY)
    assert not is_node.any()
    np.testing.assert_array_equal(score, (model.rewards @ np.append(x, 1.0))[7 + ids].astype(np.float32))
