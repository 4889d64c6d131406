"""What PostgreSQL holds of every document, page by page, for comparing it with the other stores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rag_cluster.domain.chunks import Part, PartContent
from rag_cluster.domain.documents import IngestionRun
from rag_cluster.domain.inventory import DocumentFacts, StuckEntry, VersionFacts
from rag_cluster.stores.postgres import content, rows
from rag_cluster.stores.postgres.adapters import as_uuid, known_uuid
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.repairs import InventoryRepairs

PAGE_DOCUMENTS = 1000
PAGE_CHUNKS = 20_000
"""A page ends before the document that would pass this many chunks: two huge documents are never in memory at once."""


class PostgresInventory(InventoryRepairs):
    """The `Inventory` port: PostgresInventory(database)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def knowledge_base_ids(self) -> list[str]:
        """All that ever were, deleted ones included, by id."""
        with self._database.connection() as connection:
            found = connection.execute("SELECT id FROM knowledge_bases ORDER BY id").fetchall()
        return [row["id"] for row in found]

    def documents(self, knowledge_base_id: str, after: str | None = None) -> list[DocumentFacts]:
        """The next page of a knowledge base's documents by id, tombstones included; [] at the end."""
        with self._database.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found = connection.execute(
                """WITH page AS (
                     SELECT d.*, coalesce((
                       SELECT sum(p.chunk_end - p.chunk_start) FROM document_parts p
                       WHERE p.document_id = d.id AND p.version = d.published_version), 0) AS chunks
                     FROM documents d
                     WHERE d.knowledge_base_id = %(base)s AND (%(after)s::uuid IS NULL OR d.id > %(after)s::uuid)
                     ORDER BY d.id LIMIT %(documents)s),
                   running AS (SELECT *, sum(chunks) OVER (ORDER BY id) - chunks AS before FROM page)
                   SELECT * FROM running WHERE before < %(chunks)s ORDER BY id""",
                {
                    "base": as_uuid(knowledge_base_id, "knowledge base"),
                    "after": after,
                    "documents": PAGE_DOCUMENTS,
                    "chunks": PAGE_CHUNKS,
                },
            ).fetchall()
            return _facts(connection, found)

    def document(self, document_id: str) -> DocumentFacts | None:
        """One document as it is now, tombstones included; None when PostgreSQL does not know it."""
        with self._database.transaction() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            found = connection.execute("SELECT * FROM documents WHERE id = %s", (known_uuid(document_id),)).fetchall()
            return next(iter(_facts(connection, found)), None)

    def contents(self, document_id: str, version: int) -> Iterator[PartContent]:
        """Chunks and parents of a version as they stand, part by part."""
        key = as_uuid(document_id, "document")
        with self._database.connection() as connection:
            parts = connection.execute(
                "SELECT * FROM document_parts WHERE document_id = %s AND version = %s ORDER BY part", (key, version)
            ).fetchall()
        for part in map(rows.part, parts):
            with self._database.connection() as connection:
                found = connection.execute(
                    f"""SELECT {content.CHUNK}, {content.PARENT} FROM chunks c LEFT JOIN parents p ON p.id = c.parent_id
                        WHERE c.document_id = %s AND c.version = %s AND c.index >= %s AND c.index < %s
                        ORDER BY c.index""",  # noqa: S608
                    (key, version, part.start, part.end),
                ).fetchall()
            parents = {row["parent_id"]: parent for row in found if (parent := content.parent(row)) is not None}
            yield PartContent(part, tuple(map(content.chunk, found)), tuple(parents.values()))

    def stuck_entries(self, seconds: float, attempts: int, limit: int = 1000) -> list[StuckEntry]:
        """Outbox entries that are overdue by so many seconds, or failed so many times, oldest first."""
        with self._database.connection() as connection:
            found = connection.execute(
                """SELECT * FROM outbox
                   WHERE available_at < clock_timestamp() - make_interval(secs => %s) OR attempts >= %s
                   ORDER BY id LIMIT %s""",
                (seconds, attempts, limit),
            ).fetchall()
        return [
            StuckEntry(
                row["id"],
                row["kind"],
                row["document_id"],
                row["knowledge_base_id"],
                row["attempts"],
                row["error_message"] or "",
            )
            for row in found
        ]

    def stuck_runs(self, seconds: float, limit: int = 1000) -> list[IngestionRun]:
        """RUNNING runs without a sign of life, on their row or by a live claim, for so many seconds."""
        with self._database.connection() as connection:
            found = connection.execute(
                """SELECT r.* FROM ingestion_runs r
                   WHERE r.status = 'RUNNING' AND r.updated_at < clock_timestamp() - make_interval(secs => %s)
                     AND NOT EXISTS (SELECT 1 FROM document_versions v WHERE v.claim_owner = r.id::text
                       AND v.claim_until > clock_timestamp())
                   ORDER BY r.id LIMIT %s""",
                (seconds, limit),
            ).fetchall()
        return [rows.run(row) for row in found]


