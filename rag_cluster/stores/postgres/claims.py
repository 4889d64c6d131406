"""Who works on which version: the part of `PostgresLedger` about claims."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from rag_cluster.domain import ids
from rag_cluster.domain.documents import Claim, DocumentStatus, OutboxKind, SourceFile
from rag_cluster.errors import ClaimLostError, NotFoundError
from rag_cluster.stores.postgres.access import SAME_ACCESS, access_values, intern_access
from rag_cluster.stores.postgres.adapters import as_uuid, known_uuid
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.documents import apply_attributes, delete_facts, lock_document
from rag_cluster.stores.postgres.knowledge_bases import lock_knowledge_base
from rag_cluster.stores.postgres.outbox import owe_versions
from rag_cluster.stores.postgres.parts import fail_version

RESUMABLE = "(n.status <> 'READY' AND NOT n.error_permanent)"
"""Of a version n: its work may go on under the same number. A failure that was not permanent left its rows alone."""


class LedgerClaims:
    """`Ledger`'s methods on claims."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(
        self,
        knowledge_base_id: str,
        source_id: str,
        file: SourceFile,
        content_fingerprint: str,
        *,
        owner: str,
        lease_seconds: float,
    ) -> Claim | None:
        """Register the document and claim its version to make: a new number, or an unfinished one whose lease ended
        (resumed=True when its snapshot is committed). None while somebody else holds a live claim, and when since the
        owner's run began the same content failed for good (a task that is repeated after its worker died, or a run
        beside, must not fail it a second time) or the document was deleted: what the run listed before is no reason to
        bring it back.

        The file's access and metadata take effect at once, for a version published earlier too.
        """
        knowledge_base = as_uuid(knowledge_base_id, "knowledge base")
        document_id = ids.bulk_document_id(knowledge_base, file.uri)
        new = self._claim_new(knowledge_base, source_id, document_id, file, content_fingerprint, owner, lease_seconds)
        if new is not None:
            return new
        with self._database.transaction() as connection:
            if not lock_knowledge_base(connection, knowledge_base, "KEY SHARE"):
                raise NotFoundError(f"no knowledge base {knowledge_base_id!r}")
            facts = _register(connection, knowledge_base, as_uuid(source_id, "source"), document_id, file)
            newest = newest_version(connection, document_id)
            if newest is not None and newest["live"] and newest["claim_owner"] != owner:
                return None
            deleted = facts["deleted_at"] is not None
            if deleted:
                if _began_before(connection, owner, facts["deleted_at"]):
                    return None
                _revive(connection, facts, file, as_uuid(source_id, "source"))
                newest = None
            apply_attributes(
                connection,
                facts,
                None if file.keeps_access and not deleted else file.access,
                None if file.keeps_metadata and not deleted else file.metadata,
            )
            same_file = newest is not None and (newest["size"], newest["etag"]) == (file.size, file.etag)
            wanted = newest is not None and same_file and is_wanted(newest, content_fingerprint)
            failed = newest is not None and newest["status"] == DocumentStatus.FAILED and newest["error_permanent"]
            if newest is not None and wanted and failed and _began_before(connection, owner, newest["updated_at"]):
                return None
            if newest is not None and newest["resumable"]:
                if wanted:
                    return take_claim(connection, newest, owner, lease_seconds, referenced=file.referenced)
                fail_version(
                    connection,
                    newest,
                    knowledge_base,
                    stage="claim",
                    error_type="superseded",
                    message="the file changed before this version was finished",
                    permanent=True,
                )
            made = new_version(connection, document_id, file, content_fingerprint)
            return take_claim(connection, made, owner, lease_seconds)

    def _claim_new(
        self,
        knowledge_base: str,
        source_id: str,
        document_id: str,
        file: SourceFile,
        content_fingerprint: str,
        owner: str,
        lease_seconds: float,
    ) -> Claim | None:
        """Most documents of a first run are new and have access attributes that others have: one statement. None when
        this is not such a one."""
        values = {
            "document": document_id,
            "knowledge_base": knowledge_base,
            "source": as_uuid(source_id, "source"),
            "uri": file.uri,
            "filename": file.filename,
            "metadata": Jsonb(dict(file.metadata)),
            "size": file.size,
            "etag": file.etag,
            "fingerprint": content_fingerprint,
            "owner": owner,
            "lease": lease_seconds,
            "referenced": file.referenced,
        }
        with self._database.connection() as connection:
            row = connection.execute(_CLAIM_NEW, values | access_values(knowledge_base, file.access)).fetchone()
        if row is None:
            return None
        return Claim(
            document_id,
            1,
            owner,
            row["claim_token"],
            content_fingerprint=content_fingerprint,
            referenced=file.referenced,
        )

    def claim_version(self, document_id: str, version: int, *, owner: str, lease_seconds: float) -> Claim | None:
        """Claim one known unfinished version (uploads, retries). None under another's live claim.

        NotFoundError when there is no such version of a live document; ClaimLostError when it is finished.
        """
        key = as_uuid(document_id, "document")
        with self._database.transaction() as connection:
            facts = lock_document(connection, key)
            found = _version(connection, key, version)
            if facts is None or facts["deleted_at"] is not None or found is None:
                raise NotFoundError(f"no version {version} of document {document_id!r}")
            if not found["resumable"]:
                raise ClaimLostError(f"version {version} of document {document_id} is {found['status']} already")
            if found["live"] and found["claim_owner"] != owner:
                return None
            return take_claim(connection, found, owner, lease_seconds)

    def extend(self, owner: str, lease_seconds: float) -> int:
        """Heartbeat: extend every claim of an owner, also one whose lease just ended if nobody took it; how many.
        A bulk run that is the owner has given a sign of life, with or without claims."""
        with self._database.connection() as connection:
            connection.execute(
                "UPDATE ingestion_runs SET updated_at = now() WHERE id = %s AND status = 'RUNNING'",
                (known_uuid(owner),),
            )
            # In the order in which batches of parts lock them: two that meet do not wait for each other in a circle.
            return connection.execute(
                """WITH mine AS (
                     SELECT document_id, version FROM document_versions WHERE claim_owner = %s
                     ORDER BY document_id, version FOR NO KEY UPDATE)
                   UPDATE document_versions v SET claim_until = clock_timestamp() + make_interval(secs => %s)
                   FROM mine WHERE v.document_id = mine.document_id AND v.version = mine.version""",
                (owner, lease_seconds),
            ).rowcount

    def give_back(self, claim: Claim) -> None:
        """End one claim whose version waits for another stage: PENDING. A claim that is lost already stays lost."""
        with self._database.connection() as connection:
            connection.execute(
                """UPDATE document_versions SET claim_owner = NULL, claim_until = NULL, status = 'PENDING',
                     updated_at = now()
                   WHERE document_id = %s AND version = %s AND claim_owner = %s AND claim_token = %s
                     AND parts_total IS NULL AND status NOT IN ('READY', 'FAILED')""",
                (claim.document_id, claim.version, claim.owner, claim.token),
            )

    def release(self, owner: str) -> None:
        """Give all of an owner's claims back, for a resumable stop."""
        with self._database.connection() as connection:
            connection.execute(
                "UPDATE document_versions SET claim_owner = NULL, claim_until = NULL WHERE claim_owner = %s", (owner,)
            )


