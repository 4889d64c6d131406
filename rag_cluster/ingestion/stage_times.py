"""When each stage of a run was at work: gathered in the workers, carried by their rows, drawn in the run's report.

    Stage.enter -> StageTimes (worker) -> StagesDone (a row a task) -> TimelineBuilder (driver) -> Timeline (report)

Nothing here grows with the corpus: a worker sends one span a stage and task, the driver keeps `SLICES` numbers a stage.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rag_cluster.domain.ports import MetricSink
from rag_cluster.telemetry import STAGE_SECONDS

SLICES = 120
"""Equal slices of a run's time, at most."""
FIRST_SLICE = 0.1
"""Seconds of a slice while a run is young; doubled whenever it outgrows `SLICES`."""


@dataclass(frozen=True, slots=True)
class StageSpan:
    """What one task did of one stage."""

    stage: str
    begun: float
    ended: float
    """Seconds of the day clock, of the first and the last document."""
    busy: float
    """Seconds of all documents together: more than the span where several were in hand at once."""
    count: int


class StageTimes:
    """A MetricSink of a worker that hands everything on and remembers its stages until they are taken."""

    def __init__(self, *onward: MetricSink) -> None:
        self._onward = onward
        self._lock = threading.Lock()
        self._spans: dict[str, StageSpan] = {}

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        """Hand on."""
        for sink in self._onward:
            sink.count(name, value, **labels)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Hand on, and remember a stage that ended now."""
        if name == STAGE_SECONDS:
            self._remember(labels["stage"], value)
        for sink in self._onward:
            sink.observe(name, value, **labels)

    def take(self) -> tuple[StageSpan, ...]:
        """The stages since the last call, one span each."""
        with self._lock:
            spans, self._spans = self._spans, {}
        return tuple(spans.values())

    def _remember(self, stage: str, seconds: float) -> None:
        ended = time.time()
        begun = ended - seconds
        with self._lock:
            known = self._spans.get(stage)
            if known is not None:
                begun, seconds, count = min(begun, known.begun), seconds + known.busy, known.count + 1
            else:
                count = 1
            self._spans[stage] = StageSpan(stage, begun, ended, seconds, count)


@dataclass(frozen=True, slots=True)
class StageUse:
    """One stage over a whole run."""

    stage: str
    count: int
    """Documents or batches that went through it."""
    seconds: float
    """Spent by all workers together."""
    slices: tuple[float, ...]
    """Workers and threads at it at once, on average over each slice of the timeline."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run's stages in the order in which they first began."""

    slice_seconds: float
    stages: tuple[StageUse, ...] = ()

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Timeline:
        """Inverse of `dataclasses.asdict`."""
        stages = (StageUse(**{**use, "slices": tuple(use["slices"])}) for use in fields["stages"])
        return cls(fields["slice_seconds"], tuple(stages))


class TimelineBuilder:
    """Adds spans up, of workers on any machine. Times before its own beginning are clocks that go wrong: taken as 0."""

    def __init__(self, begun: float | None = None) -> None:
        self._begun = time.time() if begun is None else begun
        self._width = FIRST_SLICE
        self._busy: dict[str, list[float]] = {}
        self._counts: dict[str, int] = {}
        self._first: dict[str, float] = {}
        self._seconds: dict[str, float] = {}

    def add(self, spans: Iterable[StageSpan]) -> None:
        """What a task did."""
        for span in spans:
            stage, begun = span.stage, max(span.begun - self._begun, 0.0)
            ended = max(span.ended - self._begun, begun)
            while ended >= SLICES * self._width:
                self._double()
            self._first[stage] = min(self._first.get(stage, begun), begun)
            self._counts[stage] = self._counts.get(stage, 0) + span.count
            self._seconds[stage] = self._seconds.get(stage, 0.0) + span.busy
            self._spread(self._busy.setdefault(stage, [0.0] * SLICES), begun, ended, span.busy)

    def timeline(self) -> Timeline:
        """As it is now."""
        used = max((i + 1 for busy in self._busy.values() for i, seconds in enumerate(busy) if seconds), default=0)
        width = self._width
        return Timeline(
            width,
            tuple(
                StageUse(
                    stage,
                    self._counts[stage],
                    round(self._seconds[stage], 3),
                    tuple(round(seconds / width, 3) for seconds in self._busy[stage][:used]),
                )
                for stage in sorted(self._first, key=self._first.__getitem__)
            ),
        )

    def _spread(self, slices: list[float], begun: float, ended: float, busy: float) -> None:
        first, last = int(begun / self._width), min(int(ended / self._width), SLICES - 1)
        if first >= last or ended <= begun:
            slices[last] += busy
            return
        for index in range(first, last + 1):
            inside = min(ended, (index + 1) * self._width) - max(begun, index * self._width)
            slices[index] += busy * inside / (ended - begun)

    def _double(self) -> None:
        self._width *= 2
        for stage, slices in self._busy.items():
            folded: Sequence[float] = [slices[i] + slices[i + 1] for i in range(0, SLICES, 2)]
            self._busy[stage] = [*folded, *([0.0] * (SLICES // 2))]