_VERSIONS = """
    SELECT v.*, coalesce(v.claim_until > clock_timestamp(), false) AS live,
      CASE WHEN v.claim_owner IS NOT NULL AND v.claim_until <= clock_timestamp()
        THEN extract(epoch FROM clock_timestamp() - v.claim_until)::float8 END AS lapsed_seconds
    FROM document_versions v WHERE v.document_id = ANY(%s::uuid[])"""
_CONTENT = """
    SELECT document_id, version, count(*) AS rows FROM (
      SELECT document_id, version FROM chunks WHERE document_id = ANY(%(ids)s::uuid[])
      UNION ALL SELECT document_id, version FROM parents WHERE document_id = ANY(%(ids)s::uuid[])) AS found
    GROUP BY document_id, version"""
_CHUNKS = """
    SELECT c.id, c.document_id, c.parent_id IS NOT NULL AND p.id IS NULL AS parentless
    FROM documents d JOIN chunks c ON c.document_id = d.id AND c.version = d.published_version
    LEFT JOIN parents p ON p.id = c.parent_id WHERE d.id = ANY(%s::uuid[])"""
_HELD_BY = """
    SELECT d.id AS document_id, i.collection
    FROM documents d JOIN document_parts p ON p.document_id = d.id AND p.version = d.published_version
    JOIN index_parts x USING (document_id, version, part) JOIN indexes i ON i.id = x.index_id
    WHERE d.id = ANY(%s::uuid[])
    GROUP BY d.id, i.collection
    HAVING count(*) = (
      SELECT count(*) FROM document_parts a WHERE a.document_id = d.id AND a.version = d.published_version)"""
_OWED = "SELECT document_id, count(*) AS entries FROM outbox WHERE document_id = ANY(%s::uuid[]) GROUP BY document_id"

Row = dict[str, Any]


def _facts(connection: Connection, documents: Sequence[Row]) -> list[DocumentFacts]:
    if not documents:
        return []
    ids = [row["id"] for row in documents]
    parts = _grouped(connection, "SELECT * FROM document_parts WHERE document_id = ANY(%s::uuid[]) ORDER BY part", ids)
    versions = _grouped(connection, _VERSIONS, ids)
    content_rows = defaultdict[str, list[Row]](list)
    for row in connection.execute(_CONTENT, {"ids": ids}):
        content_rows[row["document_id"]].append(row)
    chunks = _grouped(connection, _CHUNKS, ids)
    assets = _grouped(connection, "SELECT * FROM document_assets WHERE document_id = ANY(%s::uuid[]) ORDER BY id", ids)
    losses = _grouped(connection, "SELECT * FROM losses WHERE document_id = ANY(%s::uuid[])", ids)
    owed = _grouped(connection, _OWED, ids)
    held_by = _grouped(connection, _HELD_BY, ids)
    return [
        DocumentFacts(
            id=row["id"],
            knowledge_base_id=row["knowledge_base_id"],
            source_id=row["source_id"],
            uri=row["uri"],
            filename=row["filename"],
            access_key=row["access_key"],
            metadata=row["metadata"],
            published_version=row["published_version"],
            next_version=row["next_version"],
            deleted=row["deleted_at"] is not None,
            purged=row["purged_at"] is not None,
            owed=sum(entry["entries"] for entry in owed[row["id"]]),
            versions={version["version"]: _version(version, parts[row["id"]]) for version in versions[row["id"]]},
            content={entry["version"]: entry["rows"] for entry in content_rows[row["id"]]},
            chunk_ids=frozenset(chunk["id"] for chunk in chunks[row["id"]]),
            parentless=sum(chunk["parentless"] for chunk in chunks[row["id"]]),
            assets=tuple(map(rows.asset, assets[row["id"]])),
            losses=frozenset((loss["version"], loss["kind"], loss["subject"]) for loss in losses[row["id"]]),
            held_by=frozenset(entry["collection"] for entry in held_by[row["id"]]),
        )
        for row in documents
    ]


def _grouped(connection: Connection, statement: str, ids: list[str]) -> Mapping[str, list[Row]]:
    found = defaultdict[str, list[Row]](list)
    for row in connection.execute(statement, (ids,)):
        found[row["document_id"]].append(row)
    return found


def _version(row: Row, parts: Sequence[Row]) -> VersionFacts:
    version = rows.version(row)
    own = [part for part in parts if part["version"] == version.version]
    return VersionFacts(
        version=version.version,
        status=version.status,
        sha256=version.sha256,
        size=version.size,
        content_fingerprint=version.content_fingerprint,
        error_permanent=version.error_permanent,
        parts_total=version.parts_total,
        parts=tuple(
            Part(part["document_id"], part["version"], part["part"], part["chunk_start"], part["chunk_end"])
            for part in own
        ),
        parts_done=sum(part["done_at"] is not None for part in own),
        claim_token=row["claim_token"],
        live=row["live"],
        lapsed_seconds=row["lapsed_seconds"],
        referenced=row["referenced"],
    )
