"""Jobs of online uploads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import Claim, DocumentStatus, IngestionJob, JobStatus
from rag_cluster.domain.ports import UploadRequest
from rag_cluster.errors import ClaimLostError, ConflictError, NotFoundError
from rag_cluster.stores.postgres import rows, upload_requests
from rag_cluster.stores.postgres.access import READABLE_DOCUMENTS, principal_values
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.claims import RESUMABLE, take_claim
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.documents import lock_document
from rag_cluster.stores.postgres.parts import fail_version

_MAX_MESSAGE = 4000


class PostgresUploadQueue:
    """The `UploadQueue` port. max_attempts: of each job, lost workers included."""

    def __init__(self, database: Database, *, max_attempts: int = 4) -> None:
        self._database = database
        self._max_attempts = max_attempts

    def find_duplicate(self, principal: Principal, request: UploadRequest) -> IngestionJob | None:
        """The newest job of a live upload with the same bytes, pipeline, access and metadata that the principal may
        read, and that did not fail."""
        acl = request.access.acl
        values = principal_values(principal) | {
            "knowledge_base": as_uuid(request.knowledge_base_id, "knowledge base"),
            "sha256": request.sha256,
            "fingerprint": request.content_fingerprint,
            "wanted_level": request.access.security_level,
            "wanted_acl": None if acl is None else list(acl),
            "wanted_department": request.access.department,
            "metadata": Jsonb(dict(request.metadata)),
        }
        with self._database.connection() as connection:
            row = connection.execute(
                f"""SELECT j.* FROM {READABLE_DOCUMENTS}
                    JOIN ingestion_jobs j ON j.document_id = d.id AND j.status <> 'FAILED'
                    JOIN document_versions v ON v.document_id = d.id AND v.version = j.version
                    WHERE d.knowledge_base_id = %(knowledge_base)s AND v.sha256 = %(sha256)s
                      AND v.content_fingerprint = %(fingerprint)s AND v.status <> 'FAILED'
                      AND a.security_level = %(wanted_level)s AND a.acl IS NOT DISTINCT FROM %(wanted_acl)s::text[]
                      AND a.department IS NOT DISTINCT FROM %(wanted_department)s::text
                      AND d.metadata = %(metadata)s
                    ORDER BY j.created_at DESC, j.id LIMIT 1""",  # noqa: S608
                values,
            ).fetchone()
        return None if row is None else rows.job(row)

    def submit(self, request: UploadRequest) -> IngestionJob:
        """Document + version 1 + job in one transaction.

        The same idempotency key with the same request gives the job of then, whose document_id tells the caller that
        its own object is not needed; with another request IdempotencyConflictError.
        """
        knowledge_base = as_uuid(request.knowledge_base_id, "knowledge base")
        for last in (False, True):
            try:
                with self._database.transaction() as connection:
                    if earlier := upload_requests.earlier(connection, knowledge_base, request):
                        return earlier
                    return upload_requests.submit(connection, knowledge_base, request, self._max_attempts)
            except psycopg.errors.UniqueViolation as error:
                if last or request.idempotency_key is None:  # the key came twice at once: the second look finds it
                    raise ConflictError(f"document {request.document_id} exists already") from error
        raise AssertionError("the loop returns or raises")

    def retry(self, document_id: str, content_fingerprint: str, chunking_strategy: str | None = None) -> IngestionJob:
        """A job for a failed document: a new version of the same bytes, or the one that can still go on.

        The job that is under way comes back as it is. NotFoundError; ConflictError when the newest version did not
        fail; DocumentBusyError while a bulk run works on it.
        """
        with self._database.transaction() as connection:
            key = as_uuid(document_id, "document")
            return upload_requests.retry(connection, key, content_fingerprint, chunking_strategy, self._max_attempts)

    def claim(self, worker: str, lease_seconds: float) -> tuple[IngestionJob, Claim] | None:
        """The next job that is due, or whose worker was lost, with the claim of its version. None: nothing due.

        Never waits: rows that somebody holds are skipped, so that no two workers get one job.
        """
        while True:
            with self._database.transaction() as connection:
                due = connection.execute(_DUE).fetchone()
                if due is None:
                    return None
                if settled := _settled(due):
                    _settle(connection, due, *settled)
                    continue
                claim = take_claim(connection, _version(due), worker, lease_seconds)
                job = connection.execute(
                    """UPDATE ingestion_jobs SET status = 'RUNNING', attempts = attempts + 1, worker_id = %s,
                         claim_token = %s, locked_until = clock_timestamp() + make_interval(secs => %s),
                         error_type = NULL, error_message = NULL, updated_at = now()
                       WHERE id = %s RETURNING *""",
                    (worker, claim.token, lease_seconds, due["id"]),
                ).fetchone()
                assert job is not None, "the job is locked by this transaction"
                return rows.job(job), claim

    def heartbeat(self, job: IngestionJob, worker: str, lease_seconds: float, *, stage: str, percent: int) -> bool:
        """Extend job and claim; False when the job was lost."""
        with self._database.transaction() as connection:
            mine = connection.execute(
                """UPDATE ingestion_jobs SET locked_until = clock_timestamp() + make_interval(secs => %s), stage = %s,
                     percent = %s, updated_at = now()
                   WHERE id = %s AND worker_id = %s AND claim_token = %s AND status = 'RUNNING'""",
                (lease_seconds, stage, percent, job.id, worker, job.claim_token),
            )
            if mine.rowcount:
                connection.execute(
                    """UPDATE document_versions SET claim_until = clock_timestamp() + make_interval(secs => %s)
                       WHERE document_id = %s AND version = %s AND claim_token = %s AND claim_owner = %s""",
                    (lease_seconds, job.document_id, job.version, job.claim_token, worker),
                )
        return bool(mine.rowcount)

    def succeed(self, job: IngestionJob) -> None:
        """SUCCEEDED. Again is harmless. ClaimLostError when another worker took the job over."""
        with self._database.connection() as connection:
            updated = connection.execute(
                """UPDATE ingestion_jobs SET status = 'SUCCEEDED', percent = 100, locked_until = NULL,
                     updated_at = now()
                   WHERE id = %s AND claim_token = %s AND status IN ('RUNNING', 'SUCCEEDED')""",
                (job.id, job.claim_token),
            )
        if not updated.rowcount:
            raise _lost(job)

    def fail(self, job: IngestionJob, *, error_type: str, message: str, retry_in: float | None) -> None:
        """retry_in None or attempts used up: FAILED for good; otherwise PENDING again after retry_in seconds.

        With the job its version fails for good too, where that was not said before. ClaimLostError as in `succeed`.
        """
        with self._database.transaction() as connection:
            held = _held(connection, job)
            if retry_in is None or held["attempts"] >= held["max_attempts"]:
                _settle(connection, held, JobStatus.FAILED, error_type, message)
                return
            connection.execute(
                """UPDATE ingestion_jobs SET status = 'PENDING', locked_until = NULL, error_type = %s,
                     error_message = %s, available_at = clock_timestamp() + make_interval(secs => %s),
                     updated_at = now() WHERE id = %s""",
                (error_type, message[:_MAX_MESSAGE], retry_in, job.id),
            )
            _give_up_claim(connection, job)

    def release(self, job: IngestionJob) -> None:
        """Give a job back as it was found: PENDING and due at once, this attempt not counted.

        For a worker that stops in good order. ClaimLostError as in `succeed`.
        """
        with self._database.transaction() as connection:
            _held(connection, job)
            connection.execute(
                """UPDATE ingestion_jobs SET status = 'PENDING', locked_until = NULL, attempts = attempts - 1,
                     available_at = clock_timestamp(), updated_at = now() WHERE id = %s""",
                (job.id,),
            )
            _give_up_claim(connection, job)

    def job(self, job_id: str, principal: Principal) -> IngestionJob:
        """A job of a document that the principal may read: NotFoundError otherwise. Before it in the queue are those of
        such documents: no count tells of what the principal may not see."""
        values = principal_values(principal) | {"id": as_uuid(job_id, "job")}
        with self._database.connection() as connection:
            row = connection.execute(
                f"""SELECT j.*, CASE WHEN j.status = 'PENDING' THEN (
                      SELECT count(*) FROM {READABLE_DOCUMENTS}
                      JOIN ingestion_jobs o ON o.document_id = d.id AND o.status = 'PENDING'
                        AND (o.available_at, o.id) < (j.available_at, j.id)) END AS queue_position
                    FROM {READABLE_DOCUMENTS}
                    JOIN ingestion_jobs j ON j.document_id = d.id WHERE j.id = %(id)s""",  # noqa: S608
                values,
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no job {job_id!r}")
        return rows.job(row)

    def backlog(self) -> int:
        """Jobs that are not finished."""
        with self._database.connection() as connection:
            row = connection.execute(
                "SELECT count(*) AS jobs FROM ingestion_jobs WHERE status IN ('PENDING', 'RUNNING')"
            ).fetchone()
        return int(row["jobs"]) if row else 0


_HELD = f"""
    SELECT j.*, n.status AS version_status, n.parts_total, n.claim_owner, n.error_type AS version_error_type,
      n.error_message AS version_error_message, {RESUMABLE} AS resumable,
      coalesce(n.claim_until > clock_timestamp(), false) AS live
    FROM ingestion_jobs j
    JOIN documents d ON d.id = j.document_id AND d.deleted_at IS NULL
    JOIN document_versions n ON n.document_id = j.document_id AND n.version = j.version
    WHERE true"""  # noqa: S608
_DUE = (
    _HELD
    + """
      AND (j.status = 'PENDING' AND j.available_at <= clock_timestamp()
        OR j.status = 'RUNNING' AND j.locked_until <= clock_timestamp())
      AND NOT coalesce(n.claim_until > clock_timestamp(), false)
    ORDER BY j.available_at, j.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED"""
)


def _held(connection: Connection, job: IngestionJob) -> dict[str, Any]:
    """The running job with its version, locked. ClaimLostError when it is no longer this worker's."""
    lock_document(connection, job.document_id)  # before version and job: the order that a delete keeps too
    held = connection.execute(
        _HELD + " AND j.id = %s AND j.claim_token = %s AND j.status = 'RUNNING' FOR NO KEY UPDATE",
        (job.id, job.claim_token),
    ).fetchone()
    if held is None:
        raise _lost(job)
    return held


