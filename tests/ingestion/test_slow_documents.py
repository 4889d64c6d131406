"""One slow document keeps nobody waiting: not those of its task, nor those behind it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import DocumentStatus
from rag_cluster.domain.ids import bulk_document_id
from rag_cluster.errors import NotFoundError
from rag_cluster.ingestion import pipeline
from rag_cluster.ingestion.pipeline import IngestionOptions, run_ingestion
from tests.fixtures.write_path import Bench

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.parametrize(("batches", "where"), [(1, "of its own task"), (13, "of tasks behind it")])
def test_documents_become_ready_while_a_slow_one_is_still_parsed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, batches: int, where: str
) -> None:
    monkeypatch.setattr(pipeline, "BATCHES_PER_ACTOR", batches)
    companions_are_ready = bench.folder.parent / "companions-are-ready"
    bench.write("a-slow.pages", f"until|{companions_are_ready}|The slow one tells how the quay was built.")
    companions = [bench.write(f"b{n:02}.txt", f"Berth {n} is {n + 5} metres deep. 泊位{n}。") for n in range(12)]
    ids = [bulk_document_id(bench.base.id, path.as_uri()) for path in companions]
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
        report = run_ingestion(recipe, bench.base.name, [str(bench.folder)], IngestionOptions(progress=False))
    finally:
        over.set()
        watcher.join()
    assert companions_are_ready.exists(), f"documents {where} waited for the slow one"
    assert report.ok and report.outcomes["ready"] == 13
