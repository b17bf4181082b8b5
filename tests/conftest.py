"""What the tests share: small made-up problems, places for logs, and the real set where it lies beside the checkout."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from helpers.browser import CHROMIUM, Tab
from helpers.judged import judged_bandit, visit
from helpers.logs import check_whole
from helpers.postgres import Server, binaries, new_schema
from helpers.problems import Problem, topics
from helpers.ray_cluster import TwoNodes, require_ray, two_nodes
from helpers.running import PLAIN, Running, running, small_bandit

import treetop
from treetop.log.base import Log
from treetop.log.open import open_log
from treetop.policy import draws

# The same examples on every run, and no clock.
hypothesis.settings.register_profile("treetop", deadline=None, derandomize=True)
hypothesis.settings.load_profile("treetop")

# Temporary folders lie in memory where there is room: a bandit waits for the disk at every decision and reward, which
# takes minutes of a run and tests nothing, since processes are killed here, not machines.
MEMORY, ROOM = Path("/dev/shm"), 4e9  # bytes; a run writes 1.1 GB, and most of it does not stay
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

collect_ignore_glob = ["helpers/peer_*.py"]  # scripts for the peers' Python: what they import is not here
EURLEX = Path(__file__).resolve().parents[2] / "shared" / "data" / "eurlex57k"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores, since most of a service's test is waiting; four at most, since each process starts
    services and a database of its own."""
    return min(4, 2 + (os.cpu_count() or 1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Events without ids of their own get the same ids on every run, so the same slots are drawn."""
    draws.random_bytes = random.Random(item.nodeid).randbytes


os.register_at_fork(after_in_child=lambda: setattr(draws, "random_bytes", os.urandom))  # no two processes have one id


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


@pytest.fixture
def disk() -> Iterator[Path]:
    """A folder that is not in memory, for tests of what only a disk has."""
    with tempfile.TemporaryDirectory(prefix="treetop-", dir="/var/tmp") as folder:
        yield Path(folder)


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


@pytest.fixture(scope="session")
def cluster() -> Iterator[TwoNodes]:
    """A Ray cluster of two nodes; `make test-ray` runs all tests that use it in one process."""
    require_ray()
    with two_nodes() as own:
        yield own


@pytest.fixture
def nodes(cluster: TwoNodes) -> TwoNodes:
    """The cluster with both of its nodes, whatever an earlier test did to them."""
    cluster.mend()
    return cluster


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new log can be opened, in each kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "log.sqlite")
    return new_schema(request.getfixturevalue("server"))


@pytest.fixture
def log(place: str) -> Iterator[Log]:
    """An empty log, in each kind of database; nothing must be missing in it in the end."""
    with open_log(place) as opened:
        yield opened
        check_whole(opened)


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[treetop.Bandit]:
    """A bandit with 4,000 visits, that tests only read; model 000000 decided them all."""
    with judged_bandit(tmp_path_factory.mktemp("judged")) as bandit:
        visit(bandit, 4000)
        yield bandit


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser for the dashboard; skipped where there is none. Its event loop would be in the way of other modules."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed (pip install 'treetop-bandits[dev]')"
    )
    if CHROMIUM is None:
        pytest.skip("no chromium (Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playing:
        launched = playing.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], env=PLAIN)
        yield launched
        launched.close()


@pytest.fixture
def tab(browser: Any, request: pytest.FixtureRequest) -> Iterator[Tab]:
    """A new page of it, with options of its own such as its size."""
    made = Tab(browser, **getattr(request, "param", {}))
    yield made
    made.context.close()
