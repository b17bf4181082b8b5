"""Bad sets of arms, strategies, feedback and oracles: like the clean twin, or refused with the value and the limit."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from helpers.bad_input import ARMS, F32, FLAT, MINE, POLICY, TYPE, VALUE, Call, D, Table, Uniform, refused, same, table
from helpers.problems import Problem

import treetop
from treetop import IGW, Eligible, Feedback, FlatModel, FlatPolicy, Linear, Policy, Tree

pytestmark = pytest.mark.filterwarnings("ignore:the feedback has .* rounds, the model has seen")  # a few rounds will do


@pytest.fixture(scope="module")
def flat(problem: Problem) -> FlatModel:
    return FlatModel(ARMS, D).refit(problem.feedback(50))


def every(learned: treetop.Model, flat: FlatModel) -> list[tuple[Any, Any]]:
    """The core's path, the path through Python, and the policy without a tree; each with its model."""
    return [(POLICY, learned), (MINE, learned), (FLAT, flat)]


# ------------------------------------------------------------------------------------------------- eligible arms

LISTED = [3, 17, 18, 40, 41, 59]
ONLY = np.isin(np.arange(ARMS), LISTED)
OTHERS = np.flatnonzero(~ONLY)
SAME_ARMS: dict[str, dict[str, Any]] = {
    "unsorted": {"eligible": LISTED[::-1]},
    "repeated": {"eligible": [*LISTED, 17, 17, 3]},
    "tuple": {"eligible": tuple(LISTED)},
    "int64": {"eligible": np.array(LISTED, np.int64)},
    "uint8": {"eligible": np.array(LISTED, np.uint8)},
    "big endian": {"eligible": np.array(LISTED, ">i4")},
    "every second": {"eligible": np.repeat(LISTED, 2)[::2]},
    "mask": {"eligible": ONLY},
    "list of truths": {"eligible": ONLY.tolist()},
    "strided mask": {"eligible": np.repeat(ONLY, 2)[::2]},
    "exclude": {"exclude": OTHERS},
    "repeated exclude": {"exclude": np.repeat(OTHERS, 3)},
    "exclude by mask": {"exclude": ~ONLY},
    "both": {"eligible": [0, 1, *LISTED], "exclude": [1, 0, 30]},
    "both masks": {"eligible": np.ones(ARMS, bool), "exclude": ~ONLY},
    "nothing excluded": {"eligible": LISTED, "exclude": []},
}


@pytest.mark.parametrize("arms", SAME_ARMS.values(), ids=SAME_ARMS)
def test_every_way_to_name_arms_is_the_same(
    arms: dict[str, Any], problem: Problem, learned: treetop.Model, flat: FlatModel
) -> None:
    for policy, model in every(learned, flat):
        x: Any = problem.X[:3]
        same(policy.decide(model, x[0], 1, **arms), policy.decide(model, x[0], 1, eligible=LISTED))
        same(policy.explain(model, x[0], **arms), policy.explain(model, x[0], eligible=LISTED))
        clean = policy.decide_batch(model, x, 1, eligible=LISTED)
        same(policy.decide_batch(model, x, 1, **arms), clean)
        assert ONLY[clean.arms].all()


@pytest.mark.parametrize("policy", [POLICY, MINE])
def test_prepared_sets_and_masks_by_row(policy: Policy, problem: Problem, learned: treetop.Model) -> None:
    x, prepared = problem.X[0], Eligible.of(learned.tree, LISTED)
    clean = policy.decide(learned, x, 1, eligible=LISTED)
    twin = Tree(learned.tree.parents, learned.tree.leaf_of)  # the same tree made again, as by Model.load
    for same_arms in (prepared, ONLY[None], Eligible.of(learned.tree, ONLY[None]), Eligible.of(twin, LISTED)):
        same(policy.decide(learned, x, 1, eligible=same_arms), clean)
        same(policy.explain(learned, x, eligible=same_arms), policy.explain(learned, x, eligible=LISTED))
    none = policy.decide_batch(learned, problem.X[:0], eligible=np.zeros((0, ARMS), bool))
    assert none.arms.shape == (0, 4)


