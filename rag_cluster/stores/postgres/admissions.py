"""Who asks, and for what: the key and the knowledge base of a query in one statement."""

from __future__ import annotations

from rag_cluster.domain.ports import Admission
from rag_cluster.stores.postgres import rows
from rag_cluster.stores.postgres.adapters import known_uuid
from rag_cluster.stores.postgres.api_keys import key_principal, secret_digest
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.knowledge_bases import BY_ID_OR_NAME

_ADMISSION = f"""
SELECT EXISTS (SELECT 1 FROM api_keys) AS any_keys, to_jsonb(k) AS key, b.*
FROM (SELECT 1) one
LEFT JOIN api_keys k ON k.secret_sha256 = %(digest)s::text AND k.revoked_at IS NULL
LEFT JOIN LATERAL ({BY_ID_OR_NAME}) b ON true"""  # noqa: S608


class PostgresAdmissions:
    """The `Admissions` port. Nothing is remembered: a revoked key is refused by the next statement."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def admission(self, secret: str | None, knowledge_base: str | None) -> Admission:
        """An API key's secret and a knowledge base's id or name, as far as given."""
        values = {
            "digest": None if secret is None else secret_digest(secret),
            "id": None if knowledge_base is None else known_uuid(knowledge_base),
            "name": knowledge_base,
        }
        async with self._database.async_connection() as connection:
            row = await (await connection.execute(_ADMISSION, values)).fetchone()
        assert row is not None, "the statement has one row"
        return Admission(
            principal=None if row["key"] is None else key_principal(row["key"]),
            has_api_keys=row["any_keys"],
            knowledge_base=None if row["id"] is None else rows.knowledge_base(row),
        )
