"""Which collections there are, which embedder each belongs to and which parts it holds: the part of `PostgresCatalog`
about indexes.

Whoever publishes a version locks the active index's row (FOR SHARE) before any document; a switch locks it against
that. So a version is published either before a switch looks for what is missing, or into the new index.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from rag_cluster.domain.chunks import MissingPart, Part
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.errors import ConflictError, IndexMismatchError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.adapters import known_uuid
from rag_cluster.stores.postgres.database import Connection, Database

_HELD_PARTS = 64
_HELD_CHUNKS = 64
"""What a switch has filled in while publishing waits: some seconds' work on a CPU, less than a statement's limit."""

_NOT_THERE = """NOT EXISTS (
    SELECT 1 FROM index_parts x WHERE x.document_id = p.document_id AND x.version = p.version AND x.part = p.part
      AND x.index_id = %(index)s)"""
_MISSING = f"""
    SELECT d.knowledge_base_id, d.uri, p.* FROM documents d
    JOIN document_parts p ON p.document_id = d.id AND p.version = d.published_version
    WHERE d.deleted_at IS NULL AND (d.id, p.part) > (%(document)s::uuid, %(part)s::int) AND {_NOT_THERE}
    ORDER BY d.id, p.part LIMIT %(limit)s"""  # noqa: S608
_WANTED = "unnest(%(documents)s::uuid[], %(versions)s::int[], %(parts)s::int[]) AS w (document_id, version, part)"
_LEASE = """
    WITH taken AS (
      INSERT INTO index_leases AS l (index_id, owner, held_until)
      VALUES (%(index)s, %(owner)s, clock_timestamp() + make_interval(secs => %(seconds)s))
      ON CONFLICT (index_id) DO UPDATE SET owner = EXCLUDED.owner, held_until = EXCLUDED.held_until
        WHERE l.owner = EXCLUDED.owner OR l.held_until <= clock_timestamp()
      RETURNING owner)
    SELECT owner, 0.0::float8 AS seconds FROM taken
    UNION ALL
    SELECT owner, extract(epoch FROM held_until - clock_timestamp())::float8 FROM index_leases
    WHERE index_id = %(index)s AND NOT EXISTS (SELECT 1 FROM taken)"""
_FIRST = "00000000-0000-0000-0000-000000000000"


class IndexCatalog:
    """`Catalog`'s methods on vector indexes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def ensure_index(self, embedder_fingerprint: str, dimension: int) -> IndexRecord:
        """The record for this embedder; the first one becomes active, a later one is building. IndexMismatchError on
        another dimension; ConflictError while it is being dropped."""
        with self._database.connection() as connection:
            record = _find(connection, "embedder_fingerprint", embedder_fingerprint)
        if record is None:
            with self._database.transaction() as connection:
                connection.execute("LOCK TABLE indexes IN SHARE ROW EXCLUSIVE MODE")  # one decides which is first
                record = _register(connection, embedder_fingerprint, dimension)
        if record.dimension != dimension:
            raise IndexMismatchError(
                f"index {record.collection} has dimension {record.dimension}, the embedder says {dimension}"
            )
        if record.state == "dropping":
            raise ConflictError(
                f"index {record.collection} is being dropped: finish that with 'rag-cluster indexes drop'"
            )
        return record

    def indexes(self) -> list[IndexRecord]:
        """All, the active one first: deletes and access changes go to each as long as its collection may be there."""
        with self._database.connection() as connection:
            found = connection.execute("SELECT * FROM indexes ORDER BY state <> 'active', id").fetchall()
        return [rows.index_record(row) for row in found]

    def missing_parts(self, index_id: int, after: Part | None = None, limit: int = 1000) -> list[MissingPart]:
        """The next parts, by document and number, of what queries see that an index lacks; [] at the end."""
        with self._database.connection() as connection:
            return _missing(connection, index_id, after, limit)

    def count_missing(self, index_id: int) -> tuple[int, int]:
        """(parts, chunks) of what queries see that an index lacks."""
        with self._database.connection() as connection:
            row = connection.execute(
                f"""SELECT count(*) AS parts, coalesce(sum(p.chunk_end - p.chunk_start), 0) AS chunks
                    FROM documents d JOIN document_parts p ON p.document_id = d.id AND p.version = d.published_version
                    WHERE d.deleted_at IS NULL AND {_NOT_THERE}""",  # noqa: S608
                {"index": index_id},
            ).fetchone()
        return (int(row["parts"]), int(row["chunks"])) if row else (0, 0)

    def held_parts(self, index_id: int, parts: Sequence[Part]) -> set[Part]:
        """Which of these an index holds."""
        with self._database.connection() as connection:
            found = connection.execute(
                f"""SELECT w.* FROM {_WANTED} JOIN index_parts x USING (document_id, version, part)
                    WHERE x.index_id = %(index)s""",  # noqa: S608
                _values(index_id, parts),
            ).fetchall()
        held = {(row["document_id"], row["version"], row["part"]) for row in found}
        return {part for part in parts if (part.document_id, part.version, part.index) in held}

    @contextmanager
    def filling(
        self, index_id: int, parts: Sequence[Part]
    ) -> Iterator[Mapping[tuple[str, int], tuple[str, int, Mapping[str, Any]]]]:
        """(document id, version) -> (source_id, access_key, metadata), of these parts' versions that queries see.

        Inside, they can be neither replaced, deleted nor changed: what the caller writes is removed or updated by
        whoever does so later. At the end the index holds their parts; after an exception it does not.
        """
        versions = list(dict.fromkeys((part.document_id, part.version) for part in parts))
        with self._database.transaction() as connection:
            found = connection.execute(
                """SELECT d.id, w.version, d.source_id, d.access_key, d.metadata
                   FROM unnest(%s::uuid[], %s::int[]) AS w (document_id, version) JOIN documents d
                     ON d.id = w.document_id AND d.published_version = w.version
                   WHERE d.deleted_at IS NULL ORDER BY d.id FOR SHARE OF d""",
                ([document for document, _ in versions], [version for _, version in versions]),
            ).fetchall()
            facts = {
                (row["id"], row["version"]): (row["source_id"], row["access_key"], row["metadata"]) for row in found
            }
            yield facts
            owned = [part for part in parts if (part.document_id, part.version) in facts]
            connection.execute(
                f"""INSERT INTO index_parts (document_id, version, part, index_id)
                    SELECT w.document_id, w.version, w.part, %(index)s FROM {_WANTED}
                    JOIN document_parts p USING (document_id, version, part) ON CONFLICT DO NOTHING""",  # noqa: S608
                _values(index_id, owned),
            )

    def switch_index(self, index_id: int, fill: Callable[[Sequence[MissingPart]], object] | None = None) -> int:
        """Make an index the active one and retire the other, in one transaction that nothing can be published in.

        0: it is active. Otherwise nothing changed, and so many parts are missing, at least. fill: given the last few
        missing parts, it has the index hold them, while publishing waits. NotFoundError; ConflictError while it is
        being dropped.
        """
        with self._database.transaction() as connection:
            # Not against the key locks of `index_parts`, so that `fill` can note what it wrote.
            connection.execute("SELECT 1 FROM indexes ORDER BY id FOR NO KEY UPDATE")
            record = _require(connection, "id", index_id)
            if record.state == "dropping":
                raise ConflictError(f"index {record.collection} is being dropped")
            if record.state == "active":
                return 0
            left = _missing(connection, index_id, None, _HELD_PARTS + 1)
            if left and fill is not None and _few(left):
                fill(left)
                left = _missing(connection, index_id, None, _HELD_PARTS + 1)
            if left:
                return len(left)
            connection.execute("UPDATE indexes SET state = 'retired' WHERE state = 'active'")
            connection.execute("UPDATE indexes SET state = 'active' WHERE id = %s", (index_id,))
            return 0

    def lease_index(self, index_id: int, owner: str, lease_seconds: float) -> tuple[str, float] | None:
        """Be the one job that fills an index, or go on being it: None. Otherwise who is, and for how many seconds at
        least. NotFoundError."""
        values = {"index": index_id, "owner": owner, "seconds": lease_seconds}
        try:
            with self._database.connection() as connection:
                # Nothing comes back where another one took it while this statement waited: its row is seen by the next.
                while (row := connection.execute(_LEASE, values).fetchone()) is None:
                    continue
        except psycopg.errors.ForeignKeyViolation:
            raise NotFoundError(f"no index {index_id!r}") from None
        return None if row["owner"] == owner else (row["owner"], max(row["seconds"], 0.0))

    def release_index(self, index_id: int, owner: str) -> None:
        """Give a lease back; that of another owner stays."""
        with self._database.connection() as connection:
            connection.execute("DELETE FROM index_leases WHERE index_id = %s AND owner = %s", (index_id, owner))

    def begin_drop(self, collection: str) -> IndexRecord:
        """Nobody uses an index from now on. NotFoundError; ConflictError for the active one. Again is harmless."""
        with self._database.transaction() as connection:
            connection.execute("SELECT 1 FROM indexes ORDER BY id FOR NO KEY UPDATE")
            record = _require(connection, "collection", collection)
            if record.state == "active":
                raise ConflictError(f"index {collection} is active: switch to another one first")
            connection.execute("UPDATE indexes SET state = 'dropping' WHERE id = %s", (record.id,))
            return record

    def finish_drop(self, collection: str) -> None:
        """Forget an index whose collection is gone, with what it held."""
        with self._database.connection() as connection:
            connection.execute("DELETE FROM indexes WHERE collection = %s AND state = 'dropping'", (collection,))

    def forget_parts(self, collection: str, document_id: str | None = None, version: int | None = None) -> None:
        """An index lacks a version, or everything, from now on: the next re-embedding writes it again."""
        with self._database.connection() as connection:
            connection.execute(
                """DELETE FROM index_parts x USING indexes i
                   WHERE i.id = x.index_id AND i.collection = %(collection)s AND (%(document)s::uuid IS NULL
                     OR (x.document_id = %(document)s::uuid AND x.version = %(version)s::int))""",
                {
                    "collection": collection,
                    "document": None if document_id is None else known_uuid(document_id),
                    "version": version,
                },
            )


