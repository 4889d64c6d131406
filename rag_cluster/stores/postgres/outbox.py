"""Effects owed to stores outside PostgreSQL, written inside the transactions that owe them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from rag_cluster.domain.documents import OutboxEntry, OutboxKind
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.database import Connection, Database

_MAX_MESSAGE = 4000


class PostgresOutbox:
    """The `Outbox` port. An entry that was claimed and neither done nor retried is due again when its lease ends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def now(self) -> datetime:
        """The server's clock, which says when entries are due."""
        with self._database.connection() as connection:
            row = connection.execute("SELECT clock_timestamp() AS now").fetchone()
        assert row is not None, "this statement returns a row"
        now: datetime = row["now"]
        return now

    def claim(
        self, limit: int, lease_seconds: float, *, due: datetime | None = None, document_id: str | None = None
    ) -> list[OutboxEntry]:
        """At most limit entries that are due now and were due at `due`, longest due first, that nobody else gets
        for lease_seconds."""
        values = {
            "due": due,
            "limit": limit,
            "lease": lease_seconds,
            "document": None if document_id is None else as_uuid(document_id, "document"),
        }
        with self._database.connection() as connection:
            # Materialised: as a sub-select of the UPDATE, a plan may run it once for each row, and each run skips what
            # the statement has claimed so far and takes others, beyond the limit.
            claimed = connection.execute(
                """WITH due AS MATERIALIZED (
                     SELECT id FROM outbox
                     WHERE available_at <= least(clock_timestamp(), %(due)s::timestamptz)
                       AND (%(document)s::uuid IS NULL OR document_id = %(document)s::uuid)
                     ORDER BY available_at, id LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
                   UPDATE outbox SET attempts = attempts + 1,
                     available_at = clock_timestamp() + make_interval(secs => %(lease)s)
                   FROM due WHERE outbox.id = due.id
                   RETURNING outbox.*""",
                values,
            ).fetchall()
        return sorted((rows.outbox_entry(row) for row in claimed), key=lambda entry: entry.id)

    def done(self, entry: OutboxEntry) -> None:
        """The effect took place. Safe to say twice."""
        with self._database.connection() as connection:
            connection.execute("DELETE FROM outbox WHERE id = %s", (entry.id,))

    def retry(self, entry: OutboxEntry, message: str, delay_seconds: float) -> None:
        """The effect failed; it is due again after delay_seconds."""
        with self._database.connection() as connection:
            connection.execute(
                """UPDATE outbox SET error_message = %s, available_at = clock_timestamp() + make_interval(secs => %s)
                   WHERE id = %s""",
                (message[:_MAX_MESSAGE], delay_seconds, entry.id),
            )

    def add(self, kind: OutboxKind, document_id: str, knowledge_base_id: str, payload: Mapping[str, Any]) -> None:
        """Owe an effect outside any other transaction."""
        with self._database.connection() as connection:
            owe(
                connection,
                kind,
                as_uuid(document_id, "document"),
                as_uuid(knowledge_base_id, "knowledge base"),
                payload,
            )

    def pending(self, document_id: str | None = None) -> int:
        """Entries that are not done, claimed and delayed ones included."""
        with self._database.connection() as connection:
            row = connection.execute(
                "SELECT count(*) AS entries FROM outbox WHERE %(id)s::uuid IS NULL OR document_id = %(id)s::uuid",
                {"id": None if document_id is None else as_uuid(document_id, "document")},
            ).fetchone()
        return int(row["entries"]) if row else 0


def owe(
    connection: Connection, kind: OutboxKind, document_id: str, knowledge_base_id: str, payload: Mapping[str, Any]
) -> None:
    """Put an effect into the outbox, inside the caller's transaction."""
    connection.execute(
        "INSERT INTO outbox (kind, document_id, knowledge_base_id, payload) VALUES (%s, %s, %s, %s)",
        (kind, document_id, knowledge_base_id, Jsonb(dict(payload))),
    )


def owe_versions(connection: Connection, document_id: str, knowledge_base_id: str, first: int, last: int) -> None:
    """Owe the removal of versions first..last of a document: index rows, snapshots, assets and originals."""
    if last < first:
        return
    owe(connection, OutboxKind.INDEX_DELETE, document_id, knowledge_base_id, {"max_version": last})
    connection.execute(
        """INSERT INTO outbox (kind, document_id, knowledge_base_id, payload)
           SELECT %s, %s, %s, jsonb_build_object('version', number) FROM generate_series(%s::int, %s::int) number""",
        (OutboxKind.PURGE_VERSION, document_id, knowledge_base_id, first, last),
    )
