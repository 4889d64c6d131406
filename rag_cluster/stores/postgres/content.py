"""Chunks and parents: how a part's content is written and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.types.json import Jsonb

from rag_cluster.domain.blocks import SourceLocator
from rag_cluster.domain.chunks import Chunk, Parent, PartContent
from rag_cluster.stores.postgres.adapters import dump_json
from rag_cluster.stores.postgres.database import Connection

_STRATEGY = "chunking_strategy"

CHUNK = """c.id, c.knowledge_base_id, c.document_id, c.version, c.index, c.parent_id, c.content, c.prefix_length,
    c.token_count, c.locator, c.start_offset, c.end_offset, c.block_ids, c.content_types, c.asset_ids,
    c.chunking_strategy, c.metadata"""
"""Columns of a chunk c, for `chunk`."""

PARENT = """p.index AS parent_index, p.text AS parent_text, p.token_count AS parent_token_count,
    p.locator AS parent_locator, p.metadata AS parent_metadata"""
"""Columns of a chunk's parent p, for `parent`."""


def write_parts(connection: Connection, contents: Sequence[PartContent]) -> None:
    """Replace the chunks [start, end) of each part's version and add the parents that they name. One COPY for all."""
    if not contents:
        return
    parts = [content.part for content in contents]
    connection.execute(
        """DELETE FROM chunks c USING unnest(%s::uuid[], %s::int[], %s::int[], %s::int[]) AS w (id, version, b, e)
           WHERE c.document_id = w.id AND c.version = w.version AND c.index >= w.b AND c.index < w.e""",
        (
            [part.document_id for part in parts],
            [part.version for part in parts],
            [part.start for part in parts],
            [part.end for part in parts],
        ),
    )
    _write_parents(connection, [parent for content in contents for parent in content.parents])
    with (
        connection.cursor() as cursor,
        cursor.copy(
            """COPY chunks (id, knowledge_base_id, document_id, version, index, parent_id, content, prefix_length,
                 token_count, locator, start_offset, end_offset, block_ids, content_types, asset_ids,
                 chunking_strategy, metadata) FROM STDIN"""
        ) as copy,
    ):
        for content in contents:
            for chunk in content.chunks:
                copy.write_row(_chunk_values(chunk))


def _write_parents(connection: Connection, parents: Sequence[Parent]) -> None:
    if not parents:
        return
    # A parent larger than a part comes with each of its parts: the first one writes it.
    connection.execute(
        """INSERT INTO parents (id, document_id, version, index, text, token_count, locator, metadata)
           SELECT * FROM unnest(%s::uuid[], %s::uuid[], %s::int[], %s::int[], %s::text[], %s::int[], %s::jsonb[],
             %s::jsonb[]) ON CONFLICT (id) DO NOTHING""",
        (
            [parent.id for parent in parents],
            [parent.document_id for parent in parents],
            [parent.version for parent in parents],
            [parent.index for parent in parents],
            [parent.text for parent in parents],
            [parent.token_count for parent in parents],
            [dump_json(parent.locator.to_dict()) for parent in parents],
            [dump_json(parent.metadata) for parent in parents],
        ),
    )


def _chunk_values(chunk: Chunk) -> tuple[Any, ...]:
    metadata = {key: value for key, value in chunk.metadata.items() if key != _STRATEGY}
    return (
        chunk.id,
        chunk.knowledge_base_id,
        chunk.document_id,
        chunk.version,
        chunk.index,
        chunk.parent_id,
        chunk.content,
        chunk.prefix_length,
        chunk.token_count,
        Jsonb(chunk.locator.to_dict()),
        chunk.start,
        chunk.end,
        list(chunk.block_ids),
        list(chunk.content_types),
        list(chunk.asset_ids),
        str(chunk.metadata.get(_STRATEGY, "")),
        Jsonb(metadata),
    )


def chunk(row: dict[str, Any]) -> Chunk:
    """From `CHUNK`."""
    metadata = dict(row["metadata"])
    if row["chunking_strategy"]:
        metadata[_STRATEGY] = row["chunking_strategy"]
    return Chunk(
        id=row["id"],
        knowledge_base_id=row["knowledge_base_id"],
        document_id=row["document_id"],
        version=row["version"],
        index=row["index"],
        content=row["content"],
        prefix_length=row["prefix_length"],
        token_count=row["token_count"],
        locator=SourceLocator.from_dict(row["locator"]),
        parent_id=row["parent_id"],
        start=row["start_offset"],
        end=row["end_offset"],
        block_ids=tuple(row["block_ids"]),
        content_types=tuple(row["content_types"]),
        asset_ids=tuple(row["asset_ids"]),
        metadata=metadata,
    )


def parent(row: dict[str, Any]) -> Parent | None:
    """From `CHUNK` and `PARENT`; None for a chunk without a parent."""
    if row["parent_text"] is None:
        return None
    return Parent(
        id=row["parent_id"],
        document_id=row["document_id"],
        version=row["version"],
        index=row["parent_index"],
        text=row["parent_text"],
        token_count=row["parent_token_count"],
        locator=SourceLocator.from_dict(row["parent_locator"]),
        metadata=row["parent_metadata"],
    )
