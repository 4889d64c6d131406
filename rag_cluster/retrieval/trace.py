"""Collects what really happened to a query while it happens."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rag_cluster import telemetry
from rag_cluster.domain.ports import MetricSink
from rag_cluster.domain.retrieval import RetrievalMode, RetrievalTrace, StageTrace
from rag_cluster.errors import told

log = logging.getLogger(__name__)


class TraceRecorder:
    """Mutable while a query runs; `finish` freezes it into a RetrievalTrace."""

    def __init__(self, mode: RetrievalMode, metrics: MetricSink) -> None:
        self._mode = mode
        self._metrics = metrics
        self._started = time.perf_counter()
        self._stages: list[StageTrace] = []
        self._degradations: list[str] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[dict[str, int]]:
        """Time a stage; the caller fills in the counts. A stage that raises is not listed."""
        counts: dict[str, int] = {}
        started = time.perf_counter()
        yield counts
        seconds = time.perf_counter() - started
        self._stages.append(StageTrace(name, round(seconds * 1000, 3), counts))
        self._metrics.observe(telemetry.STAGE_SECONDS, seconds, stage=f"retrieve_{name}")

    def degrade(self, stage: str, reason: str | BaseException) -> None:
        """Note that a stage failed. Logged at WARNING, an error whole, and counted."""
        error = reason if isinstance(reason, BaseException) else None
        reason = told(reason) if isinstance(reason, BaseException) else reason
        self.note(stage, reason)
        log.warning("retrieval degraded", extra={"stage": stage, "reason": reason}, exc_info=error)
        self._metrics.count(telemetry.DEGRADATIONS_TOTAL, stage=stage)

    def note(self, stage: str, reason: str) -> None:
        """Note that a stage was asked for but is not configured: expected, so it is neither logged nor counted."""
        self._degradations.append(f"{stage}: {reason}")

    def finish(self, variants: tuple[str, ...]) -> RetrievalTrace:
        """The frozen trace."""
        return RetrievalTrace(
            mode=self._mode,
            query_variants=variants,
            stages=tuple(self._stages),
            degradations=tuple(self._degradations),
            milliseconds=round((time.perf_counter() - self._started) * 1000, 3),
        )
