"""Which collections there are and which embedder each belongs to: the part of `PostgresCatalog` about indexes."""

from __future__ import annotations

import re

from rag_cluster.domain.documents import IndexRecord
from rag_cluster.errors import IndexMismatchError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.database import Connection, Database


class IndexCatalog:
    """`Catalog`'s methods on vector indexes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ensure_index(self, embedder_fingerprint: str, dimension: int) -> IndexRecord:
        """The record for this embedder; the first one becomes active. IndexMismatchError on another dimension."""
        with self._database.connection() as connection:
            record = _find(connection, embedder_fingerprint)
        if record is None or record.state == "retired":
            with self._database.transaction() as connection:
                connection.execute("LOCK TABLE indexes IN SHARE ROW EXCLUSIVE MODE")  # one decides which is first
                record = _register(connection, embedder_fingerprint, dimension)
        if record.dimension != dimension:
            raise IndexMismatchError(
                f"index {record.collection} has dimension {record.dimension}, the embedder says {dimension}"
            )
        return record

    def indexes(self) -> list[IndexRecord]:
        """All that are not retired, the active one first."""
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT * FROM indexes WHERE state <> 'retired' ORDER BY state <> 'active', id"
            ).fetchall()
        return [rows.index_record(row) for row in found]


def _find(connection: Connection, embedder_fingerprint: str) -> IndexRecord | None:
    row = connection.execute(
        "SELECT * FROM indexes WHERE embedder_fingerprint = %s", (embedder_fingerprint,)
    ).fetchone()
    return None if row is None else rows.index_record(row)


def _register(connection: Connection, embedder_fingerprint: str, dimension: int) -> IndexRecord:
    row = connection.execute(
        """INSERT INTO indexes (collection, embedder_fingerprint, dimension, state)
           SELECT %s, %s, %s, CASE WHEN EXISTS (SELECT 1 FROM indexes WHERE state = 'active')
             THEN 'building' ELSE 'active' END
           ON CONFLICT (embedder_fingerprint) DO UPDATE SET
             state = CASE WHEN indexes.state = 'retired' THEN EXCLUDED.state ELSE indexes.state END
           RETURNING *""",
        ("chunks_" + re.sub(r"\W", "_", embedder_fingerprint, flags=re.ASCII), embedder_fingerprint, dimension),
    ).fetchone()
    assert row is not None, "an upsert returns its row"
    return rows.index_record(row)
