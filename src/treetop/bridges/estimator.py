"""An estimator in scikit-learn's shape over treetop's tree, routing and learner. scikit-learn itself is not needed."""

from __future__ import annotations

import inspect
import sys
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp

from treetop.arrays import Ints, as_indices, as_rows, check_int
from treetop.learning.label_samples import LabelSamples
from treetop.learning.pooled import Pooled
from treetop.learning.refit import initial_fit, refit
from treetop.model.model import Model
from treetop.policy.policy import Policy
from treetop.policy.strategies import Greedy
from treetop.records import Feedback
from treetop.tree.tree import Tree


class TopKClassifier:
    """The k best of very many classes: from labels, from rewards of what was shown, or from both.

    `y` is a class a row, or an indicator matrix (n, n_classes), dense or sparse, for rows with several. `fit` builds
    tree and routing and learns; `partial_fit` adds labelled rows, or with `rewards` rounds, and learns from everything
    so far. For one class a row `predict` returns the best, for indicators an indicator matrix of the k best; `rank`
    always returns the k best in order.

    >>> X = np.repeat(np.eye(3), 4, axis=0)
    >>> tea = TopKClassifier(k=1).fit(X, np.repeat(["mint", "oolong", "rose"], 4))
    >>> tea.predict(np.eye(3)).tolist(), tea.score(X, np.repeat(["mint", "oolong", "rose"], 4))
    (['mint', 'oolong', 'rose'], 1.0)

    Rounds in which rose was right where mint had been, and mint was not:

    >>> tea = tea.partial_fit(np.repeat([[1.0, 0.0, 0.0]], 50, axis=0), ["rose", "mint"] * 25, rewards=[1.0, 0.0] * 25)
    >>> tea.rank([[1.0, 0.0, 0.0]], k=1).tolist()
    [['rose']]
    >>> tea.set_params(k=2).get_params()["k"]
    2
    """

    _estimator_type = "classifier"
    # There after fit.
    classes_: Any
    indicators_: bool
    n_features_in_: int
    labelled_: tuple[Any, Any]
    history_: Feedback
    tree_: Tree
    model_: Model

    def __init__(self, k: int = 1, beam: int = 10, max_leaf: int = 10, branching: int = 2, seed: int = 0) -> None:
        self.k, self.beam, self.max_leaf, self.branching, self.seed = k, beam, max_leaf, branching, seed

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: Any) -> TopKClassifier:
        """Changes settings; they count from the next fit on, `k` and `beam` at once."""
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"there is no parameter {name!r}; there are {', '.join(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = inspect.signature(type(self)).parameters
        changed = {name: value for name, value in self.get_params().items() if value != usual[name].default}
        return f"TopKClassifier({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of an estimator that is not derived from its own."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        target = TargetTags(required=True, multi_output=True)
        return Tags(
            "classifier", target, classifier_tags=ClassifierTags(multi_label=True), input_tags=InputTags(sparse=True)
        )

    def fit(self, X: Any, y: Any, classes: Any = None) -> TopKClassifier:
        """Learns from labelled rows alone; what was learned before is forgotten. `classes` may have more than y has."""
        y = as_labels(y)
        rows, made = as_rows(X).csr(), TopKClassifier(**self.get_params())
        made._set_classes(y, classes)
        made._policy(self.k)
        made.n_features_in_ = int(rows.shape[1])
        made.labelled_ = rows, made._indicators(y, rows.shape[0])
        made.history_ = Feedback.none(made.n_features_in_, 1)
        sizes = check_int("max_leaf", self.max_leaf, 1), check_int("branching", self.branching, 2), self.seed
        made.tree_ = Tree.from_labels_separated(*made.labelled_, *sizes)
        self.__dict__.update(made._learn().__dict__)  # all of it, or nothing if something is wrong
        return self

    def partial_fit(self, X: Any, y: Any, classes: Any = None, rewards: Any = None) -> TopKClassifier:
        """Adds labelled rows; or with `rewards`, which fit y, rounds in which the classes y were shown and earned them.

        y of rounds is (n,) or (n, slots), rewards lie in [0, 1] and are NaN where nobody knows. The first call must
        have labels, and `classes` where it has not all of them. The tree stays as it is.
        """
        if not hasattr(self, "model_"):
            if rewards is not None:
                raise ValueError(
                    "there is no tree to learn rewards with: the first call of fit or partial_fit needs labels"
                )
            return self.fit(X, y, classes)
        rows = as_rows(X, self.n_features_in_).csr()
        if rewards is None:
            x, labels = self.labelled_
            new = self._indicators(as_labels(y), rows.shape[0])
            self.labelled_ = sp.vstack([x, rows], format="csr"), sp.vstack([labels, new], format="csr")
        else:
            arms = self._indices(y).reshape(rows.shape[0], -1)
            self.history_ = self.history_ + Feedback(rows, arms, None, np.asarray(rewards, float).reshape(arms.shape))
        return self._learn()

    def rank(self, X: Any, k: int | None = None) -> Any:
        """The k best classes of each row, best first: (n, k)."""
        return self.classes_[self._best(X, self.k if k is None else k)]

    def predict(self, X: Any) -> Any:
        """The best class of each row, or an indicator matrix of the k best."""
        best = self._best(X, self.k)
        if not self.indicators_:
            return self.classes_[best[:, 0]]
        row = np.repeat(np.arange(len(best)), best.shape[1])
        return sp.csr_matrix((np.ones(best.size, np.int64), (row, best.ravel())), shape=(len(best), len(self.classes_)))

    def score(self, X: Any, y: Any) -> float:
        """The share of the k best that are right (precision at k); for one class a row whether it is among them."""
        best = self._best(X, self.k)
        right = np.asarray(self._indicators(as_labels(y), len(best))[np.arange(len(best))[:, None], best].todense() > 0)
        return float(right.mean() if self.indicators_ else right.any(axis=1).mean())

    def _best(self, X: Any, k: int) -> Ints:
        if not hasattr(self, "model_"):
            raise _not_fitted()("this estimator has not been fitted yet: call fit first")
        return self._policy(k).decide_batch(self.model_, as_rows(X, self.n_features_in_), seed=self.seed).arms

    def _policy(self, k: object) -> Policy:
        """What ranks the k best, or all classes if there are fewer."""
        if not isinstance(k, Integral):
            raise TypeError(f"k is {k!r}; it must be a whole number of 1 or more")
        slots = min(check_int("k", k, 1), len(self.classes_))
        return Policy(k=slots, explore=0, beam=self.beam, strategy=Greedy())

    def _learn(self) -> TopKClassifier:
        X, Y = self.labelled_
        first = Model.initial(self.tree_, X, Y)
        learner = Pooled(label_samples=LabelSamples.of(self.tree_, X, Y, beam=self.beam))
        model = initial_fit(first, learner)
        self.model_ = refit(model, self.history_, learner) if len(self.history_) else model
        return self

    def _set_classes(self, y: Any, classes: Any) -> None:
        self.indicators_ = len(np.shape(y)) == 2
        if self.indicators_:
            found = np.arange(np.shape(y)[1])
        else:
            found = np.unique(np.asarray(y))
        if classes is not None:
            given = np.asarray(classes) if self.indicators_ else np.unique(np.asarray(classes))
            if self.indicators_ and len(given) != len(found):
                raise ValueError(f"{len(given)} classes for an indicator matrix of {len(found)} columns")
            found = given
        self.classes_ = found

    def _indicators(self, y: Any, n: int) -> Any:
        """Labels as an indicator matrix (n, n_classes)."""
        if self.indicators_:
            found = as_rows(y, len(self.classes_), "labels").csr()
        else:
            at = self._indices(y)
            shape = (len(at), len(self.classes_))
            found = sp.csr_matrix((np.ones(len(at), np.float32), (np.arange(len(at)), at)), shape=shape)
        if found.shape[0] != n:
            raise ValueError(f"there are {n} rows and {found.shape[0]} labels")
        return found

    def _indices(self, y: Any) -> Ints:
        """Classes as places in `classes_`."""
        given = np.asarray(y)
        if self.indicators_ and given.dtype.kind in "iu":
            return as_indices(given, len(self.classes_), "class")
        at = np.minimum(np.searchsorted(self.classes_, given), len(self.classes_) - 1)
        if (wrong := self.classes_[at] != given).any():
            raise ValueError(f"y has the class {given[wrong].tolist()[0]!r}, which is not in classes_")
        return at.astype(np.int32)


def as_labels(y: Any) -> Any:
    """Labels as an array or a sparse matrix; a single column is a class a row. Refuses what holds no classes.

    >>> as_labels([["mint"], ["rose"]]).tolist()
    ['mint', 'rose']
    >>> as_labels([0.0, 0.5])
    Traceback (most recent call last):
    ValueError: Unknown label type: y has 0.5; a class is a name or a whole number
    """
    if y is None:
        raise ValueError("TopKClassifier requires y to be passed, but the target y is None")
    if sp.issparse(y):
        return y
    found = np.asarray(y)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found.ravel()
    if found.ndim == 1 and found.dtype.kind == "f":
        if not np.isfinite(found).all():
            raise ValueError(f"Input y contains {'NaN' if np.isnan(found).any() else 'infinity'}; classes are needed")
        if (wrong := found != np.floor(found)).any():
            raise ValueError(f"Unknown label type: y has {found[wrong][0]:g}; a class is a name or a whole number")
    return found


def _not_fitted() -> type[ValueError]:
    """What scikit-learn expects, where it is in use."""
    if "sklearn" not in sys.modules:
        return ValueError
    from sklearn.exceptions import NotFittedError

    found: type[ValueError] = NotFittedError
    return found