BAD_ARMS: dict[str, tuple[dict[str, Any], type[Exception], tuple[str, ...]]] = {
    "arm 60": ({"eligible": [1, 60]}, VALUE, ("eligible arm 60 is outside [0, 60)",)),
    "arm -1": ({"eligible": [1, -1]}, VALUE, ("eligible arm -1 is outside [0, 60)",)),
    "arm 2**32": ({"eligible": [2**32]}, VALUE, ("eligible arm 4294967296 is outside [0, 60)",)),
    "arm 2**64 - 1": ({"exclude": np.array([2**64 - 1], np.uint64)}, VALUE, (f"excluded arm {2**64 - 1} is outside",)),
    "excluded -1": ({"exclude": [-1]}, VALUE, ("excluded arm -1 is outside [0, 60)",)),
    "fractions": ({"eligible": [1.0, 2.0]}, TYPE, ("eligible arm must be whole numbers, not float64",)),
    "nan": ({"exclude": [np.nan]}, TYPE, ("excluded arm must be whole numbers, not float64",)),
    "names": ({"eligible": ["a"]}, TYPE, ("eligible arm must be whole numbers, not <U1",)),
    "short mask": ({"eligible": ONLY[1:]}, VALUE, ("mask has", "59", "60 arms")),
    "long mask": ({"exclude": np.r_[ONLY, True]}, VALUE, ("mask has", "61", "60 arms")),
    "one arm": ({"eligible": 3}, VALUE, ("eligible arms must be a list of ids or a mask, not an array of shape ()",)),
    "matrix of ids": ({"eligible": [[1, 2]]}, VALUE, ("mask", "shape (1, 2)")),
    "excluded matrix": ({"exclude": np.ones((1, ARMS), bool)}, VALUE, ("must be a list of ids or a mask", "(1, 60)")),
    "nobody": ({"eligible": []}, VALUE, ("none of the 60 arms is eligible",)),
    "empty mask": ({"eligible": np.zeros(ARMS, bool)}, VALUE, ("none of the 60 arms is eligible",)),
    "all excluded": ({"exclude": np.arange(ARMS)}, VALUE, ("none of the 60 arms is eligible",)),
    "none left": ({"eligible": [1, 2], "exclude": [2, 1]}, VALUE, ("none of the 60 arms is eligible",)),
}


@pytest.mark.parametrize(("arms", "error", "message"), BAD_ARMS.values(), ids=BAD_ARMS)
def test_bad_arms_are_refused(
    arms: Any, error: Any, message: Any, problem: Problem, learned: treetop.Model, flat: FlatModel
) -> None:
    for policy, model in every(learned, flat):
        for ask in (policy.decide, policy.explain, policy.decide_batch):
            with refused(error, *message):
                ask(model, problem.X[0], **arms)


def test_prepared_sets_have_limits(problem: Problem, learned: treetop.Model, flat: FlatModel) -> None:
    x, two = problem.X[0], np.tile(ONLY, (2, 1))
    moved = Tree(learned.tree.parents, learned.tree.leaf_of[::-1].copy())
    cases: list[tuple[dict[str, Any], str]] = [
        ({"eligible": two}, "the mask has 2 rows for 1 contexts"),
        ({"eligible": Eligible.of(learned.tree, two)}, "the mask has 2 rows for 1 contexts"),
        ({"eligible": two[:, 1:]}, "boolean of shape (n, 60), not bool of shape (2, 59)"),
        ({"eligible": two.astype(int)}, "boolean of shape (n, 60), not int64 of shape (2, 60)"),
        ({"eligible": np.zeros((1, ARMS), bool)}, "none of the 60 arms is eligible"),
        ({"eligible": Eligible.of(moved, LISTED)}, "was not prepared for Tree(60 arms"),
        ({"eligible": Eligible(1, np.array([0, 1], np.int32))}, "was not prepared for Tree(60 arms"),
        ({"eligible": Eligible.of(learned.tree, LISTED), "exclude": [1]}, "exclude cannot be added to a prepared"),
    ]
    for arms, message in cases:
        for ask in (POLICY.decide, POLICY.explain, POLICY.decide_batch, MINE.decide, MINE.explain, MINE.decide_batch):
            with refused(ValueError, message):
                ask(learned, x, **arms)
    with refused(ValueError, "the mask has 2 rows for 3 contexts"):
        POLICY.decide_batch(learned, problem.X[:3], eligible=two)
    with refused(ValueError, "eligible arms must be a list of ids or a mask"):
        FLAT.decide(flat, x, eligible=Eligible.of(learned.tree, LISTED))  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- users' strategies


