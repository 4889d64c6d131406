"""Chat sessions and the audit trail."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from uuid import uuid4

from psycopg.types.json import Jsonb
from pydantic import TypeAdapter

from rag_cluster.domain.access import Principal
from rag_cluster.domain.answers import ChatEvidence, ChatMessage, RetrievalRecord
from rag_cluster.errors import NotFoundError
from rag_cluster.stores.postgres.adapters import as_uuid
from rag_cluster.stores.postgres.database import AsyncConnection, Database

MAX_MESSAGES = 1000


class PostgresConversations:
    """The `Conversations` port. A session belongs to the principal who started it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add_message(
        self,
        session_id: str | None,
        role: str,
        content: str,
        *,
        principal: Principal,
        knowledge_base_id: str,
        evidence: ChatEvidence | None = None,
    ) -> ChatMessage:
        """session_id None starts a session; the message carries its id. NotFoundError for a session of another
        principal or knowledge base. role: user | assistant."""
        knowledge_base = as_uuid(knowledge_base_id, "knowledge base")
        stored = None if evidence is None else Jsonb(_evidence_json().dump_python(evidence, mode="json"))
        async with self._database.async_transaction() as connection:
            if session_id is None:
                session = await _start(connection, principal, knowledge_base)
            else:
                session = await _session(connection, session_id, principal, knowledge_base)
            cursor = await connection.execute(
                """INSERT INTO chat_messages (id, session_id, role, content, evidence) VALUES (%s, %s, %s, %s, %s)
                   RETURNING id, created_at""",
                (str(uuid4()), session, role, content, stored),
            )
            row = await cursor.fetchone()
        assert row is not None, "an insert returns its row"
        return ChatMessage(row["id"], session, role, content, evidence, row["created_at"])

    async def require_session(self, session_id: str, principal: Principal, knowledge_base_id: str) -> None:
        """NotFoundError unless the session is the principal's, in this knowledge base."""
        async with self._database.async_connection() as connection:
            await _session(connection, session_id, principal, as_uuid(knowledge_base_id, "knowledge base"))

    async def messages(self, session_id: str, principal: Principal) -> list[ChatMessage]:
        """Oldest first; of a very long session the newest 1,000. NotFoundError for another principal's session."""
        async with self._database.async_connection() as connection:
            session = await _session(connection, session_id, principal, None)
            cursor = await connection.execute(
                "SELECT * FROM chat_messages WHERE session_id = %s ORDER BY created_at DESC, id DESC LIMIT %s",
                (session, MAX_MESSAGES),
            )
            found = await cursor.fetchall()
        return [_message(row) for row in reversed(found)]

    async def record(self, record: RetrievalRecord) -> None:
        """Append to the audit trail. The answer waits for the row, not for the disk: a server that is killed may lose
        the rows of its last moment."""
        async with self._database.async_connection() as connection:
            await connection.execute(
                """WITH unhurried AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true))
                   INSERT INTO retrieval_records (request_id, principal, knowledge_base_id, query, options, trace,
                     results, outcome, milliseconds, metadata)
                   SELECT %s::text, %s::text, %s::uuid, %s::text, %s::jsonb, %s::jsonb, %s::jsonb, %s::text, %s::float8,
                     %s::jsonb FROM unhurried""",
                (
                    record.request_id,
                    record.principal,
                    as_uuid(record.knowledge_base_id, "knowledge base"),
                    record.query,
                    Jsonb(record.options),
                    Jsonb(record.trace),
                    Jsonb(record.results),
                    record.outcome,
                    record.milliseconds,
                    Jsonb(record.metadata),
                ),
            )


async def _start(connection: AsyncConnection, principal: Principal, knowledge_base_id: str) -> str:
    session = str(uuid4())
    cursor = await connection.execute(
        """INSERT INTO chat_sessions (id, knowledge_base_id, principal)
           SELECT %s, id, %s FROM knowledge_bases WHERE id = %s AND deleted_at IS NULL FOR KEY SHARE""",
        (session, principal.name, knowledge_base_id),
    )
    if not cursor.rowcount:
        raise NotFoundError(f"no knowledge base {knowledge_base_id!r}")
    return session


async def _session(
    connection: AsyncConnection, session_id: str, principal: Principal, knowledge_base_id: str | None
) -> str:
    session = as_uuid(session_id, "session")
    cursor = await connection.execute(
        """SELECT 1 FROM chat_sessions WHERE id = %(id)s AND principal = %(principal)s
             AND (%(knowledge_base)s::uuid IS NULL OR knowledge_base_id = %(knowledge_base)s::uuid)""",
        {"id": session, "principal": principal.name, "knowledge_base": knowledge_base_id},
    )
    if await cursor.fetchone() is None:
        raise NotFoundError(f"no session {session_id[:64]!r}")
    return session


@lru_cache(maxsize=1)
def _evidence_json() -> TypeAdapter[ChatEvidence]:
    return TypeAdapter(ChatEvidence)  # slow to build, and only chats need it


def _message(row: dict[str, Any]) -> ChatMessage:
    evidence = row["evidence"]
    return ChatMessage(
        id=row["id"],
        session_id=row["session_id"],
        role=row["role"],
        content=row["content"],
        evidence=None if evidence is None else _evidence_json().validate_python(evidence),
        created_at=row["created_at"],
    )
