"""Bad input at the entries of a decision: handled like its clean twin, or refused with the value and the limit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.bad_input import ARMS, F32, FLAT, MINE, POLICY, D, refused, same
from helpers.problems import Problem

import treetop
from treetop import FlatModel, Policy

pytestmark = pytest.mark.filterwarnings("ignore:the feedback has .* rounds, the model has seen")  # a few rounds will do


@pytest.fixture(scope="module")
def flat(problem: Problem) -> FlatModel:
    return FlatModel(ARMS, D).refit(problem.feedback(50))


# ------------------------------------------------------------------------------------------------- contexts

LABELS: Any = np.eye(3, ARMS)
THREE_ARMS = treetop.Tree(np.array([-1, 0, 0]), np.array([1, 1, 2]))
ONE_ROW: dict[str, Callable[[Any, Any, Any], Any]] = {
    "decide": lambda model, flat, x: POLICY.decide(model, x, "e"),
    "decide, own strategy": lambda model, flat, x: MINE.decide(model, x, "e"),
    "explain": lambda model, flat, x: POLICY.explain(model, x),
    "flat decide": lambda model, flat, x: FLAT.decide(flat, x, "e"),
    "flat explain": lambda model, flat, x: FLAT.explain(flat, x),
}
ROWS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "decide_batch": lambda model, flat, X: POLICY.decide_batch(model, X, seed=1),
    "decide_batch, own strategy": lambda model, flat, X: MINE.decide_batch(model, X, seed=1),
    "flat decide_batch": lambda model, flat, X: FLAT.decide_batch(flat, X, seed=1),
    "Feedback": lambda model, flat, X: (
        treetop.refit(model, treetop.Feedback(X, [[1, 2]] * 3, [[-1, -1]] * 3, [[1, 0]] * 3)).reward_rows
    ),
    "Tree.from_labels": lambda model, flat, X: treetop.Tree.from_labels(X, LABELS, max_leaf=4),
    "Tree.from_vectors": lambda model, flat, X: treetop.Tree.from_vectors(X, max_leaf=2),
    "Model.initial": lambda model, flat, X: treetop.Model.initial(model.tree, X, LABELS).route_rows,
    "Model.from_vectors": lambda model, flat, X: treetop.Model.from_vectors(THREE_ARMS, X).route_rows,
    "Model.from_weights": lambda model, flat, X: treetop.Model.from_weights(THREE_ARMS, X, np.ones((6, D))).route_rows,
    "Linear.fit": lambda model, flat, X: treetop.Linear().fit(X, [0.0, 1.0, 0.5]).weights,
}


def csr(X: Any, data: Any = None, indices: Any = None, indptr: Any = None) -> Any:
    """A csr matrix whose arrays are put in behind scipy's back."""
    m = sp.csr_matrix(X)
    m.data, m.indices, m.indptr = (
        old if new is None else new for old, new in ((m.data, data), (m.indices, indices), (m.indptr, indptr))
    )
    return m


def halves(X: Any) -> Any:
    """Every entry as two halves, the later columns first."""
    m = sp.csr_matrix(X)
    pieces = [np.tile(np.arange(a, b)[::-1], 2) for a, b in zip(m.indptr[:-1], m.indptr[1:], strict=True)]
    at = np.concatenate(pieces)
    return sp.csr_matrix((m.data[at] / 2, m.indices[at], m.indptr * 2), shape=m.shape)


def unsorted(X: Any) -> Any:
    m = sp.csr_matrix(X)
    at = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(m.indptr[:-1], m.indptr[1:], strict=True)])
    return sp.csr_matrix((m.data[at], m.indices[at], m.indptr), shape=m.shape)


def typed(kind: Any, dtype: str) -> Callable[[Any], Any]:
    return lambda X: kind(X.astype(dtype))


def long_indices(X: Any) -> Any:
    m = sp.csr_matrix(X)
    return csr(X, indices=m.indices.astype(np.int64), indptr=m.indptr.astype(np.int64))