class Says:
    """Answers every question about probabilities alike."""

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.answer = answer

    def probabilities(self, scores: Any, n_seen: int) -> Any:
        return self.answer(len(scores))


BAD_STRATEGIES: dict[str, tuple[Callable[[int], Any], type[Exception], tuple[str, ...]]] = {
    "too few": (lambda n: np.ones(n - 1) / (n - 1), VALUE, ("probabilities of shape", "arms in play")),
    "a column": (lambda n: np.ones((n, 1)) / n, VALUE, ("probabilities of shape", ", 1) for", "arms in play")),
    "one number": (lambda n: 1.0, VALUE, ("probabilities of shape () for", "arms in play")),
    "negative": (lambda n: [-0.5, 1.5] + [0] * (n - 2), VALUE, ("gave the probability -0.5; it must be at least 0",)),
    "nan": (lambda n: [np.nan] * n, VALUE, ("gave the probability nan; it must be at least 0",)),
    "inf": (lambda n: [np.inf] + [0] * (n - 1), VALUE, ("probabilities sum to inf; they must sum to 1",)),
    "sum 2": (lambda n: [2] + [0] * (n - 1), VALUE, ("probabilities sum to 2.0; they must sum to 1",)),
    "sum 0": (lambda n: np.zeros(n), VALUE, ("probabilities sum to 0.0; they must sum to 1",)),
    "None": (lambda n: None, TYPE, ("probabilities hold object values; numbers are needed",)),
    "text": (lambda n: ["1"] + ["0"] * (n - 1), TYPE, ("probabilities hold <U1 values; numbers are needed",)),
    "complex": (lambda n: np.full(n, 1 / n + 0j), TYPE, ("probabilities hold complex128 values",)),
    "ragged": (lambda n: [[1.0], [0.5, 0.5]], VALUE, ("probabilities are not an array",)),
    "its own error": (lambda n: np.zeros(n)[n], IndexError, ("out of bounds",)),
}


@pytest.mark.parametrize(("answer", "error", "message"), BAD_STRATEGIES.values(), ids=BAD_STRATEGIES)
def test_wrong_probabilities_are_refused(
    answer: Any, error: Any, message: Any, problem: Problem, learned: treetop.Model, flat: FlatModel
) -> None:
    mine = Says(answer)
    pairs: list[tuple[Any, Any]] = [(Policy(4, 2, 3, mine), learned), (FlatPolicy(4, 2, mine), flat)]
    for policy, model in pairs:
        for ask in (policy.decide, policy.explain, policy.decide_batch):
            with refused(error, *message):
                ask(model, problem.X[0])


@pytest.mark.parametrize("kind", [list, tuple, np.float32, lambda p: np.repeat(p, 2)[::2]])
def test_probabilities_of_any_kind(kind: Any, problem: Problem, learned: treetop.Model) -> None:
    mine = Policy(4, 2, 3, Says(lambda n: kind([1.0] + [0.0] * (n - 1))))
    same(
        mine.decide(learned, problem.X[0], 1),
        Policy(4, 2, 3, Says(lambda n: np.eye(1, n)[0])).decide(learned, problem.X[0], 1),
    )


def test_a_subclass_of_a_known_strategy_is_asked(problem: Problem, learned: treetop.Model, flat: FlatModel) -> None:
    class Mine(IGW):
        def probabilities(self, scores: Any, n_seen: int) -> Any:
            return Uniform().probabilities(scores, n_seen)

    pairs: list[tuple[Any, Any]] = [(Policy, learned), (FlatPolicy, flat)]
    for kind, model in pairs:
        mine, uniform = (kind(k=4, explore=2, strategy=s) for s in (Mine(), Uniform()))
        same(mine.decide(model, problem.X[0], 1), uniform.decide(model, problem.X[0], 1))


# ------------------------------------------------------------------------------------------------- feedback

NAN, INF = float("nan"), float("inf")


