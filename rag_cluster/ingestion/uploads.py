"""The online worker: takes upload jobs one by one and runs the same steps as a bulk run, without Ray.

Outages are tried again later with a growing delay; a fault of the content ends the job at once. The original already
lies in the object store, under its key, before there is a job.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from rag_cluster.domain import keys
from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.documents import Claim, Document, DocumentVersion, IngestionJob, Receipt, SourceFile
from rag_cluster.domain.ports import UploadQueue
from rag_cluster.errors import (
    ClaimLostError,
    DeadlineExceededError,
    ExternalServiceError,
    IndexMismatchError,
    NotFoundError,
)
from rag_cluster.ingestion import steps
from rag_cluster.ingestion.failures import Failure, leave, record_failure
from rag_cluster.ingestion.heartbeat import Heartbeat
from rag_cluster.ingestion.originals import changed, fetch_referenced, fetch_stored, referenced_file
from rag_cluster.ingestion.write_path import WritePath
from rag_cluster.telemetry import DOCUMENTS_TOTAL, ERRORS_TOTAL, bound, trace_id

log = logging.getLogger("rag_cluster.ingestion.uploads")

PREPARED = 60
"""Percent of the way at which a document is prepared; the steps of indexing count from here."""
PARTS_PER_BATCH = 4
"""Small batches: a person waits for this document and watches its percentage."""
MAX_RETRY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class UploadWorker:
    """One worker of the upload queue."""

    write_path: WritePath
    queue: UploadQueue
    job_timeout: float = 3600.0
    """Seconds for one attempt at one job."""
    poll_seconds: float = 1.0
    drain_seconds: float = 30.0
    """The outbox is drained this often while there is nothing else to do, and after each job."""
    retry_seconds: float = 2.0
    """Before the second attempt; doubled for each further one."""
    name: str = field(default_factory=lambda: f"upload-worker-{uuid.uuid4()}")
    """Owner of the claims."""


def work_forever(worker: UploadWorker, stop: threading.Event) -> None:
    """Work on the queue until `stop` is set. The job in hand stops at its next step and goes back to the queue."""
    drained = 0.0
    while not stop.is_set():
        try:
            worked = work_once(worker, stop)
            if worked or time.monotonic() - drained > worker.drain_seconds:
                worker.write_path.drain()
                drained = time.monotonic()
        except ExternalServiceError as error:
            log.warning("the queue cannot be reached: %s", error.message)
            worked = False
        if not worked:
            stop.wait(worker.poll_seconds)


def work_once(worker: UploadWorker, stop: threading.Event | None = None) -> bool:
    """Take the next job that is due and bring it to an end or back into the queue. False: nothing was due, or it waits
    for a worker with the active index's embedder."""
    if not _fills_active_index(worker.write_path):
        return False
    taken = worker.queue.claim(worker.name, worker.write_path.lease_seconds)
    if taken is None:
        return False
    job, claim = taken
    trace_id.set(job.id)
    with bound(job_id=job.id, document_id=job.document_id):
        _Attempt(worker, job, claim, stop or threading.Event()).run()
    return True


def _fills_active_index(write_path: WritePath) -> bool:
    try:
        write_path.retry.call(lambda: steps.require_active(write_path))
    except IndexMismatchError as error:
        log.warning("uploads wait: %s", error.message)
        return False
    return True


def retry_document(write_path: WritePath, queue: UploadQueue, document_id: str) -> IngestionJob:
    """Queue a failed document, bulk ones included, as its source is chunked now. As `UploadQueue.retry`."""
    document = write_path.catalog.document(document_id, LOCAL)
    strategy = write_path.catalog.source(document.knowledge_base_id, document.source_id).default_chunking_strategy
    return queue.retry(document.id, write_path.content_fingerprint(document.filename, strategy), strategy)


class _Stopped(Exception):
    """The worker shuts down."""


