"""The read path's facts: one statement before the search, one after it (design section 6, steps 1 to 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.documents import IndexRecord, SourceKind
from rag_cluster.domain.retrieval import (
    MAX_PUSHED_DOCUMENTS,
    AssetReference,
    EvidenceRow,
    Hit,
    ReadScope,
    RetrievalOptions,
)
from rag_cluster.errors import NotFoundError
from rag_cluster.stores.postgres import content
from rag_cluster.stores.postgres.access import GRANTED, READABLE, READABLE_DOCUMENTS, principal_values
from rag_cluster.stores.postgres.adapters import known_uuid, known_uuids
from rag_cluster.stores.postgres.database import Database
from rag_cluster.stores.postgres.filters import sql_condition

# Row i is there also when nothing was granted. "mounted" holds for every source when no agent is asked for.
_SCOPE = f"""
WITH b AS MATERIALIZED (
  SELECT b.* FROM knowledge_bases b WHERE b.id = %(knowledge_base)s AND {GRANTED}),
mounted AS (
  SELECT s.id, s.kind, s.enabled, m.priority FROM b JOIN sources s ON s.knowledge_base_id = b.id
  LEFT JOIN source_mounts m ON m.agent_id = %(agent)s AND m.source_id = s.id
  WHERE NOT %(for_agent)s OR m.source_id IS NOT NULL),
chosen AS MATERIALIZED (
  SELECT * FROM mounted WHERE enabled AND (%(sources)s::uuid[] IS NULL OR id = ANY(%(sources)s::uuid[]))),
keys AS MATERIALIZED (
  SELECT a.id FROM b JOIN access_keys a ON a.knowledge_base_id = b.id WHERE {READABLE}),
visible AS MATERIALIZED ({{visible}} LIMIT %(document_limit)s)
SELECT EXISTS (SELECT 1 FROM b) AS granted,
  ARRAY(SELECT id FROM keys ORDER BY id) AS access_keys,
  ARRAY(SELECT id FROM chosen ORDER BY id) AS source_ids,
  ARRAY(SELECT id FROM chosen WHERE kind = 'managed_correction' ORDER BY id) AS correction_ids,
  (SELECT count(*) FROM chosen) = (SELECT count(*) FROM b JOIN sources s ON s.knowledge_base_id = b.id) AS every_source,
  (SELECT jsonb_object_agg(id, priority) FROM chosen) AS mounts,
  (SELECT count(*) FROM visible) AS visible_documents,
  CASE WHEN (SELECT count(*) FROM visible) <= %(pushed)s THEN ARRAY(SELECT id FROM visible ORDER BY id) END
    AS document_ids,
  g.name IS NOT NULL AS agent_found, g.hide_source_filename, pg_current_snapshot()::text AS taken,
  i.id AS index_id, i.collection, i.embedder_fingerprint, i.dimension, i.state
FROM (SELECT 1) one
LEFT JOIN LATERAL (
  SELECT * FROM indexes
  WHERE state = 'active' OR (state = 'retired' AND embedder_fingerprint = %(embedder)s::text)
  ORDER BY embedder_fingerprint IS DISTINCT FROM %(embedder)s::text, state LIMIT 1) i ON true
