"""Documents: the part of `PostgresCatalog` about what people see, change and delete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from rag_cluster.domain.access import AccessAttributes, Principal
from rag_cluster.domain.documents import Document, DocumentStatus, DocumentVersion, OutboxKind
from rag_cluster.errors import DocumentBusyError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.access import READABLE_DOCUMENTS, intern_access, principal_values
from rag_cluster.stores.postgres.adapters import as_uuid, known_uuid
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.outbox import owe
from rag_cluster.stores.postgres.paging import page, page_values

# In the order in which they are deleted.
_FACTS = ("ingestion_jobs", "chunks", "parents", "document_assets", "document_parts", "document_versions")


class DocumentCatalog:
    """`Catalog`'s methods on documents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def document(self, document_id: str, principal: Principal) -> Document:
        """A document that the principal may read, tombstoned ones excepted: NotFoundError otherwise."""
        values = principal_values(principal) | {"id": as_uuid(document_id, "document")}
        with self._database.connection() as connection:
            row = connection.execute(
                f"SELECT {rows.DOCUMENT} FROM {READABLE_DOCUMENTS} {rows.NEWEST} WHERE d.id = %(id)s",  # noqa: S608
                values,
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no document {document_id!r}")
        return rows.document(row)

    def list_documents(
        self,
        knowledge_base_id: str,
        principal: Principal,
        *,
        status: DocumentStatus | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> tuple[list[Document], str | None]:
        """Readable documents, oldest first; status is that of the newest version."""
        values = page_values(cursor, limit) | principal_values(principal)
        values |= {"knowledge_base": known_uuid(knowledge_base_id), "status": status}
        with self._database.connection() as connection:
            found = connection.execute(
                f"""SELECT {rows.DOCUMENT} FROM {READABLE_DOCUMENTS} {rows.NEWEST}
                    WHERE d.knowledge_base_id = %(knowledge_base)s
                      AND (%(status)s::text IS NULL OR coalesce(n.status, 'PENDING') = %(status)s::text)
                      AND (%(after_id)s::uuid IS NULL
                        OR (d.created_at, d.id) > (%(after_time)s::timestamptz, %(after_id)s::uuid))
                    ORDER BY d.created_at, d.id LIMIT %(fetch)s""",  # noqa: S608
                values,
            ).fetchall()
        return page(found, limit, rows.document)

    def versions(self, document_id: str) -> list[DocumentVersion]:
        """All versions that have facts, oldest first."""
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT * FROM document_versions WHERE document_id = %s ORDER BY version",
                (as_uuid(document_id, "document"),),
            ).fetchall()
        return [rows.version(row) for row in found]

    def update_document(
        self,
        document_id: str,
        *,
        access: AccessAttributes | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Document:
        """In one transaction: facts, access key, and an INDEX_ACCESS outbox row. None leaves a field alone."""
        key = as_uuid(document_id, "document")
        with self._database.transaction() as connection:
            # A new access key refers to the knowledge base: locked first, as whoever deletes that does.
            connection.execute(
                """SELECT 1 FROM documents d JOIN knowledge_bases b ON b.id = d.knowledge_base_id
                   WHERE d.id = %s FOR KEY SHARE OF b""",
                (key,),
            )
            facts = lock_document(connection, key)
            if facts is None or facts["deleted_at"] is not None:
                raise NotFoundError(f"no document {document_id!r}")
            apply_attributes(connection, facts, access, metadata)
            return _document(connection, key)

    def tombstone(self, document_id: str) -> Document:
        """Invisible at once, with a PURGE_DOCUMENT outbox row. Again is harmless. DocumentBusyError under a claim."""
        key = as_uuid(document_id, "document")
        with self._database.transaction() as connection:
            if lock_document(connection, key) is None:
                raise NotFoundError(f"no document {document_id!r}")
            busy = connection.execute(
                """SELECT 1 FROM document_versions
                   WHERE document_id = %s AND claim_until > clock_timestamp() LIMIT 1""",
                (key,),
            ).fetchone()
            if busy:
                raise DocumentBusyError(f"document {document_id} is being ingested; delete it when that has ended")
            tombstone_documents(connection, "id = %(key)s", key)
            return _document(connection, key)

    def purge_facts(self, document_id: str) -> None:
        """Last step of a delete: every fact goes; of the document stays a bare tombstone that keeps next_version.

        Does nothing to a document that is not tombstoned: it was ingested again since.
        """
        key = as_uuid(document_id, "document")
        with self._database.transaction() as connection:
            facts = lock_document(connection, key)
            if facts is None or facts["deleted_at"] is None:
                return
            delete_facts(connection, key)
            connection.execute(
                """UPDATE documents SET published_version = NULL, uri = '', filename = '', mime_type = '',
                     metadata = '{}', purged_at = now(), updated_at = now() WHERE id = %s""",
                (key,),
            )

    def remains(self, document_id: str) -> dict[str, int]:
        """Rows that still stand per table, for the delete receipt; the bare tombstone is not counted."""
        counts = ", ".join(
            f"(SELECT count(*) FROM {table} WHERE document_id = %(id)s) AS {table}"  # noqa: S608
            for table in _FACTS
        )
        with self._database.connection() as connection:
            row = connection.execute(f"SELECT {counts}", {"id": as_uuid(document_id, "document")}).fetchone()
        return dict(row or {})

    def index_row_facts(self, document_id: str) -> tuple[str, int, Mapping[str, Any]] | None:
        """(source_id, access_key, metadata) as they are now; None when gone or tombstoned."""
        with self._database.connection() as connection:
            row = connection.execute(
                "SELECT source_id, access_key, metadata FROM documents WHERE id = %s AND deleted_at IS NULL",
                (as_uuid(document_id, "document"),),
            ).fetchone()
        return None if row is None else (row["source_id"], row["access_key"], row["metadata"])


def lock_document(connection: Connection, document_id: str) -> dict[str, Any] | None:
    """The document's row, locked until the transaction ends.

    Whoever changes a document locks in this order: knowledge base, document, version.
    """
    return connection.execute("SELECT * FROM documents WHERE id = %s FOR NO KEY UPDATE", (document_id,)).fetchone()


def apply_attributes(
    connection: Connection,
    facts: Mapping[str, Any],
    access: AccessAttributes | None,
    metadata: Mapping[str, Any] | None,
) -> None:
    """Write changed access and metadata of a locked document (`lock_document`), and owe them to its index rows."""
    access_key = facts["access_key"]
    if access is not None:
        access_key = intern_access(connection, facts["knowledge_base_id"], access)
    changed = connection.execute(
        """UPDATE documents SET access_key = %(access_key)s, metadata = coalesce(%(metadata)s, metadata),
             attributes_at = now(), updated_at = now()
           WHERE id = %(id)s AND (access_key <> %(access_key)s OR metadata <> coalesce(%(metadata)s, metadata))""",
        {
            "id": facts["id"],
            "access_key": access_key,
            "metadata": None if metadata is None else Jsonb(dict(metadata)),
        },
    )
    if changed.rowcount:
        owe(connection, OutboxKind.INDEX_ACCESS, facts["id"], facts["knowledge_base_id"], {})


def tombstone_documents(connection: Connection, condition: str, key: str) -> list[str]:
    """Tombstone the live documents that meet a condition on `documents` (value: key), and owe their purges; ids.

    max_version bounds the purge: the document may be ingested again, under higher versions, before it is through. An
    upload's idempotency key is free at once: the same request again is another document.
    """
    found = connection.execute(
        f"""WITH gone AS (
              UPDATE documents SET deleted_at = now(), updated_at = now()
              WHERE deleted_at IS NULL AND {condition} RETURNING id, knowledge_base_id, next_version),
            owed AS (
              INSERT INTO outbox (kind, document_id, knowledge_base_id, payload)
              SELECT %(kind)s, id, knowledge_base_id, jsonb_build_object('max_version', next_version - 1) FROM gone),
            freed AS (
              UPDATE ingestion_jobs j SET idempotency_key = NULL FROM gone
              WHERE j.document_id = gone.id AND j.idempotency_key IS NOT NULL)
            SELECT id FROM gone""",  # noqa: S608
        {"key": key, "kind": OutboxKind.PURGE_DOCUMENT},
    ).fetchall()
    return [row["id"] for row in found]


def delete_facts(connection: Connection, document_id: str) -> None:
    """Delete every row that a document owns, except its own."""
    for table in _FACTS:
        connection.execute(f"DELETE FROM {table} WHERE document_id = %s", (document_id,))  # noqa: S608


def _document(connection: Connection, document_id: str) -> Document:
    row = connection.execute(
        f"""SELECT {rows.DOCUMENT} FROM documents d JOIN access_keys a ON a.id = d.access_key {rows.NEWEST}
            WHERE d.id = %s""",  # noqa: S608
        (document_id,),
    ).fetchone()
    assert row is not None, "the row is locked by this transaction"
    return rows.document(row)