_CLAIM_NEW = f"""
    WITH base AS (SELECT id FROM knowledge_bases WHERE id = %(knowledge_base)s AND deleted_at IS NULL FOR KEY SHARE),
    made AS (
      INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, access_key, metadata, next_version)
      SELECT %(document)s, base.id, s.id, %(uri)s, %(filename)s, a.id, %(metadata)s, 2
      FROM base JOIN sources s ON s.knowledge_base_id = base.id JOIN access_keys a ON {SAME_ACCESS}
      WHERE s.id = %(source)s
      ON CONFLICT (id) DO NOTHING RETURNING id)
    INSERT INTO document_versions
      (document_id, version, size, etag, content_fingerprint, referenced,
        claim_owner, claim_until, claim_token, attempts)
    SELECT id, 1, %(size)s, %(etag)s, %(fingerprint)s, %(referenced)s, %(owner)s,
      clock_timestamp() + make_interval(secs => %(lease)s), nextval('claim_tokens'), 1
    FROM made RETURNING claim_token"""  # noqa: S608

_VERSION = f"""
    SELECT n.*, coalesce(n.claim_until > clock_timestamp(), false) AS live, {RESUMABLE} AS resumable
    FROM document_versions n WHERE n.document_id = %(document)s"""  # noqa: S608


def _version(connection: Connection, document_id: str, version: int) -> dict[str, Any] | None:
    return connection.execute(
        _VERSION + " AND n.version = %(version)s FOR NO KEY UPDATE", {"document": document_id, "version": version}
    ).fetchone()


def newest_version(connection: Connection, document_id: str) -> dict[str, Any] | None:
    """The newest version of a locked document with `live` and `resumable`, locked too."""
    return connection.execute(
        _VERSION + " ORDER BY n.version DESC LIMIT 1 FOR NO KEY UPDATE", {"document": document_id}
    ).fetchone()


def _began_before(connection: Connection, owner: str, moment: datetime) -> bool:
    """Whether the owner is a run that had begun by then. Uploads and corrections are no runs."""
    since = "SELECT 1 FROM ingestion_runs WHERE id = %s AND started_at <= %s"
    return connection.execute(since, (known_uuid(owner), moment)).fetchone() is not None


