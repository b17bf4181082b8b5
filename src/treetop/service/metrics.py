"""Metrics for Prometheus. Requests are counted as they are answered; other values are computed when they are read.

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
Values = Callable[[], Iterable[tuple[str, str, float]]]  # (name, help, value); a name ending in _total is a counter
Sample = tuple[str, frozenset[tuple[str, str]]]  # a counted value: its name and its labels


disable_created_metrics()  # type: ignore[no-untyped-call]


class CurrentValues(Collector):
    """Values that are computed when they are read."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def collect(self) -> Iterator[Metric]:
        for name, about, value in self.values():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield kind(name, about, value=value)


class Metrics:
    """The metrics of one worker. `counted` has what this worker counts, whatever the others do."""

    def __init__(self, values: Values) -> None:
        self.counted = CollectorRegistry()
        self.registry = CollectorRegistry()  # of the values, and of the counts of all workers if there are several
        self._shared = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        if self._shared:
            MultiProcessCollector(self.registry)  # type: ignore[no-untyped-call]
        self.requests = Counter("treetop_requests", "Requests answered.", ["route", "status"], registry=self.counted)
        self.seconds = Histogram(
            "treetop_request_seconds",
            "From the head of a request to its answer.",
            ["route"],
            buckets=SECONDS,
            registry=self.counted,
        )
        self.unknown = Counter(
            "treetop_unknown_features", "Features that are not in the vocabulary, ignored.", registry=self.counted
        )
        self.clipped = Counter(
            "treetop_clipped_features",
            "Values far outside what their feature has shown, clipped or refused.",
            registry=self.counted,
        )
        self.registry.register(CurrentValues(values))
        self._counts: dict[tuple[str, int], Counter] = {}
        self._times: dict[str, Histogram] = {}

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Counts an answered request."""
        count = self._counts.get((route, status))
        if count is None:
            count = self._counts[route, status] = self.requests.labels(route, str(status))
            self._times[route] = self.seconds.labels(route)
        count.inc()
        self._times[route].observe(seconds)

    def samples(self) -> dict[Sample, float]:
        """Everything that this worker has counted since it began. Reads no file and no log."""
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for metric in self.counted.collect()
            for sample in metric.samples
        }

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        counted = b"" if self._shared else generate_latest(self.counted)
        return counted + generate_latest(self.registry)