def _few(parts: Sequence[MissingPart]) -> bool:
    return len(parts) <= _HELD_PARTS and sum(item.part.end - item.part.start for item in parts) <= _HELD_CHUNKS


def _missing(connection: Connection, index_id: int, after: Part | None, limit: int) -> list[MissingPart]:
    document, part = (_FIRST, -1) if after is None else (after.document_id, after.index)
    found = connection.execute(
        _MISSING, {"index": index_id, "document": document, "part": part, "limit": limit}
    ).fetchall()
    return [MissingPart(row["knowledge_base_id"], row["uri"], rows.part(row)) for row in found]


def _values(index_id: int, parts: Sequence[Part]) -> dict[str, Any]:
    return {
        "index": index_id,
        "documents": [part.document_id for part in parts],
        "versions": [part.version for part in parts],
        "parts": [part.index for part in parts],
    }


def _find(connection: Connection, column: str, value: object) -> IndexRecord | None:
    row = connection.execute(f"SELECT * FROM indexes WHERE {column} = %s", (value,)).fetchone()  # noqa: S608
    return None if row is None else rows.index_record(row)


def _require(connection: Connection, column: str, value: object) -> IndexRecord:
    record = _find(connection, column, value)
    if record is None:
        raise NotFoundError(f"no index {value!r}")
    return record


def _register(connection: Connection, embedder_fingerprint: str, dimension: int) -> IndexRecord:
    row = connection.execute(
        """INSERT INTO indexes (collection, embedder_fingerprint, dimension, state)
           SELECT %s, %s, %s, CASE WHEN EXISTS (SELECT 1 FROM indexes WHERE state = 'active')
             THEN 'building' ELSE 'active' END
           ON CONFLICT (embedder_fingerprint) DO UPDATE SET state = indexes.state RETURNING *""",
        ("chunks_" + re.sub(r"\W", "_", embedder_fingerprint, flags=re.ASCII), embedder_fingerprint, dimension),
    ).fetchone()
    assert row is not None, "an upsert returns its row"
    return rows.index_record(row)
