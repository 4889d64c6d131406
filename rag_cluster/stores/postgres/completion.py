"""From pending parts to published versions, many documents at a time: the part of `PostgresLedger` that indexing uses.

A batch of parts is a handful of statements and one commit, however many documents it holds. Rows are locked in the
order of document ids, document before version, so that two batches never wait for each other in a circle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rag_cluster.domain.chunks import Part, PartContent
from rag_cluster.domain.documents import Claim, DocumentStatus, OutboxKind, PartOutcome
from rag_cluster.errors import IndexMismatchError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.content import write_parts
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.outbox import owe, owe_versions
from rag_cluster.stores.postgres.parts import VERSION_ROWS, WITHOUT_WAITING, holds, lost_claim

Version = tuple[str, int]
"""(document id, version)"""

_WANTED = "unnest(%(documents)s::uuid[], %(versions)s::int[]) AS w (document_id, version)"

# A part is done when the index that queries use holds it: one that was embedded for an index that was replaced
# meanwhile is not. Before there is any index, what was written counts.
_HELD = """LEFT JOIN indexes i ON i.state = 'active'
    LEFT JOIN index_parts x ON x.document_id = p.document_id AND x.version = p.version AND x.part = p.part
      AND x.index_id = i.id"""
_PENDING = "(p.done_at IS NULL OR (i.id IS NOT NULL AND x.part IS NULL))"


class LedgerCompletion:
    """`Ledger`'s methods on parts that are to be indexed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def pending_parts(self, document_id: str, version: int) -> list[Part]:
        """Parts that the active index lacks, in order."""
        with self._database.connection() as connection:
            found = connection.execute(
                f"""SELECT p.* FROM document_parts p {_HELD}
                   WHERE p.document_id = %s AND p.version = %s AND {_PENDING} ORDER BY p.part""",  # noqa: S608
                (as_uuid(document_id, "document"), version),
            ).fetchall()
        return [rows.part(row) for row in found]

    def pending_by_version(self, versions: Sequence[Version]) -> dict[Version, set[int]]:
        """(document id, version) -> numbers of its parts that the active index lacks, for each of these versions."""
        with self._database.connection() as connection:
            found = connection.execute(
                f"""SELECT p.document_id, p.version, p.part
                    FROM {_WANTED} JOIN document_parts p USING (document_id, version) {_HELD} WHERE {_PENDING}""",  # noqa: S608
                _values(versions),
            ).fetchall()
        pending: dict[Version, set[int]] = {version: set() for version in versions}
        for row in found:
            pending[row["document_id"], row["version"]].add(row["part"])
        return pending

    def begin_index(self, claims: Sequence[Claim]) -> dict[str, tuple[str, int, Mapping[str, Any]]]:
        """INDEXING for each claim that is still held; document id -> (source_id, access_key, metadata) of these."""
        held = {claim.document_id: claim for claim in claims}
        values = {
            "documents": list(held),
            "versions": [claim.version for claim in held.values()],
            "tokens": [claim.token for claim in held.values()],
            "owners": [claim.owner for claim in held.values()],
        }
        with self._database.connection() as connection:
            found = connection.execute(
                f"""WITH held AS (
                     SELECT v.document_id, v.version, d.source_id, d.access_key, d.metadata
                     FROM unnest(%(documents)s::uuid[], %(versions)s::int[], %(tokens)s::bigint[], %(owners)s::text[])
                       AS w (document_id, version, token, owner)
                     JOIN document_versions v USING (document_id, version)
                     JOIN documents d ON d.id = v.document_id
                     WHERE d.deleted_at IS NULL AND v.claim_token = w.token AND v.claim_owner = w.owner
                     ORDER BY v.document_id FOR NO KEY UPDATE OF v)
                   UPDATE document_versions v SET status = 'INDEXING', updated_at = now()
                   FROM held, {WITHOUT_WAITING} WHERE v.document_id = held.document_id AND v.version = held.version
                   RETURNING held.document_id, held.source_id, held.access_key, held.metadata""",  # noqa: S608
                values,
            ).fetchall()
        return {row["document_id"]: (row["source_id"], row["access_key"], row["metadata"]) for row in found}

    def complete_part(self, claim: Claim, content: PartContent, *, index_id: int | None = None) -> bool:
        """`complete_parts` of one: whether it published its version. ClaimLostError."""
        (outcome,) = self.complete_parts([(claim, content)], index_id=index_id)
        if outcome is PartOutcome.LOST:
            raise lost_claim(claim)
        return outcome is PartOutcome.PUBLISHED

    def complete_parts(
        self, parts: Sequence[tuple[Claim, PartContent]], *, index_id: int | None = None
    ) -> list[PartOutcome]:
        """In one transaction, documents and versions locked: tokens and tombstones checked, chunks and parents
        written, parts done. Whoever completes a version's last part publishes it: published_version, READY, old rows
        to the outbox. What is lost does not keep the others.

        index_id: the index that the parts were written to, None where there is only one. IndexMismatchError when it is
        not the active one any more: nothing is published that queries would not find.
        Idempotent: a part that was done before is left alone, and whoever published hears PUBLISHED again.
        """
        versions = [(claim.document_id, claim.version) for claim, _ in parts]
        with self._database.transaction() as connection:
            index = _lock_index(connection, index_id)  # before any document: `IndexCatalog.switch_index`
            locked = _lock(connection, dict.fromkeys(versions))
            outcomes = [_settled(connection, locked, *part) for part in parts]
            live = [content for (_, content), outcome in zip(parts, outcomes, strict=True) if outcome is None]
            marked = _mark_done(connection, index, [content.part for content in live])
            write_parts(connection, [content for content in live if _key(content.part) in marked])
            touched = Counter((document_id, version) for document_id, version, _ in {_key(c.part) for c in live})
            whole = [version for version in touched if locked[version]["parts_total"] is not None]
            # Most documents are in one batch with all their parts: of those nothing need be asked.
            unfinished = _with_parts_left(connection, [v for v in whole if touched[v] < locked[v]["parts_total"]])
            published = [version for version in whole if version not in unfinished]
            _publish(connection, [locked[version] for version in published])
        ends = {version: index for index, version in enumerate(versions) if version in published}
        return [
            outcome or (PartOutcome.PUBLISHED if ends.get(version) == index else PartOutcome.WRITTEN)
            for index, (version, outcome) in enumerate(zip(versions, outcomes, strict=True))
        ]


