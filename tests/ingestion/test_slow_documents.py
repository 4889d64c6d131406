"""One slow document keeps nobody waiting: not those of its task, nor those behind it."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import replace

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import DocumentStatus, PlannedFile, RunStatus, SourceKind
from rag_cluster.domain.ids import bulk_document_id
from rag_cluster.errors import NotFoundError
from rag_cluster.ingestion import ray_actors, ray_graph
from rag_cluster.ingestion.pipeline import IngestionOptions, IngestionReport, run_ingestion
from rag_cluster.ingestion.plan import PlanOptions, plan
from rag_cluster.ingestion.run import RunContext
from tests.fixtures.write_path import Bench

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


COMPANIONS = 12


def ingest(bench: Bench, slow: str) -> IngestionReport:
    """Ingest twelve documents and one, listed first, whose parsing ends once the others are ready."""
    companions_are_ready = bench.folder.parent / "companions-are-ready"
    bench.write(slow, f"until|{companions_are_ready}|The slow one tells how the quay was built.")
    names = [f"zz{n:02}.txt" for n in range(COMPANIONS)]
    paths = [bench.write(name, f"Berth {n} is {n + 5} metres deep. 泊位{n}。") for n, name in enumerate(names)]
    ids = [bulk_document_id(bench.base.id, path.as_uri()) for path in paths]
    over = threading.Event()

    def ready(document_id: str) -> bool:
        try:
            return bench.write_path.catalog.document(document_id, LOCAL).status is DocumentStatus.READY
        except NotFoundError:  # not claimed yet
            return False

    def watch() -> None:
        while not over.is_set() and not all(map(ready, ids)):
            time.sleep(0.1)
        if not over.is_set():
            companions_are_ready.touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        recipe = replace(bench.recipe, children=2, document_timeout=100.0)
        return run_ingestion(recipe, bench.base.name, [str(bench.folder)], IngestionOptions(progress=False))
    finally:
        over.set()
        watcher.join()


def threads(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@pytest.mark.parametrize("batches", [1, COMPANIONS + 1], ids=["of its own task", "of tasks behind it"])
def test_documents_become_ready_while_a_slow_one_is_still_parsed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    monkeypatch.setattr(ray_graph, "BATCHES_PER_ACTOR", batches)
    prefetchers = threads("Prefetcher")
    report = ingest(bench, "slow.pages")
    assert report.ok and report.outcomes["ready"] == COMPANIONS + 1, report.to_dict()
    assert threads("Prefetcher") == prefetchers, "a thread of Ray Data outlives its execution"


def test_a_task_whose_worker_dies_after_it_handed_something_on_loses_no_document(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_graph, "BATCHES_PER_ACTOR", 1)
    report = ingest(bench, "kill-once.pages")
    assert bench.calls["killed"] == 1
    assert report.ok and report.outcomes["ready"] == COMPANIONS + 1, report.to_dict()
    assert bench.calls["embedded"] == report.chunks, "nothing is embedded twice"


def test_a_run_that_is_over_prepares_nothing_more_although_its_workers_live_on(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = bench.folder.parent / "go-on"
    for number in range(ray_actors.PREPARE_THREADS):
        bench.write(f"a{number}.pages", f"until|{go_on}|A slow one.")
    waiting = [bench.write(f"b{number}.txt", "A quay.") for number in range(3)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(ray_actors, "configure_logging", lambda level: None)
    ledger, run_id = bench.write_path.ledger, str(uuid.uuid4())
    ledger.start_run(bench.base.id, [str(bench.folder)], {}, run_id)
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    planned = plan(bench.write_path, bench.base.id, [str(bench.folder)], PlanOptions())
    monkeypatch.setattr(ray_graph, "BATCHES_PER_ACTOR", 1)
    (task,) = ray_graph._batches([item for item in planned if isinstance(item, PlannedFile)], 1)
    worker = ray_actors.PrepareActor(bench.recipe, RunContext(run_id, bench.base.id, source.id, None))
    cancel = threading.Timer(0.3, lambda: ledger.finish_run(run_id, RunStatus.CANCELLED, {}, None, {}))
    cancel.start()
    try:
        assert list(worker(task)) == []
        cancel.join()
        assert list(worker(task)) == [], "a task that begins afterwards"
    finally:
        go_on.touch()
        worker._threads.shutdown()
    for path in waiting:
        with pytest.raises(NotFoundError):
            bench.write_path.catalog.document(bulk_document_id(bench.base.id, path.as_uri()), LOCAL)
