"""Which indexes there are, what each holds, and which one is active."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from rag_cluster.domain.chunks import MissingPart, Part
from rag_cluster.domain.documents import IndexRecord


class IndexRecords(Protocol):
    """One index an embedder; one of them is active: ingestion writes it and queries read it."""

    def ensure_index(self, embedder_fingerprint: str, dimension: int) -> IndexRecord:
        """The record for this embedder; the first one becomes active, a later one is building. IndexMismatchError on
        another dimension; ConflictError while it is being dropped."""
        ...

    def indexes(self) -> list[IndexRecord]:
        """All, the active one first: deletes and access changes go to each as long as its collection may be there."""
        ...

    def missing_parts(self, index_id: int, after: Part | None = None, limit: int = 1000) -> list[MissingPart]:
        """The next parts, by document and number, of what queries see that an index lacks; [] at the end."""
        ...

    def count_missing(self, index_id: int) -> tuple[int, int]:
        """(parts, chunks) of what queries see that an index lacks."""
        ...

    def held_parts(self, index_id: int, parts: Sequence[Part]) -> set[Part]:
        """Which of these an index holds."""
        ...

    def filling(
        self, index_id: int, parts: Sequence[Part]
    ) -> AbstractContextManager[Mapping[tuple[str, int], tuple[str, int, Mapping[str, Any]]]]:
        """(document id, version) -> (source_id, access_key, metadata), of these parts' versions that queries see.

        Inside, they can be neither replaced, deleted nor changed: what the caller writes is removed or updated by
        whoever does so later. At the end the index holds their parts; after an exception it does not.
        """
        ...

    def switch_index(self, index_id: int, fill: Callable[[Sequence[MissingPart]], object] | None = None) -> int:
        """Make an index the active one and retire the other, in one transaction that nothing can be published in.

        0: it is active. Otherwise nothing changed, and so many parts are missing, at least. fill: given the last few
        missing parts, it has the index hold them, while publishing waits. NotFoundError; ConflictError while it is
        being dropped.
        """
        ...

    def lease_index(self, index_id: int, owner: str, lease_seconds: float) -> tuple[str, float] | None:
        """Be the one job that fills an index, or go on being it: None. Otherwise who is, and for how many seconds at
        least. NotFoundError."""
        ...

    def release_index(self, index_id: int, owner: str) -> None:
        """Give a lease back; that of another owner stays."""
        ...

    def begin_drop(self, collection: str) -> IndexRecord:
        """Nobody uses an index from now on. NotFoundError; ConflictError for the active one. Again is harmless."""
        ...

    def finish_drop(self, collection: str) -> None:
        """Forget an index whose collection is gone, with what it held."""
        ...

    def forget_parts(self, collection: str, document_id: str | None = None, version: int | None = None) -> None:
        """An index lacks a version, or everything, from now on: the next re-embedding writes it again."""
        ...