class _Attempt:
    """One attempt at one job."""

    def __init__(self, worker: UploadWorker, job: IngestionJob, claim: Claim, stop: threading.Event) -> None:
        self._worker = worker
        self._write_path = worker.write_path
        self._job = job
        self._claim = claim
        self._stop = stop
        self._deadline = time.monotonic() + worker.job_timeout
        self._percent = 0
        self._share = (0.0, 1.0)
        """Share of the parts that is done, and that of the batch in hand: what follows preparation is theirs."""
        self._lost = False
        self._stage = steps.Stage(worker.write_path, self._watch)

    def run(self) -> None:
        """Never raises for the job: its outcome is in the queue. An outage of the queue itself is raised."""
        queue, job = self._worker.queue, self._job
        try:
            try:
                with Heartbeat(self._beat, self._write_path.lease_seconds):
                    self._process()
                queue.succeed(job)
                log.info("upload ready", extra={"document_id": job.document_id})
            except _Stopped:
                queue.release(job)
                log.info("upload given back: the worker stops", extra={"document_id": job.document_id})
            except IndexMismatchError as error:
                if _fills_active_index(self._write_path):
                    self._failed(Failure.of(error, self._stage.name))
                else:  # switched while this document was embedded: it is for a worker with the new embedder
                    queue.release(job)
            except (ClaimLostError, NotFoundError) as error:
                leave(self._write_path, job.knowledge_base_id, self._claim)
                queue.fail(job, error_type=error.type, message=error.message, retry_in=None)
            except Exception as error:  # becomes the job's outcome
                self._failed(Failure.of(error, self._stage.name))
        except ClaimLostError as error:
            # Another worker has the job, or it went with its document: its outcome is no longer ours to write.
            log.info("upload left: %s", error.message, extra={"document_id": job.document_id})

    def _process(self) -> None:
        prepared = self._prepare()
        if not isinstance(prepared, list):
            return  # every part was done before
        record = steps.open_index(self._write_path)
        done = 0
        for batch in steps.batches(prepared, PARTS_PER_BATCH):
            self._share = (done / len(prepared), len(batch) / len(prepared))
            for row in steps.index_batch(self._write_path, record, batch, self._stage):
                if isinstance(row, Receipt) and row.outcome == "busy":
                    raise ClaimLostError(row.message)
            done += len(batch)
        self._write_path.retry.call(lambda: self._write_path.index.flush(record.collection))

    def _prepare(self) -> steps.Prepared:
        write_path, claim = self._write_path, self._claim
        document = write_path.retry.call(lambda: write_path.catalog.document(self._job.document_id, LOCAL))
        versions = write_path.retry.call(lambda: write_path.catalog.versions(document.id))
        version = next((found for found in versions if found.version == claim.version), None)
        if version is None:
            raise ClaimLostError(f"version {claim.version} of {document.id} is gone")
        work = steps.Work(
            document.knowledge_base_id,
            document.source_id,
            document.id,
            SourceFile(document.uri, document.filename, version.size, version.etag, keeps_access=True),
            version.content_fingerprint,
            self._job.chunking_strategy,
            original_stored=True,
        )
        if claim.resumed:
            return steps.resume(write_path, work, claim)
        key = self._original(document, versions, version)
        if key is None:  # a bulk document that failed before its original was stored: it lies where it was listed
            work, fetch = replace(work, original_stored=False), partial(self._fetch_listed, document.uri, version)
        else:
            stored_here = key == keys.source_key(*_place(document), claim.version, document.filename)
            fetch = partial(fetch_stored, write_path.objects, key, version.sha256)
            work = replace(work, original_stored=stored_here)
        return steps.prepare_claimed(write_path, work, claim, self._stage, fetch, time.perf_counter())

    def _original(self, document: Document, versions: Sequence[DocumentVersion], wanted: DocumentVersion) -> str | None:
        """Where the bytes of a version lie: under its own key, or that of an earlier version of the same bytes."""
        same = [v for v in versions if v.sha256 == wanted.sha256 and v.version < wanted.version and v.sha256]
        for found in (wanted, *sorted(same, key=lambda version: -version.version)):
            key = keys.source_key(*_place(document), found.version, document.filename)
            if self._write_path.retry.call(partial(self._write_path.objects.exists, key)):
                return key
        if document.uri.startswith("upload:"):
            raise NotFoundError(f"the original of {document.filename} is no longer stored; upload it again")
        return None

    def _fetch_listed(self, uri: str, version: DocumentVersion, path: str) -> tuple[str, int]:
        """The bytes that the version was listed with, or an error: others would be kept under its size and etag."""
        inputs = self._write_path.inputs
        now = referenced_file(inputs, uri)
        if version.sha256 is None and (now.size, now.etag) != (version.size, version.etag):
            raise changed(uri)
        return fetch_referenced(inputs, uri, version.sha256, path)

    def _watch(self, stage: str, percent: int) -> None:
        """At every step: stop, give up after the deadline, or after the job was taken away."""
        if self._stop.is_set():
            raise _Stopped
        if self._lost:
            raise ClaimLostError("the job was taken over by another worker")
        if time.monotonic() > self._deadline:
            raise DeadlineExceededError(f"the job took more than {self._worker.job_timeout:g} s")
        if percent > PREPARED:
            before, share = self._share
            percent = int(PREPARED + (100 - PREPARED) * before + (percent - PREPARED) * share)
        self._percent = max(self._percent, percent)
        self._beat()

    def _beat(self) -> None:
        lease = self._write_path.lease_seconds
        held = self._worker.queue.heartbeat(
            self._job, self._worker.name, lease, stage=self._stage.name, percent=min(self._percent, 99)
        )
        self._lost = self._lost or not held

    def _failed(self, failure: Failure) -> None:
        job = self._job
        last = failure.permanent or job.attempts >= job.max_attempts
        fields = {"document_id": job.document_id, "stage": failure.stage, "error_type": failure.error_type}
        log.error("upload failed: %s", failure.message, extra={**fields, "final": last})
        self._write_path.metrics.count(ERRORS_TOTAL, stage=failure.stage, type=failure.error_type)
        if last:
            record_failure(self._write_path, self._claim, replace(failure, permanent=True))
            self._write_path.metrics.count(DOCUMENTS_TOTAL, outcome="failed")
        delay = None if last else min(self._worker.retry_seconds * 2.0 ** (job.attempts - 1), MAX_RETRY_SECONDS)
        self._worker.queue.fail(job, error_type=failure.error_type, message=failure.message, retry_in=delay)


def _place(document: Document) -> tuple[str, str]:
    return document.knowledge_base_id, document.id
