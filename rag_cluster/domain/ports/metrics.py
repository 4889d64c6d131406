"""Counters and histograms."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class MetricSink(Protocol):
    """Counters and histograms; names and units are in `telemetry`."""

    def count(self, name: str, value: float = 1.0, **labels: str) -> None: ...

    def observe(self, name: str, value: float, **labels: str) -> None: ...
