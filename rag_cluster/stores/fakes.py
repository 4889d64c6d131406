"""Stores in memory, for tests and for measuring a pipeline without its stores. They pass the ports' contract suites."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.chunks import IndexRow, chunk_facts
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.filters import passes
from rag_cluster.domain.inventory import StoredRow
from rag_cluster.domain.patterns import word_pattern
from rag_cluster.domain.retrieval import Hit
from rag_cluster.errors import IndexMismatchError
from rag_cluster.stores.milvus_filters import compile_filter, matches_nothing

if TYPE_CHECKING:
    import numpy.typing as npt

    from rag_cluster.domain.ports import Matrix

_WORD = re.compile(r"[㐀-鿿]+|\w+")
_K1, _B = 1.5, 0.75


@dataclass
class _Collection:
    dimension: int
    fingerprint: str
    rows: dict[str, tuple[IndexRow, npt.NDArray[np.float32], Counter[str]]]


class MemoryChunkIndex:
    """`ChunkIndex` in one process: exact cosine, small BM25 over words and Chinese character pairs. Thread-safe."""

    def __init__(self) -> None:
        self._collections: dict[str, _Collection] = {}
        self._lock = threading.RLock()

    def exists(self, collection: str) -> bool:
        """Whether the collection is there."""
        return collection in self._collections

    def ensure(self, index: IndexRecord) -> None:
        """Create the collection or check its dimension and embedder. IndexMismatchError."""
        with self._lock:
            empty = _Collection(index.dimension, index.embedder_fingerprint, {})
            found = self._collections.setdefault(index.collection, empty)
        if (found.dimension, found.fingerprint) != (index.dimension, index.embedder_fingerprint):
            raise IndexMismatchError(f"Collection {index.collection} holds other vectors than {index}")

    def upsert(self, collection: str, rows: Sequence[IndexRow], vectors: Matrix) -> None:
        """Write rows, replacing those of the same chunk id."""
        if not rows:
            return
        found = self._collection(collection)
        if vectors.shape != (len(rows), found.dimension):
            raise IndexMismatchError(f"{collection} takes ({len(rows)}, {found.dimension}), not {vectors.shape}")
        with self._lock:
            for row, vector in zip(rows, vectors, strict=True):
                found.rows[row.chunk.id] = (row, np.array(vector, np.float32), Counter(_terms(row.chunk.content)))

    def delete(
        self, collection: str, document_id: str, *, version: int | None = None, max_version: int | None = None
    ) -> None:
        """Delete a document's rows of one version, up to one, or all."""

        def doomed(row: IndexRow) -> bool:
            return (
                row.chunk.document_id == document_id
                and (version is None or row.chunk.version == version)
                and (max_version is None or row.chunk.version <= max_version)
            )

        with self._lock:
            if found := self._collections.get(collection):
                found.rows = {key: entry for key, entry in found.rows.items() if not doomed(entry[0])}

    def update_access(self, collection: str, document_id: str, *, access_key: int, metadata: Mapping[str, Any]) -> None:
        """Rewrite the push-down fields of a document's rows."""
        with self._lock:
            if found := self._collections.get(collection):
                for key, (row, vector, terms) in found.rows.items():
                    if row.chunk.document_id == document_id:
                        changed = replace(row, access_key=access_key, document_metadata=dict(metadata))
                        found.rows[key] = (changed, vector, terms)

    def chunk_ids(self, collection: str, document_id: str) -> dict[str, int]:
        """chunk id -> version of every row of a document."""
        with self._lock:
            found = self._collections.get(collection)
            rows = [row for row, _, _ in found.rows.values()] if found else []
        return {row.chunk.id: row.chunk.version for row in rows if row.chunk.document_id == document_id}

    def rows(
        self,
        collection: str,
        knowledge_base_id: str,
        *,
        after: str = "",
        last: str | None = None,
        document_id: str | None = None,
    ) -> Iterator[StoredRow]:
        """Rows of a knowledge base, by chunk id: of one document, or of those with ids in (after, last]."""
        for row in self._stored(collection):
            in_range = row.document_id > after and (last is None or row.document_id <= last)
            in_range = in_range and document_id in (None, row.document_id)
            if row.knowledge_base_id == knowledge_base_id and in_range:
                yield row

    def foreign_rows(self, collection: str, knowledge_base_ids: Sequence[str]) -> Iterator[StoredRow]:
        """Rows of none of these knowledge bases, by chunk id."""
        return (row for row in self._stored(collection) if row.knowledge_base_id not in knowledge_base_ids)

    def _stored(self, collection: str) -> list[StoredRow]:
        with self._lock:
            found = self._collections.get(collection)
            rows = [row for row, _, _ in found.rows.values()] if found else []
        stored = (
            StoredRow(
                row.chunk.id,
                row.chunk.knowledge_base_id,
                row.chunk.document_id,
                row.source_id,
                row.chunk.version,
                row.access_key,
                row.document_metadata,
            )
            for row in rows
        )
        return sorted(stored, key=lambda row: row.id)

    def delete_rows(self, collection: str, knowledge_base_id: str, chunk_ids: Sequence[str]) -> None:
        """Delete these ids in this knowledge base only."""
        with self._lock:
            if found := self._collections.get(collection):
                for chunk_id in chunk_ids:
                    entry = found.rows.get(chunk_id)
                    if entry is not None and entry[0].chunk.knowledge_base_id == knowledge_base_id:
                        del found.rows[chunk_id]

    def drop(self, collection: str) -> None:
        """Delete the collection."""
        with self._lock:
            self._collections.pop(collection, None)

    def flush(self, collection: str) -> None:
        """Nothing to do."""

    async def search_dense(
        self, collection: str, vector: Sequence[float], access: AccessFilter, limit: int
    ) -> list[Hit]:
        """Nearest rows by cosine, best first."""
        await asyncio.sleep(0)  # can be cancelled, as a real one
        if matches_nothing(access) or limit <= 0:
            return []
        query = np.asarray(vector, np.float32)
        if query.shape != (self._collection(collection).dimension,):
            raise IndexMismatchError(f"{collection} is not searched with {query.shape[0]} dimensions")

        def cosine(entry: tuple[IndexRow, npt.NDArray[np.float32], Counter[str]]) -> float:
            return float(entry[1] @ query / (np.linalg.norm(entry[1]) * np.linalg.norm(query) or 1.0))

        return self._ranked(collection, access, limit, cosine)

    async def search_sparse(self, collection: str, text: str, access: AccessFilter, limit: int) -> list[Hit]:
        """Best BM25 rows, best first."""
        await asyncio.sleep(0)  # can be cancelled, as a real one
        if matches_nothing(access) or limit <= 0:
            return []
        found = self._collection(collection)
        query = set(_terms(text))
        with self._lock:
            documents = [terms for _, _, terms in found.rows.values()]
        mean = sum(terms.total() for terms in documents) / max(len(documents), 1) or 1.0
        weight = {}
        for term in query:
            containing = sum(1 for terms in documents if term in terms)
            weight[term] = math.log(1 + (len(documents) - containing + 0.5) / (containing + 0.5))

        def bm25(entry: tuple[IndexRow, npt.NDArray[np.float32], Counter[str]]) -> float | None:
            terms = entry[2]
            shared = query & terms.keys()
            if not shared:
                return None
            length = _K1 * (1 - _B + _B * terms.total() / mean)
            return sum(weight[term] * terms[term] * (_K1 + 1) / (terms[term] + length) for term in shared)

        return self._ranked(collection, access, limit, bm25)

    def _collection(self, name: str) -> _Collection:
        try:
            return self._collections[name]
        except KeyError:
            raise IndexMismatchError(f"The collection {name} does not exist") from None

    def _ranked(
        self,
        collection: str,
        access: AccessFilter,
        limit: int,
        score: Callable[[tuple[IndexRow, npt.NDArray[np.float32], Counter[str]]], float | None],
    ) -> list[Hit]:
        compile_filter(access)  # refuses what Milvus refuses
        with self._lock:
            entries = [entry for entry in self._collection(collection).rows.values() if _passes(entry[0], access)]
        hits = [
            Hit(entry[0].chunk.id, entry[0].chunk.document_id, entry[0].chunk.version, value)
            for entry in entries
            if (value := score(entry)) is not None
        ]
        return sorted(hits, key=lambda hit: -hit.score)[:limit]


