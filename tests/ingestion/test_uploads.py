"""The upload worker on real stores."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rag_cluster.domain import ids, keys
from rag_cluster.domain.access import LOCAL, AccessAttributes
from rag_cluster.domain.documents import DocumentStatus, IngestionJob, JobStatus, PlannedFile, Receipt, SourceKind
from rag_cluster.domain.ports import UploadRequest
from rag_cluster.errors import CorruptDocumentError, ModelUnavailableError, StoreUnavailableError
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.plan import plan
from rag_cluster.ingestion.uploads import UploadWorker, retry_document, work_forever, work_once
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.lifecycle.delete import delete_document
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.uploads import PostgresUploadQueue
from tests.fixtures.write_path import Bench

LONG = "\n\n".join(f"Paragraph {n} tells how berth {n} was dredged and what that cost." for n in range(900))


@pytest.fixture
def queue(bench: Bench) -> Iterator[PostgresUploadQueue]:
    database = Database(bench.recipe.dsn)
    yield PostgresUploadQueue(database, max_attempts=2)
    database.close()


@pytest.fixture
def worker(bench: Bench, queue: PostgresUploadQueue) -> UploadWorker:
    return UploadWorker(bench.write_path, queue, retry_seconds=0.5, poll_seconds=0.05)


def upload(bench: Bench, queue: PostgresUploadQueue, name: str, text: str) -> IngestionJob:
    content = text.encode()
    document_id = ids.upload_document_id()
    bench.write_path.objects.put(keys.source_key(bench.base.id, document_id, 1, name), content)
    request = UploadRequest(
        document_id,
        bench.base.id,
        name,
        "text/plain",
        hashlib.sha256(content).hexdigest(),
        len(content),
        bench.write_path.content_fingerprint(name, None),
        AccessAttributes(),
        {"year": 2025},
    )
    return queue.submit(request)


def test_an_upload_becomes_a_visible_document(bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker) -> None:
    job = upload(bench, queue, "码头.txt", "码头长四百米。")
    assert work_once(worker)
    done = queue.job(job.id, LOCAL)
    assert (done.status, done.percent) == (JobStatus.SUCCEEDED, 100)
    document = bench.write_path.catalog.document(job.document_id, LOCAL)
    assert (document.published_version, document.metadata) == (1, {"year": 2025})
    assert bench.versions_in_index(job.document_id) == {1: 1}
    assert bench.calls["fetched"] == 0


def test_an_empty_queue_gives_no_work(worker: UploadWorker) -> None:
    assert not work_once(worker)


@pytest.mark.parametrize(("name", "text"), [("empty.txt", ""), ("broken.docx", "no archive")])
def test_a_document_at_fault_fails_its_job_at_once(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker, name: str, text: str
) -> None:
    job = upload(bench, queue, name, text)
    work_once(worker)
    done = queue.job(job.id, LOCAL)
    assert (done.status, done.attempts) == (JobStatus.FAILED, 1)
    document = bench.write_path.catalog.document(job.document_id, LOCAL)
    assert (document.status, document.error_type) == (DocumentStatus.FAILED, done.error_type)
    assert bench.calls["embedded"] == 0


def test_an_outage_is_tried_again_later_from_the_snapshot(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = upload(bench, queue, "quay.txt", "The quay is long.")

    def refuse(*_: Any) -> None:
        raise StoreUnavailableError("Milvus does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(bench.write_path.index, "upsert", refuse)
        work_once(worker)
    waiting = queue.job(job.id, LOCAL)
    assert (waiting.status, waiting.error_type) == (JobStatus.PENDING, "store_unavailable")
    assert not work_once(worker)
    time.sleep(0.6)
    assert work_once(worker)
    assert queue.job(job.id, LOCAL).status is JobStatus.SUCCEEDED
    assert bench.calls["parsed"] == 1


def test_an_outage_that_outlasts_the_attempts_fails_the_job(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker
) -> None:
    job = upload(bench, queue, "quay.txt", "POISON")
    work_once(worker)
    time.sleep(0.6)
    work_once(worker)
    done = queue.job(job.id, LOCAL)
    assert (done.status, done.attempts, done.error_type) == (JobStatus.FAILED, 2, ModelUnavailableError.type)
    assert bench.write_path.catalog.document(job.document_id, LOCAL).status is DocumentStatus.FAILED


def test_a_job_that_outlasts_its_time_goes_back_to_the_queue(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker
) -> None:
    job = upload(bench, queue, "quay.txt", "The quay is long.")
    work_once(replace(worker, job_timeout=1e-6))
    waiting = queue.job(job.id, LOCAL)
    assert (waiting.status, waiting.error_type) == (JobStatus.PENDING, "deadline_exceeded")


def test_a_document_deleted_while_it_is_worked_on_leaves_nothing_behind(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = upload(bench, queue, "quay.txt", "The quay is long.")
    save = bench.write_path.snapshots.save

    def save_then_delete(snapshot: Any) -> None:
        bench.write_path.ledger.release(worker.name)
        delete_document(bench.stores, job.document_id)
        save(snapshot)

    monkeypatch.setattr(bench.write_path.snapshots, "save", save_then_delete)
    assert work_once(worker)
    bench.write_path.drain()
    assert list(bench.write_path.objects.list(f"{bench.base.id}/{job.document_id}/")) == []
    assert bench.versions_in_index(job.document_id) == {}


def test_progress_can_be_watched_while_a_long_document_is_indexed(
    bench: Bench, queue: PostgresUploadQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write_path = bench.recipe.with_small_chunks()()
    job = upload(bench, queue, "long.txt", LONG)
    seen: list[tuple[str, int]] = []
    heartbeat = queue.heartbeat

    def watched(*arguments: Any, stage: str, percent: int) -> bool:
        seen.append((stage, percent))
        return heartbeat(*arguments, stage=stage, percent=percent)

    monkeypatch.setattr(queue, "heartbeat", watched)
    work_once(UploadWorker(bench.write_path, queue))
    assert queue.job(job.id, LOCAL).status is JobStatus.SUCCEEDED
    stages = [stage for stage, _ in seen]
    assert list(dict.fromkeys(stages))[:4] == ["fetch", "parse", "chunk", "store"]
    percents = [percent for _, percent in seen]
    assert percents == sorted(percents)
    assert percents[-1] < 100


def test_a_worker_that_is_stopped_gives_its_job_back(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = upload(bench, queue, "quay.txt", "The quay is long.")
    stop = threading.Event()
    save = bench.write_path.snapshots.save

    def save_then_stop(snapshot: Any) -> None:
        save(snapshot)
        stop.set()

    monkeypatch.setattr(bench.write_path.snapshots, "save", save_then_stop)
    work_forever(worker, stop)
    returned = queue.job(job.id, LOCAL)
    assert (returned.status, returned.attempts, returned.error_type) == (JobStatus.PENDING, 0, None)
    assert work_once(worker)
    assert queue.job(job.id, LOCAL).status is JobStatus.SUCCEEDED
    assert bench.calls["parsed"] == 1


def test_a_running_worker_takes_jobs_as_they_come_and_ends_when_told(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker
) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=work_forever, args=(worker, stop))
    thread.start()
    try:
        jobs = [upload(bench, queue, f"{n}.txt", f"Berth {n} is deep.") for n in range(3)]
        deadline = time.monotonic() + 60
        while queue.backlog() and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        stop.set()
        thread.join(30)
    assert not thread.is_alive()
    assert {queue.job(job.id, LOCAL).status for job in jobs} == {JobStatus.SUCCEEDED}


def test_a_failed_upload_is_retried_from_its_stored_original(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker
) -> None:
    job = upload(bench, queue, "码头.txt", "码头长四百米。")
    broken = replace(worker, write_path=replace(bench.write_path, parser=_refuses))
    work_once(broken)
    assert queue.job(job.id, LOCAL).status is JobStatus.FAILED
    again = retry_document(bench.write_path, queue, job.document_id)
    assert work_once(worker)
    assert queue.job(again.id, LOCAL).status is JobStatus.SUCCEEDED
    document = bench.write_path.catalog.document(job.document_id, LOCAL)
    assert (document.status, document.published_version) == (DocumentStatus.READY, 2)
    key = keys.source_key(bench.base.id, job.document_id, 2, "码头.txt")
    assert bench.write_path.objects.get(key).decode() == "码头长四百米。"


def test_a_damaged_original_is_not_taken_for_what_was_uploaded(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker
) -> None:
    job = upload(bench, queue, "码头.txt", "码头长四百米。")
    bench.write_path.objects.put(keys.source_key(bench.base.id, job.document_id, 1, "码头.txt"), b"four hundred")
    assert work_once(worker)
    assert queue.job(job.id, LOCAL).error_type == "corrupt_object"
    assert bench.write_path.catalog.document(job.document_id, LOCAL).published_version is None


def test_a_failed_bulk_document_is_retried_from_where_it_was_listed(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker
) -> None:
    bench.write("berth.txt", "Berth 7 is 400 metres long.")
    source = bench.write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    (item,) = plan(bench.write_path, bench.base.id, [str(bench.folder)])
    assert isinstance(item, PlannedFile)
    work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
    failed = steps.prepare(replace(bench.write_path, parser=_refuses), work, owner="run")
    assert isinstance(failed, Receipt) and failed.outcome == "failed"
    retry_document(bench.write_path, queue, item.document_id)
    assert work_once(worker)
    assert bench.write_path.catalog.document(item.document_id, LOCAL).status is DocumentStatus.READY
    (again,) = plan(bench.write_path, bench.base.id, [str(bench.folder)])
    assert isinstance(again, Receipt) and again.outcome == "unchanged"


def test_the_retry_of_a_touched_file_that_could_not_be_fetched_succeeds_with_what_is_published(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = bench.write("berth.txt", "Berth 7 is 400 metres long.")
    document_id = _ingest(bench, bench.write_path)
    os.utime(path, (1, 1))
    with monkeypatch.context() as patch:
        patch.setattr(bench.write_path.inputs, "fetch", _unavailable)
        _ingest(bench, bench.write_path)
    assert bench.write_path.catalog.document(document_id, LOCAL).status is DocumentStatus.FAILED
    job = retry_document(bench.write_path, queue, document_id)
    assert work_once(worker)
    assert queue.job(job.id, LOCAL).status is JobStatus.SUCCEEDED
    assert bench.write_path.catalog.document(document_id, LOCAL).status is DocumentStatus.READY
    (again,) = plan(bench.write_path, bench.base.id, [str(bench.folder)])
    assert isinstance(again, Receipt) and again.outcome == "unchanged"


def test_the_retry_of_other_chunks_that_failed_succeeds_with_what_is_published_and_leaves_nothing_of_them(
    bench: Bench, queue: PostgresUploadQueue, worker: UploadWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.write("berth.txt", "Berth 7 is 400 metres long.")
    document_id = _ingest(bench, bench.write_path)
    other = bench.recipe.with_small_chunks()()
    upsert = other.index.upsert

    def upsert_without_answer(*arguments: Any) -> None:
        upsert(*arguments)
        _unavailable()

    monkeypatch.setattr(other.index, "upsert", upsert_without_answer)
    _ingest(bench, other)
    assert bench.versions_in_index(document_id) == {1: 1, 2: 1}
    job = retry_document(bench.write_path, queue, document_id)
    assert work_once(worker)
    assert (queue.job(job.id, LOCAL).status, job.version) == (JobStatus.SUCCEEDED, 3)
    document = bench.write_path.catalog.document(document_id, LOCAL)
    assert (document.status, document.published_version) == (DocumentStatus.READY, 1)
    bench.write_path.drain()
    assert bench.versions_in_index(document_id) == {1: 1}
    assert not bench.write_path.snapshots.exists(bench.base.id, document_id, 2)


def _ingest(bench: Bench, write_path: WritePath) -> str:
    """One file, with whatever comes of it; its document."""
    source = write_path.catalog.ensure_source(bench.base.id, SourceKind.BULK, "bulk")
    (item,) = plan(write_path, bench.base.id, [str(bench.folder)])
    assert isinstance(item, PlannedFile)
    work = steps.Work(bench.base.id, source.id, item.document_id, item.file, item.content_fingerprint)
    prepared = steps.prepare(write_path, work, owner="run")
    if isinstance(prepared, list):
        steps.index(write_path, steps.open_index(write_path), prepared)
    return item.document_id


def _unavailable(*_: Any) -> None:
    raise StoreUnavailableError("no answer")


def _refuses() -> Any:
    raise CorruptDocumentError("torn")