def _give_up_claim(connection: Connection, job: IngestionJob) -> None:
    connection.execute(
        """UPDATE document_versions SET claim_owner = NULL, claim_until = NULL
           WHERE document_id = %s AND version = %s AND claim_token = %s""",
        (job.document_id, job.version, job.claim_token),
    )


def _version(held: Mapping[str, Any]) -> dict[str, Any]:
    return {key: held[key] for key in ("document_id", "version", "claim_owner", "live", "parts_total")}


def _settled(due: Mapping[str, Any]) -> tuple[JobStatus, str | None, str] | None:
    """The end of a job that needs no work: its worker was lost after the work was done, or once too often."""
    if due["version_status"] == DocumentStatus.READY:
        return JobStatus.SUCCEEDED, None, ""
    if not due["resumable"]:
        return JobStatus.FAILED, due["version_error_type"], due["version_error_message"] or ""
    if due["attempts"] >= due["max_attempts"]:
        return JobStatus.FAILED, ClaimLostError.type, f"its worker was lost {due['attempts']} times"
    return None


def _settle(
    connection: Connection, held: Mapping[str, Any], status: JobStatus, error_type: str | None, message: str
) -> None:
    connection.execute(
        """UPDATE ingestion_jobs SET status = %s, error_type = %s, error_message = %s, locked_until = NULL,
             percent = CASE WHEN %s = 'SUCCEEDED' THEN 100 ELSE percent END, updated_at = now() WHERE id = %s""",
        (status, error_type, message[:_MAX_MESSAGE] or None, status, held["id"]),
    )
    if status is JobStatus.FAILED and held["resumable"]:
        fail_version(
            connection,
            _version(held),
            held["knowledge_base_id"],
            stage=held["stage"],
            error_type=error_type or "",
            message=message,
            permanent=True,
        )


def _lost(job: IngestionJob) -> ClaimLostError:
    return ClaimLostError(f"upload job {job.id} was taken over or ended, or its document was deleted")
