"""Ways of chunking tried in this process: the real parsers, chunkers, embedder, index and retriever, without ingestion.

Real are the parsing child, the chunker, the configured embedder, a collection of the configured Milvus (Milvus Lite
without one: its dense search is exact) and every stage of `retrieval`. Not used are Ray, which changes no chunk, and
PostgreSQL: the facts of the second check lie in memory, so that latencies are without its two statements.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rag_cluster.chunking.registry import create_chunker
from rag_cluster.domain.access import AccessFilter, Principal
from rag_cluster.domain.blocks import DocumentSource, ParsedDocument
from rag_cluster.domain.chunks import Chunk, IndexRow
from rag_cluster.domain.documents import IndexRecord, SourceKind
from rag_cluster.domain.ports import Chunker
from rag_cluster.domain.retrieval import EvidenceRow, Hit, ReadScope, RetrievalOptions
from rag_cluster.engines.threaded import ThreadedEmbedder
from rag_cluster.evaluation.datasets import Dataset
from rag_cluster.evaluation.embedding_cache import CachedEmbedder
from rag_cluster.evaluation.results import Cost
from rag_cluster.evaluation.target import Target
from rag_cluster.evaluation.variants import Variant
from rag_cluster.retrieval.retriever import Retriever

if TYPE_CHECKING:
    from rag_cluster.wiring import Services

KNOWLEDGE_BASE = "evaluation"
_ACCESS_KEY = 1


class HeldEvidence:
    """The `Evidence` port over chunks in memory, all of which everybody may read."""

    def __init__(self, index: IndexRecord, rows: dict[str, EvidenceRow]) -> None:
        self._index = index
        self._rows = rows

    async def scope(
        self,
        principal: Principal,
        knowledge_base_id: str,
        options: RetrievalOptions,
        *,
        embedder_fingerprint: str | None = None,
    ) -> ReadScope:
        """All there is."""
        access = AccessFilter(knowledge_base_id, (_ACCESS_KEY,), options.source_ids, options.document_ids)
        return ReadScope(access, self._index, len({row.chunk.document_id for row in self._rows.values()}))

    async def rows(
        self, principal: Principal, knowledge_base_id: str, hits: Sequence[Hit], options: RetrievalOptions
    ) -> dict[str, EvidenceRow]:
        """Those that are known."""
        return {hit.chunk_id: self._rows[hit.chunk_id] for hit in hits if hit.chunk_id in self._rows}

    async def changed_since(self, taken: str, document_ids: Sequence[str]) -> str | None:
        """Nothing changes."""
        return None


@dataclass
class Laboratory:
    """Parses a data set once, and makes a target of it for every way of chunking."""

    services: Services
    """Of which PostgreSQL is not touched."""
    dataset: Dataset
    embedder: CachedEmbedder

    def __post_init__(self) -> None:
        self._parsed = self._parse()

    def _parse(self) -> list[ParsedDocument]:
        parser = self.services.parser
        parsed = []
        with tempfile.TemporaryDirectory(prefix="rag-evaluation-") as folder:
            for document in self.dataset.documents:
                path = document.path or Path(folder) / document.name
                if document.path is None:
                    path.write_text(document.text, encoding="utf-8")
                source = DocumentSource(document.name, 1, document.name, str(path), size=path.stat().st_size)
                parsed.append(parser.parse(source))
        parser.close()
        return parsed

    @contextlib.contextmanager
    def target(self, variant: Variant | None) -> Iterator[Target]:
        """The data set, chunked that way (None: as set) and indexed. Its collection is dropped afterwards."""
        started = time.perf_counter()
        rows = self._chunked(self._chunker(variant))
        chunking_seconds = time.perf_counter() - started
        collection = f"evaluation_{uuid.uuid4().hex}"
        record = IndexRecord(0, collection, self.embedder.fingerprint, self.embedder.dimension, "active")
        index = self.services.index
        index.ensure(record)
        try:
            cost = self._index(collection, [row.chunk for row in rows.values()], chunking_seconds)
            retriever = partial(
                Retriever,
                HeldEvidence(record, rows),
                index,
                reranker=self.services.async_reranker,
                rerank_seconds=self.services.settings.rerank_timeout,
            )
            yield Target(
                retriever=retriever(ThreadedEmbedder(self.embedder)),
                timed=retriever(ThreadedEmbedder(self.services.embedder)),
                knowledge_base_id=KNOWLEDGE_BASE,
                names={document.name: document.name for document in self.dataset.documents},
                variant=variant.label if variant else "",
                cost=cost,
            )
        finally:
            index.drop(collection)

    def _chunker(self, variant: Variant | None) -> Chunker:
        if variant is None or not variant.parameters:
            return self.services.chunker(variant.strategy if variant else None)
        return create_chunker(variant.strategy, variant.parameters, self.embedder.tokenizer, self.embedder)

    def _chunked(self, chunker: Chunker) -> dict[str, EvidenceRow]:
        rows: dict[str, EvidenceRow] = {}
        for document in self._parsed:
            chunked = chunker.split(document, knowledge_base_id=KNOWLEDGE_BASE, fingerprint=KNOWLEDGE_BASE)
            parents = {parent.id: parent for parent in chunked.parents}
            for chunk in chunked.chunks:
                name = document.document_id
                rows[chunk.id] = EvidenceRow(
                    chunk, parents.get(chunk.parent_id or ""), name, name, "bulk", SourceKind.BULK, "bulk", 0
                )
        return rows

    def _index(self, collection: str, chunks: Sequence[Chunk], chunking_seconds: float) -> Cost:
        distinct = list(dict.fromkeys(chunk.content for chunk in chunks))
        known, seconds = len(self.embedder.embedded), self.embedder.seconds
        vectors = self.embedder.embed_documents([chunk.content for chunk in chunks])
        embedded = self.embedder.embedded[known:]
        seconds = self.embedder.seconds - seconds
        self.services.index.upsert(collection, [IndexRow(chunk, "bulk", _ACCESS_KEY) for chunk in chunks], vectors)
        self.services.index.flush(collection)
        count = self.embedder.tokenizer.count_many
        return Cost(
            chunks=len(chunks),
            tokens=sum(count(distinct)),
            chunking_seconds=round(chunking_seconds, 3),
            embedded_tokens=sum(count(embedded)),
            embedding_seconds=round(seconds, 3),
        )
