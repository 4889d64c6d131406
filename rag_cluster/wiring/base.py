"""What every part of the wiring has."""

from __future__ import annotations

from functools import cached_property

from rag_cluster.domain.ports import MetricSink
from rag_cluster.settings import Settings
from rag_cluster.telemetry import NullMetrics


class Wired:
    """Built from settings; what it gives is made when first asked for."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def metrics(self) -> MetricSink:
        """Where counters go."""
        return NullMetrics()
