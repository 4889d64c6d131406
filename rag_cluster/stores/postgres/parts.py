"""From a claim to a committed snapshot, or to a failure: the part of `PostgresLedger` that preparing uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rag_cluster.domain.chunks import Part
from rag_cluster.domain.documents import Claim, DocumentStatus, OutboxKind, SourceFile
from rag_cluster.errors import ClaimLostError
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.documents import lock_document
from rag_cluster.stores.postgres.outbox import owe

_MAX_MESSAGE = 4000
VERSION_ROWS = ("chunks", "parents", "document_assets")
"""Tables of what a version holds. What a part wrote leaves them with its version."""

WITHOUT_WAITING = "set_config('synchronous_commit', 'off', true)"
"""In the FROM clause of a statement that is its own transaction: its commit does not wait for the disk.

For a status on the way only. Every commit that counts (snapshot, parts, READY, FAILED) waits, and takes what was
written before it along; a crash of the server that loses a mere status leaves an earlier one of the same unfinished
version under the same claim, from which the work goes on alike."""

# One statement is one transaction. The rows are locked first, document before version, as by everybody else: whoever
# waited for them sees the tombstone and the token of now, and the update changes the very rows that are locked.
_COMMIT_SNAPSHOT = """
    WITH held AS (
      SELECT v.document_id, v.version FROM documents d JOIN document_versions v ON v.document_id = d.id
      WHERE d.id = %(document)s AND v.version = %(version)s AND d.deleted_at IS NULL
        AND v.claim_token = %(token)s AND v.claim_owner = %(owner)s
        AND coalesce(d.published_version, 0) < v.version
      FOR NO KEY UPDATE OF d, v),
    changed AS (
      UPDATE document_versions v SET sha256 = %(sha256)s, size = %(size)s, parts_total = %(total)s,
        content_fingerprint = coalesce(%(fingerprint)s, content_fingerprint), status = 'EMBEDDING', updated_at = now()
      FROM held WHERE v.document_id = held.document_id AND v.version = held.version
      RETURNING v.document_id, v.version),
    added AS (
      INSERT INTO document_parts (document_id, version, part, chunk_start, chunk_end)
      SELECT c.document_id, c.version, p.*
      FROM changed c, unnest(%(parts)s::int[], %(starts)s::int[], %(ends)s::int[]) AS p
      ON CONFLICT DO NOTHING)
    SELECT 1 FROM changed"""


class LedgerParts:
    """`Ledger`'s methods under a claim. Each checks the fencing token and the tombstone in its transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def set_status(self, claim: Claim, status: DocumentStatus) -> None:
        """Before the action that it names. READY and FAILED have methods of their own. ClaimLostError."""
        if status.finished:
            raise ValueError(f"{status} is not set by set_status")
        with self._database.connection() as connection:
            updated = connection.execute(
                f"""UPDATE document_versions v SET status = %(status)s, updated_at = now()
                   FROM documents d, {WITHOUT_WAITING}
                   WHERE d.id = v.document_id AND d.deleted_at IS NULL AND v.document_id = %(document)s
                     AND v.version = %(version)s AND v.claim_token = %(token)s AND v.claim_owner = %(owner)s""",  # noqa: S608
                _claim_values(claim) | {"status": status},
            )
        if not updated.rowcount:
            raise lost_claim(claim)

    def settle_unchanged(self, claim: Claim, file: SourceFile, sha256: str) -> bool:
        """If the published version has the same bytes and a fingerprint that serves (`ids.serves`), remember the new
        etag and return True: the claimed version goes, and those that failed before it. Their jobs are now jobs of the
        published version, and what they wrote elsewhere is owed to the outbox."""
        with self._database.transaction() as connection:
            lock_document(connection, claim.document_id)
            settled = connection.execute(
                """UPDATE document_versions p SET etag = %(etag)s, size = %(size)s, updated_at = now()
                   FROM documents d JOIN document_versions c ON c.document_id = d.id
                   WHERE d.id = %(document)s AND d.deleted_at IS NULL
                     AND c.version = %(version)s AND c.claim_token = %(token)s AND c.claim_owner = %(owner)s
                     AND p.document_id = d.id AND p.version = d.published_version AND p.version < c.version
                     AND p.sha256 = %(sha256)s
                     AND p.content_fingerprint IN (c.content_fingerprint, split_part(c.content_fingerprint, '+', 1))
                   RETURNING d.knowledge_base_id, p.version""",
                _claim_values(claim) | {"etag": file.etag, "size": file.size, "sha256": sha256},
            ).fetchone()
            if settled is None:
                return False
            document, published = claim.document_id, settled["version"]
            connection.execute(
                "UPDATE ingestion_jobs SET version = %s WHERE document_id = %s AND version > %s",
                (published, document, published),
            )
            for table in (*VERSION_ROWS, "document_versions"):
                connection.execute(
                    f"DELETE FROM {table} WHERE document_id = %s AND version > %s",  # noqa: S608
                    (document, published),
                )
            for version in range(published + 1, claim.version):  # the claimed one has written nothing yet
                for kind in (OutboxKind.INDEX_DELETE, OutboxKind.PURGE_VERSION):
                    owe(connection, kind, document, settled["knowledge_base_id"], {"version": version})
        return True

    def duplicate_of(self, claim: Claim, sha256: str) -> str | None:
        """URI of another live document of the knowledge base with the same bytes, for the report: the oldest."""
        with self._database.connection() as connection:
            row = connection.execute(
                """SELECT d.uri FROM document_versions v JOIN documents d ON d.id = v.document_id
                   WHERE v.sha256 = %(sha256)s AND d.id <> %(document)s AND d.deleted_at IS NULL
                     AND d.knowledge_base_id = (SELECT knowledge_base_id FROM documents WHERE id = %(document)s)
                     AND (v.version = d.published_version OR v.status NOT IN ('READY', 'FAILED'))
                   ORDER BY d.created_at, d.id LIMIT 1""",
                {"sha256": sha256, "document": claim.document_id},
            ).fetchone()
        return None if row is None else str(row["uri"])

    def commit_snapshot(
        self, claim: Claim, *, sha256: str, size: int, parts: Sequence[Part], content_fingerprint: str | None = None
    ) -> None:
        """In one transaction: parts_total, part rows, status EMBEDDING, and the content fingerprint if parsing showed
        another one than was claimed (`ids.nothing_recognized`, `ids.awaiting_recognition`). ClaimLostError. Again is
        harmless."""
        if not parts:
            raise ValueError("a version without parts can never be published: fail it as empty_document")
        values = {"sha256": sha256, "size": size, "total": len(parts), "fingerprint": content_fingerprint}
        values |= {
            "parts": [part.index for part in parts],
            "starts": [part.start for part in parts],
            "ends": [part.end for part in parts],
        }
        with self._database.connection() as connection:
            changed = connection.execute(_COMMIT_SNAPSHOT, _claim_values(claim) | values).fetchone()
        if changed is None:
            raise lost_claim(claim)

    def fail(self, claim: Claim, *, stage: str, error_type: str, message: str, permanent: bool) -> None:
        """FAILED with its reason. Again is harmless. ClaimLostError.

        permanent: the version's rows leave PostgreSQL now and Milvus through the outbox. Otherwise they stay, unseen:
        the next claim goes on where this one stopped.
        """
        with self._database.transaction() as connection:
            locked = _lock(connection, claim)
            if locked["status"] == DocumentStatus.FAILED and locked["claim_token"] == claim.token:
                return
            if not holds(locked, claim):
                raise lost_claim(claim)
            fail_version(
                connection,
                locked,
                locked["knowledge_base_id"],
                stage=stage,
                error_type=error_type,
                message=message,
                permanent=permanent,
            )


