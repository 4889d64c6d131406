"""Knowledge bases and their sources: the part of `PostgresCatalog` about containers."""

from __future__ import annotations

from uuid import uuid4

import psycopg

from rag_cluster.domain import ids
from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import KnowledgeBase, Source, SourceKind
from rag_cluster.errors import ConflictError, DocumentBusyError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.access import GRANTED, principal_values
from rag_cluster.stores.postgres.adapters import as_uuid, known_uuid
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.documents import tombstone_documents
from rag_cluster.stores.postgres.paging import page, page_values

BY_ID_OR_NAME = """
SELECT * FROM knowledge_bases WHERE deleted_at IS NULL AND (id = %(id)s::uuid OR name = %(name)s::text)
ORDER BY name = %(name)s::text LIMIT 1"""
"""Of those that are there; an id wins over a name that looks like one."""


class KnowledgeBaseCatalog:
    """`Catalog`'s methods on knowledge bases and sources."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create_knowledge_base(
        self, name: str, description: str = "", default_acl: tuple[str, ...] | None = None
    ) -> KnowledgeBase:
        """ConflictError when the name is taken."""
        insert = """
            INSERT INTO knowledge_bases (id, name, description, default_acl)
            VALUES (%(id)s, %(name)s, %(description)s, %(acl)s) ON CONFLICT DO NOTHING RETURNING *"""
        values = {"name": name, "description": description, "acl": _acl(default_acl)}
        with self._database.transaction() as connection:
            # The id that follows from the name is taken by a renamed or deleted one: a new life gets a new id.
            for new_id in (ids.knowledge_base_id(name), str(uuid4())):
                row = connection.execute(insert, values | {"id": new_id}).fetchone()
                if row is not None:
                    return rows.knowledge_base(row)
        raise _name_taken(name)

    def knowledge_base(self, id_or_name: str) -> KnowledgeBase:
        """NotFoundError."""
        with self._database.connection() as connection:
            values = {"id": known_uuid(id_or_name), "name": id_or_name}
            row = connection.execute(BY_ID_OR_NAME, values).fetchone()
        if row is None:
            raise _no_knowledge_base(id_or_name)
        return rows.knowledge_base(row)

    def list_knowledge_bases(
        self, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[KnowledgeBase], str | None]:
        """Those granted to the principal, oldest first."""
        values = page_values(cursor, limit) | principal_values(principal)
        with self._database.connection() as connection:
            found = connection.execute(
                f"""SELECT b.* FROM knowledge_bases b
                    WHERE {GRANTED} AND (%(after_id)s::uuid IS NULL
                        OR (b.created_at, b.id) > (%(after_time)s::timestamptz, %(after_id)s::uuid))
                    ORDER BY b.created_at, b.id LIMIT %(fetch)s""",  # noqa: S608
                values,
            ).fetchall()
        return page(found, limit, rows.knowledge_base)

    def update_knowledge_base(
        self,
        knowledge_base_id: str,
        *,
        name: str | None = None,
        description: str | None = None,
        default_acl: tuple[str, ...] | None = None,
        close: bool = False,
    ) -> KnowledgeBase:
        """None leaves a field alone; close=True sets default_acl to None. Takes effect for the next query."""
        values = {
            "id": as_uuid(knowledge_base_id, "knowledge base"),
            "name": name,
            "description": description,
            "acl": _acl(default_acl),
            "close": close,
        }
        with self._database.connection() as connection:
            try:
                row = connection.execute(
                    """UPDATE knowledge_bases SET name = coalesce(%(name)s, name),
                         description = coalesce(%(description)s, description),
                         default_acl = CASE WHEN %(close)s THEN NULL ELSE coalesce(%(acl)s, default_acl) END,
                         updated_at = now()
                       WHERE id = %(id)s AND deleted_at IS NULL RETURNING *""",
                    values,
                ).fetchone()
            except psycopg.errors.UniqueViolation:
                raise _name_taken(name or "") from None
        if row is None:
            raise _no_knowledge_base(knowledge_base_id)
        return rows.knowledge_base(row)

    def delete_knowledge_base(self, knowledge_base_id: str) -> list[str]:
        """Tombstone every document and the knowledge base, in one transaction; the documents' ids.

        Agents and chat sessions go at once. DocumentBusyError under a live claim: nothing is changed then.
        """
        key = as_uuid(knowledge_base_id, "knowledge base")
        with self._database.transaction() as connection:
            # FOR UPDATE waits for, and then keeps out, whoever registers a document: `lock_knowledge_base`.
            if not lock_knowledge_base(connection, key, "UPDATE"):
                raise _no_knowledge_base(knowledge_base_id)
            documents = tombstone_documents(connection, "knowledge_base_id = %(key)s", key)
            _refuse_busy(connection, documents)
            connection.execute("UPDATE knowledge_bases SET deleted_at = now() WHERE id = %s", (key,))
            connection.execute("DELETE FROM agents WHERE knowledge_base_id = %s", (key,))
            connection.execute("DELETE FROM chat_sessions WHERE knowledge_base_id = %s", (key,))
        return documents

    def ensure_source(self, knowledge_base_id: str, kind: SourceKind, name: str) -> Source:
        """The source, made when it is new. NotFoundError without the knowledge base."""
        with self._database.transaction() as connection:
            return ensure_source(connection, as_uuid(knowledge_base_id, "knowledge base"), kind, name)

    def source(self, knowledge_base_id: str, id_or_name: str) -> Source:
        """NotFoundError. A name that two kinds of source bear means the bulk one first."""
        with self._database.connection() as connection:
            row = connection.execute(
                """SELECT * FROM sources WHERE knowledge_base_id = %(base)s AND (id = %(id)s::uuid OR name = %(name)s)
                   ORDER BY id = %(id)s::uuid DESC NULLS LAST, kind LIMIT 1""",
                {
                    "base": as_uuid(knowledge_base_id, "knowledge base"),
                    "id": known_uuid(id_or_name),
                    "name": id_or_name,
                },
            ).fetchone()
        if row is None:
            raise NotFoundError(f"no source {id_or_name[:200]!r} in knowledge base {knowledge_base_id}")
        return rows.source(row)

    def delete_source(self, source_id: str) -> list[str]:
        """Tombstone every document of a source, in one transaction; the documents' ids.

        The source itself stays, empty: tombstones and mounts refer to it. DocumentBusyError under a live claim:
        nothing is changed then.
        """
        key = as_uuid(source_id, "source")
        with self._database.transaction() as connection:
            row = connection.execute("SELECT knowledge_base_id FROM sources WHERE id = %s", (key,)).fetchone()
            if row is None or not lock_knowledge_base(connection, row["knowledge_base_id"], "UPDATE"):
                raise NotFoundError(f"no source {source_id[:200]!r}")
            documents = tombstone_documents(connection, "source_id = %(key)s", key)
            _refuse_busy(connection, documents)
        return documents


def ensure_source(connection: Connection, knowledge_base_id: str, kind: SourceKind, name: str) -> Source:
    """`Catalog.ensure_source` inside the caller's transaction."""
    if not lock_knowledge_base(connection, knowledge_base_id, "KEY SHARE"):
        raise _no_knowledge_base(knowledge_base_id)
    connection.execute(
        "INSERT INTO sources (id, knowledge_base_id, kind, name) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
        (ids.source_id(knowledge_base_id, kind, name), knowledge_base_id, kind, name),
    )
    row = connection.execute(
        "SELECT * FROM sources WHERE knowledge_base_id = %s AND kind = %s AND name = %s",
        (knowledge_base_id, kind, name),
    ).fetchone()
    assert row is not None, "the row was just there, and sources never go before their knowledge base"
    return rows.source(row)


