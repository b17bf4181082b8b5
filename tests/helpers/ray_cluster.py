"""A Ray cluster for tests: real nodes on loopback, with a token, ended by their own handles."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
ENVIRONMENT = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_worker_niceness": "0",  # 15 otherwise: tasks would wait for whatever else a busy machine does
    "RAY_TMPDIR": "/tmp",  # what it writes stays there: nothing for memory
    # A lost node is noticed within seconds.
    "RAY_health_check_initial_delay_ms": "500",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
}
# On loopback; Ray takes 127.0.0.1 for another name of the machine's outer address.
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000, "node_ip_address": "127.0.0.2"}


def require_ray() -> None:
    """Skips a test, with the reason, where no cluster can be started."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed (pip install 'treetop-bandits[ray]')")
    if sys.platform != "linux":
        pytest.skip("clusters of tests need Linux: addresses of loopback other than 127.0.0.1, and /proc")


class TwoNodes:
    """A head and a second node, with one CPU each."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self.cluster: Any = Cluster()
        self.second: Any = None
        try:
            self._add(include_dashboard=False)
            self.mend()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def mend(self) -> None:
        """Two nodes again, whatever was lost."""
        if self.second is None:
            self.second = self._add()

    def _add(self, **options: Any) -> Any:
        """Another node. Ray gives one 30 s to start, which a busy machine may take twice."""
        for _ in range(2):
            with suppress(Exception):
                return self.cluster.add_node(**NODE, **options)
        return self.cluster.add_node(**NODE, **options)

    def processes_of_second(self) -> set[int]:
        """The workers of the second node: children of its raylet."""
        raylet = self.second.all_processes["raylet"][0].process.pid
        found = Path(f"/proc/{raylet}/task").glob("*/children")
        return {int(pid) for children in found for pid in children.read_text().split()}

    def lose_node(self) -> None:
        """As a machine goes: no goodbye."""
        self.cluster.remove_node(self.second, allow_graceful=False)
        self.second = None

    def close(self) -> None:
        self.cluster.shutdown()


@contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    before = {name: os.environ.get(name) for name in [*ENVIRONMENT, "RAY_AUTH_TOKEN", "PYTHONPATH"]}
    paths = [str(TESTS), *filter(None, [before["PYTHONPATH"]])]  # where workers find the tasks of tests
    os.environ.update(ENVIRONMENT, RAY_AUTH_TOKEN=secrets.token_hex(32), PYTHONPATH=os.pathsep.join(paths))
    import ray  # reads its settings when it is loaded

    own = TwoNodes()
    try:
        yield own
    finally:
        ray.shutdown()
        own.close()
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)