LEFT JOIN agents g ON g.id = %(agent)s AND g.knowledge_base_id = %(knowledge_base)s"""  # noqa: S608

_PUBLISHED = "d.knowledge_base_id = %(knowledge_base)s AND d.published_version IS NOT NULL AND d.deleted_at IS NULL"
# Key by key out of the index on visible documents, in its order, until there are enough: else all documents would be
# looked through for those who may read few of them. Without a grant there is no key.
_SCOPE_OF_KEYS = _SCOPE.format(
    visible=f"""
  SELECT v.id FROM keys k CROSS JOIN chosen s CROSS JOIN LATERAL (
    SELECT d.id FROM documents d WHERE d.access_key = k.id AND d.source_id = s.id AND {_PUBLISHED}
    ORDER BY d.id LIMIT %(document_limit)s) v"""  # noqa: S608
)
_SCOPE_OF_DOCUMENTS = _SCOPE.format(
    visible=f"""
  SELECT d.id FROM documents d WHERE d.id = ANY(%(documents)s::uuid[]) AND {_PUBLISHED}
    AND d.access_key IN (SELECT id FROM keys) AND d.source_id IN (SELECT id FROM chosen)"""  # noqa: S608
)

# Chunks and documents of the hits are taken by their keys before anything is joined: left to itself, the planner may
# walk through all readable documents of a large knowledge base instead.
_ROWS = f"""
WITH c AS MATERIALIZED (SELECT * FROM chunks WHERE id = ANY(%(chunks)s::uuid[])),
documents AS MATERIALIZED (SELECT * FROM documents WHERE id = ANY(%(hit_documents)s::uuid[]))
SELECT {content.CHUNK}, {content.PARENT}, d.filename, d.uri, d.source_id, d.metadata AS document_metadata,
  s.kind AS source_kind, s.name AS source_name, coalesce(m.priority, s.priority) AS source_priority,
  (SELECT jsonb_agg(jsonb_build_object('id', x.id, 'media_type', x.media_type, 'caption', x.caption)
     ORDER BY array_position(c.asset_ids, x.id))
   FROM document_assets x WHERE x.id = ANY(c.asset_ids) AND x.version = c.version) AS assets
FROM c JOIN ({READABLE_DOCUMENTS}) ON d.id = c.document_id AND d.published_version = c.version
JOIN sources s ON s.id = d.source_id AND s.enabled
LEFT JOIN source_mounts m ON m.agent_id = %(agent)s AND m.source_id = s.id
LEFT JOIN parents p ON p.id = c.parent_id
WHERE d.knowledge_base_id = %(knowledge_base)s
  AND (NOT %(for_agent)s OR m.source_id IS NOT NULL)
  AND (%(sources)s::uuid[] IS NULL OR s.id = ANY(%(sources)s::uuid[]))
  AND (%(documents)s::uuid[] IS NULL OR d.id = ANY(%(documents)s::uuid[]))
  AND """  # noqa: S608

# Exactly those whose row a transaction wrote that had not ended when the snapshot was taken. A row's xmin has the lower
# 32 bits of a transaction id only: of all ids with these bits, the one next to the snapshot's end is meant.
_CHANGED = """
WITH t AS (SELECT %(taken)s::pg_snapshot AS taken, pg_snapshot_xmax(%(taken)s::pg_snapshot)::text::bigint AS last),
d AS (
  SELECT ((d.xmin::text::bigint - t.last) & 4294967295) AS ahead, t.taken, t.last
  FROM documents d, t WHERE d.id = ANY(%(documents)s::uuid[]))
SELECT pg_current_snapshot()::text AS taken FROM d
WHERE NOT pg_visible_in_snapshot(
  (d.last + CASE WHEN d.ahead < 2147483648 THEN d.ahead ELSE d.ahead - 4294967296 END)::text::xid8, d.taken)
