"""Chunks by their words: the keyword fallback's hits, and what `explain` is asked about."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.retrieval import Hit, Located
from rag_cluster.domain.terms import is_cjk
from rag_cluster.errors import InvalidRequestError
from rag_cluster.stores.postgres import content, rows
from rag_cluster.stores.postgres.access import READABLE_DOCUMENTS, principal_values
from rag_cluster.stores.postgres.adapters import known_uuid, known_uuids
from rag_cluster.stores.postgres.database import Database

# Metadata is left to the second check, which every hit passes anyway. Few rows pass the first pattern, which knows no
# word boundaries: only these are counted. With a list, its chunks are taken by their keys before anything is joined.
_KEYWORD_HITS = """
WITH c AS NOT MATERIALIZED (SELECT * FROM chunks {among})
SELECT c.id, c.document_id, c.version, w.held
FROM documents d
JOIN c ON c.document_id = d.id AND c.version = d.published_version
CROSS JOIN LATERAL (SELECT count(*) AS held FROM unnest(%(patterns)s::text[]) p WHERE c.content ~* p) w
WHERE d.knowledge_base_id = %(knowledge_base)s AND d.published_version IS NOT NULL AND d.deleted_at IS NULL
  AND d.access_key = ANY(%(keys)s::bigint[])
  AND (%(sources)s::uuid[] IS NULL OR d.source_id = ANY(%(sources)s::uuid[]))
  AND (%(documents)s::uuid[] IS NULL OR d.id = ANY(%(documents)s::uuid[]))
  AND c.content ~* %(any)s AND w.held >= %(least)s
ORDER BY w.held DESC, c.document_id, c.index LIMIT %(limit)s"""
_EVERYWHERE = _KEYWORD_HITS.format(among="")
_AMONG = _KEYWORD_HITS.format(among="WHERE id = ANY(%(among)s::uuid[])").replace("NOT MATERIALIZED", "MATERIALIZED")

# The version whose chunks are meant is the published one, else the newest: explain tells why nobody sees it.
_SHOWN = """c.document_id = d.id AND c.version = coalesce(d.published_version, n.version)"""
_LOCATED = f"""
SELECT {rows.DOCUMENT}, d.knowledge_base_id AS base, d.metadata AS facts, n.version AS newest,
  {content.CHUNK.replace("c.id,", "c.id AS chunk_id,", 1)}
FROM {READABLE_DOCUMENTS} {rows.NEWEST}
LEFT JOIN chunks c ON CASE WHEN %(chunk)s::uuid IS NULL THEN {_SHOWN}
  ELSE c.id = %(chunk)s::uuid AND c.document_id = d.id END
WHERE d.knowledge_base_id = %(knowledge_base)s
  AND (%(chunk)s::uuid IS NULL OR d.id = (SELECT document_id FROM chunks WHERE id = %(chunk)s::uuid))
  AND (%(document)s::uuid IS NULL OR d.id = %(document)s::uuid)
  AND (%(pattern)s::text IS NULL OR d.published_version IS NOT NULL AND c.content ~* %(pattern)s)
ORDER BY d.id, c.index LIMIT %(limit)s"""  # noqa: S608


class PostgresChunkSearch:
    """The `ChunkSearch` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def keyword_hits(
        self,
        access: AccessFilter,
        keywords: Sequence[str],
        *,
        least: int,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Hit]:
        """Published chunks of the scope that hold at least so many of the keywords, most first; score: how many.

        A Latin keyword or number must stand as a word of its own, a Chinese one as it is; case does not matter.
        among: chunk ids; None reads every chunk of the scope: callers bound its time.
        """
        if access.empty or not keywords or limit < 1 or (among is not None and not among):
            return []
        patterns = [_word(keyword) for keyword in keywords]
        values = {
            "knowledge_base": known_uuid(access.knowledge_base_id),
            "keys": list(access.access_keys),
            "sources": known_uuids(access.source_ids),
            "documents": known_uuids(access.document_ids),
            "patterns": patterns,
            "any": "|".join(map(_literal, keywords)),
            "among": known_uuids(None if among is None else tuple(among)),
            "least": least,
            "limit": limit,
        }
        async with self._database.async_connection() as connection:
            statement = _EVERYWHERE if among is None else _AMONG
            found = await (await connection.execute(statement, values)).fetchall()
        return [Hit(row["id"], row["document_id"], row["version"], float(row["held"])) for row in found]

    async def located(
        self,
        principal: Principal,
        knowledge_base_id: str,
        *,
        chunk_id: str | None = None,
        document_id: str | None = None,
        text: str | None = None,
        limit: int = 20,
    ) -> list[Located]:
        """What exactly one of the three names, as far as the principal may read it, whether queries see it or not.

        A document without chunks is there once, without a chunk. A text is sought in published versions, white space
        and case apart. InvalidRequestError unless exactly one is given.
        """
        given = [value for value in (chunk_id, document_id, text) if value is not None]
        if len(given) != 1 or not given[0].strip():
            raise InvalidRequestError("Name one of a chunk, a document and a text.")
        values = principal_values(principal) | {
            "knowledge_base": known_uuid(knowledge_base_id),
            "chunk": None if chunk_id is None else known_uuid(chunk_id),
            "document": None if document_id is None else known_uuid(document_id),
            "pattern": None if text is None else r"\s+".join(map(_literal, text.split())),
            "limit": limit,
        }
        if text is None and values["chunk"] is None and values["document"] is None:
            return []  # no id at all
        async with self._database.async_connection() as connection:
            found = await (await connection.execute(_LOCATED, values)).fetchall()
        return [_located(row) for row in found]


def _located(row: dict[str, Any]) -> Located:
    # Of columns with the same name the chunk's, which come last, stand in the row.
    facts = {"knowledge_base_id": row["base"], "metadata": row["facts"], "version": row["newest"]}
    document = rows.document(row | facts)
    return Located(document, content.chunk(row | {"id": row["chunk_id"]}) if row["chunk_id"] is not None else None)


def _literal(text: str) -> str:
    """A regular expression of PostgreSQL that matches the text as it is."""
    return re.sub(r"([^\w\s])", r"\\\1", text)


def _word(keyword: str) -> str:
    """The keyword between characters that are no Latin letters or digits: "ddp" is in "DDP条款", not in "addpoint"."""
    literal = _literal(keyword)
    return literal if is_cjk(keyword) else rf"(?<![a-z0-9]){literal}(?![a-z0-9])"