def claims_order(X: Any) -> Any:
    m = unsorted(X)
    m.has_sorted_indices = m.has_canonical_format = True
    return m


def strided(array: Any) -> Any:
    out = np.zeros([2 * n for n in array.shape], array.dtype)[tuple(slice(None, None, 2) for _ in array.shape)]
    out[...] = array
    return out


def frozen(X: Any) -> Any:
    m = sp.csr_matrix(X)
    for array in (m.data, m.indices, m.indptr):
        array.setflags(write=False)
    return m


CLEAN_TWINS: dict[str, Callable[[Any], Any]] = {
    **{f.__name__: f for f in (sp.csr_matrix, sp.csr_array, sp.csc_matrix, sp.csc_array, sp.coo_matrix, sp.coo_array)},
    **{f.__name__: f for f in (sp.bsr_array, sp.lil_array, sp.dok_array, sp.dia_array)},
    **{f"csr of {t}": typed(sp.csr_matrix, t) for t in ("f8", "g", "i1", "u1", "i8", "u8")},
    **{f"coo of {t}": typed(sp.coo_matrix, t) for t in ("f8", "i1", "u8")},
    **{f"dense {t}": typed(np.asarray, t) for t in ("f2", "f4", ">f4", "f8", ">f8", "g", "i4", ">i2", "u1")},
    "int64 indices": long_indices,
    "unsorted": unsorted,
    "unsorted, said to be sorted": claims_order,
    "duplicates": halves,
    "float64 csc with duplicates": lambda X: sp.csc_matrix(
        (halves(X.T).data.astype("f8"), halves(X.T).indices, halves(X.T).indptr), shape=X.shape
    ),
    "coo with duplicates": lambda X: halves(X).tocoo(),
    "explicit zeros": lambda X: csr(X + 1, data=sp.csr_matrix(X + 1).data - 1),
    "room behind the last row": lambda X: csr(
        X, data=np.r_[sp.csr_matrix(X).data, 9, np.nan], indices=np.r_[sp.csr_matrix(X).indices, 7, 99].astype("i4")
    ),
    "strided arrays": lambda X: csr(X, data=strided(sp.csr_matrix(X).data), indices=strided(sp.csr_matrix(X).indices)),
    "read-only arrays": frozen,
    "rows of a larger matrix": lambda X: sp.csr_matrix(np.vstack([X, X + 1]))[: len(X)],
    "dense strided": strided,
    "dense in Fortran order": np.asfortranarray,
    "dense backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "dense read-only": lambda X: np.frombuffer(X.tobytes(), X.dtype).reshape(X.shape),
    "np.matrix": lambda X: sp.csr_matrix(X).todense(),
    "lists": lambda X: X.tolist(),
    "tuples of ints": lambda X: tuple(map(tuple, X.astype(int).tolist())),
}
FLAT_TWINS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda x: x,
    "strided": strided,
    "list of ints": lambda x: x.astype(int).tolist(),
    "coo_array": sp.coo_array,
    "csr_array": sp.csr_array,
    "dok_array": sp.dok_array,
}


@pytest.fixture(scope="module")
def whole(problem: Problem) -> Any:
    """Three contexts of small whole numbers, which every type of number holds."""
    return np.round(problem.X[:3].toarray() * 8)


@pytest.mark.parametrize("twin", CLEAN_TWINS.values(), ids=CLEAN_TWINS)
def test_every_kind_of_matrix_decides_like_the_clean_one(
    twin: Callable[[Any], Any], whole: Any, learned: treetop.Model, flat: FlatModel
) -> None:
    for call in ROWS.values():
        same(call(learned, flat, twin(whole)), call(learned, flat, sp.csr_matrix(whole.astype(np.float32))))
    for call in ONE_ROW.values():
        same(call(learned, flat, twin(whole[1:2])), call(learned, flat, sp.csr_matrix(whole[1:2].astype(np.float32))))


