"""Chunks for the query benchmark, written straight into the stores: what is measured is reading, not ingestion.

Texts are drawn English and Chinese sentences; vectors are random unit vectors, as the latency of a search does not
depend on what they mean. Questions are embedded by the real embedder, under whose fingerprint the index stands.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rag_cluster.benchmarks.ingestion_corpus import paragraph_texts
from rag_cluster.domain import ids
from rag_cluster.domain.access import AccessAttributes
from rag_cluster.domain.chunks import Chunk, ChunkedDocument, IndexRow, Parent, PartContent, part_boundaries
from rag_cluster.domain.documents import Claim, SourceFile, SourceKind
from rag_cluster.domain.retrieval import Hit
from rag_cluster.wiring import Services

FINGERPRINT = "benchmark"
OWNER = "query-benchmark"
CHILDREN = 4
"""Chunks of one parent."""
BATCH_DOCUMENTS = 20


@dataclass(frozen=True, slots=True)
class Filled:
    """What was written: the knowledge base, and every chunk as a search would return it."""

    knowledge_base_id: str
    hits: tuple[Hit, ...]


class Drawer:
    """Sentences of both languages from one pool, so that a hundred thousand chunks are drawn within seconds."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - texts, not secrets
        pools = [paragraph_texts(self._random, 200_000, chinese=chinese) for chinese in (False, False, True)]
        self._pools = [[text for text in pool if text] for pool in pools]

    def text(self, number: int, characters: int) -> str:
        """About so many characters; of every third number Chinese, of half as many."""
        pool = self._pools[number % 3]
        wanted = characters // (2 if number % 3 == 2 else 1)
        pieces: list[str] = []
        length = 0
        while length < wanted:
            pieces.append(self._random.choice(pool))
            length += len(pieces[-1])
        return f"{number}. " + " ".join(pieces)

    def question(self, number: int) -> str:
        """A question that was not asked before, of some words of the texts."""
        pool = self._pools[number % 3]
        chosen = self._random.choice(pool)
        if number % 3 == 2:
            return f"第 {number} 号：{chosen[:24]}是什么？"
        words = chosen.split()
        start = self._random.randrange(max(1, len(words) - 7))
        return f"What about {number}: {' '.join(words[start : start + 7])}?"


def fill(
    services: Services, chunks: int, *, per_document: int, characters: int = 700, indexed: int | None = None
) -> Filled:
    """Write so many chunks of documents that everybody reads. indexed: so many into Milvus too; None: all."""
    most = chunks if indexed is None else indexed
    base = services.catalog.create_knowledge_base("benchmark", default_acl=())
    embedder = services.embedder
    record = services.catalog.ensure_index(embedder.fingerprint, embedder.dimension)
    if most:
        services.index.ensure(record)
    source = services.catalog.ensure_source(base.id, SourceKind.BULK, "bulk").id
    drawer, vectors = Drawer(7), np.random.default_rng(7)
    hits: list[Hit] = []
    for numbers in _batches(chunks // per_document):
        written = [_registered(services, base.id, source, drawer, n, per_document, characters) for n in numbers]
        facts = services.ledger.begin_index([claim for claim, _ in written])
        if len(hits) < most:
            rows = [IndexRow(chunk, *facts[chunk.document_id]) for _, part in written for chunk in part.chunks]
            matrix = vectors.standard_normal((len(rows), embedder.dimension), dtype=np.float32)
            matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
            services.index.upsert(record.collection, rows, matrix)
        services.ledger.complete_parts(written, index_id=record.id)
        hits += [Hit(chunk.id, chunk.document_id, 1, 0.0) for _, part in written for chunk in part.chunks]
    if most:
        services.index.flush(record.collection)
    with services.database.connection() as connection:
        connection.execute("VACUUM ANALYZE")  # as autovacuum does within minutes
    return Filled(base.id, tuple(hits))


def _batches(documents: int) -> Iterator[range]:
    for start in range(0, documents, BATCH_DOCUMENTS):
        yield range(start, min(start + BATCH_DOCUMENTS, documents))


def _registered(
    services: Services, base: str, source: str, drawer: Drawer, number: int, chunks: int, characters: int
) -> tuple[Claim, PartContent]:
    uri, name = f"file:///benchmark/{number:06}.txt", f"{number:06}.txt"
    file = SourceFile(uri, name, 1, "1", AccessAttributes(), {"number": number})
    claim = services.ledger.claim(base, source, file, FINGERPRINT, owner=OWNER, lease_seconds=600)
    assert claim is not None, "nobody else works here"
    document = _document(base, claim.document_id, drawer, number, chunks, characters)
    (part,) = part_boundaries(document, claim.document_id, claim.version)
    services.ledger.commit_snapshot(claim, sha256=hashlib.sha256(file.uri.encode()).hexdigest(), size=1, parts=[part])
    return claim, PartContent(part, document.chunks, document.parents)


def _document(base: str, document: str, drawer: Drawer, number: int, count: int, characters: int) -> ChunkedDocument:
    texts = [drawer.text(number * count + at, characters) for at in range(count)]
    parents = [
        Parent(
            ids.parent_id(document, 1, FINGERPRINT, at), document, 1, at, "\n\n".join(texts[first : first + CHILDREN])
        )
        for at, first in enumerate(range(0, count, CHILDREN))
    ]
    children = [
        Chunk(
            id=ids.chunk_id(document, 1, FINGERPRINT, at, text),
            knowledge_base_id=base,
            document_id=document,
            version=1,
            index=at,
            content=text,
            parent_id=parents[at // CHILDREN].id,
            content_types=("text",),
            metadata={"chunking_strategy": "structured", "filename": f"{number:06}.txt"},
        )
        for at, text in enumerate(texts)
    ]
    return ChunkedDocument(tuple(children), tuple(parents))