def fail_version(
    connection: Connection,
    version: Mapping[str, Any],
    knowledge_base_id: str,
    *,
    stage: str,
    error_type: str,
    message: str,
    permanent: bool,
) -> None:
    """FAILED, for a version that the caller has locked. See `LedgerParts.fail`."""
    key = (version["document_id"], version["version"])
    connection.execute(
        """UPDATE document_versions SET status = 'FAILED', error_stage = %s, error_type = %s, error_message = %s,
             error_permanent = %s, claim_owner = NULL, claim_until = NULL, updated_at = now()
           WHERE document_id = %s AND version = %s""",
        (stage, error_type, message[:_MAX_MESSAGE], permanent, *key),
    )
    if permanent and version["parts_total"] is not None:
        for table in VERSION_ROWS:
            connection.execute(f"DELETE FROM {table} WHERE document_id = %s AND version = %s", key)  # noqa: S608
        owe(connection, OutboxKind.INDEX_DELETE, key[0], knowledge_base_id, {"version": key[1]})


def _lock(connection: Connection, claim: Claim) -> dict[str, Any]:
    locked = connection.execute(
        """SELECT v.*, d.knowledge_base_id, d.published_version, d.deleted_at, d.attributes_at
           FROM documents d JOIN document_versions v ON v.document_id = d.id
           WHERE d.id = %(document)s AND v.version = %(version)s FOR NO KEY UPDATE OF d, v""",
        _claim_values(claim),
    ).fetchone()
    if locked is None or locked["deleted_at"] is not None:
        raise lost_claim(claim)
    return locked


def holds(locked: Mapping[str, Any], claim: Claim) -> bool:
    """Whether a locked version, with its document's published_version, is still the claim's to write."""
    mine = (locked["claim_owner"], locked["claim_token"]) == (claim.owner, claim.token)
    return mine and (locked["published_version"] or 0) < claim.version


def _claim_values(claim: Claim) -> dict[str, Any]:
    return {
        "document": claim.document_id,
        "version": claim.version,
        "owner": claim.owner,
        "token": claim.token,
    }


def lost_claim(claim: Claim) -> ClaimLostError:
    """The error of a claim that is no longer held."""
    return ClaimLostError(
        f"the claim on version {claim.version} of document {claim.document_id} is lost, or the document was deleted"
    )