def feedback(**changes: Any) -> Feedback:
    clean: dict[str, Any] = {
        "contexts": np.eye(2, D),
        "arms": [[1, 2], [3, -1]],
        "nodes": [[-1, -1]] * 2,
        "rewards": [[1, 0], [0.5, NAN]],
    }
    return Feedback(**{**clean, **changes})


def rewarded(first: float, second: float, limits: Any = (0, 1)) -> Feedback:
    return feedback(rewards=[[first, second], [0, NAN]], reward_range=limits)


BAD_FEEDBACK: Table = {
    "inf": (lambda: rewarded(0, INF), VALUE, "reward inf of round 0, slot 1 is outside [0, 1]"),
    "unlimited inf": (lambda: rewarded(0, -INF, None), VALUE, "reward -inf of round 0, slot 1 is not finite"),
    "2": (lambda: rewarded(2, 0), VALUE, "reward 2.0 of round 0, slot 0 is outside [0, 1]"),
    "-1": (lambda: rewarded(0, -1), VALUE, "reward -1.0 of round 0, slot 1 is outside [0, 1]"),
    "just above 1": (lambda: rewarded(1 + 1e-9, 0), VALUE, "reward 1.000000001 of round 0, slot 0 is outside [0, 1]"),
    "1e300": (lambda: rewarded(1e300, 0, None), VALUE, f"value 1e+300 is beyond the limit {F32}"),
    "6 of 5": (lambda: rewarded(6, 0, (0, 5)), VALUE, "reward 6.0 of round 0, slot 0 is outside [0, 5]"),
    "text": (lambda: feedback(rewards=[["1", "0"]] * 2), TYPE, "rewards hold <U1 values; numbers are needed"),
    "None": (lambda: feedback(rewards=[[None, 0]] * 2), TYPE, "rewards hold object values; numbers are needed"),
    "complex": (lambda: feedback(rewards=[[1j, 0]] * 2), TYPE, "rewards hold complex128 values"),
    "masked": (lambda: feedback(rewards=np.ma.masked_equal([[1, 0]] * 2, 0)), TYPE, "rewards are masked"),
    "no arm": (lambda: feedback(rewards=[[1, 0], [0, 1]]), VALUE, "round 1, slot 1 has a reward but no arm (-1)"),
    "1 row": (lambda: feedback(rewards=[[1, 0]]), VALUE, "rewards have shape (1, 2); 2 contexts and 2 slots need"),
    "a list of rewards": (lambda: feedback(rewards=[1, 0]), VALUE, "rewards have shape (1, 2); 2 contexts and 2 slots"),
    "fewer nodes": (lambda: feedback(nodes=[[-1]] * 2), VALUE, "nodes have shape (2, 1); 2 contexts and 2 slots need"),
    "more arms": (lambda: feedback(arms=[[1, 2]] * 3), VALUE, "arms have shape (3, 2); 2 contexts and 2 slots need"),
    "arms of 3 dimensions": (lambda: feedback(arms=[[[1]], [[2]]]), VALUE, "arms have shape (2, 1, 1)"),
    "arm -2": (lambda: feedback(arms=[[1, -2]] * 2), VALUE, f"arms -2 is outside [-1, {2**31 - 1})"),
    "arm 2**32": (lambda: feedback(arms=[[1, 2**32]] * 2), VALUE, "arms 4294967296 is outside [-1, "),
    "node -2": (lambda: feedback(nodes=[[-2, -1]] * 2), VALUE, "nodes -2 is outside [-1, "),
    "fractional arms": (lambda: feedback(arms=[[1.0, 2.0]] * 2), TYPE, "arms must be whole numbers, not float64"),
    "limits nan": (lambda: feedback(reward_range=(NAN, 1)), VALUE, "low end of reward_range is nan; it must be finite"),
    "limits 1, 0": (lambda: feedback(reward_range=(1, 0)), VALUE, "reward_range is 0; it must be finite and lie in"),
    "one limit": (lambda: feedback(reward_range=1), TYPE, "reward_range is 1; it must be (low, high)"),
}


@table(BAD_FEEDBACK)
def test_bad_feedback_is_refused(call: Call, error: Any, message: str) -> None:
    with refused(error, message):
        call()


