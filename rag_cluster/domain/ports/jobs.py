"""Work that waits in PostgreSQL: uploads, and effects owed to other stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from rag_cluster.domain.access import AccessAttributes, Principal
from rag_cluster.domain.documents import Claim, IngestionJob, OutboxEntry, OutboxKind


@dataclass(frozen=True, slots=True)
class UploadRequest:
    """An upload whose object is already stored."""

    document_id: str
    knowledge_base_id: str
    filename: str
    mime_type: str
    sha256: str
    size: int
    content_fingerprint: str
    access: AccessAttributes
    metadata: Mapping[str, Any]
    idempotency_key: str | None = None
    chunking_strategy: str | None = None
    """None: the configured default."""


class UploadQueue(Protocol):
    """Jobs of online uploads."""

    def find_duplicate(self, principal: Principal, request: UploadRequest) -> IngestionJob | None:
        """The job of a live upload with the same bytes and attributes that the principal may read."""
        ...

    def submit(self, request: UploadRequest) -> IngestionJob:
        """Document + version 1 + job in one transaction. The same idempotency key and request give the earlier job
        (another document_id); with another request IdempotencyConflictError."""
        ...

    def retry(self, document_id: str, content_fingerprint: str, chunking_strategy: str | None = None) -> IngestionJob:
        """A job for a failed document, bulk ones included: a new version of the same bytes, or the one that can still
        go on. NotFoundError; ConflictError when the newest version did not fail; DocumentBusyError."""
        ...

    def claim(self, worker: str, lease_seconds: float) -> tuple[IngestionJob, Claim] | None:
        """The next job that is due, with the claim of its version (FOR UPDATE SKIP LOCKED). None: nothing due."""
        ...

    def heartbeat(self, job: IngestionJob, worker: str, lease_seconds: float, *, stage: str, percent: int) -> bool:
        """Extend job and claim; False when the job was lost."""
        ...

    def succeed(self, job: IngestionJob) -> None:
        """ClaimLostError when another worker took the job over; so does `fail`."""
        ...

    def fail(self, job: IngestionJob, *, error_type: str, message: str, retry_in: float | None) -> None:
        """retry_in None or attempts used up: FAILED for good; otherwise PENDING again after retry_in seconds."""
        ...

    def release(self, job: IngestionJob) -> None:
        """Give a job back as it was found: PENDING and due at once, this attempt not counted. ClaimLostError."""
        ...

    def job(self, job_id: str, principal: Principal) -> IngestionJob: ...

    def backlog(self) -> int:
        """Jobs that are not finished."""
        ...


class Outbox(Protocol):
    """Effects owed to other stores. Rows are put there inside the transactions that owe them."""

    def now(self) -> datetime:
        """By the clock that says when entries are due."""
        ...

    def claim(
        self, limit: int, lease_seconds: float, *, due: datetime | None = None, document_id: str | None = None
    ) -> list[OutboxEntry]:
        """Entries that are due now and were due at `due`, longest due first, that nobody else gets for the lease."""
        ...

    def done(self, entry: OutboxEntry) -> None: ...

    def retry(self, entry: OutboxEntry, message: str, delay_seconds: float) -> None: ...

    def add(self, kind: OutboxKind, document_id: str, knowledge_base_id: str, payload: Mapping[str, Any]) -> None: ...

    def pending(self, document_id: str | None = None) -> int: ...
