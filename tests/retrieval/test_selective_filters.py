"""A filter that one document of very many passes, on real stores."""

from __future__ import annotations

import os
import uuid
from typing import Any

import pytest

from rag_cluster.domain.access import LOCAL
from rag_cluster.domain.chunks import IndexRow
from rag_cluster.domain.ports import Catalog, Evidence, Ledger
from rag_cluster.domain.retrieval import RetrievalMode, RetrievalOptions
from rag_cluster.engines.hashing import HashEmbedder
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.retrieval.retriever import Retriever
from rag_cluster.stores.milvus import MilvusChunkIndex
from rag_cluster.stores.postgres import content
from rag_cluster.stores.postgres.database import Database
from tests.contracts.ledger_steps import Ingest, listed

DOCUMENTS = 10_000 if os.environ.get("RAG_FULL_COUNTS") == "1" else 1_200
"""More than the 1,000 whose ids are pushed down."""

_COPY_DOCUMENTS = """
    INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, access_key, published_version, metadata)
    SELECT gen_random_uuid(), knowledge_base_id, source_id, uri || n, filename, access_key, 1,
      jsonb_build_object('n', n, 'flag', CASE WHEN n = 7 THEN 'true' ELSE '1' END::jsonb)
    FROM documents, generate_series(1, %s) AS n WHERE id = %s RETURNING id"""
_COPY_CHUNKS = """
    INSERT INTO chunks (id, knowledge_base_id, document_id, version, index, content)
    SELECT gen_random_uuid(), knowledge_base_id, id, 1, 0, 'crane report ' || (metadata ->> 'n')
    FROM documents WHERE metadata ? 'n'"""


@pytest.mark.timeout(600)
async def test_the_one_document_that_passes_is_found(
    evidence: Evidence, catalog: Catalog, ledger: Ledger, database: Database, milvus_index: MilvusChunkIndex
) -> None:
    ingest, embedder = Ingest(catalog, ledger), HashEmbedder(32)
    first = catalog.document(ingest.ready(listed()).document_id, LOCAL)
    record = catalog.ensure_index(f"{embedder.fingerprint[:8]}{uuid.uuid4().hex[:8]}", embedder.dimension)
    with database.connection() as connection:
        connection.execute(_COPY_DOCUMENTS, (DOCUMENTS, first.id))
        connection.execute(_COPY_CHUNKS)
        connection.execute("UPDATE indexes SET embedder_fingerprint = %s", (embedder.fingerprint,))
        rows: list[dict[str, Any]] = connection.execute(
            f"SELECT {content.CHUNK}, d.metadata AS facts FROM chunks c JOIN documents d ON d.id = c.document_id "
            "WHERE d.metadata ? 'n'"
        ).fetchall()
    collection = catalog.indexes()[0]
    milvus_index.ensure(collection)
    chunks = [content.chunk(row) for row in rows]
    vectors = embedder.embed_documents([chunk.content for chunk in chunks])
    indexed = [
        IndexRow(chunk, first.source_id, first.access_key, row["facts"])
        for chunk, row in zip(chunks, rows, strict=True)
    ]
    milvus_index.upsert(collection.collection, indexed, vectors)
    milvus_index.flush(collection.collection)
    assert record.collection == collection.collection
    retriever = Retriever(evidence, milvus_index, ThreadedEmbedder(embedder))
    for raw in ({"n": 7}, {"field": "n", "operator": "lt", "value": 8}, {"flag": True}):
        wanted = {
            row["document_id"] for row in rows if row["facts"]["n"] in ((7,) if "operator" not in raw else range(8))
        }
        for mode in RetrievalMode:
            options = RetrievalOptions(mode=mode, top_k=8, filters=raw, expand_parents=False)
            run = await retriever.retrieve(LOCAL, ingest.knowledge_base_id, "crane report", options)
            assert {result.document_id for result in run.results} == wanted, (raw, mode, run.trace)
