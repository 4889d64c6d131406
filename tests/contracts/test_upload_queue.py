"""Contract of the UploadQueue port."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from rag_cluster.domain import ids
from rag_cluster.domain.access import LOCAL, AccessAttributes, Principal
from rag_cluster.domain.documents import Claim, DocumentStatus, IngestionJob, JobStatus
from rag_cluster.domain.ports import Catalog, Ledger, Outbox, UploadQueue, UploadRequest
from rag_cluster.errors import ClaimLostError, ConflictError, DocumentBusyError, IdempotencyConflictError, NotFoundError
from tests.contracts.ledger_steps import FINGERPRINT, Ingest


@pytest.fixture
def ingest(catalog: Catalog, ledger: Ledger) -> Ingest:
    return Ingest(catalog, ledger)


def request(ingest: Ingest, **values: Any) -> UploadRequest:
    made = UploadRequest(
        document_id=ids.upload_document_id(),
        knowledge_base_id=ingest.knowledge_base_id,
        filename="报告.pdf",
        mime_type="application/pdf",
        sha256="bytes",
        size=5,
        content_fingerprint=FINGERPRINT,
        access=AccessAttributes(()),
        metadata={"k": 1},
    )
    return dataclasses.replace(made, **values)


def take(queue: UploadQueue, worker: str = "w1", lease: float = 30) -> tuple[IngestionJob, Claim]:
    taken = queue.claim(worker, lease)
    assert taken is not None
    return taken


def test_an_upload_is_a_document_a_version_and_a_job_at_once(ingest: Ingest, queue: UploadQueue) -> None:
    asked = request(ingest)
    job = queue.submit(asked)
    assert (job.status, job.document_id, job.version, job.max_attempts) == ("PENDING", asked.document_id, 1, 4)
    document = ingest.catalog.document(asked.document_id, LOCAL)
    assert (document.filename, document.mime_type, document.metadata) == ("报告.pdf", "application/pdf", {"k": 1})
    assert (document.version, document.status, document.visible) == (1, "PENDING", False)
    assert queue.job(job.id, LOCAL) == dataclasses.replace(job, queue_position=0)
    assert queue.backlog() == 1


def test_a_failed_submit_leaves_nothing(ingest: Ingest, queue: UploadQueue) -> None:
    asked = request(ingest, idempotency_key="k")
    queue.submit(asked)
    with pytest.raises(ConflictError):
        queue.submit(dataclasses.replace(asked, idempotency_key="other"))
    with pytest.raises(NotFoundError):
        queue.submit(request(ingest, knowledge_base_id=ids.upload_document_id()))
    assert queue.backlog() == 1


def test_the_same_key_and_request_give_the_same_job(ingest: Ingest, queue: UploadQueue) -> None:
    first = queue.submit(request(ingest, idempotency_key="k"))
    assert queue.submit(request(ingest, idempotency_key="k")) == first
    assert queue.backlog() == 1


def test_the_key_of_a_deleted_upload_makes_another_document(ingest: Ingest, queue: UploadQueue, outbox: Outbox) -> None:
    first = queue.submit(request(ingest, idempotency_key="k"))
    ingest.catalog.tombstone(first.document_id)
    assert outbox.pending(first.document_id) == 1  # its facts are still there
    second = queue.submit(request(ingest, idempotency_key="k"))
    assert second.document_id != first.document_id
    assert queue.job(second.id, LOCAL).status == "PENDING"
    assert queue.submit(request(ingest, idempotency_key="k")) == second


@pytest.mark.parametrize(
    "change", [{"sha256": "x"}, {"filename": "x"}, {"metadata": {}}, {"access": AccessAttributes(("g",))}]
)
def test_the_same_key_with_another_request_is_a_conflict(ingest: Ingest, queue: UploadQueue, change: dict) -> None:
    queue.submit(request(ingest, idempotency_key="k"))
    with pytest.raises(IdempotencyConflictError):
        queue.submit(request(ingest, idempotency_key="k", **change))


def test_the_same_bytes_with_the_same_attributes_are_a_duplicate(ingest: Ingest, queue: UploadQueue) -> None:
    job = queue.submit(request(ingest))
    assert queue.find_duplicate(LOCAL, request(ingest)) == job
    for change in (
        {"sha256": "x"},
        {"metadata": {"k": 2}},
        {"access": AccessAttributes(("g",))},
        {"access": AccessAttributes((), "d")},
        {"content_fingerprint": "fp-2"},
    ):
        assert queue.find_duplicate(LOCAL, request(ingest, **change)) is None


def test_a_duplicate_that_the_caller_may_not_read_is_none(ingest: Ingest, queue: UploadQueue) -> None:
    hidden = AccessAttributes(("hr",))
    queue.submit(request(ingest, access=hidden))
    asked = request(ingest, access=hidden)
    member = Principal("a", frozenset({ingest.knowledge_base_id}), frozenset({"hr"}))
    assert queue.find_duplicate(member, asked) is not None
    assert queue.find_duplicate(dataclasses.replace(member, groups=frozenset()), asked) is None


def test_a_deleted_or_failed_upload_is_no_duplicate(ingest: Ingest, queue: UploadQueue) -> None:
    deleted = queue.submit(request(ingest))
    ingest.catalog.tombstone(deleted.document_id)
    assert queue.find_duplicate(LOCAL, request(ingest)) is None
    queue.submit(request(ingest))
    job, _ = take(queue)
    queue.fail(job, error_type="corrupt_document", message="", retry_in=None)
    assert queue.find_duplicate(LOCAL, request(ingest)) is None


def test_a_claimed_job_comes_with_the_claim_of_its_version(ingest: Ingest, queue: UploadQueue) -> None:
    submitted = queue.submit(request(ingest))
    job, claim = take(queue)
    assert (job.id, job.status, job.attempts) == (submitted.id, "RUNNING", 1)
    assert (claim.document_id, claim.version, claim.owner) == (submitted.document_id, 1, "w1")
    assert queue.claim("w2", 30) is None
    with pytest.raises(DocumentBusyError):
        ingest.catalog.tombstone(submitted.document_id)


def test_jobs_are_claimed_in_the_order_of_their_arrival(ingest: Ingest, queue: UploadQueue) -> None:
    submitted = [queue.submit(request(ingest)).id for _ in range(3)]
    assert [take(queue)[0].id for _ in range(3)] == submitted


def test_a_job_runs_to_success(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    job, claim = take(queue)
    assert queue.heartbeat(job, "w1", 30, stage="parse", percent=40)
    running = queue.job(job.id, LOCAL)
    assert (running.stage, running.percent) == ("parse", 40)
    assert ingest.complete(claim, ingest.snapshot(claim)[0])
    for _ in range(2):
        queue.succeed(job)
    done = queue.job(job.id, LOCAL)
    assert (done.status, done.percent) == (JobStatus.SUCCEEDED, 100)
    assert queue.backlog() == 0
    assert not queue.heartbeat(job, "w1", 30, stage="", percent=0)


def test_a_lost_worker_is_replaced_and_fenced_off(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    lost, zombie = take(queue, "w1", 0.05)
    time.sleep(0.1)
    job, claim = take(queue, "w2")
    assert (job.attempts, claim.version) == (2, 1)
    assert not queue.heartbeat(lost, "w1", 30, stage="", percent=0)
    with pytest.raises(ClaimLostError):
        ingest.ledger.set_status(zombie, DocumentStatus.PARSING)
    with pytest.raises(ClaimLostError):
        queue.succeed(lost)
    with pytest.raises(ClaimLostError):
        queue.fail(lost, error_type="x", message="", retry_in=None)
    assert queue.job(job.id, LOCAL).status == "RUNNING"


def test_a_heartbeat_keeps_job_and_claim(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    job, claim = take(queue, "w1", 0.1)
    assert queue.heartbeat(job, "w1", 30, stage="", percent=0)
    time.sleep(0.15)
    assert queue.claim("w2", 30) is None
    ingest.snapshot(claim)


def test_a_failure_that_may_pass_is_tried_again_after_its_delay_and_resumes(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    job, claim = take(queue)
    ingest.snapshot(claim)
    ingest.ledger.fail(claim, stage="embed", error_type="model_unavailable", message="", permanent=False)
    queue.fail(job, error_type="model_unavailable", message="down", retry_in=1)
    waiting = queue.job(job.id, LOCAL)
    assert (waiting.status, waiting.error_type) == ("PENDING", "model_unavailable")
    assert queue.claim("w2", 30) is None
    time.sleep(1.1)
    again, resumed = take(queue, "w2")
    assert (again.error_type, resumed.version, resumed.resumed) == (None, 1, True)


def test_the_last_attempt_fails_job_and_version_for_good(ingest: Ingest, queue: UploadQueue, outbox: Outbox) -> None:
    queue.submit(request(ingest))
    for attempt in range(1, 5):
        job, claim = take(queue)
        assert job.attempts == attempt
        if attempt == 1:
            ingest.complete(claim, ingest.snapshot(claim, count=2)[0])
        queue.fail(job, error_type="model_unavailable", message="down", retry_in=0)
    assert queue.job(job.id, LOCAL).status == "FAILED"
    document = ingest.catalog.document(job.document_id, LOCAL)
    assert (document.status, document.error_type, document.error_message) == ("FAILED", "model_unavailable", "down")
    assert ingest.catalog.remains(job.document_id)["chunks"] == 0
    assert [entry.kind for entry in outbox.claim(9, 9)] == ["index_delete"]
    assert queue.claim("w1", 30) is None


def test_a_job_that_keeps_killing_its_workers_ends(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    for _ in range(4):
        job, _ = take(queue, lease=0.02)
        time.sleep(0.04)
    assert queue.claim("w1", 30) is None
    ended = queue.job(job.id, LOCAL)
    assert (ended.status, ended.error_type) == ("FAILED", "claim_lost")
    assert ingest.catalog.document(job.document_id, LOCAL).status == "FAILED"


def test_work_that_was_done_before_its_worker_died_counts(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    job, claim = take(queue, lease=0.05)
    ingest.complete(claim, ingest.snapshot(claim)[0])
    time.sleep(0.1)
    assert queue.claim("w2", 30) is None
    assert queue.job(job.id, LOCAL).status == "SUCCEEDED"


def test_a_content_failure_that_was_recorded_before_its_worker_died_counts(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    job, claim = take(queue, lease=0.05)
    ingest.ledger.fail(claim, stage="parse", error_type="corrupt_document", message="bad", permanent=True)
    time.sleep(0.1)
    assert queue.claim("w2", 30) is None
    ended = queue.job(job.id, LOCAL)
    assert (ended.status, ended.error_type, ended.error_message) == ("FAILED", "corrupt_document", "bad")


def test_the_job_of_a_deleted_document_is_not_run(ingest: Ingest, queue: UploadQueue) -> None:
    job = queue.submit(request(ingest))
    ingest.catalog.tombstone(job.document_id)
    assert queue.claim("w1", 30) is None
    with pytest.raises(NotFoundError):
        queue.job(job.id, LOCAL)
    ingest.catalog.purge_facts(job.document_id)
    assert queue.backlog() == 0


def test_jobs_are_shown_under_their_documents_rule(ingest: Ingest, queue: UploadQueue) -> None:
    job = queue.submit(request(ingest, access=AccessAttributes(("hr",))))
    with pytest.raises(NotFoundError):
        queue.job(job.id, Principal("a", frozenset({ingest.knowledge_base_id})))
    for job_id in ("x", ids.upload_document_id()):
        with pytest.raises(NotFoundError):
            queue.job(job_id, LOCAL)


def test_a_released_job_is_due_at_once_and_no_attempt_is_used(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    for worker in ("w1", "w2", "w3", "w4", "w5", "w6"):  # more often than there are attempts
        job, claim = take(queue, worker)
        assert (job.attempts, claim.owner) == (1, worker)
        queue.release(job)
        back = queue.job(job.id, LOCAL)
        assert (back.status, back.attempts, back.error_type) == (JobStatus.PENDING, 0, None)


def test_only_the_holder_of_a_job_releases_it(ingest: Ingest, queue: UploadQueue) -> None:
    queue.submit(request(ingest))
    lost, _ = take(queue, "w1", lease=0.01)
    time.sleep(0.05)
    held, _ = take(queue, "w2")
    with pytest.raises(ClaimLostError):
        queue.release(lost)
    assert queue.job(held.id, LOCAL).status == JobStatus.RUNNING
    queue.fail(held, error_type="x", message="", retry_in=None)
    with pytest.raises(ClaimLostError):
        queue.release(held)


def test_a_failed_document_is_retried_as_a_new_version_of_the_same_bytes(ingest: Ingest, queue: UploadQueue) -> None:
    first = queue.submit(request(ingest, chunking_strategy="sentence"))
    job, _ = take(queue)
    queue.fail(job, error_type="corrupt_document", message="torn", retry_in=None)
    again = queue.retry(first.document_id, FINGERPRINT, "sentence")
    assert (again.status, again.version, again.chunking_strategy) == (JobStatus.PENDING, 2, "sentence")
    old, new = sorted(ingest.catalog.versions(first.document_id), key=lambda version: version.version)
    assert (new.sha256, new.size, new.content_fingerprint) == (old.sha256, old.size, FINGERPRINT)
    taken, claim = take(queue)
    assert (taken.id, claim.version) == (again.id, 2)


def test_a_retry_asked_for_twice_is_one_job(ingest: Ingest, queue: UploadQueue) -> None:
    first = queue.submit(request(ingest))
    assert queue.retry(first.document_id, FINGERPRINT).id == first.id
    job, _ = take(queue)
    queue.fail(job, error_type="corrupt_document", message="torn", retry_in=None)
    assert queue.retry(first.document_id, FINGERPRINT).id == queue.retry(first.document_id, FINGERPRINT).id


def test_what_did_not_fail_cannot_be_retried(ingest: Ingest, queue: UploadQueue) -> None:
    waiting = queue.submit(request(ingest))
    assert queue.retry(waiting.document_id, FINGERPRINT).id == waiting.id
    with pytest.raises(ConflictError):
        queue.retry(ingest.ready().document_id, FINGERPRINT)
    with pytest.raises(NotFoundError):
        queue.retry(ids.upload_document_id(), FINGERPRINT)


def test_a_waiting_job_knows_how_many_are_before_it(ingest: Ingest, queue: UploadQueue) -> None:
    jobs = [queue.submit(request(ingest, sha256=str(number))) for number in range(3)]
    assert [queue.job(job.id, LOCAL).queue_position for job in jobs] == [0, 1, 2]
    take(queue)
    assert [queue.job(job.id, LOCAL).queue_position for job in jobs] == [None, 0, 1]


def test_of_the_jobs_before_it_those_count_that_the_caller_may_see(ingest: Ingest, queue: UploadQueue) -> None:
    base, elsewhere = ingest.knowledge_base_id, ingest.catalog.create_knowledge_base("elsewhere", default_acl=()).id
    queue.submit(request(ingest, knowledge_base_id=elsewhere))
    queue.submit(request(ingest, access=AccessAttributes(("hr",))))
    queue.submit(request(ingest, sha256="read"))
    last = queue.submit(request(ingest, sha256="last")).id
    administrator = Principal("a", frozenset({base}), unrestricted=True)
    callers = (Principal("r", frozenset({base})), administrator, LOCAL)
    assert [queue.job(last, caller).queue_position for caller in callers] == [1, 2, 3]
