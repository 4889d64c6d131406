"""Rows to domain objects: one column list and one function for each."""

from __future__ import annotations

from typing import Any

from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Part
from rag_cluster.domain.documents import (
    Document,
    DocumentAsset,
    DocumentStatus,
    DocumentVersion,
    IndexRecord,
    IngestionJob,
    IngestionRun,
    JobStatus,
    KnowledgeBase,
    OutboxEntry,
    OutboxKind,
    RunStatus,
    Source,
    SourceKind,
)
from rag_cluster.stores.postgres.access import attributes

Row = dict[str, Any]

DOCUMENT = """d.id, d.knowledge_base_id, d.source_id, d.uri, d.filename, d.mime_type, d.access_key, d.metadata,
    d.published_version, d.deleted_at, d.created_at, d.updated_at, a.acl, a.department, a.security_level,
    n.version, n.status, n.error_type, n.error_message"""
"""Columns of a document d, its access_keys row a and its newest version n (`NEWEST`)."""

NEWEST = """LEFT JOIN LATERAL (
    SELECT v.* FROM document_versions v WHERE v.document_id = d.id ORDER BY v.version DESC LIMIT 1) n ON true"""


def knowledge_base(row: Row) -> KnowledgeBase:
    """From knowledge_bases.*."""
    acl = row["default_acl"]
    return KnowledgeBase(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        default_acl=None if acl is None else tuple(acl),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def source(row: Row) -> Source:
    """From sources.*."""
    return Source(
        id=row["id"],
        knowledge_base_id=row["knowledge_base_id"],
        kind=SourceKind(row["kind"]),
        name=row["name"],
        enabled=row["enabled"],
        priority=row["priority"],
        default_chunking_strategy=row["default_chunking_strategy"],
    )


def document(row: Row) -> Document:
    """From `DOCUMENT`."""
    return Document(
        id=row["id"],
        knowledge_base_id=row["knowledge_base_id"],
        source_id=row["source_id"],
        uri=row["uri"],
        filename=row["filename"],
        mime_type=row["mime_type"],
        access=attributes(row),
        access_key=row["access_key"],
        metadata=row["metadata"],
        published_version=row["published_version"],
        deleted_at=row["deleted_at"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        status=DocumentStatus(row["status"]) if row["status"] else DocumentStatus.PENDING,
        version=row["version"] or 0,
        error_type=row["error_type"],
        error_message=row["error_message"],
    )


def version(row: Row) -> DocumentVersion:
    """From document_versions.*."""
    return DocumentVersion(
        document_id=row["document_id"],
        version=row["version"],
        status=DocumentStatus(row["status"]),
        sha256=row["sha256"],
        size=row["size"],
        etag=row["etag"],
        content_fingerprint=row["content_fingerprint"],
        attempts=row["attempts"],
        error_type=row["error_type"],
        error_message=row["error_message"],
        error_permanent=row["error_permanent"],
        error_stage=row["error_stage"],
        parts_total=row["parts_total"],
        referenced=row["referenced"],
    )


def part(row: Row) -> Part:
    """From document_parts.*."""
    return Part(row["document_id"], row["version"], row["part"], row["chunk_start"], row["chunk_end"])


def asset(row: Row) -> DocumentAsset:
    """From document_assets.*."""
    return DocumentAsset(
        id=row["id"],
        document_id=row["document_id"],
        version=row["version"],
        object_key=row["object_key"],
        media_type=row["media_type"],
        sha256=row["sha256"],
        size=row["size"],
        width=row["width"],
        height=row["height"],
        caption=row["caption"],
        locator=SourceLocator.from_dict(row["locator"]),
    )


def job(row: Row) -> IngestionJob:
    """From ingestion_jobs.*."""
    return IngestionJob(
        id=row["id"],
        document_id=row["document_id"],
        version=row["version"],
        knowledge_base_id=row["knowledge_base_id"],
        status=JobStatus(row["status"]),
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        stage=row["stage"],
        percent=row["percent"],
        error_type=row["error_type"],
        error_message=row["error_message"],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        claim_token=row["claim_token"],
        chunking_strategy=row["chunking_strategy"],
        queue_position=row.get("queue_position"),
    )


def run(row: Row) -> IngestionRun:
    """From ingestion_runs.*."""
    return IngestionRun(
        id=row["id"],
        knowledge_base_id=row["knowledge_base_id"],
        status=RunStatus(row["status"]),
        inputs=tuple(row["inputs"]),
        counts=row["counts"],
        started_at=row["started_at"],
        updated_at=row["updated_at"],
        finished_at=row["finished_at"],
        error_message=row["error_message"],
    )


def index_record(row: Row) -> IndexRecord:
    """From indexes.*."""
    return IndexRecord(row["id"], row["collection"], row["embedder_fingerprint"], row["dimension"], row["state"])


def outbox_entry(row: Row) -> OutboxEntry:
    """From outbox.*."""
    return OutboxEntry(
        id=row["id"],
        kind=OutboxKind(row["kind"]),
        document_id=row["document_id"],
        knowledge_base_id=row["knowledge_base_id"],
        payload=row["payload"],
        attempts=row["attempts"],
    )
