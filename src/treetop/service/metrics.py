"""What Prometheus reads. Requests are counted where they are answered; the rest is looked up when it is asked for.

With several workers, prometheus-client adds up their counts through files (PROMETHEUS_MULTIPROC_DIR, set by `serve`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

SECONDS = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
Look = Callable[[], Iterable[tuple[str, str, float]]]  # (name, help, value); names that end with _total only rise


disable_created_metrics()  # type: ignore[no-untyped-call]


class Looked(Collector):
    """Numbers that are looked up."""

    def __init__(self, look: Look) -> None:
        self.look = look

    def collect(self) -> Iterator[Metric]:
        for name, about, value in self.look():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(name, about, value=value)


class Metrics:
    """The metrics of one worker."""

    def __init__(self, look: Look) -> None:
        shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        own = CollectorRegistry()
        self.registry = CollectorRegistry() if shared else own
        self._counted: Collector | CollectorRegistry = own
        if shared:
            self._counted = MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
        self.requests = Counter("treetop_requests", "Requests answered.", ["route", "status"], registry=own)
        self.seconds = Histogram(
            "treetop_request_seconds", "From the head of a request to its answer.", ["route"], buckets=SECONDS,
            registry=own,
        )  # fmt: skip
        self.unknown = Counter(
            "treetop_unknown_features", "Features that are not in the vocabulary, ignored.", registry=own
        )
        self.registry.register(Looked(look))
        self._counts: dict[tuple[str, int], Counter] = {}
        self._times: dict[str, Histogram] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        count = self._counts.get((route, status))
        if count is None:
            count = self._counts[route, status] = self.requests.labels(route, str(status))
            self._times[route] = self.seconds.labels(route)
        count.inc()
        self._times[route].observe(seconds)

    def spread(self, route: str) -> list[int]:
        """How many requests of a route took at most so long, by SECONDS and one more for all; every worker's."""
        for metric in self._counted.collect():
            if metric.name == "treetop_request_seconds":
                found = [s for s in metric.samples if s.name.endswith("_bucket") and s.labels["route"] == route]
                return [int(s.value) for s in sorted(found, key=lambda s: float(s.labels["le"]))]
        return []

    def text(self) -> bytes:
        return generate_latest(self.registry)
