"""What the tests share: small made-up problems, places for logs, and the real set where it lies beside the checkout."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from postgres import Server, binaries
from running import Running, running, small_bandit
from scipy.stats import chisquare

import treetop

EURLEX = Path(__file__).resolve().parents[2] / "shared" / "data" / "eurlex57k"


@dataclass(frozen=True, eq=False)
class Problem:
    """Contexts from a few topics; each topic has its own arms."""

    X: Any
    Y: Any
    tree: treetop.Tree
    model: treetop.Model

    def feedback(self, n: int, policy: treetop.Policy | None = None, seed: int = 0) -> treetop.Feedback:
        """What a policy would have seen on the first n contexts."""
        d = (policy or treetop.Policy()).decide_batch(self.model, self.X[:n], seed=seed)
        return treetop.Feedback(self.X[:n], d.arms, d.nodes, self.hits(d.arms))

    def hits(self, arms: Any) -> Any:
        """The rewards of the arms shown for the first contexts."""
        return self.Y.toarray()[np.arange(len(arms))[:, None], arms]


def topics(n: int = 600, arms: int = 60, features: int = 40, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    centre = rng.random((8, features)) * (rng.random((8, features)) < 0.3)
    topic = rng.integers(0, 8, n)
    X = centre[topic] * (rng.random((n, features)) < 0.7) + 0.3 * (rng.random((n, features)) < 0.05)
    X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-9)
    Y = (rng.random((n, arms)) < 0.3) & (np.arange(arms)[None, :] % 8 == topic[:, None])
    return sp.csr_matrix(X.astype(np.float32)), sp.csr_matrix(Y.astype(np.float32))


@pytest.fixture(scope="session")
def problem() -> Problem:
    X, Y = topics()
    tree = treetop.Tree.from_labels(X[:300], Y[:300], max_leaf=4)
    return Problem(X, Y, tree, treetop.Model.initial(tree, X[:300], Y[:300]))


@pytest.fixture(scope="session")
def learned(problem: Problem) -> treetop.Model:
    """A model of epoch 1, with reward models for many arms and some nodes."""
    model = treetop.refit(problem.model, problem.feedback(600))
    assert isinstance(model, treetop.Model)
    return model


@pytest.fixture(scope="session")
def eurlex() -> treetop.Dataset:
    if not EURLEX.is_dir():
        pytest.skip("the eurlex57k set is not beside this checkout (../shared/data/eurlex57k)")
    return treetop.load(EURLEX)


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that many tests share; it is never refitted, and its arms stay."""
    folder = small_bandit(tmp_path_factory.mktemp("service") / "shop", *topics())
    with running(folder) as service:
        yield service


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server of the tests' own; skipped where Debian's package `postgresql` or psycopg is not there."""
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'treetop[postgres]')")
    bin = binaries()
    if bin is None:
        pytest.skip("PostgreSQL is not installed: no initdb (Debian: apt-get install postgresql)")
    # Processes are killed here, not machines: the system keeps what was written, so waiting for the disk tests nothing.
    own = Server(bin, "fsync=off")
    yield own
    own.close()


_schemas = itertools.count()


def new_schema(server: Server) -> str:
    """The address of an empty log: a schema of its own in the one database."""
    import psycopg

    name = f"log{next(_schemas)}"
    with psycopg.connect(server.address, autocommit=True) as db:
        db.execute(f"CREATE SCHEMA {name}".encode())
    return f"{server.address}?options=-csearch_path%3D{name}"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new log can be opened, in each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "log.sqlite")
    return new_schema(request.getfixturevalue("server"))


def check_drawn_as_explained(policy: treetop.Policy, model: treetop.Model, row: sp.csr_matrix) -> float:
    """One slot, drawn many times: as often and with the propensities that `explain` says. The share through nodes."""
    n, view = 20_000, policy.explain(model, row)
    drawn = policy.decide_batch(model, row[np.zeros(n, int)], event_ids=range(n))
    through = drawn.nodes[:, 0] >= 0
    keys = np.where(through, drawn.nodes[:, 0] + model.n_arms, drawn.arms[:, 0])
    names = view.id + np.where(view.is_node, model.n_arms, 0)
    counts = np.array([(keys == name).sum() for name in names])
    likely = view.probability * n >= 5
    seen = np.append(counts[likely], counts[~likely].sum())
    want = np.append(view.probability[likely], view.probability[~likely].sum()) * n
    assert chisquare(seen[want > 0], want[want > 0]).pvalue > 1e-4
    chance = dict(zip(names.tolist(), view.probability.tolist(), strict=True))
    below = np.where(through, model.tree.sizes[np.maximum(drawn.nodes[:, 0], 0)], 1)
    np.testing.assert_allclose(drawn.propensities[:, 0] * below, [chance[key] for key in keys.tolist()], rtol=1e-5)
    return float(through.mean())
