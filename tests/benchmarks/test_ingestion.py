from __future__ import annotations

import json
from pathlib import Path

import pytest

from rag_cluster.benchmarks import ingestion_chunking
from rag_cluster.benchmarks.ingestion import Part, run
from rag_cluster.benchmarks.ingestion_corpus import document, draw
from rag_cluster.benchmarks.ingestion_instruments import StageLog, read_log
from rag_cluster.benchmarks.ingestion_runs import Order, data_directory, run_order
from rag_cluster.telemetry import CHUNKS_TOTAL, STAGE_SECONDS


@pytest.mark.ray
def test_the_pipeline_alone_is_measured_by_stage_and_process_on_documents_that_all_become_ready(
    tmp_path: Path,
) -> None:
    draw(tmp_path / "in", 12, 2000)
    with data_directory() as data:
        figures = run_order(Order(data, str(tmp_path / "in")))
        again = run_order(Order(data, str(tmp_path / "in")))
    assert figures.outcomes == {"ready": 12} and figures.chunks >= 12 and figures.rate > 0
    assert {"claim", "parse", "chunk", "snapshot", "read", "embed", "index"} <= {s["stage"] for s in figures.stages}
    assert figures.driver_peak > 50 << 20
    assert again.outcomes == {"unchanged": 12} and again.chunks == 0


def test_planning_simulated_keys_counts_them_all_and_tells_its_memory(capsys: pytest.CaptureFixture[str]) -> None:
    run(part=[Part.PLAN], keys=3000, as_json=True)
    result = json.loads(capsys.readouterr().out.splitlines()[-1])["plan"]
    assert result["documents"] == 3000 and result["keys_per_second"] > 0 and result["driver_peak"] > 50 << 20


def test_every_strategy_is_measured_in_both_languages_against_its_target() -> None:
    speeds = ingestion_chunking.measure(1, "hash")
    assert len(speeds) == 10
    assert {speed.strategy for speed in speeds} == {*ingestion_chunking.PUBLISHED, "structured (tokens)"}
    assert all(speed.milliseconds > 0 and speed.chunks > 1 for speed in speeds)


def test_the_drawn_documents_differ_from_each_other_and_are_the_same_every_time() -> None:
    texts = [document(number, 500, ".md") for number in range(30)]
    assert len(set(texts)) == 30
    assert texts == [document(number, 500, ".md") for number in range(30)]


def test_the_window_of_a_run_reaches_from_the_first_batch_to_the_last_chunk(tmp_path: Path) -> None:
    log = StageLog(str(tmp_path))
    log.observe(STAGE_SECONDS, 0.5, stage="parse")
    log.observe(STAGE_SECONDS, 0.1, stage="read")
    log.count(CHUNKS_TOTAL, 7)
    log.count(CHUNKS_TOTAL, 3)
    log.observe(STAGE_SECONDS, 0.1, stage="read")
    seen = read_log(tmp_path)
    assert {stage.stage: stage.count for stage in seen.stages} == {"parse": 1, "read": 2}
    assert 0 < seen.ended - seen.begun < 1
