"""Chunks by their words: the keyword fallback's hits, and what `explain` is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.patterns import keyword_pattern, literal_pattern, word_pattern
from rag_cluster.domain.retrieval import Hit, Located
from rag_cluster.errors import InvalidRequestError
from rag_cluster.stores.postgres import content, rows
from rag_cluster.stores.postgres.access import READABLE_DOCUMENTS, principal_values
from rag_cluster.stores.postgres.adapters import known_uuid, known_uuids
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.filters import sql_condition

# Published documents of the scope, taken by their keys wherever they are named.
_DOCUMENTS = """
documents AS MATERIALIZED (
  SELECT d.id, d.published_version, d.metadata FROM documents d
  WHERE d.knowledge_base_id = %(knowledge_base)s AND d.published_version IS NOT NULL AND d.deleted_at IS NULL
    AND d.access_key = ANY(%(keys)s::bigint[])
    AND (%(sources)s::uuid[] IS NULL OR d.source_id = ANY(%(sources)s::uuid[])) {named})"""
_OF_THE_CHUNKS = "d.id = ANY(ARRAY(SELECT document_id FROM listed))"
_NAMED = "d.id = ANY(%(documents)s::uuid[])"
_COLUMNS = "c.id, c.document_id, c.version, c.index, c.content"
_JOINED = "c ON c.document_id = d.id AND c.version = d.published_version"

# Few chunks pass the first pattern, which knows no word boundaries: only in these words are counted. Texts are matched
# in the collation "C", four times as fast: that knows the cases of ASCII letters only, patterns name both of any other.
_MATCHED = """
SELECT c.id, c.document_id, c.version, w.held
FROM c CROSS JOIN LATERAL (
  SELECT count(*) AS held FROM unnest(%(patterns)s::text[]) p WHERE c.content COLLATE "C" ~* p) w
WHERE c.content COLLATE "C" ~* %(any)s AND w.held >= %(least)s
ORDER BY w.held DESC, c.document_id, c.index LIMIT %(limit)s"""


def _among(access: AccessFilter, condition: str) -> str:
    """Hits among listed chunks."""
    named = "" if access.document_ids is None else f"AND {_NAMED}"
    return f"""
WITH listed AS MATERIALIZED (SELECT c.* FROM chunks c WHERE c.id = ANY(%(among)s::uuid[])),
{_DOCUMENTS.format(named=f"AND {_OF_THE_CHUNKS} {named}")},
c AS MATERIALIZED (SELECT {_COLUMNS} FROM documents d JOIN listed {_JOINED} WHERE {condition})
{_MATCHED}"""  # noqa: S608


def _everywhere(access: AccessFilter, condition: str) -> str:
    """Hits among all chunks of the scope."""
    return f"""
WITH {_DOCUMENTS.format(named="" if access.document_ids is None else f"AND {_NAMED}")},
c AS MATERIALIZED (SELECT {_COLUMNS} FROM documents d JOIN chunks {_JOINED} WHERE {condition})
{_MATCHED}"""  # noqa: S608


def _more(access: AccessFilter) -> str:
    """Whether the scope has more chunks than so many."""
    return f"""
WITH {_DOCUMENTS.format(named="" if access.document_ids is None else f"AND {_NAMED}")}
SELECT count(*) > %(chunks)s AS more
FROM (SELECT 1 FROM documents d JOIN chunks {_JOINED} LIMIT %(chunks)s + 1) c"""  # noqa: S608


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

        A Latin keyword or number must stand as a word of its own, a Chinese one as it is; case and width do not matter.
        among: chunk ids; None reads every chunk of the scope, which is slow where it `exceeds` some hundreds.
        """
        if access.empty or not keywords or limit < 1 or (among is not None and not among):
            return []
        condition, filter_values = sql_condition(access.metadata)
        values = _scope_values(access) | filter_values
        values |= {
            "patterns": [word_pattern(keyword) for keyword in keywords],
            "any": "|".join(map(keyword_pattern, keywords)),
            "among": known_uuids(None if among is None else tuple(among)),
            "least": least,
            "limit": limit,
        }
        statement = (_everywhere if among is None else _among)(access, condition)
        async with self._database.async_connection() as connection:
            found = await (await connection.execute(statement, values)).fetchall()
        return [Hit(row["id"], row["document_id"], row["version"], float(row["held"])) for row in found]

    async def exceeds(self, access: AccessFilter, chunks: int) -> bool:
        """Whether the scope's published chunks are more than so many. Counts no further."""
        if access.empty:
            return False
        async with self._database.async_connection() as connection:
            values = _scope_values(access) | {"chunks": chunks}
            row = await (await connection.execute(_more(access), values)).fetchone()
        return bool(row and row["more"])

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
            "pattern": None if text is None else r"\s+".join(map(literal_pattern, text.split())),
            "limit": limit,
        }
        if text is None and values["chunk"] is None and values["document"] is None:
            return []  # no id at all
        async with self._database.async_connection() as connection:
            found = await (await connection.execute(_LOCATED, values)).fetchall()
        return [_located(row) for row in found]


def _scope_values(access: AccessFilter) -> dict[str, Any]:
    return {
        "knowledge_base": known_uuid(access.knowledge_base_id),
        "keys": list(access.access_keys),
        "sources": known_uuids(access.source_ids),
        "documents": known_uuids(access.document_ids),
    }


def _located(row: dict[str, Any]) -> Located:
    # Of columns with the same name the chunk's, which come last, stand in the row.
    facts = {"knowledge_base_id": row["base"], "metadata": row["facts"], "version": row["newest"]}
    document = rows.document(row | facts)
    return Located(document, content.chunk(row | {"id": row["chunk_id"]}) if row["chunk_id"] is not None else None)