def _values(versions: Iterable[Version]) -> dict[str, Any]:
    pairs = list(versions)
    return {"documents": [document for document, _ in pairs], "versions": [version for _, version in pairs]}


def _key(part: Part) -> tuple[str, int, int]:
    return part.document_id, part.version, part.index


def _lock_index(connection: Connection, index_id: int | None) -> int | None:
    row = connection.execute(
        """SELECT id FROM indexes WHERE state = 'active' AND (%(id)s::int IS NULL OR id = %(id)s::int) FOR SHARE""",
        {"id": index_id},
    ).fetchone()
    if row is not None:
        return int(row["id"])
    if index_id is None:
        return None
    raise IndexMismatchError(
        "the index that these parts were embedded for is not the active one any more: "
        "go on with the embedder that RAG_EMBEDDER names since the switch"
    )


def _lock(connection: Connection, versions: Iterable[Version]) -> dict[Version, dict[str, Any]]:
    found = connection.execute(
        f"""SELECT v.*, d.knowledge_base_id, d.published_version, d.deleted_at, d.attributes_at
            FROM {_WANTED} JOIN documents d ON d.id = w.document_id
            JOIN document_versions v USING (document_id, version)
            ORDER BY d.id, v.version FOR NO KEY UPDATE OF d, v""",  # noqa: S608
        _values(versions),
    ).fetchall()
    return {(row["document_id"], row["version"]): row for row in found}


def _settled(
    connection: Connection, locked: Mapping[Version, Mapping[str, Any]], claim: Claim, content: PartContent
) -> PartOutcome | None:
    """What can be said of a part without writing it; None: it is to be written."""
    version = locked.get((claim.document_id, claim.version))
    if version is None or version["deleted_at"] is not None:
        return PartOutcome.LOST
    if version["status"] == DocumentStatus.READY and version["claim_token"] == claim.token:
        mine = _published_by(connection, claim, content.part)
        return PartOutcome.PUBLISHED if mine else PartOutcome.WRITTEN
    return None if holds(version, claim) else PartOutcome.LOST


