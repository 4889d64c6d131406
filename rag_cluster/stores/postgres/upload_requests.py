"""What makes an upload job: a new upload, or the retry of a document that failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from psycopg.types.json import Jsonb

from rag_cluster.domain import ids
from rag_cluster.domain.documents import UPLOAD_SOURCE, DocumentStatus, IngestionJob, SourceFile, SourceKind
from rag_cluster.domain.ports import UploadRequest
from rag_cluster.errors import ConflictError, DocumentBusyError, IdempotencyConflictError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.access import intern_access
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.claims import new_version, newest_version
from rag_cluster.stores.postgres.database import Connection
from rag_cluster.stores.postgres.documents import lock_document
from rag_cluster.stores.postgres.knowledge_bases import ensure_source


def earlier(connection: Connection, knowledge_base_id: str, request: UploadRequest) -> IngestionJob | None:
    """The job of an earlier request with the same idempotency key. IdempotencyConflictError if it asked otherwise."""
    if request.idempotency_key is None:
        return None
    row = connection.execute(
        "SELECT * FROM ingestion_jobs WHERE knowledge_base_id = %s AND idempotency_key = %s",
        (knowledge_base_id, request.idempotency_key),
    ).fetchone()
    if row is None:
        return None
    if row["request_digest"] != _digest(request):
        raise IdempotencyConflictError("this Idempotency-Key came before with another request")
    return rows.job(row)


def submit(connection: Connection, knowledge_base_id: str, request: UploadRequest, max_attempts: int) -> IngestionJob:
    """Document, version 1 and job, in the caller's transaction."""
    source = ensure_source(connection, knowledge_base_id, SourceKind.UPLOAD, UPLOAD_SOURCE)
    document_id = as_uuid(request.document_id, "document")
    connection.execute(
        """INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, mime_type, access_key, metadata,
             next_version) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 2)""",
        (
            document_id,
            knowledge_base_id,
            source.id,
            f"upload://{document_id}/{request.filename}",
            request.filename,
            request.mime_type,
            intern_access(connection, knowledge_base_id, request.access),
            Jsonb(dict(request.metadata)),
        ),
    )
    connection.execute(
        """INSERT INTO document_versions (document_id, version, sha256, size, content_fingerprint)
           VALUES (%s, 1, %s, %s, %s)""",
        (document_id, request.sha256, request.size, request.content_fingerprint),
    )
    job = {
        "document": document_id,
        "version": 1,
        "knowledge_base": knowledge_base_id,
        "strategy": request.chunking_strategy,
        "attempts": max_attempts,
        "key": request.idempotency_key,
        "digest": _digest(request),
    }
    return _add_job(connection, job)


def retry(
    connection: Connection,
    document_id: str,
    content_fingerprint: str,
    chunking_strategy: str | None,
    max_attempts: int,
) -> IngestionJob:
    """As `PostgresUploadQueue.retry`, in the caller's transaction."""
    facts = lock_document(connection, document_id)
    if facts is None or facts["deleted_at"] is not None:
        raise NotFoundError(f"no document {document_id!r}")
    job = connection.execute(
        "SELECT * FROM ingestion_jobs WHERE document_id = %s AND status IN ('PENDING', 'RUNNING') LIMIT 1",
        (document_id,),
    ).fetchone()
    if job is not None:
        return rows.job(job)
    newest = newest_version(connection, document_id)
    if newest is None or newest["status"] != DocumentStatus.FAILED:
        status = "not there" if newest is None else newest["status"]
        raise ConflictError(f"nothing to retry: the newest version of document {document_id} is {status}")
    if newest["live"]:
        raise DocumentBusyError(f"document {document_id} is being ingested")
    if not (newest["resumable"] and newest["content_fingerprint"] == content_fingerprint):
        file = SourceFile("", facts["filename"], newest["size"], newest["etag"], referenced=newest["referenced"])
        made = new_version(connection, document_id, file, content_fingerprint)
        connection.execute(
            "UPDATE document_versions SET sha256 = %s WHERE document_id = %s AND version = %s",
            (newest["sha256"], document_id, made["version"]),
        )
        newest = made
    return _add_job(
        connection,
        {
            "document": document_id,
            "version": newest["version"],
            "knowledge_base": facts["knowledge_base_id"],
            "strategy": chunking_strategy,
            "attempts": max_attempts,
            "key": None,
            "digest": "",
        },
    )


def _add_job(connection: Connection, values: Mapping[str, Any]) -> IngestionJob:
    row = connection.execute(
        """INSERT INTO ingestion_jobs (id, document_id, version, knowledge_base_id, chunking_strategy, max_attempts,
             idempotency_key, request_digest)
           VALUES (%(id)s, %(document)s, %(version)s, %(knowledge_base)s, %(strategy)s, %(attempts)s, %(key)s,
             %(digest)s) RETURNING *""",
        {"id": str(uuid4()), **values},
    ).fetchone()
    assert row is not None, "an insert returns its row"
    return rows.job(row)


def _digest(request: UploadRequest) -> str:
    return ids.fingerprint(
        filename=request.filename,
        sha256=request.sha256,
        acl=request.access.acl,
        department=request.access.department,
        security_level=request.access.security_level,
        metadata=request.metadata,
        **({"chunking_strategy": request.chunking_strategy} if request.chunking_strategy else {}),
    )