LIMIT 1"""


class PostgresEvidence:
    """The `Evidence` port."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def scope(
        self,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        *,
        embedder_fingerprint: str | None = None,
    ) -> ReadScope:
        """Access keys, sources, mounts, visible documents and the index in one statement: the active one, or that of
        the caller's embedder if it was retired and is still there.

        What is not granted is an empty filter. visible_documents counts to 1,001 and no further, unless a whitelist
        was given. Corrections are those mounted by the agent. NotFoundError for an unknown agent.
        """
        whitelisted = options.document_ids is not None
        limit = pushed = len(options.document_ids or ())
        if not whitelisted:
            # Ids that nobody named narrow hardly more than access keys do. Beside a filter they would cost Milvus Lite
            # ten times the filter: next to a condition on JSON it reads the whole list for each row.
            limit, pushed = MAX_PUSHED_DOCUMENTS + 1, 0 if options.filters else MAX_PUSHED_DOCUMENTS
        values = _values(principal, knowledge_base_id, options)
        values |= {"document_limit": limit, "pushed": pushed, "embedder": embedder_fingerprint}
        statement = _SCOPE_OF_DOCUMENTS if whitelisted else _SCOPE_OF_KEYS
        async with self._database.async_connection() as connection:
            row = await (await connection.execute(statement, values)).fetchone()
        assert row is not None, "the statement has one row"
        if row["granted"] and options.agent_id is not None and not row["agent_found"]:
            raise NotFoundError(f"no agent {options.agent_id[:64]!r}")
        return _scope(row, knowledge_base_id, options)

    async def rows(
        self, principal: Principal, knowledge_base_id: str, hits: Sequence[Hit], options: RetrievalOptions
    ) -> dict[str, EvidenceRow]:
        """Second check, one statement: of the hits' chunk ids, those of a published version of a visible, readable
        document of an enabled source that the options ask for, with chunk, parent and assets."""
        chunk_ids = known_uuids(tuple(hit.chunk_id for hit in hits))
        if not chunk_ids:
            return {}
        condition, filter_values = sql_condition(options.filter)
        values = _values(principal, knowledge_base_id, options) | filter_values
        values |= {"chunks": chunk_ids, "hit_documents": known_uuids(tuple({hit.document_id for hit in hits}))}
        async with self._database.async_connection() as connection:
            found = await (await connection.execute(_ROWS + condition, values)).fetchall()
        return {row["id"]: _evidence(row) for row in found}

    async def changed_since(self, taken: str, document_ids: Sequence[str]) -> str | None:
        """Where one of these documents was published or deleted after that moment: the moment of this look."""
        values = {"documents": known_uuids(tuple(document_ids)), "taken": taken}
        async with self._database.async_connection() as connection:
            row = await (await connection.execute(_CHANGED, values)).fetchone()
        return None if row is None else str(row["taken"])


def _values(principal: Principal, knowledge_base_id: str, options: RetrievalOptions) -> dict[str, Any]:
    return principal_values(principal) | {
        "knowledge_base": known_uuid(knowledge_base_id),
        "agent": None if options.agent_id is None else known_uuid(options.agent_id),
        "for_agent": options.agent_id is not None,
        "sources": known_uuids(options.source_ids),
        "documents": known_uuids(options.document_ids),
    }


def _scope(row: dict[str, Any], knowledge_base_id: str, options: RetrievalOptions) -> ReadScope:
    documents = None if row["document_ids"] is None else tuple(row["document_ids"])
    index = None
    if row["index_id"] is not None:
        index = IndexRecord(
            row["index_id"], row["collection"], row["embedder_fingerprint"], row["dimension"], row["state"]
        )
    for_agent = options.agent_id is not None and row["granted"]
    return ReadScope(
        filter=AccessFilter(
            knowledge_base_id=knowledge_base_id,
            access_keys=tuple(row["access_keys"]),
            source_ids=None if row["every_source"] and row["source_ids"] else tuple(row["source_ids"]),
            document_ids=documents,
            metadata=options.filter,
        ),
        index=index,
        visible_documents=row["visible_documents"],
        mounts=(row["mounts"] or {}) if for_agent else {},
        correction_source_ids=tuple(row["correction_ids"]) if for_agent else (),
        hide_source_filename=bool(row["hide_source_filename"]),
        taken=row["taken"],
    )


def _evidence(row: dict[str, Any]) -> EvidenceRow:
    return EvidenceRow(
        chunk=content.chunk(row),
        parent=content.parent(row),
        filename=row["filename"],
        uri=row["uri"],
        source_id=row["source_id"],
        source_kind=SourceKind(row["source_kind"]),
        source_name=row["source_name"],
        source_priority=row["source_priority"],
        assets=tuple(AssetReference(**asset) for asset in row["assets"] or ()),
        document_metadata=row["document_metadata"],
    )