def test_feedback_of_any_kind_teaches_the_same(learned: treetop.Model, flat: FlatModel) -> None:
    clean = feedback(rewards=[[1, 0], [1, NAN]])
    long = np.array([[1, 9, 2, 9], [3, 9, -1, 9]])
    half = np.array([[1.0, 0.0], [1.0, NAN]])
    twins = [
        feedback(rewards=half.astype(np.float16)),
        feedback(rewards=np.repeat(half, 2, axis=1)[:, ::2]),
        feedback(rewards=half.astype(">f8")),
        feedback(rewards=half, arms=long[:, ::2], nodes=np.full((2, 2), -1, np.int8)),
        feedback(rewards=half, contexts=sp.csc_matrix(np.eye(2, D)), reward_range=None),
        feedback(rewards=half, reward_range=(-5, 1)),
    ]
    for model in (learned, flat):
        expected = treetop.refit(model, clean)
        x = np.ones(D)
        ask: Any = FLAT.explain if model is flat else POLICY.explain
        for twin in twins:
            same(ask(treetop.refit(model, twin), x), ask(expected, x))


def test_what_was_not_observed_teaches_nothing_but_counts_as_a_round(learned: treetop.Model, flat: FlatModel) -> None:
    seen = feedback(rewards=[[1, NAN], [NAN, NAN]])
    less = feedback(contexts=np.eye(1, D), arms=[[1]], nodes=[[-1]], rewards=[[1]])
    for model in (learned, flat):
        a, b = (treetop.refit(model, f) for f in (seen, less))
        assert (a.n_seen, b.n_seen) == (2, 1)
    same(treetop.refit(learned, seen).reward_rows, treetop.refit(learned, less).reward_rows)
    assert list(treetop.refit(flat, seen).fitted) == [1]


@pytest.mark.parametrize("k", [0, 4])
def test_no_rounds_teach_nothing(k: int, learned: treetop.Model, flat: FlatModel) -> None:
    none = feedback(
        contexts=np.zeros((0, D)), arms=np.zeros((0, k), int), nodes=np.zeros((0, k)), rewards=np.zeros((0, k))
    )
    after = treetop.refit(learned, none)
    assert (after.epoch, after.n_seen, len(after.reward_rows.value)) == (learned.epoch + 1, 0, 0)
    after = treetop.refit(flat, none)
    assert (after.epoch, after.n_seen, after.fitted) == (flat.epoch + 1, 0, {})


def test_feedback_that_does_not_fit_the_model_is_refused(learned: treetop.Model, flat: FlatModel) -> None:
    tree = learned.tree
    leaf, nodes = int(tree.leaf_of[1]), tree.n_nodes
    outside = int(np.flatnonzero(tree.leaf_of != leaf)[0])
    through = {"contexts": np.eye(1, D), "nodes": [[leaf]], "rewards": [[1]]}
    cases: list[tuple[Any, Call, type[Exception], str]] = [
        (learned, lambda: feedback(contexts=np.eye(2, 7)), VALUE, "feedback has 7 features; the model has 40"),
        (flat, lambda: feedback(contexts=np.eye(2, 7)), VALUE, "feedback has 7 features; the model has 40"),
        (learned, lambda: feedback(arms=[[1, 60], [3, -1]]), VALUE, "feedback on arm 60, outside [0, 60)"),
        (flat, lambda: feedback(arms=[[1, 60], [3, -1]]), VALUE, "arm 60 is outside [0, 60)"),
        (learned, lambda: feedback(nodes=[[nodes, -1]] * 2), VALUE, f"feedback on node {nodes}, outside [0, {nodes})"),
        (learned, lambda: feedback(arms=[[outside]], **through), VALUE, f"arm {outside} is not below node {leaf}"),
        (learned, lambda: "yesterday", TYPE, "feedback must be a Feedback, not str"),
    ]
    for model, make, error, message in cases:
        with refused(error, message):
            treetop.refit(model, make())  # type: ignore[arg-type]
    with refused(ValueError, "FlatModel has an oracle of its own; learner=Linear("):
        treetop.refit(flat, feedback(), Linear())
    assert treetop.refit(learned, feedback(arms=[[1]], **through)).n_seen == 1


