"""The anti-join of listed files with what is known: the part of `PostgresLedger` that decides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rag_cluster.domain import ids
from rag_cluster.domain.documents import DocumentStatus, PlanAction, PlannedFile, SourceFile
from rag_cluster.stores.postgres.access import attributes
from rag_cluster.stores.postgres.adapters import as_uuid, dump_json
from rag_cluster.stores.postgres.claims import RESUMABLE, is_wanted
from rag_cluster.stores.postgres.database import Database

# r: the published version. n: the newest one.
_KNOWN = f"""
    SELECT d.id, d.metadata, a.acl, a.department, a.security_level,
      r.size AS ready_size, r.etag AS ready_etag, r.content_fingerprint AS ready_fingerprint,
      n.status, n.size, n.etag, n.content_fingerprint, n.error_type, n.error_message, n.error_permanent,
      n.parts_total, n.parts_total IS NOT NULL AND {RESUMABLE} AS resumable
    FROM unnest(%s::uuid[]) AS wanted (id)
    JOIN documents d ON d.id = wanted.id AND d.deleted_at IS NULL
    JOIN access_keys a ON a.id = d.access_key
    LEFT JOIN document_versions r ON r.document_id = d.id AND r.version = d.published_version
    LEFT JOIN LATERAL (
      SELECT v.* FROM document_versions v WHERE v.document_id = d.id ORDER BY v.version DESC LIMIT 1) n ON true"""  # noqa: S608


class LedgerPlanning:
    """`Ledger.compare`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def compare(
        self,
        knowledge_base_id: str,
        files: Sequence[SourceFile],
        content_fingerprints: Sequence[str],
        *,
        retry_failed: bool = False,
    ) -> list[PlannedFile]:
        """Anti-join one batch of listed files, same order, in one statement. Reads no bytes. Changes nothing."""
        knowledge_base = as_uuid(knowledge_base_id, "knowledge base")
        document_ids = [ids.bulk_document_id(knowledge_base, file.uri) for file in files]
        with self._database.connection() as connection:
            known = {row["id"]: row for row in connection.execute(_KNOWN, (document_ids,))}
        return [
            _plan(file, document_id, fingerprint, known.get(document_id), retry_failed)
            for file, document_id, fingerprint in zip(files, document_ids, content_fingerprints, strict=True)
        ]

    def live_uris(
        self, knowledge_base_id: str, source_id: str, after: str | None, limit: int, run_id: str | None = None
    ) -> list[tuple[str, str, bool]]:
        """(document id, URI, a version was begun since that run began) of a source's documents that are not deleted,
        by id, those behind `after`."""
        with self._database.connection() as connection:
            found = connection.execute(
                """SELECT d.id, d.uri, EXISTS (
                     SELECT 1 FROM ingestion_runs r JOIN document_versions v ON v.created_at >= r.started_at
                     WHERE r.id = %(run)s::uuid AND v.document_id = d.id) AS begun
                   FROM documents d
                   WHERE d.knowledge_base_id = %(base)s AND d.source_id = %(source)s AND d.deleted_at IS NULL
                     AND (%(after)s::uuid IS NULL OR d.id > %(after)s::uuid) ORDER BY d.id LIMIT %(limit)s""",
                {
                    "base": as_uuid(knowledge_base_id, "knowledge base"),
                    "source": as_uuid(source_id, "source"),
                    "run": run_id,
                    "after": after,
                    "limit": limit,
                },
            ).fetchall()
        return [(row["id"], row["uri"], row["begun"]) for row in found]


def _plan(
    file: SourceFile, document_id: str, fingerprint: str, known: Mapping[str, Any] | None, retry_failed: bool
) -> PlannedFile:
    if known is None:
        return PlannedFile(file, document_id, PlanAction.PREPARE, fingerprint, "new")
    state = (file.size, file.etag)
    published = known["ready_etag"] is not None
    ready = (known["ready_size"], known["ready_etag"]) == state
    if ready and ids.serves(known["ready_fingerprint"], fingerprint):
        action, reason = PlanAction.UNCHANGED, ""
    elif (known["size"], known["etag"]) != state or not is_wanted(known, fingerprint):
        action, reason = PlanAction.PREPARE, _difference(file, fingerprint, known)
    elif known["resumable"]:
        action, reason = PlanAction.INDEX, "its snapshot is committed, parts are missing"
    elif known["status"] == DocumentStatus.FAILED and known["error_permanent"] and not retry_failed:
        action, reason = PlanAction.SKIP_FAILED, known["error_message"] or ""
    elif ready and known["ready_fingerprint"] == ids.awaiting_recognition(fingerprint):
        action, reason = PlanAction.RECOGNIZE, "its text is published, the rest awaits recognition"
    else:
        action, reason = PlanAction.PREPARE, "not finished before"
    # The published version goes by the new access rule even where its content stays or its successor fails.
    settled = action in (PlanAction.UNCHANGED, PlanAction.SKIP_FAILED)
    if settled and published and not _same_attributes(file, known):
        action, reason = PlanAction.ATTRIBUTES, "access or metadata changed"
    error_type = known["error_type"] if action is PlanAction.SKIP_FAILED else None
    return PlannedFile(file, document_id, action, fingerprint, reason, error_type)


def _difference(file: SourceFile, fingerprint: str, known: Mapping[str, Any]) -> str:
    if known["etag"] is None:
        return "no version yet"
    if (known["size"], known["etag"]) == (file.size, file.etag):
        return f"parser, chunker or tokenizer changed: {known['content_fingerprint']} -> {fingerprint}"
    return "content changed"


def _same_attributes(file: SourceFile, known: Mapping[str, Any]) -> bool:
    if not file.keeps_access and file.access != attributes(known):
        return False
    if file.keeps_metadata:
        return True
    # Compared as stored: a metadata value may hold what JSON or PostgreSQL cannot, e.g. a date or a NUL.
    stored = known["metadata"]
    return bool(file.metadata == stored or json.loads(dump_json(file.metadata)) == stored)
