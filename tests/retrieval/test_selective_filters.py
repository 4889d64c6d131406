"""A filter that one document of very many passes, on real stores."""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
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
from rag_cluster.stores.milvus_filters import compile_filter
from rag_cluster.stores.postgres import content
from rag_cluster.stores.postgres.database import Database
from tests.contracts.ledger_steps import Ingest, listed

DOCUMENTS = 10_000 if os.environ.get("RAG_FULL_COUNTS") == "1" else 1_200
"""More than the 1,000 whose ids are pushed down."""
FEW = 900
"""Fewer."""

_COPY_DOCUMENTS = """
    INSERT INTO documents (id, knowledge_base_id, source_id, uri, filename, access_key, published_version, metadata)
    SELECT gen_random_uuid(), knowledge_base_id, source_id, uri || n, filename, access_key, 1,
      jsonb_build_object('n', n, 'flag', CASE WHEN n = 7 THEN 'true' ELSE '1' END::jsonb)
    FROM documents, generate_series(1, %s) AS n WHERE id = %s RETURNING id"""
_COPY_CHUNKS = """
    INSERT INTO chunks (id, knowledge_base_id, document_id, version, index, content)
    SELECT gen_random_uuid(), knowledge_base_id, id, 1, 0, 'crane report ' || (metadata ->> 'n')
    FROM documents WHERE metadata ? 'n'"""


@dataclass
class Filled:
    """A knowledge base of short documents, numbered in their metadata."""

    base: str
    documents: dict[int, str]
    """Number -> id."""
    retriever: Retriever

    async def found(self, filters: dict[str, Any], mode: RetrievalMode, *among: str, top_k: int = 8) -> list[str]:
        """Documents of the results."""
        options = RetrievalOptions(
            mode=mode, top_k=top_k, filters=filters, expand_parents=False, document_ids=among or None
        )
        run = await self.retriever.retrieve(LOCAL, self.base, "crane report", options)
        return [result.document_id for result in run.results]


def fill(
    documents: int,
    evidence: Evidence,
    catalog: Catalog,
    ledger: Ledger,
    database: Database,
    milvus_index: MilvusChunkIndex,
) -> Filled:
    ingest, embedder = Ingest(catalog, ledger), HashEmbedder(32)
    first = catalog.document(ingest.ready(listed()).document_id, LOCAL)
    catalog.ensure_index(f"{embedder.fingerprint[:8]}{uuid.uuid4().hex[:8]}", embedder.dimension)
    with database.connection() as connection:
        connection.execute(_COPY_DOCUMENTS, (documents, first.id))
        connection.execute(_COPY_CHUNKS)
        connection.execute("UPDATE indexes SET embedder_fingerprint = %s", (embedder.fingerprint,))
        rows: list[dict[str, Any]] = connection.execute(
            f"SELECT {content.CHUNK}, d.metadata AS facts FROM chunks c JOIN documents d ON d.id = c.document_id "
            "WHERE d.metadata ? 'n'"
        ).fetchall()
    (record,) = catalog.indexes()
    milvus_index.ensure(record)
    chunks = [content.chunk(row) for row in rows]
    vectors = embedder.embed_documents([chunk.content for chunk in chunks])
    indexed = [
        IndexRow(chunk, first.source_id, first.access_key, row["facts"])
        for chunk, row in zip(chunks, rows, strict=True)
    ]
    milvus_index.upsert(record.collection, indexed, vectors)
    milvus_index.flush(record.collection)
    retriever = Retriever(evidence, milvus_index, ThreadedEmbedder(embedder))
    return Filled(ingest.knowledge_base_id, {row["facts"]["n"]: row["document_id"] for row in rows}, retriever)


@pytest.mark.timeout(600)
async def test_the_one_document_that_passes_is_found(
    evidence: Evidence, catalog: Catalog, ledger: Ledger, database: Database, milvus_index: MilvusChunkIndex
) -> None:
    filled = fill(DOCUMENTS, evidence, catalog, ledger, database, milvus_index)
    for raw in ({"n": 7}, {"field": "n", "operator": "lt", "value": 8}, {"flag": True}):
        wanted = {filled.documents[n] for n in ((7,) if "operator" not in raw else range(1, 8))}
        for mode in RetrievalMode:
            assert set(await filled.found(raw, mode)) == wanted, (raw, mode)


async def test_of_few_documents_those_that_pass_are_found_without_naming_any_to_the_index(
    evidence: Evidence, catalog: Catalog, ledger: Ledger, database: Database, milvus_index: MilvusChunkIndex
) -> None:
    """Milvus Lite reads a list of ids anew for each row when a condition on JSON stands beside it."""
    filled = fill(FEW, evidence, catalog, ledger, database, milvus_index)
    most = {"field": "n", "operator": "gt", "value": 7}
    scope = await evidence.scope(LOCAL, filled.base, RetrievalOptions(filters=most))
    assert scope.visible_documents == FEW + 1 and "document_id" not in compile_filter(scope.filter)
    for mode in RetrievalMode:
        assert await filled.found({"n": 7}, mode) == [filled.documents[7]]
        found = await filled.found(most, mode, top_k=30)
        named = await filled.found(most, mode, *filled.documents.values(), top_k=30)
        assert len(found) == len(named) == 30 and not {filled.documents[n] for n in range(1, 8)} & {*found, *named}
