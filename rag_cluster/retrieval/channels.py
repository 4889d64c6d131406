"""The recall channels of one query: dense and BM25 for every variant of it, and one for managed corrections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.ports import AsyncEmbedder, ChunkIndex
from rag_cluster.domain.retrieval import Hit, ReadScope, RetrievalMode, RetrievalOptions
from rag_cluster.domain.terms import language
from rag_cluster.retrieval.candidates import CORRECTION
from rag_cluster.retrieval.crossing import foreign_vector, offset_of
from rag_cluster.retrieval.search import Channel, SearchCall

REWRITTEN = "rewrite_"
"""Prefix of the channels that search with the rewritten question."""
CROSSING = "cross_language"


class QueryVectors:
    """Embeds the variants once and together, inside the dense channels, so that BM25 does not wait for it."""

    def __init__(self, embedder: AsyncEmbedder, variants: Sequence[str]) -> None:
        self._embedder = embedder
        self.fingerprint = embedder.fingerprint
        self._variants = list(variants)
        self._lock = asyncio.Lock()
        self._vectors: list[tuple[float, ...]] = []

    @property
    def original(self) -> tuple[float, ...] | None:
        """The question's own, once it was embedded."""
        return self._vectors[0] if self._vectors else None

    async def get(self, variant: int = 0) -> tuple[float, ...]:
        """The vector of a variant. What the embedder raises."""
        # Several channels may ask: the lock lets one of them embed.
        async with self._lock:
            if not self._vectors:
                matrix = await self._embedder.embed_queries(self._variants)
                self._vectors = [tuple(float(x) for x in row) for row in matrix]
            return self._vectors[variant]


class ChannelFactory:
    """Makes the channels of one query on one index."""

    def __init__(self, index: ChunkIndex, collection: str, vectors: QueryVectors, variants: Sequence[str]) -> None:
        self._index = index
        self._collection = collection
        self._vectors = vectors
        self._variants = variants

    def dense(self, access: AccessFilter, variant: int = 0) -> SearchCall:
        """Search by the variant's vector."""

        async def search(limit: int) -> list[Hit]:
            return await self._index.search_dense(self._collection, await self._vectors.get(variant), access, limit)

        return search

    def crossing(self, access: AccessFilter) -> SearchCall:
        """Search by the question's vector as it would lie among passages of the other language."""

        async def search(limit: int) -> list[Hit]:
            vector = await self._vectors.get()
            moved = foreign_vector(self._vectors.fingerprint, self._variants[0], vector)
            return [] if moved is None else await self._index.search_dense(self._collection, moved, access, limit)

        return search

    def sparse(self, access: AccessFilter, variant: int = 0) -> SearchCall:
        """Search by the variant's words."""

        async def search(limit: int) -> list[Hit]:
            return await self._index.search_sparse(self._collection, self._variants[variant], access, limit)

        return search

    def channels(self, scope: ReadScope, options: RetrievalOptions) -> list[Channel]:
        """All of them; those of the question itself come first."""
        channels = []
        for variant in range(len(self._variants)):
            prefix = REWRITTEN if variant else ""
            if options.mode is not RetrievalMode.SPARSE:
                call = self.dense(scope.filter, variant)
                channels.append(Channel(f"{prefix}dense", call, options.candidate_k, cosine=True))
            if options.mode is not RetrievalMode.DENSE:
                call = self.sparse(scope.filter, variant)
                channels.append(Channel(f"{prefix}sparse", call, options.candidate_k))
        crosses = options.cross_language and offset_of(self._vectors.fingerprint) is not None
        if crosses and options.mode is not RetrievalMode.SPARSE:
            call, own = self.crossing(scope.filter), language(self._variants[0])
            channels.append(Channel(CROSSING, call, options.candidate_k, cosine=True, foreign=own))
        if scope.correction_source_ids:
            # A correction need not score high enough for the general recall (seed 004).
            corrections = replace(scope.filter, source_ids=scope.correction_source_ids)
            cosine = options.mode is not RetrievalMode.SPARSE
            call = (self.dense if cosine else self.sparse)(corrections)
            channels.append(Channel(CORRECTION, call, options.top_k, cosine=cosine, targeted=True))
        return channels