def lock_knowledge_base(connection: Connection, knowledge_base_id: str, strength: str) -> bool:
    """Lock a live knowledge base until the transaction ends; False when it is gone.

    "KEY SHARE" by whoever registers a document, "UPDATE" by who deletes the knowledge base: so none is registered
    behind a delete's back.
    """
    statement = f"SELECT 1 FROM knowledge_bases WHERE id = %s AND deleted_at IS NULL FOR {strength}"  # noqa: S608
    return connection.execute(statement, (knowledge_base_id,)).fetchone() is not None


def _refuse_busy(connection: Connection, document_ids: list[str]) -> None:
    busy = connection.execute(
        """SELECT count(DISTINCT document_id) AS documents FROM document_versions
           WHERE document_id = ANY(%s::uuid[]) AND claim_until > clock_timestamp()""",
        (document_ids,),
    ).fetchone()
    if busy and busy["documents"]:
        raise DocumentBusyError(f"{busy['documents']} of its documents are being ingested; stop that first")


def _acl(acl: tuple[str, ...] | None) -> list[str] | None:
    return None if acl is None else sorted(set(acl))


def _no_knowledge_base(name: str) -> NotFoundError:
    return NotFoundError(f"no knowledge base {name[:200]!r}")


def _name_taken(name: str) -> ConflictError:
    return ConflictError(f"a knowledge base named {name[:200]!r} exists already")