@pytest.mark.parametrize("twin", FLAT_TWINS.values(), ids=FLAT_TWINS)
@pytest.mark.parametrize("call", ONE_ROW.values(), ids=ONE_ROW)
def test_one_context_may_have_one_dimension(twin: Any, call: Any, whole: Any, learned: Any, flat: FlatModel) -> None:
    same(call(learned, flat, twin(whole[1])), call(learned, flat, sp.csr_matrix(whole[1:2].astype(np.float32))))


@pytest.mark.parametrize("kind", [sp.csr_matrix, sp.coo_matrix, np.asarray])
def test_truth_values_are_ones(kind: Any, whole: Any, learned: treetop.Model) -> None:
    same(POLICY.decide(learned, kind(whole[:1] > 0), 1), POLICY.decide(learned, (whole[:1] > 0).astype("f4"), 1))


def test_repeated_entries_add_up_without_overflow() -> None:
    twice: Any = np.array([200, 200], np.uint8), ([0, 0], [1, 1])
    for matrix in (sp.coo_matrix(twice, shape=(1, 3)), csr(np.eye(1, 3), twice[0], np.array([1, 1], "i4"), [0, 2])):
        assert treetop.Feedback(matrix, [[0]], [[-1]], [[1]]).contexts.csr().toarray().tolist() == [[0, 400, 0]]


def test_what_is_put_in_order_stays_as_it_was_for_the_user(whole: Any, learned: treetop.Model) -> None:
    messy = halves(whole[:1])
    before = messy.data.copy(), messy.indices.copy(), messy.indptr.copy()
    POLICY.decide(learned, messy)
    for now, then in zip((messy.data, messy.indices, messy.indptr), before, strict=True):
        np.testing.assert_array_equal(now, then)


def dense(n: int, value: Any) -> Any:
    X = np.ones((n, D), np.result_type(value))
    X[n - 1, 2] = value
    return X


def indexed(n: int, column: int) -> Any:
    return csr(np.eye(n, D), indices=np.full(n, column, np.int64 if column > D else np.int32))


def moved_coo(n: int, **coordinates: int) -> Any:
    """Coordinates changed behind scipy's back, which would write where they point."""
    m = sp.coo_matrix(np.eye(n, D))
    for name, value in coordinates.items():
        getattr(m, name)[0] = value
    return m


def moved_csc(n: int, row: int) -> Any:
    m = sp.csc_matrix(np.ones((n, D)))
    m.indices[:] = row
    return m