class MemoryChunkSearch:
    """The keyword half of `ChunkSearch` over the rows of an index in memory."""

    def __init__(self, index: MemoryChunkIndex, collection: str) -> None:
        self._index = index
        self._collection = collection

    async def keyword_hits(
        self,
        access: AccessFilter,
        keywords: Sequence[str],
        *,
        least: int,
        limit: int,
        among: Sequence[str] | None = None,
    ) -> list[Hit]:
        """Chunks of the scope that hold at least so many of the keywords, most first."""
        await asyncio.sleep(0)
        patterns = [re.compile(word_pattern(keyword), re.IGNORECASE) for keyword in keywords]

        def held(entry: tuple[IndexRow, npt.NDArray[np.float32], Counter[str]]) -> float | None:
            chunk = entry[0].chunk
            count = sum(pattern.search(chunk.content) is not None for pattern in patterns)
            return float(count) if count >= least and (among is None or chunk.id in among) else None

        return self._index._ranked(self._collection, access, limit, held)

    async def exceeds(self, access: AccessFilter, chunks: int) -> bool:
        """Whether the scope has more chunks than so many, whatever their metadata."""
        everything = replace(access, metadata=None)
        return len(self._index._ranked(self._collection, everything, chunks + 1, lambda _: 1)) > chunks


def _passes(row: IndexRow, access: AccessFilter) -> bool:
    chunk = row.chunk
    return (
        chunk.knowledge_base_id == access.knowledge_base_id
        and row.access_key in access.access_keys
        and (access.source_ids is None or row.source_id in access.source_ids)
        and (access.document_ids is None or chunk.document_id in access.document_ids)
        and passes(access.metadata, row.document_metadata, chunk_facts(chunk))
    )


def _terms(text: str) -> list[str]:
    terms: list[str] = []
    for word in _WORD.findall(text.lower()):
        if "㐀" <= word[0] <= "鿿" and len(word) > 1:
            terms.extend(word[i : i + 2] for i in range(len(word) - 1))
        else:
            terms.append(word)
    return terms
