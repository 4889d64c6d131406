"""What fsck puts right in PostgreSQL. Each repair looks again, inside its transaction, whether it is still due."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_cluster.domain.chunks import PartContent
from rag_cluster.stores.postgres.content import write_parts
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.documents import lock_document

_MAX_MESSAGE = 4000


class InventoryRepairs:
    """`Inventory`'s methods that write."""

    _database: Database

    def restore_content(
        self, document_id: str, version: int, contents: Sequence[PartContent], *, sha256: str, content_fingerprint: str
    ) -> bool:
        """Write chunks, parents and parts of the published version anew, its row too where that is lost.

        False when the version is not the published one any more.
        """
        with self._database.transaction() as connection:
            facts = lock_document(connection, document_id)
            if facts is None or facts["deleted_at"] is not None or facts["published_version"] != version:
                return False
            connection.execute(
                """INSERT INTO document_versions (document_id, version, sha256, content_fingerprint)
                   VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING""",
                (document_id, version, sha256, content_fingerprint),
            )
            connection.execute(
                """UPDATE document_versions SET status = 'READY', parts_total = %s, error_stage = NULL,
                     error_type = NULL, error_message = NULL, error_permanent = false, updated_at = now()
                   WHERE document_id = %s AND version = %s""",
                (len(contents), document_id, version),
            )
            for table in ("chunks", "parents", "document_parts"):
                connection.execute(
                    f"DELETE FROM {table} WHERE document_id = %s AND version = %s",  # noqa: S608
                    (document_id, version),
                )
            for content in contents:
                part = content.part
                connection.execute(
                    """INSERT INTO document_parts (document_id, version, part, chunk_start, chunk_end, done_at)
                       VALUES (%s, %s, %s, %s, %s, clock_timestamp())""",
                    (document_id, version, part.index, part.start, part.end),
                )
                # The rows of the active index are compared with these chunks; another index writes its own anew.
                connection.execute(
                    """INSERT INTO index_parts (document_id, version, part, index_id)
                       SELECT %s, %s, %s, id FROM indexes WHERE state = 'active'""",
                    (document_id, version, part.index),
                )
                write_parts(connection, [content])
            return True

    def drop_content(self, document_id: str, version: int) -> bool:
        """Delete chunks and parents of a version that is over or not there. False when it is neither."""
        with self._database.transaction() as connection:
            facts = lock_document(connection, document_id)
            if facts is None or not _is_over(connection, facts, version):
                return False
            for table in ("chunks", "parents"):
                connection.execute(
                    f"DELETE FROM {table} WHERE document_id = %s AND version = %s",  # noqa: S608
                    (document_id, version),
                )
            return True

    def drop_asset(self, document_id: str, version: int, asset_id: str) -> None:
        """Forget a stored image that cannot be had again: nothing may point at what is not there."""
        with self._database.connection() as connection:
            connection.execute(
                "DELETE FROM document_assets WHERE document_id = %s AND version = %s AND id = %s",
                (document_id, version, asset_id),
            )

    def release_claim(self, document_id: str, version: int, token: int) -> bool:
        """Give a lapsed claim back. False when somebody took the version up meanwhile."""
        with self._database.connection() as connection:
            return bool(
                connection.execute(
                    """UPDATE document_versions SET claim_owner = NULL, claim_until = NULL, updated_at = now()
                       WHERE document_id = %s AND version = %s AND claim_token = %s
                         AND claim_until <= clock_timestamp()""",
                    (document_id, version, token),
                ).rowcount
            )

    def reset_version(self, document_id: str, version: int, token: int) -> bool:
        """Back to before its snapshot, for an unfinished version whose snapshot is gone, by who claimed it: the next
        claim prepares it again. False when somebody took it up meanwhile."""
        with self._database.transaction() as connection:
            lock_document(connection, document_id)
            updated = connection.execute(
                """UPDATE document_versions SET status = 'PENDING', parts_total = NULL, claim_owner = NULL,
                     claim_until = NULL, updated_at = now()
                   WHERE document_id = %s AND version = %s AND claim_token = %s AND status <> 'READY'""",
                (document_id, version, token),
            )
            if not updated.rowcount:
                return False
            for table in ("chunks", "parents", "document_parts"):
                connection.execute(
                    f"DELETE FROM {table} WHERE document_id = %s AND version = %s",  # noqa: S608
                    (document_id, version),
                )
            return True

    def note_loss(self, document_id: str, version: int, kind: str, subject: str, message: str) -> None:
        """Remember what cannot be had again. Again is harmless, also when the version went meanwhile."""
        with self._database.connection() as connection:
            connection.execute(
                """INSERT INTO losses (document_id, version, kind, subject, message)
                   SELECT document_id, version, %s, %s, %s FROM document_versions
                   WHERE document_id = %s AND version = %s ON CONFLICT DO NOTHING""",
                (kind, subject, message[:_MAX_MESSAGE], document_id, version),
            )

    def make_due(self, entry_id: int | None = None) -> None:
        """An outbox entry is due now, whatever it waited for; None: each that failed before."""
        with self._database.connection() as connection:
            connection.execute(
                """UPDATE outbox SET available_at = clock_timestamp()
                   WHERE id = %(id)s::bigint OR (%(id)s::bigint IS NULL AND error_message IS NOT NULL)""",
                {"id": entry_id},
            )


def _is_over(connection: Connection, facts: Mapping[str, Any], version: int) -> bool:
    if facts["deleted_at"] is None and facts["published_version"] == version:
        return False
    if facts["deleted_at"] is not None or (facts["published_version"] or 0) > version:
        return True
    found = connection.execute(
        "SELECT error_permanent FROM document_versions WHERE document_id = %s AND version = %s", (facts["id"], version)
    ).fetchone()
    return found is None or bool(found["error_permanent"])