Bad = tuple[Callable[[int], Any], type[Exception], tuple[str, ...]]  # from a number of rows
BAD_CONTEXTS: dict[str, Bad] = {
    "nan": (lambda n: dense(n, np.nan), ValueError, ("row", "value nan at index 2 is not finite")),
    "float32 inf": (lambda n: dense(n, np.float32(np.inf)), ValueError, ("value inf at index 2 is not finite",)),
    "sparse -inf": (lambda n: sp.csr_array(dense(n, -np.inf)), ValueError, ("value -inf at index 2 is not finite",)),
    "csc nan": (lambda n: sp.csc_array(dense(n, np.nan)), ValueError, ("value nan at index", "is not finite")),
    "1e300": (lambda n: dense(n, 1e300), ValueError, ("value 1e+300 is beyond the limit", F32)),
    "sum beyond float32": (lambda n: halves(dense(n, 3e38)) * 2, ValueError, ("value inf at index 2 is not finite",)),
    "3 dimensions": (lambda n: np.ones((n, D, 1)), ValueError, ("have 3 dimensions; one row or a matrix is needed",)),
    "sparse, 3 dimensions": (lambda n: sp.coo_array(np.ones((n, D, 1))), ValueError, ("have 3 dimensions",)),
    "no dimension": (lambda n: 1.0, ValueError, ("have 0 dimensions; one row or a matrix is needed",)),
    "text": (lambda n: [["a"] * D] * n, TypeError, ("hold <U1 values; numbers are needed",)),
    "objects": (lambda n: np.full((n, D), None), TypeError, ("hold object values; numbers are needed",)),
    "None": (lambda n: None, TypeError, ("hold object values; numbers are needed",)),
    "complex": (lambda n: dense(n, 1j), TypeError, ("hold complex128 values; numbers are needed",)),
    "sparse complex": (lambda n: sp.csr_array(dense(n, 1j)), TypeError, ("hold complex128 values",)),
    "dates": (lambda n: np.zeros((n, D), "M8[s]"), TypeError, ("hold datetime64[s] values; numbers are needed",)),
    "ragged": (lambda n: [[1.0] * D] * n + [[1.0]], ValueError, ("are not an array", "inhomogeneous")),
    "masked": (lambda n: np.ma.masked_equal(np.eye(n, D), 0), TypeError, ("are masked",)),
    "index 40": (lambda n: indexed(n, D), ValueError, ("index 40 is outside [0, 40)",)),
    "index -1": (lambda n: indexed(n, -1), ValueError, ("index -1 is outside [0, 40)",)),
    "index 2**32": (lambda n: indexed(n, 2**32), ValueError, ("index 4294967296 is outside [0, 40)",)),
    "csc row": (lambda n: moved_csc(n, 10**8), ValueError, (f"index {10**8} is outside [0, ",)),
    "csc row -1": (lambda n: moved_csc(n, -1), ValueError, ("index -1 is outside [0, ",)),
    "coo row": (lambda n: moved_coo(n, row=10**8), ValueError, (f"axis 0 index {10**8} exceeds matrix dimension",)),
    "coo column": (lambda n: moved_coo(n, col=D), ValueError, ("axis 1 index 40 exceeds matrix dimension 40",)),
    "coo -1": (lambda n: moved_coo(n, col=-1), ValueError, ("negative axis 1 index: -1",)),
    "row pointers": (lambda n: csr(np.eye(n, D), indptr=np.array([0, 9, n, n][: n + 1])), ValueError, (" 9",)),
}


@pytest.mark.parametrize("bad", BAD_CONTEXTS.values(), ids=BAD_CONTEXTS)
def test_broken_contexts_are_refused_everywhere(bad: Bad, learned: treetop.Model, flat: FlatModel) -> None:
    make, error, message = bad
    for calls, n in ((ONE_ROW, 1), (ROWS, 3)):
        for call in calls.values():
            with refused(error, *message):
                call(learned, flat, make(n))


@pytest.mark.parametrize("columns", [0, D - 1, D + 1])
def test_another_number_of_features_is_refused(columns: int, learned: treetop.Model, flat: FlatModel) -> None:
    message = f"contexts have {columns} features; the model has {D}"
    for calls, n in ((ONE_ROW, 1), (ROWS, 3)):
        for name, call in calls.items():
            if "decide" in name or "explain" in name:
                with refused(ValueError, message):
                    call(learned, flat, np.ones((n, columns)))
    with refused(ValueError, f"have {columns} features; the model has 2"):
        treetop.Linear().fit([[1.0, 2.0]], [1.0]).predict(np.ones((1, columns)))


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("call", ONE_ROW.values(), ids=ONE_ROW)
def test_one_context_is_one(n: int, call: Any, learned: treetop.Model, flat: FlatModel) -> None:
    with refused(ValueError, f"take 1 context, not {n}; decide_batch takes many"):
        call(learned, flat, np.ones((n, D)))


def test_no_rows_are_no_decisions(learned: treetop.Model, flat: FlatModel) -> None:
    for empty in (np.zeros((0, D)), sp.csr_matrix((0, D)), sp.csc_array((0, D))):
        assert POLICY.decide_batch(learned, empty).arms.shape == (0, 4)
        assert MINE.decide_batch(learned, empty, event_ids=[]).arms.shape == (0, 4)
        assert FLAT.decide_batch(flat, empty).arms.shape == (0, 4)