def take_claim(
    connection: Connection,
    version: Mapping[str, Any],
    owner: str,
    lease_seconds: float,
    *,
    referenced: bool | None = None,
) -> Claim:
    """Claim a locked, resumable version that nobody else holds.

    A claim that the owner holds already comes back as it is, extended: the retry of a lost actor. Otherwise a new
    fencing token shuts out whoever held it before. referenced: what becomes of its original, as long as that is open;
    None leaves it.
    """
    values = {
        "document": version["document_id"],
        "version": version["version"],
        "owner": owner,
        "lease": lease_seconds,
        "held": bool(version["live"]) and version["claim_owner"] == owner,
        "referenced": referenced,
    }
    row = connection.execute(
        """UPDATE document_versions SET claim_owner = %(owner)s,
             claim_until = clock_timestamp() + make_interval(secs => %(lease)s),
             claim_token = CASE WHEN %(held)s THEN claim_token ELSE nextval('claim_tokens') END,
             attempts = attempts + CASE WHEN %(held)s THEN 0 ELSE 1 END,
             status = CASE WHEN status <> 'FAILED' THEN status
                           WHEN parts_total IS NULL THEN 'PENDING' ELSE 'EMBEDDING' END,
             referenced = CASE WHEN parts_total IS NULL THEN coalesce(%(referenced)s, referenced) ELSE referenced END,
             error_stage = NULL, error_type = NULL, error_message = NULL, updated_at = now()
           WHERE document_id = %(document)s AND version = %(version)s
           RETURNING claim_token, parts_total, content_fingerprint, referenced""",
        values,
    ).fetchone()
    assert row is not None, "the version is locked by this transaction"
    return Claim(
        document_id=version["document_id"],
        version=version["version"],
        owner=owner,
        token=row["claim_token"],
        resumed=row["parts_total"] is not None,
        content_fingerprint=row["content_fingerprint"],
        referenced=row["referenced"],
    )


def is_wanted(version: Mapping[str, Any], content_fingerprint: str) -> bool:
    """Whether going on with an unfinished version of the same file leads to the wanted content: it is that, or its
    snapshot holds the text until the rest is recognised."""
    stored = version["content_fingerprint"]
    text_first = bool(stored) and stored == ids.awaiting_recognition(content_fingerprint)
    return ids.serves(stored, content_fingerprint) or (text_first and version["parts_total"] is not None)


def _register(
    connection: Connection, knowledge_base_id: str, source_id: str, document_id: str, file: SourceFile
) -> dict[str, Any]:
    """The document's locked row, made when it is new."""
    facts = lock_document(connection, document_id)
    if facts is None:
        inserted = connection.execute(
            """INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, access_key, metadata)
               SELECT %(id)s, %(knowledge_base)s, s.id, %(uri)s, %(filename)s, %(access_key)s, %(metadata)s
               FROM sources s WHERE s.id = %(source)s AND s.knowledge_base_id = %(knowledge_base)s
               ON CONFLICT (id) DO NOTHING""",
            {
                "id": document_id,
                "knowledge_base": knowledge_base_id,
                "source": source_id,
                "uri": file.uri,
                "filename": file.filename,
                "access_key": intern_access(connection, knowledge_base_id, file.access),
                "metadata": Jsonb(dict(file.metadata)),
            },
        )
        facts = lock_document(connection, document_id)
        if facts is None:
            assert not inserted.rowcount
            raise NotFoundError(f"no source {source_id!r} in knowledge base {knowledge_base_id}")
    return facts


def _revive(connection: Connection, facts: Mapping[str, Any], file: SourceFile, source_id: str) -> None:
    """Take a tombstone away, for an ingest after a delete: a new document of its source, except for its id. What the
    delete still owed concerns old versions only."""
    old = connection.execute(
        "DELETE FROM outbox WHERE document_id = %s AND kind = %s RETURNING id",
        (facts["id"], OutboxKind.PURGE_DOCUMENT),
    ).fetchall()
    if old or facts["purged_at"] is None:
        owe_versions(connection, facts["id"], facts["knowledge_base_id"], 1, facts["next_version"] - 1)
    delete_facts(connection, facts["id"])
    revived = connection.execute(
        """UPDATE documents d SET deleted_at = NULL, purged_at = NULL, published_version = NULL, source_id = s.id,
             uri = %s, filename = %s, created_at = now(), updated_at = now()
           FROM sources s WHERE d.id = %s AND s.id = %s AND s.knowledge_base_id = d.knowledge_base_id""",
        (file.uri, file.filename, facts["id"], source_id),
    )
    if not revived.rowcount:
        raise NotFoundError(f"no source {source_id!r} in knowledge base {facts['knowledge_base_id']}")


def new_version(connection: Connection, document_id: str, file: SourceFile, content_fingerprint: str) -> dict[str, Any]:
    """A new version, PENDING and unclaimed, of a locked document."""
    row = connection.execute(
        """WITH numbered AS (
             UPDATE documents SET next_version = next_version + 1, filename = %(filename)s, updated_at = now()
             WHERE id = %(document)s RETURNING id, next_version - 1 AS version)
           INSERT INTO document_versions (document_id, version, size, etag, content_fingerprint, referenced)
           SELECT id, version, %(size)s, %(etag)s, %(fingerprint)s, %(referenced)s FROM numbered
           RETURNING document_id, version, claim_owner, false AS live""",
        {
            "document": document_id,
            "filename": file.filename,
            "size": file.size,
            "etag": file.etag,
            "fingerprint": content_fingerprint,
            "referenced": file.referenced,
        },
    ).fetchone()
    assert row is not None, "the document is locked by this transaction"
    return row
