"""What the tests share: small made-up problems, places for logs, and the real set where it lies beside the checkout."""

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from helpers.postgres import Server, binaries, new_schema
from helpers.problems import Problem, topics
from helpers.running import Running, running, small_bandit

import treetop

# The same examples on every run, and no clock.
hypothesis.settings.register_profile("treetop", deadline=None, derandomize=True)
hypothesis.settings.load_profile("treetop")

collect_ignore_glob = ["helpers/peer_*.py"]  # scripts for the peers' Python: what they import is not here
EURLEX = Path(__file__).resolve().parents[2] / "shared" / "data" / "eurlex57k"


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
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'treetop-bandits[postgres]')")
    bin = binaries()
    if bin is None:
        pytest.skip("PostgreSQL is not installed: no initdb (Debian: apt-get install postgresql)")
    # Processes are killed here, not machines: the system keeps what was written, so waiting for the disk tests nothing.
    own = Server(bin, "fsync=off")
    yield own
    own.close()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new log can be opened, in each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "log.sqlite")
    return new_schema(request.getfixturevalue("server"))