def test_a_context_without_features_has_decisions(learned: treetop.Model) -> None:
    same(POLICY.decide(learned, np.zeros(D), 1), POLICY.decide(learned, sp.csr_matrix((1, D)), 1))


@pytest.mark.parametrize("ask", [POLICY.decide, POLICY.explain, MINE.decide, MINE.explain])
def test_scores_beyond_float32_are_refused(ask: Any, learned: treetop.Model) -> None:
    weights = np.full(learned.rewards.shape, 1e30)
    heavy = treetop.Model.from_weights(learned.tree, learned.routing, weights)
    with refused(ValueError, "score", "is inf"):
        ask(heavy, np.full(D, 1e10))


# ------------------------------------------------------------------------------------------------- events, seeds


@pytest.mark.parametrize("event", ["q-1", "", "ü 🦆 \n\0", "7" * 10_000, 0, -7, 2**70, np.int64(7), np.str_("x")])
@pytest.mark.parametrize("policy", [POLICY, MINE, FLAT])
def test_an_event_is_text_or_a_whole_number(event: Any, policy: Any, learned: Any, flat: Any, whole: Any) -> None:
    model = flat if policy is FLAT else learned
    one = policy.decide(model, whole[0], event)
    assert one.event_id == str(event)
    same(one, policy.decide(model, whole[0], str(event)))
    same(one, policy.decide_batch(model, whole[:2], event_ids=[event, "other"])[0])


@pytest.mark.parametrize("event", [1.5, b"q", True, float("nan"), ("a",), object])
@pytest.mark.parametrize("policy", [POLICY, MINE, FLAT])
def test_other_events_are_refused(event: Any, policy: Any, learned: Any, flat: Any, whole: Any) -> None:
    model = flat if policy is FLAT else learned
    with refused(TypeError, f"event id must be text or a whole number, not {event!r}"):
        policy.decide(model, whole[0], event)
    with refused(TypeError, f"event id must be text or a whole number, not {event!r}"):
        policy.decide_batch(model, whole[:1], event_ids=[event])


BAD_BATCHES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "an event that is None": ({"event_ids": ["a", None, "b"]}, TypeError, "must be text or a whole number, not None"),
    "half a character": ({"event_ids": ["a", "\ud800", "b"]}, ValueError, r"can't encode character '\ud800'"),
    "one text": ({"event_ids": "abc"}, TypeError, "event_ids is 'abc'; it must be a list"),
    "too few": ({"event_ids": ["a"]}, ValueError, "1 event ids for 3 contexts"),
    "seed and events": ({"event_ids": ["a"] * 3, "seed": 1}, ValueError, "either seed or event_ids, not both"),
    "seed 1.5": ({"seed": 1.5}, TypeError, "seed must be a whole number, not 1.5"),
    "seed 2**65": ({"seed": 2**65}, ValueError, f"seed is {2**65}; it must lie in [{-(2**63)}, {2**64}]"),
    "first_row -1": ({"first_row": -1}, ValueError, f"first_row is -1; it must lie in [0, {2**62}]"),
}


@pytest.mark.parametrize(("settings", "error", "message"), BAD_BATCHES.values(), ids=BAD_BATCHES)
@pytest.mark.parametrize("policy", [POLICY, MINE, FLAT])
def test_bad_batches_are_refused(
    settings: Any, error: Any, message: str, policy: Any, learned: Any, flat: Any, whole: Any
) -> None:
    with refused(error, message):
        policy.decide_batch(flat if policy is FLAT else learned, whole, **settings)


@pytest.mark.parametrize("threads", [-1, 4097, 1.0])
def test_threads_have_limits(threads: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=rf"threads .*{threads}"):
        Policy(threads=threads)