def _published_by(connection: Connection, claim: Claim, part: Part) -> bool:
    row = connection.execute(
        """SELECT part FROM document_parts WHERE document_id = %s AND version = %s
           ORDER BY done_at DESC, part DESC LIMIT 1""",
        (claim.document_id, claim.version),
    ).fetchone()
    return row is not None and row["part"] == part.index


def _mark_done(connection: Connection, index: int | None, parts: Sequence[Part]) -> set[tuple[str, int, int]]:
    """Which of the parts were not done before. In their order, so that the last one has the last time."""
    if not parts:
        return set()
    values = _values((part.document_id, part.version) for part in parts)
    values |= {"parts": [part.index for part in parts], "index": index}
    found = connection.execute(_DONE if index is None else _DONE_IN_INDEX, values).fetchall()
    return {(row["document_id"], row["version"], row["part"]) for row in found}


_PARTS = """unnest(%(documents)s::uuid[], %(versions)s::int[], %(parts)s::int[]) AS w (document_id, version, part)"""
_DONE = f"""
    UPDATE document_parts p SET done_at = clock_timestamp() FROM {_PARTS}
    WHERE p.document_id = w.document_id AND p.version = w.version AND p.part = w.part AND p.done_at IS NULL
    RETURNING p.document_id, p.version, p.part"""  # noqa: S608
_DONE_IN_INDEX = f"""
    WITH held AS (
      INSERT INTO index_parts (document_id, version, part, index_id)
      SELECT w.document_id, w.version, w.part, %(index)s FROM {_PARTS}
      JOIN document_parts p USING (document_id, version, part)
      ON CONFLICT DO NOTHING RETURNING document_id, version, part)
    UPDATE document_parts p SET done_at = clock_timestamp()
    FROM {_PARTS} JOIN held USING (document_id, version, part)
    WHERE p.document_id = w.document_id AND p.version = w.version AND p.part = w.part
    RETURNING p.document_id, p.version, p.part"""  # noqa: S608


def _with_parts_left(connection: Connection, versions: Sequence[Version]) -> set[Version]:
    if not versions:
        return set()
    found = connection.execute(
        f"""SELECT DISTINCT p.document_id, p.version
            FROM {_WANTED} JOIN document_parts p USING (document_id, version) {_HELD} WHERE {_PENDING}""",  # noqa: S608
        _values(versions),
    ).fetchall()
    return {(row["document_id"], row["version"]) for row in found}


def _publish(connection: Connection, locked: Sequence[Mapping[str, Any]]) -> None:
    """v becomes what queries see and everything older leaves: from PostgreSQL now, from elsewhere by the outbox."""
    if not locked:
        return
    values = _values((row["document_id"], row["version"]) for row in locked)
    # claim_token stays: it tells the retry of this very call from a stranger.
    connection.execute(
        f"""WITH published AS (
              UPDATE documents d SET published_version = w.version, updated_at = now()
              FROM {_WANTED} WHERE d.id = w.document_id)
            UPDATE document_versions v SET status = 'READY', claim_owner = NULL, claim_until = NULL, updated_at = now()
            FROM {_WANTED} WHERE v.document_id = w.document_id AND v.version = w.version""",  # noqa: S608
        values,
    )
    later = [row for row in locked if row["version"] > 1]
    if later:
        for table in VERSION_ROWS:
            connection.execute(
                f"DELETE FROM {table} t USING {_WANTED} WHERE t.document_id = w.document_id AND t.version < w.version",  # noqa: S608
                _values((row["document_id"], row["version"]) for row in later),
            )
    for row in later:
        # What is older than the last published version left when that one was published.
        first, last = row["published_version"] or 1, row["version"] - 1
        owe_versions(connection, row["document_id"], row["knowledge_base_id"], first, last)
    for row in locked:
        if row["attributes_at"] > row["created_at"]:  # rows may have been indexed with the facts of before
            owe(connection, OutboxKind.INDEX_ACCESS, row["document_id"], row["knowledge_base_id"], {})
