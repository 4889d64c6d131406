"""Sources, agents and mounts (seed 004). A query reads them anew each time, so every change is in force at once."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import psycopg

from rag_cluster.domain.access import Principal
from rag_cluster.domain.documents import Agent, Document, Source, SourceKind, SourceMount
from rag_cluster.errors import ConflictError, NotFoundError
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.access import GRANTED, READABLE_DOCUMENTS, principal_values
from rag_cluster.stores.postgres.adapters import as_uuid, known_uuid
from rag_cluster.stores.postgres.database import Connection, Database
from rag_cluster.stores.postgres.knowledge_bases import lock_knowledge_base
from rag_cluster.stores.postgres.paging import page, page_values

_PAGE = """(%(after_id)s::uuid IS NULL OR (x.created_at, x.id) > (%(after_time)s::timestamptz, %(after_id)s::uuid))
    ORDER BY x.created_at, x.id LIMIT %(fetch)s"""


class PostgresAgents:
    """The `Agents` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- sources -----------------------------------------------------------------------------------------------------

    def sources(
        self, knowledge_base_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Source], str | None]:
        """Of one knowledge base, oldest first."""
        values = page_values(cursor, limit) | {"base": known_uuid(knowledge_base_id)}
        with self._database.connection() as connection:
            found = connection.execute(
                f"SELECT x.* FROM sources x WHERE x.knowledge_base_id = %(base)s AND {_PAGE}",  # noqa: S608
                values,
            ).fetchall()
        return page(found, limit, rows.source)

    def source(self, source_id: str, principal: Principal) -> Source:
        """By id, of a knowledge base that the principal may use: NotFoundError otherwise."""
        return rows.source(self._granted("sources", "source", source_id, principal))

    def update_source(
        self,
        source_id: str,
        *,
        enabled: bool | None = None,
        priority: int | None = None,
        chunking_strategy: str | None = None,
    ) -> Source:
        """None leaves a field alone, "" clears the strategy. A disabled source is gone from the next query."""
        values = {
            "id": as_uuid(source_id, "source"),
            "enabled": enabled,
            "priority": priority,
            "strategy": chunking_strategy,
        }
        with self._database.connection() as connection:
            row = connection.execute(
                """UPDATE sources SET enabled = coalesce(%(enabled)s, enabled),
                     priority = coalesce(%(priority)s, priority),
                     default_chunking_strategy = nullif(coalesce(%(strategy)s, default_chunking_strategy), '')
                   WHERE id = %(id)s RETURNING *""",
                values,
            ).fetchone()
        if row is None:
            raise _nothing("source", source_id)
        return rows.source(row)

    # -- agents ------------------------------------------------------------------------------------------------------

    def create_agent(self, knowledge_base_id: str, name: str, *, hide_source_filename: bool = False) -> Agent:
        """ConflictError when the knowledge base has one of that name; NotFoundError without it."""
        base = as_uuid(knowledge_base_id, "knowledge base")
        with self._database.transaction() as connection:
            if not lock_knowledge_base(connection, base, "KEY SHARE"):
                raise _nothing("knowledge base", knowledge_base_id)
            row = connection.execute(
                """INSERT INTO agents (id, knowledge_base_id, name, hide_source_filename) VALUES (%s, %s, %s, %s)
                   ON CONFLICT DO NOTHING RETURNING *""",
                (str(uuid4()), base, name, hide_source_filename),
            ).fetchone()
        if row is None:
            raise _taken(name)
        return _agent(row)

    def agent(self, agent_id: str, principal: Principal) -> Agent:
        """By id, of a knowledge base that the principal may use: NotFoundError otherwise."""
        return _agent(self._granted("agents", "agent", agent_id, principal))

    def find_agent(self, knowledge_base_id: str, id_or_name: str) -> Agent:
        """NotFoundError. An id wins over a name that looks like one."""
        values = (known_uuid(knowledge_base_id), known_uuid(id_or_name), id_or_name, id_or_name)
        with self._database.connection() as connection:
            row = connection.execute(
                """SELECT * FROM agents WHERE knowledge_base_id = %s AND (id = %s OR name = %s)
                   ORDER BY name = %s LIMIT 1""",
                values,
            ).fetchone()
        if row is None:
            raise _nothing("agent", id_or_name)
        return _agent(row)

    def agents(
        self, knowledge_base_id: str, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Agent], str | None]:
        """Of one knowledge base, oldest first."""
        values = page_values(cursor, limit) | {"base": known_uuid(knowledge_base_id)}
        with self._database.connection() as connection:
            found = connection.execute(
                f"SELECT x.* FROM agents x WHERE x.knowledge_base_id = %(base)s AND {_PAGE}",  # noqa: S608
                values,
            ).fetchall()
        return page(found, limit, _agent)

    def update_agent(
        self, agent_id: str, *, name: str | None = None, hide_source_filename: bool | None = None
    ) -> Agent:
        """None leaves a field alone. NotFoundError, ConflictError."""
        with self._database.connection() as connection:
            try:
                row = connection.execute(
                    """UPDATE agents SET name = coalesce(%s, name),
                         hide_source_filename = coalesce(%s, hide_source_filename) WHERE id = %s RETURNING *""",
                    (name, hide_source_filename, as_uuid(agent_id, "agent")),
                ).fetchone()
            except psycopg.errors.UniqueViolation:
                raise _taken(name or "") from None
        if row is None:
            raise _nothing("agent", agent_id)
        return _agent(row)

    def delete_agent(self, agent_id: str) -> None:
        """With its mounts; sources and documents stay. NotFoundError."""
        with self._database.connection() as connection:
            gone = connection.execute("DELETE FROM agents WHERE id = %s", (as_uuid(agent_id, "agent"),))
        if not gone.rowcount:
            raise _nothing("agent", agent_id)

    # -- mounts ------------------------------------------------------------------------------------------------------

    def mount(self, agent_id: str, source_id: str, priority: int | None = None) -> SourceMount:
        """Mount a source of the agent's knowledge base, or change its priority; None keeps it, 0 where it is new.

        NotFoundError without the agent, or a source that is not of its knowledge base.
        """
        values = {"agent": as_uuid(agent_id, "agent"), "source": as_uuid(source_id, "source"), "priority": priority}
        with self._database.connection() as connection:
            row = connection.execute(
                """INSERT INTO source_mounts AS m (agent_id, source_id, priority)
                   SELECT g.id, s.id, coalesce(%(priority)s, 0) FROM agents g
                   JOIN sources s ON s.knowledge_base_id = g.knowledge_base_id AND s.id = %(source)s
                   WHERE g.id = %(agent)s
                   ON CONFLICT (agent_id, source_id) DO UPDATE SET priority = coalesce(%(priority)s, m.priority)
                   RETURNING m.*""",
                values,
            ).fetchone()
            if row is None:
                known = connection.execute("SELECT 1 FROM agents WHERE id = %(agent)s", values).fetchone()
                raise _nothing("source", source_id) if known else _nothing("agent", agent_id)
        return _mount(row)

    def unmount(self, agent_id: str, source_id: str) -> None:
        """NotFoundError when it was not mounted."""
        values = (as_uuid(agent_id, "agent"), as_uuid(source_id, "source"))
        with self._database.connection() as connection:
            gone = connection.execute("DELETE FROM source_mounts WHERE agent_id = %s AND source_id = %s", values)
        if not gone.rowcount:
            raise NotFoundError(f"source {source_id[:64]!r} is not mounted")

    def mounts(self, agent_id: str) -> list[tuple[SourceMount, Source]]:
        """Highest priority first."""
        with self._database.connection() as connection:
            found = connection.execute(
                """SELECT s.*, m.agent_id, m.source_id, m.priority AS mount_priority
                   FROM source_mounts m JOIN sources s ON s.id = m.source_id
                   WHERE m.agent_id = %s ORDER BY m.priority DESC, s.name, s.id""",
                (as_uuid(agent_id, "agent"),),
            ).fetchall()
        return [(_mount(row | {"priority": row["mount_priority"]}), rows.source(row)) for row in found]

    # -- corrections -------------------------------------------------------------------------------------------------

    def corrections(
        self, knowledge_base_id: str, principal: Principal, *, cursor: str | None = None, limit: int = 50
    ) -> tuple[list[Document], str | None]:
        """The documents of managed_correction sources that the principal may read, oldest first."""
        values = page_values(cursor, limit) | principal_values(principal)
        values |= {"base": known_uuid(knowledge_base_id), "kind": SourceKind.MANAGED_CORRECTION}
        with self._database.connection() as connection:
            found = connection.execute(
                f"""SELECT {rows.DOCUMENT} FROM {READABLE_DOCUMENTS} {rows.NEWEST}
                    JOIN sources s ON s.id = d.source_id AND s.kind = %(kind)s
                    WHERE d.knowledge_base_id = %(base)s AND {_PAGE.replace("x.", "d.")}""",  # noqa: S608
                values,
            ).fetchall()
        return page(found, limit, rows.document)

    def _granted(self, table: str, what: str, wanted: str, principal: Principal) -> dict[str, Any]:
        values = principal_values(principal) | {"id": as_uuid(wanted, what)}
        with self._database.connection() as connection:
            row = _one(connection, table, values)
        if row is None:
            raise _nothing(what, wanted)
        return row


def _one(connection: Connection, table: str, values: dict[str, Any]) -> dict[str, Any] | None:
    return connection.execute(
        f"""SELECT x.* FROM {table} x JOIN knowledge_bases b ON b.id = x.knowledge_base_id AND {GRANTED}
            WHERE x.id = %(id)s""",  # noqa: S608
        values,
    ).fetchone()


def _agent(row: dict[str, Any]) -> Agent:
    return Agent(row["id"], row["knowledge_base_id"], row["name"], row["hide_source_filename"])


def _mount(row: dict[str, Any]) -> SourceMount:
    return SourceMount(row["agent_id"], row["source_id"], row["priority"])


def _nothing(what: str, wanted: str) -> NotFoundError:
    return NotFoundError(f"no {what} {wanted[:200]!r}")


def _taken(name: str) -> ConflictError:
    return ConflictError(f"an agent named {name[:200]!r} exists already in this knowledge base")
