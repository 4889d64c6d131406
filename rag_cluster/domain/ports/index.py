"""Vectors and BM25."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rag_cluster.domain.access import AccessFilter
from rag_cluster.domain.chunks import IndexRow
from rag_cluster.domain.documents import IndexRecord
from rag_cluster.domain.inventory import StoredRow
from rag_cluster.domain.retrieval import Hit

if TYPE_CHECKING:
    from rag_cluster.domain.ports.engines import Matrix


class ChunkIndex(Protocol):
    """Vectors + BM25 of one or several collections. Derived: it can be rebuilt from snapshots at any time."""

    def exists(self, collection: str) -> bool: ...

    def ensure(self, index: IndexRecord) -> None:
        """Create the collection, or check it: IndexMismatchError when its dimension differs."""
        ...

    def upsert(self, collection: str, rows: Sequence[IndexRow], vectors: Matrix) -> None:
        """vectors: (len(rows), dimension). Writing the same ids again replaces them."""
        ...

    def delete(
        self, collection: str, document_id: str, *, version: int | None = None, max_version: int | None = None
    ) -> None:
        """Rows of document_id with that version / up to max_version / all."""
        ...

    def update_access(self, collection: str, document_id: str, *, access_key: int, metadata: Mapping[str, Any]) -> None:
        """Rewrite the push-down fields of a document's rows without new vectors."""
        ...

    def chunk_ids(self, collection: str, document_id: str) -> dict[str, int]:
        """chunk id -> version of every row of a document."""
        ...

    def rows(
        self,
        collection: str,
        knowledge_base_id: str,
        *,
        after: str = "",
        last: str | None = None,
        document_id: str | None = None,
    ) -> Iterator[StoredRow]:
        """Rows of a knowledge base, by chunk id: of one document, or of those with ids in (after, last]. A page at a
        time; rows written or deleted meanwhile may or may not come. Nothing without the collection."""
        ...

    def foreign_rows(self, collection: str, knowledge_base_ids: Sequence[str]) -> Iterator[StoredRow]:
        """Rows of none of these knowledge bases, as `rows`."""
        ...

    def delete_rows(self, collection: str, knowledge_base_id: str, chunk_ids: Sequence[str]) -> None:
        """Delete these ids in this knowledge base's partition only. What is not there is no error."""
        ...

    def drop(self, collection: str) -> None:
        """Delete the collection. What is not there is no error."""
        ...

    def flush(self, collection: str) -> None:
        """Make recent rows fast to search; once at the end of a run or of an online batch."""
        ...

    async def search_dense(
        self, collection: str, vector: Sequence[float], access: AccessFilter, limit: int
    ) -> list[Hit]:
        """Nearest rows, best first, strong consistency; score is the cosine. An empty filter returns []."""
        ...

    async def search_sparse(self, collection: str, text: str, access: AccessFilter, limit: int) -> list[Hit]:
        """Best BM25 rows, best first. An empty filter returns []."""
        ...


class Analyzer(Protocol):
    """The tokens that BM25 compares."""

    async def analyze(self, texts: Sequence[str]) -> list[list[str]]:
        """The tokens of each text, in order, as the index makes them."""
        ...