# ------------------------------------------------------------------------------------------------- oracles


class Oracle:
    """Learns nothing and predicts what it was told to."""

    def __init__(self, predictions: Callable[[int], Any], fitted: Any = ...) -> None:
        self.predictions, self.fitted = predictions, fitted

    def fit(self, X: Any, y: Any) -> Any:
        return self if self.fitted is ... else self.fitted

    def predict(self, X: Any) -> Any:
        return self.predictions(X.shape[0])


BAD_ORACLES: dict[str, tuple[Oracle, type[Exception], str]] = {
    "nan": (Oracle(lambda n: np.full(n, NAN)), VALUE, "the oracle predicted nan; predictions must be finite"),
    "inf": (Oracle(lambda n: [-INF] * n), VALUE, "the oracle predicted -inf; predictions must be finite"),
    "1e300": (Oracle(lambda n: [1e300] * n), VALUE, f"value 1e+300 is beyond the limit {F32}"),
    "one for all": (Oracle(lambda n: 0.5), VALUE, "the oracle predicted an array of shape () for"),
    "one more": (Oracle(lambda n: np.zeros(n + 1)), VALUE, "the oracle predicted an array of shape ("),
    "two columns": (Oracle(lambda n: np.zeros((n, 2))), VALUE, ", 2) for"),
    "text": (Oracle(lambda n: ["good"] * n), TYPE, "predictions hold <U4 values; numbers are needed"),
    "complex": (Oracle(lambda n: [1j] * n), TYPE, "predictions hold complex128 values"),
    "fit without answer": (Oracle(lambda n: 0, None), TYPE, "the oracle's fit gave None, which has no predict(X)"),
}


@pytest.mark.parametrize("joint", [None, lambda x, arms: np.ones((len(arms), 3))])
@pytest.mark.parametrize(("oracle", "error", "message"), BAD_ORACLES.values(), ids=BAD_ORACLES)
def test_bad_oracles_are_refused(oracle: Oracle, error: Any, message: str, joint: Any, problem: Problem) -> None:
    def play(ask: Any) -> None:
        ask(FlatModel(ARMS, D, lambda: oracle, joint).refit(feedback()), problem.X[0])

    for ask in (FLAT.decide, FLAT.explain, FLAT.decide_batch):
        with refused(error, message):
            play(ask)


BAD_FLAT: Table = {
    "no arms": (lambda: FlatModel(0, D), VALUE, "n_arms is 0; it must lie in [1, "),
    "no features": (lambda: FlatModel(ARMS, 0), VALUE, "n_features is 0; it must lie in [1, "),
    "n_seen -1": (lambda: FlatModel(ARMS, D, n_seen=-1), VALUE, "n_seen is -1; it must lie in [0, "),
    "a made oracle": (lambda: FlatModel(ARMS, D, Linear()), TYPE, "oracle must be a function or a class, not Linear("),  # type: ignore[arg-type]
    "joint 5": (lambda: FlatModel(ARMS, D, joint=5), TYPE, "joint must be a function or a class, not 5"),  # type: ignore[arg-type]
    "joint rows": (
        lambda: FlatModel(ARMS, D, joint=lambda x, arms: np.ones((2, 3))).refit(feedback()),
        VALUE,
        "joint gave 2 rows of features for 1 arms",
    ),
    "joint nan": (
        lambda: FlatModel(ARMS, D, joint=lambda x, arms: [[NAN]]).refit(feedback()),
        VALUE,
        "joint features row 0: value nan at index 0 is not finite",
    ),
}


@table(BAD_FLAT)
def test_bad_flat_models_are_refused(call: Call, error: Any, message: str) -> None:
    with refused(error, message):
        call()


@pytest.mark.parametrize(
    "shape", [lambda p: p, lambda p: p[:, None], lambda p: p.tolist(), lambda p: np.repeat(p, 2)[::2]]
)
def test_predictions_of_any_kind(shape: Any, problem: Problem) -> None:
    def play(kind: Any) -> Any:
        model = FlatModel(ARMS, D, lambda: Oracle(lambda n: kind(np.arange(n) / 8))).refit(feedback())
        return FLAT.decide_batch(model, problem.X[:5], 1)

    same(play(shape), play(np.float32))
