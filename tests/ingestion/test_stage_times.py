"""The timeline of a run: what the workers' stages add up to, in bounded memory."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from rag_cluster.ingestion.rows import StagesDone, from_table, to_table
from rag_cluster.ingestion.stage_times import SLICES, StageSpan, StageTimes, Timeline, TimelineBuilder
from rag_cluster.telemetry import CHUNKS_TOTAL, STAGE_SECONDS, NullMetrics


class Sink(NullMetrics):
    def __init__(self) -> None:
        self.seen: list[tuple[str, float]] = []

    def count(self, name: str, value: float = 1.0, **labels: str) -> None:
        self.seen.append((name, value))

    def observe(self, name: str, value: float, **labels: str) -> None:
        self.seen.append((name, value))


def test_a_worker_hands_every_metric_on_and_sums_its_stages_up_until_they_are_taken() -> None:
    sink = Sink()
    times = StageTimes(sink)
    times.observe(STAGE_SECONDS, 0.5, stage="parse")
    times.observe(STAGE_SECONDS, 2.0, stage="parse")
    times.observe("other_seconds", 9.0)
    times.count(CHUNKS_TOTAL, 3)
    assert sink.seen == [(STAGE_SECONDS, 0.5), (STAGE_SECONDS, 2.0), ("other_seconds", 9.0), (CHUNKS_TOTAL, 3)]
    (span,) = times.take()
    assert (span.stage, span.busy, span.count) == ("parse", 2.5, 2)
    assert span.ended - span.begun == pytest.approx(2.0, abs=0.2)
    assert times.take() == ()


def test_spans_travel_as_a_row() -> None:
    short, long = StageSpan("parse", 1.0e9, 1.0e9, 0.0, 1), StageSpan("parse", 1.7e9 + 1 / 3, 1.7e9 + 1e5, 1 / 3, 999)
    (row,) = from_table(to_table([StagesDone.of([short, long])]))
    assert isinstance(row, StagesDone)
    first, second = row.spans()
    assert first == short
    assert (second.begun, second.busy) == pytest.approx((long.begun, long.busy), abs=1e-6)


def test_a_timeline_tells_how_many_were_at_a_stage_at_once() -> None:
    builder = TimelineBuilder(begun=100.0)
    builder.add([StageSpan("embed", 100.5, 101.0, 0.5, 1), StageSpan("parse", 100.0, 101.0, 2.0, 4)])
    timeline = builder.timeline()
    assert [use.stage for use in timeline.stages] == ["parse", "embed"], "in the order in which they began"
    parse, embed = timeline.stages
    assert (parse.count, parse.seconds) == (4, 2.0)
    assert parse.slices[:10] == pytest.approx([2.0] * 10, abs=0.01)
    assert embed.slices[:10] == pytest.approx([0.0] * 5 + [1.0] * 5, abs=0.01)


def test_a_long_run_has_wider_slices_and_not_more_of_them() -> None:
    builder = TimelineBuilder(begun=0.0)
    for second in range(0, 36_000, 10):
        builder.add([StageSpan("parse", second, second + 10, 5.0, 1)])
    (parse,) = builder.timeline().stages
    width = builder.timeline().slice_seconds
    assert len(parse.slices) <= SLICES
    assert 36_000 / SLICES <= width <= 2 * 36_000 / SLICES
    assert sum(parse.slices) * width == pytest.approx(parse.seconds, rel=0.01)
    assert parse.slices[0] == parse.slices[20] == pytest.approx(0.5, abs=0.01)


def test_a_clock_that_goes_wrong_spoils_nothing() -> None:
    builder = TimelineBuilder(begun=1000.0)
    builder.add([StageSpan("parse", 900.0, 901.0, 1.0, 1), StageSpan("parse", 1001.0, 1000.5, 1.0, 1)])
    (parse,) = builder.timeline().stages
    assert parse.seconds == 2.0 and sum(parse.slices) * 0.1 == pytest.approx(2.0, abs=0.02)


def test_a_timeline_survives_json() -> None:
    builder = TimelineBuilder(begun=0.0)
    builder.add([StageSpan("parse", 0.0, 3.0, 3.0, 1)])
    timeline = builder.timeline()
    assert Timeline.from_dict(json.loads(json.dumps(asdict(timeline)))) == timeline
