"""Counters and histograms on Ray's metrics port, where Prometheus finds them on every node, as `ray_` and the name."""

from __future__ import annotations

import threading
from functools import cache

from ray.util.metrics import Counter, Histogram

from rag_cluster.telemetry import HELP, SECONDS


class RayMetrics:
    """A MetricSink of a Ray worker. A call takes about 3 microseconds; Ray sends what there is every few seconds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Add to a counter; what is not positive adds nothing."""
        if value > 0:
            self._counter(name, labels).inc(value, labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Into a histogram of seconds."""
        self._histogram(name, labels).observe(value, labels)

    def _counter(self, name: str, labels: dict[str, str]) -> Counter:
        if name not in self._counters:
            with self._lock:
                if name not in self._counters:
                    self._counters[name] = Counter(name, HELP.get(name, ""), tuple(labels))
        return self._counters[name]

    def _histogram(self, name: str, labels: dict[str, str]) -> Histogram:
        if name not in self._histograms:
            with self._lock:
                if name not in self._histograms:
                    self._histograms[name] = Histogram(name, HELP.get(name, ""), list(SECONDS), tuple(labels))
        return self._histograms[name]


@cache
def ray_metrics() -> RayMetrics:
    """The process's own: Ray knows a metric by its name, once."""
    return RayMetrics()
